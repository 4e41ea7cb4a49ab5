//! A file that grows, and is emptied when it has become too long.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom, Write};
use std::path::PathBuf;

/// Where a reader is in the file.
pub(crate) struct Follower {
    path: PathBuf,
    /// Not there until the guest starts.
    file: Option<File>,
    position: u64,
}

impl Follower {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, file: None, position: 0 }
    }

    /// Writes what is new.
    pub(crate) fn pass_on(&mut self, to: &mut impl Write) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => match File::open(&self.path) {
                Ok(opened) => none.insert(opened),
                Err(err) if err.kind() == ErrorKind::NotFound => return Ok(()),
                Err(err) => return Err(err),
            },
        };
        if file.metadata()?.len() < self.position {
            self.position = file.seek(SeekFrom::Start(0))?;
        }
        let mut buffer = [0; 16 << 10];
        loop {
            let count = file.read(&mut buffer)?;
            if count == 0 {
                return to.flush();
            }
            self.position += count as u64;
            to.write_all(&buffer[..count])?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};

    use super::*;

    #[test]
    fn every_byte_is_passed_on_once_also_after_the_file_was_emptied() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let (mut follower, mut seen) = (Follower::new(path.clone()), Vec::new());
        follower.pass_on(&mut seen).unwrap();
        assert!(seen.is_empty(), "there is no file yet");
        fs::write(&path, "one\n").unwrap();
        follower.pass_on(&mut seen).unwrap();
        let mut log = OpenOptions::new().append(true).open(&path).unwrap();
        log.write_all(b"two\n").unwrap();
        follower.pass_on(&mut seen).unwrap();
        follower.pass_on(&mut seen).unwrap();
        log.set_len(0).unwrap();
        log.write_all(b"3\n").unwrap();
        follower.pass_on(&mut seen).unwrap();
        assert_eq!(String::from_utf8(seen).unwrap(), "one\ntwo\n3\n");
    }
}
