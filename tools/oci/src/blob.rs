//! Digests of what passes through.

use std::io::{self, Read, Write};

use sha2::{Digest, Sha256};

/// Hashes and counts what is written or read through it.
pub(crate) struct Hashing<T> {
    inner: T,
    hash: Sha256,
    count: u64,
}

impl<T> Hashing<T> {
    pub(crate) fn new(inner: T) -> Self {
        Hashing { inner, hash: Sha256::new(), count: 0 }
    }

    /// What was below, the digest and the number of bytes.
    pub(crate) fn finish(self) -> (T, String, u64) {
        (self.inner, name(self.hash), self.count)
    }

    fn note(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.count += bytes.len() as u64;
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(bytes)?;
        self.note(&bytes[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.note(&buffer[..n]);
        Ok(n)
    }
}

/// The digest of a document.
pub(crate) fn digest(bytes: &[u8]) -> String {
    let mut hash = Sha256::new();
    hash.update(bytes);
    name(hash)
}

fn name(hash: Sha256) -> String {
    let hex: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// The place of a blob in a layout. `None` if the digest is none that we make: it comes from a file of others, and becomes
/// a path.
pub(crate) fn place(digest: &str) -> Option<String> {
    let hex = digest.strip_prefix("sha256:")?;
    let valid = hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    valid.then(|| format!("blobs/sha256/{hex}"))
}
