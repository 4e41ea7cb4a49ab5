//! 25: failed starts are counted once per VMI; the back-off after the n-th is between 10n² and 15n² seconds, at most
//! 300, and nothing starts before it is over.

use api::v1::RunStrategy;

use super::support::{cached_vm, ensure, new_vmi, pass_of, vm_change};
use super::{Invariant, Scene, Verdict};
use crate::controllers;
use crate::server::Change;

#[derive(Default)]
pub(crate) struct Rule;

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "backoff"
    }

    fn change(&mut self, scene: &Scene<'_>, change: &Change) -> Verdict {
        if let Some((Some(was), is)) = vm_change(change) {
            return counts_once(scene, was, is);
        }
        let Some(vmi) = new_vmi(change) else { return Ok(()) };
        let Some(vm) = pass_of(scene, change, controllers::VM).and_then(|pass| cached_vm(scene, pass)) else { return Ok(()) };
        let retry = vm.status.as_ref().and_then(|status| status.start_failure.as_ref()?.retry_after_timestamp.clone());
        let waits = matches!(vm.run_strategy(), Ok(RunStrategy::Always | RunStrategy::RerunOnFailure));
        ensure(!waits || retry.as_ref().is_none_or(|retry| scene.server.time().0 >= retry.0), || {
            format!("{:?} was started before its pause was over", vmi.metadata.name)
        })
    }
}

fn counts_once(scene: &Scene<'_>, was: &api::v1::VirtualMachine, is: &api::v1::VirtualMachine) -> Verdict {
    let failure = |vm: &api::v1::VirtualMachine| vm.status.as_ref().and_then(|status| status.start_failure.clone());
    let (Some(new), old) = (failure(is), failure(was).unwrap_or_default()) else { return Ok(()) };
    let count = |failure: &api::v1::VirtualMachineStartFailure| failure.consecutive_fail_count.unwrap_or(0);
    if count(&new) == count(&old) {
        return Ok(());
    }
    let name = is.metadata.name.as_deref().unwrap_or_default();
    ensure(count(&new) == count(&old) + 1 && new.last_failed_vmi_uid != old.last_failed_vmi_uid, || {
        format!("{name} failed {} times, then {} times", count(&old), count(&new))
    })?;
    let n = count(&new);
    let Some(retry) = &new.retry_after_timestamp else { return Err(format!("{name}: a failure without a pause")) };
    let pause = retry.0.as_second() - scene.server.time().0.as_second();
    // The back-off was computed when the pass began; the write may have taken a while.
    let (least, most) = ((10 * n * n).min(300), (15 * n * n).min(300));
    ensure(pause <= most && pause >= least - 30, || format!("{name}: a pause of {pause} s after {n} failures"))
}
