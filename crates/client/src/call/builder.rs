//! What a client is made with.

use std::fmt;
use std::time::Duration;

use hyper::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue, USER_AGENT};

use super::retry::RequestRetry;
use super::{ANSWER_TIME_MAX, Client, PROJECT, connect};
use crate::ClientError;
#[cfg(feature = "tls")]
use crate::authority::{with_file, with_pem};

/// Makes a [`Client`]: see [`Client::builder`].
#[derive(Clone)]
#[must_use]
pub struct ClientBuilder {
    url: String,
    key: Option<String>,
    project: Option<String>,
    /// Whom to trust; or what is wrong with the issuers that were given.
    trust: Result<connect::Trust, String>,
    retry: RequestRetry,
    timeout: Duration,
    connect: Duration,
}

impl ClientBuilder {
    pub(super) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            key: None,
            project: None,
            trust: Ok(connect::usual()),
            retry: RequestRetry::default(),
            timeout: ANSWER_TIME_MAX,
            connect: connect::CONNECT_TIME_MAX,
        }
    }

    /// The key that lets one in: `wbk_…`. Across a network it belongs into https only.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Which project is meant. Only an admin chooses: any other key is for one project.
    pub fn project(mut self, name: impl Into<String>) -> Self {
        self.project = Some(name.into());
        self
    }

    /// Trust the issuers in this PEM text beside those that browsers trust.
    #[cfg(feature = "tls")]
    pub fn ca_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        let add = |trust| with_pem(trust, "the text", &pem.into()).map_err(|why| why.to_string());
        self.trust = self.trust.and_then(add);
        self
    }

    /// Trust the issuers in this PEM file beside those that browsers trust.
    #[cfg(feature = "tls")]
    pub fn ca_file(mut self, path: impl AsRef<std::path::Path>) -> Self {
        let add = |trust| with_file(trust, path.as_ref()).map_err(|why| why.to_string());
        self.trust = self.trust.and_then(add);
        self
    }

    /// How often a request is sent again at most, where that is safe and may help: 3 by default, 0 for never.
    pub fn retries(mut self, retries: u32) -> Self {
        self.retry.retries = retries;
        self
    }

    /// No attempt begins later than this after the first one: 30 seconds by default.
    pub fn retry_time(mut self, time: Duration) -> Self {
        self.retry.time = time;
        self
    }

    /// The pause before the second attempt, which doubles before each further one: 100 ms by default. Up to half of it
    /// is left to chance, so that not everybody comes back at once.
    pub fn retry_pause(mut self, pause: Duration) -> Self {
        self.retry.pause = pause;
        self
    }

    /// How long each attempt waits for an answer: 30 seconds by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How long each attempt waits for a connection: 5 seconds by default.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect = timeout;
        self
    }

    /// Makes the client. It connects with its first request.
    pub fn build(self) -> Result<Client, ClientError> {
        let base = base(&self.url)?;
        let trust = self.trust.map_err(|why| ClientError::Setting { what: "ca", why })?;
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let agent = concat!("watchbell-client/", env!("CARGO_PKG_VERSION"));
        headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        if let Some(key) = &self.key {
            let key = header("key", key.trim())?;
            let text = [b"Bearer ", key.as_bytes()].concat();
            let mut bearer = HeaderValue::from_bytes(&text).expect("it was one before");
            bearer.set_sensitive(true);
            headers.insert(AUTHORIZATION, bearer);
        }
        if let Some(name) = &self.project {
            headers.insert(PROJECT, header("project", name)?);
        }
        Ok(Client {
            base: base.into(),
            http: connect::http(trust, self.connect),
            headers,
            once: None,
            retry: self.retry,
            timeout: self.timeout,
        })
    }
}

impl fmt::Debug for ClientBuilder {
    /// Without the key.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ClientBuilder")
            .field("url", &self.url)
            .field("project", &self.project)
            .finish_non_exhaustive()
    }
}

/// A text that can be a header: its value is not told, for it may be secret.
pub(super) fn header(what: &'static str, text: &str) -> Result<HeaderValue, ClientError> {
    let bad = |why: &str| ClientError::Setting { what, why: why.to_owned() };
    if text.is_empty() {
        return Err(bad("it is empty"));
    }
    let visible = text.bytes().all(|byte| (b'!'..=b'~').contains(&byte));
    let value = HeaderValue::from_str(text).ok().filter(|_| visible);
    value.ok_or_else(|| bad("it holds something else than letters, digits and signs"))
}

/// A URL without the slash at its end.
fn base(url: &str) -> Result<String, ClientError> {
    let bad = |why| ClientError::Url { url: without_user(url), why };
    let (scheme, host) = url
        .split_once("://")
        .filter(|(scheme, _)| matches!(*scheme, "http" | "https"))
        .ok_or_else(|| bad("it begins with http:// or https://"))?;
    if scheme == "https" && !cfg!(feature = "tls") {
        return Err(bad("this program was built without https (the feature tls)"));
    }
    let host = host.trim_end_matches('/');
    if host.is_empty() || host.contains(['/', '?', '#', '@']) {
        return Err(bad("it is http:// or https://, a host and a port, and nothing else"));
    }
    let base = format!("{scheme}://{host}");
    let parsed: Result<hyper::Uri, _> = format!("{base}/").parse();
    parsed.map(|_| base).map_err(|_| bad("that is no host"))
}

/// A URL that may be told: a password in it is not.
fn without_user(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://…@{host}"),
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_that_are_none_are_refused_with_an_example() {
        for bad in ["", "localhost:7400", "ftp://x", "http://", "http://a/b", "http://u:pw@h"] {
            let why = Client::new(bad).unwrap_err().to_string();
            assert!(why.contains("try http://127.0.0.1:7400") && !why.contains("pw"), "{why}");
        }
        assert_eq!(Client::new("http://localhost:7400/").unwrap().url(), "http://localhost:7400");
    }

    #[test]
    fn a_key_is_in_no_debug_text_and_no_error() {
        let builder = Client::builder("http://localhost").key("wbk_hush").project("shop");
        let client = builder.clone().build().unwrap();
        let texts = format!("{builder:?} {client:?}");
        assert!(texts.contains("shop") && !texts.contains("hush"), "{texts}");
        let why = builder.key("wbk_hush\n\u{e9}").build().unwrap_err();
        assert!(!format!("{why} {why:?}").contains("hush"), "{why}");
        assert!(why.to_string().starts_with("the key cannot be used: "), "{why}");
    }

    #[cfg(feature = "tls")]
    #[test]
    fn certificates_that_are_none_are_refused() {
        let builder = || Client::builder("https://localhost");
        for builder in [builder().ca_file("/nope"), builder().ca_pem("nothing")] {
            let why = builder.build().unwrap_err().to_string();
            assert!(why.starts_with("the ca cannot be used: "), "{why}");
        }
    }
}
