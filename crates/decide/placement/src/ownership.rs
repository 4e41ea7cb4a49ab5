//! Whether an object outlives its owners.

/// Finalizer: blocking dependents are deleted first.
pub const FOREGROUND: &str = "foregroundDeletion";
/// Finalizer: dependents stay and drop their owner reference.
pub const ORPHAN: &str = "orphan";

/// What happens to an object's dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// The state of an owner, as seen by a dependent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It exists.
    Solid,
    /// It is terminating and waits for its dependents.
    Waiting,
    /// It is gone.
    Absent,
}

/// An object with owners.
#[derive(Debug, Clone, Copy)]
pub struct Dependent<'a> {
    /// The UIDs of its owners, and how they are.
    pub owners: &'a [(&'a str, Standing)],
    pub finalizers: &'a [String],
    pub deleting: bool,
    /// It owns objects itself.
    pub has_dependents: bool,
}

/// What happens to a dependent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Keep,
    Delete(Propagation),
    /// It has another owner; remove references to these.
    Forget(Vec<String>),
}

/// If all owners are gone, the dependent is deleted. If one is left, it stays and drops its references to the others.
pub fn judge(object: &Dependent<'_>) -> Verdict {
    let is = |wanted: Standing| object.owners.iter().any(|(_, standing)| *standing == wanted);
    if object.owners.is_empty() {
        return Verdict::Keep;
    }
    if is(Standing::Solid) {
        let gone = object.owners.iter().filter(|(_, standing)| *standing != Standing::Solid);
        let gone: Vec<String> = gone.map(|(uid, _)| (*uid).to_owned()).collect();
        return if gone.is_empty() { Verdict::Keep } else { Verdict::Forget(gone) };
    }
    if object.deleting {
        return Verdict::Keep; // already terminating
    }
    if is(Standing::Waiting) && object.has_dependents {
        return Verdict::Delete(Propagation::Foreground);
    }
    let has = |finalizer: &str| object.finalizers.iter().any(|held| held == finalizer);
    Verdict::Delete(match (has(ORPHAN), has(FOREGROUND)) {
        (true, _) => Propagation::Orphan,
        (_, true) => Propagation::Foreground,
        _ => Propagation::Background,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependent_follows_the_last_of_its_owners() {
        use Propagation::{Background, Foreground, Orphan};
        use Verdict::{Delete, Forget, Keep};
        let (solid, waiting, absent) = (("s", Standing::Solid), ("w", Standing::Waiting), ("a", Standing::Absent));
        let other = ("a2", Standing::Absent);
        type Case<'a> = (&'a str, &'a [(&'a str, Standing)], &'a [&'a str], bool, bool, Verdict);
        let table: [Case<'_>; 10] = [
            ("nobody owns it", &[], &[], false, false, Keep),
            ("its owner is there", &[solid], &[], false, false, Keep),
            ("its owner is gone", &[absent], &[], false, false, Delete(Background)),
            ("all owners are gone", &[absent, other], &[], false, true, Delete(Background)),
            ("one of two is gone", &[solid, absent], &[], false, false, Forget(vec!["a".to_owned()])),
            ("one of two is going", &[solid, waiting], &[], false, false, Forget(vec!["w".to_owned()])),
            ("its owner waits", &[waiting], &[], false, false, Delete(Background)),
            ("and others wait for it", &[waiting], &[], false, true, Delete(Foreground)),
            ("it is going already", &[absent], &[], true, false, Keep),
            ("it asked to orphan", &[absent], &[ORPHAN], false, false, Delete(Orphan)),
        ];
        for (name, owners, finalizers, deleting, has_dependents, expected) in table {
            let finalizers: Vec<String> = finalizers.iter().map(|&name| name.to_owned()).collect();
            let object = Dependent { owners, finalizers: &finalizers, deleting, has_dependents };
            assert_eq!(judge(&object), expected, "{name}");
        }
    }
}
