//! The API, in front of a node that does what it is told and nothing by itself.

mod bench;
mod explain;
mod request;
mod run;
mod system;
mod trigger;
