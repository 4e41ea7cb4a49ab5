//! What things were made from, to know whether to make them again.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// What is noted beside an image.
#[derive(Serialize, Deserialize)]
pub(super) struct Made {
    /// Digest of everything it was made from.
    pub(super) from: String,
    /// The image's digest.
    pub(super) digest: String,
    /// Bytes of the archive.
    pub(super) size: u64,
}

/// The note, if it is about an image that was made from this and is still there.
pub(super) fn read(note: &Path, from: &str, archive: &Path) -> Option<Made> {
    let made: Made = serde_json::from_slice(&fs::read(note).ok()?).ok()?;
    let there = fs::metadata(archive).is_ok_and(|meta| meta.len() == made.size);
    (made.from == from && there).then_some(made)
}

pub(super) fn write(note: &Path, made: &Made) -> Result<()> {
    let text = serde_json::to_vec_pretty(made)?;
    fs::write(note, text).with_context(|| format!("cannot write {}", note.display()))
}

pub(super) fn of_text(text: &str) -> String {
    hex(Sha256::new().chain_update(text))
}

/// The digest of files' contents, in the order given.
pub(super) fn of_files(files: &[&Path]) -> Result<String> {
    let mut hash = Sha256::new();
    for file in files {
        let mut opened = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
        let size = io::copy(&mut opened, &mut hash).with_context(|| format!("cannot read {}", file.display()))?;
        hash.write_all(&size.to_le_bytes())?;
    }
    Ok(hex(hash))
}

/// How images are put together is part of what they are made from.
pub(super) fn own_sources() -> String {
    of_text(concat!(
        include_str!("mod.rs"),
        include_str!("crates.rs"),
        include_str!("debian.rs"),
        include_str!("guest.rs"),
        include_str!("launcher.rs"),
        include_str!("program.rs"),
        include_str!("remap.rs"),
        include_str!("sbom.rs")
    )) + &of_writer()
}

/// So is how layers are written.
pub(super) fn of_writer() -> String {
    of_text(concat!(
        include_str!("../../../tools/oci/src/image.rs"),
        include_str!("../../../tools/oci/src/layer.rs"),
        include_str!("../../../tools/oci/src/tree.rs")
    ))
}

fn hex(hash: Sha256) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_counts_only_for_the_same_origin_and_an_archive_that_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let (note, archive) = (dir.path().join("a.json"), dir.path().join("a.tar"));
        write(&note, &Made { from: "x".to_owned(), digest: "sha256:0".to_owned(), size: 3 }).unwrap();
        assert!(read(&note, "x", &archive).is_none(), "no archive");
        fs::write(&archive, "abc").unwrap();
        assert!(read(&note, "x", &archive).is_some_and(|made| made.digest == "sha256:0"));
        assert!(read(&note, "y", &archive).is_none(), "another origin");
        fs::write(&archive, "ab").unwrap();
        assert!(read(&note, "x", &archive).is_none(), "cut off");
    }

    #[test]
    fn moving_a_byte_from_one_file_to_the_next_changes_the_digest() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let one = of_files(&[&file("a", "ab"), &file("b", "c")]).unwrap();
        let other = of_files(&[&file("c", "a"), &file("d", "bc")]).unwrap();
        assert_ne!(one, other);
        assert!(of_files(&[&dir.path().join("missing")]).is_err());
    }
}
