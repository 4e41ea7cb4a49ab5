//! Disks that outlive their guest: claims and host disks.
//!
//! Whatever their first bytes look like, they are raw: a guest can write any header to its disk. What is behind a volume
//! is opened beneath a descriptor, and only a regular file or a block device that this process may use itself is given to
//! QEMU.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use api::v1::{DiskDevice, VirtualMachineInstance, Volume, VolumeSource};
use domain::{DiskFacts, Location, Storage, claims};
use hostfs::beneath::{OFlags, Root};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use launcher_contract::disks::{self, Image};
use launcher_contract::types::DomainDisk;
use rustix::fs::FallocateFlags;

use super::{Error, Preparer, Role, takes_direct_io};

/// Unit of a file's allocated blocks, independent of its block size.
const SPACE_UNIT: u64 = 512;
/// The key of a claim's size.
const STORAGE: &str = "storage";

/// What is behind a volume.
struct Found {
    file: File,
    /// Bytes of the disk.
    size: u64,
    readonly: bool,
}

/// What is known about a volume before it is looked at.
struct Wanted<'a> {
    volume: &'a str,
    /// Of the image to make if there is none; `None` if there has to be one.
    new_image: Option<u64>,
    /// Only read, by all disks that show it.
    is_only_read: bool,
    preallocate: bool,
}

impl Preparer<'_> {
    /// The disk of a claim or a host disk; makes its image if that is missing. `None` for a volume that is plugged in
    /// later.
    pub(super) fn lasting(
        &self,
        vmi: &VirtualMachineInstance,
        volume: &Volume,
        small: &mut Vec<String>,
    ) -> Result<Option<DiskFacts>, Error> {
        let Some(location) = self.paths.lasting(vmi, volume) else { return Ok(None) };
        // While it is being mounted, there is an empty file in its place.
        if claims::is_plugged(vmi, volume) && !self.plugged.contains(&volume.name) {
            return Ok(None);
        }
        let info = claims::info(vmi, &volume.name);
        let wanted = Wanted {
            volume: &volume.name,
            new_image: self.new_image(vmi, volume)?,
            is_only_read: is_only_read(vmi, volume),
            preallocate: info.is_some_and(|info| info.preallocated == Some(true)),
        };
        let mut found = match &location {
            Location::File(path) => self.image(path, &wanted, small)?,
            Location::Device(path) => device(path, &wanted)?,
        };
        if self.role == Role::Target && claims::moves(vmi, &volume.name) {
            fit(vmi, &wanted, &location, &mut found)?;
        }
        if self.role == (Role::Start { expand: true }) && volume.is_claim() && !found.readonly {
            self.grow_image(vmi, &wanted, &location, &mut found)?;
        }
        let metadata = found.file.metadata().map_err(wanted.io("look at", &location))?;
        let storage = Storage {
            readonly: found.readonly,
            preallocated: wanted.preallocate,
            allocated: match location {
                Location::Device(_) => true,
                Location::File(_) => metadata.blocks().saturating_mul(SPACE_UNIT) >= found.size,
            },
            location,
        };
        let direct_io = takes_direct_io(storage.location.path());
        Ok(Some(DiskFacts { direct_io, backing: None, storage: Some(storage) }))
    }

    /// The disks of the volumes that are plugged, and what is wrong with others.
    pub(crate) fn plugged(&self, vmi: &VirtualMachineInstance) -> (BTreeMap<String, DiskFacts>, Vec<Error>) {
        let (mut disks, mut errors) = (BTreeMap::new(), Vec::new());
        for volume in vmi.spec.volumes.iter().filter(|volume| claims::is_plugged(vmi, volume)) {
            match self.lasting(vmi, volume, &mut Vec::new()) {
                Ok(known) => disks.extend(known.map(|known| (volume.name.clone(), known))),
                Err(error) => errors.push(error),
            }
        }
        (disks, errors)
    }

    /// The base of an ephemeral disk, and its size.
    pub(super) fn base(&self, vmi: &VirtualMachineInstance, volume: &Volume) -> Result<(Location, u64), Error> {
        let wanted = Wanted { volume: &volume.name, new_image: None, is_only_read: true, preallocate: false };
        let location = self.paths.lasting(vmi, volume).ok_or_else(|| Error::Volume {
            volume: volume.name.clone(),
            detail: "an ephemeral disk needs a persistentVolumeClaim".to_owned(),
        })?;
        let found = match &location {
            Location::File(path) => self.image(path, &wanted, &mut Vec::new())?,
            Location::Device(path) => device(path, &wanted)?,
        };
        Ok((location, found.size))
    }

    /// The size of the image to make if a volume has none. At the target of a migration, what both sides use is there
    /// already.
    fn new_image(&self, vmi: &VirtualMachineInstance, volume: &Volume) -> Result<Option<u64>, Error> {
        let wrong = |detail: String| Error::Volume { volume: volume.name.clone(), detail };
        if self.role == Role::Target && !claims::moves(vmi, &volume.name) {
            return Ok(None);
        }
        if let VolumeSource::HostDisk(disk) = volume.source() {
            if disk.type_ != "DiskOrCreate" {
                return Ok(None);
            }
            return match &disk.capacity {
                Some(capacity) => bytes(capacity).map(Some).map_err(wrong),
                None => {
                    Err(wrong("hostDisk.capacity says how large the image is that DiskOrCreate makes; set it".into()))
                }
            };
        }
        let Some(info) = claims::info(vmi, &volume.name) else { return Ok(None) };
        let sizes = [&info.capacity, &info.requests].map(|sizes| sizes.get(STORAGE).map(bytes).transpose());
        let [capacity, request] = sizes;
        let (capacity, request) = (capacity.map_err(wrong)?, request.map_err(wrong)?);
        // A claim may be given more than it asked for.
        Ok(capacity.into_iter().chain(request).min())
    }

    fn image(&self, path: &str, wanted: &Wanted<'_>, small: &mut Vec<String>) -> Result<Found, Error> {
        let file = Path::new(path);
        let (Some(directory), Some(name)) = (file.parent(), file.file_name()) else {
            return Err(wanted.trouble(format!("{path} is not the path of a file")));
        };
        let root = Root::open(directory).map_err(|error| match error.is_not_found() {
            true => wanted.trouble(format!("{} is not mounted in the launcher's Pod", directory.display())),
            false => wanted.cannot_open(error),
        })?;
        let (file, readonly) = match root.open_file(name, OFlags::RDWR | OFlags::NONBLOCK) {
            Ok(file) => (file, false),
            Err(error) if error.is_not_found() => match wanted.new_image {
                Some(_) => {
                    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
                    (root.open_file(name, flags).map_err(|error| wanted.cannot_make(path, &error))?, false)
                }
                None => return Err(wanted.trouble(format!("there is no {path}"))),
            },
            Err(error) => {
                (wanted.read_only(error, || root.open_file(name, OFlags::RDONLY | OFlags::NONBLOCK), path)?, true)
            }
        };
        let metadata = file.metadata().map_err(wanted.io("look at", &Location::File(path.to_owned())))?;
        if !metadata.is_file() {
            return Err(wanted.trouble(format!("{path} is not a regular file")));
        }
        let mut found = Found { size: metadata.len(), file, readonly };
        if found.size == 0 {
            found.size = self.make_image(&root, &found, wanted, path, small)?;
        }
        Ok(found)
    }

    /// Gives an image that was just made its size. Until then it is empty, also after a crash.
    fn make_image(
        &self,
        root: &Root,
        found: &Found,
        wanted: &Wanted<'_>,
        path: &str,
        small: &mut Vec<String>,
    ) -> Result<u64, Error> {
        let Some(capacity) = wanted.new_image.filter(|_| !found.readonly) else {
            return Err(wanted.trouble(format!("{path} is empty")));
        };
        let location = Location::File(path.to_owned());
        let free = free(root).map_err(wanted.io("ask for the free space at", &location))?;
        let percent = self.tolerated_shortage_percent;
        let image = disks::image(capacity, free, self.reserved_bytes, percent);
        let Image { bytes, is_short } =
            image.map_err(|error| wanted.trouble(format!("cannot make {path}: {error}")))?;
        if bytes == 0 {
            return Err(wanted.trouble(format!("cannot make {path}: its claim has no size yet")));
        }
        resize(&found.file, bytes, wanted.preallocate).map_err(wanted.io("make", &location))?;
        // The guest is told that its writes are safe: the file has to be, too.
        found.file.sync_all().and_then(|()| sync(root)).map_err(wanted.io("sync", &location))?;
        tracing::info!(volume = wanted.volume, path, bytes, "disk image created");
        if is_short {
            small.push(format!(
                "volume {}: PV size too small: expected {capacity} B, found {bytes} B. Using it anyway, it is within {percent} % \
                 toleration",
                wanted.volume
            ));
        }
        Ok(bytes)
    }

    /// Grows an image before its guest starts. Nothing else does while the guest is down.
    fn grow_image(
        &self,
        vmi: &VirtualMachineInstance,
        wanted: &Wanted<'_>,
        location: &Location,
        found: &mut Found,
    ) -> Result<(), Error> {
        let Some(bytes) = possible(vmi, wanted.volume, location).map_err(wanted.io("look at", location))? else {
            return Ok(());
        };
        if bytes <= found.size || matches!(location, Location::Device(_)) {
            return Ok(());
        }
        resize(&found.file, bytes, wanted.preallocate).map_err(wanted.io("grow", location))?;
        tracing::info!(volume = wanted.volume, from = found.size, to = bytes, "disk image grown");
        found.size = bytes;
        Ok(())
    }
}

/// Makes the disk that a moving volume is copied to as large as the one that it is copied from.
fn fit(vmi: &VirtualMachineInstance, wanted: &Wanted<'_>, location: &Location, found: &mut Found) -> Result<(), Error> {
    let Some(bytes) = claims::moved_size(vmi, wanted.volume) else {
        return Err(wanted.trouble("the source's node has not said yet how large the disk is".to_owned()));
    };
    match location {
        Location::File(_) if found.size == bytes => Ok(()),
        Location::File(_) => {
            resize(&found.file, bytes, wanted.preallocate).map_err(wanted.io("resize", location))?;
            found.size = bytes;
            Ok(())
        }
        Location::Device(path) if found.size < bytes => {
            let size = found.size;
            Err(wanted.trouble(format!("{path} has {size} bytes; a disk of {bytes} bytes is to be copied to it")))
        }
        Location::Device(_) => Ok(()),
    }
}

/// The size that a disk of the running guest can have now that its claim has grown; `None` if it has not.
pub(crate) fn larger(vmi: &VirtualMachineInstance, disk: &DomainDisk) -> Result<Option<u64>, Error> {
    let Some(volume) = vmi.spec.volumes.iter().find(|volume| volume.name == disk.alias) else { return Ok(None) };
    if !volume.is_claim() || is_only_read(vmi, volume) || claims::moves(vmi, &volume.name) {
        return Ok(None);
    }
    let location = match claims::is_block(vmi, &volume.name) {
        true => Location::Device(disk.source.clone()),
        false => Location::File(disk.source.clone()),
    };
    let io = |source| Error::Io { action: format!("look at {} of volume {}", disk.source, volume.name), source };
    let Some(bytes) = possible(vmi, &volume.name, &location).map_err(io)? else { return Ok(None) };
    if bytes <= disk.capacity {
        return Ok(None);
    }
    let preallocate = claims::info(vmi, &volume.name).is_some_and(|info| info.preallocated == Some(true));
    if let Location::File(path) = &location
        && preallocate
    {
        let file = File::options().write(true).custom_flags(libc::O_NOFOLLOW).open(path).map_err(io)?;
        allocate(&file, bytes).map_err(io)?;
    }
    Ok(Some(bytes))
}

/// The size that the disk of a claim can have: its device's, or what its file system has space for. `None` if its claim's
/// size is not known.
fn possible(vmi: &VirtualMachineInstance, volume: &str, location: &Location) -> io::Result<Option<u64>> {
    let Some(info) = claims::info(vmi, volume) else { return Ok(None) };
    match location {
        Location::Device(path) => File::open(path)?.seek(SeekFrom::End(0)).map(Some),
        Location::File(path) => {
            let metadata = std::fs::symlink_metadata(path)?;
            // Of a plugged volume, only the image is mounted.
            let free = free(File::options().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?)?;
            let capacity = info.capacity.get(STORAGE).and_then(|capacity| bytes(capacity).ok());
            let allocated = metadata.blocks().saturating_mul(SPACE_UNIT);
            let overhead = info.filesystem_overhead.as_deref();
            Ok(capacity.map(|capacity| disks::grown(capacity, overhead, allocated, free)))
        }
    }
}

/// Makes a file larger. If its space is to be allocated, that comes first: a failure leaves the size as it was.
fn resize(file: &File, bytes: u64, preallocate: bool) -> io::Result<()> {
    if preallocate {
        allocate(file, bytes)?;
    }
    file.set_len(bytes)
}

fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    Ok(rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, bytes)?)
}

fn device(path: &str, wanted: &Wanted<'_>) -> Result<Found, Error> {
    let location = Location::Device(path.to_owned());
    let open = |write: bool| {
        let mut options = File::options();
        options.read(true).write(write).custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW);
        options.open(path)
    };
    let (mut file, readonly) = match open(true) {
        Ok(file) => (file, false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(wanted.trouble(format!("the device {path} is not in the launcher's Pod")));
        }
        Err(error) => match error.raw_os_error() {
            Some(libc::EROFS) => (open(false).map_err(wanted.io("open", &location))?, true),
            Some(libc::EACCES | libc::EPERM) if wanted.is_only_read => {
                (open(false).map_err(wanted.io("open", &location))?, true)
            }
            _ => return Err(wanted.io("open", &location)(error)),
        },
    };
    let metadata = file.metadata().map_err(wanted.io("look at", &location))?;
    if !metadata.file_type().is_block_device() {
        return Err(wanted.trouble(format!("{path} is not a block device")));
    }
    let size = file.seek(SeekFrom::End(0)).map_err(wanted.io("ask for the size of", &location))?;
    if size == 0 {
        return Err(wanted.trouble(format!("the device {path} has no size: it is lost, or not there yet")));
    }
    Ok(Found { file, size, readonly: readonly || is_read_only_device(&metadata) })
}

/// Some kernels let such a device be opened for writing.
fn is_read_only_device(metadata: &std::fs::Metadata) -> bool {
    let device = metadata.rdev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/ro")).is_ok_and(|text| text.trim() == "1")
}

impl Wanted<'_> {
    fn trouble(&self, detail: String) -> Error {
        Error::Storage { volume: self.volume.to_owned(), detail }
    }

    fn cannot_open(&self, source: hostfs::Error) -> Error {
        Error::Open { volume: self.volume.to_owned(), source }
    }

    fn io<'a>(&'a self, action: &'a str, location: &'a Location) -> impl Fn(io::Error) -> Error + 'a {
        move |source| {
            let action = format!("{action} {} of volume {}", location.path(), self.volume);
            Error::Io { action, source }
        }
    }

    /// Opens what cannot be written to, if it can be read and that is all its disks do, or all that its storage lets
    /// anybody do.
    fn read_only(
        &self,
        error: hostfs::Error,
        open: impl FnOnce() -> hostfs::Result<File>,
        path: &str,
    ) -> Result<File, Error> {
        match error.errno() {
            Some(libc::EROFS) => open().map_err(|error| self.cannot_open(error)),
            Some(libc::EACCES | libc::EPERM) if self.is_only_read => open().map_err(|error| self.cannot_open(error)),
            Some(libc::EACCES | libc::EPERM) => Err(self.trouble(not_ours(path))),
            Some(libc::ELOOP) => Err(self.trouble(format!("{path} is a symbolic link, which is not followed"))),
            Some(libc::EISDIR | libc::ENXIO) => Err(self.trouble(format!("{path} is not a regular file"))),
            _ => Err(self.cannot_open(error)),
        }
    }

    fn cannot_make(&self, path: &str, error: &hostfs::Error) -> Error {
        match error.errno() {
            Some(libc::EROFS) => self.trouble(format!("there is no {path}, and the volume can only be read")),
            Some(libc::EACCES | libc::EPERM) => {
                let directory = Path::new(path).parent().unwrap_or(Path::new("/"));
                self.trouble(format!("there is no {path}, and {}", not_ours(&directory.display().to_string())))
            }
            _ => self.trouble(format!("cannot make {path}: {}", machinery::error::chain(error))),
        }
    }
}

/// What to do about a file that belongs to somebody else.
fn not_ours(path: &str) -> String {
    let user = launcher_contract::USER;
    match std::fs::symlink_metadata(path) {
        Ok(found) => format!(
            "{path} cannot be written to: it belongs to {}:{} with mode {:o}, and the guest runs as {user}:{user}; change its \
             owner",
            found.uid(),
            found.gid(),
            found.mode() & 0o7777
        ),
        Err(_) => format!("{path} cannot be written to: the guest runs as {user}:{user}"),
    }
}

/// Whether the guest never writes to a volume.
fn is_only_read(vmi: &VirtualMachineInstance, volume: &Volume) -> bool {
    let mut disks = vmi.spec.domain.devices.disks.iter().filter(|disk| disk.name == volume.name);
    disks.all(|disk| match disk.device() {
        DiskDevice::CdRom(cdrom) => cdrom.readonly != Some(false),
        DiskDevice::Disk(disk) => disk.readonly == Some(true),
        DiskDevice::Lun(lun) => lun.readonly == Some(true),
        DiskDevice::Unset => false,
    })
}

fn bytes(amount: &Quantity) -> Result<u64, String> {
    let parsed = machinery::quantity::Quantity::try_from(amount).map_err(|error| format!("{}: {error}", amount.0))?;
    u64::try_from(parsed.value()).map_err(|_| format!("{} is not a size", amount.0))
}

/// Bytes that this process can still store beside what is there.
fn free(storage: impl AsFd) -> io::Result<u64> {
    let found = rustix::fs::fstatvfs(storage)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

fn sync(root: &Root) -> io::Result<()> {
    Ok(rustix::fs::fsync(root)?)
}
