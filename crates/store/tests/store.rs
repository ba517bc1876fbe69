//! Everything about stores that needs a real directory, a real process or a real fault.
//!
//! One binary, so that it links once; one module per idea.

mod store {
    mod backup;
    mod child;
    mod crash;
    mod damage;
    mod disk;
    mod election;
    mod etcd;
    mod fault;
    mod mutant;
    mod open;
    mod patience;
    mod postgres;
    mod redis;
    mod ring;
    mod session;
    mod suite;
    mod torn;
    mod view;
}
