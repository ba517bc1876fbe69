//! The options of an etcd URL.

use std::fs;
use std::path::Path;
use std::time::Duration;

use client::authority;
use engine::length;
use engine::limits::{
    ETCD_HISTORY_AGE, ETCD_HISTORY_AGE_MAX, ETCD_HISTORY_AGE_MIN, ETCD_PREFIX_BYTES_MAX,
};
use tonic::transport::{ClientTlsConfig, Identity};

use crate::{Address, EngineFault, OpenError};

const KNOWN: &str = "compact, quota, cert, key and ca";
const DEFAULT_PREFIX: &str = "watchbell/";

/// The options of an etcd URL.
pub(super) struct EtcdOptions {
    /// All keys begin with it; it ends with a slash.
    pub(super) prefix: String,
    /// How old history becomes before it is compacted, if ever.
    pub(super) compact: Option<Duration>,
    /// How large the database may become, if the person knows.
    pub(super) quota: Option<u64>,
    /// Whom to trust and who we are, if the connection is encrypted.
    pub(super) tls: Option<ClientTlsConfig>,
}

impl EtcdOptions {
    /// Reads them, and the files of certificates that they name.
    pub(super) fn read(at: &Address) -> Result<Self, OpenError> {
        let mut rest = at.clone();
        let refuse = |why: String| OpenError::Url { url: at.to_string(), why };
        let prefix = prefix(&at.path).map_err(refuse)?;
        let compact = compact(rest.take("compact").as_deref()).map_err(refuse)?;
        let quota = rest.take("quota").map(|text| quota(&text)).transpose().map_err(refuse)?;
        let identity = match (rest.take("cert"), rest.take("key")) {
            (None, None) => None,
            (Some(cert), Some(key)) => Some((cert, key)),
            _ => return Err(refuse("cert and key come together".to_owned())),
        };
        if let Some(unknown) = rest.options.keys().next() {
            return Err(refuse(format!("{unknown} is no option of etcd: there are {KNOWN}")));
        }
        let encrypted = at.scheme == "etcds";
        if !encrypted && (identity.is_some() || at.ca.is_some()) {
            return Err(refuse("certificates are for TLS: write etcds://".to_owned()));
        }
        let unreadable =
            |why| OpenError::Engine { store: at.to_string(), fault: EngineFault::Tls, why };
        let tls = if encrypted {
            Some(tls(at.ca.as_deref(), identity).map_err(unreadable)?)
        } else {
            None
        };
        Ok(Self { prefix, compact, quota, tls })
    }
}

fn prefix(path: &str) -> Result<String, String> {
    let path = path.trim_end_matches('/');
    if path.is_empty() {
        return Ok(DEFAULT_PREFIX.to_owned());
    }
    let prefix = format!("{path}/");
    if prefix.len() > ETCD_PREFIX_BYTES_MAX {
        return Err(format!("the prefix is longer than {ETCD_PREFIX_BYTES_MAX} bytes"));
    }
    if !prefix.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("the prefix is printable ASCII without spaces".to_owned());
    }
    Ok(prefix)
}

fn compact(text: Option<&str>) -> Result<Option<Duration>, String> {
    let age = match text {
        None => return Ok(Some(ETCD_HISTORY_AGE)),
        Some("off") => return Ok(None),
        Some(text) => length::read(text).map_err(|why| format!("compact: {why}, and `off`"))?,
    };
    if !(ETCD_HISTORY_AGE_MIN..=ETCD_HISTORY_AGE_MAX).contains(&age) {
        return Err("compact is 1s to 30d, or off".to_owned());
    }
    Ok(Some(age))
}

fn quota(text: &str) -> Result<u64, String> {
    let bytes = text.parse().ok().filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| "quota is a number of bytes, as given to --quota-backend-bytes".to_owned())
}

fn tls(ca: Option<&Path>, identity: Option<(String, String)>) -> Result<ClientTlsConfig, String> {
    let read = |path: &Path| {
        fs::read(path).map_err(|why| format!("{} cannot be read: {why}", path.display()))
    };
    let roots = authority::roots(ca).map_err(|why| why.to_string())?;
    let mut tls = ClientTlsConfig::new().trust_anchors(roots.roots);
    if let Some((cert, key)) = identity {
        tls = tls.identity(Identity::from_pem(read(Path::new(&cert))?, read(Path::new(&key))?));
    }
    Ok(tls)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoreUrl;

    fn read(url: &str) -> Result<EtcdOptions, OpenError> {
        let StoreUrl::Etcd(at) = StoreUrl::parse(url).unwrap() else { panic!("{url}") };
        EtcdOptions::read(&at)
    }

    #[track_caller]
    fn check_refused(url: &str, said: &str) {
        let sentence = read(url).err().expect(url).to_string();
        assert!(sentence.contains(said), "{sentence}");
        assert!(!sentence.contains("hunter2"), "{sentence}");
    }

    #[test]
    fn the_path_is_the_prefix_and_ends_with_a_slash() {
        for (url, prefix) in [
            ("etcd://h", "watchbell/"),
            ("etcd://h/", "watchbell/"),
            ("etcd://h/a/b", "a/b/"),
            ("etcd://h/a/b/", "a/b/"),
        ] {
            assert_eq!(read(url).unwrap().prefix, prefix);
        }
        let long = |len: usize| format!("etcd://h/{}", "p".repeat(len));
        assert!(read(&long(ETCD_PREFIX_BYTES_MAX - 1)).is_ok());
        check_refused(&long(ETCD_PREFIX_BYTES_MAX), "longer than 128 bytes");
        check_refused("etcd://:hunter2@h/a%20b", "printable");
    }

    #[test]
    fn history_is_kept_for_an_hour_unless_the_url_says_otherwise() {
        assert_eq!(read("etcd://h").unwrap().compact, Some(ETCD_HISTORY_AGE));
        assert_eq!(read("etcd://h?compact=off").unwrap().compact, None);
        assert_eq!(read("etcd://h?compact=1s").unwrap().compact, Some(ETCD_HISTORY_AGE_MIN));
        assert_eq!(read("etcd://h?compact=30d").unwrap().compact, Some(ETCD_HISTORY_AGE_MAX));
        check_refused("etcd://h?compact=0s", "1s to 30d");
        check_refused("etcd://h?compact=31d", "1s to 30d");
        check_refused("etcd://h?compact=soon", "compact: ");
    }

    #[test]
    fn what_is_no_option_is_refused_by_name() {
        check_refused("etcd://:hunter2@h?pool=3", "pool is no option of etcd: there are compact");
        check_refused("etcd://:hunter2@h?quota=2GB", "quota is a number of bytes");
        check_refused("etcds://:hunter2@h?cert=x", "cert and key come together");
        check_refused("etcd://:hunter2@h?ca=x", "write etcds://");
        check_refused(
            "etcds://:hunter2@h?ca=/no/such.pem",
            "cannot read certificates from /no/such.pem",
        );
        assert_eq!(read("etcd://h?quota=1024").unwrap().quota, Some(1_024));
    }
}
