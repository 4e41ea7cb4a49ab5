//! Where guests really run, whatever the API says. Only their Pods' ends and the nodes' own deeds change it.

use std::collections::{BTreeMap, BTreeSet};

/// A guest that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Guest {
    /// The instance's UID.
    pub(crate) vmi: String,
    /// Namespace and name, which it shares with the virtual machine, and so with every other guest of the same disks.
    pub(crate) name: String,
    /// Who it was before: what it was sent from, and by which migration of the sender.
    pub(crate) earlier: Vec<Earlier>,
}

/// A stay of a guest in an instance that has sent it away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Earlier {
    /// As that of a guest.
    pub(crate) name: String,
    /// The UID of the sender's migration.
    pub(crate) migration: String,
    /// How many changes there had been when it left.
    pub(crate) left: usize,
}

/// All guests that run, by the UIDs of the Pods they run in.
#[derive(Debug, Default)]
pub(crate) struct Guests {
    by_pod: BTreeMap<String, Guest>,
    pub(crate) kept: Kept,
}

/// Which claims really have what guests keep, whatever labels say. Claims go by their UIDs.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// By the guest's name: where it wrote last.
    latest: BTreeMap<String, String>,
    /// Claims in which a source has noted that its guest has left.
    left: BTreeSet<String>,
    /// A guest that was started without what it had kept.
    pub(crate) forgotten: Option<String>,
}

impl Kept {
    /// A guest starts with what is in a claim. If its last one still exists, that must be the one.
    pub(crate) fn starts(&mut self, name: &str, claim: Option<String>, exists: impl Fn(&str) -> bool) {
        let Some(claim) = claim else { return };
        if let Some(last) = self.latest.insert(name.to_owned(), claim.clone())
            && last != claim
            && exists(&last)
        {
            self.forgotten = Some(name.to_owned());
        }
    }

    /// What the guest keeps goes with it, and the source leaves a note.
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

    /// The guest of an instance goes on in another Pod, in one moment.
    pub(crate) fn moves(&mut self, vmi: &str, to: &str) {
        let from = self.of(vmi).map(str::to_owned).next();
        if let Some(guest) = from.and_then(|from| self.by_pod.remove(&from)) {
            self.by_pod.insert(to.to_owned(), guest);
        }
    }

    /// The guest of an instance goes on in a Pod of another instance, in one moment.
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

    /// Whatever ran in the Pod ends with it.
    pub(crate) fn ends_in(&mut self, pod: &str) {
        self.by_pod.remove(pod);
    }

    /// The guest of an instance ends, wherever it is.
    pub(crate) fn ends(&mut self, vmi: &str) {
        self.by_pod.retain(|_, guest| guest.vmi != vmi);
    }

    pub(crate) fn in_pod(&self, pod: &str) -> Option<&Guest> {
        self.by_pod.get(pod)
    }

    /// The Pods in which the instance's guest runs.
    pub(crate) fn of<'a>(&'a self, vmi: &'a str) -> impl Iterator<Item = &'a str> {
        self.by_pod.iter().filter(move |(_, guest)| guest.vmi == vmi).map(|(pod, _)| pod.as_str())
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Guest> {
        self.by_pod.values()
    }
}
