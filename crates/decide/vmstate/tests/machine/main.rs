//! The machine as a whole: a world in, actions out.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod life;
mod migration;
mod pair;
mod phases;
mod properties;
mod shutting_down;
mod statuses;
mod storage;
mod support;
mod volumes;
