//! Rings on three members of etcd, in real time. Each server knows all of them, in an order of its own.

use rig::etcd::Etcd;

use super::election::stores;
use crate::store::ring::check_one_story;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_servers_on_etcd_tell_one_story() {
    let etcd = Etcd::three_calm();
    check_one_story(&stores(&etcd).await).await;
}
