//! TLS for those who come to us: a certificate and its key, read again when the files change.
//!
//! A connection keeps the certificate that it began with; a new one gets the newest that could be read. So a
//! certificate is renewed without losing a request, and a file that is half written changes nothing.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::crypto::ring::{default_provider, sign::any_supported_type};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio_rustls::TlsAcceptor;

/// How often the files are looked at.
const LOOK: Duration = Duration::from_millis(500);

/// Why there is no certificate. Each sentence says what to do.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Look at the file.
    #[error("{path}: {why}; it is a PEM file with {wanted}", path = path.display())]
    File {
        /// The file that is not as it should be.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
        /// What is in a right one.
        wanted: &'static str,
    },
    /// Take the files that belong together.
    #[error("{cert} and {key} do not belong together: {why}", cert = cert.display(), key = key.display())]
    Pair {
        /// The file with the certificate.
        cert: PathBuf,
        /// The file with the private key.
        key: PathBuf,
        /// What is wrong.
        why: String,
    },
}

/// A certificate that is read again when it changes.
#[derive(Clone)]
pub struct ServerTls(Arc<Files>);

struct Files {
    cert: PathBuf,
    key: PathBuf,
    now: RwLock<Arc<CertifiedKey>>,
}

impl ServerTls {
    /// Reads a certificate and its key.
    pub fn open(cert: &Path, key: &Path) -> Result<Self, TlsError> {
        let now = RwLock::new(Arc::new(read(cert, key)?));
        Ok(Self(Arc::new(Files { cert: cert.to_owned(), key: key.to_owned(), now })))
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has the usual versions")
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&self.0) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }

    /// Reads the files again whenever they change, until it is dropped.
    pub(super) async fn follow(&self) {
        let (mut seen, mut warned) = (self.stamps(), None);
        loop {
            tokio::time::sleep(LOOK).await;
            let now = self.stamps();
            if now == seen || Some(now) == warned {
                continue;
            }
            match read(&self.0.cert, &self.0.key) {
                Ok(read) => {
                    let mut place = self.0.now.write();
                    *place = Arc::new(read);
                    seen = now;
                    tracing::info!(cert = %self.0.cert.display(), "the certificate was read again");
                }
                // It may be half written: when it is whole, it has changed again.
                Err(why) => {
                    warned = Some(now);
                    tracing::warn!(%why, "the certificate changed and cannot be used: the former one stays");
                }
            }
        }
    }

    /// What tells a file from the one that was there before.
    fn stamps(&self) -> [Option<(u64, i64, u64)>; 2] {
        use std::os::unix::fs::MetadataExt;
        [&self.0.cert, &self.0.key].map(|path| {
            let about = std::fs::metadata(path).ok()?;
            let modified =
                about.mtime().wrapping_mul(1_000_000_000).wrapping_add(about.mtime_nsec());
            Some((about.ino(), modified, about.len()))
        })
    }
}

impl ResolvesServerCert for Files {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.now.read()))
    }
}

impl fmt::Debug for Files {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Files({})", self.cert.display())
    }
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ServerTls({})", self.0.cert.display())
    }
}

fn read(cert: &Path, key: &Path) -> Result<CertifiedKey, TlsError> {
    let file =
        |path: &Path, why: String, wanted| TlsError::File { path: path.to_owned(), why, wanted };
    let bytes = |path: &Path| std::fs::read(path);
    let certs = || -> Result<Vec<CertificateDer<'static>>, String> {
        let pem = bytes(cert).map_err(|why: io::Error| why.to_string())?;
        let certs: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
        certs.map_err(|why| why.to_string())
    };
    let certs =
        certs().map_err(|why| file(cert, why, "a certificate, and those of its issuers"))?;
    if certs.is_empty() {
        let why = "there is no certificate in it".to_owned();
        return Err(file(cert, why, "a certificate, and those of its issuers"));
    }
    let private = bytes(key)
        .map_err(|why| why.to_string())
        .and_then(|pem| PrivateKeyDer::from_pem_slice(&pem).map_err(|why| why.to_string()));
    let private = private.map_err(|why| file(key, why, "a private key"))?;
    let signing =
        any_supported_type(&private).map_err(|why| file(key, why.to_string(), "a private key"))?;
    let pair = CertifiedKey::new(certs, signing);
    pair.keys_match().map_err(|why| TlsError::Pair {
        cert: cert.to_owned(),
        key: key.to_owned(),
        why: why.to_string(),
    })?;
    Ok(pair)
}
