//! VirtualBox' format; numbers are little-endian.

use crate::content::{Content, le32, le64, table};
use crate::{Error, SECTOR, size};

const HEADER: usize = 0x1c8;
const VERSION: u32 = 0x0001_0001;
const DYNAMIC: u32 = 1;
const STATIC: u32 = 2;
const BLOCK: u64 = 1 << 20;
/// Entries from here on are no blocks: discarded, or never written.
const NO_BLOCK: u32 = 0xffff_fffe;

pub(crate) struct Header {
    pub(crate) size: u64,
    map_at: u64,
    data_at: u64,
    blocks: u64,
}

pub(crate) fn open<C: Content>(head: &[u8], content: &C) -> Result<Header, Error<C::Error>> {
    let damaged = |why| Err(Error::Damaged(why));
    if head.len() < HEADER {
        return damaged("its header is cut off");
    }
    if le32(head, 0x44) != VERSION {
        return Err(Error::Format("VDI of an unknown version"));
    }
    let nil = |at: usize| head[at..at + 16].iter().all(|byte| *byte == 0);
    if !matches!(le32(head, 0x4c), DYNAMIC | STATIC) || !nil(0x1a8) || !nil(0x1b8) {
        return Err(Error::NotSelfContained("has a backing file"));
    }
    let (map_at, data_at) = (u64::from(le32(head, 0x154)), u64::from(le32(head, 0x158)));
    if map_at % SECTOR != 0 || data_at % SECTOR != 0 || map_at < SECTOR {
        return damaged("its tables are not where they can be");
    }
    if u64::from(le32(head, 0x168)) != SECTOR || u64::from(le32(head, 0x178)) != BLOCK {
        return Err(Error::Format("VDI with an unknown size of its blocks"));
    }
    let size = size(le64(head, 0x170))?;
    let blocks = u64::from(le32(head, 0x180));
    if blocks < size.div_ceil(BLOCK) || blocks > size.div_ceil(BLOCK) + 1 {
        return damaged("the number of its blocks does not fit the disk");
    }
    if map_at + blocks * 4 > content.length() {
        return damaged("its table is cut off");
    }
    Ok(Header { size, map_at, data_at, blocks })
}

pub(crate) fn verify<C: Content>(header: &Header, content: &mut C) -> Result<(), Error<C::Error>> {
    let length = content.length();
    table(content, header.map_at, header.blocks, "its table is cut off", |word: [u8; 4]| {
        match u32::from_le_bytes(word) {
            NO_BLOCK.. => Ok(()),
            block if header.data_at + u64::from(block) * BLOCK >= length => {
                Err(Error::Damaged("blocks are missing at its end"))
            }
            _ => Ok(()),
        }
    })
}
