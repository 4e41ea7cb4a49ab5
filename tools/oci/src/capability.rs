//! File capabilities, as the kernel keeps them in the attribute `security.capability`.

/// The attribute's name on disk and, after a prefix, in a tar.
pub(crate) const ATTRIBUTE: &str = "security.capability";
pub(crate) const RECORD: &str = "SCHILY.xattr.security.capability";

/// Version 2 of the attribute, and the flag that what is permitted is also effective.
const REVISION: u32 = 0x0200_0000;
const EFFECTIVE: u32 = 1;

/// A capability of the kernel, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// Listens on ports below 1024.
    NetBindService = 10,
}

impl Capability {
    /// The attribute of a program that gets this capability from its file, as far as its container allows it.
    pub fn attribute(self) -> Vec<u8> {
        let permitted = 1u64 << self as u32;
        let [low, high] = [permitted as u32, (permitted >> 32) as u32];
        [REVISION | EFFECTIVE, low, 0, high, 0].into_iter().flat_map(u32::to_le_bytes).collect()
    }
}
