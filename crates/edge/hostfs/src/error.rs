use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A failed operation on a host object.
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

    /// The error's kind, for callers that handle "not found" or "already exists" specially.
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }

    /// The errno, if the error came from the kernel.
    pub fn errno(&self) -> Option<i32> {
        self.source.raw_os_error()
    }

    pub fn is_not_found(&self) -> bool {
        self.kind() == io::ErrorKind::NotFound
    }
}

/// Adds the operation and its object to a plain kernel error.
pub(crate) trait Context<T> {
    fn doing(self, action: &'static str, path: impl AsRef<Path>) -> Result<T>;
}

impl<T, E: Into<io::Error>> Context<T> for std::result::Result<T, E> {
    fn doing(self, action: &'static str, path: impl AsRef<Path>) -> Result<T> {
        self.map_err(|e| Error::new(action, path.as_ref().display(), e))
    }
}

/// Treats "not found" as success of a removal.
pub(crate) fn absent_is_fine(result: Result<()>) -> Result<()> {
    match result {
        Err(e) if e.is_not_found() => Ok(()),
        other => other,
    }
}

pub(crate) fn invalid(action: &'static str, path: impl Into<PathBuf>, why: &str) -> Error {
    Error::new(action, path.into().display(), io::Error::new(io::ErrorKind::InvalidInput, why))
}
