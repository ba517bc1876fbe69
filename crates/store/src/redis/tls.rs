//! Encrypted connections: rustls with ring, and the issuer that the URL names or those that browsers trust.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, Error as TlsError, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// What connects with TLS; or why the issuer's certificate cannot be used.
pub(super) fn connector(ca: Option<&Path>) -> Result<TlsConnector, String> {
    let roots = match ca {
        None => RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() },
        Some(path) => read(path).map_err(|why| format!("{}: {why}", path.display()))?,
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring knows the suites of TLS 1.2 and 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

fn read(path: &Path) -> Result<RootCertStore, String> {
    let pem = std::fs::read(path).map_err(|why| why.to_string())?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|why| why.to_string())?;
        roots.add(certificate).map_err(|why| why.to_string())?;
    }
    if roots.is_empty() {
        return Err("there is no certificate in it: it is PEM, with BEGIN CERTIFICATE".to_owned());
    }
    Ok(roots)
}

/// Why there is no encrypted connection.
pub(super) enum Distrust {
    /// It speaks TLS, and this is wrong with it.
    Tls(String),
    /// It does not seem to.
    Other(String),
}

/// Agrees on keys with a server of this name.
pub(super) async fn handshake(
    connector: &TlsConnector,
    name: &str,
    stream: TcpStream,
) -> Result<TlsStream<TcpStream>, Distrust> {
    let name = ServerName::try_from(name.to_owned())
        .map_err(|_| Distrust::Tls("no certificate can be for a host of that name".to_owned()))?;
    connector.connect(name, stream).await.map_err(|why| {
        let tls = why.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>());
        match tls {
            Some(TlsError::InvalidCertificate(CertificateError::UnknownIssuer)) => {
                Distrust::Tls("its certificate is from an unknown issuer".to_owned())
            }
            Some(TlsError::InvalidMessage(_)) => {
                Distrust::Other("it does not speak TLS".to_owned())
            }
            Some(why) => Distrust::Tls(why.to_string()),
            None => Distrust::Other(why.to_string()),
        }
    })
}
