//! Patches: JSON patch, merge patch, and a builder for guarded patches.

mod apply;

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation, ReplaceOperation, TestOperation};
use serde_json::Value;

pub use apply::apply;

/// The maximum number of operations.
pub const MAX_OPERATIONS: usize = 10_000;
/// The maximum number of bytes that one patch may copy: copies of copies grow without bounds.
pub const MAX_COPIED_BYTES: usize = 3 << 20;

/// Why a JSON patch did not apply. The document is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// A `test` failed: there was a concurrent write.
    #[error("testing value {path} failed: test failed")]
    TestFailed { index: usize, path: String },
    /// An operation does not fit the document.
    #[error("{why}")]
    Inapplicable { index: usize, why: String },
    /// The patch has too many operations.
    #[error("The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {0}")]
    TooManyOperations(usize),
    /// The copies exceed the limit.
    #[error(
        "Unable to complete the copy, the accumulated size increase of copy is {0}, exceeding the limit {MAX_COPIED_BYTES}"
    )]
    CopiesTooMuch(usize),
}

/// Applies the merge patch `patch` to `target`: objects merge, `null` removes, everything else replaces.
pub fn merge(target: &mut Value, patch: &Value) {
    json_patch::merge(target, patch);
}

/// Builds a JSON patch in which every change first tests what it replaces.
///
/// Such a patch fails after a concurrent write, so that the writer retries instead of undoing the other write. Lists
/// and maps are tested and replaced as a whole.
#[derive(Clone, Debug, Default)]
pub struct JsonPatch {
    operations: Vec<PatchOperation>,
}

impl JsonPatch {
    /// An empty patch.
    pub fn new() -> Self {
        JsonPatch::default()
    }

    /// Changes the field at `path` from `old` to `new`; `null` stands for an absent field. Equal values add no
    /// operation.
    ///
    /// The parent of the field must exist.
    pub fn change(&mut self, path: &[&str], old: Value, new: Value) -> &mut Self {
        if old == new {
            return self;
        }
        let pointer = pointer(path);
        let absent = old.is_null();
        self.operations.push(PatchOperation::Test(TestOperation { path: pointer.clone(), value: old }));
        self.operations.push(match (absent, new.is_null()) {
            (true, _) => PatchOperation::Add(AddOperation { path: pointer, value: new }),
            (false, true) => PatchOperation::Remove(RemoveOperation { path: pointer }),
            (false, false) => PatchOperation::Replace(ReplaceOperation { path: pointer, value: new }),
        });
        self
    }

    /// Only applies if the field at `path` has this value; `null` stands for an absent field.
    pub fn test(&mut self, path: &[&str], value: Value) -> &mut Self {
        self.operations.push(PatchOperation::Test(TestOperation { path: pointer(path), value }));
        self
    }

    /// Sets the field at `path` unconditionally.
    pub fn set(&mut self, path: &[&str], value: Value) -> &mut Self {
        self.operations.push(PatchOperation::Add(AddOperation { path: pointer(path), value }));
        self
    }

    /// Whether nothing would change.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// The patch, or `None` if nothing would change: an empty patch is never sent.
    pub fn build(self) -> Option<Patch> {
        (!self.operations.is_empty()).then_some(Patch(self.operations))
    }
}

/// A JSON pointer from plain names: `/` and `~` inside a name are escaped.
pub fn pointer(path: &[&str]) -> PointerBuf {
    PointerBuf::from_tokens(path.iter().copied())
}
