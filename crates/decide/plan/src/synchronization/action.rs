use std::fmt;

use json_patch::Patch;

use crate::guard::paths;

/// Every effect this controller can have.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Patches the migration's finalizers.
    PatchMigration(Patch),
    /// Patches the migration's instance, guarded by tests.
    PatchVmi { patch: Patch, because: &'static str },
    /// Deletes the migration if it still has this UID, which gives it up.
    DeleteMigration { uid: String, because: String },
    /// Reads the migration and the other side's live. If both are as they were seen, `then` follows; otherwise the cache is
    /// behind.
    ConfirmMigrations { then: Vec<Action> },
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PatchMigration(patch) => write!(f, "patch the migration: {}", paths(patch)),
            Self::PatchVmi { patch, because } => write!(f, "patch the instance: {}: {because}", paths(patch)),
            Self::DeleteMigration { because, .. } => write!(f, "delete the migration: {because}"),
            Self::ConfirmMigrations { then } => {
                f.write_str("if both migrations are the same live:")?;
                then.iter().try_for_each(|action| write!(f, " {action};"))
            }
        }
    }
}
