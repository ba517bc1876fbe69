//! Rings through real servers: who is in one, whose turn it is, and that everybody sees the same.
//!
//! - `crowd`: members that attend, and watchers that write down what they are told
//! - `order`: whose turn it is, whoever comes and goes
//! - `part`: what is accepted, and what passes on
//! - `api`: what is asked and refused
//! - `program`: `watchbell ring`, typed
//! - `fault`: servers, members and the store fail, in every combination
//! - `library`: members in Python and TypeScript
//! - `measure`: how exact turns are, and what they cost

mod api;
mod crowd;
mod fault;
mod library;
mod measure;
mod order;
mod part;
mod program;
