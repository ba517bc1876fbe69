//! The server, against real sockets on this machine.
//!
//! One binary, so that it links once; one module per idea.

mod server {
    mod access;
    mod answer;
    mod api;
    mod bound;
    mod forbidden;
    mod handle;
    mod history;
    mod node;
    mod receiver;
    mod remote;
    mod tls;
    mod webhook;
}
