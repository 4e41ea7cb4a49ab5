//! The plugins of a node.

use std::collections::{BTreeMap, BTreeSet};

use api::config::ClusterConfig;
use launcher_contract::devices::{Device, KVM, TUN, VHOST_NET, VHOST_VSOCK};
use machinery::names::truncated_name;

/// Devices per plugin unless configured otherwise. Containers share the device nodes, so there only have to be more
/// than the Pods of a node request.
pub const MAX_DEVICES: u32 = 1000;
/// The most devices of a plugin: their list has to fit into a message that the kubelet accepts.
pub const MOST_DEVICES: u32 = 10_000;
/// The longest name of a plugin's socket.
pub const SOCKET_NAME_MAX: usize = "kubevirt-".len() + STEM_MAX + ".sock".len();
const STEM_MAX: usize = 32;

/// What the node itself decides about its plugins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Whether the container runtime uses cgroup version 2.
    pub cgroup_v2: bool,
    /// Devices per plugin.
    pub max_devices: u32,
}

/// A plugin: one resource that Pods can request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugin {
    /// The name of its socket and its devices follows from this one.
    pub name: String,
    /// The resource in a container's limits.
    pub resource: String,
    /// Device nodes that a container with the resource gets, at the same path.
    pub nodes: Vec<String>,
    /// How many containers can have it.
    pub count: u32,
    /// What the container's cgroup permits: some of r, w and m.
    pub permissions: &'static str,
    pub check: Check,
}

/// How to find out whether a device works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// It can be opened. That also loads the kernel module behind it.
    Opens,
    /// A virtual CPU runs on it: KVM may be there, open, and still not work.
    RunsVcpu,
}

impl Plugin {
    /// File name of its socket: short, because a socket's path is limited to 107 bytes, and without separators.
    pub fn socket(&self) -> String {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if self.name.len() <= STEM_MAX && !self.name.is_empty() && self.name.chars().all(plain) {
            return format!("kubevirt-{}.sock", self.name);
        }
        // The hash of the real name keeps two names apart that look the same once cleaned.
        let clean: String = self.name.chars().map(|c| if plain(c) { c } else { '-' }).collect();
        let stem = truncated_name(&clean, &machinery::names::suffix(&self.name), STEM_MAX);
        format!("kubevirt-{stem}.sock")
    }

    /// The IDs of its devices.
    pub fn ids(&self) -> impl Iterator<Item = String> + '_ {
        (0..self.count).map(|index| format!("{}{index}", self.name))
    }

    /// Whether a device of it has this ID.
    pub(crate) fn has(&self, id: &str) -> bool {
        let digits = id.strip_prefix(self.name.as_str()).filter(|digits| !digits.starts_with('+'));
        let index = digits.and_then(|digits| digits.parse::<u32>().ok());
        index.is_some_and(|index| index < self.count && digits == Some(index.to_string().as_str()))
    }
}

/// The plugins that a node serves under a configuration.
///
/// KVM, tun and vhost-net are served also where they do not work, without a healthy device: the kubelet starts a Pod
/// without the devices of resources that it has never heard of.
///
/// Devices of guests that admission refuses, for confidential computing and persistent reservations, are not served. Nor
/// are PCI, mediated and USB devices that the configuration permits: their plugins belong here, one per resource, made
/// from the devices found on the node.
pub fn plugins(node: Node, config: &ClusterConfig) -> Vec<Plugin> {
    let all = [
        (KVM, Check::RunsVcpu, true),
        (TUN, Check::Opens, true),
        (VHOST_NET, Check::Opens, true),
        (VHOST_VSOCK, Check::Opens, config.feature_gate("VSOCK")),
    ];
    let wanted = all.into_iter().filter(|(.., wanted)| *wanted);
    wanted.map(|(device, check, _)| plugin(node, device, check)).collect()
}

fn plugin(node: Node, device: Device, check: Check) -> Plugin {
    Plugin {
        name: device.name.to_owned(),
        resource: device.resource(),
        nodes: vec![device.path()],
        count: node.max_devices.clamp(1, MOST_DEVICES),
        // With cgroup version 2, access(2) on a device node fails unless making nodes is permitted, and libvirt calls it.
        permissions: if node.cgroup_v2 { "rwm" } else { "rw" },
        check,
    }
}

/// What to do when other plugins are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Stop { name: String },
    Start(Plugin),
}

/// How to get from the plugins that are served to those that are wanted. A plugin that differs is stopped and started;
/// of two with the same name the first counts.
pub fn changes(served: &[Plugin], wanted: &[Plugin]) -> Vec<Change> {
    let mut new: BTreeMap<&str, &Plugin> = BTreeMap::new();
    for plugin in wanted {
        new.entry(&plugin.name).or_insert(plugin);
    }
    let kept: BTreeSet<&str> =
        served.iter().filter(|old| new.get(old.name.as_str()) == Some(old)).map(|old| old.name.as_str()).collect();
    let gone = served.iter().filter(|old| !kept.contains(old.name.as_str()));
    let stops = gone.map(|old| Change::Stop { name: old.name.clone() });
    let starts = new.values().filter(|new| !kept.contains(new.name.as_str()));
    stops.chain(starts.map(|new| Change::Start((*new).clone()))).collect()
}

/// Whether the kubelet knows every plugin: only then can VMs be scheduled to the node.
pub fn initialized(wanted: &[Plugin], registered: &BTreeSet<String>) -> bool {
    wanted.iter().all(|plugin| registered.contains(&plugin.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: Node = Node { cgroup_v2: false, max_devices: MAX_DEVICES };

    fn config(gates: &[&str]) -> ClusterConfig {
        let mut kubevirt = api::v1::KubeVirt::default();
        let configuration = kubevirt.spec.configuration.get_or_insert_default();
        let developer = configuration.developer_configuration.get_or_insert_default();
        developer.feature_gates = gates.iter().map(|gate| (*gate).to_owned()).collect();
        ClusterConfig::from_kubevirt(&kubevirt).unwrap()
    }

    fn named(name: &str) -> Plugin {
        Plugin { name: name.to_owned(), ..plugin(NODE, TUN, Check::Opens) }
    }

    #[test]
    fn gates_add_devices_to_the_permanent_ones() {
        let permanent = ["kvm", "tun", "vhost-net"];
        let cases: [(&[&str], &[&str]); 3] =
            [(&[], &[]), (&["VSOCK"], &["vhost-vsock"]), (&["WorkloadEncryptionSEV"], &[])];
        for (gates, more) in cases {
            let names: Vec<String> = plugins(NODE, &config(gates)).into_iter().map(|plugin| plugin.name).collect();
            assert_eq!(names, [&permanent, more].concat(), "{gates:?}");
        }
    }

    #[test]
    fn only_kvm_has_to_run_a_virtual_cpu() {
        for plugin in plugins(NODE, &config(&["VSOCK"])) {
            assert_eq!(plugin.check == Check::RunsVcpu, plugin.name == "kvm");
            assert_eq!(plugin.resource, format!("devices.kubevirt.io/{}", plugin.name));
            assert_eq!((plugin.count, plugin.permissions), (1000, "rw"));
        }
        let node = Node { cgroup_v2: true, max_devices: 0 };
        let tun = &plugins(node, &config(&[]))[1];
        assert_eq!((tun.nodes[0].as_str(), tun.count, tun.permissions), ("/dev/net/tun", 1, "rwm"));
        let many = Node { max_devices: u32::MAX, ..NODE };
        assert_eq!(plugins(many, &config(&[]))[0].count, MOST_DEVICES);
    }

    #[test]
    fn sockets_have_short_names_of_their_own() {
        assert_eq!(named("vhost-net").socket(), "kubevirt-vhost-net.sock");
        let odd = ["", "../kubelet", "a/b", "a-b/", "nvidia.com/GeForce_RTX_4090_with_a_very_long_name", "ä"];
        let mut seen = BTreeSet::new();
        for name in odd {
            let socket = named(name).socket();
            assert!(socket.len() <= SOCKET_NAME_MAX && socket.is_ascii(), "{socket}");
            assert!(!socket.contains('/') && !socket.contains(".."), "{socket}");
            assert!(seen.insert(socket), "{name} shares its socket");
        }
    }

    #[test]
    fn ids_are_those_that_are_listed() {
        let plugin = Plugin { count: 3, ..named("kvm") };
        assert_eq!(plugin.ids().collect::<Vec<_>>(), ["kvm0", "kvm1", "kvm2"]);
        assert!(plugin.ids().all(|id| plugin.has(&id)));
        for id in ["kvm3", "kvm", "kvm+1", "kvm01", "tun0", "", "kvm-1", "kvm99999999999"] {
            assert!(!plugin.has(id), "{id}");
        }
    }

    #[test]
    fn only_what_differs_is_stopped_or_started() {
        let stop = |name: &str| Change::Stop { name: name.to_owned() };
        let other = Plugin { count: 7, ..named("a") };
        let cases: [(&[Plugin], &[Plugin], Vec<Change>); 5] = [
            (&[], &[], vec![]),
            (&[], &[named("a")], vec![Change::Start(named("a"))]),
            (&[named("a"), named("b")], &[named("b")], vec![stop("a")]),
            (&[named("a")], std::slice::from_ref(&other), vec![stop("a"), Change::Start(other.clone())]),
            (&[named("a")], &[named("a"), other.clone()], vec![]),
        ];
        for (served, wanted, expected) in cases {
            assert_eq!(changes(served, wanted), expected);
        }
    }

    #[test]
    fn a_node_is_ready_when_the_kubelet_knows_every_plugin() {
        let wanted = [named("a"), named("b")];
        let known = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        assert!(!initialized(&wanted, &known(&["a"])));
        assert!(initialized(&wanted, &known(&["a", "b", "c"])));
    }
}
