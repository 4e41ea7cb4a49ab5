//! Which migration settings apply to a VMI.

use std::collections::BTreeMap;

use api::migrations::MigrationPolicy;
use api::v1::{ExperimentalMigrationOptions, MigrationConfiguration};

use crate::meta;

type Labels = BTreeMap<String, String>;

/// How well a policy matches: the number of matched labels in total, then of those on the VMI. More is better.
type Fit = (usize, usize);

/// The best matching policy, independent of their order. A policy without selectors matches nothing.
pub fn best<'a>(
    policies: impl IntoIterator<Item = &'a MigrationPolicy>,
    instance: &Labels,
    namespace: &Labels,
) -> Option<&'a MigrationPolicy> {
    let fitting = policies.into_iter().filter_map(|policy| Some((fit(policy, instance, namespace)?, policy)));
    let best = fitting.max_by(|(a, first), (b, second)| {
        a.cmp(b).then_with(|| meta::name(&second.metadata).cmp(meta::name(&first.metadata)))
    });
    best.map(|(_, policy)| policy)
}

fn fit(policy: &MigrationPolicy, instance: &Labels, namespace: &Labels) -> Option<Fit> {
    let selectors = policy.spec.selectors.as_ref()?;
    let matched = |wanted: &Labels, labels: &Labels| {
        wanted.iter().all(|(key, value)| labels.get(key) == Some(value)).then_some(wanted.len())
    };
    let of_instance = matched(&selectors.virtual_machine_instance_selector, instance)?;
    let of_namespace = matched(&selectors.namespace_selector, namespace)?;
    Some((of_instance + of_namespace, of_instance))
}

/// The cluster's settings, overridden by those of the policy.
pub fn overlay(cluster: &MigrationConfiguration, policy: Option<&MigrationPolicy>) -> MigrationConfiguration {
    let mut merged = cluster.clone();
    let Some(spec) = policy.map(|policy| &policy.spec) else { return merged };
    take(&mut merged.allow_auto_converge, &spec.allow_auto_converge);
    take(&mut merged.bandwidth_per_migration, &spec.bandwidth_per_migration);
    take(&mut merged.completion_timeout_per_gib, &spec.completion_timeout_per_gib);
    take(&mut merged.max_downtime_ms, &spec.max_downtime_ms);
    take(&mut merged.allow_post_copy, &spec.allow_post_copy);
    // Allowing post-copy means accepting that the workload may be disrupted.
    let disruption = spec.allow_workload_disruption.or(spec.allow_post_copy);
    take(&mut merged.allow_workload_disruption, &disruption);
    if let Some(experimental) = &spec.experimental {
        lay_over(merged.experimental.get_or_insert_default(), experimental);
    }
    merged
}

fn take<T: Clone>(field: &mut Option<T>, over: &Option<T>) {
    if over.is_some() {
        field.clone_from(over);
    }
}

fn lay_over(field: &mut ExperimentalMigrationOptions, over: &ExperimentalMigrationOptions) {
    take(&mut field.compression, &over.compression);
    if let Some(over) = &over.downtime_tuning {
        let field = field.downtime_tuning.get_or_insert_default();
        take(&mut field.cooldown_seconds, &over.cooldown_seconds);
        take(&mut field.initial_ms, &over.initial_ms);
        take(&mut field.start_after_iteration, &over.start_after_iteration);
        take(&mut field.steps, &over.steps);
    }
    if let Some(over) = &over.stall_detector {
        let field = field.stall_detector.get_or_insert_default();
        take(&mut field.completion_timeout_factor, &over.completion_timeout_factor);
        take(&mut field.ewma_alpha, &over.ewma_alpha);
        take(&mut field.patience_window_decay_factor, &over.patience_window_decay_factor);
        take(&mut field.precopy_possible_factor, &over.precopy_possible_factor);
        take(&mut field.search_local_minima, &over.search_local_minima);
        take(&mut field.stall_margin, &over.stall_margin);
        take(&mut field.stall_progress_timeout, &over.stall_progress_timeout);
        take(&mut field.switchover_timeout, &over.switchover_timeout);
    }
}
