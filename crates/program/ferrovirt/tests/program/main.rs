//! `ferrovirt` as a process, and the documents that are generated from its tables.
#![allow(clippy::unwrap_used, reason = "a helper of a test fails as the test does")]

mod cli;
mod controller;
mod csi;
mod dictionary;
