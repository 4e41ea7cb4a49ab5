//! The controllers that the simulation knows by name: what triggers them, and which invariants apply to them.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use virt_controller::Controller;

pub(crate) const VM: &str = "vm";
pub(crate) const VMI: &str = "vmi";
pub(crate) const NODE: &str = "node";
pub(crate) const MIGRATION: &str = "migration";
pub(crate) const SYNCHRONIZATION: &str = "synchronization";
pub(crate) const EVACUATION: &str = "evacuation";
pub(crate) const DISRUPTION_BUDGET: &str = "disruption-budget";
pub(crate) const WORKLOAD_UPDATE: &str = "workload-update";
const TOPOLOGY: &str = "topology";

/// The controllers that are simulated: all but the topology updater, since simulated nodes report no TSC frequency.
pub(crate) fn all() -> Vec<&'static Controller> {
    virt_controller::ALL.iter().copied().filter(|controller| controller.short_name() != TOPOLOGY).collect()
}

/// Number of keys a controller reconciles concurrently.
pub(crate) fn workers(controller: &Controller) -> usize {
    if matches!(controller.short_name(), VM | VMI | MIGRATION) { 2 } else { 1 }
}

/// The writer's name in a timeline.
pub(crate) fn writer(short_name: &'static str) -> &'static str {
    static NAMES: OnceLock<BTreeMap<&str, String>> = OnceLock::new();
    let named = |controller: &&'static Controller| match controller.short_name() {
        WORKLOAD_UPDATE => (WORKLOAD_UPDATE, "workload-updater".to_owned()),
        other => (other, format!("{other}-controller")),
    };
    let names = NAMES.get_or_init(|| virt_controller::ALL.iter().map(named).collect());
    names.get(short_name).map_or(short_name, String::as_str)
}
