//! Fields of our schemas that the judge's release of KubeVirt does not have. Objects are made without them; a test asks
//! the judge about every field and fails when this list and its answers part.

/// The fields, by their path in the spec of an instance or of a virtual machine. What is below a listed field is not
/// listed again.
pub const NEWER: &[&str] =
    &["domain.devices.interfaces[].portRanges", "networks[].resourceClaim", "serviceAccountName"];

/// Whether the judge does not know a field.
pub fn is_newer(path: &str) -> bool {
    NEWER.contains(&path)
}
