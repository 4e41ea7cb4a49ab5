//! Binding a Pod to a node: the only way `spec.nodeName` is set after creation.

use serde_json::{Value, json};

use super::{Registry, SubmitError, WriteContext, metadata, modified};
use crate::cache::{Key, ObjectName};
use crate::errors::{ApiError, required};
use crate::kinds::{KindId, at, text_at};
use crate::store::{Expect, Op};

impl Registry {
    /// Sets the node and the condition `PodScheduled`.
    pub(crate) async fn bind(
        &self,
        pods: KindId,
        name: &ObjectName,
        binding: &Value,
        cx: &mut WriteContext,
    ) -> Result<(), ApiError> {
        let definition = self.kinds.definition(pods);
        let node = text_at(binding, "target.name");
        if node.is_empty() {
            let error = required("target.name", "");
            return Err(ApiError::invalid(definition, &name.name, vec![error]));
        }
        let current = self.get(pods, name)?;
        let pod = current.value();
        check_bindable(&pod, binding).map_err(|text| ApiError::unbindable(definition, &name.name, text))?;
        if cx.dry_run {
            return Ok(());
        }
        let key = Key { kind: pods, name: name.clone() };
        let bound = bound(pod, node, &metadata::now());
        match self.submit(&key, Expect::Revision(current.revision), Op::Put(bound)).await {
            Ok(_) => Ok(()),
            Err(SubmitError::Conflict { .. }) => Err(modified(definition, &name.name)),
            Err(SubmitError::Other(err)) => Err(err),
        }
    }
}

fn check_bindable(pod: &Value, binding: &Value) -> Result<(), String> {
    let name = text_at(pod, "metadata.name");
    let uid = text_at(binding, "metadata.uid");
    if !uid.is_empty() && uid != text_at(pod, "metadata.uid") {
        return Err(format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            pod["metadata"]["uid"]
        ));
    }
    if !at(pod, "metadata.deletionTimestamp").is_null() {
        return Err(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    match text_at(pod, "spec.nodeName") {
        "" => Ok(()),
        node => Err(format!("pod {name} is already assigned to node {node:?}")),
    }
}

fn bound(mut pod: Value, node: &str, now: &str) -> Value {
    pod["spec"]["nodeName"] = json!(node);
    let scheduled = json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": now});
    let mut conditions = at(&pod, "status.conditions").as_array().cloned().unwrap_or_default();
    conditions.retain(|condition| text_at(condition, "type") != "PodScheduled");
    conditions.push(scheduled);
    pod["status"]["conditions"] = Value::Array(conditions);
    pod
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_bound_once() {
        let pod = json!({"metadata": {"name": "x", "uid": "1"}, "spec": {}, "status": {"conditions": [
            {"type": "PodScheduled", "status": "False"}, {"type": "Other", "status": "True"},
        ]}});
        assert_eq!(check_bindable(&pod, &json!({})), Ok(()));
        assert!(check_bindable(&pod, &json!({"metadata": {"uid": "2"}})).is_err());
        let pod = bound(pod, "n1", "now");
        assert_eq!(pod["spec"]["nodeName"], "n1");
        let conditions = pod["status"]["conditions"].as_array().unwrap();
        assert_eq!(conditions.len(), 2);
        assert_eq!(conditions[1]["status"], "True");
        assert!(check_bindable(&pod, &json!({})).unwrap_err().contains("already assigned"));
        let leaving = json!({"metadata": {"name": "x", "deletionTimestamp": "t"}});
        assert!(check_bindable(&leaving, &json!({})).unwrap_err().contains("being deleted"));
    }
}
