//! One supervisor per data directory.

use std::fs::{File, OpenOptions};

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};

use super::layout::Layout;
use super::record::Record;

/// The lock is held as long as this lives; the kernel releases it when the process dies, however it dies.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    pub fn take(layout: &Layout) -> Result<Self> {
        let path = layout.lock();
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { _file: file }),
            Err(rustix::io::Errno::WOULDBLOCK) => bail!("{}", occupied(layout)),
            Err(err) => Err(err).with_context(|| format!("cannot lock {}", path.display())),
        }
    }

    /// Whether a supervisor currently holds this directory.
    pub fn is_held(layout: &Layout) -> bool {
        let Ok(file) = File::open(layout.lock()) else { return false };
        matches!(flock(&file, FlockOperation::NonBlockingLockShared), Err(rustix::io::Errno::WOULDBLOCK))
    }
}

fn occupied(layout: &Layout) -> String {
    let who = match Record::load(layout) {
        Ok(Some(Record { supervisor: Some(process), .. })) => format!(" (process {})", process.pid),
        _ => String::new(),
    };
    format!(
        "a cluster is already running on {}{who}; use it, end it with `ferrovirt down`, or choose another --data-dir",
        layout.root().display()
    )
}
