//! Who may do what: projects, keys, limits, the audit, events, and requests that are remembered, against a real
//! node.

mod audit;
mod event;
mod house;
mod key;
mod limit;
mod matrix;
mod openapi;
mod project;
mod recall;
mod tls;
