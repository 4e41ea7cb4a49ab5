//! The defaults of the KubeVirt object's configuration.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};

use crate::v1::{KubeVirtConfiguration, MigrationStallDetector};

/// The configuration of a cluster whose KubeVirt object is empty.
pub(super) fn configuration() -> KubeVirtConfiguration {
    let defaults = json!({
        "imagePullPolicy": "IfNotPresent",
        "evictionStrategy": "None",
        "vmRolloutStrategy": "LiveUpdate",
        "cpuRequest": "100m",
        "memBalloonStatsPeriod": 10,
        "liveUpdateConfiguration": { "maxHotplugRatio": 4 },
        "smbios": { "family": "KubeVirt", "manufacturer": "KubeVirt", "product": "None" },
        "network": { "defaultNetworkInterface": "bridge", "permitBridgeInterfaceOnPodNetwork": true },
        "supportedGuestAgentVersions": ["2.*", "3.*", "4.*", "5.*"],
        "hypervisors": [{ "name": "kvm" }],
        "architectureConfiguration": {
            "amd64": architecture("q35", &["q35*", "pc-q35*"], "/usr/share/edk2/ovmf"),
            "arm64": architecture("virt", &["virt*"], "/usr/share/AAVMF"),
            "s390x": architecture("s390-ccw-virtio", &["s390-ccw-virtio*"], ""),
        },
        "developerConfiguration": {
            "memoryOvercommit": 100,
            "cpuAllocationRatio": 10,
            "pvcTolerateLessSpaceUpToPercent": 10,
            "minimumReservePVCBytes": 131_072,
            "useEmulation": false,
            "diskVerification": { "memoryLimit": "2000Mi" },
            "logVerbosity": {
                "virtAPI": 2, "virtController": 2, "virtHandler": 2, "virtLauncher": 2, "virtOperator": 2,
            },
        },
        "migrations": {
            "parallelMigrationsPerCluster": 5,
            "parallelOutboundMigrationsPerNode": 2,
            "bandwidthPerMigration": "0",
            "completionTimeoutPerGiB": 150,
            "progressTimeout": 150,
            "utilityVolumesTimeout": 150,
            "maxDowntimeMs": 900,
            "nodeDrainTaintKey": "kubevirt.io/drain",
            "allowAutoConverge": false,
            "allowPostCopy": false,
            "unsafeMigrationOverride": false,
            "disableTLS": false,
        },
        "apiConfiguration": rate_limit(200, 400),
        "controllerConfiguration": rate_limit(200, 400),
        "webhookConfiguration": rate_limit(200, 400),
        "handlerConfiguration": rate_limit(50, 100),
        "instancetype": { "referencePolicy": "reference" },
    });
    serde_json::from_value(defaults).expect("the literal above decodes; a test reads it back")
}

fn architecture(machine_type: &str, emulated_machines: &[&str], ovmf_path: &str) -> Value {
    json!({ "machineType": machine_type, "emulatedMachines": emulated_machines, "ovmfPath": ovmf_path })
}

/// Average requests per second, and burst.
fn rate_limit(qps: u32, burst: u32) -> Value {
    json!({ "restClient": { "rateLimiter": { "tokenBucketRateLimiter": { "qps": qps, "burst": burst } } } })
}

/// The default settings of stall detection, where the policy sets none.
pub fn stall_detector() -> MigrationStallDetector {
    let number = |text: &str| Some(Quantity(text.to_owned()));
    MigrationStallDetector {
        completion_timeout_factor: number("2"),
        ewma_alpha: number("0.4"),
        patience_window_decay_factor: number("0.5"),
        precopy_possible_factor: number("1.5"),
        search_local_minima: Some(true),
        stall_margin: Some(4),
        stall_progress_timeout: Some(40),
        switchover_timeout: Some(60),
    }
}
