//! What is refused at open, each with its own fault and sentence, and what is found out about a server.

use std::net::TcpListener;

use rig::redis::{Redis, Setup};
use store::{Class, EngineFault, OpenError, StoreUrl, open_existing};
use tokio::time::timeout;

use super::{IN_TIME, key, open, put};
use crate::store::patience::refused;

const CANARY: &str = "hunter2";

async fn check_refused(url: &str, expected: EngineFault, said: &str) {
    let url = StoreUrl::parse(url).unwrap();
    let in_time =
        || async { timeout(IN_TIME, open_existing(&url)).await.expect("it is told in time") };
    let why = refused(expected, in_time).await;
    let sentence = why.to_string();
    assert!(!format!("{sentence} {why:?} {url:?}").contains(CANARY), "{sentence}");
    let OpenError::Engine { fault, .. } = why else { panic!("{sentence}") };
    assert_eq!(fault, expected, "{sentence}");
    assert!(sentence.contains(said), "{sentence}");
}

async fn class(redis: &Redis) -> Class {
    open(&redis.url()).await.class()
}

#[tokio::test]
async fn a_password_that_is_wrong_missing_or_needless_is_told() {
    let redis = Setup::new().password("right").start();
    let at = redis.address();
    check_refused(&format!("redis://:{CANARY}@{at}"), EngineFault::Password, "password is wrong")
        .await;
    check_refused(&format!("redis://{at}"), EngineFault::Password, "asks for a password").await;
    check_refused(&format!("redis://me:{CANARY}@{at}"), EngineFault::Password, "password is wrong")
        .await;
    let open = Setup::new().start();
    let url = format!("redis://:{CANARY}@{}", open.address());
    check_refused(&url, EngineFault::Password, "has no password").await;
}

#[tokio::test]
async fn a_user_who_may_do_too_little_is_told_before_half_a_commit_is_done() {
    let redis = Setup::new().start();
    let user = |name: &str, rules: &[&str]| {
        let password = format!(">{CANARY}");
        let words = [&["ACL", "SETUSER", name, "on", &password], rules].concat();
        assert_eq!(redis.ask(&words), "OK");
        format!("redis://{name}:{CANARY}@{}", redis.address())
    };
    let all = ["~{watchbell}:*", "&{watchbell}:*", "+@all"];
    for (name, rule) in [("a", "-zadd"), ("b", "-info"), ("c", "-evalsha"), ("d", "-hdel")] {
        let url = user(name, &[&all[..], &[rule]].concat());
        check_refused(&url, EngineFault::Password, "this user may not").await;
    }
    let elsewhere = user("e", &["~other:*", "+@all"]);
    check_refused(&elsewhere, EngineFault::Password, "this user may not").await;
    let enough = user("f", &[&all[..], &["-@dangerous", "+info"]].concat());
    let store = open(&enough).await;
    store.commit(put("k", "v")).await.unwrap();
}

#[tokio::test]
async fn a_database_that_is_not_there_is_told() {
    let redis = Setup::new().set("databases", "2").start();
    let at = redis.address();
    check_refused(&format!("redis://{at}/2"), EngineFault::Database, "no database 2").await;
    open(&format!("redis://{at}/1")).await.commit(put("k", "v")).await.unwrap();
    assert!(open(&format!("redis://{at}/0")).await.get(&key("k")).await.unwrap().is_none());
}

#[tokio::test]
async fn a_url_with_a_mistake_is_told() {
    for (url, said) in [
        ("redis://:hunter2@h/x", "is a number"),
        ("redis://:hunter2@h?prefx=a", "\"prefx\" is no option"),
        ("redis://:hunter2@h?prefix=a%7Bb", "prefix is"),
        ("redis://:hunter2@h?prefix=", "prefix is"),
    ] {
        let why = open_existing(&StoreUrl::parse(url).unwrap()).await.unwrap_err().to_string();
        assert!(why.contains(said) && !why.contains(CANARY), "{why}");
    }
}

#[tokio::test]
async fn one_side_with_tls_and_the_other_without_is_told() {
    let redis = Setup::new().password(CANARY).tls().start();
    let (plain, encrypted) = (redis.address(), redis.tls_address());
    let ca = redis.ca().display().to_string();
    check_refused(
        &format!("rediss://:{CANARY}@{plain}?ca={ca}"),
        EngineFault::Tls,
        "does not speak TLS",
    )
    .await;
    check_refused(&format!("redis://:{CANARY}@{encrypted}"), EngineFault::Tls, "it speaks TLS")
        .await;
    check_refused(&redis.tls_url(), EngineFault::Tls, "unknown issuer").await;
    let none = format!("{}?ca=/nowhere.pem", redis.tls_url());
    check_refused(&none, EngineFault::Tls, "/nowhere.pem").await;
    open(&format!("{}?ca={ca}", redis.tls_url())).await.commit(put("k", "v")).await.unwrap();
}

#[tokio::test]
async fn nobody_there_and_one_who_does_not_answer_are_told_in_time() {
    let port = rig::free_port();
    check_refused(
        &format!("redis://:{CANARY}@127.0.0.1:{port}"),
        EngineFault::Unreachable,
        "refused",
    )
    .await;
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = silent.local_addr().unwrap();
    for scheme in ["redis", "rediss"] {
        let url = format!("{scheme}://:{CANARY}@{at}");
        check_refused(&url, EngineFault::Unreachable, "no answer within").await;
    }
}

#[tokio::test]
async fn a_replica_is_refused() {
    let master = Setup::new().start();
    let replica = Setup::new().replica_of(&master).start();
    check_refused(&replica.url(), EngineFault::ReadOnly, "it is a replica").await;
}

#[tokio::test]
async fn among_several_hosts_the_master_is_found() {
    let master = Setup::new().start();
    let replica = Setup::new().replica_of(&master).start();
    let gone = rig::free_port();
    let url = format!("redis://127.0.0.1:{gone},{},{}", replica.address(), master.address());
    open(&url).await.commit(put("k", "v")).await.unwrap();
    let none = format!("redis://127.0.0.1:{gone},{}", replica.address());
    check_refused(&none, EngineFault::ReadOnly, &replica.address().to_string()).await;
}

#[tokio::test]
async fn an_eviction_policy_that_could_drop_keys_is_refused() {
    for policy in ["allkeys-lru", "allkeys-random"] {
        let redis = Setup::new().set("maxmemory-policy", policy).start();
        check_refused(&redis.url(), EngineFault::Unsafe, policy).await;
    }
    let redis = Setup::new().set("maxmemory-policy", "volatile-lru").start();
    let store = open(&redis.url()).await;
    assert!(store.facts().iter().any(|(_, text)| text.contains("volatile-lru")));
}

#[tokio::test]
async fn a_node_of_a_redis_cluster_is_refused() {
    let redis = Setup::new().set("cluster-enabled", "yes").start();
    check_refused(&redis.url(), EngineFault::Unsafe, "Redis Cluster").await;
}

#[tokio::test]
async fn the_class_is_what_the_settings_are_worth() {
    assert_eq!(class(&Setup::new().start()).await, Class::B);
    for (when, expected) in [("no", Class::B), ("everysec", Class::B), ("always", Class::S)] {
        let redis = Setup::durable().set("appendfsync", when).start();
        assert_eq!(class(&redis).await, expected, "{when}");
    }
    let pausing = Setup::durable().set("no-appendfsync-on-rewrite", "yes").start();
    assert_eq!(class(&pausing).await, Class::B);
}

#[tokio::test]
async fn a_replica_that_comes_makes_it_class_b() {
    let master = Setup::durable().start();
    let store = open(&master.url()).await;
    store.commit(put("k", "1")).await.unwrap();
    assert_eq!(store.class(), Class::S);
    let _replica = Setup::new().replica_of(&master).set("repl-diskless-sync-delay", "0").start();
    let joined = async {
        while store.class() == Class::S {
            store.commit(put("k", "2")).await.unwrap();
        }
    };
    tokio::time::timeout(super::LONG, joined).await.expect("every answer tells of replicas");
    assert_eq!(store.class(), Class::B);
}

#[tokio::test]
async fn without_config_it_works_and_says_what_it_could_not_check() {
    let redis = Setup::durable().set("rename-command", "CONFIG ").start();
    let store = open(&redis.url()).await;
    store.commit(put("k", "v")).await.unwrap();
    assert_eq!(store.class(), Class::B, "what is not known is not promised");
    let facts = store.facts();
    assert!(facts.iter().any(|(_, text)| text.contains("CONFIG is not permitted")), "{facts:?}");
}

#[tokio::test]
async fn whoever_may_not_subscribe_is_rung_all_the_same() {
    let redis = Setup::new().start();
    redis.ask(&["ACL", "SETUSER", "me", "on", ">pw", "~*", "resetchannels", "+@all"]);
    let store = open(&format!("redis://me:pw@{}", redis.address())).await;
    let mut hints = store.watch("k");
    for _ in 0..2 {
        tokio::time::timeout(super::LONG, hints.changed()).await.expect("it polls");
    }
    assert!(store.facts().iter().any(|(name, _)| *name == "hints"), "{:?}", store.facts());
}
