//! The steps by which requests and limits come about.

use std::collections::BTreeMap;

use api::config::ClusterConfig;
use api::v1::VirtualMachineInstance;
use k8s_openapi::api::core::v1::Pod;
use render::overhead::{Facts, PARTS, memory_overhead};
use render::{Context, Error, launcher_pod};
use serde_json::{Value, json};

use crate::vmi;

const MIB: u64 = 1024 * 1024;

/// Overhead of the plainest guest: one virtual CPU, a display, hardware virtualization.
const PLAIN: u64 = (30 + 40 + 50 + 8 + 8 + 32) * MIB;

struct Amounts {
    requests: BTreeMap<String, String>,
    limits: BTreeMap<String, String>,
    overhead: u64,
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

fn developer(change: impl FnOnce(&mut api::v1::DeveloperConfiguration)) -> ClusterConfig {
    let mut config = ClusterConfig::default();
    change(config.configuration.developer_configuration.get_or_insert_default());
    config
}

fn emulated() -> ClusterConfig {
    developer(|developer| developer.use_emulation = Some(true))
}

#[test]
fn memory_is_requested_for_guest_and_overhead() {
    let plain = of(json!({}));
    assert_eq!(plain.overhead, PLAIN);
    assert_eq!(plain.requests["memory"], "296Mi");
    assert_eq!(plain.limits.get("memory"), None);
}

#[test]
fn a_written_request_costs_page_tables() {
    let written = of(json!({ "spec": { "domain": { "resources": { "requests": { "memory": "512Mi" } } } } }));
    assert_eq!(written.overhead, PLAIN + MIB);
    assert_eq!(written.requests["memory"], "681Mi");
}

#[test]
fn a_limit_stands_in_for_a_missing_request_and_grows_by_the_overhead() {
    let limited = of(json!({ "spec": { "domain": { "resources": { "limits": { "memory": "256Mi" } } } } }));
    assert_eq!(limited.requests["memory"], "424Mi");
    assert_eq!(limited.limits["memory"], "424Mi");
}

#[test]
fn overcommitted_memory_is_requested_in_part() {
    let config = developer(|developer| developer.memory_overcommit = Some(200));
    assert_eq!(amounts(&vmi(json!({})), &config, &Context::default()).requests["memory"], "232Mi");
}

#[test]
fn the_overhead_itself_can_be_overcommitted() {
    let over = json!({ "spec": { "domain": { "resources": { "overcommitGuestOverhead": true } } } });
    let overcommitted = of(over);
    assert_eq!(overcommitted.requests["memory"], "128Mi");
    assert_eq!(overcommitted.overhead, PLAIN);
}

#[test]
fn cpus_are_requested_by_the_allocation_ratio() {
    let cpus = |cpu: Value| of(json!({ "spec": { "domain": { "cpu": cpu } } })).requests["cpu"].clone();
    assert_eq!(cpus(json!(null)), "100m");
    assert_eq!(cpus(json!({ "sockets": 2 })), "200m");
    assert_eq!(cpus(json!({ "sockets": 2, "cores": 3, "threads": 2 })), "1200m");
    let config = developer(|developer| developer.cpu_allocation_ratio = Some(3));
    assert_eq!(amounts(&vmi(json!({})), &config, &Context::default()).requests["cpu"], "333m");
}

#[test]
fn a_written_cpu_request_stays() {
    let written = of(json!({ "spec": { "domain": { "resources": { "requests": { "cpu": "2" } } } } }));
    assert_eq!(written.requests["cpu"], "2");
    assert_eq!(written.limits.get("cpu"), None);
}

#[test]
fn quotas_make_limits() {
    let context = Context { quota_limits_cpu: true, quota_memory_limit_ratio: Some(2.0) };
    let two = vmi(json!({ "spec": { "domain": { "cpu": { "cores": 2 } } } }));
    let limited = amounts(&two, &ClusterConfig::default(), &context);
    assert_eq!(limited.limits["cpu"], "2");
    assert_eq!(limited.limits["memory"], "608Mi");
    let own = vmi(json!({ "spec": { "domain": { "resources": { "limits": { "cpu": "4", "memory": "1Gi" } } } } }));
    let own = amounts(&own, &ClusterConfig::default(), &context);
    assert_eq!(own.limits["cpu"], "4");
    // Without a topology the CPU limit counts the virtual CPUs, and each of them has its overhead.
    assert_eq!(own.limits["memory"], "1216Mi");
}

#[test]
fn devices_follow_hardware_and_network() {
    let devices = |amounts: &Amounts| -> Vec<String> {
        let names = amounts.limits.keys().filter_map(|name| name.strip_prefix("devices.kubevirt.io/"));
        names.map(str::to_owned).collect()
    };
    let nic = |model: &str| json!({ "spec": { "domain": { "devices": { "interfaces": [{ "name": "default", "model": model }] } } } });
    assert_eq!(devices(&of(nic(""))), ["kvm", "tun", "vhost-net"]);
    assert_eq!(devices(&of(nic("e1000"))), ["kvm", "tun"]);
    assert_eq!(devices(&of(json!({}))), ["kvm", "tun"]);
    let alone = json!({ "spec": { "domain": { "devices": { "autoattachPodInterface": false } } } });
    assert_eq!(devices(&of(alone)), ["kvm"]);
    let emulated = amounts(&vmi(nic("virtio")), &emulated(), &Context::default());
    assert_eq!(devices(&emulated), ["tun"]);
    assert_eq!(emulated.requests["devices.kubevirt.io/tun"], "1");
}

#[test]
fn scratch_space_is_added_to_what_is_written() {
    assert_eq!(of(json!({})).requests["ephemeral-storage"], "50M");
    let written = json!({ "requests": { "ephemeral-storage": "100M" }, "limits": { "ephemeral-storage": "200M" } });
    let written = of(json!({ "spec": { "domain": { "resources": written } } }));
    assert_eq!(written.requests["ephemeral-storage"], "150M");
    assert_eq!(written.limits["ephemeral-storage"], "250M");
}

#[test]
fn each_part_of_the_overhead_follows_its_fact() {
    let plain = Facts { memory_request: 0, vcpus: 1, graphics: true, emulation: false };
    let difference = |facts: Facts| i128::from(memory_overhead(&facts, None)) - i128::from(PLAIN);
    let mib = i128::from(MIB);
    let rows = [
        ("the plain guest", plain, 0),
        ("a gibibyte requested", Facts { memory_request: 1024 * MIB, ..plain }, 2 * mib),
        ("an odd byte requested", Facts { memory_request: 1, ..plain }, 2),
        ("four virtual CPUs", Facts { vcpus: 4, ..plain }, 24 * mib),
        ("no display", Facts { graphics: false, ..plain }, -32 * mib),
        ("emulation", Facts { emulation: true, ..plain }, 128 * mib),
    ];
    for (what, facts, expected) in rows {
        assert_eq!(difference(facts), expected, "{what}");
    }
}

#[test]
fn every_part_of_the_overhead_has_a_name_of_its_own() {
    let names: std::collections::BTreeSet<&str> = PARTS.iter().map(|part| part.name).collect();
    assert_eq!(names.len(), PARTS.len());
}

#[test]
fn a_ratio_multiplies_the_overhead_in_whole_kibibytes() {
    let facts = Facts { memory_request: 0, vcpus: 1, graphics: true, emulation: false };
    assert_eq!(memory_overhead(&facts, Some(1.5)), PLAIN / 2 * 3);
    let odd = Facts { memory_request: 512 * 1024, ..facts };
    assert_eq!(memory_overhead(&odd, Some(1.001)) % 1024, 0);
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
