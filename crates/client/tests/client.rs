//! The client against a server that does as it is told, and the example against nothing less than a real one.

mod client {
    mod error;
    mod list;
    mod repeat;
    mod script;
    mod trust;
    mod watch;
}
