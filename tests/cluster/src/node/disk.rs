//! The disk of a new node: a root directory with the settings of its programs. `/usr` is the machine's, mounted at boot.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::address::{self, ALL_PODS, DNS, of_node, pods_of};
use crate::home::Home;
use crate::options::Options;
use crate::pki::{Pki, write};
use crate::run;
use crate::store;

const DIRECTORIES: [&str; 27] = [
    "usr",
    "opt/kube",
    "opt/containerd",
    "opt/cni/bin",
    "opt/multus/bin",
    "etc/kubernetes",
    "etc/cni/net.d",
    "etc/containerd",
    "proc",
    "sys",
    "dev",
    "run",
    "tmp",
    "root",
    "mnt",
    "srv",
    "home",
    "boot",
    "var/lib/kubelet",
    "var/lib/cni",
    "var/log/pods",
    "var/log/containers",
    "var/log/node",
    "var/tmp",
    "oldroot",
    "node",
    "media",
];

/// What programs of the machine's `/usr` look for in `/etc`.
const SETTINGS: [&str; 12] = [
    "passwd",
    "group",
    "nsswitch.conf",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "alternatives",
    "ssl",
    "protocols",
    "services",
    "os-release",
    "debian_version",
];

const SCRIPTS: [(&str, &str); 3] = [
    ("enter.sh", include_str!("../../scripts/enter.sh")),
    ("root.sh", include_str!("../../scripts/root.sh")),
    ("main.sh", include_str!("../../scripts/main.sh")),
];

/// Makes the disk of a node, with images from a store.
pub(crate) fn make(node: u8, options: &Options, home: &Home, pki: &Pki, images: &Path) -> Result<()> {
    let name = address::name(node);
    let root = home.node(name);
    directories(&root).with_context(|| format!("cannot make the disk of node {name}"))?;
    copy_settings(&root)?;
    let etc = root.join("etc");
    let machine_id = fs::read_to_string("/proc/sys/kernel/random/uuid").context("cannot draw a machine ID")?;
    write(&etc, "machine-id", &machine_id.replace('-', ""))?;
    write(&etc, "hostname", &format!("{name}\n"))?;
    write(&etc, "hosts", &format!("127.0.0.1 localhost\n{} {name}\n", of_node(node)))?;
    write(&etc, "resolv.conf", "")?;
    write(&etc.join("containerd"), "config.toml", include_str!("containerd.toml"))?;
    write(&etc.join("cni/net.d"), "00-multus.conf", &pod_network(node).to_string())?;
    for (file, script) in SCRIPTS {
        write(&root.join("node"), file, script)?;
    }
    write(&root.join("node"), "address", &of_node(node).to_string())?;
    identity(node, pki, &etc.join("kubernetes"))?;
    write(&etc.join("kubernetes"), "kubelet.yaml", &kubelet(reserved(options.node_memory_mib)?).to_string())?;
    write(&etc.join("kubernetes"), "proxy.yaml", &proxy(name).to_string())?;
    store::copy(images, &root.join("var/lib/containerd"))
}

fn directories(root: &Path) -> std::io::Result<()> {
    for directory in DIRECTORIES {
        fs::create_dir_all(root.join(directory))?;
    }
    for link in ["bin", "sbin", "lib", "lib64"] {
        symlink(Path::new("usr").join(link), root.join(link))?;
    }
    symlink("/run", root.join("var/run"))?;
    for directory in ["tmp", "var/tmp"] {
        fs::set_permissions(root.join(directory), fs::Permissions::from_mode(0o1777))?;
    }
    Ok(())
}

fn copy_settings(root: &Path) -> Result<()> {
    let settings = SETTINGS.map(|name| Path::new("/etc").join(name));
    let there: Vec<PathBuf> = settings.into_iter().filter(|path| path.exists()).collect();
    run::output(Command::new("cp").args(["-aH", "--"]).args(there).arg(root.join("etc"))).map(drop)
}

/// Who the node is: certificates and kubeconfigs.
fn identity(node: u8, pki: &Pki, folder: &Path) -> Result<()> {
    let (kubeconfig, serving) = pki.kubelet(node)?;
    write(folder, "ca.crt", pki.ca_pem())?;
    write(folder, "kubelet.kubeconfig", &kubeconfig)?;
    write(folder, "kubelet.crt", &serving.cert)?;
    write(folder, "kubelet.key", &serving.key)?;
    write(folder, "proxy.kubeconfig", &pki.user("system:kube-proxy"))?;
    write(folder, "multus.kubeconfig", &pki.user("multus")).map(drop)
}

/// Multus adds what a Pod's annotation `k8s.v1.cni.cncf.io/networks` asks for to the Pod network. That one is written out here:
/// given the name of its file in `clusterNetwork`, Multus 4.3.0 forgets most of it, and no Pod can be deleted.
fn pod_network(node: u8) -> Value {
    let pods = json!({"cniVersion": "1.0.0", "name": "pods", "plugins": [
        {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true, "ipam": {
            "type": "host-local", "ranges": [[{"subnet": pods_of(node)}]], "routes": [{"dst": "0.0.0.0/0"}]}},
        {"type": "portmap", "capabilities": {"portMappings": true}, "backend": "nftables"},
    ]});
    json!({
        "cniVersion": "1.0.0", "name": "multus", "type": "multus", "kubeconfig": "/etc/kubernetes/multus.kubeconfig",
        "logFile": "/var/log/node/multus.log", "logLevel": "error", "capabilities": {"portMappings": true},
        "cniDir": "/var/lib/cni/multus", "binDir": "/opt/cni/bin", "namespaceIsolation": false, "delegates": [pods],
    })
}

fn kubelet(reserved_mib: u64) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        // Control groups are as the machine has them.
        "failCgroupV1": false,
        "cgroupDriver": "cgroupfs",
        "failSwapOn": false,
        // Without CAP_SYS_RESOURCE it cannot have less.
        "oomScoreAdj": 0,
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": "/etc/kubernetes/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": "/etc/kubernetes/kubelet.crt",
        "tlsPrivateKeyFile": "/etc/kubernetes/kubelet.key",
        "clusterDomain": "cluster.local",
        "clusterDNS": [DNS],
        "resolvConf": "/etc/resolv.conf",
        // How soon a claim that has grown is seen, among other things.
        "syncFrequency": "10s",
        // Images cannot be pulled again.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {
            "memory.available": "100Mi", "nodefs.available": "1%", "nodefs.inodesFree": "1%", "imagefs.available": "1%",
        },
        "systemReserved": {"memory": format!("{reserved_mib}Mi")},
        // Tests kill programs on purpose, again and again, and wait for their return.
        "crashLoopBackOff": {"maxContainerRestartPeriod": "3s"},
        "nodeStatusUpdateFrequency": "4s",
        // It is renewed every quarter of it.
        "nodeLeaseDurationSeconds": 12,
    })
}

fn proxy(name: &str) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clusterCIDR": ALL_PODS,
        "clientConnection": {"kubeconfig": "/etc/kubernetes/proxy.kubeconfig"},
        // These are settings of the whole machine.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "metricsBindAddress": "127.0.0.1:10249",
        "healthzBindAddress": "0.0.0.0:10256",
        "hostnameOverride": name,
        "oomScoreAdj": 0,
    })
}

/// What a node has to keep back of the machine's memory, so that it offers no more than it should.
fn reserved(node_memory_mib: u64) -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo").context("cannot read /proc/meminfo")?;
    let total =
        text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse::<u64>().ok());
    let total = total.context("/proc/meminfo has no MemTotal")? / 1024;
    Ok(total.saturating_sub(node_memory_mib).max(100))
}
