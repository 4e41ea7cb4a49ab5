//! SELinux labels of Pods that share files with a guest.

use api::v1::VirtualMachineInstance;

use crate::error::Error;

/// virt-handler's value if SELinux is off.
const OFF: &str = "none";

/// The level of the guest's label; `None` if SELinux is off.
///
/// A VMI that is about to receive a guest has no label of its own yet and takes the source's.
pub(crate) fn guest_level(vmi: &VirtualMachineInstance) -> Result<Option<String>, Error> {
    let status = vmi.status.as_ref();
    let source = || status?.migration_state.as_ref()?.source_state.as_ref()?.selinux_context.as_deref();
    let own = status.and_then(|status| status.selinux_context.as_deref()).filter(|label| !label.is_empty());
    let label = own.or_else(|| source().filter(|label| !label.is_empty())).ok_or(Error::NoSelinuxContext)?;
    if label == OFF { Ok(None) } else { level(label).map(Some) }
}

/// The level of a label such as `system_u:object_r:container_file_t:s0:c1,c2`.
pub(crate) fn level(label: &str) -> Result<String, Error> {
    let invalid = || Error::Invalid {
        field: "status.selinuxContext",
        value: label.to_owned(),
        remedy: "a label has the form user:role:type:level",
    };
    label.splitn(4, ':').nth(3).map(str::to_owned).ok_or_else(invalid)
}
