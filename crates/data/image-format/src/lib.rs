//! What a disk image is, told from its headers, without a program that would open whatever they reference.
//!
//! Images are not trusted. One that needs another file is refused: a backing file, an external data file, extents, a parent.
//! So is one whose tables are absurd or lie outside of it. What is not recognized is raw, so its content cannot be
//! interpreted as anything else.
//!
//! [`inspect`] reads headers. [`verify`] also follows the tables to every cluster that they name: it finds images that
//! were cut off, which QEMU reads as zeros.

mod content;
mod qcow2;
mod vdi;
mod vhd;
mod vhdx;
mod vmdk;

pub use content::Content;

pub const SECTOR: u64 = 512;

/// The number of first bytes that [`Format::of`] looks at.
pub const HEAD: usize = 512;

/// Larger than any real disk; prevents overflows.
const SIZE_MAX: u64 = 1 << 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Raw,
    Qcow2,
    Vmdk,
    Vdi,
    Vhd,
    Vhdx,
}

impl Format {
    /// The format that the first bytes announce; [`inspect`] tells whether they keep that promise.
    pub fn of(head: &[u8]) -> Format {
        let magics: [(&[u8], usize, Format); 5] = [
            (qcow2::MAGIC, 0, Format::Qcow2),
            (b"KDMV", 0, Format::Vmdk),
            (&[0x7f, 0x10, 0xda, 0xbe], 64, Format::Vdi),
            (b"conectix", 0, Format::Vhd),
            (b"vhdxfile", 0, Format::Vhdx),
        ];
        let found = magics.iter().find(|(magic, at, _)| head.get(*at..).is_some_and(|rest| rest.starts_with(magic)));
        found.map_or(Format::Raw, |(_, _, format)| *format)
    }

    /// The name of QEMU's block driver.
    pub fn driver(self) -> &'static str {
        match self {
            Format::Raw => "raw",
            Format::Qcow2 => "qcow2",
            Format::Vmdk => "vmdk",
            Format::Vdi => "vdi",
            Format::Vhd => "vpc",
            Format::Vhdx => "vhdx",
        }
    }
}

/// A name of a format for users.
impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Format::Raw => "raw",
            Format::Qcow2 => "qcow2",
            Format::Vmdk => "VMDK",
            Format::Vdi => "VDI",
            Format::Vhd => "VHD",
            Format::Vhdx => "VHDX",
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image {
    pub format: Format,
    /// What a guest sees, in whole sectors.
    pub virtual_size: u64,
}

/// Why an image is not taken. `E` is how reading it fails.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error<E> {
    #[error("the image cannot be read")]
    Read(#[source] E),
    #[error("the image is empty")]
    Empty,
    #[error("the image has format {0}, which is not supported; convert it with qemu-img")]
    Format(&'static str),
    #[error("the image {0}; convert it to one that stands on its own")]
    NotSelfContained(&'static str),
    #[error("the image is damaged: {0}")]
    Damaged(&'static str),
}

/// Reads the headers.
pub fn inspect<C: Content>(content: &mut C) -> Result<Image, Error<C::Error>> {
    Ok(open(content)?.image())
}

/// Reads the headers and all tables: whether every part that the image refers to is in it.
///
/// What is read is bounded by the length of the image: tables that overlap are refused.
pub fn verify<C: Content>(content: &mut C) -> Result<Image, Error<C::Error>> {
    let opened = open(content)?;
    match &opened {
        Opened::Raw(_) => {}
        Opened::Qcow2(header) => qcow2::verify(header, content)?,
        Opened::Vmdk(header) => vmdk::verify(header, content)?,
        Opened::Vdi(header) => vdi::verify(header, content)?,
        Opened::Vhd(header) => vhd::verify(header, content)?,
        Opened::Vhdx(header) => vhdx::verify(header, content)?,
    }
    Ok(opened.image())
}

enum Opened {
    Raw(u64),
    Qcow2(qcow2::Header),
    Vmdk(vmdk::Header),
    Vdi(vdi::Header),
    Vhd(vhd::Header),
    Vhdx(vhdx::Header),
}

impl Opened {
    fn image(&self) -> Image {
        let (format, size) = match self {
            Opened::Raw(length) => (Format::Raw, *length),
            Opened::Qcow2(header) => (Format::Qcow2, header.size),
            Opened::Vmdk(header) => (Format::Vmdk, header.size),
            Opened::Vdi(header) => (Format::Vdi, header.size),
            Opened::Vhd(header) => (Format::Vhd, header.size),
            Opened::Vhdx(header) => (Format::Vhdx, header.size),
        };
        Image { format, virtual_size: size.next_multiple_of(SECTOR) }
    }
}

fn open<C: Content>(content: &mut C) -> Result<Opened, Error<C::Error>> {
    let length = content.length();
    if length == 0 {
        return Err(Error::Empty);
    }
    if length > SIZE_MAX {
        return Err(Error::Damaged("it is longer than any disk"));
    }
    let mut head = [0; HEAD];
    let filled = content::fill(content, 0, &mut head)?;
    let head = &head[..filled];
    match Format::of(head) {
        Format::Raw => match foreign(head) {
            Some(name) => Err(Error::Format(name)),
            None => Ok(Opened::Raw(length)),
        },
        Format::Qcow2 => qcow2::open(head, content).map(Opened::Qcow2),
        Format::Vmdk => vmdk::open(head, content).map(Opened::Vmdk),
        Format::Vdi => vdi::open(head, content).map(Opened::Vdi),
        Format::Vhd => vhd::open(head, content).map(Opened::Vhd),
        Format::Vhdx => vhdx::open(content).map(Opened::Vhdx),
    }
}

/// The disk's size that the first bytes announce, unchecked: to refuse what cannot fit before it is transferred. A stream
/// that is optimized, as VMware has it, may say it only at its end.
pub fn announced_size(head: &[u8]) -> Option<u64> {
    use content::{be64, le64};
    let size = match Format::of(head) {
        Format::Raw | Format::Vhdx => return None,
        Format::Qcow2 => be64(head, 24),
        Format::Vmdk => le64(head, 12).saturating_mul(SECTOR),
        Format::Vdi => le64(head, 0x170),
        Format::Vhd => be64(head, 48),
    };
    (size > 0).then_some(size)
}

/// Formats that are recognized to be refused: as a raw disk they would be of no use to anybody.
fn foreign(head: &[u8]) -> Option<&'static str> {
    let known: [(&[u8], &str); 5] = [
        (b"# Disk DescriptorFile", "VMDK in several files"),
        (b"COWD", "VMDK of ESX"),
        (b"QED\0", "QED"),
        (b"WithoutFreeSpace", "Parallels"),
        (b"WithouFreSpacExt", "Parallels"),
    ];
    known.iter().find(|(magic, _)| head.starts_with(magic)).map(|(_, name)| *name)
}

/// The disk's size as a header says it.
fn size<E>(size: u64) -> Result<u64, Error<E>> {
    match size {
        0 => Err(Error::Damaged("it says that the disk is empty")),
        SIZE_MAX.. => Err(Error::Damaged("it says that the disk is larger than any")),
        size => Ok(size),
    }
}
