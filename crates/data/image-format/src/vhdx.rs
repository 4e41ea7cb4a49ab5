//! Microsoft's newer format; numbers are little-endian.

use crate::content::{Content, exactly, le16, le32, le64, table};
use crate::{Error, size};

const REGIONS_AT: u64 = 192 * 1024;
const REGIONS_MAX: u32 = 2047;
const METADATA_MAX: u16 = 2047;
const TABLE: usize = 64 * 1024;
const MIB: u64 = 1 << 20;

/// GUIDs as they are on disk.
const BLOCKS: [u8; 16] = guid(0x2dc2_7766, 0xf623, 0x4200, 0x9d64_115e_9bfd_4a08);
const METADATA: [u8; 16] = guid(0x8b7c_a206, 0x4790, 0x4b9a, 0xb8fe_575f_050f_886e);
const PARAMETERS: [u8; 16] = guid(0xcaa1_6737, 0xfa36, 0x4d43, 0xb3b6_33f0_aa44_e76b);
const DISK_SIZE: [u8; 16] = guid(0x2fa5_4224, 0xcd1b, 0x4876, 0xb211_5dbe_d83b_f4b8);
const SECTOR_SIZE: [u8; 16] = guid(0x8141_bf1d, 0xa96f, 0x4709, 0xba47_f233_a8fa_ab5f);
const PARENT: [u8; 16] = guid(0xa8d3_5f2d, 0xb30b, 0x454d, 0xabf7_d3d8_4834_ab0c);

const HAS_PARENT: u32 = 1 << 1;

/// States of a block in which it is in the file: all of it, or a part.
const PRESENT: u64 = 6;
const PARTLY: u64 = 7;

pub(crate) struct Header {
    pub(crate) size: u64,
    blocks_at: u64,
    entries: u64,
}

struct Region {
    at: u64,
    length: u64,
}

pub(crate) fn open<C: Content>(content: &mut C) -> Result<Header, Error<C::Error>> {
    let mut regions = vec![0; TABLE];
    exactly(content, REGIONS_AT, &mut regions, "its table of regions is cut off")?;
    if !regions.starts_with(b"regi") || le32(&regions, 8) > REGIONS_MAX {
        return Err(Error::Damaged("its table of regions is missing"));
    }
    let count = le32(&regions, 8) as usize;
    let region = |id: [u8; 16]| {
        let entry = (0..count).map(|n| &regions[16 + n * 32..48 + n * 32]).find(|entry| entry[..16] == id);
        let region = entry.map(|entry| Region { at: le64(entry, 16), length: le32(entry, 24).into() });
        let inside = region.filter(|region| region.at.saturating_add(region.length) <= content.length());
        inside.filter(|region| region.at >= MIB).ok_or(Error::Damaged("a region is missing"))
    };
    let (blocks, metadata) = (region(BLOCKS)?, region(METADATA)?);

    let mut items = vec![0; TABLE];
    exactly(content, metadata.at, &mut items, "its metadata is cut off")?;
    if !items.starts_with(b"metadata") || le16(&items, 10) > METADATA_MAX {
        return Err(Error::Damaged("its metadata is missing"));
    }
    let count = usize::from(le16(&items, 10));
    let item = |id: [u8; 16]| (0..count).map(|n| &items[32 + n * 32..64 + n * 32]).find(|entry| entry[..16] == id);
    let mut value = |id: [u8; 16]| {
        let entry = item(id).ok_or(Error::Damaged("a part of its metadata is missing"))?;
        let mut bytes = [0; 8];
        let at = metadata.at.saturating_add(u64::from(le32(entry, 16)));
        // Some values have four bytes; what comes after them lies in the same region.
        exactly(content, at, &mut bytes, "its metadata is cut off")?;
        Ok(bytes)
    };
    if item(PARENT).is_some() {
        return Err(Error::NotSelfContained("has a backing file"));
    }
    let parameters = value(PARAMETERS)?;
    if le32(&parameters, 4) & HAS_PARENT != 0 {
        return Err(Error::NotSelfContained("has a backing file"));
    }
    let block = u64::from(le32(&parameters, 0));
    if !block.is_power_of_two() || !(MIB..=256 * MIB).contains(&block) {
        return Err(Error::Damaged("the size of its blocks is none"));
    }
    let sector = u64::from(le32(&value(SECTOR_SIZE)?, 0));
    if !matches!(sector, 512 | 4096) {
        return Err(Error::Damaged("the size of its sectors is none"));
    }
    let size = size(le64(&value(DISK_SIZE)?, 0))?;
    // One entry for a bitmap after so many of blocks.
    let ratio = (sector << 23) / block;
    let data = size.div_ceil(block);
    let entries = data + (data - 1) / ratio;
    if entries.saturating_mul(8) > blocks.length {
        return Err(Error::Damaged("its table of blocks is too small for the disk"));
    }
    Ok(Header { size, blocks_at: blocks.at, entries })
}

pub(crate) fn verify<C: Content>(header: &Header, content: &mut C) -> Result<(), Error<C::Error>> {
    let length = content.length();
    table(content, header.blocks_at, header.entries, "its table of blocks is cut off", |word: [u8; 8]| {
        let entry = u64::from_le_bytes(word);
        let (state, at) = (entry & 7, (entry >> 20).saturating_mul(MIB));
        if matches!(state, PRESENT | PARTLY) && at >= length {
            return Err(Error::Damaged("blocks are missing at its end"));
        }
        Ok(())
    })
}

const fn guid(a: u32, b: u16, c: u16, d: u64) -> [u8; 16] {
    let (a, b, c, d) = (a.to_le_bytes(), b.to_le_bytes(), c.to_le_bytes(), d.to_be_bytes());
    [a[0], a[1], a[2], a[3], b[0], b[1], c[0], c[1], d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7]]
}
