//! 24: only the first state change request counts, and a stop request for another VMI never stops this one: whenever
//! the VM controller deletes a VMI, there is a reason.

use api::v1::{RunStrategy, StateChangeRequestAction as Action};
use machinery::meta::is_deleting;

use super::strategies::head;
use super::support::{cached_vm, ensure};
use super::{Invariant, Scene, Verdict};
use crate::controllers;
use crate::engine::PassInfo;
use crate::hub::{Op, Request};
use crate::kinds::{Kind, Object, uid};

#[derive(Default)]
pub(crate) struct Rule;

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "stops_have_reasons"
    }

    fn request(&mut self, scene: &Scene<'_>, pass: &PassInfo, request: &Request) -> Verdict {
        let Op::Delete { uid: meant } = &request.op else { return Ok(()) };
        if pass.controller != controllers::VM || request.kind != Some(Kind::Vmi) {
            return Ok(());
        }
        let Some(Object::Vmi(vmi)) = scene.cached(pass, Kind::Vmi, &request.key) else {
            return Err(format!("instance {} is deleted unseen", request.key));
        };
        ensure(uid(&vmi.metadata) == meant, || format!("another instance {} is deleted than was seen", request.key))?;
        let Some(vm) = cached_vm(scene, pass) else { return Err(format!("instance {} is deleted for nobody", request.key)) };
        let stop = head(&vm).is_some_and(|request| request.action == Action::Stop && request.uid.as_deref() == Some(meant));
        let reason = is_deleting(&vm.metadata)
            || match vm.run_strategy() {
                Ok(RunStrategy::Halted) => true,
                Ok(RunStrategy::Always | RunStrategy::RerunOnFailure) => stop || vmi.is_final(),
                Ok(RunStrategy::Manual) => stop,
                _ => false,
            };
        ensure(reason, || format!("instance {} is deleted without a reason", request.key))
    }
}
