//! Authorities: whose certificates are trusted, wherever Watchbell connects with TLS.
//!
//! Every flag and option that names a CA file means the same: its issuers are trusted beside those that browsers trust.
//! The latter are bundled, so that all nodes of a cluster trust the same ones, whatever their images contain. The reasons
//! are in docs/decisions/0014-one-meaning-of-authorities.md.
//!
//! Watchbell's stores and webhooks connect by this too. It is no part of the published library.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier};

/// Longest file of certificates that is read.
const CA_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Why certificates are of no use.
#[derive(Debug, Clone, thiserror::Error)]
#[expect(missing_docs, reason = "the sentences are the documentation")]
pub enum CaError {
    #[error("cannot read certificates from {from}: {why}; give a PEM file")]
    Unreadable { from: String, why: String },
    #[error("{from} holds no certificate: give a PEM file with BEGIN CERTIFICATE in it")]
    Empty { from: String },
    #[error("certificate {number} in {from} cannot be trusted: {why}")]
    Unusable { from: String, number: usize, why: String },
}

/// The issuers that browsers trust.
pub fn public_roots() -> RootCertStore {
    RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() }
}

/// The issuers that browsers trust, and those in the file.
pub fn roots(ca: Option<&Path>) -> Result<RootCertStore, CaError> {
    ca.map_or_else(|| Ok(public_roots()), |path| with_file(public_roots(), path))
}

/// Adds the issuers in a PEM file.
pub fn with_file(roots: RootCertStore, path: &Path) -> Result<RootCertStore, CaError> {
    let from = path.display().to_string();
    let mut pem = Vec::new();
    match File::open(path).and_then(|file| file.take(CA_BYTES_MAX).read_to_end(&mut pem)) {
        Ok(_) => with_pem(roots, &from, &pem),
        Err(why) => Err(CaError::Unreadable { from, why: why.to_string() }),
    }
}

/// Adds the issuers in a PEM text; `from` says where it is from.
pub fn with_pem(
    mut roots: RootCertStore,
    from: &str,
    pem: &[u8],
) -> Result<RootCertStore, CaError> {
    let from = from.to_owned();
    let mut number = 0;
    for certificate in CertificateDer::pem_slice_iter(pem) {
        number += 1;
        match certificate.map(|certificate| roots.add(certificate)) {
            Ok(Ok(())) => {}
            Ok(Err(why)) => return Err(CaError::Unusable { from, number, why: why.to_string() }),
            Err(why) => return Err(CaError::Unreadable { from, why: why.to_string() }),
        }
    }
    if number == 0 { Err(CaError::Empty { from }) } else { Ok(roots) }
}

/// The settings of a connection that trusts these issuers.
pub fn config(roots: RootCertStore) -> ClientConfig {
    builder().with_root_certificates(roots).with_no_client_auth()
}

/// The settings of a connection, but for whom to trust: ring does the arithmetic.
pub fn builder() -> ConfigBuilder<ClientConfig, WantsVerifier> {
    ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring knows the suites of TLS 1.2 and 1.3")
}
