//! The effective configuration: defaults, overlay, refusals and feature gates.

use api::config::{ClusterConfig, ConfigError};
use api::v1::KubeVirt;
use serde_json::{Value, json};

fn kubevirt(configuration: Value) -> KubeVirt {
    serde_json::from_value(json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "KubeVirt",
        "metadata": { "name": "kubevirt", "namespace": "virt" },
        "spec": { "configuration": configuration },
        "status": { "phase": "Deployed", "defaultArchitecture": "arm64" },
    }))
    .expect("a well-formed KubeVirt")
}

#[test]
fn an_empty_overlay_leaves_the_defaults() {
    let config = ClusterConfig::from_kubevirt(&kubevirt(json!({}))).unwrap();
    assert_eq!(config.configuration, ClusterConfig::default().configuration);
    assert_eq!(config.install_namespace, "virt");
    assert_eq!(config.default_architecture(), "arm64");
    assert_eq!(config.cpu_allocation_ratio(), 10);
    assert_eq!(config.machine_type("amd64"), "q35");
    assert_eq!(config.machine_type("arm64"), "virt");
    assert_eq!(config.cpu_request().0, "100m");
    assert_eq!(config.migrations().parallel_migrations_per_cluster, Some(5));
}

#[test]
fn an_overlay_replaces_single_fields_and_keeps_their_neighbours() {
    let config = ClusterConfig::from_kubevirt(&kubevirt(json!({
        "developerConfiguration": { "useEmulation": true },
        "migrations": { "maxDowntimeMs": 300 },
        "architectureConfiguration": { "amd64": { "machineType": "pc-q35-8.0" } },
    })))
    .unwrap();
    assert!(config.use_emulation());
    assert_eq!(config.memory_overcommit(), 100);
    assert_eq!(config.migrations().max_downtime_ms, Some(300));
    assert_eq!(config.migrations().progress_timeout, Some(150));
    assert_eq!(config.machine_type("amd64"), "pc-q35-8.0");
}

#[test]
fn impossible_values_are_refused_with_their_field() {
    let cases = [
        (json!({ "imagePullPolicy": "Sometimes" }), "spec.configuration.imagePullPolicy"),
        (
            json!({ "developerConfiguration": { "memoryOvercommit": 0 } }),
            "spec.configuration.developerConfiguration.memoryOvercommit",
        ),
        (
            json!({ "developerConfiguration": { "cpuAllocationRatio": -1 } }),
            "spec.configuration.developerConfiguration.cpuAllocationRatio",
        ),
        (
            json!({ "developerConfiguration": { "pvcTolerateLessSpaceUpToPercent": 101 } }),
            "spec.configuration.developerConfiguration.pvcTolerateLessSpaceUpToPercent",
        ),
        (
            json!({ "network": { "defaultNetworkInterface": "carrier-pigeon" } }),
            "spec.configuration.network.defaultNetworkInterface",
        ),
        (
            json!({ "additionalGuestMemoryOverheadRatio": "0.5" }),
            "spec.configuration.additionalGuestMemoryOverheadRatio",
        ),
    ];
    for (overlay, want) in cases {
        match ClusterConfig::from_kubevirt(&kubevirt(overlay)) {
            Err(ConfigError::Invalid { field, .. }) => assert_eq!(field, want),
            other => panic!("{want}: expected a refusal, got {other:?}"),
        }
    }
}

#[test]
fn gates_follow_their_stage_unless_listed() {
    let config = ClusterConfig::from_kubevirt(&kubevirt(json!({
        "developerConfiguration": {
            "featureGates": ["HostDisk", "RebootPolicy", "Passt", "NoSuchGate"],
            "disabledFeatureGates": ["Snapshot", "RebootPolicy", "LiveMigration"],
        },
    })))
    .unwrap();
    let cases = [
        ("HostDisk", true, "alpha and asked for"),
        ("VSOCK", false, "alpha"),
        ("ImageVolume", true, "beta"),
        ("Snapshot", false, "beta and refused"),
        ("RebootPolicy", true, "on both lists"),
        ("LiveMigration", true, "generally available cannot be refused"),
        ("HotplugVolumes", false, "deprecated"),
        ("Passt", false, "discontinued cannot be asked for"),
        ("NoSuchGate", false, "unknown"),
    ];
    for (gate, want, why) in cases {
        assert_eq!(config.feature_gate(gate), want, "{gate}: {why}");
    }
}
