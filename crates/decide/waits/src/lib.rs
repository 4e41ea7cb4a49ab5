//! What a guest or a migration waits for, since when, and what would unblock it: derived from the objects alone.
//!
//! `virtctl explain` prints the whole chain ([`story`]); consoles, `describe`, `delete` and `drain` quote one sentence of it.

pub mod guest;
pub mod migration;
pub mod story;

use jiff::Timestamp;

/// What something waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// A sentence without its end.
    pub what: String,
    /// When the wait began.
    pub since: Option<Timestamp>,
    /// What would unblock it, if somebody can do something; a sentence without its end.
    pub unblock: Option<String>,
}
