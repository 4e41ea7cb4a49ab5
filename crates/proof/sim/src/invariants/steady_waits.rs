//! The waiting condition of a migration stays between two attempts. A condition that is removed and added again
//! unchanged wakes the controller with every write, which defeats the back-off.

use std::collections::BTreeMap;

use api::conditions;
use api::v1::VirtualMachineInstanceMigration as Migration;

use super::support::ensure;
use super::{Invariant, Scene, Verdict};
use crate::kinds::Object;
use crate::server::Change;

/// How often a migration may get the same waiting condition again.
const OFTEN: u32 = 3;

#[derive(Default)]
pub(crate) struct Rule {
    /// How often a condition was added, by the migration's UID and the condition's text.
    came: BTreeMap<(String, String), u32>,
}

fn wait(migration: &Migration) -> Option<String> {
    let list = migration.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let shown = conditions::find(list, conditions::MIGRATION_WAITING)?;
    let phase = migration.phase().map_or("", |phase| phase.as_str());
    Some(format!("{phase} {} {}", shown.reason(), shown.message()))
}

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "steady_waits"
    }

    fn change(&mut self, _: &Scene<'_>, change: &Change) -> Verdict {
        let (Object::Migration(is), Some(Object::Migration(was))) = (&change.last, &change.was) else { return Ok(()) };
        // Replacing one wait by another is news; removing and adding the same one is not.
        let (Some(shown), None) = (wait(is), wait(was)) else { return Ok(()) };
        let came = self.came.entry((change.last.uid().to_owned(), shown.clone())).or_default();
        *came += 1;
        ensure(*came <= OFTEN, || {
            format!("migration {} got the same waiting condition {came} times: {shown}", change.last.key().name)
        })
    }
}
