//! What must not change while a VM is being snapshotted or restored.

use api::v1::VirtualMachine;
use machinery::field::{Cause, FieldError, FieldPath};

/// Why an update must wait, if it must.
pub(super) fn check(vm: &VirtualMachine, old: Option<&VirtualMachine>) -> Vec<FieldError> {
    let (Some(old), Some(status)) = (old, &vm.status) else { return Vec::new() };
    let snapshot = status.snapshot_in_progress.as_deref().and_then(|name| snapshot(name, vm, old));
    let restore = || status.restore_in_progress.as_deref().and_then(|name| restore(name, vm, old));
    snapshot.or_else(restore).map(wait).into_iter().collect()
}

fn wait(message: String) -> FieldError {
    FieldError::new(Cause::NotSupported, FieldPath::new("spec"), message)
}

/// A snapshot needs unchanged volumes and an unchanged run strategy.
fn snapshot(name: &str, vm: &VirtualMachine, old: &VirtualMachine) -> Option<String> {
    if vm.spec.template.spec.volumes != old.spec.template.spec.volumes {
        return Some(format!("volumes cannot be changed until the snapshot {name:?} completes"));
    }
    // Rewriting the same strategy in its other form counts as a change.
    let same = match (old.spec.running, vm.spec.running) {
        (Some(old), Some(new)) => old == new,
        _ => old.spec.run_strategy.is_some() && old.spec.run_strategy == vm.spec.run_strategy,
    };
    (!same).then(|| format!("the run strategy cannot be changed until the snapshot {name:?} completes"))
}

fn restore(name: &str, vm: &VirtualMachine, old: &VirtualMachine) -> Option<String> {
    let changed = vm.run_strategy().ok() != old.run_strategy().ok();
    changed.then(|| format!("the run strategy cannot be changed until the restore {name:?} completes"))
}
