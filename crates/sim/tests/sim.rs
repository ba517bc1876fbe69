//! What the simulator shows, and that it would show more.

#[path = "sim/driver.rs"]
mod driver;
#[path = "sim/fleet.rs"]
mod fleet;
#[path = "sim/gate.rs"]
mod gate;
#[path = "sim/history.rs"]
mod history;
#[path = "sim/hold.rs"]
mod hold;
#[path = "sim/model.rs"]
mod model;
#[path = "sim/pick.rs"]
mod pick;
#[path = "sim/retention.rs"]
mod retention;
#[path = "sim/ring.rs"]
mod ring;
#[path = "sim/seed.rs"]
mod seed;
#[path = "sim/shard.rs"]
mod shard;

use std::sync::Mutex;

/// Works on all items, on two threads. Returns what there was to tell, in no particular order.
fn on_two_threads<I, T: Send>(
    items: impl IntoIterator<Item = I, IntoIter: Send>,
    work: impl Fn(I) -> Option<T> + Sync,
) -> Vec<T> {
    let (items, told) = (Mutex::new(items.into_iter()), Mutex::new(Vec::new()));
    let next = || items.lock().unwrap().next();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(item) = next() {
                    let found = work(item);
                    told.lock().unwrap().extend(found);
                }
            });
        }
    });
    told.into_inner().unwrap()
}
