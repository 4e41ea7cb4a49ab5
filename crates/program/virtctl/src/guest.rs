//! The state of a guest, from its objects.

use api::v1::{VirtualMachine, VirtualMachineInstance};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use waits::guest::{Outlook, Seen, outlook};

use crate::api_error;
use crate::connect::Session;

/// Reads the objects that determine the guest's state.
pub async fn look(session: &Session, name: &str) -> anyhow::Result<Outlook> {
    let vms: Api<VirtualMachine> = Api::namespaced(session.client.clone(), &session.namespace);
    let vmis: Api<VirtualMachineInstance> = Api::namespaced(session.client.clone(), &session.namespace);
    let failed = |error| api_error(error, &session.server);
    let vmi = vmis.get_opt(name).await.map_err(failed)?;
    if vmi.as_ref().is_some_and(|vmi| vmi.is_running() && !vmi.is_marked_for_deletion()) {
        return Ok(Outlook::Running);
    }
    let vm = vms.get_opt(name).await.map_err(failed)?;
    let pod = match &vmi {
        Some(vmi) => launcher(session, vmi).await,
        None => None,
    };
    Ok(outlook(name, Seen { vm: vm.as_ref(), vmi: vmi.as_ref(), pod: pod.as_ref() }))
}

/// The VMI's launcher Pod. It only improves the message, so it is optional for users who may not read Pods.
pub async fn launcher(session: &Session, vmi: &VirtualMachineInstance) -> Option<Pod> {
    let pods: Api<Pod> = Api::namespaced(session.client.clone(), &session.namespace);
    let uid = vmi.metadata.uid.as_deref()?;
    let selector = ListParams::default().labels(&format!("{}={uid}", api::labels::CREATED_BY));
    pods.list(&selector).await.ok()?.items.into_iter().next()
}
