//! CPUs and memory.

use serde_json::{Value, json};

use super::{both, check, domain, gate, row, spec};
use crate::config;

fn requests(name: &str, amount: &str) -> Value {
    domain(json!({ "resources": { "requests": { name: amount } } }))
}

fn limits(name: &str, amount: &str) -> Value {
    domain(json!({ "resources": { "limits": { name: amount } } }))
}

fn cpu(cpu: Value) -> Value {
    domain(json!({ "cpu": cpu }))
}

fn dedicated(over: Value) -> Value {
    let mut with = json!({ "dedicatedCpuPlacement": true });
    machinery::patch::merge(&mut with, &over);
    cpu(with)
}

fn pages(size: &str) -> Value {
    domain(json!({ "memory": { "hugepages": { "pageSize": size } } }))
}

#[test]
fn memory() {
    let at = "Invalid spec.domain.resources.requests.memory";
    check([
        row("a request is not negative", requests("memory", "-64Mi"), at, requests("memory", "64Mi")),
        row("a request is at least 1M", requests("memory", "999999"), at, requests("memory", "1M")),
        row(
            "a limit is not negative",
            limits("memory", "-1Gi"),
            "Invalid spec.domain.resources.limits.memory",
            limits("memory", "1Gi"),
        )
        .and("Invalid spec.domain.memory.guest"),
        row(
            "a request is within its limit",
            both(requests("memory", "2Gi"), limits("memory", "1Gi")),
            at,
            both(requests("memory", "1Gi"), limits("memory", "1Gi")),
        ),
        row(
            "the guest fits into the limit",
            both(domain(json!({ "memory": { "guest": "256Mi" } })), limits("memory", "128Mi")),
            "Invalid spec.domain.memory.guest",
            both(domain(json!({ "memory": { "guest": "128Mi" } })), limits("memory", "128Mi")),
        ),
        row(
            "an instance has memory",
            domain(json!({ "memory": null })),
            "Required ",
            both(domain(json!({ "memory": null })), requests("memory", "64Mi")),
        ),
        gate(
            "ReservedOverheadMemlock",
            domain(json!({ "memory": { "reservedOverhead": { "addedOverhead": "1Gi" } } })),
            "Invalid spec.domain.memory.reservedOverhead",
        ),
    ]);
}

#[test]
fn the_guest_fits_into_the_limit_whatever_the_roll_out_strategy() {
    let mut staged = config();
    staged.configuration.vm_rollout_strategy = Some("Stage".to_owned());
    let large = both(domain(json!({ "memory": { "guest": "256Mi" } })), limits("memory", "128Mi"));
    let small = both(domain(json!({ "memory": { "guest": "128Mi" } })), limits("memory", "128Mi"));
    check([row("limit", large, "Invalid spec.domain.memory.guest", small).of(&staged)]);
}

#[test]
fn huge_pages() {
    let at = "Invalid spec.domain.memory.hugepages.pageSize";
    let amount = "Invalid spec.domain.resources.requests.memory";
    check([
        row("a size", pages("large"), at, pages("2Mi")),
        row("a size above nothing", pages("0"), at, pages("2Mi")),
        row("the guest has one", pages("1Gi"), amount, pages("128Mi")),
        row(
            "the request has one",
            both(pages("128Mi"), requests("memory", "64Mi")),
            amount,
            both(pages("64Mi"), requests("memory", "64Mi")),
        ),
        row(
            "the guest has whole ones",
            both(pages("2Mi"), domain(json!({ "memory": { "guest": "5Mi" } }))),
            amount,
            both(pages("2Mi"), domain(json!({ "memory": { "guest": "6Mi" } }))),
        ),
    ]);
}

#[test]
fn cpus() {
    check([
        row(
            "a request is not negative",
            requests("cpu", "-1"),
            "Invalid spec.domain.resources.requests.cpu",
            requests("cpu", "1"),
        ),
        row(
            "a limit is not negative",
            limits("cpu", "-1"),
            "Invalid spec.domain.resources.requests.cpu",
            limits("cpu", "1"),
        )
        .and("Invalid spec.domain.resources.limits.cpu"),
        row(
            "a request is within its limit",
            both(requests("cpu", "2"), limits("cpu", "1500m")),
            "Invalid spec.domain.resources.requests.cpu",
            both(requests("cpu", "1500m"), limits("cpu", "1500m")),
        ),
        row(
            "the emulator's own CPU is a dedicated one",
            cpu(json!({ "isolateEmulatorThread": true })),
            "Invalid spec.domain.cpu.isolateEmulatorThread",
            dedicated(json!({ "isolateEmulatorThread": true })),
        ),
        row(
            "what to do about a flag",
            cpu(json!({ "features": [{ "name": "a" }, { "name": "avx", "policy": "perhaps" }] })),
            "NotSupported spec.domain.cpu.features[1].policy",
            cpu(json!({ "features": [{ "name": "a" }, { "name": "avx", "policy": "forbid" }] })),
        ),
        row(
            "sockets are within their maximum",
            cpu(json!({ "sockets": 3, "maxSockets": 2 })),
            "Invalid spec.domain.cpu.sockets",
            cpu(json!({ "sockets": 2, "maxSockets": 2 })),
        ),
    ]);
}

#[test]
fn numa_and_real_time() {
    let numa = json!({ "guestMappingPassthrough": {} });
    let at = "Invalid spec.domain.cpu.numa.guestMappingPassthrough";
    let fine = both(dedicated(json!({ "numa": numa })), pages("2Mi"));
    let realtime = both(dedicated(json!({ "numa": numa, "realtime": {} })), pages("2Mi"));
    check([
        row("NUMA needs pinned CPUs", both(cpu(json!({ "numa": numa })), pages("2Mi")), at, fine.clone()),
        row("NUMA needs huge pages", dedicated(json!({ "numa": numa })), at, fine.clone()),
        row(
            "real time needs pinned CPUs",
            both(cpu(json!({ "numa": numa, "realtime": {} })), pages("2Mi")),
            at,
            realtime.clone(),
        )
        .and("Required spec.domain.cpu.dedicatedCpuPlacement"),
        row(
            "real time needs memory near by",
            dedicated(json!({ "realtime": {} })),
            "Required spec.domain.cpu.numa.guestMappingPassthrough",
            realtime,
        ),
    ]);
}

#[test]
fn dedicated_cpus() {
    let at = "Invalid spec.domain.cpu.dedicatedCpuPlacement";
    let with = |cpu: Value, request: &str, limit: &str| {
        both(both(dedicated(cpu), requests("cpu", request)), limits("cpu", limit))
    };
    let memory = |request: &str, limit: &str| {
        let resources = both(requests("memory", request), limits("memory", limit));
        both(dedicated(json!({})), resources)
    };
    let arm = |threads: u32| both(dedicated(json!({ "threads": threads })), spec(json!({ "architecture": "arm64" })));
    check([
        row(
            "some memory is given",
            both(domain(json!({ "memory": null })), dedicated(json!({}))),
            "Invalid spec.domain.resources.limits.memory",
            dedicated(json!({})),
        )
        .and("Required "),
        row(
            "a request of whole CPUs",
            both(dedicated(json!({})), requests("cpu", "1500m")),
            "Invalid spec.domain.resources.requests.cpu",
            both(dedicated(json!({})), requests("cpu", "2")),
        ),
        row(
            "a limit of whole CPUs",
            both(dedicated(json!({})), limits("cpu", "1500m")),
            "Invalid spec.domain.resources.requests.cpu",
            both(dedicated(json!({})), limits("cpu", "2")),
        )
        .and("Invalid spec.domain.resources.limits.cpu"),
        row(
            "request and limit of memory are equal",
            memory("128Mi", "256Mi"),
            "Invalid spec.domain.resources.requests.memory",
            memory("128Mi", "128Mi"),
        ),
        row("request and limit of CPUs are equal", with(json!({}), "1", "2"), at, with(json!({}), "2", "2")),
        row(
            "and what the topology makes",
            with(json!({ "cores": 4 }), "2", "2"),
            at,
            with(json!({ "cores": 2, "sockets": 1 }), "2", "2"),
        ),
        row(
            "one of them is enough",
            both(dedicated(json!({ "cores": 4 })), requests("cpu", "2")),
            at,
            both(dedicated(json!({ "cores": 2 })), requests("cpu", "2")),
        ),
        row("cores of arm64 have one thread", arm(2), "Invalid spec.architecture", arm(1)),
        row("a core has two threads", dedicated(json!({ "threads": 3 })), at, dedicated(json!({ "threads": 2 }))),
    ]);
}
