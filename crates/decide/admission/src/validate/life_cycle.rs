//! Start strategy, probes, reboot policy, and eviction strategy.

use api::config::ClusterConfig;
use api::v1::{DomainSpec, Network, NetworkSource, Probe, ProbeHandler, VirtualMachineInstanceSpec};
use machinery::field::{Cause, Path};

use super::findings::Findings;

const EVICTION_STRATEGIES: [&str; 4] = ["None", "LiveMigrate", "LiveMigrateIfPossible", "External"];

/// Whether the guest starts paused.
pub(super) fn start_strategy(found: &mut Findings, field: &Path<'_>, spec: &VirtualMachineInstanceSpec) {
    let Some(strategy) = spec.start_strategy.as_deref() else { return };
    let at = field.child("startStrategy");
    if strategy != "Paused" {
        found.invalid(&at, strategy, "must be Paused or not set");
    } else if spec.liveness_probe.is_some() {
        found.refuse(Cause::Invalid, &at, "a paused guest would fail its liveness probe: remove one of the two");
    }
}

/// Both probes.
pub(super) fn probes(found: &mut Findings, field: &Path<'_>, spec: &VirtualMachineInstanceSpec) {
    let reachable = spec.networks.iter().flat_map(Network::sources).any(NetworkSource::is_pod);
    for (name, probe) in [("readinessProbe", &spec.readiness_probe), ("livenessProbe", &spec.liveness_probe)] {
        if let Some(probe) = probe {
            check_probe(found, &field.child(name), probe, reachable);
        }
    }
}

fn check_probe(found: &mut Findings, field: &Path<'_>, probe: &Probe, reachable: bool) {
    let handlers = probe.handlers().count();
    if handlers > 1 {
        let detail = "exactly one of exec, guestAgentPing, httpGet and tcpSocket may be set";
        found.refuse(Cause::Invalid, field, detail);
    } else if handlers == 0 {
        found.required(field, "one of exec, guestAgentPing, httpGet and tcpSocket has to be set");
    }
    for handler in probe.handlers().filter(|_| !reachable) {
        let name = match handler {
            ProbeHandler::HttpGet(_) => "httpGet",
            ProbeHandler::TcpSocket(_) => "tcpSocket",
            ProbeHandler::Exec(_) | ProbeHandler::GuestAgentPing | ProbeHandler::Unset => continue,
        };
        found.refuse(Cause::Invalid, &field.child(name), "the guest can only be reached over a Pod network");
    }
}

/// The eviction strategy: the VMI's own, or the cluster's.
pub(super) fn eviction(
    found: &mut Findings,
    field: &Path<'_>,
    spec: &VirtualMachineInstanceSpec,
    config: &ClusterConfig,
) {
    let strategy = spec.eviction_strategy.as_deref().unwrap_or_else(|| config.eviction_strategy());
    if !EVICTION_STRATEGIES.contains(&strategy) {
        let detail = format_args!("must be one of {}", EVICTION_STRATEGIES.join(", "));
        found.invalid(&field.child("evictionStrategy"), strategy, detail);
    }
}

/// The reboot policy.
pub(super) fn reboot_policy(found: &mut Findings, domain: &Path<'_>, given: &DomainSpec, config: &ClusterConfig) {
    if given.reboot_policy.is_some() {
        super::needs_gate(found, &domain.child("rebootPolicy"), "RebootPolicy", config);
    }
}
