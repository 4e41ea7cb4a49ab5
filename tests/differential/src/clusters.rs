//! The clusters that objects are created in: how they are configured, and what they hold.

use std::sync::LazyLock;

use admission::World;
use api::config::ClusterConfig;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use crate::generate::Rng;

/// A cluster.
pub struct Cluster {
    /// What sets it apart.
    pub name: &'static str,
    /// Its KubeVirt object, as JSON.
    pub kubevirt: Box<RawValue>,
    /// The same, as our side reads it.
    pub config: ClusterConfig,
    /// What else is in it, as JSON.
    pub objects: Box<RawValue>,
    /// The same, as our side reads it.
    pub world: World,
}

/// The instance types that are in every cluster, under the same names in the namespace and for the whole cluster; and one that is not.
pub const INSTANCETYPES: &[&str] = &["one", "small", "odd", "pinned", "full", "absent"];
/// The preferences, likewise.
pub const PREFERENCES: &[&str] = &[
    "linux",
    "windows",
    "spread",
    "wide",
    "deep",
    "cores",
    "threads",
    "any",
    "everything",
    "picky",
    "picky-cores",
    "picky-threads",
    "picky-spread",
    "picky-any",
    "picky-wide",
    "picky-deep",
    "absent",
];

/// Every gate that is neither always open nor without effect on what may be created.
const GATES: &[&str] = &[
    "AlignCPUs",
    "CPUManager",
    "ContainerPathVolumes",
    "DeclarativeHotplugVolumes",
    "DecentralizedLiveMigration",
    "DownwardMetrics",
    "EnableVirtioFsStorageVolumes",
    "ExperimentalIgnitionSupport",
    "GPUsWithDRA",
    "HostDevices",
    "HostDevicesWithDRA",
    "HostDisk",
    "PasstBinding",
    "PersistentReservation",
    "RebootPolicy",
    "ReservedOverheadMemlock",
    "Sidecar",
    "UtilityVolumes",
    "VSOCK",
    "WorkloadEncryptionSEV",
    "WorkloadEncryptionTDX",
];

/// Gates that our release opens for good, and the judge's only on demand. They are open in every cluster.
const RIPE: &[&str] = &["ExpandDisks", "PanicDevices", "SecureExecution", "VideoConfig"];

/// Gates that our release opens unless told otherwise, and the judge's only on demand.
const RIPENING: &[&str] = &[
    "DeclarativeHotplugVolumes",
    "DecentralizedLiveMigration",
    "GPUsWithDRA",
    "HostDevicesWithDRA",
    "PasstBinding",
    "RebootPolicy",
    "WorkloadEncryptionSEV",
];

fn configurations() -> Vec<(&'static str, Value)> {
    let gates = |more: &[&str]| {
        let all = [RIPE, RIPENING, more].concat();
        json!({ "featureGates": all })
    };
    let with = |mut configuration: Value| {
        configuration["developerConfiguration"] = gates(GATES);
        // A gate for the judge, a setting for us.
        configuration["persistentReservationConfiguration"] = json!({ "enabled": true });
        configuration
    };
    vec![
        ("as installed", json!({ "developerConfiguration": gates(&[]) })),
        (
            "all gates closed",
            json!({ "developerConfiguration": { "disabledFeatureGates": GATES, "featureGates": RIPE } }),
        ),
        ("all gates open", with(json!({}))),
        (
            "root, and retired gates",
            json!({ "developerConfiguration": gates(&[
            "Root", "ExperimentalVirtiofsSupport", "Passt", "Macvtap", "MultiArchitecture", "HotplugVolumes",
        ]) }),
        ),
        ("changes by restart", with(json!({ "vmRolloutStrategy": "Stage" }))),
        (
            "limits for live changes",
            with(json!({
                "liveUpdateConfiguration": { "maxCpuSockets": 3, "maxGuest": "4Gi", "maxHotplugRatio": 2 },
            })),
        ),
        ("a ratio for live changes", with(json!({ "liveUpdateConfiguration": { "maxHotplugRatio": 300 } }))),
        (
            "masquerade, and no bridge",
            with(json!({
                "network": { "defaultNetworkInterface": "masquerade", "permitBridgeInterfaceOnPodNetwork": false },
            })),
        ),
        (
            "a bridge that is not permitted",
            json!({
                "developerConfiguration": gates(&[]), "network": { "permitBridgeInterfaceOnPodNetwork": false },
            }),
        ),
        (
            "own defaults",
            with(json!({
                "cpuModel": "Haswell", "cpuRequest": "250m", "evictionStrategy": "LiveMigrate",
            })),
        ),
        (
            "other machines",
            with(json!({ "architectureConfiguration": { "amd64": {
            "machineType": "pc-q35-8.0", "emulatedMachines": ["pc-q35-8*", "i440fx"],
        } } })),
        ),
        (
            "old machines",
            with(json!({ "architectureConfiguration": { "amd64": {
            "machineType": "pc-i440fx-8.0", "emulatedMachines": ["pc-i440fx*"],
        } } })),
        ),
    ]
}

/// All clusters.
pub static CLUSTERS: LazyLock<Vec<Cluster>> = LazyLock::new(|| {
    let mut configurations: Vec<(&str, Value, &str)> =
        configurations().into_iter().map(|(name, configuration)| (name, configuration, "amd64")).collect();
    let open = configurations[2].1.clone();
    configurations.push(("ARM", open.clone(), "arm64"));
    configurations.push(("Z", open, "s390x"));
    configurations.into_iter().map(|(name, configuration, machine)| cluster(name, configuration, machine)).collect()
});

fn cluster(name: &'static str, configuration: Value, architecture: &str) -> Cluster {
    let kubevirt = json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "KubeVirt",
        "metadata": {
            "name": "kubevirt",
            "namespace": "kubevirt",
            "annotations": { "alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity": "" },
        },
        "spec": { "configuration": configuration },
        "status": { "defaultArchitecture": architecture, "phase": "Deployed" },
    });
    let typed = serde_json::from_value(kubevirt.clone()).expect("the KubeVirt objects of the test are well-formed");
    let config = ClusterConfig::from_kubevirt(&typed).expect("the configurations of the test are in order");
    let objects = objects();
    Cluster { name, kubevirt: raw(&kubevirt), config, objects: raw(&objects), world: World::of(objects) }
}

fn raw(value: &impl Serialize) -> Box<RawValue> {
    to_raw_value(value).expect("JSON values can be written as JSON")
}

/// One of the clusters. Most objects go where most is possible.
pub(crate) fn pick(rng: &mut Rng) -> &'static Cluster {
    let all = &*CLUSTERS;
    match rng.chance(50) {
        true => all.iter().find(|cluster| cluster.name == "all gates open").unwrap_or(&all[0]),
        false => rng.pick(all),
    }
}

fn objects() -> Vec<Value> {
    let mut objects = vec![
        claim(
            "claim-1",
            json!({
                "instancetype.kubevirt.io/default-instancetype": "small",
                "instancetype.kubevirt.io/default-preference": "linux",
                "instancetype.kubevirt.io/default-preference-kind": "VirtualMachinePreference",
            }),
        ),
        claim("claim-2", json!({})),
        source("linked", json!({ "dataSource": { "name": "golden", "namespace": "default" } }), json!({})),
        source(
            "unlabelled",
            json!({ "pvc": { "name": "claim-2", "namespace": "default" } }),
            json!({
                "template.kubevirt.io/architecture": "sparc",
            }),
        ),
        data_volume("dv-1", json!({ "pvc": { "name": "claim-1", "namespace": "default" } }), json!({})),
        data_volume("dv-3", json!({ "blank": {} }), json!({ "instancetype.kubevirt.io/default-instancetype": "odd" })),
        source(
            "golden",
            json!({ "pvc": { "name": "claim-1", "namespace": "default" } }),
            json!({
                "template.kubevirt.io/architecture": "arm64",
            }),
        ),
    ];
    objects.extend(presets());
    for (name, spec) in instancetypes() {
        objects.extend(scoped("VirtualMachineInstancetype", "VirtualMachineClusterInstancetype", name, &spec));
    }
    for (name, spec) in preferences() {
        objects.extend(scoped("VirtualMachinePreference", "VirtualMachineClusterPreference", name, &spec));
    }
    objects
}

fn claim(name: &str, labels: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": name, "namespace": "default", "labels": labels }, "spec": {},
    })
}

fn source(name: &str, source: Value, labels: Value) -> Value {
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataSource",
        "metadata": { "name": name, "namespace": "default", "labels": labels }, "spec": { "source": source },
    })
}

fn data_volume(name: &str, source: Value, labels: Value) -> Value {
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
        "metadata": { "name": name, "namespace": "default", "labels": labels }, "spec": { "source": source },
    })
}

/// One preset for databases, and two for caches that contradict each other.
fn presets() -> [Value; 3] {
    let preset = |name: &str, app: &str, domain: Value| {
        json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstancePreset",
            "metadata": { "name": name, "namespace": "default" },
            "spec": { "selector": { "matchLabels": { "app": app } }, "domain": domain },
        })
    };
    let devices = json!({ "watchdog": { "name": "dog", "i6300esb": { "action": "poweroff" } } });
    [
        preset(
            "db",
            "db",
            json!({
                "resources": { "requests": { "memory": "2Gi" } },
                "cpu": { "cores": 2 },
                "firmware": { "serial": "1234" },
                "ioThreadsPolicy": "auto",
                "features": { "acpi": { "enabled": true }, "pvspinlock": { "enabled": false } },
                "clock": { "utc": {}, "timer": { "hpet": { "present": false } } },
                "devices": devices,
            }),
        ),
        preset("cache-1", "cache", json!({ "cpu": { "cores": 1 }, "ioThreadsPolicy": "auto", "devices": {} })),
        preset("cache-2", "cache", json!({ "cpu": { "cores": 2 }, "ioThreadsPolicy": "auto", "devices": {} })),
    ]
}

fn scoped(kind: &str, cluster_kind: &str, name: &str, spec: &Value) -> [Value; 2] {
    let version = "instancetype.kubevirt.io/v1beta1";
    [
        json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name, "namespace": "default" }, "spec": spec }),
        json!({ "apiVersion": version, "kind": cluster_kind, "metadata": { "name": name }, "spec": spec }),
    ]
}

fn instancetypes() -> Vec<(&'static str, Value)> {
    vec![
        ("one", json!({ "cpu": { "guest": 1 }, "memory": { "guest": "512Mi" } })),
        ("small", json!({ "cpu": { "guest": 2 }, "memory": { "guest": "1Gi" } })),
        (
            "odd",
            json!({ "cpu": { "guest": 3, "maxSockets": 2 }, "memory": { "guest": "3Gi", "overcommitPercent": 15 } }),
        ),
        (
            "pinned",
            json!({
                "cpu": {
                    "guest": 4, "dedicatedCPUPlacement": true, "isolateEmulatorThread": true, "model": "host-passthrough",
                    "numa": { "guestMappingPassthrough": {} }, "realtime": { "mask": "0-1" },
                },
                "memory": { "guest": "4Gi", "maxGuest": "8Gi", "hugepages": { "pageSize": "1Gi" } },
            }),
        ),
        (
            "full",
            json!({
                "annotations": { "example.org/note": "from the type" },
                "cpu": { "guest": 8 },
                "gpus": [{ "name": "gpu-1", "deviceName": "nvidia.com/T4" }],
                "hostDevices": [{ "name": "device-1", "deviceName": "vendor.example/nic" }],
                "ioThreadsPolicy": "supplementalPool",
                "ioThreads": { "supplementalPoolThreadCount": 2 },
                "launchSecurity": { "sev": {} },
                "memory": { "guest": "2Gi" },
                "nodeSelector": { "zone": "a" },
                "schedulerName": "other",
            }),
        ),
    ]
}

fn preferences() -> Vec<(&'static str, Value)> {
    vec![
        (
            "linux",
            json!({
                "devices": { "preferredDiskBus": "virtio", "preferredInterfaceModel": "virtio", "preferredRng": {} },
                "machine": { "preferredMachineType": "pc-q35-9.2" },
                "preferredArchitecture": "amd64",
                "volumes": { "preferredStorageClassName": "fast" },
            }),
        ),
        (
            "windows",
            json!({
                "annotations": { "example.org/note": "from the preference" },
                "clock": {
                    "preferredClockOffset": { "utc": {} },
                    "preferredTimer": { "hpet": { "present": false }, "hyperv": { "present": true } },
                },
                "cpu": { "preferredCPUFeatures": [{ "name": "vmx", "policy": "optional" }] },
                "devices": {
                    "preferredAutoattachInputDevice": true, "preferredCdromBus": "sata", "preferredDiskBus": "sata",
                    "preferredDiskCache": "none", "preferredDiskDedicatedIoThread": true, "preferredInputBus": "usb",
                    "preferredInputType": "tablet", "preferredInterfaceMasquerade": {}, "preferredLunBus": "scsi",
                    "preferredSoundModel": "ich9", "preferredTPM": {}, "preferredVideoType": "vga",
                    "preferredPanicDeviceModel": "hyperv",
                },
                "features": {
                    "preferredAcpi": {}, "preferredApic": {}, "preferredSmm": {},
                    "preferredHyperv": { "relaxed": {}, "spinlocks": { "spinlocks": 8191 }, "synic": {}, "vpindex": {} },
                },
                "firmware": { "preferredEfi": { "secureBoot": true } },
                "preferredSubdomain": "windows",
                "preferredTerminationGracePeriodSeconds": 3600,
            }),
        ),
        ("spread", json!({ "cpu": { "preferredCPUTopology": "spread", "spreadOptions": { "ratio": 2 } } })),
        (
            "wide",
            json!({
                "cpu": { "preferredCPUTopology": "spread", "spreadOptions": { "across": "CoresThreads" } },
                "preferSpreadSocketToCoreRatio": 4,
            }),
        ),
        (
            "deep",
            json!({
                "cpu": { "preferredCPUTopology": "spread", "spreadOptions": { "across": "SocketsCoresThreads" } },
            }),
        ),
        (
            "cores",
            json!({
                "cpu": { "preferredCPUTopology": "cores" },
                "firmware": { "preferredUseBios": true, "preferredUseBiosSerial": true },
            }),
        ),
        (
            "threads",
            json!({
                "cpu": { "preferredCPUTopology": "threads" },
                "firmware": { "preferredUseEfi": true, "preferredUseSecureBoot": true },
            }),
        ),
        (
            "any",
            json!({ "cpu": { "preferredCPUTopology": "any" }, "clock": { "preferredClockOffset": { "timezone": "UTC" } } }),
        ),
        ("everything", everything()),
        ("picky", picky("sockets")),
        ("picky-cores", picky("cores")),
        ("picky-threads", picky("threads")),
        ("picky-spread", picky("spread")),
        ("picky-any", picky("any")),
        ("picky-wide", picky_across("CoresThreads")),
        ("picky-deep", picky_across("SocketsCoresThreads")),
    ]
}

fn picky(topology: &str) -> Value {
    json!({
        "cpu": { "preferredCPUTopology": topology },
        "requirements": { "architecture": "amd64", "cpu": { "guest": 2 }, "memory": { "guest": "1Gi" } },
    })
}

fn picky_across(across: &str) -> Value {
    let mut picky = picky("spread");
    picky["cpu"]["spreadOptions"] = json!({ "across": across });
    picky
}

/// A preference with an opinion on every device and feature.
fn everything() -> Value {
    json!({
        "devices": {
            "preferredAutoattachGraphicsDevice": true, "preferredAutoattachInputDevice": true,
            "preferredAutoattachMemBalloon": false, "preferredAutoattachPodInterface": true,
            "preferredAutoattachSerialConsole": false, "preferredBlockMultiQueue": true,
            "preferredDisableHotplug": true, "preferredDiskBlockSize": { "matchVolume": {} },
            "preferredDiskBus": "virtio", "preferredDiskCache": "writeback", "preferredDiskDedicatedIoThread": true,
            "preferredDiskIO": "native", "preferredInputBus": "virtio", "preferredInputType": "tablet",
            "preferredInterfaceModel": "e1000", "preferredLunBus": "scsi", "preferredNetworkInterfaceMultiQueue": true,
            "preferredSoundModel": "ac97", "preferredUseVirtioTransitional": true,
            "preferredVirtualGPUOptions": { "display": { "enabled": false } },
        },
        "features": {
            "preferredKvm": { "hidden": true }, "preferredPvspinlock": { "enabled": false },
            "preferredHyperv": {
                "evmcs": {}, "frequencies": {}, "ipi": {}, "reenlightenment": {}, "reset": {}, "runtime": {},
                "synictimer": { "direct": {} }, "tlbflush": {}, "vapic": {}, "vendorid": { "vendorid": "KVMKVM" },
            },
        },
    })
}
