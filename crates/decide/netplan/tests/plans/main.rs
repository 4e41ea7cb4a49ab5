//! Plans of the bindings: tables, goldens, and a model of what applying them does.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod bridge;
mod masquerade;
