//! A whole node and its API, on clocks that the test sets and a store that outlives it.
//!
//! One binary, so that it links once; one module per idea.

mod server {
    mod clock;
    mod downtime;
    mod id;
    mod node;
    #[expect(dead_code, reason = "the tests of `watchbell dev` use more of it")]
    mod receiver;
    mod wait;
}
