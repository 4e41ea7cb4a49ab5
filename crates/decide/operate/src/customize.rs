//! `spec.customizeComponents`: patches and flags of an administrator.

use std::collections::BTreeMap;

use api::v1::{CustomizeComponents, CustomizeComponentsPatch};
use install::names::app;
use machinery::{patch, strategic};
use serde_json::{Value, json};

/// Kinds that can be patched. RBAC objects and CRDs cannot, so that a patch does not weaken them by accident.
const KINDS: &[&str] = &[
    "Deployment",
    "DaemonSet",
    "Service",
    "ValidatingWebhookConfiguration",
    "MutatingWebhookConfiguration",
    "APIService",
];

/// Applies patches in their order, then flags. The error says which patch does not apply to which object.
pub(crate) fn customize(object: &mut Value, changes: &CustomizeComponents) -> Result<(), String> {
    let text = |field: &Value| field.as_str().unwrap_or_default().to_owned();
    let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
    if !KINDS.contains(&kind.as_str()) {
        return Ok(());
    }
    for (index, patch) in changes.patches.iter().enumerate() {
        if matches(&patch.resource_type, &kind) && matches(&patch.resource_name, &name) {
            apply(object, &kind, patch).map_err(|why| {
                format!("spec.customizeComponents.patches[{index}] does not apply to {kind} {name}: {why}")
            })?;
        }
    }
    if let Some(flags) = &changes.flags {
        match name.as_str() {
            app::API => set_flags(object, &flags.api),
            app::CONTROLLER => set_flags(object, &flags.controller),
            app::HANDLER => set_flags(object, &flags.handler),
            _ => {}
        }
    }
    Ok(())
}

fn matches(pattern: &str, text: &str) -> bool {
    pattern == "*" || pattern == text
}

fn apply(object: &mut Value, kind: &str, change: &CustomizeComponentsPatch) -> Result<(), String> {
    let identity =
        (object["kind"].clone(), object["metadata"]["name"].clone(), object["metadata"]["namespace"].clone());
    let read = |text: &str| serde_json::from_str::<Value>(text).map_err(|error| error.to_string());
    match change.type_.as_str() {
        "json" => {
            let operations = serde_json::from_str(&change.patch).map_err(|error| error.to_string())?;
            patch::apply(object, &operations).map_err(|error| error.to_string())?;
        }
        "merge" => patch::merge(object, &read(&change.patch)?),
        "strategic" => strategic::apply(kind, object, &read(&change.patch)?).map_err(|error| error.to_string())?,
        other => return Err(format!("type must be json, merge or strategic, not {other:?}")),
    }
    let now = (object["kind"].clone(), object["metadata"]["name"].clone(), object["metadata"]["namespace"].clone());
    if now == identity {
        Ok(())
    } else {
        Err("the patch must not change the object's kind, name or namespace".to_owned())
    }
}

/// Replaces flags of a program, or adds them.
fn set_flags(object: &mut Value, flags: &BTreeMap<String, String>) {
    let Some(args) = object.pointer_mut("/spec/template/spec/containers/0/args").and_then(Value::as_array_mut) else {
        return;
    };
    for (name, value) in flags {
        let (flag, assigned) = (format!("--{name}"), format!("--{name}="));
        args.retain(|arg| arg.as_str().is_none_or(|arg| arg != flag && !arg.starts_with(&assigned)));
        args.push(if value.is_empty() { json!(flag) } else { json!(format!("{assigned}{value}")) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment() -> Value {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "virt-api"},
            "spec": {"replicas": 2, "template": {"spec": {"containers": [
                {"name": "virt-api", "args": ["api", "--port=8443"]}]}}}})
    }

    fn patched(name: &str, type_: &str, patch: &str) -> Result<Value, String> {
        let patch = CustomizeComponentsPatch {
            patch: patch.to_owned(),
            resource_name: name.to_owned(),
            resource_type: "Deployment".to_owned(),
            type_: type_.to_owned(),
        };
        let mut object = deployment();
        customize(&mut object, &CustomizeComponents { patches: vec![patch], flags: None })?;
        Ok(object)
    }

    #[test]
    fn patches_of_each_type_change_the_objects_they_name() {
        let strategic = r#"{"spec":{"template":{"spec":{"containers":[{"name":"virt-api","image":"x"}]}}}}"#;
        let table = [
            ("virt-api", "merge", r#"{"spec":{"replicas":5}}"#, "/spec/replicas", json!(5)),
            ("*", "json", r#"[{"op":"replace","path":"/spec/replicas","value":4}]"#, "/spec/replicas", json!(4)),
            ("virt-api", "strategic", strategic, "/spec/template/spec/containers/0/args/0", json!("api")),
            ("virt-api", "strategic", strategic, "/spec/template/spec/containers/0/image", json!("x")),
            ("virt-controller", "merge", r#"{"spec":{"replicas":5}}"#, "/spec/replicas", json!(2)),
        ];
        for (name, type_, patch, pointer, expected) in table {
            assert_eq!(patched(name, type_, patch).unwrap().pointer(pointer), Some(&expected), "{name} {patch}");
        }
    }

    #[test]
    fn a_patch_that_does_not_apply_is_named() {
        let wrong = patched("virt-api", "json", r#"[{"op":"remove","path":"/spec/nothing"}]"#).unwrap_err();
        assert!(wrong.starts_with("spec.customizeComponents.patches[0] does not apply to Deployment virt-api: "));
        assert!(patched("virt-api", "yaml", "{}").unwrap_err().contains("must be json, merge or strategic"));
        assert!(
            patched("virt-api", "merge", r#"{"metadata":{"name":"x"}}"#)
                .unwrap_err()
                .contains("must not change the object's kind")
        );
    }

    #[test]
    fn flags_replace_ours_or_are_added() {
        let flags = api::v1::Flags {
            api: [("port", "9000"), ("v", "5"), ("quiet", "")].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            ..Default::default()
        };
        let mut object = deployment();
        customize(&mut object, &CustomizeComponents { patches: vec![], flags: Some(flags) }).unwrap();
        let args = &object["spec"]["template"]["spec"]["containers"][0]["args"];
        assert_eq!(*args, json!(["api", "--port=9000", "--quiet", "--v=5"]));
    }

    #[test]
    fn rights_are_not_patched() {
        let mut role = json!({"kind": "ClusterRole", "metadata": {"name": "kubevirt-handler"}, "rules": []});
        let any = CustomizeComponentsPatch {
            patch: r#"{"rules":[{"verbs":["*"]}]}"#.to_owned(),
            resource_name: "*".to_owned(),
            resource_type: "*".to_owned(),
            type_: "merge".to_owned(),
        };
        customize(&mut role, &CustomizeComponents { patches: vec![any], flags: None }).unwrap();
        assert_eq!(role["rules"], json!([]));
    }
}
