//! Rules for a VM's instance type and preference matchers.

use api::v1::{VirtualMachine, VirtualMachineSpec};
use instancetype::{Matcher, Subject};
use machinery::field::{Cause, FieldError, FieldPath};

/// If nothing can be inferred from the volume, the request is rejected.
pub(super) const REJECT: &str = "Reject";
/// If nothing can be inferred from the volume, the VM has no instance type or preference.
pub(super) const IGNORE: &str = "Ignore";

/// Both matchers of a VM, in the order in which they are processed.
pub(super) const SUBJECTS: [Subject; 2] = [Subject::Instancetype, Subject::Preference];

/// The matcher of a subject, if the VM has one.
pub(super) fn matcher(spec: &VirtualMachineSpec, subject: Subject) -> Option<Matcher<'_>> {
    match subject {
        Subject::Instancetype => spec.instancetype.as_ref().map(Matcher::from),
        Subject::Preference => spec.preference.as_ref().map(Matcher::from),
    }
}

/// Rejects a VM with invalid matchers. The first invalid matcher hides the other one.
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

/// A revision holds one object: after a change of the name it would still be that one.
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
