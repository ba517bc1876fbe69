//! The API, in front of a node that does what it is told and nothing by itself.

mod backup;
mod bench;
mod cluster;
mod event;
mod explain;
mod forward;
mod pair;
mod relay;
mod request;
mod role;
mod run;
mod system;
mod trigger;
