//! The identity of this build, to tell it from older and newer ones.
//!
//! Launchers run from the program's own file. Their image is the host, with the build's identity as its tag: this shows
//! which guests were started by another build and can be migrated to launchers of this one.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::sync::OnceLock;

use pod_runner::images::HOST_IMAGE;

/// The running program, even if its file was replaced meanwhile.
const OWN_FILE: &str = "/proc/self/exe";
/// Length of the build ID prefix that is used.
const LENGTH: usize = 12;

/// The image of launchers.
pub(super) fn launcher_image() -> String {
    format!("{HOST_IMAGE}:{}", program())
}

/// The linker's build ID, or the version if there is none.
pub(super) fn program() -> &'static str {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let id = File::open(OWN_FILE).and_then(build_id).unwrap_or_default();
        let digits: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let short = digits.get(..LENGTH).map(str::to_owned);
        short.unwrap_or_else(|| concat!("v", env!("CARGO_PKG_VERSION")).to_owned())
    })
}

/// The build ID in the notes of a 64-bit ELF file; empty if there is none.
fn build_id(mut file: File) -> io::Result<Vec<u8>> {
    let header = part(&mut file, 0, 64)?;
    let (table, size, count) = (number(&header, 32, 8), number(&header, 54, 2), number(&header, 56, 2));
    for nth in 0..count {
        let entry = part(&mut file, table + nth * size, 56)?;
        // A notes segment: its offset and length.
        if number(&entry, 0, 4) == 4 {
            let notes = part(&mut file, number(&entry, 8, 8), number(&entry, 32, 8).min(1 << 16))?;
            if let Some(id) = find_build_id(&notes, number(&entry, 48, 8).max(4)) {
                return Ok(id.to_vec());
            }
        }
    }
    Ok(vec![])
}

/// A note consists of three numbers (name length, description length, type), the name and the description.
fn find_build_id(mut notes: &[u8], align: u64) -> Option<&[u8]> {
    loop {
        let header = notes.get(..12)?;
        let name_end = 12 + number(header, 0, 4);
        let start = name_end.next_multiple_of(align) as usize;
        let end = start + number(header, 4, 4) as usize;
        if number(header, 8, 4) == 3 && notes.get(12..name_end as usize)? == b"GNU\0" {
            return notes.get(start..end);
        }
        notes = notes.get(end.next_multiple_of(align as usize)..)?;
    }
}

fn part(file: &mut File, from: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length as usize];
    file.seek(SeekFrom::Start(from))?;
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// A little-endian number of up to eight bytes.
fn number(bytes: &[u8], at: usize, length: usize) -> u64 {
    let digits = bytes.get(at..at + length).unwrap_or_default();
    digits.iter().rev().fold(0, |number, digit| number << 8 | u64::from(*digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(name: &[u8], kind: u32, rest: &[u8]) -> Vec<u8> {
        let mut note = vec![];
        for number in [name.len() as u32, rest.len() as u32, kind] {
            note.extend(number.to_le_bytes());
        }
        note.extend(name);
        note.resize(note.len().next_multiple_of(4), 0);
        note.extend(rest);
        note.resize(note.len().next_multiple_of(4), 0);
        note
    }

    #[test]
    fn the_build_id_is_found_among_other_notes() {
        let all = [note(b"GNU\0", 1, &[0; 16]), note(b"Rust!\0", 3, &[7]), note(b"GNU\0", 3, &[0xab, 0xcd])].concat();
        assert_eq!(find_build_id(&all, 4), Some(&[0xab, 0xcd][..]));
        assert_eq!(find_build_id(&all[..all.len() - 8], 4), None, "cut off");
        assert_eq!(find_build_id(&[], 4), None);
        assert_eq!(find_build_id(&[0xff; 40], 4), None, "no notes at all");
    }

    #[test]
    fn a_program_has_the_same_identity_each_time_and_it_makes_a_tag() {
        let own = program();
        assert_eq!(own, program());
        assert!(own.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.'), "{own}");
        assert_eq!(
            pod_runner::images::resolve("/nowhere".as_ref(), &launcher_image()),
            Ok(pod_runner::images::ImageRoot::Host)
        );
    }
}
