//! What the simulator shows, and that it would show more.

#[path = "sim/driver.rs"]
mod driver;
#[path = "sim/fleet.rs"]
mod fleet;
#[path = "sim/gate.rs"]
mod gate;
#[path = "sim/history.rs"]
mod history;
#[path = "sim/model.rs"]
mod model;
#[path = "sim/retention.rs"]
mod retention;
#[path = "sim/seed.rs"]
mod seed;
#[path = "sim/shard.rs"]
mod shard;
