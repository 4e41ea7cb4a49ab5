//! Patches: JSON patch, merge patch, and a builder for patches that guard themselves.

use serde_json::Value;

/// Overlays `patch` on `target` by the rules of a merge patch: objects merge, `null` removes, all else replaces.
pub fn merge(target: &mut Value, patch: &Value) {
    json_patch::merge(target, patch);
}
