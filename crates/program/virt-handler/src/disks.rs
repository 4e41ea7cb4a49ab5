//! Disks in a launcher's container: the launcher and QEMU are an ordinary user, and not all storage knows that.
//!
//! Where the storage lets that user do so, the launcher makes and opens disk images itself. Here it is only given what
//! it cannot take: an image on a claim, a claim's device, and an empty file in a directory that it cannot write to. The
//! content of a file never matters, and none is opened through a link. An image of a host disk that belongs to somebody
//! else stays as it is: it could be any file of the node.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};

use api::v1::{HostDisk, VirtualMachineInstance, Volume, VolumeSource};
use hostfs::beneath::{OFlags, Root, descriptor_path};
use hostfs::process::ProcessId;
use launcher_contract::{USER, paths};

use crate::error::chain;

#[derive(Debug, thiserror::Error)]
pub(crate) enum DiskError {
    #[error("virt-launcher exited before its disks were set up")]
    LauncherGone,
    #[error("failed to inspect the disk of volume {volume}")]
    Open {
        volume: String,
        #[source]
        source: hostfs::Error,
    },
    #[error("failed to make the launcher the owner of the disk of volume {volume}")]
    Own {
        volume: String,
        #[source]
        source: io::Error,
    },
}

/// What is behind a volume.
enum Disk<'a> {
    Image { name: &'a str, host: Option<&'a HostDisk>, may_make: bool },
    Device,
}

/// Gives the launcher's user the disks that its container has. Blocks.
pub(crate) fn give(launcher: ProcessId, vmi: &VirtualMachineInstance) -> Result<(), DiskError> {
    let disks: Vec<(&Volume, Disk<'_>)> = vmi.spec.volumes.iter().filter_map(|v| Some((v, disk(vmi, v)?))).collect();
    if disks.is_empty() {
        return Ok(());
    }
    let root = Root::open(format!("/proc/{}/root", launcher.pid)).map_err(|_| DiskError::LauncherGone)?;
    if !launcher.alive() {
        return Err(DiskError::LauncherGone); // the PID may have been reused before the directory was opened
    }
    for (volume, disk) in disks {
        let given = match disk {
            Disk::Image { name, host, may_make } => match root.open_dir_inside(paths::disk_directory(&volume.name)) {
                Ok(directory) => give_image(&directory, name, host, may_make),
                Err(error) => Err(Trouble::Open(error)),
            },
            Disk::Device => match root.open_dir_inside(paths::DEVICES) {
                Ok(directory) => give_device(&directory, &volume.name),
                Err(error) => Err(Trouble::Open(error)),
            },
        };
        given.or_else(|trouble| trouble.about(&volume.name))?;
    }
    Ok(())
}

fn disk<'a>(vmi: &'a VirtualMachineInstance, volume: &'a Volume) -> Option<Disk<'a>> {
    let statuses = vmi.status.as_ref().map(|status| status.volume_status.as_slice()).unwrap_or_default();
    let status = statuses.iter().find(|status| status.name == volume.name);
    if volume.source().is_hotpluggable() || status.is_some_and(|status| status.hotplug_volume.is_some()) {
        return None; // it is brought by an attachment Pod
    }
    let info = status.and_then(|status| status.persistent_volume_claim_info.as_ref());
    let claim = |may_make| match info.and_then(|info| info.volume_mode.as_deref()) {
        Some("Block") => Disk::Device,
        _ => Disk::Image { name: paths::DISK_IMAGE, host: None, may_make },
    };
    match volume.source() {
        VolumeSource::PersistentVolumeClaim(source) => Some(claim(source.read_only != Some(true))),
        VolumeSource::DataVolume(_) => Some(claim(true)),
        VolumeSource::Ephemeral(source) => source.persistent_volume_claim.as_ref().map(|_| claim(false)),
        VolumeSource::HostDisk(disk) => {
            let name = disk.path.rsplit('/').next().unwrap_or_default();
            Some(Disk::Image { name, host: Some(disk), may_make: disk.type_ == "DiskOrCreate" })
        }
        VolumeSource::CloudInitConfigDrive(_)
        | VolumeSource::CloudInitNoCloud(_)
        | VolumeSource::ConfigMap(_)
        | VolumeSource::ContainerDisk(_)
        | VolumeSource::ContainerPath(_)
        | VolumeSource::DownwardApi(_)
        | VolumeSource::DownwardMetrics
        | VolumeSource::EmptyDisk(_)
        | VolumeSource::MemoryDump(_)
        | VolumeSource::Secret(_)
        | VolumeSource::ServiceAccount(_)
        | VolumeSource::Sysprep(_)
        | VolumeSource::Unset => None,
    }
}

enum Trouble {
    Open(hostfs::Error),
    Own(io::Error),
}

impl Trouble {
    /// What is missing, a link, or not for root either, the launcher finds in the same state, and says so to the user.
    fn about(self, volume: &str) -> Result<(), DiskError> {
        let errno = match &self {
            Trouble::Open(error) => error.errno(),
            Trouble::Own(error) => error.raw_os_error(),
        };
        if let Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP | libc::EACCES | libc::EPERM | libc::EROFS) = errno {
            let error: &dyn std::error::Error = match &self {
                Trouble::Open(error) => error,
                Trouble::Own(error) => error,
            };
            tracing::warn!(volume, error = chain(error), "the disk is left as it is");
            return Ok(());
        }
        let volume = volume.to_owned();
        Err(match self {
            Trouble::Open(source) => DiskError::Open { volume, source },
            Trouble::Own(source) => DiskError::Own { volume, source },
        })
    }
}

fn give_image(directory: &Root, name: &str, host: Option<&HostDisk>, may_make: bool) -> Result<(), Trouble> {
    match directory.open_file(name, OFlags::PATH) {
        Ok(file) => {
            let found = file.metadata().map_err(Trouble::Own)?;
            // An empty file is one that was made here, and not given away before a crash.
            let is_ours_to_give = host.is_none() || (found.len() == 0 && found.uid() == 0);
            if !found.is_file() || found.nlink() != 1 || serves(&found) || !is_ours_to_give {
                return Ok(());
            }
            std::os::unix::fs::chown(descriptor_path(&file), Some(USER), Some(USER)).map_err(Trouble::Own)
        }
        Err(error) if error.is_not_found() && may_make => {
            let found = std::fs::metadata(descriptor_path(directory)).map_err(Trouble::Own)?;
            if serves(&found) {
                return Ok(()); // the launcher makes it
            }
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
            let file = directory.open_file(name, flags).map_err(Trouble::Open)?;
            std::os::unix::fs::fchown(&file, Some(USER), Some(USER)).map_err(Trouble::Own)
        }
        Err(error) => Err(Trouble::Open(error)),
    }
}

fn give_device(dev: &Root, name: &str) -> Result<(), Trouble> {
    let file = dev.open_file(name, OFlags::PATH).map_err(Trouble::Open)?;
    let found = file.metadata().map_err(Trouble::Own)?;
    let directory = std::fs::metadata(descriptor_path(dev)).map_err(Trouble::Own)?;
    // A node on another file system is the host's own, mounted here: it belongs to everybody on the host.
    if !found.file_type().is_block_device() || found.dev() != directory.dev() || serves(&found) {
        return Ok(());
    }
    std::os::unix::fs::chown(descriptor_path(&file), Some(USER), Some(USER)).map_err(Trouble::Own)
}

/// Whether the launcher's user can read it and write to it.
fn serves(found: &Metadata) -> bool {
    let bits = match (found.uid() == USER, found.gid() == USER) {
        (true, _) => found.permissions().mode() >> 6,
        (false, true) => found.permissions().mode() >> 3,
        (false, false) => found.permissions().mode(),
    };
    bits & 0o6 == 0o6
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::Path;
    use std::process::Command;

    use serde_json::json;

    use super::*;

    fn owner(path: &Path) -> (u32, u32) {
        std::fs::symlink_metadata(path).map(|meta| (meta.uid(), meta.gid())).unwrap()
    }

    fn is_root() -> bool {
        let root = rustix::process::geteuid().is_root();
        if !root {
            test_support::skip("only root can give files away");
        }
        root
    }

    const OURS: (u32, u32) = (USER, USER);

    #[test]
    fn an_image_that_the_launcher_cannot_use_becomes_its_own() {
        if !is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let path = |name: &str| dir.path().join(name);
        let host: HostDisk = serde_json::from_value(json!({"path": "/x/y.img", "type": "DiskOrCreate"})).unwrap();
        std::fs::write(path("claim"), "data").unwrap();
        std::fs::write(path("group"), "data").unwrap();
        std::os::unix::fs::chown(path("group"), Some(0), Some(USER)).unwrap();
        std::fs::set_permissions(path("group"), PermissionsExt::from_mode(0o660)).unwrap();
        std::fs::write(path("host"), "data").unwrap();
        std::fs::write(path("half-made"), "").unwrap();
        std::fs::write(path("linked"), "data").unwrap();
        std::fs::hard_link(path("linked"), path("twice")).unwrap();
        let give =
            |name: &str, host: Option<&HostDisk>, may_make: bool| give_image(&root, name, host, may_make).is_ok();

        assert!(give("claim", None, true));
        assert_eq!((owner(&path("claim")), std::fs::read(path("claim")).unwrap()), (OURS, b"data".to_vec()));
        assert!(give("group", None, true));
        assert_eq!(owner(&path("group")), (0, USER), "fsGroup is enough");
        assert!(give("host", Some(&host), true) && give("twice", None, true));
        assert_eq!((owner(&path("host")), owner(&path("twice"))), ((0, 0), (0, 0)), "it could be anybody's");
        assert!(give("half-made", Some(&host), true));
        assert_eq!(owner(&path("half-made")), OURS);
        assert!(give("new", Some(&host), true) && give("new", Some(&host), true));
        assert_eq!((owner(&path("new")), std::fs::metadata(path("new")).unwrap().len()), (OURS, 0));
        assert!(!give("missing", Some(&host), false) && !path("missing").exists());
    }

    #[test]
    fn no_link_is_followed_and_a_directory_of_the_launcher_is_left_to_it() {
        if !is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (victim, claim) = (dir.path().join("victim"), dir.path().join("claim"));
        std::fs::write(&victim, "secret").unwrap();
        std::fs::create_dir(&claim).unwrap();
        symlink(&victim, claim.join("disk.img")).unwrap();
        let root = Root::open(&claim).unwrap();
        let trouble = give_image(&root, "disk.img", None, true).unwrap_err();
        assert_eq!((trouble.about("v").is_ok(), owner(&victim)), (true, (0, 0)), "the launcher reports it");
        std::os::unix::fs::chown(&claim, Some(USER), Some(USER)).unwrap();
        assert!(give_image(&root, "new.img", None, true).is_ok());
        assert!(!claim.join("new.img").exists());
    }

    #[test]
    fn only_a_block_device_of_the_container_changes_hands() {
        if !is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let node = |name: &str, kind: &str| {
            let path = dir.path().join(name);
            assert!(Command::new("mknod").arg(&path).args([kind, "7", "200"]).status().unwrap().success());
            path
        };
        let (block, character) = (node("data", "b"), node("null", "c"));
        let root = Root::open(dir.path()).unwrap();
        assert!(give_device(&root, "data").is_ok() && give_device(&root, "null").is_ok());
        assert_eq!((owner(&block), owner(&character)), (OURS, (0, 0)));
        assert!(give_device(&root, "missing").is_err_and(|trouble| trouble.about("missing").is_ok()));
    }

    #[test]
    fn each_volume_is_looked_for_where_it_is() {
        let vmi: VirtualMachineInstance = serde_json::from_value(json!({
            "metadata": {},
            "spec": {"domain": {"devices": {}}, "volumes": [
                {"name": "file", "persistentVolumeClaim": {"claimName": "a"}},
                {"name": "only-read", "persistentVolumeClaim": {"claimName": "a", "readOnly": true}},
                {"name": "device", "dataVolume": {"name": "b"}},
                {"name": "base", "ephemeral": {"persistentVolumeClaim": {"claimName": "c"}}},
                {"name": "node", "hostDisk": {"path": "/data/vm.img", "type": "Disk"}},
                {"name": "plugged", "dataVolume": {"name": "d"}},
                {"name": "scratch", "emptyDisk": {"capacity": "1Gi"}},
            ]},
            "status": {"volumeStatus": [
                {"name": "device", "target": "", "persistentVolumeClaimInfo": {"volumeMode": "Block"}},
                {"name": "plugged", "target": "", "hotplugVolume": {}},
            ]},
        }))
        .unwrap();
        let told = |volume| match disk(&vmi, volume) {
            None => "nothing".to_owned(),
            Some(Disk::Device) => "device".to_owned(),
            Some(Disk::Image { name, host, may_make }) => format!("{name} {} {may_make}", host.is_some()),
        };
        let all: Vec<String> = vmi.spec.volumes.iter().map(told).collect();
        let expected = [
            "disk.img false true",
            "disk.img false false",
            "device",
            "disk.img false false",
            "vm.img true false",
            "nothing",
            "nothing",
        ];
        assert_eq!(all, expected);
    }
}
