//! VMware's format in one file: monolithicSparse and streamOptimized; numbers are little-endian.

use crate::content::{Budget, Content, exactly, fill, le16, le32, le64, table};
use crate::{Error, SECTOR, size};

const HEADER: usize = 79;
/// A grain directory that is written after the data: its place is in a copy of the header near the end.
const AT_END: u64 = u64::MAX;
/// That copy, with a marker before it and the end of the stream after it.
const FOOTER_FROM_END: u64 = 1024;
const COMPRESSED: u32 = 1 << 16;
const DEFLATE: u16 = 1;

/// Where QEMU looks for the parent's name, whatever the header says, and how far.
const DESCRIPTOR_AT: u64 = 512;
const DESCRIPTOR_MAX: u64 = 20 * SECTOR;

const GRAIN_SECTORS_MAX: u64 = 1 << 16;
const ENTRIES_MAX: u64 = 512;
/// As QEMU limits it.
const DIRECTORY_MAX: u64 = 32 << 20;
const OUTSIDE: &str = "grains are missing at its end";

pub(crate) struct Header {
    pub(crate) size: u64,
    directory_at: u64,
    directory_entries: u64,
    table_entries: u64,
}

pub(crate) fn open<C: Content>(head: &[u8], content: &mut C) -> Result<Header, Error<C::Error>> {
    let first = fields(head)?;
    descriptor(content, DESCRIPTOR_AT, DESCRIPTOR_MAX)?;
    let (at, sectors) = (le64(head, 28), le64(head, 36));
    let (at, bytes) = (at.saturating_mul(SECTOR), sectors.saturating_mul(SECTOR));
    if bytes > 16 * DESCRIPTOR_MAX {
        return Err(Error::Damaged("its descriptor is too large"));
    }
    if at != 0 && bytes != 0 && at.saturating_add(bytes) > content.length() {
        return Err(Error::Damaged("its descriptor is cut off"));
    }
    if at != 0 {
        descriptor(content, at, bytes)?;
    }
    if first.directory_at != AT_END {
        return header(first, content);
    }
    let mut footer = [0; crate::HEAD];
    let place = content.length().checked_sub(FOOTER_FROM_END).ok_or(Error::Damaged("its end is missing"))?;
    exactly(content, place, &mut footer, "its end is missing")?;
    if !footer.starts_with(b"KDMV") {
        return Err(Error::Damaged("its end is missing"));
    }
    let last = fields(&footer)?;
    // The rest of the header is the first one's.
    if last.capacity != first.capacity || last.directory_at == AT_END {
        return Err(Error::Damaged("its two headers differ"));
    }
    header(last, content)
}

struct Fields {
    capacity: u64,
    grain: u64,
    table_entries: u64,
    directory_at: u64,
}

fn fields<E>(head: &[u8]) -> Result<Fields, Error<E>> {
    if head.len() < HEADER {
        return Err(Error::Damaged("its header is cut off"));
    }
    if !(1..=3).contains(&le32(head, 4)) {
        return Err(Error::Format("VMDK of an unknown version"));
    }
    let (flags, compression) = (le32(head, 8), le16(head, 77));
    if flags & COMPRESSED != 0 && compression != DEFLATE {
        return Err(Error::Format("VMDK with an unknown compression"));
    }
    let found = Fields {
        capacity: le64(head, 12),
        grain: le64(head, 20),
        table_entries: le32(head, 44).into(),
        directory_at: le64(head, 56),
    };
    // QEMU takes such a header for a mere frame of a descriptor and opens the files that this one names.
    if found.capacity == 0 {
        return Err(Error::NotSelfContained("keeps its data in other files"));
    }
    if !found.grain.is_power_of_two() || found.grain > GRAIN_SECTORS_MAX {
        return Err(Error::Damaged("the size of its grains is none"));
    }
    if found.table_entries == 0 || found.table_entries > ENTRIES_MAX {
        return Err(Error::Damaged("the size of its tables is none"));
    }
    Ok(found)
}

fn header<C: Content>(fields: Fields, content: &C) -> Result<Header, Error<C::Error>> {
    let size = size(fields.capacity.saturating_mul(SECTOR))?;
    let directory_entries = fields.capacity.div_ceil(fields.grain * fields.table_entries);
    if directory_entries > DIRECTORY_MAX {
        return Err(Error::Damaged("its directory is too large"));
    }
    let directory_at = fields.directory_at.saturating_mul(SECTOR);
    if directory_at == 0 || directory_at.saturating_add(directory_entries * 4) > content.length() {
        return Err(Error::Damaged("its directory is cut off"));
    }
    Ok(Header { size, directory_at, directory_entries, table_entries: fields.table_entries })
}

/// Refuses a descriptor that names a parent or more files than this one.
fn descriptor<C: Content>(content: &mut C, at: u64, bytes: u64) -> Result<(), Error<C::Error>> {
    let mut text = vec![0; bytes as usize];
    let filled = fill(content, at, &mut text)?;
    let text = String::from_utf8_lossy(&text[..filled]).to_lowercase();
    // Anywhere, as QEMU searches for it: not only at the start of a line.
    if text.contains("parentfilenamehint") {
        return Err(Error::NotSelfContained("has a backing file"));
    }
    if !text.starts_with("# disk descriptorfile") {
        return Ok(());
    }
    let text = text.split('\0').next().unwrap_or_default();
    let value = |name: &str| {
        let line = text.lines().map(str::trim).find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix('='));
        line.map(|value| value.trim().trim_matches('"'))
    };
    if value("parentcid").is_some_and(|cid| cid != "ffffffff") {
        return Err(Error::NotSelfContained("has a backing file"));
    }
    match value("createtype") {
        None | Some("monolithicsparse" | "streamoptimized") => {}
        Some(_) => return Err(Error::NotSelfContained("keeps its data in other files")),
    }
    let extents = text.lines().map(str::trim).filter(|line| {
        let access = line.split_whitespace().next().unwrap_or_default();
        ["rw", "rdonly", "noaccess"].contains(&access)
    });
    let mut extents = extents.map(|line| line.split_whitespace().nth(2).unwrap_or_default());
    match (extents.next(), extents.next()) {
        (None | Some("sparse"), None) => Ok(()),
        _ => Err(Error::NotSelfContained("keeps its data in other files")),
    }
}

pub(crate) fn verify<C: Content>(header: &Header, content: &mut C) -> Result<(), Error<C::Error>> {
    let length = content.length();
    let mut budget = Budget::of(content);
    let mut tables = Vec::new();
    table(content, header.directory_at, header.directory_entries, "its directory is cut off", |word: [u8; 4]| {
        match u64::from(u32::from_le_bytes(word)) * SECTOR {
            0 => Ok(()),
            at if at >= length => Err(Error::Damaged(OUTSIDE)),
            at => {
                budget.spend(header.table_entries * 4)?;
                tables.push(at);
                Ok(())
            }
        }
    })?;
    for at in tables {
        table(content, at, header.table_entries, "its tables are cut off", |word: [u8; 4]| {
            // 1 is a grain of zeros.
            match u64::from(u32::from_le_bytes(word)) {
                0 | 1 => Ok(()),
                sector if sector * SECTOR >= length => Err(Error::Damaged(OUTSIDE)),
                _ => Ok(()),
            }
        })?;
    }
    Ok(())
}
