//! Planted bugs, to prove that the simulation would find them.
//!
//! All are injected between the controllers and the rest of the world: in requests, in responses, or in what the caches
//! show. The controllers themselves are unchanged. The same holds for those of the launchers (`launchers/mod.rs`),
//! which are injected in responses.

use std::any::Any;
use std::sync::Arc;

use api::v1::VirtualMachineInstance;
use informer::Key;
use json_patch::PatchOperation;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use machinery::meta::{controller_of, is_controlled_by};
use machinery::status::{self, About};
use virt_controller::api::Patch;

use crate::actors::{self, is_attachment, is_target};
use crate::hub::Hub;
use crate::kinds::{AnyKind, Kind, key};
use crate::server::{Answer, Propagation};

/// See the module docs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// Pods get a new name with every attempt, as if names were random.
    RandomPodNames,
    /// Everything a controller creates or deletes counts as observed at once.
    NoExpectations,
    /// Live reads are answered from the cache: absence is not confirmed.
    ActOnAbsence,
    /// A conflict counts as success.
    SwallowConflicts,
    /// A successful hand-off to the nodes is answered with an error, and live reads of VMIs by that controller are
    /// answered from the cache.
    ForgottenHandOff,
    /// The successful creation of a target Pod is answered with an error: it is not counted before the cache shows it.
    UncountedStart,
    /// The migration controller's live reads of VMIs and migrations are answered from the cache, and its patches have
    /// no tests.
    TwoOwners,
    /// Aborting a migration that was handed to the nodes deletes its target.
    AbortDeletesTarget,
    /// A sender that is told that its guest has arrived at the receiver is told the opposite.
    SenderGoesOn,
    /// The target's claim is not assigned to the arrived guest, and the source's is deleted all the same.
    SourceClaimFirst,
    /// A Job that was to determine how a migration ended counts as having found the guest at the source.
    JobNotAwaited,
    /// One side of a migration between VMIs copies the other side from a stale cache, over whatever is stored by now.
    StaleCopy,
    /// When an attachment Pod is created, those that it replaces are deleted at once.
    ImpatientSwap,
    /// A disk counts as unplugged as soon as virt-handler has asked the guest to let it go.
    EagerEject,
    /// A launcher that asks the target of its migration for the guest is told that the target does not have it.
    SourceResumes,
    /// A lost response of a migration's target counts as a refusal.
    LostFinish,
}

impl Plant {
    pub const ALL: &[Plant] = &[
        Plant::RandomPodNames,
        Plant::NoExpectations,
        Plant::ActOnAbsence,
        Plant::SwallowConflicts,
        Plant::ForgottenHandOff,
        Plant::UncountedStart,
        Plant::TwoOwners,
        Plant::AbortDeletesTarget,
        Plant::SenderGoesOn,
        Plant::StaleCopy,
        Plant::SourceClaimFirst,
        Plant::JobNotAwaited,
        Plant::ImpatientSwap,
        Plant::EagerEject,
        Plant::SourceResumes,
        Plant::LostFinish,
    ];
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

    fn moves_guests(&self) -> bool {
        self.pass.name() == "migration-controller"
    }

    fn carries_over(&self) -> bool {
        self.pass.name() == "synchronization-controller"
    }

    /// [`Plant::ActOnAbsence`], [`Plant::TwoOwners`], [`Plant::StaleCopy`]
    pub(crate) fn plant_cached<K: AnyKind>(&self) -> Option<Vec<Arc<K>>> {
        let kind = Kind::of::<K>()?;
        match (self.plant, kind) {
            (Some(Plant::ActOnAbsence), _) => {}
            (Some(Plant::ForgottenHandOff | Plant::TwoOwners), Kind::Vmi) if self.moves_guests() => {}
            (Some(Plant::TwoOwners), Kind::Migration) if self.moves_guests() => {}
            (Some(Plant::StaleCopy), Kind::Migration) if self.carries_over() => {}
            _ => return None,
        }
        let seen = self.server.seen(kind, self.seen[kind as usize]);
        Some(seen.values().filter_map(|object| object.downcast::<K>().cloned()).collect())
    }

    /// [`Plant::SwallowConflicts`]
    pub(crate) fn plant_conflict<K>(&mut self, stored: Answer<Arc<K>>, sent: Option<Arc<K>>) -> Answer<Arc<K>> {
        match (stored, sent) {
            (Err(status), Some(sent)) if self.plant == Some(Plant::SwallowConflicts) && is_conflict(&status) => {
                self.meant = Some(Err(machinery::status::code(&status)));
                Ok(sent)
            }
            (stored, _) => stored,
        }
    }

    /// [`Plant::ForgottenHandOff`]
    pub(crate) fn plant_hand_off<K>(&mut self, patch: &Patch, stored: Answer<K>) -> Answer<K> {
        let hands_off = self.moves_guests() && touches(patch, "/status/migrationState");
        if self.plant != Some(Plant::ForgottenHandOff) || stored.is_err() || !hands_off {
            return stored;
        }
        self.meant = Some(Ok(()));
        Err(Box::new(status::conflict(About::default(), "the object has been modified")))
    }

    /// [`Plant::UncountedStart`]. The judge gets the same response, or it would expect the process to know of the Pod.
    pub(crate) fn plant_start<K: AnyKind>(&self, stored: Answer<Arc<K>>) -> Answer<Arc<K>> {
        let target = |stored: &Arc<K>| (stored.as_ref() as &dyn Any).downcast_ref::<Pod>().is_some_and(is_target);
        if self.plant == Some(Plant::UncountedStart) && stored.as_ref().is_ok_and(target) {
            return Err(Box::new(status::conflict(About::default(), "not now")));
        }
        stored
    }

    /// [`Plant::TwoOwners`], [`Plant::StaleCopy`]
    pub(crate) fn plant_guards(&self, patch: Patch) -> Patch {
        let unguarded = match self.plant {
            Some(Plant::TwoOwners) => self.moves_guests(),
            Some(Plant::StaleCopy) => self.carries_over(),
            _ => false,
        };
        match patch {
            Patch::Json(json_patch::Patch(steps)) if unguarded => {
                let unguarded = steps.into_iter().filter(|step| !matches!(step, PatchOperation::Test(_)));
                Patch::Json(json_patch::Patch(unguarded.collect()))
            }
            patch => patch,
        }
    }

    /// [`Plant::SenderGoesOn`]
    pub(crate) fn plant_end(&self, patch: Patch) -> Patch {
        let carries = self.plant == Some(Plant::SenderGoesOn) && self.carries_over();
        let Patch::Json(mut patch) = patch else { return patch };
        for step in patch.0.iter_mut().filter(|_| carries) {
            let (PatchOperation::Add(json_patch::AddOperation { path, value })
            | PatchOperation::Replace(json_patch::ReplaceOperation { path, value })) = step
            else {
                continue;
            };
            let sends = value["sourceState"]["syncAddress"].is_null() && value["endTimestamp"].is_string();
            if path.as_str() == "/status/migrationState" && sends {
                value["failed"] = true.into();
                value["completed"] = true.into();
            }
        }
        Patch::Json(patch)
    }

    /// [`Plant::SourceClaimFirst`]
    pub(crate) fn plant_label<K: AnyKind>(&self) -> bool {
        self.plant == Some(Plant::SourceClaimFirst) && self.moves_guests() && Kind::of::<K>() == Some(Kind::Claim)
    }

    /// [`Plant::JobNotAwaited`]
    pub(crate) fn plant_answer<K: AnyKind>(&self, at: &Key) -> Option<Option<K>> {
        if self.plant != Some(Plant::JobNotAwaited) || Kind::of::<K>() != Some(Kind::Job) {
            return None;
        }
        let found = self.server.lookup::<Job>(at)?;
        let mut job = (*found).clone();
        actors::answer_job(&mut job, "Failed", "PodFailurePolicy");
        (&job as &dyn Any).downcast_ref::<K>().map(|job| Some(job.clone()))
    }

    /// [`Plant::ImpatientSwap`]
    pub(crate) fn plant_swap<K: AnyKind>(&mut self, stored: &Answer<Arc<K>>) {
        if self.plant != Some(Plant::ImpatientSwap) {
            return;
        }
        let Ok(stored) = stored else { return };
        let Some(new) = (stored.as_ref() as &dyn Any).downcast_ref::<Pod>().filter(|pod| is_attachment(pod)) else {
            return;
        };
        let launcher = controller_of(&new.metadata).map(|owner| owner.uid.clone()).unwrap_or_default();
        let others = self.server.tables.pods.all().filter(|pod| is_controlled_by(&pod.metadata, &launcher));
        let others = others.filter(|pod| is_attachment(pod) && pod.metadata.uid != new.metadata.uid);
        let (by, others) = (self.pass, others.map(|pod| key(&pod.metadata)).collect::<Vec<_>>());
        for other in others {
            // It was listed just now.
            let _ = self.server.delete::<Pod>(by, &other, None, None, Propagation::Background);
        }
    }

    /// [`Plant::AbortDeletesTarget`]
    pub(crate) fn plant_abort(&mut self, vmi: &Key, patch: &Patch) {
        if self.plant != Some(Plant::AbortDeletesTarget) || !touches(patch, "/status/migrationState/abortRequested") {
            return;
        }
        let namespace = vmi.namespace.clone();
        let vmi = self.server.lookup::<VirtualMachineInstance>(vmi);
        let target = vmi.and_then(|vmi| vmi.status.as_ref()?.migration_state.as_ref()?.target_pod.clone());
        let target = Key::new(namespace, target.unwrap_or_default());
        let by = self.pass;
        // It may already be gone.
        let _ = self.server.delete::<Pod>(by, &target, None, None, Propagation::Background);
    }
}

/// Whether a patch writes exactly this path.
fn touches(patch: &Patch, path: &str) -> bool {
    let Patch::Json(patch) = patch else { return false };
    patch.0.iter().any(|step| !matches!(step, PatchOperation::Test(_)) && *step.path() == *path)
}
