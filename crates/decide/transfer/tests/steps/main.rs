//! A migration step by step, and what holds of it whatever the two daemons answer.

#![allow(clippy::unwrap_used, reason = "the helpers of a test may panic like the test itself")]

mod properties;
mod table;
