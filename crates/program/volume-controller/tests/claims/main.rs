//! The controller against an embedded API server and a real pool.

#![allow(clippy::unwrap_used)] // a test may fail this way

mod kills;
mod lab;
mod lives;
