//! The server, against real sockets on this machine.
//!
//! One binary, so that it links once; one module per idea.

mod server {
    mod node;
}
