//! The plain key beside a store.

use std::time::Duration;

use rig::redis::Setup;
use store::StoreUrl;
use store::clock::Stopwatch;
use store::redis::Mirror;

#[tokio::test]
async fn a_mirror_shows_a_value_for_a_while_and_clears_only_its_own() {
    let redis = Setup::new().password("hunter2").start();
    let StoreUrl::Redis(at) = StoreUrl::parse(&redis.url()).unwrap() else { panic!("a redis") };
    let mirror = Mirror::new(&at, "leader").unwrap();
    mirror.set("me", Duration::from_secs(60)).await.unwrap();
    assert_eq!(redis.ask(&["GET", "leader"]), "me");
    let left: u64 = redis.ask(&["PTTL", "leader"]).parse().unwrap();
    assert!((50_000..=60_000).contains(&left), "{left}");
    mirror.clear_if("somebody else").await.unwrap();
    assert_eq!(redis.ask(&["GET", "leader"]), "me");
    mirror.clear_if("me").await.unwrap();
    assert_eq!(redis.ask(&["EXISTS", "leader"]), "0");
}

#[tokio::test]
async fn a_mirror_of_a_redis_that_is_gone_fails_in_time_and_comes_back() {
    let mut redis = Setup::new().start();
    let StoreUrl::Redis(at) = StoreUrl::parse(&redis.url()).unwrap() else { panic!("a redis") };
    let mirror = Mirror::new(&at, "leader").unwrap();
    redis.kill();
    let watch = Stopwatch::start();
    let why = mirror.set("me", Duration::from_secs(60)).await.unwrap_err();
    assert!(watch.elapsed() < Duration::from_secs(4));
    assert!(why.to_string().contains("leader"), "{why}");
    redis.restart();
    mirror.set("me", Duration::from_secs(60)).await.unwrap();
}
