//! File layout of a Pod's state. One directory per Pod, named by its UID, holds everything that a new process needs to
//! take over or remove the Pod:
//!
//! ```text
//! <pods>/<uid>/
//!   pod.json                 the Pod as it was accepted, and when
//!   spec.json                what the shim runs: every reference resolved
//!   shim.json  shim.lock     the shim's process; the lock is held as long as it lives
//!   shim.log                 what the shim itself has to say
//!   stop.json                since when the Pod is being stopped
//!   released                 its processes, groups, network and mounts are gone; only records are left
//!   status/<container>.json  written by the shim alone
//!   logs/<container>.log     standard output and error; .log.1 is the part before
//!   termination/<container>  what the container leaves as its last message
//!   ns/net                   keeps the network namespace
//!   root/                    where a container's root is put together, inside its own mount namespace
//!   claims.json              what the Pod has taken from the volume engine
//!   volumes/kubernetes.io~<kind>/<volume>/
//!   volumes/kubernetes.io~csi/<pv>/mount, volumeDevices/kubernetes.io~csi/<pv>   claims
//! <pods>/../addresses/<ip>   the UID that holds the address
//! ```

use std::path::{Path, PathBuf};

pub use machinery::uid::{InvalidUid, PodUid};

/// A hash of the UID, for names and choices that must be the same in every process.
pub(crate) fn digest(uid: &PodUid) -> u64 {
    // FNV-1a: short, stable and sufficient here.
    uid.as_str()
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// The paths of one Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodPaths {
    dir: PathBuf,
}

impl PodPaths {
    pub fn new(pods_dir: &Path, uid: &PodUid) -> PodPaths {
        PodPaths { dir: pods_dir.join(uid.as_str()) }
    }

    /// For processes that are given the directory itself.
    pub(crate) fn at(dir: PathBuf) -> PodPaths {
        PodPaths { dir }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn pod(&self) -> PathBuf {
        self.dir.join("pod.json")
    }

    pub(crate) fn spec(&self) -> PathBuf {
        self.dir.join("spec.json")
    }

    pub(crate) fn shim(&self) -> PathBuf {
        self.dir.join("shim.json")
    }

    pub(crate) fn shim_lock(&self) -> PathBuf {
        self.dir.join("shim.lock")
    }

    pub(crate) fn shim_log(&self) -> PathBuf {
        self.dir.join("shim.log")
    }

    pub(crate) fn stop(&self) -> PathBuf {
        self.dir.join("stop.json")
    }

    pub(crate) fn released(&self) -> PathBuf {
        self.dir.join("released")
    }

    pub(crate) fn status_dir(&self) -> PathBuf {
        self.dir.join("status")
    }

    pub(crate) fn status(&self, container: &str) -> PathBuf {
        self.status_dir().join(format!("{container}.json"))
    }

    pub(crate) fn logs_dir(&self) -> PathBuf {
        self.dir.join("logs")
    }

    pub(crate) fn log(&self, container: &str) -> PathBuf {
        self.logs_dir().join(format!("{container}.log"))
    }

    pub(crate) fn termination(&self, container: &str) -> PathBuf {
        self.dir.join("termination").join(container)
    }

    /// The bind mount that keeps the Pod's netns.
    pub fn netns(&self) -> PathBuf {
        self.dir.join("ns/net")
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.dir.join("root")
    }

    pub(crate) fn claims(&self) -> PathBuf {
        self.dir.join("claims.json")
    }

    /// Where a claim's PersistentVolume is, in the kubelet's layout: a directory, or the node of a block device. With the
    /// kubelet, the latter is a link.
    pub fn claim(&self, persistent_volume: &str, block: bool) -> PathBuf {
        const PLUGIN: &str = "kubernetes.io~csi";
        match block {
            true => self.dir.join("volumeDevices").join(PLUGIN).join(persistent_volume),
            false => self.dir.join("volumes").join(PLUGIN).join(persistent_volume).join("mount"),
        }
    }

    /// The directory of a volume, in the kubelet's layout.
    pub fn volume(&self, plugin: &str, name: &str) -> PathBuf {
        self.dir.join("volumes").join(format!("kubernetes.io~{plugin}")).join(name)
    }
}

/// The UIDs of all Pods that have state on disk.
pub(crate) fn pods_on_disk(pods_dir: &Path) -> Result<Vec<PodUid>, std::io::Error> {
    let entries = match std::fs::read_dir(pods_dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    Ok(entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_has_a_directory_by_its_uid() {
        let uid: PodUid = "0d6f1c0e-1111-4222-8333-444455556666".parse().unwrap();
        let paths = PodPaths::new(Path::new("/d/pods"), &uid);
        assert_eq!(paths.log("compute"), Path::new("/d/pods/0d6f1c0e-1111-4222-8333-444455556666/logs/compute.log"));
    }
}
