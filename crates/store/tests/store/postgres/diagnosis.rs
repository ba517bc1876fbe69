//! What is wrong with a server when a store is opened: one sentence, one kind, and no secret.

use rig::postgres::{PASSWORD, Postgres};
use store::{EngineFault, OpenError, StoreUrl, open_or_create};

use super::open;
use crate::store::patience::refused;

/// Opening must fail in this way, and the sentence say this.
async fn check(url: &str, fault: EngineFault, said: &str) {
    let url = StoreUrl::parse(url).unwrap();
    let why = refused(fault, || open_or_create(&url)).await;
    let sentence = why.to_string();
    let OpenError::Engine { fault: found, .. } = &why else { panic!("{sentence}") };
    assert_eq!(*found, fault, "{sentence}");
    assert!(sentence.contains(said), "{sentence}");
    for secret in [PASSWORD, "hunter2"] {
        assert!(!sentence.contains(secret) && !format!("{why:?}").contains(secret), "{sentence}");
    }
}

#[tokio::test]
async fn who_is_not_let_in_is_told_why() {
    let server = Postgres::start(&[]);
    let address = server.address();
    let login = format!("postgres:{PASSWORD}");
    check(
        &format!("postgres://postgres:hunter2@{address}/postgres"),
        EngineFault::Password,
        "password",
    )
    .await;
    check(
        &format!("postgres://nobody:hunter2@{address}/postgres"),
        EngineFault::Password,
        "password",
    )
    .await;
    check(&format!("postgres://postgres@{address}/postgres"), EngineFault::Password, "password")
        .await;
    check(&format!("postgres://{login}@{address}/nowhere"), EngineFault::Database, "nowhere").await;
    let closed = rig::free_port();
    check(&format!("postgres://{login}@127.0.0.1:{closed}/x"), EngineFault::Unreachable, "refused")
        .await;
    check(&format!("postgres://{login}@no.such.invalid/x"), EngineFault::Unreachable, "reached")
        .await;
    // A host that answers says more than one that does not.
    let both = format!("postgres://postgres:hunter2@127.0.0.1:{closed},{address}/postgres");
    check(&both, EngineFault::Password, "refused").await;
    server.pause();
    check(&server.url(), EngineFault::Unreachable, "timeout").await;
    server.wake();

    server.sql("ALTER ROLE postgres SET default_transaction_read_only = on");
    check(&server.url(), EngineFault::ReadOnly, "writes").await;
}

#[tokio::test]
async fn encryption_that_does_not_come_about_is_told_of() {
    let server = Postgres::start(&[]);
    let with = |options: &str| format!("{}?{options}", server.url());
    check(&with("sslmode=require"), EngineFault::Tls, "TLS").await;
    check(&with("ca=/no/such/file"), EngineFault::Tls, "/no/such/file").await;
    open(&with("sslmode=prefer")).await;

    let issuer = server.speak_tls("127.0.0.1");
    let stranger = Postgres::start(&[]).speak_tls("127.0.0.1");
    super::until("it speaks TLS", async || {
        open_or_create(&StoreUrl::parse(&with("sslmode=require")).unwrap()).await.is_ok()
    })
    .await;
    server.admit(&["hostssl all all 127.0.0.1/32 scram-sha-256"]);
    super::until("only encrypted ones are let in", async || {
        open_or_create(&StoreUrl::parse(&with("sslmode=disable")).unwrap()).await.is_err()
    })
    .await;
    check(&with("sslmode=disable"), EngineFault::Tls, "no encryption").await;
    check(&with("sslmode=verify-full"), EngineFault::Tls, "certificate").await;
    drop(stranger);
    open(&with("sslmode=prefer")).await;
    open(&with(&format!("sslmode=verify-full&sslrootcert={}", issuer.display()))).await;
    open(&with(&format!("ca={}", issuer.display()))).await;

    // The right issuer, another name.
    let port = server.address().port();
    let other =
        format!("postgres://postgres:{PASSWORD}@localhost:{port}/postgres?ca={}", issuer.display());
    check(&other, EngineFault::Tls, "certificate").await;
}
