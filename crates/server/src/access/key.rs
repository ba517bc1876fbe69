//! Keys: texts that let somebody in.
//!
//! ```text
//! wbk_0d3k8w1v2m7qa_<52 letters>     id, secret
//! ```
//!
//! What is stored is an HMAC of the text under a salt of its own, so that who reads the store cannot come in. The
//! secret has 256 bits that nobody chose, so guessing is hopeless and no slow hash is needed; tags are compared in
//! constant time.

use std::fmt::{self, Write};
use std::str::FromStr;

use engine::id::SerialId;
use engine::instant::Instant;
use ring::hmac;
use serde::{Deserialize, Serialize};
use store::machine::Machine;

/// What every key begins with: whoever finds one in a log or a repository knows what it is.
const PREFIX: &str = "wbk_";

/// Letters of the secret part: four numbers of 13.
const SECRET_LEN: usize = 52;

/// Names a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub SerialId);

/// What tells the right text from a wrong one: a salt, and an HMAC of the text under it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tag {
    salt: String,
    tag: String,
}

/// A text that lets somebody in.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyText {
    text: String,
    id: KeyId,
}

impl KeyText {
    /// A new key, drawn at random.
    pub fn draw(machine: &dyn Machine, now: Instant) -> Self {
        let id = KeyId(SerialId::born(now, SerialId(0), machine.random()));
        let secret: String = (0..4).map(|_| SerialId(machine.random()).to_string()).collect();
        Self { text: format!("{PREFIX}{}_{secret}", id.0), id }
    }

    /// Reads what somebody sent. None, if it is no key at all.
    pub fn parse(text: &str) -> Option<Self> {
        let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
        let fits = secret.len() == SECRET_LEN
            && secret.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        let id = KeyId(id.parse().ok()?);
        fits.then(|| Self { text: text.to_owned(), id })
    }

    /// Which key it claims to be.
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// The text, for the one to whom it is told once.
    pub fn reveal(&self) -> &str {
        &self.text
    }

    /// What to store of it.
    pub fn tag(&self, machine: &dyn Machine) -> Tag {
        let salt = format!("{:016x}{:016x}", machine.random(), machine.random());
        let tag = hmac::sign(&signer(&salt), self.text.as_bytes());
        Tag { salt, tag: hex(tag.as_ref()) }
    }

    /// Whether this tag is of this text.
    pub fn fits(&self, tag: &Tag) -> bool {
        let Some(expected) = unhex(&tag.tag) else { return false };
        hmac::verify(&signer(&tag.salt), self.text.as_bytes(), &expected).is_ok()
    }
}

fn signer(salt: &str) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, salt.as_bytes())
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String never fails");
        text
    })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let byte = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    (0..text.len()).step_by(2).map(byte).collect()
}

impl fmt::Display for KeyId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "key_{}", self.0)
    }
}

impl FromStr for KeyId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let serial = text.strip_prefix("key_").and_then(|text| text.parse().ok());
        serial.map(Self).ok_or("that is no id of a key: one looks like key_0d3k8w1v2m7qa")
    }
}

impl Serialize for KeyId {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for KeyId {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

impl fmt::Debug for KeyText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "KeyText({})", self.id)
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Tag")
    }
}

#[cfg(test)]
mod tests {
    use store::machine::System;

    use super::*;

    #[test]
    fn a_key_fits_its_own_tag_and_no_other() {
        let now = Instant(1_800_000_000_000);
        let (one, other) = (KeyText::draw(&System, now), KeyText::draw(&System, now));
        let tag = one.tag(&System);
        let read = KeyText::parse(one.reveal()).unwrap();
        assert!(read == one && read.fits(&tag) && read.id() == one.id());
        assert!(!other.fits(&tag));
        assert_ne!(tag, one.tag(&System), "the same text has another tag each time");
        let mut wrong = one.reveal().to_owned();
        let last = wrong.pop().unwrap();
        wrong.push(if last == '0' { '1' } else { '0' });
        assert!(!KeyText::parse(&wrong).unwrap().fits(&tag));
        let spoilt = Tag { tag: "xyz".to_owned(), ..tag };
        assert!(!one.fits(&spoilt));
    }

    #[test]
    fn rubbish_is_no_key() {
        let good = KeyText::draw(&System, Instant(0)).reveal().to_owned();
        for bad in ["", "wbk_", "wbk__", &good[1..], &good[..good.len() - 1], &format!("{good}0")] {
            assert!(KeyText::parse(bad).is_none(), "{bad}");
        }
        assert!(KeyText::parse(&good.to_uppercase()).is_none());
    }

    #[test]
    fn no_secret_is_printed() {
        let key = KeyText::draw(&System, Instant(0));
        let shown = format!("{key:?} {:?}", key.tag(&System));
        assert!(!shown.contains(&key.reveal()[18..]), "{shown}");
    }
}
