//! Disk images from outside: fetched, checked, unpacked and converted by a confined process.
//!
//! ```text
//!   import-controller ─► Worker::spawn ─► ferrovirt import-worker        root, opens nothing that a tenant names
//!                                           ├── fetch    network, decompression, header reader, archive
//!                                           └── convert  qemu-img; no network
//! ```
//!
//! [`Job`] and [`Event`] are what both ends of the worker's pipes speak. The two stages run without capabilities, see nothing
//! but the descriptors they are given, and end with the worker, however that ends.

mod content;
mod job;
mod net;
mod parent;
pub mod registry;
mod worker;

pub use job::{ContentType, Done, Event, Failure, Http, Job, Registry, Source, Target, reasons};
pub use parent::{Descriptors, Worker};
pub use worker::main;

/// The hidden subcommand of `ferrovirt` that [`Worker`] runs.
pub const SUBCOMMAND: &str = "import-worker";
