//! 36, 37: a migration has at most one target Pod per VMI at any time. The migration controller creates it, for a VMI
//! that exists, and it never runs on the guest's node. A migration refers to its VMI by name: if another VMI takes the
//! name before the migration starts, that one is migrated, and the first one's target Pod is gone with it.

use std::collections::BTreeMap;

use api::labels;
use machinery::meta::{controller_of, label};

use super::support::ensure;
use super::{Invariant, Scene, Verdict};
use crate::actors::{is_target, node_of};
use crate::kinds::{Object, uid};
use crate::server::Change;

#[derive(Default)]
pub(crate) struct Rule {
    /// UID of the latest target Pod, by the UIDs of migration and VMI.
    targets: BTreeMap<(String, String), String>,
}

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "one_target"
    }

    fn change(&mut self, scene: &Scene<'_>, change: &Change) -> Verdict {
        let Object::Pod(pod) = &change.last else { return Ok(()) };
        let Some(migration) = label(&pod.metadata, labels::MIGRATION_JOB_UID).filter(|_| is_target(pod)) else {
            return Ok(());
        };
        let name = change.last.key().name;
        let guest = controller_of(&pod.metadata).map(|owner| owner.uid.clone()).unwrap_or_default();
        if change.was.is_none() {
            ensure(change.by.name() == "migration-controller", || format!("{} created target Pod {name}", change.by.name()))?;
            let first = self.targets.insert((migration.to_owned(), guest.clone()), uid(&pod.metadata).to_owned());
            let first = first.and_then(|first| scene.server.tables.pods.all().find(|pod| uid(&pod.metadata) == first));
            if let Some(first) = first {
                let first = first.metadata.name.as_deref().unwrap_or_default();
                return Err(format!("migration {migration} has two target Pods: {first} and {name}"));
            }
        }
        let Some(Object::Pod(was)) = &change.was else { return Ok(()) };
        if node_of(was).is_some() || node_of(pod).is_none() {
            return Ok(());
        }
        let home = scene.guests.of(&guest).next();
        let home = home.and_then(|home| scene.server.tables.pods.all().find(|pod| uid(&pod.metadata) == home));
        let node = home.and_then(|home| node_of(home));
        ensure(node.is_none() || node != node_of(pod), || format!("target Pod {name} was bound to the guest's node"))
    }
}
