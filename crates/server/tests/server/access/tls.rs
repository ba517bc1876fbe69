//! A certificate that is renewed while people ask: no request is lost, and files that do not fit change nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rig::{PATIENCE, until};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use server::api::{ApiSecurity, ServerTls};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::house::{Answer, NOON};
use crate::server::node::world::{Running, World};

/// A certificate of our own, and its key.
struct Pair {
    cert: rcgen::Certificate,
    key: rcgen::KeyPair,
}

impl Pair {
    fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        Self { cert: made.cert, key: made.signing_key }
    }

    fn der(&self) -> CertificateDer<'static> {
        self.cert.der().clone()
    }
}

/// Where a server looks for its certificate.
struct Files {
    dir: tempfile::TempDir,
}

impl Files {
    fn of(pair: &Pair) -> Self {
        let files = Self { dir: tempfile::tempdir().unwrap() };
        std::fs::write(files.cert(), pair.cert.pem()).unwrap();
        std::fs::write(files.key(), pair.key.serialize_pem()).unwrap();
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn cert(&self) -> PathBuf {
        self.path("cert.pem")
    }

    fn key(&self) -> PathBuf {
        self.path("key.pem")
    }
}

async fn serve(world: &World, files: &Files) -> Running {
    let tls = ServerTls::open(&files.cert(), &files.key()).unwrap();
    world.start_behind(NOON, ApiSecurity::open().encrypted(tls)).await
}

fn trusting(pairs: &[&Pair]) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    for pair in pairs {
        roots.add(pair.der()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    // Who takes up a session again is shown no certificate.
    config.resumption = rustls::client::Resumption::disabled();
    TlsConnector::from(Arc::new(config))
}

async fn connect(running: &Running, connector: &TlsConnector) -> TlsStream<TcpStream> {
    let stream = TcpStream::connect(running.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    connector.connect(name, stream).await.unwrap()
}

const ASK: &[u8] = b"GET /v1/scheduler HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// Asks once on a connection that stays open.
async fn ask(stream: &mut TlsStream<TcpStream>) -> Answer {
    stream.write_all(ASK).await.unwrap();
    let mut read = Vec::new();
    loop {
        let mut part = [0; 4096];
        let len = stream.read(&mut part).await.unwrap();
        assert!(len > 0, "the answer was cut off: {}", String::from_utf8_lossy(&read));
        read.extend_from_slice(&part[..len]);
        let text = String::from_utf8_lossy(&read).into_owned();
        if text.ends_with('}') {
            return Answer::parse(&text);
        }
    }
}

/// The certificate that a new connection gets, after a request on it was answered.
async fn shown(running: &Running, connector: &TlsConnector) -> CertificateDer<'static> {
    let mut stream = connect(running, connector).await;
    ask(&mut stream).await.is(200);
    stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
}

#[tokio::test]
async fn a_renewed_certificate_is_shown_to_new_connections_and_no_request_is_lost() {
    let (old, new) = (Pair::new(), Pair::new());
    let (world, files) = (World::new(), Files::of(&old));
    let running = serve(&world, &files).await;
    let connector = trusting(&[&old, &new]);
    let mut lasting = connect(&running, &connector).await;
    ask(&mut lasting).await.is(200);
    assert_eq!(shown(&running, &connector).await, old.der());
    // First one file and then the other: in between they do not belong together.
    std::fs::write(files.key(), new.key.serialize_pem()).unwrap();
    for _ in 0..20 {
        assert_eq!(shown(&running, &connector).await, old.der());
        ask(&mut lasting).await.is(200);
    }
    std::fs::write(files.cert(), new.cert.pem()).unwrap();
    let requests = until("the new certificate is shown", PATIENCE, || async {
        (shown(&running, &connector).await == new.der()).then_some(())
    });
    requests.await;
    // The connection that was there before goes on.
    ask(&mut lasting).await.is(200);
    running.stop().await;
}

#[test]
fn files_that_cannot_be_used_are_told_by_name() {
    let (one, other) = (Pair::new(), Pair::new());
    let files = Files::of(&one);
    let open = |cert: &Path, key: &Path| ServerTls::open(cert, key).unwrap_err().to_string();
    let said = open(&files.path("missing.pem"), &files.key());
    assert!(said.contains("missing.pem") && said.contains("a certificate"), "{said}");
    let said = open(&files.cert(), &files.cert());
    assert!(said.contains("cert.pem") && said.contains("a private key"), "{said}");
    let said = open(&files.key(), &files.key());
    assert!(said.contains("there is no certificate in it"), "{said}");
    std::fs::write(files.path("other.pem"), other.key.serialize_pem()).unwrap();
    let said = open(&files.cert(), &files.path("other.pem"));
    assert!(said.contains("do not belong together"), "{said}");
}
