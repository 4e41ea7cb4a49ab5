//! The records on disk about a Pod and its containers.

use std::collections::BTreeMap;
use std::path::PathBuf;

use hostfs::cgroup::Limits;
use hostfs::process::ProcessId;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use podstate::{Process, RestartPolicy, Stage};
use serde::{Deserialize, Serialize};

/// `pod.json`
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Accepted {
    pub(crate) at: Timestamp,
    pub(crate) pod: Pod,
}

/// `stop.json`
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Stopping {
    pub(crate) since: Timestamp,
}

/// The first process of a running container.
pub fn process_of(stage: &Stage) -> Option<ProcessId> {
    match stage {
        Stage::Running { process: Process { pid, start_time, boot }, .. } => {
            Some(ProcessId { pid: *pid, start_time: *start_time, boot: *boot })
        }
        Stage::Exited(_) | Stage::BackingOff { .. } => None,
    }
}

/// A process in the form of a record.
pub(crate) fn recorded(process: ProcessId) -> Process {
    let ProcessId { pid, start_time, boot } = process;
    Process { pid, start_time, boot }
}

/// `spec.json`: a resolved Pod for the shim. It depends only on files on this machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ShimSpec {
    pub(crate) hostname: String,
    pub(crate) restart_policy: RestartPolicy,
    /// The Pod's cgroup, the parent of its containers' cgroups.
    pub(crate) cgroup: String,
    /// Files for `/etc` of every container.
    pub(crate) etc: BTreeMap<String, String>,
    /// The program that comes first in the containers' PATH.
    pub(crate) exe: PathBuf,
    pub(crate) init_containers: Vec<ContainerSpec>,
    pub(crate) containers: Vec<ContainerSpec>,
}

impl ShimSpec {
    pub(crate) fn all(&self) -> impl Iterator<Item = &ContainerSpec> {
        self.init_containers.iter().chain(&self.containers)
    }

    pub(crate) fn cgroup_of(&self, container: &ContainerSpec) -> String {
        format!("{}/{}", self.cgroup, container.name)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ContainerSpec {
    pub(crate) name: String,
    pub(crate) root: RootSource,
    pub(crate) read_only_root: bool,
    pub(crate) argv: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) cwd: String,
    pub(crate) credentials: Credentials,
    pub(crate) mounts: Vec<MountSpec>,
    /// Device files below `/dev` in addition to the usual ones.
    pub(crate) devices: Vec<String>,
    #[serde(default)]
    pub(crate) block_devices: Vec<BlockDevice>,
    pub(crate) limits: Limits,
    pub(crate) oom_score_adj: i32,
    pub(crate) termination: TerminationMessage,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RootSource {
    /// The host's own programs and libraries, read-only.
    Host,
    /// A directory of the image store with `rootfs` and `lock`.
    Image(PathBuf),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Credentials {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
    /// Bounding set, as bits.
    pub(crate) bounding: u64,
    /// Ambient set of a process that is not root, as bits.
    pub(crate) ambient: u64,
    pub(crate) no_new_privileges: bool,
}

/// A block claim in a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BlockDevice {
    /// The device's node on the machine.
    pub(crate) source: PathBuf,
    /// Its path in the container.
    pub(crate) target: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MountSpec {
    pub(crate) source: MountSource,
    /// A path below the source, which a container may have created: symlinks are not followed.
    pub(crate) sub_path: Option<String>,
    pub(crate) target: String,
    pub(crate) read_only: bool,
    /// Later mounts of the node below the source propagate into the container.
    #[serde(default)]
    pub(crate) follows_node: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum MountSource {
    Path(PathBuf),
    /// As in [`RootSource::Image`].
    Image(PathBuf),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TerminationMessage {
    pub(crate) path: String,
    /// If a failed container left no message, use the end of its log.
    pub(crate) fall_back_to_logs: bool,
}
