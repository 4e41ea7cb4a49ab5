//! What the tests of many crates need: certificates, waiting, and namespaces to run a daemon or a launcher in.
//!
//! Crates of all layers use this in their tests, so it depends on none of them.

#![allow(clippy::unwrap_used, reason = "the helpers of a test may panic like the test itself")]

pub mod namespaces;
pub mod pki;
mod wait;
pub mod xfs;

pub use pki::{Authority, Pair};
pub use wait::{Look, eventually, eventually_within, until};

/// Says what is not tested for want of something; in CI, where nobody reads what was skipped, that is a failure.
pub fn skip(what: &str, missing: &str) {
    let in_ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(!in_ci, "{what} is not tested: {missing}");
    eprintln!("SKIPPED: {what}: {missing}");
}
