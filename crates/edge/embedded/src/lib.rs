//! A small Kubernetes-compatible API server on an embedded store, with garbage collection, quotas and a scheduler.
//!
//! It serves the subset of Kubernetes that the VM system needs, with the same behaviour; anything else is an unknown
//! resource. The path of a request:
//!
//! ```text
//!   TLS ─► who? (auth) ─► may they? (RBAC) ─► registry: defaults, hooks, schema of the kind ─► writer ─► redb
//!                                      │                                                     │
//!                                      └───── get, list, watch ◄───────── cache ◄────────────┘
//! ```
//!
//! A single thread writes, in batches; all reads go to the cache. Only this crate assigns resource versions.

pub mod auth;
pub mod scheduler;

mod bootstrap;
mod cache;
mod errors;
mod gc;
mod hooks;
mod http;
mod kinds;
mod quota;
mod registry;
mod server;
mod store;
mod table;
mod views;

pub use bootstrap::System;
pub use server::{Config, Error, Server};
pub use store::StoreError;
