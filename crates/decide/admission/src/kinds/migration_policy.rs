//! Migration policies.

use std::ops::Bound::{Excluded, Included, Unbounded};
use std::ops::RangeBounds;

use api::migrations::{MigrationPolicy, MigrationPolicySpec};
use api::v1::{ExperimentalMigrationOptions, MigrationStallDetector};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Wire;
use machinery::field::{Cause, FieldError, FieldPath};
use machinery::quantity::Quantity;

use super::{Case, Found};
use crate::Refusal;

pub(super) const DOWNTIME_TUNING: &str = "MigrationDowntimeTuning";
pub(super) const STALL_DETECTION: &str = "MigrationStallDetection";

pub(super) fn rules(
    case: &Case<'_>,
    policy: &mut MigrationPolicy,
    old: Option<&MigrationPolicy>,
) -> Result<Found, Refusal> {
    let field = FieldPath::new("spec");
    let spec = &policy.spec;
    let is_open = |gate: &str| case.config.feature_gate(gate);
    let mut errors = not_negative(&field, spec);
    let before = old.and_then(|old| old.spec.max_downtime_ms);
    errors.extend(downtime(&field, spec.max_downtime_ms, before, is_open));
    if let Some(experimental) = &spec.experimental {
        errors.extend(options(&field.child("experimental"), experimental, is_open));
    }
    Ok(errors.into())
}

fn not_negative(field: &FieldPath, spec: &MigrationPolicySpec) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(timeout) = spec.completion_timeout_per_gib.filter(|&timeout| timeout < 0) {
        errors.push(FieldError::invalid(field.child("completionTimeoutPerGiB"), timeout, "must not be negative"));
    }
    if let Some(bandwidth) = spec.bandwidth_per_migration.as_ref().filter(|one| amount(one).is_negative()) {
        let field = field.child("bandwidthPerMigration");
        errors.push(FieldError::invalid(field, bandwidth.0.as_str(), "must not be negative"));
    }
    errors
}

/// The maximum downtime needs one of two feature gates to have an effect, so it may only be changed with one of them.
pub(super) fn downtime(
    field: &FieldPath,
    new: Option<u64>,
    old: Option<u64>,
    is_open: impl Fn(&str) -> bool,
) -> Option<FieldError> {
    if new == old || is_open(STALL_DETECTION) || is_open(DOWNTIME_TUNING) {
        return None;
    }
    let message = format!("the feature gate {STALL_DETECTION} or {DOWNTIME_TUNING} has to be enabled to change it");
    Some(FieldError::new(Cause::Invalid, field.child("maxDowntimeMs"), message))
}

fn options(
    field: &FieldPath,
    experimental: &ExperimentalMigrationOptions,
    is_open: impl Fn(&str) -> bool,
) -> Vec<FieldError> {
    let ExperimentalMigrationOptions { compression: _, downtime_tuning, stall_detector } = experimental;
    let guarded = [
        ("downtimeTuning", downtime_tuning.is_some(), DOWNTIME_TUNING),
        ("stallDetector", stall_detector.is_some(), STALL_DETECTION),
    ];
    let closed = guarded.into_iter().filter(|(_, set, gate)| *set && !is_open(gate));
    let mut errors: Vec<FieldError> = closed
        .map(|(name, _, gate)| {
            FieldError::new(Cause::Invalid, field.child(name), format!("{gate} feature gate is not enabled"))
        })
        .collect();
    if downtime_tuning.is_some() && stall_detector.is_some() {
        let message = "downtimeTuning and stallDetector exclude each other";
        errors.push(FieldError::new(Cause::Invalid, field.clone(), message));
    }
    if let Some(detector) = stall_detector {
        errors.extend(factors(&field.child("stallDetector"), detector));
    }
    errors
}

/// Factors have at most three decimal places: they are stored in thousandths.
fn factors(field: &FieldPath, detector: &MigrationStallDetector) -> Vec<FieldError> {
    let rules = [
        ("ewmaAlpha", &detector.ewma_alpha, (Excluded(0), Included(1000)), "must be above 0 and at most 1"),
        ("precopyPossibleFactor", &detector.precopy_possible_factor, (Included(1000), Unbounded), "must be at least 1"),
        (
            "patienceWindowDecayFactor",
            &detector.patience_window_decay_factor,
            (Included(0), Included(1000)),
            "must be from 0 to 1",
        ),
        (
            "completionTimeoutFactor",
            &detector.completion_timeout_factor,
            (Included(1000), Unbounded),
            "must be at least 1",
        ),
    ];
    let mut errors = Vec::new();
    for (name, given, range, detail) in rules {
        let Some(given) = given else { continue };
        let value = amount(given);
        let thousandths = value.milli_value();
        if !range.contains(&thousandths) {
            errors.push(FieldError::invalid(field.child(name), given.0.as_str(), detail));
        } else if Quantity::from_milli(thousandths, value.format()) != value {
            let detail = "must have at most 3 decimal places";
            errors.push(FieldError::invalid(field.child(name), given.0.as_str(), detail));
        }
    }
    errors
}

/// Parses a quantity that the schema has validated.
fn amount(quantity: &Wire) -> Quantity {
    quantity.0.parse().unwrap_or(Quantity::ZERO)
}
