//! Bugs put in on purpose, to prove that the simulation would find them.
//!
//! All are put where the controllers meet the rest of the world: in what they send, in what they are answered, in what
//! their caches tell them. The controllers themselves know nothing of them.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::Resource;
use virt_controller::api::Kind as AnyKind;

use crate::hub::Hub;
use crate::kinds::Kind;
use crate::server::Answer;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// Pods get a new name with every attempt, as if names were drawn.
    RandomPodNames,
    /// Whatever a controller creates or deletes is taken for seen at once.
    NoExpectations,
    /// Live reads are answered from the cache: absence is not confirmed.
    ActOnAbsence,
    /// A conflict is taken for success.
    SwallowConflicts,
}

impl Plant {
    pub const ALL: &[Plant] =
        &[Plant::RandomPodNames, Plant::NoExpectations, Plant::ActOnAbsence, Plant::SwallowConflicts];
}

fn is_conflict(status: &Status) -> bool {
    matches!(machinery::status::code(status), 409 | 422)
}

impl Hub {
    /// [`Plant::RandomPodNames`]
    pub(crate) fn plant_name<K: AnyKind>(&mut self, object: &mut K) {
        if self.plant == Some(Plant::RandomPodNames) && Kind::of::<K>() == Some(Kind::Pod) {
            self.drawn += 1;
            let name = object.meta().name.clone().unwrap_or_default();
            object.meta_mut().name = Some(format!("{name}-{}", self.drawn));
        }
    }

    /// [`Plant::ActOnAbsence`]
    pub(crate) fn plant_absence<K: AnyKind>(&self) -> Option<Vec<Arc<K>>> {
        if self.plant != Some(Plant::ActOnAbsence) {
            return None;
        }
        let kind = Kind::of::<K>()?;
        let seen = self.server.seen(kind, self.seen[kind as usize]);
        Some(seen.values().filter_map(|object| object.downcast::<K>().cloned()).collect())
    }

    /// [`Plant::SwallowConflicts`]
    pub(crate) fn plant_conflict<K: Resource>(&mut self, stored: Answer<K>, sent: Option<K>) -> Answer<K> {
        match (stored, sent) {
            (Err(status), Some(sent)) if self.plant == Some(Plant::SwallowConflicts) && is_conflict(&status) => {
                self.swallowed = Some(machinery::status::code(&status));
                Ok(sent)
            }
            (stored, _) => stored,
        }
    }
}
