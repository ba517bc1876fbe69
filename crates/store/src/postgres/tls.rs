//! Whom a connection to Postgres trusts.

use std::path::Path;
use std::sync::Arc;

use client::authority::{self, CaError};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::option::TlsMode;

/// What makes connections encrypted; or why the file of certificates is none.
pub(super) fn connector(tls: TlsMode, ca: Option<&Path>) -> Result<MakeRustlsConnect, CaError> {
    let config = match tls {
        TlsMode::VerifyFull => authority::config(authority::roots(ca)?),
        TlsMode::Disable | TlsMode::Prefer | TlsMode::Require => {
            let config = authority::builder();
            let anybody = Anybody(Arc::clone(config.crypto_provider()));
            let config = config.dangerous().with_custom_certificate_verifier(Arc::new(anybody));
            config.with_no_client_auth()
        }
    };
    Ok(MakeRustlsConnect::new(config))
}

/// Takes every certificate, as `prefer` and `require` of libpq do: against those who listen, not against those who
/// stand in between.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
