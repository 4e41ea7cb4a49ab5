//! The workload update strategy.

use api::v1::KubeVirtWorkloadUpdateStrategy;
use machinery::duration::Duration;
use machinery::field::{FieldError, FieldPath};

/// The methods that the updater supports.
const METHODS: [&str; 2] = ["LiveMigrate", "Evict"];

/// Validates the strategy. KubeVirt cannot parse an invalid interval, and crashes on a negative number later.
pub(super) fn check(field: &FieldPath, strategy: &KubeVirtWorkloadUpdateStrategy) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(text) = &strategy.batch_eviction_interval {
        let read = text.parse::<Duration>().map_err(|error| error.to_string());
        let positive = |interval: Duration| match interval.to_std() {
            Some(_) => Ok(()),
            None => Err("must not be negative".to_owned()),
        };
        if let Err(why) = read.and_then(positive) {
            errors.push(FieldError::invalid(field.child("batchEvictionInterval"), text.as_str(), why));
        }
    }
    if let Some(size) = strategy.batch_eviction_size.filter(|size| *size < 0) {
        errors.push(FieldError::invalid(field.child("batchEvictionSize"), size, "must not be negative"));
    }
    errors
}

/// KubeVirt accepts any method and ignores unknown ones.
pub(super) fn warnings(field: &FieldPath, strategy: &KubeVirtWorkloadUpdateStrategy) -> Vec<String> {
    let methods = strategy.workload_update_methods.iter().enumerate();
    let unknown = methods.filter(|(_, method)| !METHODS.contains(&method.as_str()));
    let path = |index| field.child("workloadUpdateMethods").index(index);
    unknown.map(|(index, method)| format!("{}: {method:?} is neither LiveMigrate nor Evict", path(index))).collect()
}
