//! The subresource API from outside.

#![allow(clippy::unwrap_used, reason = "what a test takes for granted may panic")]

mod embedded;
mod router;
mod streams;
mod support;
