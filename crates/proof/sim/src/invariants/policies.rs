//! 43: a migration has the settings of the MigrationPolicy that matches its guest best, in whatever order the policies
//! were created. They are written with the hand-off and never change. The policies of the simulated cluster are in
//! `actors/build.rs`.

use api::v1::{VirtualMachineInstance, VirtualMachineInstanceMigrationState as State};
use machinery::meta::label;

use super::support::{ensure, name, vmi_change};
use super::{Invariant, Scene, Verdict};
use crate::server::Change;

#[derive(Default)]
pub(crate) struct Rule;

fn state(vmi: &VirtualMachineInstance) -> Option<&State> {
    vmi.status.as_ref()?.migration_state.as_ref()
}

/// The name of the best matching policy, and whether it allows post-copy.
fn expected(vmi: &VirtualMachineInstance) -> (Option<&'static str>, bool) {
    match (label(&vmi.metadata, "app"), label(&vmi.metadata, "transfer")) {
        (Some("guest"), Some("post-copy")) => (Some("post-copy"), true),
        (Some("guest"), _) => (Some("guests"), false),
        _ => (None, false),
    }
}

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "policies"
    }

    fn change(&mut self, _: &Scene<'_>, change: &Change) -> Verdict {
        let Some((Some(was), is)) = vmi_change(change) else { return Ok(()) };
        let Some(after) = state(is).filter(|after| after.migration_uid.is_some()) else { return Ok(()) };
        if let Some(before) = state(was).filter(|before| before.migration_uid == after.migration_uid) {
            let same = before.migration_configuration == after.migration_configuration
                && before.migration_policy_name == after.migration_policy_name;
            return ensure(same, || format!("the settings of a migration of VMI {} changed after the hand-off", name(is)));
        }
        let settings = after.migration_configuration.as_ref();
        let found = (after.migration_policy_name.as_deref(), settings.and_then(|s| s.allow_post_copy) == Some(true));
        ensure(found == expected(is), || format!("VMI {} is migrated with {found:?} instead of {:?}", name(is), expected(is)))
    }
}
