//! The effective configuration: defaults, overlay, refusals and feature gates.

use api::config::{ClusterConfig, ConfigError, in_force};
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

/// `namespace/name`, seconds after the minute, and whether it is being deleted.
type Row = (&'static str, u8, bool);

fn installation((path, second, deleting): Row) -> KubeVirt {
    let (namespace, name) = path.split_once('/').expect("a namespace and a name");
    let deleted = deleting.then_some("2026-01-01T00:01:00Z");
    serde_json::from_value(json!({"metadata": {
        "namespace": namespace, "name": name,
        "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"), "deletionTimestamp": deleted,
    }}))
    .expect("a well-formed KubeVirt")
}

#[test]
fn the_oldest_object_that_stays_is_in_force() {
    type Case<'a> = (&'a str, &'a [Row], Option<&'a str>, Option<&'a str>);
    let table: [Case<'_>; 9] = [
        ("none", &[], None, None),
        ("one", &[("a/x", 1, false)], None, Some("a/x")),
        ("the oldest", &[("a/x", 2, false), ("a/y", 1, false)], None, Some("a/y")),
        ("created in the same second", &[("b/x", 1, false), ("a/y", 1, false), ("a/x", 1, false)], None, Some("a/x")),
        ("the oldest is being deleted", &[("a/x", 1, true), ("a/y", 2, false)], None, Some("a/y")),
        ("all are being deleted", &[("a/x", 2, true), ("a/y", 1, true)], None, Some("a/y")),
        ("the oldest is elsewhere", &[("a/x", 1, false), ("b/y", 2, false)], Some("b"), Some("b/y")),
        ("the one that stays is elsewhere", &[("a/x", 1, false), ("b/y", 2, true)], Some("b"), Some("b/y")),
        ("all are elsewhere", &[("a/x", 1, false)], Some("b"), None),
    ];
    for (case, rows, namespace, expected) in table {
        let mut objects: Vec<KubeVirt> = rows.iter().copied().map(installation).collect();
        for _ in 0..2 {
            let found = in_force(&objects, namespace).map(|object| {
                let meta = &object.metadata;
                format!("{}/{}", meta.namespace.as_deref().unwrap(), meta.name.as_deref().unwrap())
            });
            assert_eq!(found.as_deref(), expected, "{case}");
            objects.reverse();
        }
    }
}

#[test]
fn the_object_in_force_is_laid_over_what_the_installation_starts_from() {
    let mut base = ClusterConfig { launcher_image: "launcher:2".to_owned(), ..ClusterConfig::default() };
    base.configuration.virtual_machine_options =
        Some(serde_json::from_value(json!({ "disableSerialConsoleLog": {} })).unwrap());
    let effective = |policy| base.effective([kubevirt(json!({ "imagePullPolicy": policy }))], Some("virt"));
    let config = effective("Always").unwrap();
    assert_eq!((config.image_pull_policy(), config.launcher_image.as_str()), ("Always", "launcher:2"));
    assert!(config.serial_console_log_disabled());
    assert!(effective("Sometimes").unwrap_err().to_string().contains("imagePullPolicy"));
    assert_eq!(base.effective([kubevirt(json!({ "imagePullPolicy": "Always" }))], Some("other")).unwrap(), base);
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
