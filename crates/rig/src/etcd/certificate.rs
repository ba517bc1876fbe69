//! Certificates for one test: an issuer, and what it signed for this machine.

use std::fs;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// Writes `ca.pem`, `server.pem` and `server.key`.
pub(super) fn make(dir: &Path) {
    let key = || KeyPair::generate().expect("a key");
    let write = |name: &str, text: String| fs::write(dir.join(name), text).expect("it is ours");
    let issuer_key = key();
    let mut issuer = CertificateParams::new([]).expect("no names");
    issuer.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = issuer.self_signed(&issuer_key).expect("it signs itself");
    write("ca.pem", ca.pem());
    let issuer = Issuer::new(issuer, issuer_key);
    let server_key = key();
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let server = CertificateParams::new(names).expect("names of this machine");
    let server = server.signed_by(&server_key, &issuer).expect("it is signed");
    write("server.pem", server.pem());
    write("server.key", server_key.serialize_pem());
}
