//! Events.

/// An event about a DataVolume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub warning: bool,
    pub reason: String,
    pub message: String,
}

impl Note {
    pub(crate) fn normal(reason: &str, message: impl Into<String>) -> Self {
        Self { warning: false, reason: reason.to_owned(), message: message.into() }
    }

    pub(crate) fn warning(reason: &str, message: impl Into<String>) -> Self {
        Self { warning: true, reason: reason.to_owned(), message: message.into() }
    }
}
