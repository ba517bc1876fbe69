//! Encryption: who is trusted, who is not and why; HTTP/2.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use engine::outcome::NotSent;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use server::webhook::{CaError, Config, Dispatcher, StartError};
use store::machine::{Machine, System};
use tokio::io::AsyncWriteExt;

use super::handle::{NodeHandle, check_not_sent, get, status};
use super::receiver::{Manner, Receiver, answer};

/// An authority of our own, and a file with its certificate.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    file: PathBuf,
    _dir: tempfile::TempDir,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ca.pem");
        // With another one before it: there may be several.
        let other = rcgen::generate_simple_self_signed(vec!["other.test".to_owned()]).unwrap();
        std::fs::write(&file, other.cert.pem() + &certificate.pem()).unwrap();
        Self { issuer: Issuer::new(params, key), file, _dir: dir }
    }

    /// What a receiver with this name works with, and whether it has expired.
    fn certify(&self, name: &str, until: i32, protocols: &[&[u8]]) -> Arc<ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let chain = vec![CertificateDer::from(certificate)];
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Arc::new(config)
    }

    fn handle(&self) -> NodeHandle {
        let handle = NodeHandle::with(|config| {
            config.allow = vec!["127.0.0.1".parse().unwrap()];
            config.extra_ca = Some(self.file.clone());
        });
        handle.script.set("good.test", &[&["127.0.0.1"]]);
        handle
    }
}

fn url(receiver: &Receiver) -> String {
    format!("https://good.test:{}/x", receiver.address.port())
}

const GOOD: i32 = 4_000;

#[tokio::test]
async fn a_receiver_with_a_good_certificate_is_called() {
    let authority = Authority::new();
    let config = authority.certify("good.test", GOOD, &[]);
    let receiver = Receiver::start_tls(answer(200, &[], b"one"), config).await;
    let mut handle = authority.handle();
    for _ in 0..2 {
        assert_eq!(status(&handle.call(get(&url(&receiver))).await), 200);
        let request = receiver.next().await;
        assert_eq!((&*request.path, request.connection), ("/x", 0));
    }
}

#[tokio::test]
async fn an_address_may_stand_in_a_certificate() {
    let authority = Authority::new();
    let config = authority.certify("127.0.0.1", GOOD, &[]);
    let receiver = Receiver::start_tls(answer(200, &[], b""), config).await;
    let url = receiver.url("/").replace("http:", "https:");
    assert_eq!(status(&authority.handle().call(get(&url)).await), 200);
}

#[tokio::test]
async fn http_2_is_spoken_where_it_is_offered_and_calls_share_a_connection() {
    let authority = Authority::new();
    let config = authority.certify("good.test", GOOD, &[b"h2", b"http/1.1"]);
    let receiver = Receiver::start_tls(Manner::Silent, config).await;
    let mut handle = authority.handle();
    let finished = handle.call(get(&url(&receiver))).await;
    assert_eq!(status(&finished), 200);
    assert_eq!(&*finished.response.unwrap().body, b"two");
    let request = receiver.next().await;
    assert_eq!(request.path, url(&receiver));
    assert_eq!(request.header("webhook-id"), "run_1");
    assert!(!request.has("host"), "it stands in the request line");
    for _ in 0..100 {
        handle.send(get(&url(&receiver)));
    }
    for _ in 0..100 {
        assert_eq!(status(&handle.next().await), 200);
    }
    assert_eq!(receiver.connections(), 1);
    handle.may_act.store(false, Ordering::Relaxed);
    check_not_sent(&handle.call(get(&url(&receiver))).await, NotSent::Lapsed, "nothing was sent");
    assert_eq!(receiver.requests(), 101);
}

#[tokio::test]
async fn a_bad_certificate_is_refused_and_named() {
    let authority = Authority::new();
    for (name, until, said) in
        [("other.test", GOOD, "not for good.test, but for"), ("good.test", 2_021, "has expired")]
    {
        let config = authority.certify(name, until, &[]);
        let receiver = Receiver::start_tls(answer(200, &[], b""), config).await;
        let finished = authority.handle().call(get(&url(&receiver))).await;
        check_not_sent(&finished, NotSent::Tls, said);
        assert_eq!(receiver.requests(), 0);
    }
}

#[tokio::test]
async fn an_unknown_issuer_is_refused() {
    let config = Authority::new().certify("good.test", GOOD, &[]);
    let receiver = Receiver::start_tls(answer(200, &[], b""), config).await;
    let mut handle = NodeHandle::local();
    handle.script.set("good.test", &[&["127.0.0.1"]]);
    let finished = handle.call(get(&url(&receiver))).await;
    check_not_sent(&finished, NotSent::Tls, "--webhook-ca");
}

#[tokio::test]
async fn a_receiver_without_encryption_is_told_from_others() {
    // It speaks first, because our greeting is no request that it would answer.
    let plain = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut handle = NodeHandle::local();
    handle.send(get(&format!("https://{}/", plain.local_addr().unwrap())));
    let (mut stream, _) = plain.accept().await.unwrap();
    stream.write_all(b"HTTP/1.1 400 X\r\n\r\n").await.unwrap();
    check_not_sent(&handle.next().await, NotSent::Tls, "does not speak TLS");
}

#[test]
fn a_file_without_certificates_is_refused_at_start() {
    let dir = tempfile::tempdir().unwrap();
    let start = |file: &str| {
        let mut config = Config::new(Arc::new(|| true));
        config.extra_ca = Some(dir.path().join(file));
        let machine: Arc<dyn Machine> = Arc::new(System);
        let (told, _results) = tokio::sync::mpsc::unbounded_channel();
        match Dispatcher::start(&config, &machine, &told) {
            Err(StartError::Ca(why)) => why,
            Err(why) => panic!("{why}"),
            Ok(_) => panic!("it started"),
        }
    };
    std::fs::write(dir.path().join("empty"), "").unwrap();
    std::fs::write(
        dir.path().join("broken"),
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    )
    .unwrap();
    assert!(matches!(start("missing"), CaError::Unreadable { .. }));
    assert!(matches!(start("empty"), CaError::Empty { .. }));
    assert!(matches!(start("broken"), CaError::Unusable { number: 1, .. }));
}
