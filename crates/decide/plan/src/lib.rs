//! The decisions of the controllers: one module per controller, each a pure function from a `World` to
//! [`Effect`](effect::Effect)s.
//!
//! A `World` is the complete input of a decision, already fetched, including the current time; it does not say what
//! changed. All controllers share one vocabulary of effects. The caller executes them in order and stops at the first
//! failure; if that effect has a reason [to report its failure under](effect::Effect::on_failure), the caller decides
//! once more with [`SyncError`] in the world, so that the failure is reported on the object.

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
pub mod topology;
pub mod vm;
pub mod vmi;
pub mod workload;

/// Why reconciling an object failed; reported as a condition and an event.
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

/// An event for users, as shown by `kubectl describe`.
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
