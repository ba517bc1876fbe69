//! A URL, taken apart by one strict reader.
//!
//! There are two well-known ways to read a URL, RFC 3986 and that of browsers, and attacks live where they
//! differ: `http://2130706433/` and `http://0x7f.1/` are 127.0.0.1 to a browser, `http://a\@b/` goes to one
//! host or the other. What they do not agree on is refused here with a sentence that says how to write it
//! plainly; what is left can be read in one way only, and so the guard judges what is connected to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Scheme, WebhookError, WebhookResult};
use crate::limits::{HOST_LABEL_BYTES_MAX, HOST_NAME_BYTES_MAX, WEBHOOK_URL_BYTES_MAX};

/// The parts of a URL.
pub(super) struct Url {
    pub(super) scheme: Scheme,
    pub(super) host: Box<str>,
    pub(super) port: u16,
    pub(super) path: Box<str>,
}

/// Takes a URL apart.
pub(super) fn read(url: &str) -> WebhookResult<Url> {
    if url.len() > WEBHOOK_URL_BYTES_MAX {
        return Err(WebhookError::UrlLength { len: url.len() });
    }
    let (scheme, rest) = read_scheme(url)?;
    let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if authority.contains('@') {
        return Err(WebhookError::UrlUser);
    }
    let (host, port) = split_port(authority)?;
    let host = read_host(host)?;
    let port = port.map_or(Ok(scheme.default_port()), read_port)?;
    check_path(path, url.len() - path.len())?;
    let slash = if path.starts_with('/') { "" } else { "/" };
    Ok(Url { scheme, host, port, path: format!("{slash}{path}").into() })
}

/// The address that a host is, if it is no name.
pub(super) fn address(host: &str) -> Option<IpAddr> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    bare.unwrap_or(host).parse().ok()
}

fn read_scheme(url: &str) -> WebhookResult<(Scheme, &str)> {
    let (scheme, rest) = url.split_once("://").ok_or(WebhookError::UrlScheme)?;
    if scheme.eq_ignore_ascii_case("http") {
        Ok((Scheme::Http, rest))
    } else if scheme.eq_ignore_ascii_case("https") {
        Ok((Scheme::Https, rest))
    } else {
        Err(WebhookError::UrlScheme)
    }
}

/// The host, and what follows its colon.
fn split_port(authority: &str) -> WebhookResult<(&str, Option<&str>)> {
    if !authority.starts_with('[') {
        return Ok(match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        });
    }
    let bad = || WebhookError::UrlIpv6 { host: authority.to_owned() };
    let end = authority.find(']').ok_or_else(bad)?;
    let (host, rest) = authority.split_at(end + 1);
    match rest.strip_prefix(':') {
        Some(port) => Ok((host, Some(port))),
        None if rest.is_empty() => Ok((host, None)),
        None => Err(bad()),
    }
}

fn read_port(port: &str) -> WebhookResult<u16> {
    if !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(WebhookError::UrlPort);
    }
    port.parse().ok().filter(|port| *port != 0).ok_or(WebhookError::UrlPort)
}

fn read_host(host: &str) -> WebhookResult<Box<str>> {
    if host.is_empty() {
        return Err(WebhookError::UrlHostMissing);
    }
    if !host.is_ascii() {
        return Err(WebhookError::UrlHostForeign);
    }
    if let Some(bare) = host.strip_prefix('[') {
        let bare = bare.strip_suffix(']').unwrap_or(bare);
        let address: Result<Ipv6Addr, _> = bare.parse();
        let address = address.map_err(|_| WebhookError::UrlIpv6 { host: host.to_owned() })?;
        return Ok(format!("[{address}]").into());
    }
    if host.len() > HOST_NAME_BYTES_MAX || !host.split('.').all(is_label) {
        return Err(WebhookError::UrlHost { host: host.to_owned() });
    }
    if ends_in_number(host) {
        let address: Result<Ipv4Addr, _> = host.parse();
        let address = address.map_err(|_| WebhookError::UrlIpv4 { host: host.to_owned() })?;
        return Ok(address.to_string().into());
    }
    Ok(host.to_ascii_lowercase().into())
}

fn is_label(label: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=HOST_LABEL_BYTES_MAX).contains(&label.len()) && label.bytes().all(fits)
}

/// Whether some programs take it for an address: its last label is a number, also one like `0x7f`. There is
/// no such name: no top-level domain begins with a digit.
fn ends_in_number(host: &str) -> bool {
    let last = host.rsplit('.').next().unwrap_or(host);
    last.starts_with(|first: char| first.is_ascii_digit())
}

/// `before` is where the path begins in the URL.
fn check_path(path: &str, before: usize) -> WebhookResult {
    let bytes = path.as_bytes();
    for (position, byte) in bytes.iter().enumerate() {
        let fits = match byte {
            b'#' => return Err(WebhookError::UrlFragment),
            b'%' => {
                let digits = bytes.get(position + 1..position + 3);
                digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
            }
            // RFC 3986's own, and three that queries have in practice.
            b'-' | b'.' | b'_' | b'~' | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+'
            | b',' | b';' | b'=' | b':' | b'@' | b'/' | b'?' | b'[' | b']' | b'|' => true,
            other => other.is_ascii_alphanumeric(),
        };
        if !fits {
            return Err(WebhookError::UrlCharacter { position: before + position + 1 });
        }
    }
    Ok(())
}
