//! The steps by which requests and limits come about.

use std::collections::BTreeMap;

use api::config::ClusterConfig;
use api::v1::VirtualMachineInstance;
use k8s_openapi::api::core::v1::Pod;
use machinery::quantity::Quantity;
use render::overhead::{FIXED_PARTS, Facts, PARTS, memory_overhead};
use render::{Context, Error, Quotas, launcher_pod};
use serde_json::{Value, json};

use crate::vmi;

const MIB: u64 = 1024 * 1024;

/// The plainest guest: one virtual CPU, a display, hardware virtualization.
const PLAIN: Facts = Facts {
    memory_request: 0,
    vcpus: 1,
    graphics: true,
    emulation: false,
    arm64: false,
    vfio: false,
    downward_metrics: false,
    exec_probes: 0,
    sev: false,
    tpm: false,
    guaranteed: false,
    reserved: 0,
    passt: false,
    plugins: 0,
};

fn plain() -> u64 {
    memory_overhead(&PLAIN, None)
}

struct Amounts {
    requests: BTreeMap<String, String>,
    limits: BTreeMap<String, String>,
    overhead: u64,
}

impl Amounts {
    /// Requested memory without the overhead, in MiB; what is limited is told likewise by the next.
    fn requested(&self) -> i128 {
        in_mib(&self.requests["memory"], self.overhead)
    }

    fn limited(&self) -> i128 {
        in_mib(&self.limits["memory"], self.overhead)
    }
}

fn in_mib(amount: &str, without: u64) -> i128 {
    let bytes = i128::from(amount.parse::<Quantity>().expect("an amount").value()) - i128::from(without);
    assert_eq!(bytes % i128::from(MIB), 0, "{amount}");
    bytes / i128::from(MIB)
}

fn amounts(vmi: &VirtualMachineInstance, config: &ClusterConfig, context: &Context) -> Amounts {
    let pod = launcher_pod(vmi, config, context).expect("the instance renders");
    let text = |amounts: Option<BTreeMap<String, _>>| {
        let amounts = amounts.unwrap_or_default().into_iter();
        amounts.map(|(name, k8s_openapi::apimachinery::pkg::api::resource::Quantity(amount))| (name, amount)).collect()
    };
    let overhead = annotation(&pod).parse().expect("a number of bytes");
    let resources = pod.spec.expect("a spec").containers.remove(0).resources.expect("resources");
    Amounts { requests: text(resources.requests), limits: text(resources.limits), overhead }
}

fn annotation(pod: &Pod) -> &str {
    &pod.metadata.annotations.as_ref().expect("annotations")["kubevirt.io/memory-overhead-bytes"]
}

fn of(over: Value) -> Amounts {
    amounts(&vmi(over), &ClusterConfig::default(), &Context::default())
}

/// An instance whose domain has these fields too.
fn domain(over: Value) -> Amounts {
    of(json!({ "spec": { "domain": over } }))
}

fn configured(configuration: Value) -> ClusterConfig {
    let object = json!({ "metadata": { "name": "kubevirt" }, "spec": { "configuration": configuration } });
    ClusterConfig::from_kubevirt(&serde_json::from_value(object).expect("a KubeVirt object")).expect("a configuration")
}

fn gates(gates: &[&str]) -> ClusterConfig {
    configured(json!({ "developerConfiguration": { "featureGates": gates } }))
}

fn emulated() -> ClusterConfig {
    configured(json!({ "developerConfiguration": { "useEmulation": true } }))
}

#[test]
fn a_million_cpus_are_asked_for() {
    assert_eq!(domain(json!({ "cpu": { "sockets": 1_000_000 } })).requests["cpu"], "100k");
    // More than numbers hold is as much as they hold.
    let cpu = json!({ "sockets": u32::MAX, "cores": u32::MAX, "threads": u32::MAX });
    let vmi = vmi(json!({ "spec": { "domain": { "cpu": cpu } } }));
    for ratio in ["1.0", "5.5"] {
        let config = configured(json!({ "additionalGuestMemoryOverheadRatio": ratio }));
        launcher_pod(&vmi, &config, &Context::default()).expect("the instance renders");
    }
}

#[test]
fn memory_is_requested_for_guest_and_overhead() {
    let plain_guest = domain(json!({}));
    assert_eq!(plain_guest.overhead, plain());
    assert_eq!(plain_guest.requested(), 128);
    assert_eq!(plain_guest.limits.get("memory"), None);
}

#[test]
fn a_written_request_costs_page_tables() {
    let written = domain(json!({ "resources": { "requests": { "memory": "512M" } } }));
    assert_eq!(written.overhead, plain() + 1_000_000);
    assert_eq!(
        written.requests["memory"].parse::<Quantity>().expect("an amount").value(),
        512_000_000 + written.overhead as i64
    );
}

#[test]
fn a_limit_stands_in_for_a_missing_request_and_grows_by_the_overhead() {
    for resources in [json!({ "memory": "256Mi" }), json!({ "memory": "256Mi", "cpu": "1" })] {
        let limited = domain(json!({ "resources": { "limits": resources } }));
        assert_eq!((limited.requested(), limited.limited()), (256, 256));
    }
    let empty = domain(json!({ "resources": { "requests": { "memory": "0" }, "limits": { "memory": "256Mi" } } }));
    assert_eq!((empty.requested(), empty.limited()), (256, 256));
}

#[test]
fn overcommitted_memory_is_requested_in_part() {
    let config = configured(json!({ "developerConfiguration": { "memoryOvercommit": 200 } }));
    assert_eq!(amounts(&vmi(json!({})), &config, &Context::default()).requested(), 64);
    let written = vmi(json!({ "spec": { "domain": { "resources": { "requests": { "memory": "1Gi" } } } } }));
    assert_eq!(amounts(&written, &config, &Context::default()).requested(), 1024);
}

#[test]
fn the_overhead_itself_can_be_overcommitted() {
    let resources = json!({ "overcommitGuestOverhead": true, "limits": { "memory": "256Mi" } });
    let overcommitted = domain(json!({ "resources": resources }));
    assert_eq!(overcommitted.requests["memory"], "256Mi");
    assert_eq!(overcommitted.limited(), 256);
}

#[test]
fn huge_pages_hold_the_guest_and_ordinary_ones_the_rest() {
    let memory = json!({ "guest": "1Gi", "hugepages": { "pageSize": "2Mi" } });
    let rows = [
        ("nothing written", json!({}), ("1Gi", 0, None)),
        ("as much as the guest has", json!({ "requests": { "memory": "1Gi" } }), ("1Gi", 0, None)),
        ("more than the guest has", json!({ "requests": { "memory": "3Gi" } }), ("1Gi", 2048, None)),
        ("less than the guest has", json!({ "requests": { "memory": "512Mi" } }), ("512Mi", 0, None)),
        ("a limit", json!({ "limits": { "memory": "2Gi" } }), ("1Gi", 1024, Some(1024))),
    ];
    for (what, resources, (huge, requested, limited)) in rows {
        let got = domain(json!({ "memory": memory, "resources": resources }));
        assert_eq!(
            (got.requests["hugepages-2Mi"].as_str(), got.limits["hugepages-2Mi"].as_str()),
            (huge, huge),
            "{what}"
        );
        assert_eq!(got.requested(), requested, "{what}");
        assert_eq!(got.limits.contains_key("memory").then(|| got.limited()), limited, "{what}");
    }
    let size_only = domain(json!({ "memory": { "guest": null, "hugepages": { "pageSize": "1Gi" } } }));
    assert_eq!(size_only.requests["hugepages-1Gi"], "1Gi");
}

#[test]
fn cpus_are_requested_by_the_allocation_ratio() {
    let cpus = |cpu: Value| domain(json!({ "cpu": cpu })).requests.get("cpu").cloned().unwrap_or_default();
    assert_eq!(cpus(json!(null)), "100m");
    assert_eq!(cpus(json!({ "sockets": 2 })), "200m");
    assert_eq!(cpus(json!({ "sockets": 2, "cores": 3, "threads": 2 })), "1200m");
    assert_eq!(cpus(json!({ "sockets": 0 })), "");
    let threads = domain(json!({ "ioThreads": { "supplementalPoolThreadCount": 4 } }));
    assert_eq!(threads.requests["cpu"], "500m");
    let config = configured(json!({ "developerConfiguration": { "cpuAllocationRatio": 3 } }));
    assert_eq!(amounts(&vmi(json!({})), &config, &Context::default()).requests["cpu"], "334m");
}

#[test]
fn a_written_cpu_request_stays() {
    let written = domain(json!({ "resources": { "requests": { "cpu": "2" } } }));
    assert_eq!(written.requests["cpu"], "2");
    assert_eq!(written.limits.get("cpu"), None);
}

#[test]
fn dedicated_cpus_are_whole_and_limited() {
    let parity = "alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity";
    let rows = [
        ("four", json!({ "cores": 4 }), json!({}), false, "4"),
        (
            "with threads for disks",
            json!({ "cores": 4 }),
            json!({ "ioThreads": { "supplementalPoolThreadCount": 2 } }),
            false,
            "6",
        ),
        ("with the emulator's", json!({ "cores": 4, "isolateEmulatorThread": true }), json!({}), false, "5"),
        ("even", json!({ "cores": 4, "isolateEmulatorThread": true }), json!({}), true, "6"),
        ("even already", json!({ "cores": 3, "isolateEmulatorThread": true }), json!({}), true, "4"),
        (
            "even with a pool that counts twice",
            json!({ "cores": 3, "isolateEmulatorThread": true }),
            json!({ "ioThreadsPolicy": "supplementalPool", "ioThreads": { "supplementalPoolThreadCount": 1 } }),
            true,
            "5",
        ),
        (
            "as limited",
            json!({}),
            json!({ "resources": { "limits": { "cpu": "3" }, "requests": { "cpu": "3" } } }),
            false,
            "3",
        ),
    ];
    for (what, cpu, more, even, expected) in rows {
        let mut over = json!({ "cpu": cpu });
        over["cpu"]["dedicatedCpuPlacement"] = json!(true);
        machinery::patch::merge(&mut over, &more);
        let annotations = if even { json!({ parity: "" }) } else { json!({}) };
        let got = of(json!({ "metadata": { "annotations": annotations }, "spec": { "domain": over } }));
        assert_eq!((got.requests["cpu"].as_str(), got.limits["cpu"].as_str()), (expected, expected), "{what}");
        assert_eq!((got.requested(), got.limited()), (128, 128), "{what}");
    }
}

#[test]
fn quotas_make_limits() {
    let quotas = Quotas { limits_cpu: true, limits_memory: true };
    let context = Context { quotas, ..Context::default() };
    let two = vmi(json!({ "spec": { "domain": { "cpu": { "cores": 2 } } } }));
    let doubled = |amounts: &Amounts, ratio: f64| {
        let value = |text: &str| text.parse::<Quantity>().expect("an amount").value() as f64;
        value(&amounts.limits["memory"]) == (value(&amounts.requests["memory"]) * ratio).trunc()
    };
    let limited = amounts(&two, &ClusterConfig::default(), &context);
    assert_eq!(limited.limits["cpu"], "2");
    assert!(doubled(&limited, 2.0));
    for (ratio, used) in [("1.5", 1.5), ("0.5", 2.0), ("much", 2.0)] {
        let label = ("alpha.kubevirt.io/auto-memory-limits-ratio".to_owned(), ratio.to_owned());
        let context = Context { namespace_labels: [label].into(), ..context.clone() };
        assert!(doubled(&amounts(&two, &ClusterConfig::default(), &context), used), "{ratio}");
    }
    let own = vmi(json!({ "spec": { "domain": { "resources": { "limits": { "cpu": "4", "memory": "1Gi" } } } } }));
    let own = amounts(&own, &ClusterConfig::default(), &context);
    assert_eq!((own.limits["cpu"].as_str(), own.limited()), ("4", 1024));
}

#[test]
fn a_namespace_can_be_selected_for_cpu_limits() {
    let config = configured(json!({ "autoCPULimitNamespaceLabelSelector": { "matchLabels": { "team": "batch" } } }));
    let limit = |team: &str| {
        let namespace_labels = [("team".to_owned(), team.to_owned())].into();
        amounts(&vmi(json!({})), &config, &Context { namespace_labels, ..Context::default() })
            .limits
            .get("cpu")
            .cloned()
    };
    assert_eq!(limit("batch").as_deref(), Some("1"));
    assert_eq!(limit("web"), None);
}

#[test]
fn devices_follow_hardware_and_network() {
    let devices = |amounts: &Amounts| -> Vec<String> {
        let names = amounts.limits.keys().filter_map(|name| name.strip_prefix("devices.kubevirt.io/"));
        names.map(str::to_owned).collect()
    };
    let nic = |model: &str| json!({ "devices": { "interfaces": [{ "name": "default", "model": model }] } });
    assert_eq!(devices(&domain(nic(""))), ["kvm", "tun", "vhost-net"]);
    assert_eq!(devices(&domain(nic("e1000"))), ["kvm", "tun"]);
    assert_eq!(devices(&domain(json!({}))), ["kvm", "tun"]);
    assert_eq!(devices(&domain(json!({ "devices": { "autoattachPodInterface": false } }))), ["kvm"]);
    assert_eq!(devices(&domain(json!({ "devices": { "autoattachVSOCK": true } }))), ["kvm", "tun", "vhost-vsock"]);
    let emulated = amounts(&vmi(json!({ "spec": { "domain": nic("virtio") } })), &emulated(), &Context::default());
    assert_eq!(devices(&emulated), ["tun"]);
    assert_eq!(devices(&domain(json!({ "launchSecurity": { "snp": {} } }))), ["kvm", "sev", "tun"]);
    assert_eq!(devices(&domain(json!({ "launchSecurity": { "tdx": {} } }))), ["kvm", "tdx", "tun"]);
    let reserved = json!({ "devices": { "disks": [{ "name": "d", "lun": { "reservation": true } }] } });
    assert_eq!(devices(&domain(reserved)), ["kvm", "pr-helper", "tun"]);
    let open = amounts(&vmi(json!({})), &gates(&["IOMMUFD"]), &Context::default());
    assert_eq!(devices(&open), ["iommufd", "kvm", "tun"]);
}

#[test]
fn each_device_of_a_plugin_counts_once_more() {
    let gpu = |name: &str| json!({ "name": name, "deviceName": "vendor/gpu" });
    let two = domain(json!({ "devices": { "gpus": [gpu("a"), gpu("b")] } }));
    assert_eq!((two.requests["vendor/gpu"].as_str(), two.limits["vendor/gpu"].as_str()), ("2", "2"));
    let over = json!({ "devices": { "gpus": [gpu("a")] }, "resources": { "limits": { "vendor/gpu": "3" } } });
    assert_eq!(domain(over).limits["vendor/gpu"], "3", "what the instance writes itself stays");
}

#[test]
fn networks_bring_devices_unless_a_webhook_does() {
    let networks = json!([{ "name": "fast", "multus": { "networkName": "sriov" } }]);
    let vmi = vmi(json!({ "spec": { "networks": networks } }));
    let network_resources = [("fast".to_owned(), "intel.com/sriov".to_owned())].into();
    let context = Context { network_resources, ..Context::default() };
    let closed =
        configured(json!({ "developerConfiguration": { "disabledFeatureGates": ["ExternalNetResourceInjection"] } }));
    assert_eq!(amounts(&vmi, &closed, &context).requests["intel.com/sriov"], "1");
    assert_eq!(amounts(&vmi, &ClusterConfig::default(), &context).requests.get("intel.com/sriov"), None);
}

#[test]
fn scratch_space_is_added_to_what_is_written() {
    assert_eq!(domain(json!({})).requests["ephemeral-storage"], "50M");
    let written = json!({ "requests": { "ephemeral-storage": "100M" }, "limits": { "ephemeral-storage": "200M" } });
    let written = domain(json!({ "resources": written }));
    assert_eq!(written.requests["ephemeral-storage"], "150M");
    assert_eq!(written.limits["ephemeral-storage"], "250M");
}

#[test]
fn the_facts_of_an_instance_make_its_overhead() {
    let bytes = |over: Value| of(over).overhead;
    let rows = [
        ("four virtual CPUs", json!({ "domain": { "cpu": { "sockets": 4 } } }), Facts { vcpus: 4, ..PLAIN }),
        (
            "virtual CPUs by limit",
            json!({ "domain": { "resources": { "limits": { "cpu": "3" } } } }),
            Facts { vcpus: 3, ..PLAIN },
        ),
        (
            "no display",
            json!({ "domain": { "devices": { "autoattachGraphicsDevice": false } } }),
            Facts { graphics: false, ..PLAIN },
        ),
        ("arm64", json!({ "architecture": "arm64" }), Facts { arm64: true, ..PLAIN }),
        (
            "a card of the node's",
            json!({ "domain": { "devices": { "interfaces": [{ "name": "default", "sriov": {} }] } } }),
            Facts { vfio: true, ..PLAIN },
        ),
        (
            "metrics",
            json!({ "volumes": [{ "name": "m", "downwardMetrics": {} }] }),
            Facts { downward_metrics: true, ..PLAIN },
        ),
        (
            "two probes",
            json!({ "livenessProbe": { "exec": {} }, "readinessProbe": { "exec": {} } }),
            Facts { exec_probes: 2, ..PLAIN },
        ),
        ("a ping", json!({ "livenessProbe": { "guestAgentPing": {} } }), PLAIN),
        ("encryption", json!({ "domain": { "launchSecurity": { "sev": {} } } }), Facts { sev: true, ..PLAIN }),
        ("a TPM", json!({ "domain": { "devices": { "tpm": {} } } }), Facts { tpm: true, ..PLAIN }),
        ("no TPM", json!({ "domain": { "devices": { "tpm": { "enabled": false } } } }), PLAIN),
        (
            "dedicated CPUs",
            json!({ "domain": { "cpu": { "cores": 1, "dedicatedCpuPlacement": true } } }),
            Facts { guaranteed: true, ..PLAIN },
        ),
        (
            "an own reserve",
            json!({ "domain": { "memory": { "reservedOverhead": { "addedOverhead": "64Mi" } } } }),
            Facts { reserved: 64 * MIB, ..PLAIN },
        ),
        (
            "passt",
            json!({ "domain": { "devices": { "interfaces": [{ "name": "default", "passtBinding": {} }] } } }),
            Facts { passt: true, ..PLAIN },
        ),
    ];
    for (what, spec, facts) in rows {
        assert_eq!(bytes(json!({ "spec": spec })), memory_overhead(&facts, None), "{what}");
    }
    let emulated = amounts(&vmi(json!({})), &emulated(), &Context::default());
    assert_eq!(emulated.overhead, memory_overhead(&Facts { emulation: true, ..PLAIN }, None));
}

#[test]
fn each_part_of_the_overhead_follows_its_fact() {
    let grows = |facts: Facts| i128::from(memory_overhead(&facts, None)) - i128::from(plain());
    let mib = i128::from(MIB);
    let rows = [
        ("a gigabyte requested", Facts { memory_request: 1_024_000_000, ..PLAIN }, 2_000_000),
        ("an odd byte requested", Facts { memory_request: 1, ..PLAIN }, 1),
        ("host devices", Facts { vfio: true, ..PLAIN }, 1024 * mib),
        ("arm64", Facts { arm64: true, ..PLAIN }, 128 * mib),
        ("reserved", Facts { reserved: 5, ..PLAIN }, 5),
        ("plugins", Facts { plugins: 7, ..PLAIN }, 7),
    ];
    for (what, facts, expected) in rows {
        assert_eq!(grows(facts), expected, "{what}");
    }
    let each = [
        Facts { vcpus: 2, ..PLAIN },
        Facts { emulation: true, ..PLAIN },
        Facts { downward_metrics: true, ..PLAIN },
        Facts { exec_probes: 1, ..PLAIN },
        Facts { sev: true, ..PLAIN },
        Facts { tpm: true, ..PLAIN },
        Facts { guaranteed: true, ..PLAIN },
        Facts { passt: true, ..PLAIN },
    ];
    for facts in each {
        assert!(grows(facts) > 0, "{facts:?}");
    }
    assert!(grows(Facts { graphics: false, ..PLAIN }) < 0);
}

#[test]
fn every_part_of_the_overhead_has_a_name_of_its_own() {
    let all = PARTS.iter().chain(FIXED_PARTS);
    let names: std::collections::BTreeSet<&str> = all.clone().map(|part| part.name).collect();
    assert_eq!(names.len(), all.count());
}

#[test]
fn a_ratio_multiplies_what_is_estimated_in_whole_kilobytes() {
    let half_more = memory_overhead(&PLAIN, Some(1.5)) - plain();
    assert_eq!(half_more, plain().div_ceil(1000) / 2 * 1000);
    let fixed = Facts { passt: true, ..PLAIN };
    assert_eq!(memory_overhead(&fixed, Some(1.5)) - memory_overhead(&fixed, None), half_more);
    let config = configured(json!({ "additionalGuestMemoryOverheadRatio": "1.5" }));
    assert_eq!(amounts(&vmi(json!({})), &config, &Context::default()).overhead, plain() + half_more);
}

#[test]
fn without_memory_or_identity_there_is_no_pod() {
    let refuse = |over: Value| launcher_pod(&vmi(over), &ClusterConfig::default(), &Context::default());
    let no_memory = refuse(json!({ "spec": { "domain": { "memory": null } } }));
    assert_eq!(no_memory, Err(Error::Missing("spec.domain.memory.guest")));
    assert_eq!(refuse(json!({ "metadata": { "uid": null } })), Err(Error::Missing("metadata.uid")));
    assert_eq!(refuse(json!({ "metadata": { "name": null } })), Err(Error::Missing("metadata.name")));
}

#[test]
fn an_amount_that_is_none_is_named_by_its_field() {
    let garbled = vmi(json!({ "spec": { "domain": { "resources": { "limits": { "memory": "much" } } } } }));
    let error = launcher_pod(&garbled, &ClusterConfig::default(), &Context::default()).expect_err("no Pod");
    assert_eq!(error.to_string(), "failed to read spec.domain.resources.limits.memory");
}
