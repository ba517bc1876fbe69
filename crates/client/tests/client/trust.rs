//! https: who is trusted gets the request, and nobody else gets anything.

#![cfg(feature = "tls")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;

use client::{Client, ClientError};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::script::{Asked, read};

/// A server with a certificate for `localhost`, for one connection; and its issuer, as PEM.
fn serve() -> (SocketAddr, String, JoinHandle<Option<Asked>>) {
    let issuer_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer_pem = params.self_signed(&issuer_key).unwrap().pem();
    let issuer = Issuer::new(params, issuer_key);
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        );
    let config = Arc::new(config.unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let connection = ServerConnection::new(config).unwrap();
        let mut stream = StreamOwned::new(connection, stream);
        let asked = read(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 204 X\r\nconnection: close\r\n\r\n");
        stream.conn.send_close_notify();
        let _ = stream.flush();
        asked
    });
    (address, issuer_pem, server)
}

#[tokio::test]
async fn a_server_of_a_trusted_issuer_gets_the_key() {
    let (address, pem, server) = serve();
    let builder = Client::builder(&format!("https://localhost:{}", address.port()));
    let client = builder.key("wbk_1").ca_pem(pem).build().unwrap();
    client.delete_trigger("hello").await.unwrap();
    let asked = server.join().unwrap().unwrap();
    assert_eq!(asked.headers["authorization"], "Bearer wbk_1");
}

#[tokio::test]
async fn a_server_of_an_unknown_issuer_or_another_name_gets_nothing() {
    for host in ["localhost", "127.0.0.1"] {
        let (address, pem, server) = serve();
        let mut builder = Client::builder(&format!("https://{host}:{}", address.port()));
        if host == "127.0.0.1" {
            builder = builder.ca_pem(pem);
        }
        let error =
            builder.key("wbk_1").build().unwrap().delete_trigger("hello").await.unwrap_err();
        assert!(matches!(error, ClientError::Untrusted { .. }), "{error:?}");
        assert!(server.join().unwrap().is_none(), "nothing was said to it");
    }
}

#[tokio::test]
async fn a_server_that_does_not_speak_tls_is_told_so() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let plain = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    let error = Client::new(&url).unwrap().scheduler().await.unwrap_err();
    plain.join().unwrap();
    assert!(error.to_string().contains("http instead of https"), "{error}");
}
