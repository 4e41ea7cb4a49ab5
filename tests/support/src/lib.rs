//! What the tests of many crates need: certificates, waiting, namespaces to run a daemon or a launcher in, and a word for
//! tests that cannot run on a machine.
//!
//! Crates of all layers use this in their tests, so it depends on none of them.

#![allow(clippy::unwrap_used, reason = "the helpers of a test may panic like the test itself")]

pub mod namespaces;
pub mod pki;
mod skip;
mod wait;
pub mod xfs;

pub use pki::{Authority, Pair};
pub use skip::{in_ci, skip, try_skip};
pub use wait::{Look, eventually, eventually_within, until};
