//! Everything about stores that needs a real directory, a real process or a real fault.
//!
//! One binary, so that it links once; one module per idea.

mod store {
    mod suite;
}
