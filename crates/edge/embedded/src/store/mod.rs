//! The durable store: the latest bytes of every object, and one revision that only grows.
//!
//! The engine behind [`Engine`] knows keys and bytes. Reads never come here: they are answered by the watch cache, which
//! is filled once at start. So the trait is as small as durability needs it to be.

mod redb;
mod writer;

use std::io;
use std::path::PathBuf;

pub(crate) use redb::RedbEngine;
pub(crate) use writer::{Expect, Op, Write, WriteError, Writer};

/// What a key becomes: new bytes, or nothing.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) key: String,
    pub(crate) value: Option<Vec<u8>>,
}

/// A durable map from key to bytes with a revision. Only the writer thread holds one.
pub(crate) trait Engine: Send {
    /// Calls `each` with every key and its bytes, and returns the revision.
    fn load(&self, each: &mut dyn FnMut(&str, &[u8])) -> Result<u64, StoreError>;

    /// Makes all changes and the new revision durable together. After an error nothing is known about the outcome until
    /// [`Engine::reopen`] has told the revision.
    fn commit(&mut self, revision: u64, changes: &[Change]) -> Result<(), StoreError>;

    /// Brings the engine back after a failed commit and returns the revision that is really on disk.
    fn reopen(&mut self) -> Result<u64, StoreError>;

    /// Gives space of overwritten values back to the file system.
    fn compact(&mut self) -> Result<(), StoreError>;
}

/// Why the store could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process serves this directory.
    #[error("{path} is in use by another server; stop that one first, or choose another data directory")]
    InUse { path: PathBuf },
    /// The file could not be opened as a store.
    #[error("failed to open the store {path}")]
    Open {
        path: PathBuf,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The file system has no room.
    #[error("no space left on the device that holds the store {path}; free some space and try again")]
    Full { path: PathBuf },
    /// Reading or writing failed.
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

/// Quota is a full disk too, as seen by the user of the directory.
fn is_full(err: &io::Error) -> bool {
    matches!(err.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
