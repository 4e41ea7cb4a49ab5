//! State that must survive a restart, one file per launcher.
//!
//! ```text
//! <private dir>/ghost-records/<pod uid>        this launcher may be alive; whose it is
//! <private dir>/network-info-cache/<pod uid>   how far phase 1 of its network came
//! <private dir>/hotplug-volume-mount-state/<pod uid>   volumes that were mounted for it
//! ```

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::v1::VirtualMachineInstance;
use hostfs::atomic;
use hostfs::process::ProcessId;
use informer::Key;
use launcher_contract::types::Lease;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::uid::{PodUid, VmiUid};
use crate::volumes::VolumeRecords;

/// A launcher that may be running on this node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GhostRecord {
    pub(crate) pod_uid: PodUid,
    pub(crate) vmi_uid: VmiUid,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The guest's grace period, for when the VMI is gone.
    pub(crate) grace_period_seconds: Option<i64>,
    /// The launcher's process; set when it first answers.
    pub(crate) launcher: Option<ProcessId>,
    /// Name of the Pod, which migrations refer to; known once the launcher has answered.
    #[serde(default)]
    pub(crate) pod_name: Option<String>,
}

impl GhostRecord {
    /// A launcher of this VMI that has not answered yet. `None` if the VMI lacks a name or a usable UID.
    pub(crate) fn new(vmi: &VirtualMachineInstance, pod_uid: PodUid) -> Option<Self> {
        Some(Self {
            pod_uid,
            vmi_uid: VmiUid::new(vmi.metadata.uid.as_deref()?).ok()?,
            namespace: vmi.metadata.namespace.clone()?,
            name: vmi.metadata.name.clone()?,
            grace_period_seconds: vmi.spec.termination_grace_period_seconds,
            launcher: None,
            pod_name: None,
        })
    }

    pub(crate) fn vmi_key(&self) -> Key {
        Key::new(self.namespace.clone(), self.name.clone())
    }

    /// Whether the launcher was started for this VMI, and not for another one of the same name.
    pub(crate) fn is_of(&self, vmi: &VirtualMachineInstance) -> bool {
        vmi.metadata.uid.as_deref() == Some(self.vmi_uid.as_str())
    }
}

/// Progress of phase 1 of a launcher's network. No record means that it has not started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "camelCase")]
pub(crate) enum NetworkRecord {
    Started,
    Finished { interfaces: Vec<PodInterface> },
}

impl NetworkRecord {
    pub(crate) fn leases(&self) -> Vec<Lease> {
        match self {
            NetworkRecord::Started => Vec::new(),
            NetworkRecord::Finished { interfaces } => interfaces.iter().filter_map(|i| i.lease.clone()).collect(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodInterface {
    pub(crate) network: String,
    pub(crate) link: String,
    pub(crate) pod_ips: Vec<IpAddr>,
    /// What a bridged guest is told by DHCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lease: Option<Lease>,
}

/// The directories of records.
#[derive(Debug, Clone)]
pub(crate) struct Records {
    ghosts: Arc<Path>,
    networks: Arc<Path>,
    volumes: Arc<Path>,
}

impl Records {
    pub(crate) fn open(private_dir: &Path) -> Result<Self, Error> {
        let directory = |name: &str| {
            let path = private_dir.join(name);
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
            made.map_err(|err| Error::Directory { path: path.clone(), err })?;
            // An earlier virt-handler may have been killed while it wrote.
            atomic::sweep(&path)?;
            Ok::<_, Error>(Arc::from(path))
        };
        Ok(Records {
            ghosts: directory("ghost-records")?,
            networks: directory("network-info-cache")?,
            volumes: directory("hotplug-volume-mount-state")?,
        })
    }

    /// All launchers that may be running. An unreadable file is reported and kept: it may be the only trace of a guest.
    pub(crate) fn ghosts(&self) -> Result<Vec<GhostRecord>, Error> {
        let failed = |err: io::Error| Error::Directory { path: PathBuf::from(&*self.ghosts), err };
        let mut records = Vec::new();
        for entry in fs::read_dir(&self.ghosts).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let Some(pod_uid) = name.to_str().and_then(|name| PodUid::new(name).ok()) else { continue };
            match atomic::read_json::<GhostRecord>(self.ghosts.join(pod_uid.as_str())) {
                Ok(Some(record)) if record.pod_uid == pod_uid => records.push(record),
                Ok(Some(_)) => tracing::warn!(%pod_uid, "ghost record belongs to another Pod"),
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(%pod_uid, error = crate::error::chain(&error), "ghost record is unreadable")
                }
            }
        }
        Ok(records)
    }

    pub(crate) fn write_ghost(&self, record: &GhostRecord) -> Result<(), hostfs::Error> {
        atomic::write_json(self.ghosts.join(record.pod_uid.as_str()), record)
    }

    pub(crate) fn network(&self, pod_uid: &PodUid) -> Result<Option<NetworkRecord>, hostfs::Error> {
        atomic::read_json(self.networks.join(pod_uid.as_str()))
    }

    pub(crate) fn write_network(&self, pod_uid: &PodUid, record: &NetworkRecord) -> Result<(), hostfs::Error> {
        atomic::write_json(self.networks.join(pod_uid.as_str()), record)
    }

    pub(crate) fn volumes(&self, pod_uid: &PodUid) -> Result<VolumeRecords, hostfs::Error> {
        Ok(atomic::read_json(self.volumes.join(pod_uid.as_str()))?.unwrap_or_default())
    }

    pub(crate) fn write_volumes(&self, pod_uid: &PodUid, volumes: &VolumeRecords) -> Result<(), hostfs::Error> {
        let path = self.volumes.join(pod_uid.as_str());
        if volumes.is_empty() { atomic::remove(path) } else { atomic::write_json(path, volumes) }
    }

    /// Where a file system may be mounted in a mount namespace that nobody else sees.
    pub(crate) fn scratch(&self) -> &Path {
        &self.volumes
    }

    /// Removes the records of a launcher. The ghost record is removed last: as long as it exists, the others can be
    /// found.
    pub(crate) fn remove(&self, pod_uid: &PodUid) -> Result<(), hostfs::Error> {
        atomic::remove(self.networks.join(pod_uid.as_str()))?;
        atomic::remove(self.volumes.join(pod_uid.as_str()))?;
        atomic::remove(self.ghosts.join(pod_uid.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(pod_uid: &str) -> GhostRecord {
        GhostRecord {
            pod_uid: PodUid::new(pod_uid).unwrap(),
            vmi_uid: VmiUid::new("vmi-1").unwrap(),
            namespace: "default".to_string(),
            name: "testvm".to_string(),
            grace_period_seconds: Some(7),
            launcher: ProcessId::current().ok(),
            pod_name: Some("virt-launcher-testvm".to_string()),
        }
    }

    #[test]
    fn records_survive_a_restart_and_go_when_removed() {
        let dir = tempfile::tempdir().unwrap();
        let pod = PodUid::new("pod-1").unwrap();
        let finished = NetworkRecord::Finished {
            interfaces: vec![PodInterface {
                network: "default".to_string(),
                link: "eth0".to_string(),
                pod_ips: vec!["10.244.1.7".parse().unwrap()],
                lease: Some(Lease {
                    network: "default".to_string(),
                    address: "10.244.1.7".parse().unwrap(),
                    prefix_len: 24,
                    routes: vec![],
                }),
            }],
        };
        {
            let records = Records::open(dir.path()).unwrap();
            records.write_ghost(&record("pod-1")).unwrap();
            records.write_network(&pod, &NetworkRecord::Started).unwrap();
            records.write_network(&pod, &finished).unwrap();
        }
        let records = Records::open(dir.path()).unwrap();
        assert_eq!(records.ghosts().unwrap(), [record("pod-1")]);
        assert_eq!(records.network(&pod).unwrap(), Some(finished));
        let (shape, device) = (crate::volumes::RecordedShape::Device, Some(1793));
        let plugged = crate::volumes::VolumeRecord { claim: "claim".to_string(), shape, device, done: true };
        let volumes = VolumeRecords::from([("data".to_string(), plugged)]);
        records.write_volumes(&pod, &volumes).unwrap();
        assert_eq!(records.volumes(&pod).unwrap(), volumes);
        for _ in 0..2 {
            records.remove(&pod).unwrap();
            assert_eq!(records.ghosts().unwrap(), []);
            assert_eq!(records.network(&pod).unwrap(), None);
            assert_eq!(records.volumes(&pod).unwrap(), VolumeRecords::new());
        }
    }

    #[test]
    fn foreign_and_broken_files_are_passed_over_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::open(dir.path()).unwrap();
        let ghosts = dir.path().join("ghost-records");
        records.write_ghost(&record("pod-1")).unwrap();
        fs::write(ghosts.join("pod-2"), "{ not json").unwrap();
        fs::write(ghosts.join(".pod-3.tmp"), "{}").unwrap();
        fs::copy(ghosts.join("pod-1"), ghosts.join("pod-4")).unwrap();
        fs::write(ghosts.join(".pod-4.17-0.tmp"), "{").unwrap();
        let hostile = fs::read_to_string(ghosts.join("pod-1")).unwrap().replace("vmi-1", "../../etc");
        fs::write(ghosts.join("pod-5"), hostile).unwrap();
        assert_eq!(records.ghosts().unwrap(), [record("pod-1")]);
        assert!(ghosts.join("pod-2").exists());
        Records::open(dir.path()).unwrap();
        assert!(!ghosts.join(".pod-4.17-0.tmp").exists(), "its writer was killed");
        assert!(ghosts.join("pod-2").exists());
    }
}
