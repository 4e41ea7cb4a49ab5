//! What is installed already: another KubeVirt, which an installation would overwrite, or Ferrovirt, which it would update.

use api::v1::{ComponentConfig, KubeVirt, NodePlacement};
use serde_json::Value;

use crate::check::Finding;
use crate::names::environment;
use crate::owner::Owner;
use crate::settings::Settings;

/// What a cluster has of an installation.
#[derive(Clone, Debug, Default)]
pub struct Installed {
    /// Objects that every KubeVirt has, with their kinds: Deployments `virt-operator` of all namespaces, the CRD of the KubeVirt
    /// kind, and virt-operator's ClusterRoleBinding.
    pub objects: Vec<Value>,
    /// The KubeVirt object in the namespace to install in.
    pub kubevirt: Option<KubeVirt>,
}

/// Whether these settings can be installed here, and what they would change.
pub(crate) fn judge(installed: &Installed, settings: &Settings) -> Vec<Finding> {
    let owners: Vec<(&Value, Owner)> = installed.objects.iter().map(|object| (object, Owner::of(object))).collect();
    let others = owners.iter().filter(|(_, owner)| *owner == Owner::Other);
    let elsewhere = owners.iter().find_map(|(object, owner)| match owner {
        Owner::Installation(namespace) if *namespace != settings.namespace => Some((object, namespace)),
        _ => None,
    });
    let overwritten = |(object, _): &(&Value, Owner)| {
        Finding::wrong(format!(
            "{} is not Ferrovirt's, and would be overwritten: remove the other KubeVirt first, as its own documentation says, with \
             its VMs. If it is of an earlier version of Ferrovirt, or of ferrovirt crds, continue",
            shown(object)
        ))
    };
    let mut findings: Vec<Finding> = others.map(overwritten).collect();
    if let Some((object, namespace)) = elsewhere {
        findings.push(Finding::wrong(format!(
            "Ferrovirt is installed in namespace {namespace} ({}), and a cluster has one installation: pass --namespace \
             {namespace} to update it, or remove it with ferrovirt uninstall --namespace {namespace}",
            shown(object)
        )));
    }
    if findings.is_empty() && !owners.is_empty() {
        findings.push(Finding::fine(format!("Ferrovirt is installed in namespace {}", settings.namespace)));
        findings.extend(reverted(installed, settings));
    }
    findings
}

fn shown(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (kind, name) = (text("/kind"), text("/metadata/name"));
    match text("/metadata/namespace") {
        "" => format!("{kind} {name}"),
        namespace => format!("{kind} {namespace}/{name}"),
    }
}

/// Applying manifests with other flags changes the installation: nothing on the cluster adds those of the last time.
fn reverted(installed: &Installed, settings: &Settings) -> Option<Finding> {
    let given = flags(settings);
    let lost: Vec<String> = flags(&running(installed)?).into_iter().filter(|flag| !given.contains(flag)).collect();
    (!lost.is_empty()).then(|| {
        Finding::depends(format!(
            "these manifests would change settings of the installation: to keep them, pass {}",
            lost.join(" ")
        ))
    })
}

/// The settings of a running installation, as far as flags set them.
fn running(installed: &Installed) -> Option<Settings> {
    let KubeVirt { metadata, spec, .. } = installed.kubevirt.as_ref()?;
    let namespace = metadata.namespace.as_deref();
    let is_operator =
        |object: &&Value| object["kind"] == "Deployment" && object["metadata"]["namespace"].as_str() == namespace;
    let operator = installed.objects.iter().find(is_operator);
    let variables = operator.and_then(|one| one.pointer("/spec/template/spec/containers/0/env")?.as_array());
    let variable = |name: &str| {
        let found = variables.into_iter().flatten().find(|one| one["name"] == name)?;
        Some(found["value"].as_str()?.to_owned())
    };
    let default = Settings::default();
    Some(Settings {
        image_prefix: variable(environment::IMAGE_PREFIX).unwrap_or_else(|| default.image_prefix.clone()),
        image_pull_policy: spec.image_pull_policy.clone().unwrap_or_else(|| default.image_pull_policy.clone()),
        image_pull_secrets: spec.image_pull_secrets.clone(),
        replicas: spec.infra.as_ref().and_then(|infra| infra.replicas),
        infra: placement(spec.infra.as_ref()),
        workloads: placement(spec.workloads.as_ref()),
        kubelet_root: variable(environment::KUBELET_ROOT).unwrap_or_else(|| default.kubelet_root.clone()),
        ..default
    })
}

fn placement(component: Option<&ComponentConfig>) -> Option<NodePlacement> {
    component.and_then(|component| component.node_placement.clone())
}

/// The flags of `install` that make these settings, without the namespace and the image tag.
fn flags(settings: &Settings) -> Vec<String> {
    let default = Settings::default();
    let mut flags = Vec::new();
    let texts = [
        ("image-prefix", &settings.image_prefix, &default.image_prefix),
        ("image-pull-policy", &settings.image_pull_policy, &default.image_pull_policy),
        ("kubelet-root", &settings.kubelet_root, &default.kubelet_root),
    ];
    flags.extend(
        texts.iter().filter(|(_, value, default)| value != default).map(|(flag, value, _)| format!("--{flag}={value}")),
    );
    flags.extend(settings.image_pull_secrets.iter().map(|secret| format!("--image-pull-secret={}", secret.name)));
    flags.extend(settings.replicas.map(|replicas| format!("--replicas={replicas}")));
    for (flag, placement) in [("infra", &settings.infra), ("workloads", &settings.workloads)] {
        let selector = placement.iter().flat_map(|placement| &placement.node_selector);
        flags.extend(selector.map(|(key, value)| format!("--{flag}-node-selector={key}={value}")));
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Level::{Depends, Fine, Wrong};
    use crate::names;
    use serde_json::json;

    fn object(kind: &str, namespace: Option<&str>, installation: Option<&str>) -> Value {
        let labels = installation.map(|installation| json!({names::INSTALLATION_LABEL: installation}));
        json!({"kind": kind, "metadata": {"name": "virt-operator", "namespace": namespace, "labels": labels}})
    }

    #[test]
    fn another_kubevirt_and_another_namespace_are_refused() {
        let crd = "CustomResourceDefinition";
        let table = [
            (vec![], None),
            (
                vec![object("Deployment", Some("kubevirt"), Some("kubevirt")), object(crd, None, Some("kubevirt"))],
                Some((Fine, "is installed")),
            ),
            (
                vec![object("Deployment", Some("kubevirt"), None)],
                Some((Wrong, "Deployment kubevirt/virt-operator is not Ferrovirt's")),
            ),
            (vec![object(crd, None, None)], Some((Wrong, "CustomResourceDefinition virt-operator is not Ferrovirt's"))),
            (vec![object("ClusterRoleBinding", None, Some("vms"))], Some((Wrong, "pass --namespace vms to update it"))),
        ];
        for (objects, expected) in table {
            let found = judge(&Installed { objects: objects.clone(), kubevirt: None }, &Settings::default());
            let found = found.first().map(|found| (found.level, found.message.clone()));
            assert_eq!(found.as_ref().map(|(level, _)| *level), expected.map(|(level, _)| level), "{objects:?}");
            let (said, expected) = (found.unwrap_or((Fine, String::new())).1, expected.map_or("", |(_, said)| said));
            assert!(said.contains(expected), "{said}");
        }
    }

    #[test]
    fn an_update_without_the_flags_of_the_installation_is_told_which() {
        let own = Settings {
            image_prefix: "registry.example/vms".to_owned(),
            replicas: Some(3),
            infra: Some(NodePlacement {
                node_selector: [("a".to_owned(), "b".to_owned())].into(),
                ..NodePlacement::default()
            }),
            image_pull_secrets: vec![k8s_openapi::api::core::v1::LocalObjectReference { name: "pull".to_owned() }],
            kubelet_root: "/data/kubelet".to_owned(),
            ..Settings::default()
        };
        let mut operator = crate::workload::operator::objects(&own);
        operator.truncate(1);
        let kubevirt = serde_json::from_value(crate::cluster::kubevirt(&own)).unwrap();
        let installed = Installed { objects: operator, kubevirt: Some(kubevirt) };
        let told =
            |settings: &Settings| judge(&installed, settings).into_iter().nth(1).map(|one| (one.level, one.message));
        assert_eq!(told(&own), None);
        let (level, message) = told(&Settings { replicas: Some(3), ..Settings::default() }).unwrap();
        assert_eq!(level, Depends);
        let flags = "pass --image-prefix=registry.example/vms --kubelet-root=/data/kubelet --image-pull-secret=pull \
                     --infra-node-selector=a=b";
        assert!(message.ends_with(flags), "{message}");
    }
}
