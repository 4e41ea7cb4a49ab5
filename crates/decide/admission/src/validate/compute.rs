//! CPUs, memory, machine, and when the guest starts, ends and moves.

use std::collections::BTreeMap;

use api::config::ClusterConfig;
use api::v1::VirtualMachineInstanceSpec;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Wire;
use machinery::field::{FieldError, FieldPath};
use machinery::quantity::Quantity;

/// Below this a unit was probably forgotten.
const LEAST_REQUEST: i64 = 1_000_000;
const LEAST_GUEST_MEMORY: i64 = 1 << 20;

/// As many CPUs as machine types take; one topology beyond it is a slip of the pen.
const MOST_CPUS: u64 = 512;

const EVICTION_STRATEGIES: [&str; 4] = ["None", "LiveMigrate", "LiveMigrateIfPossible", "External"];

pub(super) fn check(
    field: &FieldPath,
    domain: &FieldPath,
    spec: &VirtualMachineInstanceSpec,
    config: &ClusterConfig,
) -> Vec<FieldError> {
    [
        resources(&domain.child("resources"), spec),
        guest_memory(&domain.child("memory"), spec, config),
        machine(&domain.child("machine"), spec, config),
        topology(&domain.child("cpu"), spec),
        life_cycle(field, spec, config),
    ]
    .concat()
}

fn resources(field: &FieldPath, spec: &VirtualMachineInstanceSpec) -> Vec<FieldError> {
    let Some(resources) = &spec.domain.resources else { return Vec::new() };
    let mut errors = Vec::new();
    for (list, amounts) in [("requests", &resources.requests), ("limits", &resources.limits)] {
        for (name, amount) in amounts {
            let field = field.child(list).child(name);
            match Quantity::try_from(amount) {
                Err(error) => errors.push(FieldError::invalid(field, amount.0.as_str(), error)),
                Ok(quantity) if quantity.is_negative() => {
                    errors.push(FieldError::invalid(field, amount.0.as_str(), "must be greater than or equal to 0"));
                }
                Ok(_) => {}
            }
        }
    }
    let amount = |amounts: &BTreeMap<String, Wire>, name: &str| Quantity::try_from(amounts.get(name)?).ok();
    if let Some(request) = amount(&resources.requests, "memory")
        && (1..LEAST_REQUEST).contains(&request.value())
    {
        let detail = "must be at least 1M; a unit may be missing";
        errors.push(FieldError::invalid(field.child("requests").child("memory"), request.to_string(), detail));
    }
    for name in ["memory", "cpu"] {
        let (request, limit) = (amount(&resources.requests, name), amount(&resources.limits, name));
        if let (Some(request), Some(limit)) = (request, limit)
            && limit > Quantity::ZERO
            && request > limit
        {
            let detail = format!("must not be greater than the limit {limit}");
            errors.push(FieldError::invalid(field.child("requests").child(name), request.to_string(), detail));
        }
    }
    errors
}

fn guest_memory(field: &FieldPath, spec: &VirtualMachineInstanceSpec, config: &ClusterConfig) -> Vec<FieldError> {
    let field = field.child("guest");
    let Some(written) = spec.domain.memory.as_ref().and_then(|memory| memory.guest.as_ref()) else {
        let detail = "the guest needs an amount of memory: set this field or a memory request";
        return vec![FieldError::required(field, detail)];
    };
    let invalid = |detail: &dyn std::fmt::Display| vec![FieldError::invalid(field.clone(), written.0.as_str(), detail)];
    let guest = match Quantity::try_from(written) {
        Ok(guest) => guest,
        Err(error) => return invalid(&error),
    };
    if guest.value() < LEAST_GUEST_MEMORY {
        return invalid(&"must be at least 1Mi; a unit may be missing");
    }
    let limit = spec.domain.resources.as_ref().and_then(|resources| resources.limits.get("memory"));
    let limit = limit.and_then(|limit| Quantity::try_from(limit).ok()).filter(|limit| *limit > Quantity::ZERO);
    match limit {
        Some(limit) if config.vm_rollout_strategy() == "LiveUpdate" && guest > limit => {
            invalid(&format_args!("must not be greater than the memory limit {limit}"))
        }
        _ => Vec::new(),
    }
}

fn machine(field: &FieldPath, spec: &VirtualMachineInstanceSpec, config: &ClusterConfig) -> Vec<FieldError> {
    let type_ = spec.domain.machine.as_ref().and_then(|machine| machine.type_.as_deref()).unwrap_or_default();
    let patterns = config.emulated_machines(spec.architecture.as_deref().unwrap_or_default());
    if type_.is_empty() || patterns.iter().any(|pattern| matches_glob(pattern, type_)) {
        return Vec::new();
    }
    let detail = format!("machine type is not supported (allowed values: {})", patterns.join(", "));
    vec![FieldError::invalid(field.child("type"), type_, detail)]
}

/// `*` stands for any characters and `?` for one, as in a shell.
fn matches_glob(pattern: &str, text: &str) -> bool {
    let mut pattern_chars = pattern.chars();
    match pattern_chars.next() {
        None => text.is_empty(),
        Some('*') => {
            let rest = pattern_chars.as_str();
            text.char_indices().map(|(at, _)| at).chain([text.len()]).any(|at| matches_glob(rest, &text[at..]))
        }
        Some(wanted) => {
            let mut text_chars = text.chars();
            let met = text_chars.next();
            met.is_some_and(|met| wanted == '?' || wanted == met)
                && matches_glob(pattern_chars.as_str(), text_chars.as_str())
        }
    }
}

fn topology(field: &FieldPath, spec: &VirtualMachineInstanceSpec) -> Vec<FieldError> {
    let Some(cpu) = &spec.domain.cpu else { return Vec::new() };
    let parts = [cpu.sockets, cpu.cores, cpu.threads].map(|part| u64::from(part.unwrap_or(0)).max(1));
    let count = parts.iter().copied().fold(1, u64::saturating_mul);
    if count <= MOST_CPUS {
        return Vec::new();
    }
    let detail = format!("sockets, cores and threads together make more than {MOST_CPUS} CPUs");
    vec![FieldError::invalid(field.clone(), count, detail)]
}

fn life_cycle(field: &FieldPath, spec: &VirtualMachineInstanceSpec, config: &ClusterConfig) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(strategy) = spec.start_strategy.as_deref().filter(|strategy| *strategy != "Paused") {
        errors.push(FieldError::invalid(field.child("startStrategy"), strategy, "must be Paused or not set"));
    }
    let eviction = spec.eviction_strategy.as_deref().filter(|strategy| !strategy.is_empty());
    let eviction = eviction.unwrap_or_else(|| config.eviction_strategy());
    if !EVICTION_STRATEGIES.contains(&eviction) {
        let detail = format!("must be one of {}", EVICTION_STRATEGIES.join(", "));
        errors.push(FieldError::invalid(field.child("evictionStrategy"), eviction, detail));
    }
    if let Some(seconds) = spec.termination_grace_period_seconds.filter(|seconds| *seconds < 0) {
        let field = field.child("terminationGracePeriodSeconds");
        errors.push(FieldError::invalid(field, seconds, "must be greater than or equal to 0"));
    }
    errors
}
