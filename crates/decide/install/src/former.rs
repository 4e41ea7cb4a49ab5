//! Cluster-scoped objects of earlier versions that this one no longer has. Objects in the installation's namespace are found by
//! their label; for others virt-operator has rights by name only, so their names must stay known.

/// The name of an object that an earlier version created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Former {
    pub group: &'static str,
    pub kind: &'static str,
    pub name: &'static str,
}

/// Whoever removes a cluster-scoped object from the manifests adds its name here. virt-operator deletes it after an update if it
/// carries our marker, but never a CRD, which has users' objects; `uninstall` deletes those, too.
pub const FORMER: &[Former] = &[];
