//! What arrives, on its way to the target: counted, hashed, decompressed, recognized, and written.

pub(crate) mod archive;
pub(crate) mod checksum;
pub(crate) mod decompress;
pub(crate) mod sparse;

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

use image_format::{Content, Format, HEAD};

/// The bytes of an image in a file.
pub(crate) struct FileContent<'a> {
    pub(crate) file: &'a File,
    pub(crate) length: u64,
}

impl Content for FileContent<'_> {
    type Error = io::Error;

    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&mut self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(buffer, at)
    }
}

/// A stream whose first bytes were looked at.
pub(crate) struct Peeked<R> {
    head: [u8; HEAD],
    filled: usize,
    given: usize,
    inner: R,
}

impl<R: Read> Peeked<R> {
    pub(crate) fn new(mut inner: R) -> io::Result<Self> {
        let mut head = [0; HEAD];
        let mut filled = 0;
        while filled < HEAD {
            match inner.read(&mut head[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
                Err(err) => return Err(err),
            }
        }
        Ok(Peeked { head, filled, given: 0, inner })
    }

    pub(crate) fn head(&self) -> &[u8] {
        &self.head[..self.filled]
    }

    pub(crate) fn format(&self) -> Format {
        Format::of(self.head())
    }
}

impl<R: Read> Read for Peeked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.given == self.filled {
            return self.inner.read(buffer);
        }
        let rest = &self.head[self.given..self.filled];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.given += count;
        Ok(count)
    }
}
