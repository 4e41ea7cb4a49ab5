//! Inspects a disk image's header, without a program that would open whatever the header references.
//!
//! The image is not trusted. A qcow2 image must be self-contained: no backing file, no external data file, no
//! encryption. Any unrecognized file is treated as raw, so its content cannot be interpreted as anything else.

use std::fs::File;
use std::io::{self, Read};

use domain::ImageFormat;

pub(super) const SECTOR: u64 = 512;

const QCOW_MAGIC: &[u8] = b"QFI\xfb";
/// Number of header bytes read; version 3's mandatory fields end at 104.
const HEADER: usize = 104;
const EXTERNAL_DATA_FILE: u64 = 1 << 2;
/// Larger than any real disk; prevents overflows.
const SIZE_MAX: u64 = 1 << 60;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the image cannot be read")]
    Io(#[source] io::Error),
    #[error("the image is not a regular file")]
    NotAFile,
    #[error("the image is empty")]
    Empty,
    #[error("the image has format {0}; only raw and qcow2 are supported, convert it with qemu-img")]
    Format(&'static str),
    #[error("the image {0}; convert it to a qcow2 that stands on its own")]
    NotSelfContained(&'static str),
    #[error("the image's header is damaged")]
    Damaged,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Image {
    pub(super) format: ImageFormat,
    pub(super) virtual_size: u64,
}

pub(super) fn inspect(file: &mut File) -> Result<Image, Error> {
    let metadata = file.metadata().map_err(Error::Io)?;
    if !metadata.is_file() {
        return Err(Error::NotAFile);
    }
    let mut header = Vec::with_capacity(HEADER);
    file.take(HEADER as u64).read_to_end(&mut header).map_err(Error::Io)?;
    decide(&header, metadata.len())
}

/// Determines the format from the file's length and first bytes.
fn decide(header: &[u8], length: u64) -> Result<Image, Error> {
    if length == 0 {
        return Err(Error::Empty);
    }
    if header.starts_with(QCOW_MAGIC) {
        return qcow2(header);
    }
    for (magic, offset, name) in
        [(&b"KDMV"[..], 0, "VMDK"), (b"vhdxfile", 0, "VHDX"), (b"conectix", 0, "VHD"), (b"\x7f\x10\xda\xbe", 64, "VDI")]
    {
        if header.get(offset..).is_some_and(|rest| rest.starts_with(magic)) {
            return Err(Error::Format(name));
        }
    }
    Ok(Image { format: ImageFormat::Raw, virtual_size: length.next_multiple_of(SECTOR) })
}

fn qcow2(header: &[u8]) -> Result<Image, Error> {
    let word = |at: usize| header.get(at..)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
    let long = |at: usize| header.get(at..)?.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
    let version = word(4).ok_or(Error::Damaged)?;
    let backing = long(8).ok_or(Error::Damaged)?;
    let size = long(24).ok_or(Error::Damaged)?;
    let encryption = word(32).ok_or(Error::Damaged)?;
    let incompatible = match version {
        2 => 0,
        3 => long(72).ok_or(Error::Damaged)?,
        1 => return Err(Error::Format("qcow")),
        _ => return Err(Error::Format("qcow2 of an unknown version")),
    };
    if backing != 0 {
        return Err(Error::NotSelfContained("has a backing file"));
    }
    if incompatible & EXTERNAL_DATA_FILE != 0 {
        return Err(Error::NotSelfContained("keeps its data in another file"));
    }
    if encryption != 0 {
        return Err(Error::NotSelfContained("is encrypted"));
    }
    if size == 0 || size > SIZE_MAX {
        return Err(Error::Damaged);
    }
    Ok(Image { format: ImageFormat::Qcow2, virtual_size: size.next_multiple_of(SECTOR) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header(version: u32, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let mut header = vec![0; HEADER];
        header[..4].copy_from_slice(QCOW_MAGIC);
        header[4..8].copy_from_slice(&version.to_be_bytes());
        header[24..32].copy_from_slice(&(1u64 << 30).to_be_bytes());
        change(&mut header);
        header
    }

    #[test]
    fn a_plain_qcow2_is_taken_with_its_virtual_size() {
        for version in [2, 3] {
            let image = decide(&header(version, |_| ()), 200_000).unwrap();
            assert_eq!(image, Image { format: ImageFormat::Qcow2, virtual_size: 1 << 30 });
        }
    }

    #[test]
    fn an_image_that_names_another_file_is_refused() {
        let backing = decide(&header(3, |h| h[15] = 104), 200_000);
        assert!(matches!(backing, Err(Error::NotSelfContained("has a backing file"))));
        let external = decide(&header(3, |h| h[79] = 4), 200_000);
        assert!(matches!(external, Err(Error::NotSelfContained("keeps its data in another file"))));
        let encrypted = decide(&header(2, |h| h[35] = 1), 200_000);
        assert!(matches!(encrypted, Err(Error::NotSelfContained("is encrypted"))));
    }

    #[test]
    fn other_formats_are_named_and_short_headers_are_damaged() {
        assert!(matches!(decide(b"KDMV....", 100), Err(Error::Format("VMDK"))));
        assert!(matches!(decide(&header(1, |_| ()), 100), Err(Error::Format("qcow"))));
        assert!(matches!(decide(QCOW_MAGIC, 4), Err(Error::Damaged)));
        assert!(matches!(decide(&header(3, |h| h[24] = 0xff), 100), Err(Error::Damaged)));
        assert!(matches!(decide(b"", 0), Err(Error::Empty)));
    }

    #[test]
    fn anything_else_is_raw_in_whole_sectors() {
        let image = decide(b"boot sector", 1000).unwrap();
        assert_eq!(image, Image { format: ImageFormat::Raw, virtual_size: 1024 });
    }

    proptest! {
        #[test]
        fn no_header_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), qcow: bool, length: u32) {
            let mut bytes = bytes;
            if qcow {
                bytes.splice(..0, QCOW_MAGIC.iter().copied());
            }
            let _ = decide(&bytes, length.into());
        }
    }
}
