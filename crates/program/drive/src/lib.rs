//! Drives a cluster from outside, like a user: real processes, the API, the console. [`Embedded`] is one that it starts
//! itself; everything else takes a cluster of any shape as [`Access`].
//!
//! Used by the demo, the benchmarks and the end-to-end tests, which read like
//! `Embedded::start → spawn → wait_to_boot → run_shell_command`.

mod access;
mod client_pod;
mod console;
pub mod demo;
mod embedded;
mod guest;
mod leftovers;
mod poll;
pub mod timeline;
mod watch;
mod witness;

pub use access::{Access, Nodes, PodPlace};
pub use client_pod::ClientPod;
pub use console::Console;
pub use embedded::Embedded;
pub use guest::{BOOT_LIMIT, FIRST_LINE, Guest, LIMIT, UP_LINE};
pub use leftovers::Snapshot;
pub use poll::poll;
pub use watch::{watch_move, watch_start};
pub use witness::{Testimony, Witness};
