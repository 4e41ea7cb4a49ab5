//! 29: the printable status matches the actual state.

use api::conditions;
use api::v1::{RunStrategy, VirtualMachineInstancePhase as Phase};
use api::v1::{VirtualMachine, VirtualMachineInstance, VirtualMachinePrintableStatus as Printable};
use informer::Key;
use machinery::meta::is_controlled_by;
use virt_controller::Stores;

use super::support::ensure;
use super::{Invariant, Scene, Verdict};
use crate::kinds::uid;

#[derive(Default)]
pub(crate) struct Rule;

/// The values allowed once everything has settled.
fn allowed(vm: &VirtualMachine, vmi: Option<&VirtualMachineInstance>) -> &'static [Printable] {
    let failures = vm.status.as_ref().and_then(|status| status.start_failure.as_ref()).is_some();
    let awaits = vm.run_strategy() == Ok(RunStrategy::WaitAsReceiver);
    match vmi {
        Some(vmi) if vmi.phase() == Some(&Phase::WaitingForSync) => &[Printable::WaitingForReceiver],
        None if awaits => &[Printable::WaitingForReceiver],
        Some(vmi) if vmi.is_running() && vmi.has_condition(conditions::PAUSED) => &[Printable::Paused],
        Some(vmi) if vmi.is_running() => &[Printable::Running],
        Some(vmi) if vmi.is_final() && failures => &[Printable::CrashLoopBackOff, Printable::Stopped, Printable::DataVolumeError],
        // An adopted VMI may have used other volumes than the VM's own, which need not exist.
        Some(vmi) if vmi.is_final() => &[
            Printable::Stopped,
            Printable::DataVolumeError,
            Printable::Provisioning,
            Printable::WaitingForVolumeBinding,
        ],
        Some(_) => &[
            Printable::Starting,
            Printable::Provisioning,
            Printable::ErrorUnschedulable,
            Printable::ErrorPvcNotFound,
            Printable::WaitingForVolumeBinding,
            Printable::DataVolumeError,
            Printable::ErrImagePull,
            Printable::ImagePullBackOff,
        ],
        None if failures => &[Printable::CrashLoopBackOff, Printable::Stopped, Printable::DataVolumeError, Printable::Provisioning],
        None => &[
            Printable::Stopped,
            Printable::Provisioning,
            Printable::DataVolumeError,
            Printable::WaitingForVolumeBinding,
            Printable::ErrorPvcNotFound,
        ],
    }
}

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "printable"
    }

    fn rest(&mut self, scene: &Scene<'_>, _: &Stores) -> Verdict {
        let tables = &scene.server.tables;
        for vm in tables.vms.all() {
            let vmi = tables.vmis.get(&Key::of(vm.as_ref())).filter(|vmi| is_controlled_by(&vmi.metadata, uid(&vm.metadata)));
            let shown = vm.status.as_ref().and_then(|status| status.printable_status.clone());
            let allowed = allowed(vm, vmi.map(AsRef::as_ref));
            ensure(shown.as_ref().is_some_and(|shown| allowed.contains(shown)), || {
                format!("{:?} is shown as {shown:?}, which is none of {allowed:?}", vm.metadata.name)
            })?;
        }
        Ok(())
    }
}
