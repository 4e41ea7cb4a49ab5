//! What a migration waits for stays on it between two attempts: a condition that goes and comes back the same wakes the
//! controller with every write, and what was to be tried less and less often is tried without a pause.

use std::collections::BTreeMap;

use api::conditions;
use api::v1::VirtualMachineInstanceMigration as Migration;

use super::support::ensure;
use super::{Invariant, Scene, Verdict};
use crate::kinds::Object;
use crate::server::Change;

/// How often the same wait may come back to a migration.
const OFTEN: u32 = 3;

#[derive(Default)]
pub(crate) struct Rule {
    /// By the migration's UID and the wait's words: how often it came.
    came: BTreeMap<(String, String), u32>,
}

fn wait(migration: &Migration) -> Option<String> {
    let list = migration.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let shown = conditions::find(list, conditions::MIGRATION_WAITING)?;
    let phase = plan::migration::phase(migration).map_or("", |phase| phase.as_str());
    Some(format!("{phase} {} {}", shown.reason(), shown.message()))
}

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "steady_waits"
    }

    fn change(&mut self, _: &Scene<'_>, change: &Change) -> Verdict {
        let (Object::Migration(is), Some(Object::Migration(was))) = (&change.last, &change.was) else { return Ok(()) };
        // One that makes way for another wait tells news; one that goes and comes back does not.
        let (Some(shown), None) = (wait(is), wait(was)) else { return Ok(()) };
        let came = self.came.entry((change.last.uid().to_owned(), shown.clone())).or_default();
        *came += 1;
        ensure(*came <= OFTEN, || format!("migration {} says for the {came}th time: {shown}", change.last.key().name))
    }
}
