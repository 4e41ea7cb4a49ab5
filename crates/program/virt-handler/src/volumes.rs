//! Plugged volumes: mounted by the kubelet for an attachment Pod, and from there put into the container of a launcher.
//!
//! ```text
//!  <attachment Pod>/volumes/kubernetes.io~csi/<PersistentVolume>/mount/disk.img ──┐
//!  <attachment Pod>/volumeDevices/kubernetes.io~csi/<PersistentVolume> ───────────┤
//!  <attachment Pod>/volumes/kubernetes.io~empty-dir/hotplug-disks/<volume>/<claim's UID>
//!                                                                                 ▼
//!  launcher's container:              /var/run/kubevirt/hotplug-disks/<volume>.img or <volume>
//! ```
//!
//! Every path is opened beneath a descriptor, without following links, and mounted by descriptor in the launcher's own
//! mount namespace: nothing depends on mount propagation, and nothing is left on the node when the launcher ends. Block
//! devices get a node of their own, for the launcher's user alone.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use hostfs::beneath::{OFlags, Root, descriptor_path};
use hostfs::device_rules;
use hostfs::graft::{Detached, Place};
use hostfs::process::ProcessId;
use launcher_contract::{USER, disks, paths};
use serde::{Deserialize, Serialize};
use vmstate::{Mount, Mounted, Shape};

use crate::launcher::volume as empty_dir;
use crate::uid::PodUid;

/// The attachment Pod's volume in which the container runtime makes the nodes of block claims.
const DEVICES_VOLUME: &str = "hotplug-disks";
/// The image while it is being made.
const UNFINISHED_IMAGE: &str = ".disk.img.new";

#[derive(Debug, thiserror::Error)]
pub(crate) enum VolumeError {
    #[error("virt-launcher exited before its volumes were mounted")]
    LauncherGone,
    #[error("attachment Pod {0:?} is not a UID")]
    BadUid(String),
    #[error("claim {0} does not exist")]
    NoClaim(String),
    #[error("claim {0} has no volume yet")]
    Unbound(String),
    #[error("failed to read claim {claim}")]
    Claim {
        claim: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("claim {0} is not mounted in its attachment Pod yet")]
    NotThere(String),
    #[error("claim {0} is a file system, and a block device was expected")]
    NoDevice(String),
    #[error("disk.img of claim {0} is not a regular file")]
    NoFile(String),
    #[error("there is no disk.img on claim {claim}, and one cannot be made: {why}")]
    NoImage { claim: String, why: String },
    #[error("failed to make the launcher the owner of what is on claim {claim}")]
    Own {
        claim: String,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Host(#[from] hostfs::Error),
}

/// Where a claim is on the node.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) name: String,
    pub(crate) uid: String,
    /// The PersistentVolume.
    pub(crate) volume: String,
}

/// What of the space on a claim a new disk image may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Space {
    pub(crate) reserved: u64,
    pub(crate) tolerated_percent: u8,
}

/// The plugged volumes of a launcher, by name.
pub(crate) type VolumeRecords = BTreeMap<String, VolumeRecord>;

/// A volume that is, or may be, in the launcher's container. Written before it is mounted, removed after it is unmounted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VolumeRecord {
    pub(crate) claim: String,
    pub(crate) shape: RecordedShape,
    /// The number of its device, which the launcher may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) device: Option<u64>,
    /// It is mounted for sure.
    pub(crate) done: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum RecordedShape {
    Image,
    Device,
    Directory,
}

impl VolumeRecord {
    pub(crate) fn of(mount: &Mount, device: Option<u64>) -> Self {
        let shape = match mount.shape {
            Shape::Image => RecordedShape::Image,
            Shape::Device => RecordedShape::Device,
            Shape::Directory => RecordedShape::Directory,
        };
        VolumeRecord { claim: mount.claim.clone(), shape, device, done: false }
    }

    /// What the state machine knows of it. One whose mount was interrupted is nobody's claim: it is taken out first.
    pub(crate) fn view(&self) -> Mounted {
        let shape = match self.shape {
            RecordedShape::Image => Shape::Image,
            RecordedShape::Device => Shape::Device,
            RecordedShape::Directory => Shape::Directory,
        };
        Mounted { claim: if self.done { self.claim.clone() } else { String::new() }, shape }
    }

    fn place(&self, volume: &str) -> String {
        match self.shape {
            RecordedShape::Image => format!("{volume}.img"),
            RecordedShape::Device | RecordedShape::Directory => volume.to_owned(),
        }
    }
}

/// A volume that was opened on the node and is mounted nowhere yet.
pub(crate) struct Opened {
    tree: Detached,
    pub(crate) record: VolumeRecord,
}

/// Opens a volume. Blocks.
pub(crate) fn open(
    pods: &Root,
    mount: &Mount,
    claim: &Claim,
    space: Space,
    scratch: &Path,
) -> Result<Opened, VolumeError> {
    let pod = PodUid::new(&mount.attachment).map_err(|_| VolumeError::BadUid(mount.attachment.clone()))?;
    let absent = |error: hostfs::Error| match error.is_not_found() {
        true => VolumeError::NotThere(claim.name.clone()),
        false => VolumeError::Host(error),
    };
    match mount.shape {
        Shape::Device => {
            let number = device(pods, &pod, mount, claim)?;
            let tree = Detached::block_device(number, USER, USER, scratch)?;
            Ok(Opened { tree, record: VolumeRecord::of(mount, Some(number)) })
        }
        Shape::Directory => {
            let directory = pods.open_dir(directory(&pod, claim)).map_err(absent)?;
            give(&directory, claim)?;
            let tree = Detached::of(&directory, &claim.name)?;
            Ok(Opened { tree, record: VolumeRecord::of(mount, None) })
        }
        Shape::Image => {
            let directory = pods.open_dir(directory(&pod, claim)).map_err(absent)?;
            let image = image(&directory, mount, claim, space)?;
            Ok(Opened { tree: Detached::of(&image, &claim.name)?, record: VolumeRecord::of(mount, None) })
        }
    }
}

/// Puts it into the launcher's container, and lets the launcher use its device. It can be taken out again once this has
/// returned. Blocks.
pub(crate) fn put(
    pods: &Root,
    launcher_pod: &PodUid,
    launcher: ProcessId,
    volume: &str,
    opened: Opened,
) -> Result<(), VolumeError> {
    let place = place(pods, launcher_pod, launcher)?;
    if let Some(number) = opened.record.device {
        device_rules::allow_block(launcher, number)?;
    }
    let is_directory = opened.record.shape == RecordedShape::Directory;
    Ok(place.put(&opened.tree, &opened.record.place(volume), is_directory)?)
}

/// Takes a volume out of the launcher's container. Fails while the launcher uses it. Blocks.
pub(crate) fn remove(
    pods: &Root,
    launcher_pod: &PodUid,
    launcher: ProcessId,
    volume: &str,
    record: &VolumeRecord,
) -> Result<(), VolumeError> {
    // What was mounted in a container that is gone is gone.
    match place(pods, launcher_pod, launcher) {
        Ok(place) => place.remove(&record.place(volume))?,
        Err(VolumeError::LauncherGone) => return Ok(()),
        Err(error) => return Err(error),
    }
    match record.device {
        Some(number) => Ok(device_rules::deny_block(launcher, number)?),
        None => Ok(()),
    }
}

fn place(pods: &Root, launcher_pod: &PodUid, launcher: ProcessId) -> Result<Place, VolumeError> {
    if !launcher.alive() {
        return Err(VolumeError::LauncherGone);
    }
    let directory = pods.open_dir(empty_dir(launcher_pod, paths::HOTPLUG_VOLUME))?;
    Place::of(launcher, paths::HOTPLUG_DISKS, &directory)?.ok_or(VolumeError::LauncherGone)
}

/// The file system of a claim, as the kubelet mounts it for a Pod.
fn directory(pod: &PodUid, claim: &Claim) -> PathBuf {
    Path::new(pod.as_str()).join("volumes/kubernetes.io~csi").join(&claim.volume).join("mount")
}

/// The number of a claim's block device. The node's own record of it comes first; with the kubelet that is a link out of
/// the directory, and the node that the container runtime has made counts.
fn device(pods: &Root, pod: &PodUid, mount: &Mount, claim: &Claim) -> Result<u64, VolumeError> {
    let of_node = Path::new(pod.as_str()).join("volumeDevices/kubernetes.io~csi").join(&claim.volume);
    let of_runtime = empty_dir(pod, DEVICES_VOLUME).join(&mount.volume).join(&claim.uid);
    for path in [of_node, of_runtime] {
        let found = match pods.open_file(&path, OFlags::PATH | OFlags::CLOEXEC) {
            Ok(found) => found.metadata().map_err(|source| own(claim, source))?,
            Err(error) if error.is_not_found() || error.errno() == Some(libc::ELOOP) => continue,
            Err(error) => return Err(error.into()),
        };
        if !found.file_type().is_block_device() {
            return Err(VolumeError::NoDevice(claim.name.clone()));
        }
        return Ok(found.rdev());
    }
    Err(VolumeError::NotThere(claim.name.clone()))
}

/// The disk image on a claim; makes it if there is none.
fn image(directory: &Root, mount: &Mount, claim: &Claim, space: Space) -> Result<File, VolumeError> {
    let open = || directory.open_file(paths::DISK_IMAGE, OFlags::PATH | OFlags::CLOEXEC);
    let image = match open() {
        Err(error) if error.is_not_found() => {
            make_image(directory, mount, claim, space)?;
            open()?
        }
        other => other?,
    };
    if !image.metadata().map_err(|source| own(claim, source))?.is_file() {
        return Err(VolumeError::NoFile(claim.name.clone()));
    }
    give(&image, claim)?;
    Ok(image)
}

/// Makes the launcher's user the owner of what a descriptor refers to.
fn give(owned: impl AsFd, claim: &Claim) -> Result<(), VolumeError> {
    let path = descriptor_path(&owned);
    let found = std::fs::metadata(&path).map_err(|source| own(claim, source))?;
    if (found.uid(), found.gid()) == (USER, USER) {
        return Ok(());
    }
    match std::os::unix::fs::chown(path, Some(USER), Some(USER)) {
        // It may be readable all the same.
        Err(error) if error.raw_os_error() == Some(libc::EROFS) => Ok(()),
        other => other.map_err(|source| own(claim, source)),
    }
}

fn own(claim: &Claim, source: io::Error) -> VolumeError {
    VolumeError::Own { claim: claim.name.clone(), source }
}

/// Makes a sparse raw image that fills the claim. It appears when it is complete; one that appears meanwhile stays.
fn make_image(directory: &Root, mount: &Mount, claim: &Claim, space: Space) -> Result<(), VolumeError> {
    let cannot = |why: String| VolumeError::NoImage { claim: claim.name.clone(), why };
    let failed = |error: io::Error| cannot(error.to_string());
    if mount.image_bytes == 0 {
        return Err(cannot("the size of the claim is not known".to_owned()));
    }
    let found = rustix::fs::fstatvfs(directory).map_err(|error| failed(error.into()))?;
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    let image = disks::image(mount.image_bytes, free, space.reserved, space.tolerated_percent);
    let image = image.map_err(|error| cannot(error.to_string()))?;
    directory.remove(UNFINISHED_IMAGE)?;
    let file = directory.open_file(UNFINISHED_IMAGE, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)?;
    let finish = || {
        file.set_len(image.bytes)?;
        std::os::unix::fs::fchown(&file, Some(USER), Some(USER))?;
        file.sync_all()?;
        let (dir, flags) = (directory.as_fd(), rustix::fs::RenameFlags::NOREPLACE);
        match rustix::fs::renameat_with(dir, UNFINISHED_IMAGE, dir, paths::DISK_IMAGE, flags) {
            Err(rustix::io::Errno::EXIST) => {}
            other => other?,
        }
        Ok(rustix::fs::fsync(directory)?)
    };
    finish().map_err(failed)?;
    directory.remove(UNFINISHED_IMAGE)?;
    tracing::info!(claim = claim.name, bytes = image.bytes, "disk image created");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::process::{Child, Command, Stdio};

    use super::*;

    const SPACE: Space = Space { reserved: 0, tolerated_percent: 10 };

    /// Pods' directories with an attachment Pod and a launcher, and a container of the launcher.
    struct Node {
        dir: tempfile::TempDir,
        pods: Root,
        launcher: Child,
    }

    impl Node {
        fn new() -> Option<Node> {
            if !rustix::process::geteuid().is_root() {
                test_support::skip("only root can mount");
                return None;
            }
            let dir = tempfile::tempdir().unwrap();
            let plugged = dir.path().join("launcher/volumes/kubernetes.io~empty-dir/hotplug-disks");
            fs::create_dir_all(&plugged).unwrap();
            fs::create_dir_all(dir.path().join("attachment/volumes/kubernetes.io~csi/pv-1/mount")).unwrap();
            let script = "mount -t tmpfs run /run && mkdir -p /run/kubevirt/hotplug-disks && \
                mount --bind \"$D\" /run/kubevirt/hotplug-disks && mount -o remount,bind,nodev /run/kubevirt/hotplug-disks && \
                echo ready && exec sleep 100";
            let mut launcher = Command::new("unshare")
                .args(["--mount", "--propagation", "private", "sh", "-c", script])
                .env("D", &plugged)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut line = [0; 6];
            io::Read::read_exact(launcher.stdout.as_mut().unwrap(), &mut line).unwrap();
            Some(Node { pods: Root::open(dir.path()).unwrap(), dir, launcher })
        }

        fn process(&self) -> ProcessId {
            ProcessId::of(self.launcher.id().try_into().unwrap()).unwrap()
        }

        fn inside(&self, script: &str) -> String {
            let target = self.launcher.id().to_string();
            let output = Command::new("nsenter").args(["-m", "-t", &target, "sh", "-c", script]).output().unwrap();
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        }

        fn open(&self, mount: &Mount) -> Result<Opened, VolumeError> {
            open(&self.pods, mount, &claim(), SPACE, self.dir.path())
        }

        fn put(&self, opened: Opened) -> Result<VolumeRecord, VolumeError> {
            let record = opened.record.clone();
            put(&self.pods, &uid("launcher"), self.process(), "data", opened).map(|()| record)
        }

        fn remove(&self, record: &VolumeRecord) -> Result<(), VolumeError> {
            remove(&self.pods, &uid("launcher"), self.process(), "data", record)
        }

        fn image(&self) -> PathBuf {
            self.dir.path().join("attachment/volumes/kubernetes.io~csi/pv-1/mount/disk.img")
        }
    }

    impl Drop for Node {
        fn drop(&mut self) {
            let _ = self.launcher.kill();
            let _ = self.launcher.wait();
        }
    }

    fn uid(name: &str) -> PodUid {
        PodUid::new(name).unwrap()
    }

    fn claim() -> Claim {
        Claim { name: "claim".to_owned(), uid: "claim-uid".to_owned(), volume: "pv-1".to_owned() }
    }

    fn mount(shape: Shape) -> Mount {
        Mount {
            volume: "data".to_owned(),
            claim: "claim".to_owned(),
            attachment: "attachment".to_owned(),
            shape,
            image_bytes: 1 << 20,
        }
    }

    #[test]
    fn an_image_is_made_once_belongs_to_the_launcher_and_comes_and_goes() {
        let Some(node) = Node::new() else { return };
        let record = node.put(node.open(&mount(Shape::Image)).unwrap()).unwrap();
        let seen = "stat -c '%s %u %g %a' /run/kubevirt/hotplug-disks/data.img";
        assert_eq!(node.inside(seen), "1048576 107 107 600");
        node.inside("printf guest | dd conv=notrunc of=/run/kubevirt/hotplug-disks/data.img status=none");
        assert!(fs::read(node.image()).unwrap().starts_with(b"guest"));
        node.remove(&record).unwrap();
        node.remove(&record).unwrap();
        assert_eq!(node.inside("ls /run/kubevirt/hotplug-disks"), "");
        // As another VM finds it, or the same one later.
        for _ in 0..2 {
            node.put(node.open(&mount(Shape::Image)).unwrap()).unwrap();
        }
        assert_eq!(node.inside("grep -c data.img /proc/self/mountinfo"), "1");
        assert!(fs::read(node.image()).unwrap().starts_with(b"guest"), "it is kept");
    }

    #[test]
    fn a_device_is_the_one_of_the_claim_whoever_made_its_node() {
        let Some(node) = Node::new() else { return };
        assert!(matches!(node.open(&mount(Shape::Device)), Err(VolumeError::NotThere(_))));
        let number = |opened: Opened| (opened.record.device, rustix::fs::makedev(7, 240));
        let mknod = |path: &Path| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            assert!(Command::new("mknod").arg(path).args(["b", "7", "240"]).status().unwrap().success());
        };
        let attachment = node.dir.path().join("attachment");
        let of_node = attachment.join("volumeDevices/kubernetes.io~csi/pv-1");
        mknod(&of_node);
        let (found, expected) = number(node.open(&mount(Shape::Device)).unwrap());
        assert_eq!(found, Some(expected));
        // The kubelet has a link there.
        fs::rename(&of_node, attachment.join("elsewhere")).unwrap();
        symlink(attachment.join("elsewhere"), &of_node).unwrap();
        assert!(matches!(node.open(&mount(Shape::Device)), Err(VolumeError::NotThere(_))), "a link is not followed");
        mknod(&attachment.join("volumes/kubernetes.io~empty-dir/hotplug-disks/data/claim-uid"));
        let record = node.put(node.open(&mount(Shape::Device)).unwrap()).unwrap();
        let seen = "stat -c '%F %t %T %u %a' /run/kubevirt/hotplug-disks/data";
        assert_eq!(node.inside(seen), "block special file 7 f0 107 600");
        node.remove(&record).unwrap();
        fs::remove_file(&of_node).unwrap();
        fs::write(&of_node, "").unwrap();
        assert!(matches!(node.open(&mount(Shape::Device)), Err(VolumeError::NoDevice(_))));
    }

    #[test]
    fn a_directory_takes_files_of_the_launcher() {
        let Some(node) = Node::new() else { return };
        let record = node.put(node.open(&mount(Shape::Directory)).unwrap()).unwrap();
        node.inside("echo dump >/run/kubevirt/hotplug-disks/data/memory.dump");
        assert_eq!(fs::read_to_string(node.image().with_file_name("memory.dump")).unwrap(), "dump\n");
        node.remove(&record).unwrap();
        assert!(node.image().with_file_name("memory.dump").exists());
    }

    #[test]
    fn what_a_tenant_puts_in_the_way_is_refused() {
        let Some(node) = Node::new() else { return };
        let secret = node.dir.path().join("secret");
        fs::write(&secret, "of the node").unwrap();
        symlink(&secret, node.image()).unwrap();
        assert!(matches!(node.open(&mount(Shape::Image)), Err(VolumeError::Host(_))), "a link is not followed");
        assert_eq!(fs::metadata(&secret).unwrap().uid(), 0);
        fs::remove_file(node.image()).unwrap();
        fs::create_dir(node.image()).unwrap();
        assert!(matches!(node.open(&mount(Shape::Image)), Err(VolumeError::NoFile(_))));
        fs::remove_dir(node.image()).unwrap();

        for pod in ["../launcher", "", "gone"] {
            let mount = Mount { attachment: pod.to_owned(), ..mount(Shape::Image) };
            assert!(node.open(&mount).is_err(), "{pod:?}");
        }
        let unknown = Mount { image_bytes: 0, ..mount(Shape::Image) };
        assert!(matches!(node.open(&unknown), Err(VolumeError::NoImage { .. })));
        let huge = Mount { image_bytes: u64::MAX / 2, ..mount(Shape::Image) };
        assert!(matches!(node.open(&huge), Err(VolumeError::NoImage { .. })));
        assert!(!node.image().exists());

        // The launcher's own directory.
        let opened = node.open(&mount(Shape::Image)).unwrap();
        let plugged = node.dir.path().join("launcher/volumes/kubernetes.io~empty-dir/hotplug-disks");
        symlink(&secret, plugged.join("data.img")).unwrap();
        assert!(node.put(opened).is_err(), "a link is not followed");
        assert_eq!(fs::read_to_string(&secret).unwrap(), "of the node");
    }

    #[test]
    fn a_launcher_that_is_gone_has_nothing_to_unmount() {
        let Some(mut node) = Node::new() else { return };
        let opened = node.open(&mount(Shape::Image)).unwrap();
        let process = node.process();
        node.launcher.kill().unwrap();
        node.launcher.wait().unwrap();
        let record = opened.record.clone();
        let put = put(&node.pods, &uid("launcher"), process, "data", opened);
        assert!(matches!(put, Err(VolumeError::LauncherGone)));
        remove(&node.pods, &uid("launcher"), process, "data", &record).unwrap();
    }
}
