//! Writing to a target whose bytes are zeros already: what is zero is not written again.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

/// Holes have at least this size.
const BLOCK: usize = 4096;
const BUFFER: usize = 1 << 20;

/// Copies a stream to the start of a file; stops after `limit` bytes and reports how much came, at most one more than that.
pub(crate) fn copy(from: &mut impl Read, to: &File, limit: u64, skip_zeros: bool) -> io::Result<Copied> {
    let mut buffer = vec![0; BUFFER];
    let mut at = 0u64;
    loop {
        let filled = fill(from, &mut buffer)?;
        if filled == 0 {
            return Ok(Copied::All(at));
        }
        if at.saturating_add(filled as u64) > limit {
            return Ok(Copied::TooLarge);
        }
        write(to, at, &buffer[..filled], skip_zeros).map_err(Written::wrap)?;
        at += filled as u64;
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Copied {
    All(u64),
    TooLarge,
}

/// Marks an error as one of the target.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Written(pub(crate) io::Error);

impl Written {
    fn wrap(err: io::Error) -> io::Error {
        io::Error::new(err.kind(), Written(err))
    }
}

fn fill(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match from.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
            Err(err) => return Err(err),
        }
    }
    Ok(filled)
}

/// Writes the runs of blocks that are not zero.
fn write(to: &File, at: u64, bytes: &[u8], skip_zeros: bool) -> io::Result<()> {
    if !skip_zeros {
        return to.write_all_at(bytes, at);
    }
    let mut start = None;
    for (index, block) in bytes.chunks(BLOCK).enumerate() {
        let position = index * BLOCK;
        match (is_zero(block), start) {
            (false, None) => start = Some(position),
            (true, Some(from)) => {
                to.write_all_at(&bytes[from..position], at + from as u64)?;
                start = None;
            }
            _ => {}
        }
    }
    match start {
        Some(from) => to.write_all_at(&bytes[from..], at + from as u64),
        None => Ok(()),
    }
}

/// In words, which the compiler makes fast.
fn is_zero(block: &[u8]) -> bool {
    let (words, rest) = block.as_chunks::<16>();
    words.iter().all(|word| u128::from_ne_bytes(*word) == 0) && rest.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn what_is_zero_stays_a_hole_and_the_rest_is_the_same() {
        let mut content = vec![0u8; 5 << 20];
        for at in [0, 4095, 4096, 700_000, (1 << 20) - 1, 1 << 20, (5 << 20) - 1] {
            content[at] = 1;
        }
        let file = tempfile::tempfile().unwrap();
        file.set_len(content.len() as u64).unwrap();
        assert_eq!(copy(&mut &content[..], &file, 5 << 20, true).unwrap(), Copied::All(5 << 20));
        let mut found = vec![1; content.len()];
        file.read_exact_at(&mut found, 0).unwrap();
        assert!(found == content);
        assert!(file.metadata().unwrap().blocks() * 512 < 64 * 1024, "{}", file.metadata().unwrap().blocks());
    }

    #[test]
    fn nothing_is_written_beyond_the_limit() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(copy(&mut &[1u8; 1000][..], &file, 999, true).unwrap(), Copied::TooLarge);
        assert!(file.metadata().unwrap().len() <= 999);
        assert_eq!(copy(&mut &[1u8; 999][..], &file, 999, true).unwrap(), Copied::All(999));
        assert_eq!(copy(&mut io::repeat(0), &file, 3 << 20, true).unwrap(), Copied::TooLarge);
    }
}
