//! The order in which waiting migrations get free slots.

use std::cmp::Reverse;
use std::sync::Arc;

use api::config::ClusterConfig;
use api::v1::VirtualMachineInstanceMigration as Migration;
use api::v1::VirtualMachineInstanceMigrationPhase as Phase;

use super::kinds::spec_priority;
use crate::meta;

/// Whether another migration starts before this one: it has a higher priority, or the same and is older.
pub(super) fn comes_before(other: &Migration, own: &Migration) -> bool {
    let rank =
        |m: &Migration| (Reverse(spec_priority(m)), m.metadata.creation_timestamp.clone(), m.metadata.uid.clone());
    rank(other) < rank(own)
}

/// The unfinished migrations to requeue when one has ended: those with the highest priority that have no target yet, as
/// many as could start at once.
pub fn next_in_line(unfinished: Vec<Arc<Migration>>, config: &ClusterConfig) -> Vec<Arc<Migration>> {
    let limit = config.migrations().parallel_migrations_per_cluster.unwrap_or(5) as usize;
    let mut pending = unfinished;
    pending.retain(|one| one.phase() == Some(&Phase::Pending));
    pending.sort_by_cached_key(|one| {
        let (namespace, name) = (meta::namespace(&one.metadata).to_owned(), meta::name(&one.metadata).to_owned());
        (Reverse(spec_priority(one)), namespace, name)
    });
    pending.truncate(limit);
    pending
}
