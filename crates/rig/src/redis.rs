//! Redis for tests.
