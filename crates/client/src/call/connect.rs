//! Connections: to where, for how long, and whom to trust.
//!
//! A server whose certificate does not fit gets nothing, not even the key: a request is written after the handshake.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use super::REST_TIME_MAX;
use crate::ClientError;

/// How long to wait for a connection.
pub(super) const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);

#[cfg(feature = "tls")]
pub(super) type Connector = hyper_rustls::HttpsConnector<HttpConnector>;
#[cfg(not(feature = "tls"))]
pub(super) type Connector = HttpConnector;

fn plain(timeout: Duration) -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(timeout));
    connector.set_nodelay(true);
    connector.enforce_http(false);
    connector
}

/// Whom a connection trusts. Without https there is nobody to choose.
#[cfg(feature = "tls")]
pub(super) type Trust = rustls::RootCertStore;
#[cfg(not(feature = "tls"))]
pub(super) type Trust = ();

/// The issuers that are trusted if nobody names others.
#[cfg(feature = "tls")]
pub(super) use crate::authority::public_roots as usual;
#[cfg(not(feature = "tls"))]
pub(super) fn usual() -> Trust {}

/// What sends requests, on connections that are kept for a while.
pub(super) type Http = legacy::Client<Connector, Full<Bytes>>;

/// Sends requests to servers with certificates of these issuers, and waits so long for a connection.
pub(super) fn http(trust: Trust, timeout: Duration) -> Http {
    let mut http = legacy::Client::builder(TokioExecutor::new());
    http.pool_idle_timeout(REST_TIME_MAX).build(connector(trust, timeout))
}

#[cfg(not(feature = "tls"))]
fn connector((): Trust, timeout: Duration) -> Connector {
    plain(timeout)
}

#[cfg(feature = "tls")]
fn connector(trust: Trust, timeout: Duration) -> Connector {
    let config = crate::authority::config(trust);
    let https = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(config);
    https.https_or_http().enable_http1().wrap_connector(plain(timeout))
}

/// Why a request to a server has no answer.
pub(super) fn failure(url: &str, why: &legacy::Error) -> ClientError {
    if let Some(why) = distrust(why) {
        return ClientError::Untrusted { url: url.to_owned(), why };
    }
    // Without a connection nothing has left.
    unreachable(url, innermost(why), !why.is_connect())
}

/// The answer was lost, or a part of it.
pub(super) fn lost(url: &str, why: &(dyn Error + 'static)) -> ClientError {
    unreachable(url, innermost(why), true)
}

/// No answer came in time.
pub(super) fn silent(url: &str, patience: Duration) -> ClientError {
    unreachable(url, format!("no answer came within {patience:?}"), true)
}

pub(super) fn unreachable(url: &str, why: String, may_be_done: bool) -> ClientError {
    ClientError::Unreachable { url: url.to_owned(), why, may_be_done }
}

/// The innermost cause is the one that says something: "connection refused".
fn innermost(why: &(dyn Error + 'static)) -> String {
    let mut cause = why;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// What is wrong with the certificate of a server, if that is why there is no connection.
#[cfg(not(feature = "tls"))]
fn distrust(_: &(dyn Error + 'static)) -> Option<String> {
    None
}

/// What is wrong with the certificate of a server, if that is why there is no connection.
#[cfg(feature = "tls")]
fn distrust(why: &(dyn Error + 'static)) -> Option<String> {
    use rustls::{CertificateError, Error as TlsError};

    let why = std::iter::successors(Some(why), |cause: &&(dyn Error + 'static)| beneath(*cause))
        .find_map(|cause| cause.downcast_ref::<TlsError>())?;
    Some(match why {
        TlsError::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "its certificate is from an unknown issuer: give that one's certificate as a CA, if you trust it".to_owned()
        }
        TlsError::InvalidCertificate(why) if format!("{why:?}").contains("CaUsedAsEndEntity") => {
            "its certificate is one that issues others (CA:TRUE), as openssl makes them by itself: make it with -addext basicConstraints=CA:FALSE, or sign it by a CA of your own".to_owned()
        }
        TlsError::InvalidMessage(_) => {
            "it does not speak TLS: is it http instead of https?".to_owned()
        }
        // Broken off without a reason that is about trust: worth another attempt.
        TlsError::InvalidCertificate(_) | TlsError::AlertReceived(_) => why.to_string(),
        _ => return None,
    })
}

/// What is behind an error. What an `io::Error` was made from is not its source, but that one's source is.
#[cfg(feature = "tls")]
fn beneath<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    let made_from = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    made_from.map(|inner| inner as &(dyn Error + 'static)).or_else(|| error.source())
}
