//! The options of a Postgres URL.

use std::path::PathBuf;

use engine::limits::{
    POSTGRES_CONNECTIONS_DEFAULT, POSTGRES_CONNECTIONS_MAX, POSTGRES_SCHEMA_BYTES_MAX,
};

use crate::{Address, OpenError, StoreSecret};

/// The schema, unless the URL names another.
const SCHEMA: &str = "watchbell";

const KNOWN: &str = "schema, sslmode, sslrootcert, ca, connections and listen";

/// Whether a connection is encrypted, and who may be at its other end. As in libpq.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TlsMode {
    /// The connection is never encrypted.
    Disable,
    /// Encrypted if the server can; whoever it is.
    Prefer,
    /// Encrypted, whoever it is.
    Require,
    /// Encrypted, and the certificate is trusted and names the host.
    VerifyFull,
}

/// How a process hears of others' commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Listen {
    /// By notifications, if they arrive; else by asking for the last version.
    IfHeard,
    /// By asking for the last version, always.
    Off,
}

/// The options of a Postgres URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) schema: String,
    pub(super) tls: TlsMode,
    pub(super) ca: Option<PathBuf>,
    pub(super) connections: usize,
    pub(super) listen: Listen,
}

impl Options {
    /// Reads them; what is not known is refused by its name.
    pub(super) fn of(at: &Address) -> Result<Self, OpenError> {
        Self::read(at.clone()).map_err(|why| OpenError::Url { url: at.to_string(), why })
    }

    fn read(mut at: Address) -> Result<Self, String> {
        // Options stand in shell histories and process lists like the rest of the URL, but nobody masks them there.
        if at.take("password").is_some() {
            return Err("a password stands before the host: postgres://USER:PASSWORD@HOST".into());
        }
        let schema = at.take("schema").unwrap_or_else(|| SCHEMA.to_owned());
        check_schema(&schema)?;
        let ca = at.take("sslrootcert").map(PathBuf::from).or(at.ca.take());
        let tls = match at.take("sslmode").as_deref() {
            // Whoever names an issuer wants to know who is there.
            None if ca.is_some() => TlsMode::VerifyFull,
            None | Some("prefer") => TlsMode::Prefer,
            Some("disable") => TlsMode::Disable,
            Some("require") if ca.is_none() => TlsMode::Require,
            Some("verify-full" | "require") => TlsMode::VerifyFull,
            Some(_) => {
                return Err("sslmode is disable, prefer, require or verify-full".into());
            }
        };
        let connections = match at.take("connections").map(|text| text.parse()) {
            None => POSTGRES_CONNECTIONS_DEFAULT,
            Some(Ok(number)) if (1..=POSTGRES_CONNECTIONS_MAX).contains(&number) => number,
            Some(_) => {
                return Err(format!(
                    "connections is a number from 1 to {POSTGRES_CONNECTIONS_MAX}"
                ));
            }
        };
        let listen = match at.take("listen").as_deref() {
            None | Some("on") => Listen::IfHeard,
            Some("off") => Listen::Off,
            Some(_) => return Err("listen is on or off".into()),
        };
        match at.options.keys().next() {
            Some(name) => Err(format!("the option {name} is not known; there are {KNOWN}")),
            None => Ok(Self { schema, tls, ca, connections, listen }),
        }
    }
}

fn check_schema(name: &str) -> Result<(), String> {
    let is_good = |byte: u8| byte == b'_' || byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let begins_well = name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
    if name.len() <= POSTGRES_SCHEMA_BYTES_MAX && begins_well && name.bytes().all(is_good) {
        return Ok(());
    }
    Err(format!(
        "a schema has 1 to {POSTGRES_SCHEMA_BYTES_MAX} small letters, digits and underscores, and does not begin with a digit"
    ))
}

/// The password of the URL, for the server that asks for it.
pub(super) fn password(at: &Address) -> Option<&str> {
    at.password.as_ref().map(StoreSecret::reveal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoreUrl;

    fn read(query: &str) -> Result<Options, OpenError> {
        let url = StoreUrl::parse(&format!("postgres://me:hunter2@h/db?{query}")).unwrap();
        let StoreUrl::Postgres(at) = url else { panic!("a Postgres") };
        Options::of(&at)
    }

    #[test]
    fn what_is_not_said_has_a_default() {
        let options = read("").unwrap();
        assert_eq!(
            (options.schema.as_str(), options.connections),
            ("watchbell", POSTGRES_CONNECTIONS_DEFAULT)
        );
        assert_eq!((options.tls, options.listen), (TlsMode::Prefer, Listen::IfHeard));
    }

    #[test]
    fn an_issuer_wants_to_be_verified() {
        assert_eq!(read("ca=x").unwrap().tls, TlsMode::VerifyFull);
        assert_eq!(read("sslrootcert=x&sslmode=require").unwrap().tls, TlsMode::VerifyFull);
        assert_eq!(read("sslmode=require").unwrap().tls, TlsMode::Require);
        assert_eq!(read("ca=x&sslmode=disable").unwrap().tls, TlsMode::Disable);
    }

    #[test]
    fn what_is_wrong_is_refused_by_its_name_and_without_a_secret() {
        for (query, said) in [
            ("password=hunter2", "before the host"),
            ("schema=Bad", "small letters"),
            ("schema=", "small letters"),
            ("schema=1a", "small letters"),
            ("schema=a%22b", "small letters"),
            ("sslmode=verify-ca", "verify-full"),
            ("connections=0", "1 to 256"),
            ("connections=257", "1 to 256"),
            ("listen=maybe", "on or off"),
            ("shema=hunter2", "the option shema is not known; there are schema"),
        ] {
            let why = read(query).unwrap_err().to_string();
            assert!(why.contains(said) && !why.contains("hunter2"), "{query}: {why}");
        }
        assert!(read(&format!("schema={}", "a".repeat(POSTGRES_SCHEMA_BYTES_MAX))).is_ok());
        assert!(read(&format!("schema={}", "a".repeat(POSTGRES_SCHEMA_BYTES_MAX + 1))).is_err());
        assert!(read(&format!("connections={POSTGRES_CONNECTIONS_MAX}")).is_ok());
    }
}
