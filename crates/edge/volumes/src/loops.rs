//! Loop devices: block devices whose content is a file of the pool.
//!
//! A device is recognised by what the kernel says of it: the file's device and inode, whether it only reads, and a name
//! that tells which node's engine has made it. Nothing is remembered, so nothing can be wrong after a crash.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, makedev};
use volumeplan::NodeTag;

use crate::error::{Context as _, Result};

const LOOP_CLR_FD: libc::Ioctl = 0x4C01;
const LOOP_GET_STATUS64: libc::Ioctl = 0x4C05;
const LOOP_SET_CAPACITY: libc::Ioctl = 0x4C07;
const LOOP_CONFIGURE: libc::Ioctl = 0x4C0A;
const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4C82;

const READ_ONLY: u32 = 1;
const DIRECT_IO: u32 = 16;

const LOOP_MAJOR: u32 = 7;
const CONTROL: (u32, u32) = (10, 237);
/// Attempts at a free device that others want, too.
const ATTEMPTS: usize = 64;

/// The kernel's `loop_info64`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Info {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// The kernel's `loop_config`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Configuration {
    file: u32,
    block_size: u32,
    info: Info,
    reserved: [u64; 8],
}

/// The loop devices of this node's engine.
#[derive(Clone, Debug)]
pub(crate) struct Loops {
    /// Where device nodes are, or are made.
    dev: PathBuf,
    name: String,
}

/// One that is attached to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) path: PathBuf,
    number: u32,
    read_only: bool,
}

impl Device {
    pub(crate) fn read_only(&self) -> bool {
        self.read_only
    }
}

impl Loops {
    pub(crate) fn new(dev: &Path, node: &NodeTag) -> Self {
        Self { dev: dev.to_owned(), name: format!("ferrovirt-{}", node.as_str()) }
    }

    /// The devices of ours that are attached to a file, which is in a directory of this name.
    pub(crate) fn of(&self, file: &File, directory: &str) -> Result<Vec<Device>> {
        const BLOCK: &str = "/sys/block";
        let meta = file.metadata().doing("look up", "the content of a volume")?;
        let mut found = Vec::new();
        for entry in std::fs::read_dir(BLOCK).doing("list", BLOCK)? {
            let entry = entry.doing("list", BLOCK)?;
            let number = entry.file_name().to_str().and_then(|name| name.strip_prefix("loop")?.parse().ok());
            // Others' devices are not opened: they could not be detached meanwhile. The path is shown as we see it, if we do.
            let Ok(backing) = std::fs::read(entry.path().join("loop/backing_file")) else { continue };
            let named = String::from_utf8_lossy(&backing).contains(directory);
            let Some(number) = number.filter(|_| named) else { continue };
            let (path, device) = self.open(number, true)?;
            match status(&device) {
                Ok(info) if (info.device, info.inode) == (meta.dev(), meta.ino()) && self.made(&info) => {
                    found.push(Device { path, number, read_only: info.flags & READ_ONLY != 0 });
                }
                Ok(_) => {}
                // Detached meanwhile.
                Err(error) if error.raw_os_error() == Some(libc::ENXIO) => {}
                Err(error) => return Err(error).doing("ask for the state of", path),
            }
        }
        Ok(found)
    }

    /// Attaches a file, unless it is attached already. `file` has to be open for writing, unless the device only reads.
    pub(crate) fn attach(&self, file: &File, directory: &str, read_only: bool) -> Result<Device> {
        if let Some(device) = self.of(file, directory)?.into_iter().find(|device| device.read_only == read_only) {
            return Ok(device);
        }
        let control = self.node("loop-control", FileType::CharacterDevice, CONTROL)?;
        let control_file = OpenOptions::new().read(true).write(true).open(&control).doing("open", &control)?;
        let mut tried = 0;
        loop {
            let number = free(control_file.as_raw_fd()).doing("find a free loop device with", &control)?;
            let (path, device) = self.open(number, read_only)?;
            match self.configure(&device, file, read_only) {
                Ok(()) => return Ok(Device { path, number, read_only }),
                // Somebody else was faster.
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) && tried < ATTEMPTS => tried += 1,
                Err(error) => return Err(error).doing("attach the volume to", path),
            }
        }
    }

    /// Detaches a device from its file; one that is still open goes with its last user.
    pub(crate) fn detach(&self, device: &Device) -> Result<()> {
        let (path, opened) = self.open(device.number, true)?;
        match call(opened.as_raw_fd(), LOOP_CLR_FD, 0) {
            Ok(_) => Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(()),
            Err(error) => Err(error).doing("detach the volume from", path),
        }
    }

    /// Makes a device as large as its file has become.
    pub(crate) fn grow(&self, device: &Device) -> Result<()> {
        let (path, opened) = self.open(device.number, true)?;
        call(opened.as_raw_fd(), LOOP_SET_CAPACITY, 0).map(drop).doing("grow", path)
    }

    fn configure(&self, device: &File, file: &File, read_only: bool) -> io::Result<()> {
        // SAFETY: all fields are numbers, for which zero is valid.
        let mut configuration: Configuration = unsafe { std::mem::zeroed() };
        configuration.file = file.as_raw_fd().cast_unsigned();
        // The kernel ignores direct I/O where the file system below cannot do it.
        configuration.info.flags = DIRECT_IO | if read_only { READ_ONLY } else { 0 };
        for (to, from) in configuration.info.file_name.iter_mut().zip(self.name.bytes()) {
            *to = from;
        }
        call(device.as_raw_fd(), LOOP_CONFIGURE, &raw const configuration as usize).map(drop)
    }

    fn made(&self, info: &Info) -> bool {
        let name = info.file_name.split(|byte| *byte == 0).next();
        name == Some(self.name.as_bytes())
    }

    fn open(&self, number: u32, read_only: bool) -> Result<(PathBuf, File)> {
        let path = self.node(&format!("loop{number}"), FileType::BlockDevice, (LOOP_MAJOR, number))?;
        let file = OpenOptions::new().read(true).write(!read_only).open(&path).doing("open", &path)?;
        Ok((path, file))
    }

    /// The path of a device node. In a container, `/dev` has only those that were there when it started.
    fn node(&self, name: &str, kind: FileType, (major, minor): (u32, u32)) -> Result<PathBuf> {
        let path = self.dev.join(name);
        if !path.exists() {
            let made = rustix::fs::mknodat(
                rustix::fs::CWD,
                &path,
                kind,
                Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP,
                makedev(major, minor),
            );
            match made {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error).doing("make the device node", path),
            }
        }
        let meta = std::fs::metadata(&path).doing("look up", &path)?;
        let is_device = meta.file_type().is_block_device() || meta.file_type().is_char_device();
        if !is_device || meta.rdev() != makedev(major, minor) {
            let error = io::Error::new(io::ErrorKind::InvalidData, "it is another device");
            return Err(error).doing("use", path);
        }
        Ok(path)
    }
}

fn free(control: RawFd) -> io::Result<u32> {
    call(control, LOOP_CTL_GET_FREE, 0).map(i32::cast_unsigned)
}

fn status(device: &File) -> io::Result<Info> {
    // SAFETY: all fields are numbers, for which zero is valid.
    let mut info: Info = unsafe { std::mem::zeroed() };
    call(device.as_raw_fd(), LOOP_GET_STATUS64, &raw mut info as usize)?;
    Ok(info)
}

fn call(descriptor: RawFd, request: libc::Ioctl, argument: usize) -> io::Result<i32> {
    // SAFETY: the callers pass an open descriptor and, for requests that take a structure, the address of one that is
    // of the kernel's layout and outlives the call; all other requests here ignore the argument.
    let result = unsafe { libc::ioctl(descriptor, request, argument) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structures_have_the_kernels_sizes() {
        assert_eq!((size_of::<Info>(), size_of::<Configuration>()), (232, 304));
    }
}
