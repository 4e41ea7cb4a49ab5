//! Where guests really run, whatever the API says. Only their Pods' ends and the nodes' own deeds change it.

use std::collections::BTreeMap;

/// A guest that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Guest {
    /// The instance's UID.
    pub(crate) vmi: String,
    /// Its name, which it shares with the virtual machine, and so with every other guest of the same disks.
    pub(crate) name: String,
}

/// All guests that run, by the UIDs of the Pods they run in.
#[derive(Debug, Default)]
pub(crate) struct Guests {
    by_pod: BTreeMap<String, Guest>,
}

impl Guests {
    pub(crate) fn starts(&mut self, pod: &str, vmi: &str, name: &str) {
        self.by_pod.insert(pod.to_owned(), Guest { vmi: vmi.to_owned(), name: name.to_owned() });
    }

    /// The guest of an instance goes on in another Pod, in one moment.
    pub(crate) fn moves(&mut self, vmi: &str, to: &str) {
        let from = self.of(vmi).map(str::to_owned).next();
        if let Some(guest) = from.and_then(|from| self.by_pod.remove(&from)) {
            self.by_pod.insert(to.to_owned(), guest);
        }
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
