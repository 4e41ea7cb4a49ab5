//! The clusters that instances run in: how they are configured, and what they hold.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use api::config::ClusterConfig;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim, ResourceQuota};
use render::Context;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use crate::generate::Rng;

/// A cluster.
pub struct Cluster {
    /// What sets it apart.
    pub name: String,
    /// Its KubeVirt object, as JSON.
    pub kubevirt: Box<RawValue>,
    /// The same, as our side reads it.
    pub config: ClusterConfig,
    /// What else is in it, as JSON.
    pub objects: Box<RawValue>,
    /// The same, as our side reads it, but for what depends on the instance.
    pub context: Context,
    /// The secret that launchers are pulled with.
    pub pull_secret: &'static str,
}

impl Cluster {
    /// How much more memory than they ask for guests may take, where a quota wants a limit and they have none.
    pub(crate) fn memory_ratio(&self) -> f64 {
        let label = self.context.namespace_labels.get(MEMORY_RATIO).and_then(|text| text.parse().ok());
        label.filter(|ratio| *ratio >= 1.0).unwrap_or(2.0)
    }
}

const MEMORY_RATIO: &str = "alpha.kubevirt.io/auto-memory-limits-ratio";

/// The image of launchers. The judge leaves this flag of virt-controller at its default.
pub const LAUNCHER: &str = "virt-launcher";

/// The image of sidecars that name none, as the judge makes it up.
pub const SHIM: &str = "sidecar-shim";

/// Gates that are open everywhere: those our release opens for good or unless told otherwise, and those that let instances
/// in that have something to render.
const OPEN: &[&str] = &[
    "AlignCPUs",
    "CPUManager",
    "ContainerPathVolumes",
    "DeclarativeHotplugVolumes",
    "DecentralizedLiveMigration",
    "DownwardMetrics",
    "EnableVirtioFsStorageVolumes",
    "ExpandDisks",
    "ExperimentalIgnitionSupport",
    "GPUsWithDRA",
    "HostDevices",
    "HostDevicesWithDRA",
    "HostDisk",
    "IncrementalBackup",
    "LibvirtHooksServerAndClient",
    "LiveUpdateNADRef",
    "MigrationPriorityQueue",
    "PanicDevices",
    "PasstBinding",
    "PersistentReservation",
    "RebootPolicy",
    "ReservedOverheadMemlock",
    "SecureExecution",
    "Sidecar",
    "UtilityVolumes",
    "VMExport",
    "VSOCK",
    "VideoConfig",
    "VmiMemoryOverheadReport",
    "WorkloadEncryptionSEV",
    "WorkloadEncryptionTDX",
];

/// Gates that are open in some clusters and closed in the others.
const SOMETIMES: &[&str] = &[
    "ConfigurableHypervisor",
    "DockerSELinuxMCSWorkaround",
    "ExternalNetResourceInjection",
    "HypervStrictCheck",
    "ImageVolume",
    "PodSecondaryInterfaceNamingUpgrade",
    "Root",
];

/// Settings that some clusters have, each with how many of a hundred have it.
fn settings() -> Vec<(&'static str, usize, Value)> {
    vec![
        ("emulation", 25, json!({ "developerConfiguration": { "useEmulation": true } })),
        ("more memory than there is", 25, json!({ "developerConfiguration": { "memoryOvercommit": 150 } })),
        ("four guests a CPU", 25, json!({ "developerConfiguration": { "cpuAllocationRatio": 4 } })),
        (
            "a pool of nodes",
            25,
            json!({ "developerConfiguration": { "nodeSelectors": { "pool": "vms", "zone": "b" } } }),
        ),
        ("talkative launchers", 20, json!({ "developerConfiguration": { "logVerbosity": { "virtLauncher": 7 } } })),
        (
            "little memory to look at disks",
            20,
            json!({ "developerConfiguration": { "diskVerification": { "memoryLimit": "100M" } } }),
        ),
        ("fresh images", 25, json!({ "imagePullPolicy": "Always" })),
        ("a runtime", 20, json!({ "defaultRuntimeClass": "vm" })),
        ("SELinux", 30, json!({ "selinuxLauncherType": "virt_launcher.process" })),
        ("a silent console", 20, json!({ "virtualMachineOptions": { "disableSerialConsoleLog": {} } })),
        ("more overhead", 20, json!({ "additionalGuestMemoryOverheadRatio": "1.5" })),
        (
            "a profile for system calls",
            25,
            json!({ "seccompConfiguration": { "virtualMachineInstanceProfile": { "customProfile": { "localhostProfile": "vm.json" } } } }),
        ),
        (
            "the runtime's profile",
            20,
            json!({ "seccompConfiguration": { "virtualMachineInstanceProfile": { "customProfile": { "runtimeDefaultProfile": true } } } }),
        ),
        (
            "limits for labelled namespaces",
            25,
            json!({ "autoCPULimitNamespaceLabelSelector": { "matchLabels": { "limits": "cpu" } } }),
        ),
        (
            "some devices permitted",
            40,
            json!({ "permittedHostDevices": {
                "pciHostDevices": [{ "pciVendorSelector": "10DE:1EB8", "resourceName": "nvidia.com/T4" }],
                "mediatedDevices": [{ "mdevNameSelector": "GRID", "resourceName": "nvidia.com/GRID" }],
            } }),
        ),
        (
            "all devices permitted",
            40,
            json!({ "permittedHostDevices": {
                "pciHostDevices": [
                    { "pciVendorSelector": "10DE:1EB8", "resourceName": "nvidia.com/T4" },
                    { "pciVendorSelector": "8086:1572", "resourceName": "vendor.example/nic", "externalResourceProvider": true },
                ],
                "usb": [{ "resourceName": "vendor.example/key", "selectors": [{ "vendor": "46f4", "product": "0001" }] }],
            } }),
        ),
        (
            "sizes of support containers",
            30,
            json!({ "supportContainerResources": [
                { "type": "container-disk", "resources": { "requests": { "cpu": "2m", "memory": "3M" }, "limits": { "memory": "50M" } } },
                { "type": "virtiofs", "resources": { "limits": { "cpu": "300m", "memory": "160M" } } },
                { "type": "sidecar", "resources": { "requests": { "cpu": "20m", "memory": "30M" }, "limits": { "cpu": "50m", "memory": "60M" } } },
                { "type": "guest-console-log", "resources": { "requests": { "cpu": "7m", "memory": "40M" } } },
                { "type": "hotplug-disk", "resources": { "limits": { "cpu": "20m", "memory": "30M" } } },
            ] }),
        ),
        ("another hypervisor", 15, json!({ "hypervisors": [{ "name": "hyperv-direct" }] })),
        (
            "a firmware of its own",
            20,
            json!({ "architectureConfiguration": { "amd64": { "ovmfPath": "/usr/share/own" } } }),
        ),
    ]
}

/// The plugins that words name. Without them there would be no Pod for who names them.
fn bindings() -> Value {
    json!({
        "passt": {
            "sidecarImage": "registry:5000/passt:1", "networkAttachmentDefinition": "passt-net",
            "computeResourceOverhead": { "requests": { "memory": "500Mi" } },
            "migration": {},
        },
        "l2bridge": { "domainAttachmentType": "managedTap", "downwardAPI": "device-info", "sidecarImage": "l2bridge:1" },
    })
}

/// How many clusters there are.
const COUNT: u64 = 60;

/// All clusters. The first is plain.
pub static CLUSTERS: LazyLock<Vec<Cluster>> = LazyLock::new(|| (0..COUNT).map(cluster).collect());

/// One of the clusters.
pub(crate) fn pick(rng: &mut Rng) -> &'static Cluster {
    rng.pick(&CLUSTERS)
}

fn cluster(index: u64) -> Cluster {
    let mut rng = Rng::new(0x0c1u64, index);
    let plain = index == 0;
    let mut names = Vec::new();
    let mut configuration = json!({});
    for (name, percent, setting) in settings() {
        if !plain && rng.chance(percent) {
            names.push(name);
            machinery::patch::merge(&mut configuration, &setting);
        }
    }
    let (mut open, mut closed) = (OPEN.to_vec(), Vec::new());
    for gate in SOMETIMES {
        // ImageVolume decides about most of the Pod.
        if !plain && rng.chance(if *gate == "ImageVolume" { 50 } else { 30 }) {
            names.push(gate);
            open.push(gate);
        } else {
            closed.push(*gate);
        }
    }
    machinery::patch::merge(
        &mut configuration,
        &json!({
            "developerConfiguration": { "featureGates": open, "disabledFeatureGates": closed },
            "persistentReservationConfiguration": { "enabled": true },
            "network": { "binding": bindings() },
        }),
    );
    let architecture = if plain { "amd64" } else { *rng.pick(&["amd64", "amd64", "amd64", "amd64", "arm64", "s390x"]) };
    let kubevirt = json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "KubeVirt",
        "metadata": { "name": "kubevirt", "namespace": "kubevirt" },
        "spec": { "configuration": configuration },
        "status": { "defaultArchitecture": architecture, "phase": "Deployed" },
    });
    let pull_secret = if !plain && rng.chance(25) { "launcher-secret" } else { "" };
    let objects = objects(&mut rng, plain);
    names.push(architecture);
    let mut config =
        ClusterConfig::from_kubevirt(&typed(&kubevirt)).expect("the configurations of the test are in order");
    config.launcher_image = LAUNCHER.to_owned();
    let context = context(&objects, pull_secret);
    let raw = |value: &Value| to_raw_value(value).expect("JSON values can be written as JSON");
    Cluster {
        name: names.join(", "),
        kubevirt: raw(&kubevirt),
        config,
        objects: raw(&Value::Array(objects)),
        context,
        pull_secret,
    }
}

pub(crate) fn typed<T: DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).expect("the objects of the test are well-formed")
}

/// What we are told about a cluster.
fn context(objects: &[Value], pull_secret: &str) -> Context {
    let of = |kind: &'static str| objects.iter().filter(move |object| object["kind"] == kind);
    let namespace: Option<Namespace> = of("Namespace").next().map(typed);
    let quotas: Vec<ResourceQuota> = of("ResourceQuota").map(typed).collect();
    let mut context = Context::default().with_namespace(namespace.as_ref(), &quotas);
    for claim in of("PersistentVolumeClaim") {
        context = context.with_claim(&typed::<PersistentVolumeClaim>(claim));
    }
    context.launcher.pull_secret = (!pull_secret.is_empty()).then(|| pull_secret.to_owned());
    context.launcher.sidecar_shim_image = SHIM.to_owned();
    context
}

/// The device plugins' resources behind networks, by the name that an instance uses.
pub(crate) static NETWORK_RESOURCES: LazyLock<BTreeMap<&str, &str>> =
    LazyLock::new(|| BTreeMap::from([("blue/red", "vendor.example/vf")]));

/// The claim that keeps the state of guests.
pub(crate) const BACKEND_CLAIM: &str = "persistent-state-for-guest-abcde";

fn objects(rng: &mut Rng, plain: bool) -> Vec<Value> {
    let mut objects = vec![network("default", "red"), network("blue", "red"), network("default", "passt-net")];
    objects.push(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "hook", "namespace": "default" }, "data": {},
    }));
    let mut chance = |percent| !plain && rng.chance(percent);
    let mut labels = json!({});
    if chance(30) {
        labels["limits"] = json!("cpu");
    }
    if chance(40) {
        labels[MEMORY_RATIO] = json!(if chance(70) { "1.2" } else { "0.5" });
    }
    objects
        .push(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "default", "labels": labels } }));
    let mut hard = json!({ "pods": "100" });
    for (resource, percent) in [("limits.cpu", 25), ("limits.memory", 35)] {
        if chance(percent) {
            hard[resource] = json!("64Gi");
        }
    }
    objects.push(json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "quota", "namespace": "default" },
        "spec": { "hard": hard },
    }));
    for (name, shared) in [("claim-1", false), ("claim-2", true), ("dv-1", false), ("dv-2", true), ("dv-3", true)] {
        // Now and then a claim is missing.
        if name != "dv-3" || !chance(40) {
            objects.push(claim(name, shared, chance(40)));
        }
    }
    let mut backend = claim(BACKEND_CLAIM, true, false);
    backend["metadata"]["labels"] = json!({ "persistent-state-for": "guest" });
    objects.push(backend);
    objects
}

fn claim(name: &str, shared: bool, block: bool) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": { "name": name, "namespace": "default", "uid": format!("uid-of-{name}") },
        "spec": {
            "accessModes": [if shared { "ReadWriteMany" } else { "ReadWriteOnce" }],
            "volumeMode": if block { "Block" } else { "Filesystem" },
        },
    })
}

fn network(namespace: &str, name: &str) -> Value {
    let used = if namespace == "default" { name.to_owned() } else { format!("{namespace}/{name}") };
    let resource = NETWORK_RESOURCES.get(used.as_str());
    let annotations = resource.map_or(json!({}), |resource| json!({ "k8s.v1.cni.cncf.io/resourceName": resource }));
    json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": { "name": name, "namespace": namespace, "annotations": annotations },
    })
}
