//! The durable store: the latest bytes of every object, and a monotonic revision.
//!
//! The engine behind [`Engine`] only knows keys and bytes. Reads are served by the watch cache, which is loaded once at
//! startup, so the trait contains only what durability needs.

mod redb;
mod writer;

use std::io;
use std::path::PathBuf;

pub(crate) use redb::RedbEngine;
pub(crate) use writer::{Expect, Op, Write, WriteError, Writer};

/// A change of one key: new bytes, or removal.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) key: String,
    pub(crate) value: Option<Vec<u8>>,
}

/// A durable map from key to bytes with a revision. Only the writer thread uses it.
pub(crate) trait Engine: Send {
    /// Calls `each` with every key and its bytes, and returns the revision.
    fn load(&self, each: &mut dyn FnMut(&str, &[u8])) -> Result<u64, StoreError>;

    /// Makes all changes and the new revision durable atomically. After an error the outcome is unknown until
    /// [`Engine::reopen`] has returned the revision.
    fn commit(&mut self, revision: u64, changes: &[Change]) -> Result<(), StoreError>;

    /// Recovers the engine after a failed commit and returns the revision that is on disk.
    fn reopen(&mut self) -> Result<u64, StoreError>;

    /// Returns the space of overwritten values to the file system.
    fn compact(&mut self) -> Result<(), StoreError>;
}

/// Errors of the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process uses this directory.
    #[error("{path} is in use by another server; stop that one first, or choose another data directory")]
    InUse { path: PathBuf },
    /// The file could not be opened as a store.
    #[error("failed to open the store {path}")]
    Open {
        path: PathBuf,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The file system is full.
    #[error("no space left on the device that holds the store {path}; free some space and try again")]
    Full { path: PathBuf },
    /// A read or write failed.
    #[error("failed to {doing} the store {path}")]
    Failed {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl StoreError {
    fn failed(doing: &'static str, path: &std::path::Path, source: ::redb::Error) -> Self {
        match &source {
            ::redb::Error::Io(err) if is_full(err) => Self::Full { path: path.to_owned() },
            _ => Self::Failed { doing, path: path.to_owned(), source: Box::new(source) },
        }
    }
}

/// An exceeded quota counts as a full disk too.
fn is_full(err: &io::Error) -> bool {
    matches!(err.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
