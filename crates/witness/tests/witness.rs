//! The witness: its judge against planted faults and a naive model, and its sockets against whatever may come.

mod witness {
    mod bound;
    mod judge;
    mod model;
    mod plan;
    mod signer;
    mod socket;
}
