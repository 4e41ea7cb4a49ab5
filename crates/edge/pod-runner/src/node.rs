//! The Node object: created if missing, with its status and heartbeat kept up to date.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeAddress, NodeCondition, NodeSpec, NodeStatus, NodeSystemInfo};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Wire;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use launcher_contract::devices::{KVM, TUN, VHOST_NET};
use machinery::quantity::{Format, Quantity};
use serde_json::json;

use crate::error::Error;
use crate::resolve::amounts;

/// More than the Pods of a node could ever request; these devices can be shared.
const DEVICE_COUNT: i64 = 1000;
const MOST_PODS: i64 = 110;

/// The capacity of the node.
#[derive(Clone, Debug)]
pub struct Capacity {
    pub cpu_milli: i64,
    pub memory_bytes: i64,
    pub ephemeral_storage_bytes: i64,
    /// Whether guests can use KVM here, as determined by [`hostfs::kvm::usable`].
    pub kvm: bool,
}

impl Capacity {
    /// The whole machine; `data_dir` is where the files of Pods are.
    pub fn of_machine(data_dir: &std::path::Path, kvm: bool) -> Capacity {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let memory = rustix::system::sysinfo();
        let disk = rustix::fs::statvfs(data_dir).map_or(0, |s| s.f_blocks.saturating_mul(s.f_frsize));
        let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        Capacity {
            cpu_milli: signed(cpus as u64 * 1000),
            memory_bytes: signed(memory.totalram.saturating_mul(u64::from(memory.mem_unit))),
            ephemeral_storage_bytes: signed(disk),
            kvm,
        }
    }

    fn amounts(&self) -> BTreeMap<String, Wire> {
        let mut all = amounts([
            ("cpu", Quantity::from_milli(self.cpu_milli, Format::DecimalSi)),
            ("memory", Quantity::bytes(self.memory_bytes)),
            ("ephemeral-storage", Quantity::bytes(self.ephemeral_storage_bytes)),
            ("pods", Quantity::new(MOST_PODS, Format::DecimalSi)),
        ]);
        let devices = [(TUN, true), (KVM, self.kvm), (VHOST_NET, fs::metadata(VHOST_NET.path()).is_ok())];
        for (device, _) in devices.into_iter().filter(|(_, works)| *works) {
            let count = Quantity::new(DEVICE_COUNT, Format::DecimalSi);
            all.insert(device.resource(), count.into());
        }
        all
    }
}

pub(crate) struct NodeKeeper {
    pub(crate) api: Api<Node>,
    pub(crate) name: String,
    pub(crate) address: Ipv4Addr,
    pub(crate) pod_cidr: String,
    pub(crate) capacity: Capacity,
}

impl NodeKeeper {
    /// Creates the Node if it is missing, adds missing labels, and writes the status with a fresh heartbeat.
    pub(crate) async fn keep(&self) -> Result<(), Error> {
        let failed = |doing: &str| {
            let doing = format!("{doing} Node {}", self.name);
            move |err| Error::Api { doing, err }
        };
        let mut node = match self.api.get_opt(&self.name).await.map_err(failed("read"))? {
            Some(node) => node,
            None => self.api.create(&PostParams::default(), &self.fresh()).await.map_err(failed("create"))?,
        };
        if let Some(labels) = self.missing_labels(&node) {
            let patch = Patch::Merge(json!({ "metadata": { "labels": labels } }));
            node = self.api.patch(&self.name, &PatchParams::default(), &patch).await.map_err(failed("label"))?;
        }
        // Conditions of others are kept; a merge patch replaces whole lists, so it is guarded by the resource version
        // that was read.
        let status = self.status(node.status.clone().unwrap_or_default(), Timestamp::now());
        let version = node.metadata.resource_version;
        let patch = Patch::Merge(json!({ "metadata": { "resourceVersion": version }, "status": status }));
        self.api.patch_status(&self.name, &PatchParams::default(), &patch).await.map_err(failed("report on"))?;
        Ok(())
    }

    fn labels(&self) -> BTreeMap<String, String> {
        let pairs = [
            ("kubernetes.io/hostname", self.name.as_str()),
            ("kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", architecture()),
        ];
        pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    fn missing_labels(&self, node: &Node) -> Option<BTreeMap<String, String>> {
        let present = node.metadata.labels.clone().unwrap_or_default();
        let missing: BTreeMap<_, _> = self.labels().into_iter().filter(|(k, v)| present.get(k) != Some(v)).collect();
        (!missing.is_empty()).then_some(missing)
    }

    fn fresh(&self) -> Node {
        Node {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                labels: Some(self.labels()),
                ..ObjectMeta::default()
            },
            spec: Some(NodeSpec {
                pod_cidr: Some(self.pod_cidr.clone()),
                pod_cidrs: Some(vec![self.pod_cidr.clone()]),
                ..NodeSpec::default()
            }),
            status: None,
        }
    }

    fn status(&self, before: NodeStatus, now: Timestamp) -> NodeStatus {
        let address = |type_: &str, address: String| NodeAddress { type_: type_.to_owned(), address };
        let amounts = self.capacity.amounts();
        NodeStatus {
            addresses: Some(vec![
                address("InternalIP", self.address.to_string()),
                address("Hostname", self.name.clone()),
            ]),
            capacity: Some(amounts.clone()),
            allocatable: Some(amounts),
            conditions: Some(conditions(before.conditions.unwrap_or_default(), now)),
            node_info: Some(system_info()),
            ..NodeStatus::default()
        }
    }
}

/// The conditions of a healthy kubelet; each carries the heartbeat.
const CONDITIONS: [(&str, &str, &str, &str); 4] = [
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "the node has memory left"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "the node has disk space left"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "the node has process numbers left"),
    ("Ready", "True", "KubeletReady", "the Pod runner is ready"),
];

fn conditions(before: Vec<NodeCondition>, now: Timestamp) -> Vec<NodeCondition> {
    let now = Time(Timestamp::from_second(now.as_second()).unwrap_or(now));
    let own = |type_: &str| CONDITIONS.iter().any(|(own, ..)| *own == type_);
    let fresh = CONDITIONS.map(|(type_, status, reason, message)| {
        let same = before.iter().find(|c| c.type_ == type_ && c.status == status);
        NodeCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_heartbeat_time: Some(now.clone()),
            last_transition_time: same.and_then(|c| c.last_transition_time.clone()).or(Some(now.clone())),
        }
    });
    fresh.into_iter().chain(before.iter().filter(|c| !own(&c.type_)).cloned()).collect()
}

/// The machine's architecture as Kubernetes names it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn system_info() -> NodeSystemInfo {
    let first_line = |path: &str| {
        let text = fs::read_to_string(path).unwrap_or_default();
        text.lines().next().unwrap_or_default().to_owned()
    };
    let os = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let pretty = os.lines().find_map(|l| l.strip_prefix("PRETTY_NAME=")).unwrap_or("Linux").trim_matches('"');
    NodeSystemInfo {
        architecture: architecture().to_owned(),
        boot_id: first_line("/proc/sys/kernel/random/boot_id"),
        container_runtime_version: concat!("ferrovirt://", env!("CARGO_PKG_VERSION")).to_owned(),
        kernel_version: rustix::system::uname().release().to_string_lossy().into_owned(),
        kubelet_version: concat!("v", env!("CARGO_PKG_VERSION"), "-ferrovirt").to_owned(),
        kube_proxy_version: String::new(),
        machine_id: first_line("/etc/machine-id"),
        operating_system: "linux".to_owned(),
        os_image: pretty.to_owned(),
        system_uuid: first_line("/etc/machine-id"),
        ..NodeSystemInfo::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capacity(kvm: bool) -> Capacity {
        Capacity { cpu_milli: 1500, memory_bytes: 1 << 30, ephemeral_storage_bytes: 1 << 30, kvm }
    }

    #[test]
    fn hardware_virtualization_is_offered_only_where_it_works() {
        let amounts = capacity(false).amounts();
        assert_eq!(amounts["cpu"].0, "1500m");
        assert_eq!(amounts["memory"].0, "1Gi");
        assert_eq!(amounts["devices.kubevirt.io/tun"].0, "1k");
        assert!(!amounts.contains_key("devices.kubevirt.io/kvm"));
        assert_eq!(capacity(true).amounts()["devices.kubevirt.io/kvm"].0, "1k");
    }

    #[test]
    fn a_heartbeat_changes_no_transition_and_no_condition_of_others() {
        let at = |s| Timestamp::from_second(s).unwrap();
        let other = NodeCondition { type_: "Other".into(), status: "True".into(), ..NodeCondition::default() };
        let first = conditions(vec![other.clone()], at(10));
        let second = conditions(first.clone(), at(20));
        let ready = |c: &[NodeCondition]| c.iter().find(|c| c.type_ == "Ready").unwrap().clone();
        assert_eq!(ready(&second).last_transition_time, ready(&first).last_transition_time);
        assert_eq!(ready(&second).last_heartbeat_time.unwrap().0, at(20));
        assert_eq!(second.iter().filter(|c| **c == other).count(), 1);
        assert_eq!(second.len(), 5);
    }
}
