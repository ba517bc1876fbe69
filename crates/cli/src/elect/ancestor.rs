//! In the place of the Redis scheduler: its six variables, and what they mean here.
//!
//! | variable | here |
//! |---|---|
//! | `APP_ENV` | `development` logs at debug, anything else at info, unless a log level is set |
//! | `METRICS_PORT` | metrics on this port of all addresses, as there; 9834 if it is not set |
//! | `REDIS_HOST`, `REDIS_PORT`, `REDIS_PASSWORD` | the store |
//! | `REDIS_LEADER_KEY` | names the election, and is written with the holder's id for those who read it |

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use engine::limits::NAME_CHARS_MAX;
use store::{Address, StoreHost, StoreSecret, StoreUrl};

use crate::args::elect::AncestorArgs;

/// What it did every 200 ms, and how long its key lasted.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(200);
pub(super) const TTL: Duration = Duration::from_secs(1);

const METRICS_PORT: u16 = 9834;
const REDIS_PORT: u16 = 6379;

/// What the keys of a store on Redis begin with: a leader key among them would overwrite it.
const OWN: &str = "{watchbell}";

/// What the six variables say.
pub(super) struct Ancestor {
    pub(super) host: StoreHost,
    pub(super) password: Option<StoreSecret>,
    pub(super) leader_key: String,
    pub(super) election: String,
    /// To be tried in this order: a machine without IPv6 has only the second.
    pub(super) metrics: [SocketAddr; 2],
}

/// What is wrong with them.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AncestorError {
    Metrics(String),
    Other(String),
}

impl Ancestor {
    pub(super) fn read(typed: &AncestorArgs) -> Result<Self, AncestorError> {
        let metrics = port("METRICS_PORT", typed.metrics_port.as_ref(), METRICS_PORT);
        let metrics = metrics.map_err(AncestorError::Metrics)?;
        let port =
            port("REDIS_PORT", typed.port.as_ref(), REDIS_PORT).map_err(AncestorError::Other)?;
        let name = typed.host.as_deref().unwrap_or_default();
        let name = name.trim_start_matches('[').trim_end_matches(']').to_owned();
        let leader_key = typed.leader_key.clone().unwrap_or_default();
        let election = election_of(&leader_key).map_err(AncestorError::Other)?;
        if leader_key.starts_with(OWN) {
            let why =
                format!("REDIS_LEADER_KEY begins with {OWN}, as our own keys do: take another");
            return Err(AncestorError::Other(why));
        }
        let password = typed.password.as_ref().map(crate::secret::TypedSecret::reveal);
        Ok(Self {
            host: StoreHost { name, port },
            password: password.filter(|text| !text.is_empty()).map(StoreSecret::new),
            leader_key,
            election,
            metrics: [
                (Ipv6Addr::UNSPECIFIED, metrics).into(),
                (Ipv4Addr::UNSPECIFIED, metrics).into(),
            ],
        })
    }

    /// Where candidates meet.
    pub(super) fn url(&self) -> StoreUrl {
        StoreUrl::Redis(Address {
            scheme: "redis",
            user: None,
            password: self.password.clone(),
            hosts: vec![self.host.clone()],
            path: String::new(),
            ca: None,
            options: BTreeMap::new(),
        })
    }
}

fn port(variable: &str, text: Option<&String>, usual: u16) -> Result<u16, String> {
    match text.map(|text| text.trim()).filter(|text| !text.is_empty()) {
        None => Ok(usual),
        Some(text) => text
            .parse()
            .map_err(|_| format!("{variable} is {text:?}, and a port is a number from 0 to 65535")),
    }
}

/// The election that a key names. Keys that differ name elections that differ: letters, digits, '.' and '-' stay, and
/// any other byte becomes '_' and its number in hexadecimal.
fn election_of(leader_key: &str) -> Result<String, String> {
    let mut name = String::new();
    for byte in leader_key.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-') {
            name.push(char::from(byte));
        } else {
            write!(name, "_{byte:02x}").expect("a String takes everything");
        }
    }
    if matches!(name.as_str(), "." | "..") {
        name = name.replace('.', "_2e");
    }
    let len = name.len();
    match len {
        0 => Err("REDIS_LEADER_KEY is missing: it names what is led".to_owned()),
        _ if len > NAME_CHARS_MAX => Err(format!(
            "REDIS_LEADER_KEY names the election {name}, which has {len} characters, and {NAME_CHARS_MAX} is the most: \
             take a shorter key, in which only letters, digits, '.' and '-' count once"
        )),
        _ => Ok(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(variables: &[(&str, &str)]) -> AncestorArgs {
        let get = |name: &str| {
            let found = variables.iter().find(|(each, _)| *each == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        AncestorArgs {
            app_env: get("APP_ENV"),
            metrics_port: get("METRICS_PORT"),
            host: get("REDIS_HOST"),
            port: get("REDIS_PORT"),
            password: get("REDIS_PASSWORD").map(|text| text.parse().unwrap()),
            leader_key: get("REDIS_LEADER_KEY"),
        }
    }

    #[test]
    fn the_six_variables_mean_what_they_meant() {
        let all = Ancestor::read(&typed(&[
            ("METRICS_PORT", "9999"),
            ("REDIS_HOST", "cache"),
            ("REDIS_PORT", "6380"),
            ("REDIS_PASSWORD", "p@ss:w/rd"),
            ("REDIS_LEADER_KEY", "leader:uuid"),
        ]));
        let all = all.ok().unwrap();
        assert_eq!(all.url().to_string(), "redis://:***@cache:6380");
        assert_eq!(all.password.as_ref().unwrap().reveal(), "p@ss:w/rd");
        assert_eq!(all.election, "leader_3auuid");
        assert_eq!(all.metrics.map(|at| at.port()), [9999, 9999]);
        let least = [("REDIS_HOST", "::1"), ("REDIS_PASSWORD", ""), ("REDIS_LEADER_KEY", "k")];
        let least = Ancestor::read(&typed(&least)).ok().unwrap();
        assert_eq!(least.url().to_string(), "redis://[::1]:6379");
        assert_eq!(least.metrics[0].port(), 9834);
    }

    #[test]
    fn what_is_wrong_with_a_variable_is_said_by_its_name() {
        let wrong = |name, value| {
            let rest = [("REDIS_HOST", "h"), ("REDIS_LEADER_KEY", "k")];
            let mut all = vec![(name, value)];
            all.extend(rest);
            Ancestor::read(&typed(&all)).err().unwrap()
        };
        let AncestorError::Metrics(why) = wrong("METRICS_PORT", "web") else {
            panic!("of metrics")
        };
        assert!(why.contains("METRICS_PORT"), "{why}");
        let AncestorError::Other(why) = wrong("REDIS_PORT", "70000") else { panic!("of Redis") };
        assert!(why.contains("REDIS_PORT"), "{why}");
        let AncestorError::Other(why) = wrong("REDIS_LEADER_KEY", "") else { panic!("of Redis") };
        assert!(why.contains("REDIS_LEADER_KEY"), "{why}");
        let AncestorError::Other(why) = wrong("REDIS_LEADER_KEY", "{watchbell}:entries") else {
            panic!("of Redis")
        };
        assert!(why.contains("our own keys"), "{why}");
    }

    #[test]
    fn keys_that_differ_name_elections_that_differ() {
        let keys = [
            "leader:uuid",
            "leader_3auuid",
            "leader_uuid",
            "leader/uuid",
            "..",
            ".",
            "_2e",
            "é",
            "%",
        ];
        let names: Vec<String> = keys.iter().map(|key| election_of(key).unwrap()).collect();
        for (place, name) in names.iter().enumerate() {
            assert!(engine::trigger::check_name(name).is_ok(), "{name}");
            assert!(!names[..place].contains(name), "{name} twice");
        }
        assert!(election_of(&"a".repeat(NAME_CHARS_MAX)).is_ok());
        assert!(election_of(&"a".repeat(NAME_CHARS_MAX + 1)).is_err());
    }
}
