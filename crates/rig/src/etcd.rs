//! Etcd for tests.
