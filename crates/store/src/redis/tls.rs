//! Encrypted connections to Redis.

use std::sync::Arc;

use client::authority;
use rustls::pki_types::ServerName;
use rustls::{CertificateError, Error as TlsError, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// What connects with TLS to who has a certificate of these issuers.
pub(super) fn connector(roots: RootCertStore) -> TlsConnector {
    TlsConnector::from(Arc::new(authority::config(roots)))
}

/// Why there is no encrypted connection.
pub(super) enum Distrust {
    /// It speaks TLS, and this is wrong with it.
    Tls(String),
    /// It does not seem to speak TLS.
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
