//! The API server as its clients meet it, over TLS.

mod access;
mod common;
mod durability;
mod eviction;
mod kinds;
mod kubectl;
mod scheduling;
mod semantics;
mod storage;
mod watching;
