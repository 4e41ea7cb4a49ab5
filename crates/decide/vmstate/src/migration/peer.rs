//! The other VMI of a migration between two.

use api::v1::{Between, VirtualMachineInstance};
use launcher_contract::migration::Destination;

/// UID of the sender's VMI, if the guest comes from another one.
pub fn sender_uid(vmi: &VirtualMachineInstance) -> Option<&str> {
    let state = vmi.status.as_ref()?.migration_state.as_ref()?;
    let source = state.source_state.as_ref().filter(|_| state.between() == Some(Between::Receives))?;
    source.virtual_machine_instance_uid.as_deref()
}

/// The target VMI, if the guest moves to another one.
pub fn destination(vmi: &VirtualMachineInstance) -> Option<Destination> {
    let state = vmi.status.as_ref()?.migration_state.as_ref()?;
    let target = state.target_state.as_ref().filter(|_| state.between() == Some(Between::Sends))?;
    Some(Destination {
        namespace: target.domain_namespace.clone()?,
        name: target.domain_name.clone()?,
        uid: target.virtual_machine_instance_uid.clone()?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_side_knows_the_other_and_a_move_within_one_instance_has_none() {
        let vmi = |source: Option<&str>, target: Option<&str>| -> VirtualMachineInstance {
            let state = json!({
                "sourceState": {"syncAddress": source, "virtualMachineInstanceUID": "u-1"},
                "targetState": {
                    "syncAddress": target, "virtualMachineInstanceUID": "u-2", "domainNamespace": "b", "domainName": "there",
                },
            });
            serde_json::from_value(json!({"spec": {"domain": {}}, "status": {"migrationState": state}})).unwrap()
        };
        let (sends, receives, alone) = (vmi(None, Some("a:1")), vmi(Some("a:1"), None), vmi(None, None));
        let there = Destination { namespace: "b".into(), name: "there".into(), uid: "u-2".into() };
        assert_eq!((destination(&sends), sender_uid(&sends)), (Some(there), None));
        assert_eq!((destination(&receives), sender_uid(&receives)), (None, Some("u-1")));
        assert_eq!((destination(&alone), sender_uid(&alone)), (None, None));
    }
}
