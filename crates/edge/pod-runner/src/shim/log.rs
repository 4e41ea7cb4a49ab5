//! A container's output on disk, with rotation: a full file becomes `.log.1`, replacing the previous one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

const MOST_BYTES: u64 = 8 << 20;

#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    file: File,
    written: u64,
    limit: u64,
}

impl Log {
    pub(super) fn open(path: PathBuf) -> io::Result<Log> {
        Self::with_limit(path, MOST_BYTES)
    }

    fn with_limit(path: PathBuf, limit: u64) -> io::Result<Log> {
        let file = append_to(&path)?;
        let written = file.metadata()?.len();
        Ok(Log { path, file, written, limit })
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.written > 0 && self.written + bytes.len() as u64 > self.limit {
            fs::rename(&self.path, older(&self.path))?;
            self.file = append_to(&self.path)?;
            self.written = 0;
        }
        self.file.write_all(bytes)?;
        self.written += bytes.len() as u64;
        Ok(())
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// Path of the rotated part.
pub(crate) fn older(path: &Path) -> PathBuf {
    path.with_extension("log.1")
}

/// The last lines of a log, at most `bytes` long.
pub(super) fn tail(path: &Path, bytes: u64) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(bytes)))?;
        let mut text = Vec::new();
        file.take(bytes).read_to_end(&mut text)?;
        Ok(text)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_log_makes_room_and_keeps_one_part() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.log");
        let mut log = Log::with_limit(path.clone(), 10).unwrap();
        for part in ["aaaa\n", "bbbb\n", "cccc\n", "dddddddddddddd\n", "e\n"] {
            log.write(part.as_bytes()).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "e\n");
        assert_eq!(fs::read_to_string(older(&path)).unwrap(), "dddddddddddddd\n");
        drop(log);
        Log::with_limit(path.clone(), 10).unwrap().write(b"f\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "e\nf\n", "a new shim appends");
        assert_eq!(tail(&path, 2), "f");
        assert_eq!(tail(&dir.path().join("none"), 2), "");
    }
}
