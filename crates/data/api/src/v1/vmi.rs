//! VirtualMachineInstance.

use crate::kind::resource;
use crate::{annotations, conditions};

use super::condition::VirtualMachineInstanceCondition;
use super::enums::VirtualMachineInstancePhase as Phase;
use super::vmi_spec::VirtualMachineInstanceSpec;
use super::vmi_status::VirtualMachineInstanceStatus;

resource! {
    /// One run of a virtual machine.
    VirtualMachineInstance, "virtualmachineinstances",
    spec: VirtualMachineInstanceSpec, status: VirtualMachineInstanceStatus
}

impl VirtualMachineInstance {
    /// The phase, or `None` while it is unset.
    pub fn phase(&self) -> Option<&Phase> {
        self.status.as_ref()?.phase.as_ref().filter(|phase| !phase.as_str().is_empty())
    }

    /// Whether the instance has ended and will not run again.
    pub fn is_final(&self) -> bool {
        matches!(self.phase(), Some(Phase::Succeeded | Phase::Failed))
    }

    /// Whether no launcher Pod has been seen yet.
    pub fn is_unprocessed(&self) -> bool {
        matches!(self.phase(), None | Some(Phase::Pending))
    }

    /// Whether the guest runs.
    pub fn is_running(&self) -> bool {
        self.phase() == Some(&Phase::Running)
    }

    /// Whether the instance waits on its node for the guest to start.
    pub fn is_scheduled(&self) -> bool {
        self.phase() == Some(&Phase::Scheduled)
    }

    /// Whether it takes a guest over from another instance, and has not got it yet.
    pub fn receives(&self) -> bool {
        let noted = self.metadata.annotations.as_ref().and_then(|all| all.get(annotations::CREATE_MIGRATION_TARGET));
        noted.is_some_and(|noted| noted == "true")
    }

    /// Whether it is being deleted.
    pub fn is_marked_for_deletion(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// The condition of this type.
    pub fn condition(&self, type_: &str) -> Option<&VirtualMachineInstanceCondition> {
        conditions::find(&self.status.as_ref()?.conditions, type_)
    }

    /// Whether the condition of this type exists and is True.
    pub fn has_condition(&self, type_: &str) -> bool {
        self.condition(type_).is_some_and(|condition| condition.is_true())
    }

    /// The status, made if it is missing.
    pub fn status_mut(&mut self) -> &mut VirtualMachineInstanceStatus {
        self.status.get_or_insert_default()
    }

    /// The name libvirt knows the domain by: namespace and name, joined by a character neither can contain.
    pub fn domain_name(&self) -> String {
        let namespace = self.metadata.namespace.as_deref().unwrap_or_default();
        let name = self.metadata.name.as_deref().unwrap_or_default();
        format!("{namespace}_{name}")
    }
}
