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
fn every_default_is_there() {
    let config = ClusterConfig::default();
    assert_eq!(config.image_pull_policy(), "IfNotPresent");
    assert_eq!(config.eviction_strategy(), "None");
    assert!(config.is_live_update());
    assert_eq!(config.max_hotplug_ratio(), 4);
    assert_eq!((config.max_cpu_sockets(), config.max_guest_memory()), (None, None));
    assert_eq!(config.pvc_tolerate_less_space_up_to_percent(), 10);
    assert_eq!(config.minimum_reserve_pvc_bytes(), 131_072);
    assert_eq!(config.disk_verification_memory_limit().0, "2000Mi");
    assert_eq!(config.launcher_log_verbosity(), 2);
    assert_eq!(config.default_network_interface(), "bridge");
    assert!(config.permit_bridge_on_pod_network());
    assert_eq!(config.mem_balloon_stats_period(), 10);
    assert_eq!(config.smbios().product.as_deref(), Some("None"));
    let machines = [
        ("amd64", "q35", "q35* pc-q35*", "/usr/share/edk2/ovmf"),
        ("arm64", "virt", "virt*", "/usr/share/AAVMF"),
        ("s390x", "s390-ccw-virtio", "s390-ccw-virtio*", ""),
    ];
    for (arch, machine, patterns, firmware) in machines {
        assert_eq!(config.machine_type(arch), machine);
        assert_eq!(config.emulated_machines(arch).join(" "), patterns);
        assert_eq!(config.ovmf_path(arch), firmware);
    }
    let migrations = config.migrations();
    assert_eq!(migrations.parallel_outbound_migrations_per_node, Some(2));
    assert_eq!(migrations.bandwidth_per_migration.map(|bandwidth| bandwidth.0).as_deref(), Some("0"));
    assert_eq!(migrations.completion_timeout_per_gib, Some(150));
    assert_eq!(migrations.utility_volumes_timeout, Some(150));
    assert_eq!(migrations.max_downtime_ms, Some(900));
    assert_eq!(migrations.node_drain_taint_key.as_deref(), Some("kubevirt.io/drain"));
    let no = Some(false);
    assert_eq!((migrations.allow_auto_converge, migrations.allow_post_copy, migrations.disable_tls), (no, no, no));
    assert_eq!((migrations.allow_workload_disruption, migrations.unsafe_migration_override), (no, no));
    assert_eq!(migrations.match_selinux_level_on_migration, Some(true));
    let handler = config.configuration.handler_configuration.clone().unwrap_or_default();
    let limit = handler.rest_client.and_then(|client| client.rate_limiter?.token_bucket_rate_limiter).unwrap();
    assert_eq!((limit.qps, limit.burst), (50.0, 100));
    assert!(!config.tdx_attestation_enforced());
    assert_eq!(config.qgs_socket_path(), "/var/run/tdx-qgs/qgs.socket");
    assert_eq!(config.hypervisor(), "kvm");
    assert_eq!(config.instancetype_reference_policy(), "reference");
    assert!(config.permitted_host_devices().is_none() && !config.persistent_reservation());
    let detector = api::config::stall_detector();
    assert_eq!((detector.stall_margin, detector.switchover_timeout), (Some(4), Some(60)));
}

#[test]
fn some_settings_follow_others() {
    let config = ClusterConfig::from_kubevirt(&kubevirt(json!({
        "machineType": "pc-q35-9.2",
        "emulatedMachines": ["pc-q35-9*"],
        "hypervisors": [{ "name": "hyperv-direct" }],
        "migrations": { "allowPostCopy": true },
        "obsoleteCPUModels": { "486": true, "Opteron_G2": false },
        "supportContainerResources": [{ "type": "virtiofs", "resources": { "limits": { "cpu": "1" } } }],
    })))
    .unwrap();
    assert_eq!(config.machine_type("arm64"), "pc-q35-9.2", "the old field is for every architecture");
    assert_eq!(config.emulated_machines("s390x"), ["pc-q35-9*"]);
    assert_eq!(config.hypervisor(), "kvm", "the gate is closed");
    assert_eq!(config.migrations().allow_workload_disruption, Some(true));
    assert_eq!(config.obsolete_cpu_models().collect::<Vec<_>>(), ["486"]);
    assert!(config.support_container_resources("virtiofs").is_some());
    assert!(config.support_container_resources("sidecar").is_none());
}

#[test]
fn a_refused_configuration_leaves_the_last_good_one_in_force() {
    let good = ClusterConfig { launcher_image: "launcher:2".to_owned(), ..ClusterConfig::default() };
    let (next, error) = good.renewed(&kubevirt(json!({ "imagePullPolicy": "Always" })));
    assert_eq!((next.image_pull_policy(), next.launcher_image.as_str(), error), ("Always", "launcher:2", None));
    let (kept, error) = next.renewed(&kubevirt(json!({ "imagePullPolicy": "Sometimes" })));
    assert_eq!(kept, next);
    assert!(error.is_some_and(|error| error.to_string().contains("imagePullPolicy")));
}

#[test]
fn annotations_of_the_kubevirt_object_are_at_hand() {
    let mut object = kubevirt(json!({}));
    let key = api::annotations::EMULATOR_THREAD_COMPLETE_TO_EVEN_PARITY.to_owned();
    object.metadata.annotations = Some([(key.clone(), String::new())].into());
    assert!(ClusterConfig::from_kubevirt(&object).unwrap().annotations.contains_key(&key));
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
        (json!({ "cpuRequest": "much" }), "spec.configuration.cpuRequest"),
        (
            json!({ "migrations": { "bandwidthPerMigration": "64 MB" } }),
            "spec.configuration.migrations.bandwidthPerMigration",
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
        ("Passt", true, "discontinued, with nothing behind the gate"),
        ("NoSuchGate", false, "unknown"),
    ];
    for (gate, want, why) in cases {
        assert_eq!(config.feature_gate(gate), want, "{gate}: {why}");
    }
}
