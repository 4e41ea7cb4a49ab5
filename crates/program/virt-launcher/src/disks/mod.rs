//! Creates the files behind the guest's disks before it starts.
//!
//! | volume | file |
//! |---|---|
//! | containerDisk | a qcow2 overlay of its own over the read-only image |
//! | emptyDisk | an empty qcow2 |
//! | cloudInitNoCloud | an ISO image |
//! | persistentVolumeClaim, dataVolume, hostDisk | a sparse raw image, unless there is one; a claim in block mode has a device |
//! | ephemeral | a qcow2 overlay of its own over the claim, which is only read |
//!
//! An existing file is kept, since it may contain the guest's data. Each file is created under a temporary name and
//! renamed, so an existing file is always complete; an image on a claim has its size once it is complete.

mod cloud_init;
mod image;
mod iso;
mod storage;
mod watch;

pub(crate) use storage::larger;
pub(crate) use watch::{forget_size, watch};

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use api::v1::{ContainerDiskSource, VirtualMachineInstance, Volume, VolumeSource};
use domain::{BackingImage, DiskFacts, ImageFormat, Location, Paths};
use hostfs::beneath::{OFlags, Root};
use rustix::process::{Resource, Rlimit, Signal};
use tokio::io::AsyncReadExt;

use crate::children::Children;

/// Timeout of qemu-img; creating an image only writes a few clusters of metadata.
const QEMU_IMG_LIMIT: Duration = Duration::from_secs(60);
/// CPU limit of qemu-img in seconds.
const QEMU_IMG_CPU: u64 = 30;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot {action}")]
    Io { action: String, source: io::Error },
    #[error("cannot open the disk image of volume {volume}")]
    Open { volume: String, source: hostfs::Error },
    #[error("volume {volume}: {source}")]
    Image { volume: String, source: image::Error },
    #[error("volume {volume}: /disk of the image holds {found} files; it must hold exactly one, or name it in path")]
    NotOneFile { volume: String, found: usize },
    #[error("volume {volume}: {detail}")]
    Volume { volume: String, detail: String },
    /// Something about the storage, which may change.
    #[error("volume {volume}: {detail}")]
    Storage { volume: String, detail: String },
    #[error("qemu-img failed for volume {volume}: {detail}")]
    QemuImg { volume: String, detail: String },
}

impl Error {
    /// Whether retrying cannot help, because the user's input is at fault.
    pub(crate) fn is_permanent(&self) -> bool {
        matches!(self, Error::Image { .. } | Error::NotOneFile { .. } | Error::Volume { .. })
    }
}

fn io_error(action: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
    let action = action.into();
    move |source| Error::Io { action, source }
}

/// Creates the disk files of a VMI.
pub(crate) struct Preparer<'a> {
    pub(crate) children: &'a Children,
    pub(crate) paths: &'a Paths,
    /// Whether container disks are mounted below [`Paths::image_volumes`].
    pub(crate) image_volumes: bool,
    pub(crate) memory_limit: u64,
    pub(crate) role: Role,
    /// Volumes that virt-handler has mounted for the guest beside those of the Pod.
    pub(crate) plugged: &'a BTreeSet<String>,
    /// By how many percent a file system may be too small for the image that is to be made on it.
    pub(crate) tolerated_shortage_percent: u8,
    /// Bytes of a file system that stay free when an image is made on it.
    pub(crate) reserved_bytes: u64,
}

/// What the files are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// To start the guest; `expand` grows its images with their claims before that.
    Start { expand: bool },
    /// To receive the guest, which uses some of them elsewhere now.
    Target,
}

/// The disks of a VMI.
pub(crate) struct Prepared {
    pub(crate) facts: BTreeMap<String, DiskFacts>,
    /// Sentences about volumes that are smaller than their claims, within the tolerated shortage.
    pub(crate) small: Vec<String>,
}

impl Preparer<'_> {
    pub(crate) async fn prepare(&self, vmi: &VirtualMachineInstance) -> Result<Prepared, Error> {
        let mut prepared = Prepared { facts: BTreeMap::new(), small: Vec::new() };
        for (index, volume) in vmi.spec.volumes.iter().enumerate() {
            if let Some(known) = self.volume(vmi, index, volume, &mut prepared.small).await? {
                prepared.facts.insert(volume.name.clone(), known);
            }
        }
        Ok(prepared)
    }

    async fn volume(
        &self,
        vmi: &VirtualMachineInstance,
        index: usize,
        volume: &Volume,
        small: &mut Vec<String>,
    ) -> Result<Option<DiskFacts>, Error> {
        let failed = |detail| Error::Volume { volume: volume.name.clone(), detail };
        match volume.source() {
            VolumeSource::ContainerDisk(source) => self.container_disk(index, &volume.name, source).await.map(Some),
            VolumeSource::EmptyDisk(source) => {
                let capacity = capacity(&volume.name, &source.capacity)?;
                let file = self.paths.empty_disk(&volume.name);
                self.create(&volume.name, &file, None, capacity).await?;
                Ok(Some(DiskFacts { direct_io: takes_direct_io(&file), ..DiskFacts::default() }))
            }
            VolumeSource::PersistentVolumeClaim(_) | VolumeSource::DataVolume(_) | VolumeSource::HostDisk(_) => {
                self.lasting(vmi, volume, small)
            }
            VolumeSource::Ephemeral(_) => {
                let (location, size) = self.base(vmi, volume)?;
                self.overlay(&volume.name, BackingImage { location, format: ImageFormat::Raw }, size).await.map(Some)
            }
            VolumeSource::CloudInitNoCloud(source) => {
                let files = cloud_init::no_cloud(vmi, source).map_err(failed)?;
                let image = iso::image(cloud_init::LABEL, &files).map_err(failed)?;
                let file = self.paths.no_cloud_iso(vmi);
                write_private(&file, &image)?;
                Ok(Some(DiskFacts { direct_io: takes_direct_io(&file), ..DiskFacts::default() }))
            }
            // The conversion rejects these if a disk uses them.
            VolumeSource::CloudInitConfigDrive(_)
            | VolumeSource::ConfigMap(_)
            | VolumeSource::ContainerPath(_)
            | VolumeSource::DownwardApi(_)
            | VolumeSource::DownwardMetrics
            | VolumeSource::MemoryDump(_)
            | VolumeSource::Secret(_)
            | VolumeSource::ServiceAccount(_)
            | VolumeSource::Sysprep(_)
            | VolumeSource::Unset => Ok(None),
        }
    }

    async fn container_disk(
        &self,
        index: usize,
        volume: &str,
        source: &ContainerDiskSource,
    ) -> Result<DiskFacts, Error> {
        if !self.image_volumes {
            let detail = "container disks need image volumes, but this Pod has none".to_owned();
            return Err(Error::Volume { volume: volume.to_owned(), detail });
        }
        let root = self.paths.image_volume(index);
        let relative = image_path(&root, volume, source.path.as_deref())?;
        // The user's image may contain symlinks that lead out of it; this open resolves beneath the root only, and the
        // mount is read-only, so the path stays valid.
        let open = || Root::open(&root)?.open_file(&relative, OFlags::RDONLY | OFlags::NONBLOCK);
        let mut file = open().map_err(|source| Error::Open { volume: volume.to_owned(), source })?;
        let image = image::inspect(&mut file).map_err(|source| Error::Image { volume: volume.to_owned(), source })?;
        let location = Location::File(format!("{root}/{relative}"));
        self.overlay(volume, BackingImage { location, format: image.format }, image.virtual_size).await
    }

    async fn overlay(&self, volume: &str, backing: BackingImage, size: u64) -> Result<DiskFacts, Error> {
        let overlay = self.paths.overlay(volume);
        self.create(volume, &overlay, Some(&backing), size).await?;
        let direct_io = takes_direct_io(&overlay) && takes_direct_io(backing.location.path());
        Ok(DiskFacts { direct_io, backing: Some(backing), storage: None })
    }

    /// Creates a qcow2 unless it exists. With `-u` qemu-img does not open the backing image: that is untrusted, and its
    /// size is already known.
    async fn create(&self, volume: &str, file: &str, backing: Option<&BackingImage>, size: u64) -> Result<(), Error> {
        if Path::new(file).exists() {
            return Ok(());
        }
        make_parent(file)?;
        let unfinished = format!("{file}.new");
        let mut command = Command::new("qemu-img");
        command.args(["create", "-q", "-f", "qcow2"]);
        if let Some(backing) = backing {
            command.args(["-u", "-b", backing.location.path(), "-F", backing.format.as_str()]);
        }
        command.arg(&unfinished).arg(size.to_string());
        self.qemu_img(volume, command).await?;
        fs::rename(&unfinished, file).map_err(io_error(format!("rename {unfinished}")))
    }

    async fn qemu_img(&self, volume: &str, mut command: Command) -> Result<(), Error> {
        let failed = |detail: String| Error::QemuImg { volume: volume.to_owned(), detail };
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        limit(&mut command, self.memory_limit);
        let mut child = self.children.spawn(&mut command).map_err(|error| failed(error.to_string()))?;
        let stderr = child.stderr.take();
        let run = async {
            let said = match stderr {
                Some(pipe) => read_some(pipe).await,
                None => String::new(),
            };
            (child.wait().await, said)
        };
        match tokio::time::timeout(QEMU_IMG_LIMIT, run).await {
            Ok((status, _)) if status.success() => Ok(()),
            Ok((status, said)) => Err(failed(format!("{status}: {}", said.trim()))),
            Err(_) => {
                child.handle().signal(Signal::KILL);
                Err(failed(format!("it did not end within {} s", QEMU_IMG_LIMIT.as_secs())))
            }
        }
    }
}

/// Limits the resources of qemu-img.
fn limit(command: &mut Command, memory: u64) {
    let limits = [(Resource::As, memory), (Resource::Cpu, QEMU_IMG_CPU), (Resource::Core, 0)];
    let apply = move || {
        for (resource, limit) in limits {
            rustix::process::setrlimit(resource, Rlimit { current: Some(limit), maximum: Some(limit) })?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure only makes system calls; it does not allocate or take locks.
    unsafe { std::os::unix::process::CommandExt::pre_exec(command, apply) };
}

/// Reads a bounded part of a child's output.
async fn read_some(pipe: std::os::fd::OwnedFd) -> String {
    const ENOUGH: u64 = 4096;
    let mut said = Vec::new();
    match tokio::net::unix::pipe::Receiver::from_owned_fd(pipe) {
        Ok(mut pipe) => {
            // Drain the rest, so that the child never blocks on the pipe.
            let _ = (&mut pipe).take(ENOUGH).read_to_end(&mut said).await;
            let _ = tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await;
        }
        Err(error) => tracing::warn!(%error, "cannot read a child's output"),
    }
    String::from_utf8_lossy(&said).into_owned()
}

/// The image's path inside the volume: the given one, or the only file in `/disk`.
fn image_path(root: &str, volume: &str, given: Option<&str>) -> Result<String, Error> {
    if let Some(path) = given.filter(|path| !path.is_empty()) {
        return Ok(path.trim_start_matches('/').to_owned());
    }
    let directory = format!("{root}/disk");
    let entries = fs::read_dir(&directory).map_err(io_error(format!("read {directory} of volume {volume}")))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(io_error(format!("read {directory}")))?;
        names.push(entry.file_name());
    }
    match names.as_slice() {
        [name] => Ok(format!("disk/{}", name.to_string_lossy())),
        names => Err(Error::NotOneFile { volume: volume.to_owned(), found: names.len() }),
    }
}

fn capacity(volume: &str, capacity: &k8s_openapi::apimachinery::pkg::api::resource::Quantity) -> Result<u64, Error> {
    let wrong = |detail: String| Error::Volume { volume: volume.to_owned(), detail };
    let parsed =
        machinery::quantity::Quantity::try_from(capacity).map_err(|error| wrong(format!("capacity: {error}")))?;
    match u64::try_from(parsed.value()) {
        Ok(bytes) if bytes >= image::SECTOR => Ok(bytes.next_multiple_of(image::SECTOR)),
        _ => Err(wrong(format!("capacity {} is less than a sector", capacity.0))),
    }
}

fn make_parent(file: &str) -> Result<(), Error> {
    match Path::new(file).parent() {
        Some(parent) => fs::create_dir_all(parent).map_err(io_error(format!("make {}", parent.display()))),
        None => Ok(()),
    }
}

/// Writes a file that only its owner may read: user data may contain passwords.
fn write_private(file: &str, content: &[u8]) -> Result<(), Error> {
    make_parent(file)?;
    let unfinished = format!("{file}.new");
    let write = || {
        let mut out = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
        out.set_permissions(fs::Permissions::from_mode(0o600))?;
        io::Write::write_all(&mut out, content)?;
        fs::rename(&unfinished, file)
    };
    write().map_err(io_error(format!("write {file}")))
}

/// Whether the file system supports `O_DIRECT`; tmpfs may not.
fn takes_direct_io(file: &str) -> bool {
    let open = fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(file);
    // The open may succeed where reads fail, so try an aligned read.
    open.is_ok_and(|mut file| {
        let mut buffer = vec![0u8; 3 * 4096];
        let start = buffer.as_ptr().align_offset(4096);
        file.read(&mut buffer[start..start + 4096]).is_ok()
    })
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
