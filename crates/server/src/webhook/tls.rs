//! Encryption: whom we trust, and what is wrong with those we do not.
//!
//! The roots are bundled, so that every node of a cluster trusts the same issuers whatever its image contains. An
//! operator adds those of a private authority. A receiver whose certificate does not fit gets nothing, not
//! even the path: the request is written after the handshake.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{CertificateError, ClientConfig, RootCertStore};

/// HTTP/2 where the receiver speaks it.
pub(super) const HTTP_2: &[u8] = b"h2";
const HTTP_1: &[u8] = b"http/1.1";

/// Why a file of certificates is of no use.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the sentences below are the documentation of each field")]
pub enum CaError {
    #[error("cannot read certificates from {path}: {why}; give a PEM file", path = path.display())]
    Unreadable { path: PathBuf, why: String },
    #[error("{path} holds no certificate: give a PEM file with BEGIN CERTIFICATE in it", path = path.display())]
    Empty { path: PathBuf },
    #[error("certificate {number} in {path} cannot be trusted: {why}", path = path.display())]
    Unusable { path: PathBuf, number: usize, why: String },
}

/// What connections are made with: the bundled roots, and those in the file.
pub(super) fn config(extra_ca: Option<&Path>) -> Result<Arc<ClientConfig>, CaError> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    if let Some(path) = extra_ca {
        add(&mut roots, path)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring knows the suites of TLS 1.2 and 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![HTTP_2.to_vec(), HTTP_1.to_vec()];
    Ok(Arc::new(config))
}

/// Whether the certificates in a file can be used.
pub fn check_ca(path: &Path) -> Result<(), CaError> {
    add(&mut RootCertStore::empty(), path)
}

fn add(roots: &mut RootCertStore, path: &Path) -> Result<(), CaError> {
    let unreadable =
        |why: &dyn ToString| CaError::Unreadable { path: path.to_owned(), why: why.to_string() };
    let text = std::fs::read(path).map_err(|why| unreadable(&why))?;
    let mut number = 0;
    for certificate in CertificateDer::pem_slice_iter(&text) {
        number += 1;
        let certificate = certificate.map_err(|why| unreadable(&why))?;
        roots.add(certificate).map_err(|why| CaError::Unusable {
            path: path.to_owned(),
            number,
            why: why.to_string(),
        })?;
    }
    if number == 0 {
        return Err(CaError::Empty { path: path.to_owned() });
    }
    Ok(())
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
