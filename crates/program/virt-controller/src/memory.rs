//! A controller's record of its own writes that the caches do not show yet.

use std::sync::Arc;

use informer::{Clock, Expectations, Key, OwnWrites};
use plan::object::Kind;

use crate::controller::{Controller, Expected};

/// See the module docs. Everything is recorded under the key it was done for.
#[derive(Clone)]
pub struct Memory {
    expects: Expected,
    tracks: &'static [Kind],
    expected: Arc<[Expectations]>,
    written: Arc<[OwnWrites]>,
}

impl Memory {
    pub(crate) fn new(declared: &Controller, clock: &Clock) -> Self {
        let kinds = || Kind::ALL.iter();
        Self {
            expects: declared.expects,
            tracks: declared.tracks,
            expected: kinds().map(|_| Expectations::new(clock.clone())).collect(),
            written: kinds().map(|_| OwnWrites::new(clock.clone())).collect(),
        }
    }

    /// Open expectations for a kind.
    pub fn expected(&self, kind: Kind) -> &Expectations {
        &self.expected[kind as usize]
    }

    /// The last writes to objects of a kind.
    pub fn written(&self, kind: Kind) -> &OwnWrites {
        &self.written[kind as usize]
    }

    pub(crate) fn expects_creation(&self, kind: Kind) -> Option<&Expectations> {
        self.expects.creations.contains(&kind).then(|| self.expected(kind))
    }

    pub(crate) fn expects_deletion(&self, kind: Kind) -> Option<&Expectations> {
        self.expects.deletions.contains(&kind).then(|| self.expected(kind))
    }

    pub(crate) fn wrote(&self, key: &Key, kind: Kind, resource_version: Option<&str>) {
        if self.tracks.contains(&kind) {
            self.written(kind).wrote(key, resource_version);
        }
    }

    /// Called when the key's object is gone.
    pub(crate) fn forget(&self, key: &Key) {
        self.expected.iter().for_each(|expected| expected.forget(key));
        self.written.iter().for_each(|written| written.forget(key));
    }
}
