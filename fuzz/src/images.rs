//! No image makes the reader of headers panic, take long, or take from its tables what its header refuses.
//!
//! The first byte of an input says which format it claims to be; the rest is what the image holds, over and over up to a length that the next
//! bytes say, since some formats keep their tables far inside.

#![no_main]

use std::convert::Infallible;

use image_format::{Content, Format};
use libfuzzer_sys::fuzz_target;

/// Long enough for the tables of every format, short enough for thousands of them in a second.
const LENGTH_MAX: u64 = 4 << 20;
const MAGICS: [(usize, &[u8]); 6] =
    [(0, b""), (0, b"QFI\xfb\0\0\0\x03"), (0, b"KDMV"), (64, b"\x7f\x10\xda\xbe"), (0, b"conectix"), (0, b"vhdxfile")];

struct Repeated<'a> {
    head: [u8; 512],
    bytes: &'a [u8],
    length: u64,
}

impl Content for Repeated<'_> {
    type Error = Infallible;

    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&mut self, at: u64, buffer: &mut [u8]) -> Result<usize, Infallible> {
        let count = self.length.saturating_sub(at).min(buffer.len() as u64) as usize;
        for (index, byte) in buffer[..count].iter_mut().enumerate() {
            let at = at as usize + index;
            *byte = self.head.get(at).copied().unwrap_or_else(|| self.bytes[at % self.bytes.len()]);
        }
        Ok(count)
    }
}

fuzz_target!(|data: &[u8]| {
    let [kind, low, middle, high, bytes @ ..] = data else { return };
    if bytes.is_empty() {
        return;
    }
    let length = u64::from(u32::from_le_bytes([*low, *middle, *high, 0])) % LENGTH_MAX;
    let mut head = [0; 512];
    for (index, byte) in head.iter_mut().enumerate() {
        *byte = bytes[index % bytes.len()];
    }
    let (at, magic) = MAGICS[usize::from(*kind) % MAGICS.len()];
    head[at..at + magic.len()].copy_from_slice(magic);
    let mut content = Repeated { head, bytes, length };
    let inspected = image_format::inspect(&mut content);
    let verified = image_format::verify(&mut content);
    let _ = image_format::announced_size(&head);
    if let Ok(image) = verified {
        assert_eq!(inspected.ok(), Some(image));
        assert!(image.virtual_size > 0 && image.virtual_size % image_format::SECTOR == 0);
        assert!(image.format != Format::Raw || image.virtual_size <= length + image_format::SECTOR);
    }
});
