//! A webhook: what is sent to whom, and what makes a bad one.
//!
//! A person writes a URL, a method, some headers, a body and a timeout. All of it is judged here, once, when
//! it is written down, so that at three in the morning nothing is left to be found wrong but the receiver:
//!
//! - the **URL** is taken apart by one strict reader (`url`); a form that two programs could read in two
//!   ways is refused, because the address guard must judge the same host that is connected to;
//! - the **headers** cannot carry a line break into the request, nor say anything about the connection or
//!   under a name that Watchbell itself answers for (`header`);
//! - everything has a limit, and its refusal says which field is wrong and what would be right.
//!
//! Of ten million triggers most call a few hosts with the same headers. So a webhook comes in two parts: its
//! [`Form`], which many share and whoever keeps them interns, and what is its own: path and body.
//!
//! No sentence of a refusal repeats the URL or a value: both may hold a secret.

mod header;
mod url;

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::hash::{hash, mix};
use crate::limits::{
    WEBHOOK_BODY_BYTES_MAX, WEBHOOK_HEADER_BYTES_MAX, WEBHOOK_HEADERS_MAX, WEBHOOK_TIMEOUT_MAX,
    WEBHOOK_TIMEOUT_MIN, WEBHOOK_URL_BYTES_MAX,
};

/// How to speak to a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scheme {
    /// HTTP without encryption.
    Http,
    /// HTTP over TLS.
    Https,
}

impl Scheme {
    /// The port that needs not be written.
    pub fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Http => "http",
            Self::Https => "https",
        })
    }
}

/// What is asked of the receiver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[expect(missing_docs, reason = "they are the methods of HTTP")]
pub enum Method {
    Get,
    Head,
    #[default]
    Post,
    Put,
    Patch,
    Delete,
}

impl Method {
    /// All of them, as a person may write them.
    pub const ALL: [Self; 6] =
        [Self::Get, Self::Head, Self::Post, Self::Put, Self::Patch, Self::Delete];

    /// The name of the method.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }

    /// Whether receivers make something of a body.
    fn takes_body(self) -> bool {
        match self {
            Self::Get | Self::Head => false,
            Self::Post | Self::Put | Self::Patch | Self::Delete => true,
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl FromStr for Method {
    type Err = WebhookError;

    fn from_str(text: &str) -> WebhookResult<Self> {
        let known = Self::ALL.into_iter().find(|method| method.as_str() == text);
        known.ok_or(WebhookError::Method)
    }
}

/// Names and values.
pub type Headers = Box<[(Box<str>, Box<str>)]>;

fn is_empty(headers: &Headers) -> bool {
    headers.is_empty()
}

/// What many webhooks share. Made by [`Webhook::new`] only.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Form {
    /// How to speak to the host.
    pub scheme: Scheme,
    /// A name in lower case, an IPv4 address, or an IPv6 address in brackets.
    pub host: Box<str>,
    /// The port of the host.
    pub port: u16,
    /// The method of the request.
    pub method: Method,
    /// Names in lower case, each once; the content type is one of them.
    pub headers: Headers,
    /// The same, of those whose values are told to nobody but the receiver.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub secret_headers: Headers,
    /// How long an attempt may take in all.
    pub timeout_ms: u32,
}

impl Form {
    /// A number for the host, by scheme, name and port.
    pub fn origin(&self) -> u64 {
        mix(hash(&self.host, "origin") ^ u64::from(self.port) << 1 ^ self.scheme as u64)
    }

    /// The host's address, if it is written as one; otherwise it is a name that has to be looked up.
    pub fn address(&self) -> Option<IpAddr> {
        url::address(&self.host)
    }

    /// The host, and its port where that is not the scheme's own: as in a `Host` header.
    pub fn authority(&self) -> String {
        if self.port == self.scheme.default_port() {
            self.host.to_string()
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// How long an attempt may take in all.
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(u64::from(self.timeout_ms))
    }
}

impl fmt::Debug for Form {
    /// Without the values of headers: they may be secret.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers = self.headers.iter().chain(&self.secret_headers);
        let names: Vec<&str> = headers.map(|(name, _)| &**name).collect();
        write!(out, "{} {}://{}", self.method, self.scheme, self.authority())?;
        write!(out, " {names:?} {} ms", self.timeout_ms)
    }
}

/// A whole webhook: what it shares, and what is its own.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Webhook {
    /// What many webhooks have in common, stored once for all of them.
    pub form: Arc<Form>,
    /// Path and query; begins with `/`.
    pub path: Box<str>,
    /// The body of the request, if it has one.
    pub body: Option<Box<str>>,
}

impl Webhook {
    /// How many bytes of it are its own, rather than shared with others: path and body.
    pub fn own_bytes(&self) -> usize {
        self.path.len() + self.body.as_ref().map_or(0, |body| body.len())
    }

    /// Judges what a person wrote. `content_type` is a header like others; a body without one is
    /// `application/json`.
    pub fn new(
        url: &str,
        method: Method,
        headers: Vec<(String, String)>,
        content_type: Option<&str>,
        body: Option<String>,
        timeout: Duration,
    ) -> WebhookResult<Self> {
        let url = url::read(url)?;
        let body = check_body(method, body)?;
        let headers = header::check(headers, content_type, body.is_some())?;
        if !(WEBHOOK_TIMEOUT_MIN..=WEBHOOK_TIMEOUT_MAX).contains(&timeout) {
            return Err(WebhookError::Timeout { asked: timeout });
        }
        let timeout_ms = u32::try_from(timeout.as_millis()).expect("30 s at most");
        let (scheme, host, port) = (url.scheme, url.host, url.port);
        let secret_headers = Headers::default();
        let form = Form { scheme, host, port, method, headers, secret_headers, timeout_ms };
        Ok(Self { form: Arc::new(form), path: url.path, body })
    }

    /// The same with headers whose values are told to nobody but the receiver. They count as headers do.
    pub fn with_secret_headers(mut self, secret: Vec<(String, String)>) -> WebhookResult<Self> {
        let form = Arc::make_mut(&mut self.form);
        form.secret_headers = header::check_secret(&form.headers, secret)?;
        Ok(self)
    }

    /// Its URL, in the one way that we write it.
    pub fn url(&self) -> String {
        format!("{}://{}{}", self.form.scheme, self.form.authority(), self.path)
    }
}

impl fmt::Debug for Webhook {
    /// Without path and body: they may be secret.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body_len = self.body.as_ref().map_or(0, |body| body.len());
        write!(out, "{:?} {body_len} B", self.form)
    }
}

fn check_body(method: Method, body: Option<String>) -> WebhookResult<Option<Box<str>>> {
    let Some(body) = body else { return Ok(None) };
    if !method.takes_body() {
        return Err(WebhookError::BodyOf { method });
    }
    if body.len() > WEBHOOK_BODY_BYTES_MAX {
        return Err(WebhookError::BodyLength { len: body.len() });
    }
    Ok(Some(body.into()))
}

/// What a part of a webhook means, or why there can be no such webhook.
pub type WebhookResult<T = ()> = Result<T, WebhookError>;

/// What is wrong with a webhook. Each sentence says what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the sentences below are the documentation of each field")]
pub enum WebhookError {
    #[error("a method is one of GET, HEAD, POST, PUT, PATCH and DELETE, in capital letters")]
    Method,
    #[error("a URL has at most {WEBHOOK_URL_BYTES_MAX} bytes, and this one has {len}")]
    UrlLength { len: usize },
    #[error("a URL begins with http:// or https://")]
    UrlScheme,
    #[error("a URL holds no user name or password: send them in a header, such as authorization")]
    UrlUser,
    #[error("a URL holds no fragment: leave out the # and what follows, or write %23 for a #")]
    UrlFragment,
    #[error("a URL names a host after its //, like https://example.com/hook")]
    UrlHostMissing,
    #[error("a host is written in ASCII: give this one's punycode form, which begins with xn--")]
    UrlHostForeign,
    #[error(
        "a host has labels of 1 to 63 letters, digits, hyphens and underscores between single dots, and at most 253 bytes; {host:?} is none"
    )]
    UrlHost { host: String },
    #[error(
        "a host that ends in a number is an address, written as four numbers from 0 to 255 without leading zeros, like 203.0.113.7; {host:?} is none"
    )]
    UrlIpv4 { host: String },
    #[error(
        "an IPv6 address stands in brackets and has no zone, like [2001:db8::7]; {host:?} is none"
    )]
    UrlIpv6 { host: String },
    #[error("a port is a number from 1 to 65535")]
    UrlPort,
    #[error(
        "the path and query of a URL are written in the characters that URLs have, others as % and two hex digits of each byte (a space is %20, a % is %25); byte {position} of the URL is none"
    )]
    UrlCharacter { position: usize },
    #[error("a webhook has at most {WEBHOOK_HEADERS_MAX} headers, and this one has {len}")]
    Headers { len: usize },
    #[error(
        "the headers of a webhook have at most {WEBHOOK_HEADER_BYTES_MAX} bytes, names and values together, and these have {len}"
    )]
    HeaderBytes { len: usize },
    #[error(
        "the name of a header has letters, digits and !#$%&'*+-.^_`|~ and at least one of them; {name:?} has not"
    )]
    HeaderName { name: String },
    #[error("{name} is set by Watchbell or belongs to the connection: leave it out")]
    HeaderReserved { name: String },
    #[error("the header {name} is there twice: join its values with a comma")]
    HeaderTwice { name: String },
    #[error(
        "the value of a header is printable ASCII and tabs, without line breaks, and no space at its ends; that of {name} is not"
    )]
    HeaderValue { name: String },
    #[error(
        "a content type is given once: as content type, or as the header content-type, not both"
    )]
    ContentTypeTwice,
    #[error("a {method} has no body: leave it out, or use POST")]
    BodyOf { method: Method },
    #[error("a body has at most {WEBHOOK_BODY_BYTES_MAX} bytes, and this one has {len}")]
    BodyLength { len: usize },
    #[error(
        "a webhook may take {WEBHOOK_TIMEOUT_MIN:?} to {WEBHOOK_TIMEOUT_MAX:?}, and {asked:?} was asked for: use a queue for longer work"
    )]
    Timeout { asked: Duration },
}

impl WebhookError {
    /// The field that is wrong.
    pub fn field(&self) -> &'static str {
        match self {
            Self::Method => "method",
            Self::UrlLength { .. }
            | Self::UrlScheme
            | Self::UrlUser
            | Self::UrlFragment
            | Self::UrlHostMissing
            | Self::UrlHostForeign
            | Self::UrlHost { .. }
            | Self::UrlIpv4 { .. }
            | Self::UrlIpv6 { .. }
            | Self::UrlPort
            | Self::UrlCharacter { .. } => "url",
            Self::Headers { .. }
            | Self::HeaderBytes { .. }
            | Self::HeaderName { .. }
            | Self::HeaderReserved { .. }
            | Self::HeaderTwice { .. }
            | Self::HeaderValue { .. } => "headers",
            Self::ContentTypeTwice => "content_type",
            Self::BodyOf { .. } | Self::BodyLength { .. } => "body",
            Self::Timeout { .. } => "timeout",
        }
    }
}

#[cfg(test)]
mod tests;
