//! A small Kubernetes-compatible API server on an embedded store, with its garbage collection, quotas and scheduler.
//!
//! It serves what the VM system needs of Kubernetes, as Kubernetes does it; what it does not serve, it answers as an
//! unknown resource. A request takes this way:
//!
//! ```text
//!   TLS ─► who? (auth) ─► may they? (RBAC) ─► registry: defaults, hooks, schema of the kind ─► writer ─► redb
//!                                      │                                                     │
//!                                      └───── get, list, watch ◄───────── cache ◄────────────┘
//! ```
//!
//! One thread writes, in groups; everything that reads, reads the cache. Only this crate gives out resource versions.

pub mod auth;
pub mod scheduler;
pub mod schema;

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

pub use server::{Config, Error, Server};
pub use store::StoreError;
