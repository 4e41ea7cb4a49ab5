//! Rules for how a virtual machine names its instance type and its preference.

use api::v1::{VirtualMachine, VirtualMachineSpec};
use instancetype::{Matcher, Subject};
use machinery::field::{Cause, FieldError, FieldPath};

/// A volume that does not say what to infer makes the request fail.
pub(super) const REJECT: &str = "Reject";
/// A volume that does not say what to infer leaves the machine without.
pub(super) const IGNORE: &str = "Ignore";

/// Both matchers of a machine, in the order in which they are looked at.
pub(super) const SUBJECTS: [Subject; 2] = [Subject::Instancetype, Subject::Preference];

/// The matcher of a subject, if the machine has one.
pub(super) fn matcher(spec: &VirtualMachineSpec, subject: Subject) -> Option<Matcher<'_>> {
    match subject {
        Subject::Instancetype => spec.instancetype.as_ref().map(Matcher::from),
        Subject::Preference => spec.preference.as_ref().map(Matcher::from),
    }
}

/// Refuses a machine whose matchers make no sense. The first matcher with a mistake hides the other one.
pub(super) fn check(vm: &VirtualMachine, old: Option<&VirtualMachine>) -> Result<(), Vec<FieldError>> {
    let field = |subject: Subject| FieldPath::new("spec").child(subject.field());
    for subject in SUBJECTS {
        let old = old.and_then(|old| matcher(&old.spec, subject));
        if let (Some(old), Some(new)) = (old, matcher(&vm.spec, subject))
            && let Some(error) = stale_revision(&field(subject), &old, &new)
        {
            return Err(vec![error]);
        }
    }
    for subject in SUBJECTS {
        let errors = matcher(&vm.spec, subject).map(|matcher| mistakes(&field(subject), &matcher)).unwrap_or_default();
        if !errors.is_empty() {
            return Err(errors);
        }
    }
    Ok(())
}

/// A revision holds one object: with another name it would go on being that one.
fn stale_revision(field: &FieldPath, old: &Matcher<'_>, new: &Matcher<'_>) -> Option<FieldError> {
    let revision = new.revision_name;
    let stale = !revision.is_empty() && old.revision_name == revision && old.name != new.name;
    let detail = "is a revision of what was named before; clear it together with the change of the name";
    stale.then(|| FieldError::invalid(field.child("revisionName"), revision, detail))
}

fn mistakes(field: &FieldPath, matcher: &Matcher<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if matcher.name.is_empty() && matcher.infer_from_volume.is_empty() {
        let message = "either name or inferFromVolume has to be set";
        errors.push(FieldError::new(Cause::NotFound, field.clone(), message));
    }
    if !matcher.infer_from_volume.is_empty() {
        let given = [("name", matcher.name), ("kind", matcher.kind)];
        for (name, _) in given.into_iter().filter(|(_, value)| !value.is_empty()) {
            let message = "must not be set together with inferFromVolume, which finds it";
            errors.push(FieldError::new(Cause::NotSupported, field.child(name), message));
        }
    }
    if let Some(policy) = matcher.failure_policy.filter(|policy| ![REJECT, IGNORE].contains(policy)) {
        let detail = format!("must be {REJECT} or {IGNORE}");
        errors.push(FieldError::invalid(field.child("inferFromVolumeFailurePolicy"), policy, detail));
    }
    errors
}
