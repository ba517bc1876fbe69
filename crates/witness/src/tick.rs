//! A tick: one act of a program, as it tells a witness of it.
//!
//! It tells the moment at which it was *made*. When it arrives says something about networks and about the witness, and
//! only where the machines differ it is all that there is to go by.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::limits::{NAME_CHARS_MAX, TICK_BYTES_MAX};

/// One act of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tick {
    /// The hold under which the program runs.
    pub hold: String,
    /// The node that started it.
    pub node: String,
    /// The start of the program: drawn anew whenever it is started.
    pub instance: String,
    /// The token that it was given.
    pub token: u64,
    /// The number of this tick in its instance, from 1: what is missing was made, and lost on its way.
    pub sequence: u64,
    /// When it was made, by the clock of its machine. Without it, it counts when it arrives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<Made>,
    /// The same by the wall clock, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall: Option<Timestamp>,
}

/// A moment, by a clock that all processes of a machine share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Made {
    /// The start of the machine: `/proc/sys/kernel/random/boot_id`.
    pub boot: String,
    /// `CLOCK_BOOTTIME`, in microseconds.
    pub since_boot_us: u64,
}

impl Made {
    /// The time since the machine's start.
    pub fn since_boot(&self) -> Duration {
        Duration::from_micros(self.since_boot_us)
    }
}

/// Why something is no tick.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadTick {
    /// It is longer than any tick.
    #[error("a tick has at most {TICK_BYTES_MAX} bytes")]
    TooLong,
    /// It is no JSON, or has other fields.
    #[error(
        "it cannot be read: {0}; a tick is {{\"hold\", \"node\", \"instance\", \"token\", \"sequence\"}}, and may have \"made\" and \"wall\""
    )]
    Json(String),
    /// A name is empty, too long, or has something in it that nobody could print.
    #[error("{0} has 1 to {NAME_CHARS_MAX} characters, all of them visible ASCII")]
    Name(&'static str),
    /// It has the number of no tick.
    #[error("the sequence of an instance begins at 1")]
    Sequence,
}

impl Tick {
    /// Reads what may be one, whoever sent it.
    pub fn read(bytes: &[u8]) -> Result<Self, BadTick> {
        if bytes.len() > TICK_BYTES_MAX {
            return Err(BadTick::TooLong);
        }
        let tick: Self =
            serde_json::from_slice(bytes).map_err(|why| BadTick::Json(why.to_string()))?;
        tick.check()?;
        Ok(tick)
    }

    /// Whether a witness takes it.
    pub fn check(&self) -> Result<(), BadTick> {
        let boot = self.made.as_ref().map(|made| ("boot", &made.boot));
        let names = [("hold", &self.hold), ("node", &self.node), ("instance", &self.instance)];
        for (name, text) in names.into_iter().chain(boot) {
            let is_visible = text.bytes().all(|byte| byte.is_ascii_graphic());
            if !is_visible || !(1..=NAME_CHARS_MAX).contains(&text.len()) {
                return Err(BadTick::Name(name));
            }
        }
        if self.sequence == 0 {
            return Err(BadTick::Sequence);
        }
        Ok(())
    }

    /// As it is sent.
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("a tick always serializes")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tick(name: &str) -> Tick {
        Tick {
            hold: name.to_owned(),
            node: "a".to_owned(),
            instance: "1".to_owned(),
            token: u64::MAX,
            sequence: 1,
            made: Some(Made { boot: "b".to_owned(), since_boot_us: u64::MAX }),
            wall: Some(Timestamp::UNIX_EPOCH),
        }
    }

    #[test]
    fn what_is_sent_is_read() {
        let sent = tick("reports");
        assert_eq!(Tick::read(sent.json().as_bytes()), Ok(sent));
        let least = br#"{"hold":"x","node":"a","instance":"1","token":0,"sequence":1}"#;
        let read = Tick::read(least).unwrap();
        assert_eq!((read.made, read.wall), (None, None));
    }

    #[test]
    fn names_are_taken_up_to_the_limit_and_refused_one_past_it() {
        let read = |name: &str| Tick::read(tick(name).json().as_bytes());
        assert!(read(&"x".repeat(NAME_CHARS_MAX)).is_ok());
        assert_eq!(read(&"x".repeat(NAME_CHARS_MAX + 1)), Err(BadTick::Name("hold")));
        for name in ["", "a b", "\u{1b}[2J", "é"] {
            assert_eq!(read(name), Err(BadTick::Name("hold")), "{name:?}");
        }
    }

    #[test]
    fn bytes_are_taken_up_to_the_limit_and_refused_one_past_it() {
        let mut text = tick("reports").json();
        text.push_str(&" ".repeat(TICK_BYTES_MAX - text.len()));
        assert!(Tick::read(text.as_bytes()).is_ok());
        text.push(' ');
        assert_eq!(Tick::read(text.as_bytes()), Err(BadTick::TooLong));
    }

    #[test]
    fn the_longest_tick_fits_into_a_datagram() {
        let long = "x".repeat(NAME_CHARS_MAX);
        let mut tick = tick(&long);
        (tick.node, tick.instance, tick.sequence) = (long.clone(), long.clone(), u64::MAX);
        tick.made.as_mut().unwrap().boot = long;
        assert!(Tick::read(tick.json().as_bytes()).is_ok());
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_tick_or_say_why_not(bytes: Vec<u8>) {
            let _ = Tick::read(&bytes);
        }
    }
}
