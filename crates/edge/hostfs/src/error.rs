use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// An operation on one host object that the kernel refused.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {object}")]
pub struct Error {
    action: &'static str,
    object: String,
    #[source]
    source: io::Error,
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub(crate) fn new(action: &'static str, object: impl fmt::Display, source: impl Into<io::Error>) -> Self {
        Error { action, object: object.to_string(), source: source.into() }
    }

    /// The kernel's answer as a kind, for callers that treat "gone" or "exists" specially.
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }

    /// The kernel's error number, if the kernel was asked at all.
    pub fn errno(&self) -> Option<i32> {
        self.source.raw_os_error()
    }

    pub fn is_not_found(&self) -> bool {
        self.kind() == io::ErrorKind::NotFound
    }
}

/// Adds what was being done, and to what, to a bare kernel error.
pub(crate) trait Context<T> {
    fn doing(self, action: &'static str, path: impl AsRef<Path>) -> Result<T>;
}

impl<T, E: Into<io::Error>> Context<T> for std::result::Result<T, E> {
    fn doing(self, action: &'static str, path: impl AsRef<Path>) -> Result<T> {
        self.map_err(|e| Error::new(action, path.as_ref().display(), e))
    }
}

/// Takes "it is not there" as success of a removal.
pub(crate) fn absent_is_fine(result: Result<()>) -> Result<()> {
    match result {
        Err(e) if e.is_not_found() => Ok(()),
        other => other,
    }
}

pub(crate) fn invalid(action: &'static str, path: impl Into<PathBuf>, why: &str) -> Error {
    Error::new(action, path.into().display(), io::Error::new(io::ErrorKind::InvalidInput, why))
}
