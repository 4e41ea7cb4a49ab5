//! The state of changed block tracking in a VM's status.

use api::v1::{ChangedBlockTrackingState as State, ChangedBlockTrackingStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use machinery::selector::{Labels, Selector};

use super::world::World;

const GATE: &str = "IncrementalBackup";

/// The cluster enables it for this VM, by its labels or those of its namespace.
fn is_selected(w: &World) -> bool {
    let Some(selectors) = &w.config.configuration.changed_block_tracking_label_selectors else { return false };
    let matches = |selector: &Option<LabelSelector>, labels: &Labels| {
        let selector = selector.as_ref().and_then(|selector| Selector::from_label_selector(selector).ok());
        selector.is_some_and(|selector| selector.matches(labels))
    };
    matches(&selectors.virtual_machine_label_selector, &w.vm.metadata.labels.clone().unwrap_or_default())
        || matches(&selectors.namespace_label_selector, &w.namespace_labels)
}

fn of_machine(w: &World) -> Option<&State> {
    let status = w.vm.status.as_ref()?.changed_block_tracking.as_ref()?;
    Some(&status.state).filter(|state| !state.as_str().is_empty())
}

fn of_instance(w: &World) -> Option<&State> {
    let status = w.instance()?.status.as_ref()?.changed_block_tracking.as_ref()?;
    Some(&status.state).filter(|state| !state.as_str().is_empty())
}

/// The state that a new VMI starts with.
pub(super) fn of_new_instance(w: &World) -> Option<ChangedBlockTrackingStatus> {
    let state = match (is_selected(w), of_machine(w)) {
        _ if !w.config.feature_gate(GATE) => return None,
        (true, _) => State::Initializing,
        (false, Some(_)) => State::Disabled,
        (false, None) => return None,
    };
    Some(ChangedBlockTrackingStatus { state, ..ChangedBlockTrackingStatus::default() })
}

/// The state for the VM's status.
pub(super) fn status(w: &World) -> Option<ChangedBlockTrackingStatus> {
    let old = w.vm.status.as_ref().and_then(|status| status.changed_block_tracking.clone());
    let state = state(w)?;
    Some(ChangedBlockTrackingStatus { state, ..old.unwrap_or_default() })
}

fn state(w: &World) -> Option<State> {
    use State::{Disabled, Enabled, IncrementalBackupFeatureGateDisabled as GateOff, Initializing, PendingRestart};
    let (own, theirs) = (of_machine(w), of_instance(w));
    let tracked = matches!(theirs, Some(Initializing | Enabled));
    if !w.config.feature_gate(GATE) {
        return match (tracked, own) {
            (false, _) => is_selected(w).then_some(GateOff),
            (true, Some(Initializing | Enabled)) => Some(PendingRestart),
            (true, own) => own.cloned(),
        };
    }
    if !is_selected(w) {
        return match own {
            None | Some(Disabled) => own.cloned(),
            Some(_) if !tracked => Some(Disabled),
            Some(_) => Some(PendingRestart),
        };
    }
    if w.instance().is_none() {
        return Some(if own == Some(&Enabled) { Enabled } else { Initializing });
    }
    Some(match own {
        None | Some(GateOff) => PendingRestart,
        Some(PendingRestart | Disabled) if tracked => theirs.cloned().unwrap_or(PendingRestart),
        Some(PendingRestart | Disabled) => PendingRestart,
        Some(_) if theirs == Some(&Enabled) => Enabled,
        Some(_) => Initializing,
    })
}
