//! Encryption: whom we trust, and what is wrong with those we do not.
//!
//! A receiver whose certificate does not fit gets nothing, not even the path: the request is written after the handshake.

use std::io;
use std::path::Path;
use std::sync::Arc;

use client::authority::{self, CaError};
use rustls::{CertificateError, ClientConfig};

/// HTTP/2 where the receiver speaks it.
pub(super) const HTTP_2: &[u8] = b"h2";
const HTTP_1: &[u8] = b"http/1.1";

/// What connections are made with: receivers of the usual issuers are trusted, and of those in the file.
pub(super) fn config(extra_ca: Option<&Path>) -> Result<Arc<ClientConfig>, CaError> {
    let mut config = authority::config(authority::roots(extra_ca)?);
    config.alpn_protocols = vec![HTTP_2.to_vec(), HTTP_1.to_vec()];
    Ok(Arc::new(config))
}

/// Whether the certificates in a file can be used.
pub fn check_ca(path: &Path) -> Result<(), CaError> {
    authority::roots(Some(path)).map(drop)
}

/// What is wrong, in a sentence that names it.
pub(super) fn explain(why: &io::Error) -> String {
    let inner = why.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let Some(why) = inner else {
        return format!("the TLS handshake broke off: {why}");
    };
    match why {
        rustls::Error::InvalidCertificate(why) => explain_certificate(why),
        rustls::Error::InvalidMessage(_) => {
            "the receiver does not speak TLS: is it http instead of https?".to_owned()
        }
        why => format!("the TLS handshake failed: {why}"),
    }
}

fn explain_certificate(why: &CertificateError) -> String {
    match why {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the receiver's certificate has expired".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the receiver's certificate is not valid yet".to_owned()
        }
        CertificateError::NotValidForName => {
            "the receiver's certificate is for another name".to_owned()
        }
        CertificateError::NotValidForNameContext { expected, presented } => format!(
            "the receiver's certificate is not for {}, but for {}",
            expected.to_str(),
            presented.join(", ")
        ),
        CertificateError::UnknownIssuer => {
            "the receiver's certificate is from an unknown issuer: an operator can add one with --webhook-ca"
                .to_owned()
        }
        why => format!("the receiver's certificate is not good: {why}"),
    }
}
