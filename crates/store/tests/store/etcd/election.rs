//! Elections on three members of etcd, in real time. Each candidate knows all of them, in an order of its own.

use rig::etcd::Etcd;
use store::Store;

use super::open;
use crate::store::election::{check_one_winner, check_random_kills};

/// One store for each member, which asks that one first.
pub(super) async fn stores(etcd: &Etcd) -> Vec<Store> {
    let mut stores = Vec::new();
    for first in 0..etcd.len() {
        let hosts: Vec<String> = (first..first + etcd.len())
            .map(|number| etcd.address(number % etcd.len()).to_string())
            .collect();
        stores.push(open(&format!("etcd://{}", hosts.join(","))).await);
    }
    stores
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_hundred_candidates_on_etcd_one_wins() {
    let etcd = Etcd::three_calm();
    check_one_winner(&stores(&etcd).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_killed_on_etcd_is_followed_by_one_at_a_time() {
    let etcd = Etcd::three_calm();
    check_random_kills(&stores(&etcd).await, 0xe7cd, 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: make soak"]
async fn however_many_are_killed_on_etcd_they_are_followed_by_one_at_a_time() {
    let etcd = Etcd::three_calm();
    check_random_kills(&stores(&etcd).await, 0xe7cd_0040, 40).await;
}
