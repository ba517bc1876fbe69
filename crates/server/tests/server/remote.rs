//! A server as a store: sessions and elections of programs that come through it.

mod campaign;
mod candidate;
mod fault;
mod foreign;
mod hold;
mod stand;
mod suite;
