//! Opening: what is wrong with an etcd is told in one sentence, without a password.

use rig::etcd::{Etcd, Setup};
use rig::free_port;
use store::{EngineFault, OpenError, StoreUrl};

use crate::store::patience::refused;

async fn check_refused(url: &str, fault: EngineFault, said: &[&str]) {
    let url = StoreUrl::parse(url).unwrap();
    let why = refused(fault, || store::open_or_create(&url)).await;
    let sentence = why.to_string();
    assert!(matches!(why, OpenError::Engine { fault: found, .. } if found == fault), "{sentence}");
    for part in said {
        assert!(sentence.contains(part), "{sentence:?} does not say {part:?}");
    }
    assert!(!format!("{sentence} {why:?} {url} {url:?}").contains("hunter2"), "{sentence}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_there_and_unknown_names_are_told() {
    let nobody = format!("etcd://wb:hunter2@127.0.0.1:{}", free_port());
    check_refused(
        &nobody,
        EngineFault::Unreachable,
        &["Connection refused", "check host and port"],
    )
    .await;
    check_refused(
        "etcd://wb:hunter2@no.such.invalid",
        EngineFault::Unreachable,
        &["no.such.invalid:2379"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passwords_that_are_wrong_or_missing_or_of_no_use_are_told() {
    let setup = Setup { password: Some("hunter2".into()), ..Setup::default() };
    let etcd = Etcd::start(1, &setup);
    let hosts = etcd.hosts();
    check_refused(
        &format!("etcd://wb:hunter22@{hosts}"),
        EngineFault::Password,
        &["invalid user ID or password"],
    )
    .await;
    check_refused(
        &format!("etcd://{hosts}"),
        EngineFault::Password,
        &["wants a user and a password"],
    )
    .await;
    check_refused(
        &format!("etcd://nobody:hunter2@{hosts}"),
        EngineFault::Password,
        &["permission denied", "readwrite on the prefix watchbell/"],
    )
    .await;
    check_refused(
        &format!("etcd://wb:hunter2@{hosts}/elsewhere"),
        EngineFault::Password,
        &["elsewhere/"],
    )
    .await;
    super::open(&format!("etcd://wb:hunter2@{hosts}")).await;
    let without = Etcd::one();
    let url = format!("etcd://wb:hunter2@{}", without.hosts());
    check_refused(&url, EngineFault::Password, &["authentication turned off"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_on_one_side_only_and_strange_certificates_are_told() {
    let etcd = Etcd::start(1, &Setup { tls: true, ..Setup::default() });
    let (hosts, ca) = (etcd.hosts(), etcd.ca());
    check_refused(
        &format!("etcd://wb:hunter2@{hosts}"),
        EngineFault::Tls,
        &["speaks TLS", "etcds://"],
    )
    .await;
    check_refused(
        &format!("etcds://wb:hunter2@{hosts}"),
        EngineFault::Tls,
        &["UnknownIssuer", "?ca=FILE"],
    )
    .await;
    super::open(&format!("etcds://{hosts}?ca={}", ca.display())).await;
    let plain = Etcd::one();
    let url = format!("etcds://wb:hunter2@{}?ca={}", plain.hosts(), ca.display());
    check_refused(&url, EngineFault::Tls, &["check whether the URL should say TLS"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minority_is_told_and_one_dead_member_is_no_obstacle() {
    let mut etcd = Etcd::three();
    let url = format!("etcd://{}", etcd.hosts());
    etcd.kill(0);
    etcd.leader();
    super::open(&url).await;
    etcd.kill(1);
    check_refused(&url, EngineFault::Unreachable, &["fewer than half of its members"]).await;
}
