//! What the controllers decide: one module per controller, each a pure function from a `World` to [`Effect`](effect::Effect)s.
//!
//! A `World` is everything the decision may see, already fetched, the time included; nothing in it says what changed.
//! Effects are one vocabulary for all controllers. The caller carries them out in order and stops at the first that fails;
//! if that one has a reason [to show its failure under](effect::Effect::on_failure), it decides once more with
//! [`SyncError`] in the world, so that the failure shows on the object.

pub mod budget;
pub mod claims;
pub mod effect;
pub mod evacuation;
pub mod eviction;
mod flight;
mod guard;
mod guest;
pub mod installation;
mod meta;
pub mod migration;
pub mod node;
pub mod object;
mod pods;
pub mod synchronization;
pub mod vm;
pub mod vmi;
pub mod workload;

/// Why an attempt to bring an object forward failed; it becomes a condition and an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncError {
    /// One of [`api::reasons`], or a container's waiting reason.
    pub reason: String,
    pub message: String,
}

impl SyncError {
    pub fn new(reason: &str, message: impl Into<String>) -> Self {
        Self { reason: reason.to_owned(), message: message.into() }
    }

    /// The message is the error with all its causes.
    pub fn caused_by(reason: &str, error: &dyn std::error::Error) -> Self {
        Self::new(reason, machinery::error::chain(error))
    }
}

/// An event for people: what `kubectl describe` shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub warning: bool,
    pub reason: String,
    pub message: String,
}

impl Note {
    fn normal(reason: &str, message: impl Into<String>) -> Self {
        Self { warning: false, reason: reason.to_owned(), message: message.into() }
    }

    fn warning(reason: &str, message: impl Into<String>) -> Self {
        Self { warning: true, reason: reason.to_owned(), message: message.into() }
    }
}
