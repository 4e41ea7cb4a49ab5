//! QEMU's own format; numbers are big-endian.

use crate::content::{Budget, Content, be32, be64, exactly, table};
use crate::{Error, size};

pub(crate) const MAGIC: &[u8] = b"QFI\xfb";

/// Where version 2's header ends and version 3's mandatory fields end.
const V2: usize = 72;
const V3: usize = 104;

/// Incompatible features.
const DIRTY: u64 = 1;
const CORRUPT: u64 = 1 << 1;
const EXTERNAL_DATA_FILE: u64 = 1 << 2;
const COMPRESSION_TYPE: u64 = 1 << 3;
const EXTENDED_L2: u64 = 1 << 4;

/// Header extensions.
const END: u32 = 0;
const DATA_FILE_NAME: u32 = 0x4441_5441;
const ENCRYPTION: u32 = 0x0537_be77;
const EXTENSIONS_MAX: usize = 64;

/// As QEMU limits them.
const L1_BYTES_MAX: u64 = 32 << 20;
const REFCOUNT_TABLE_BYTES_MAX: u64 = 8 << 20;
/// QEMU takes 65,536 and reads all of them; nobody has that many in an image to import.
const SNAPSHOTS_MAX: u32 = 256;

/// The bits of an entry of a table that are an offset.
const OFFSET: u64 = 0x00ff_ffff_ffff_fe00;
const COMPRESSED: u64 = 1 << 62;

pub(crate) struct Header {
    pub(crate) size: u64,
    cluster_bits: u32,
    extended_l2: bool,
    l1_at: u64,
    /// The entries of the first table that the disk's size needs.
    l1_used: u64,
}

impl Header {
    fn cluster(&self) -> u64 {
        1 << self.cluster_bits
    }

    fn entry_width(&self) -> u64 {
        if self.extended_l2 { 16 } else { 8 }
    }
}

pub(crate) fn open<C: Content>(head: &[u8], content: &mut C) -> Result<Header, Error<C::Error>> {
    let damaged = |why| Err(Error::Damaged(why));
    if head.len() < V2 {
        return damaged("its header is cut off");
    }
    let version = be32(head, 4);
    let (incompatible, header_length, refcount_order) = match version {
        1 => return Err(Error::Format("qcow")),
        2 => (0, V2 as u64, 4),
        3 if head.len() < V3 => return damaged("its header is cut off"),
        3 => (be64(head, 72), u64::from(be32(head, 100)), be32(head, 96)),
        _ => return Err(Error::Format("qcow2 of an unknown version")),
    };
    if be64(head, 8) != 0 {
        return Err(Error::NotSelfContained("has a backing file"));
    }
    if incompatible & EXTERNAL_DATA_FILE != 0 {
        return Err(Error::NotSelfContained("keeps its data in another file"));
    }
    if be32(head, 32) != 0 {
        return Err(Error::NotSelfContained("is encrypted"));
    }
    if incompatible & CORRUPT != 0 {
        return damaged("it is marked as corrupt");
    }
    if incompatible & !(DIRTY | COMPRESSION_TYPE | EXTENDED_L2) != 0 {
        return Err(Error::Format("qcow2 with features that are unknown"));
    }
    let cluster_bits = be32(head, 20);
    if !(9..=21).contains(&cluster_bits) {
        return damaged("the size of its clusters is none");
    }
    let cluster = 1u64 << cluster_bits;
    if (version == 3 && header_length < V3 as u64) || header_length > cluster || !header_length.is_multiple_of(8) {
        return damaged("the length of its header is none");
    }
    if refcount_order > 6 {
        return damaged("the width of its reference counts is none");
    }
    if u64::from(be32(head, 56)).saturating_mul(cluster) > REFCOUNT_TABLE_BYTES_MAX {
        return damaged("its table of reference counts is too large");
    }
    if be32(head, 60) > SNAPSHOTS_MAX {
        return damaged("it has too many snapshots");
    }
    extensions(content, header_length, cluster)?;

    let extended_l2 = incompatible & EXTENDED_L2 != 0;
    let size = size(be64(head, 24))?;
    let per_table = (cluster / if extended_l2 { 16 } else { 8 }) * cluster;
    let l1_used = size.div_ceil(per_table);
    let (l1_size, l1_at) = (u64::from(be32(head, 36)), be64(head, 40));
    if l1_size * 8 > L1_BYTES_MAX {
        return damaged("its first table is too large");
    }
    if l1_used > l1_size {
        return damaged("its first table is too small for the disk");
    }
    if !l1_at.is_multiple_of(cluster) || l1_at == 0 {
        return damaged("its first table is not where a table can be");
    }
    let header = Header { size, cluster_bits, extended_l2, l1_at, l1_used };
    l1(&header, content, |_| Ok(()))?;
    Ok(header)
}

/// Extensions may name another file, too.
fn extensions<C: Content>(content: &mut C, from: u64, until: u64) -> Result<(), Error<C::Error>> {
    let mut at = from;
    for _ in 0..EXTENSIONS_MAX {
        if at + 8 > until || at + 8 > content.length() {
            return Ok(());
        }
        let mut start = [0; 8];
        exactly(content, at, &mut start, "its header is cut off")?;
        match be32(&start, 0) {
            END => return Ok(()),
            DATA_FILE_NAME => return Err(Error::NotSelfContained("keeps its data in another file")),
            ENCRYPTION => return Err(Error::NotSelfContained("is encrypted")),
            _ => at += 8 + u64::from(be32(&start, 4)).next_multiple_of(8),
        }
        if at > until {
            return Err(Error::Damaged("its header extensions are too long"));
        }
    }
    Err(Error::Damaged("it has too many header extensions"))
}

/// Calls `each` with the position of every second table.
fn l1<C: Content>(
    header: &Header,
    content: &mut C,
    mut each: impl FnMut(u64) -> Result<(), Error<C::Error>>,
) -> Result<(), Error<C::Error>> {
    let length = content.length();
    table(content, header.l1_at, header.l1_used, "its first table is cut off", |word: [u8; 8]| {
        let entry = u64::from_be_bytes(word);
        let at = entry & OFFSET;
        // Bit 63 says that the table is used once; all others are reserved.
        if entry & !(OFFSET | 1 << 63) != 0 {
            return Err(Error::Damaged("its first table has entries that are none"));
        }
        if at == 0 {
            return Ok(());
        }
        if !at.is_multiple_of(header.cluster()) || at >= length {
            return Err(Error::Damaged("its first table names places outside of the image"));
        }
        each(at)
    })
}

pub(crate) fn verify<C: Content>(header: &Header, content: &mut C) -> Result<(), Error<C::Error>> {
    let mut tables = Vec::new();
    let mut budget = Budget::of(content);
    l1(header, content, |at| {
        budget.spend(header.cluster())?;
        tables.push(at);
        Ok(())
    })?;
    for at in tables {
        l2(header, content, at)?;
    }
    Ok(())
}

fn l2<C: Content>(header: &Header, content: &mut C, at: u64) -> Result<(), Error<C::Error>> {
    const OUTSIDE: &str = "clusters are missing at its end";
    let (length, cluster) = (content.length(), header.cluster());
    let count = cluster / header.entry_width();
    let check = |entry: u64| {
        if entry & COMPRESSED != 0 {
            let bits = 62 - (header.cluster_bits - 8);
            let start = entry & ((1 << bits) - 1);
            return if start < length { Ok(()) } else { Err(Error::Damaged(OUTSIDE)) };
        }
        let start = entry & OFFSET;
        match start {
            _ if !start.is_multiple_of(cluster) => Err(Error::Damaged("its second tables have entries that are none")),
            _ if start != 0 && start >= length => Err(Error::Damaged(OUTSIDE)),
            _ => Ok(()),
        }
    };
    const CUT: &str = "its second tables are cut off";
    if header.extended_l2 {
        table(content, at, count, CUT, |word: [u8; 16]| check(be64(&word, 0)))
    } else {
        table(content, at, count, CUT, |word: [u8; 8]| check(u64::from_be_bytes(word)))
    }
}
