//! Microsoft's older format, in its dynamic form; numbers are big-endian. A fixed one is a raw image with a footer, and is
//! taken as that.

use crate::content::{Content, be32, be64, exactly, table};
use crate::{Error, SECTOR, size};

const DYNAMIC: u32 = 3;
const DIFFERENCING: u32 = 4;
const DYNAMIC_HEADER: usize = 1024;
const GEOMETRY_MAX: u64 = 65_535 * 16 * 255;
const UNUSED: u32 = u32::MAX;

pub(crate) struct Header {
    pub(crate) size: u64,
    table_at: u64,
    entries: u64,
}

pub(crate) fn open<C: Content>(head: &[u8], content: &mut C) -> Result<Header, Error<C::Error>> {
    let damaged = |why| Err(Error::Damaged(why));
    if head.len() < SECTOR as usize {
        return damaged("its header is cut off");
    }
    match be32(head, 60) {
        DYNAMIC => {}
        DIFFERENCING => return Err(Error::NotSelfContained("has a backing file")),
        _ => return Err(Error::Format("VHD of an unknown kind")),
    }
    // Depending on the program that made it, QEMU believes the size or the geometry, but not the largest one.
    let [cylinders_high, cylinders_low, heads, sectors] = [56, 57, 58, 59].map(|at| u64::from(head[at]));
    let geometry = match (cylinders_high << 8 | cylinders_low) * heads * sectors {
        GEOMETRY_MAX => 0,
        sectors => sectors * SECTOR,
    };
    let size = size(be64(head, 48).max(geometry))?;

    let mut second = vec![0; DYNAMIC_HEADER];
    exactly(content, be64(head, 16), &mut second, "its second header is cut off")?;
    if !second.starts_with(b"cxsparse") {
        return damaged("its second header is missing");
    }
    let (table_at, entries) = (be64(&second, 16), u64::from(be32(&second, 28)));
    let block = u64::from(be32(&second, 32));
    if !block.is_power_of_two() || !(4096..=64 << 20).contains(&block) {
        return damaged("the size of its blocks is none");
    }
    if entries * block < be64(head, 48) {
        return damaged("its table is too small for the disk");
    }
    if entries > size.div_ceil(block) + 1 {
        return damaged("its table is too large for the disk");
    }
    if table_at.saturating_add(entries * 4) > content.length() {
        return damaged("its table is cut off");
    }
    Ok(Header { size, table_at, entries })
}

pub(crate) fn verify<C: Content>(header: &Header, content: &mut C) -> Result<(), Error<C::Error>> {
    let length = content.length();
    table(content, header.table_at, header.entries, "its table is cut off", |word: [u8; 4]| {
        match u32::from_be_bytes(word) {
            UNUSED => Ok(()),
            sector if u64::from(sector) * SECTOR >= length => Err(Error::Damaged("blocks are missing at its end")),
            _ => Ok(()),
        }
    })
}
