//! The rules, against tables worked out by hand and against an oracle.

#[path = "engine/awake.rs"]
mod awake;
#[path = "engine/oracle.rs"]
mod oracle;
#[path = "engine/queue.rs"]
mod queue;
#[path = "engine/schedule.rs"]
mod schedule;
#[path = "engine/shard.rs"]
mod shard;
#[path = "engine/table.rs"]
mod table;
#[path = "engine/wheel.rs"]
mod wheel;
