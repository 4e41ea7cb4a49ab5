//! Where guests really run, whatever the API says. Only the end of their Pods and actions of the nodes change it.

use std::collections::{BTreeMap, BTreeSet};

use super::storage::Disks;

/// A running guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Guest {
    /// The instance's UID.
    pub(crate) vmi: String,
    /// Namespace and name, shared with the VM, and so with all guests that use the same disks.
    pub(crate) name: String,
    /// Its earlier VMIs, each with the sender's migration.
    pub(crate) earlier: Vec<Earlier>,
}

/// A guest's stay in a VMI that has sent it away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Earlier {
    /// Same as the guest's.
    pub(crate) name: String,
    /// The UID of the sender's migration.
    pub(crate) migration: String,
    /// The number of changes when it left.
    pub(crate) left: usize,
}

/// All guests that run, by the UIDs of the Pods they run in.
#[derive(Debug, Default)]
pub(crate) struct Guests {
    by_pod: BTreeMap<String, Guest>,
    pub(crate) kept: Kept,
    pub(crate) disks: Disks,
}

/// Which claims really hold the guests' state, whatever labels say. Claims are identified by UID.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// By guest name: where it wrote last.
    latest: BTreeMap<String, String>,
    /// Claims in which a source has recorded that its guest has left.
    left: BTreeSet<String>,
    /// A guest that was started without its state.
    pub(crate) forgotten: Option<String>,
}

impl Kept {
    /// A guest starts with the state in a claim. If its last claim still exists, it must be the same.
    pub(crate) fn starts(&mut self, name: &str, claim: Option<String>, exists: impl Fn(&str) -> bool) {
        let Some(claim) = claim else { return };
        if let Some(last) = self.latest.insert(name.to_owned(), claim.clone())
            && last != claim
            && exists(&last)
        {
            self.forgotten = Some(name.to_owned());
        }
    }

    /// The guest's state moves with it, and the source leaves a mark.
    pub(crate) fn moves(&mut self, name: &str, from: String, to: String) {
        if from != to {
            self.left.insert(from);
            self.latest.insert(name.to_owned(), to);
        }
    }

    pub(crate) fn has_left(&self, claim: &str) -> bool {
        self.left.contains(claim)
    }

    /// The guest whose state is in the claim.
    pub(crate) fn guest_of(&self, claim: &str) -> Option<&str> {
        self.latest.iter().find(|(_, latest)| *latest == claim).map(|(name, _)| name.as_str())
    }
}

impl Guests {
    pub(crate) fn starts(&mut self, pod: &str, vmi: &str, name: &str) {
        let guest = Guest { vmi: vmi.to_owned(), name: name.to_owned(), earlier: vec![] };
        self.by_pod.insert(pod.to_owned(), guest);
    }

    /// The guest of a VMI continues in another Pod, instantly.
    pub(crate) fn moves(&mut self, vmi: &str, to: &str) {
        let from = self.of(vmi).map(str::to_owned).next();
        if let Some(guest) = from.and_then(|from| self.by_pod.remove(&from)) {
            self.by_pod.insert(to.to_owned(), guest);
        }
    }

    /// The guest of a VMI continues in a Pod of another VMI, instantly.
    pub(crate) fn passes(&mut self, vmi: &str, to: &str, receiver: (&str, String), (migration, left): (&str, usize)) {
        let from = self.of(vmi).map(str::to_owned).next();
        let Some(mut guest) = from.and_then(|from| self.by_pod.remove(&from)) else { return };
        guest.earlier.push(Earlier { name: guest.name, migration: migration.to_owned(), left });
        (guest.vmi, guest.name) = (receiver.0.to_owned(), receiver.1);
        self.by_pod.insert(to.to_owned(), guest);
    }

    /// The guest that came by this migration of its sender, if it runs.
    pub(crate) fn came_by(&self, migration: &str) -> Option<&Guest> {
        self.all().find(|guest| guest.earlier.iter().any(|stay| stay.migration == migration))
    }

    /// Whatever runs in the Pod ends with it.
    pub(crate) fn ends_in(&mut self, pod: &str) {
        if let Some(guest) = self.by_pod.remove(pod) {
            self.disks.close_all(&guest.vmi);
        }
    }

    /// The guest of a VMI ends, wherever it is.
    pub(crate) fn ends(&mut self, vmi: &str) {
        self.disks.close_all(vmi);
        self.by_pod.retain(|_, guest| guest.vmi != vmi);
    }

    pub(crate) fn in_pod(&self, pod: &str) -> Option<&Guest> {
        self.by_pod.get(pod)
    }

    /// The Pods in which the VMI's guest runs.
    pub(crate) fn of<'a>(&'a self, vmi: &'a str) -> impl Iterator<Item = &'a str> {
        self.by_pod.iter().filter(move |(_, guest)| guest.vmi == vmi).map(|(pod, _)| pod.as_str())
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Guest> {
        self.by_pod.values()
    }
}
