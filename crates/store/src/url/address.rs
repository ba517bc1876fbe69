//! The address of an engine on the network, as its URL says it: `kind://user:password@host:port,host/path?name=value`.
//!
//! One reader for all kinds. It is shown with its secrets masked, whoever shows it and however.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use engine::limits::{STORE_HOSTS_MAX, URL_BYTES_MAX};

/// A secret of a URL, which no output shows.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct StoreSecret(String);

impl StoreSecret {
    /// Hides a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for whom it is meant: never for a log.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for StoreSecret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("***")
    }
}

/// One server of an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreHost {
    /// Its name or address, without the brackets of IPv6.
    pub name: String,
    /// The port that it listens on.
    pub port: u16,
}

impl fmt::Display for StoreHost {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, port } = self;
        if name.contains(':') {
            write!(out, "[{name}]:{port}")
        } else {
            write!(out, "{name}:{port}")
        }
    }
}

/// Where an engine is, and how to get in.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    /// The kind of URL: `rediss`.
    pub scheme: &'static str,
    /// The user of the URL.
    pub user: Option<String>,
    /// The password of the URL; for a Watchbell server, the key.
    pub password: Option<StoreSecret>,
    /// The hosts, at least one.
    pub hosts: Vec<StoreHost>,
    /// What follows the hosts, without the first slash.
    pub path: String,
    /// The certificate of whoever signs the engine's, if it is not one that browsers trust.
    pub ca: Option<PathBuf>,
    /// What else the URL says. An engine takes out what it knows; what is left is a mistake.
    pub options: BTreeMap<String, String>,
}

impl Address {
    /// Reads what follows `scheme:`; or why that is none.
    pub(super) fn parse(scheme: &'static str, rest: &str, port: u16) -> Result<Self, String> {
        if rest.len() > URL_BYTES_MAX {
            return Err(format!("it is longer than {URL_BYTES_MAX} bytes"));
        }
        let Some(rest) = rest.strip_prefix("//") else {
            return Err(format!("two slashes are missing: {scheme}://HOST:PORT"));
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let end = rest.find('/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        // A password may hold an at sign that nobody escaped; a host holds none.
        let (who, hosts) = match authority.rsplit_once('@') {
            Some((who, hosts)) => (Some(who), hosts),
            None => (None, authority),
        };
        let (user, password) = match who.map(|who| who.split_once(':').unwrap_or((who, ""))) {
            Some((user, password)) => (some(decode(user)?), some(decode(password)?)),
            None => (None, None),
        };
        let mut options = BTreeMap::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let Some((name, value)) = pair.split_once('=') else {
                return Err("an option has a name and a value: name=value".to_owned());
            };
            if options.insert(decode(name)?, decode(value)?).is_some() {
                return Err(format!("the option {name} is given twice"));
            }
        }
        Ok(Self {
            scheme,
            user,
            password: password.map(StoreSecret),
            hosts: hosts_of(hosts, port)?,
            path: decode(path.trim_start_matches('/'))?,
            ca: options.remove("ca").map(PathBuf::from),
            options,
        })
    }

    /// Trusts the certificates that this one signed, unless the URL names another.
    pub(super) fn trust(&mut self, ca: &Path) {
        self.ca.get_or_insert_with(|| ca.to_owned());
    }

    /// Takes an option out.
    pub fn take(&mut self, name: &str) -> Option<String> {
        self.options.remove(name)
    }
}

impl fmt::Display for Address {
    /// The URL with its password masked, and every option that nobody vouches for.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}://", self.scheme)?;
        match (&self.user, &self.password) {
            (None, None) => {}
            // Who forgot the colon has written the secret in the place of the user.
            (Some(_), None) if matches!(self.scheme, "http" | "https" | "redis" | "rediss") => {
                out.write_str("***@")?;
            }
            (user, password) => {
                out.write_str(user.as_deref().unwrap_or_default())?;
                out.write_str(if password.is_some() { ":***@" } else { "@" })?;
            }
        }
        for (place, host) in self.hosts.iter().enumerate() {
            write!(out, "{}{host}", if place == 0 { "" } else { "," })?;
        }
        if !self.path.is_empty() {
            write!(out, "/{}", self.path)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

fn hosts_of(text: &str, port: u16) -> Result<Vec<StoreHost>, String> {
    let hosts: Vec<_> =
        text.split(',').map(|host| host_of(host, port)).collect::<Result<_, _>>()?;
    if hosts.len() > STORE_HOSTS_MAX {
        return Err(format!(
            "it names {} hosts, and at most {STORE_HOSTS_MAX} are taken",
            hosts.len()
        ));
    }
    Ok(hosts)
}

fn host_of(text: &str, port: u16) -> Result<StoreHost, String> {
    let (name, rest) = match text.strip_prefix('[') {
        Some(inner) => inner.split_once(']').ok_or("an address in brackets does not end with ]")?,
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    if name.is_empty() {
        return Err("the host is missing".to_owned());
    }
    let port = match rest.strip_prefix(':') {
        None if rest.is_empty() => port,
        // Never repeats it: what stands there may be the end of a password.
        Some(digits) => digits
            .parse()
            .ok()
            .filter(|port| *port != 0)
            .ok_or("a port is a number from 1 to 65535")?,
        None => return Err("a port follows a colon".to_owned()),
    };
    Ok(StoreHost { name: name.to_owned(), port })
}

/// Without percent signs.
fn decode(text: &str) -> Result<String, String> {
    let bad = || {
        "a percent sign is followed by two hexadecimal digits (write %25 for the sign itself)"
            .to_owned()
    };
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else { return Err(bad()) };
        bytes.push(u8::try_from(high * 16 + low).expect("two digits"));
    }
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(rest: &str) -> Result<Address, String> {
        Address::parse("redis", rest, 6379)
    }

    #[test]
    fn every_part_of_an_address_is_read() {
        let address =
            parse("//me:p%40ss@one,two:7000,[::1]:7001/0/x?prefix=a%2Fb&ca=/etc/ca.pem").unwrap();
        assert_eq!(address.user.as_deref(), Some("me"));
        assert_eq!(address.password.as_ref().map(StoreSecret::reveal), Some("p@ss"));
        let hosts: Vec<_> = address.hosts.iter().map(StoreHost::to_string).collect();
        assert_eq!(hosts, ["one:6379", "two:7000", "[::1]:7001"]);
        assert_eq!(address.path, "0/x");
        assert_eq!(address.ca, Some("/etc/ca.pem".into()));
        assert_eq!(address.options, BTreeMap::from([("prefix".to_owned(), "a/b".to_owned())]));
    }

    #[test]
    fn a_password_is_shown_neither_for_people_nor_for_programmers() {
        for text in [
            "//:hunter2@h",
            "//me:hunter2@h/0?password=hunter2",
            "//a:hunt@hunter2@h",
            "//hunter2@h",
        ] {
            let address = parse(text).unwrap();
            assert!(!address.to_string().contains("hunter2"), "{address}");
            assert!(!format!("{address:?} {:?}", address.password).contains("hunter2"));
        }
        assert_eq!(parse("//me:hunter2@h:1/0").unwrap().to_string(), "redis://me:***@h:1/0");
    }

    #[test]
    fn what_is_no_address_is_refused_without_repeating_it() {
        for (text, said) in [
            ("h:1", "two slashes"),
            ("//", "the host is missing"),
            ("//:hunter2@", "the host is missing"),
            ("//h:hunter2", "a port is a number"),
            ("//h:0", "a port is a number"),
            ("//h:65536", "a port is a number"),
            ("//[::1", "brackets"),
            ("//[::1]x", "a port follows"),
            ("//h?hunter2", "name=value"),
            ("//h?a=1&a=hunter2", "twice"),
            ("//:hunter2%4@h", "percent"),
            ("//:hunter2%ff@h", "UTF-8"),
            ("//h,,i", "the host is missing"),
        ] {
            let why = parse(text).unwrap_err();
            assert!(why.contains(said) && !why.contains("hunter2"), "{text}: {why}");
        }
        let many = |count: usize| format!("//{}", vec!["h"; count].join(","));
        assert!(parse(&many(STORE_HOSTS_MAX)).is_ok());
        assert!(parse(&many(STORE_HOSTS_MAX + 1)).unwrap_err().contains("at most"));
        let long = |bytes: usize| format!("//{}", "h".repeat(bytes - 2));
        assert!(parse(&long(URL_BYTES_MAX)).is_ok());
        assert!(parse(&long(URL_BYTES_MAX + 1)).unwrap_err().contains("longer"));
    }
}
