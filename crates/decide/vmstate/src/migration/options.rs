//! Translates a migration configuration into the options for the source launcher.

use api::v1::{MigrationConfiguration, MigrationDowntimeTuning, MigrationStallDetector, VirtualMachineInstance};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use launcher_contract::migration::{DowntimeTuning, MigrationOptions, StallOptions};

use super::storage;

const STALL_DETECTION: &str = "MigrationStallDetection";
const DOWNTIME_TUNING: &str = "MigrationDowntimeTuning";
/// Connections for sending memory, unless the launcher's CPU time is limited. More than the node has CPUs would only
/// contend with each other.
const CONNECTIONS: u32 = 8;
const PROGRESS_TIMEOUT: i64 = 150;
const COMPLETION_TIMEOUT_PER_GIB: i64 = 150;
const MIB: i64 = 1 << 20;

/// `cpus` is how many CPUs the node has.
pub fn options(
    vmi: &VirtualMachineInstance,
    configuration: &MigrationConfiguration,
    gate: impl Fn(&str) -> bool,
    cpus: u32,
) -> MigrationOptions {
    let post_copy = configuration.allow_post_copy.unwrap_or(false);
    let experimental = configuration.experimental.clone().unwrap_or_default();
    let seconds = |given: Option<i64>, default: i64| u64::try_from(given.unwrap_or(default)).unwrap_or_default();
    MigrationOptions {
        bandwidth_mib: configuration.bandwidth_per_migration.as_ref().map(mib).unwrap_or_default(),
        progress_timeout_seconds: seconds(configuration.progress_timeout, PROGRESS_TIMEOUT),
        completion_timeout_per_gib_seconds: seconds(
            configuration.completion_timeout_per_gib,
            COMPLETION_TIMEOUT_PER_GIB,
        ),
        allow_auto_converge: configuration.allow_auto_converge.unwrap_or(false),
        allow_post_copy: post_copy,
        allow_workload_disruption: configuration.allow_workload_disruption.unwrap_or(post_copy),
        allow_unsafe: configuration.unsafe_migration_override.unwrap_or(false),
        max_downtime_ms: configuration.max_downtime_ms.unwrap_or_default(),
        parallel_connections: if has_cpu_limit(vmi) { 0 } else { CONNECTIONS.min(cpus) },
        stall_detector: gate(STALL_DETECTION).then(|| stall(&experimental.stall_detector.unwrap_or_default())),
        downtime_tuning: gate(DOWNTIME_TUNING).then(|| tuning(&experimental.downtime_tuning.unwrap_or_default())),
        compression: experimental.compression.filter(|method| !method.is_empty()),
        shared_volumes: storage::shared(vmi),
        moved_volumes: storage::moved(vmi),
    }
}

/// MiB per second, rounded to the nearest; a requested limit never becomes 0, which means no limit.
fn mib(quantity: &Quantity) -> u64 {
    let bytes = machinery::quantity::Quantity::try_from(quantity).map(|quantity| quantity.value()).unwrap_or_default();
    match bytes {
        ..=0 => 0,
        bytes => u64::try_from(bytes.saturating_add(MIB / 2) / MIB).unwrap_or_default().max(1),
    }
}

fn has_cpu_limit(vmi: &VirtualMachineInstance) -> bool {
    let domain = &vmi.spec.domain;
    let limit = domain.resources.as_ref().and_then(|resources| resources.limits.get("cpu"));
    let limited =
        limit.is_some_and(|limit| machinery::quantity::Quantity::try_from(limit).is_ok_and(|limit| !limit.is_zero()));
    let dedicated = domain.cpu.as_ref().is_some_and(|cpu| cpu.dedicated_cpu_placement == Some(true));
    limited || dedicated
}

fn stall(given: &MigrationStallDetector) -> StallOptions {
    let usual = StallOptions::default();
    let number = |given: Option<i64>, usual: u64| given.and_then(|n| u64::try_from(n).ok()).unwrap_or(usual);
    let factor = |given: &Option<Quantity>, usual: f64| {
        let parsed = given.as_ref().and_then(|q| machinery::quantity::Quantity::try_from(q).ok());
        parsed.map_or(usual, |quantity| quantity.milli_value() as f64 / 1000.0)
    };
    StallOptions {
        margin_percent: number(given.stall_margin, usual.margin_percent),
        window_seconds: number(given.stall_progress_timeout, usual.window_seconds),
        switchover_seconds: number(given.switchover_timeout, usual.switchover_seconds),
        ewma_alpha: factor(&given.ewma_alpha, usual.ewma_alpha),
        precopy_factor: factor(&given.precopy_possible_factor, usual.precopy_factor),
        patience_decay: factor(&given.patience_window_decay_factor, usual.patience_decay),
        completion_factor: factor(&given.completion_timeout_factor, usual.completion_factor),
        search_minima: given.search_local_minima.unwrap_or(usual.search_minima),
    }
}

fn tuning(given: &MigrationDowntimeTuning) -> DowntimeTuning {
    let usual = DowntimeTuning::default();
    let number = |given: Option<i64>, usual: u64| given.and_then(|n| u64::try_from(n).ok()).unwrap_or(usual);
    DowntimeTuning {
        initial_ms: number(given.initial_ms, usual.initial_ms),
        steps: given.steps.and_then(|steps| u32::try_from(steps).ok()).unwrap_or(usual.steps),
        start_after_iteration: number(given.start_after_iteration, usual.start_after_iteration),
        cooldown_seconds: number(given.cooldown_seconds.map(i64::from), usual.cooldown_seconds),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(configuration: Value, spec: Value, gates: bool) -> MigrationOptions {
        let vmi = serde_json::from_value(json!({"spec": {"domain": spec}})).unwrap();
        options(&vmi, &serde_json::from_value(configuration).unwrap(), |_| gates, 4)
    }

    #[test]
    fn nothing_given_is_the_clusters_default() {
        let options = of(json!({}), json!({}), false);
        assert_eq!(options, MigrationOptions { parallel_connections: 4, ..Default::default() });
    }

    #[test]
    fn bandwidth_is_in_whole_mebibytes_and_never_less_than_one() {
        for (given, expected) in
            [("0", 0), ("1", 1), ("600Ki", 1), ("64Mi", 64), ("1.5Mi", 2), ("1Gi", 1024), ("-5", 0)]
        {
            assert_eq!(
                of(json!({"bandwidthPerMigration": given}), json!({}), false).bandwidth_mib,
                expected,
                "{given}"
            );
        }
    }

    #[test]
    fn post_copy_is_a_disruption_unless_somebody_says_otherwise() {
        let both = of(json!({"allowPostCopy": true}), json!({}), false);
        assert!(both.allow_post_copy && both.allow_workload_disruption);
        let quiet = of(json!({"allowPostCopy": true, "allowWorkloadDisruption": false}), json!({}), false);
        assert!(quiet.allow_post_copy && !quiet.allow_workload_disruption);
    }

    #[test]
    fn launchers_whose_cpu_time_is_counted_send_over_one_connection() {
        for (spec, expected) in [
            (json!({"resources": {"limits": {"cpu": "2"}}}), 0),
            (json!({"resources": {"limits": {"cpu": "0"}}}), 4),
            (json!({"cpu": {"dedicatedCpuPlacement": true}}), 0),
            (json!({}), 4),
        ] {
            assert_eq!(of(json!({}), spec.clone(), false).parallel_connections, expected, "{spec}");
        }
    }

    #[test]
    fn experiments_need_their_gates() {
        let given = json!({"experimental": {
            "stallDetector": {"stallMargin": 7, "ewmaAlpha": "500m"}, "downtimeTuning": {"steps": 3},
        }});
        let closed = of(given.clone(), json!({}), false);
        assert_eq!((closed.stall_detector, closed.downtime_tuning), (None, None));
        let open = of(given, json!({}), true);
        let stall = open.stall_detector.unwrap();
        assert_eq!((stall.margin_percent, stall.window_seconds, stall.ewma_alpha), (7, 40, 0.5));
        assert_eq!(open.downtime_tuning.unwrap(), DowntimeTuning { steps: 3, ..Default::default() });
    }
}
