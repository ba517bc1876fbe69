//! Postgres for tests.
