//! The removal of an installation from outside, by `ferrovirt uninstall`: with virt-operator while it works, and without it.

use std::time::Duration;

use api::finalizers;
use api::resources::RESOURCES;
use install::owner::Owner;
use install::{Programs, Settings, names};
use serde_json::{Value, json};

use crate::uninstall::ORDER;
use crate::world::Id;

/// Namespaces that are never deleted.
const KEPT: &[&str] = &["default", "kube-system", "kube-public", "kube-node-lease"];
/// ConfigMaps that Kubernetes and OpenShift create in every namespace.
const OF_EVERY_NAMESPACE: &[&str] = &["kube-root-ca.crt", "openshift-service-ca.crt"];
/// Annotation of Secrets that belong to a service account.
const OF_ACCOUNT: &str = "kubernetes.io/service-account.name";

/// Kinds whose objects keep a namespace, if they are not ours: group, kind and plural.
pub const KEEPING: &[(&str, &str, &str)] = &[
    ("", "Pod", "pods"),
    ("", "PersistentVolumeClaim", "persistentvolumeclaims"),
    ("", "Secret", "secrets"),
    ("", "ConfigMap", "configmaps"),
    ("apps", "Deployment", "deployments"),
    ("apps", "StatefulSet", "statefulsets"),
    ("apps", "DaemonSet", "daemonsets"),
];

/// All objects of an installation except the KubeVirt object, in the order of removal without virt-operator:
/// registrations first, because their servers may be down; the namespace last.
pub fn by_hand(settings: &Settings, programs: &Programs) -> Vec<Id> {
    let managed = install::managed(settings, programs);
    let operators = install::with_operator(settings, programs);
    let mut all: Vec<Id> = managed.iter().chain(&operators).map(|manifest| Id::of(&manifest.object)).collect();
    all.extend(certificates(&settings.namespace));
    all.extend(settings.former.iter().map(|former| Id {
        group: former.group.to_owned(),
        kind: former.kind.to_owned(),
        namespace: String::new(),
        name: former.name.to_owned(),
    }));
    all.retain(|id| id.kind != "KubeVirt");
    all.sort_by_key(|id| (place(&id.kind), id.clone()));
    all.dedup();
    all
}

/// What virt-operator creates beside the manifests.
fn certificates(namespace: &str) -> impl Iterator<Item = Id> {
    let secrets = names::CERTIFICATES.iter().map(|certificate| certificate.secret).chain([names::secret::CA]);
    let named = secrets.map(|name| ("Secret", name)).chain([("ConfigMap", names::config_map::CA)]);
    named.map(move |(kind, name)| Id {
        group: String::new(),
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

/// Where a kind stands in the order of [`by_hand`].
fn place(kind: &str) -> usize {
    const FIRST: &[&str] = &["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "APIService"];
    match kind {
        kind if FIRST.contains(&kind) => 0,
        "CustomResourceDefinition" => 1,
        "Namespace" => 4,
        kind => 2 + ORDER.iter().position(|kinds| kinds.contains(&kind)).unwrap_or(1),
    }
}

/// Whether this object tells whose the installation is: the others are only removed if they are ours.
pub fn tells_owner(id: &Id) -> bool {
    id.kind == "CustomResourceDefinition" || id.kind == "Deployment" && id.name == names::app::OPERATOR
}

/// Whether a Deployment has a Pod that answers.
pub fn answers(deployment: Option<&Value>) -> bool {
    deployment.is_some_and(|found| found["status"]["readyReplicas"].as_i64().unwrap_or(0) > 0)
}

/// How long virt-operator has been at the removal.
#[derive(Clone, Copy, Debug)]
pub struct Waited {
    /// For how long no virt-operator has been ready.
    pub without_operator: Duration,
    /// For how long it has waited for the same.
    pub without_progress: Duration,
    /// How long to wait for either.
    pub patience: Duration,
    /// Whether to continue without virt-operator although it is ready.
    pub force: bool,
    /// Whether the time is up.
    pub timed_out: bool,
}

/// What to do next while virt-operator removes the installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    Wait,
    /// Remove everything without virt-operator; why.
    TakeOver(&'static str),
    GiveUp,
}

impl Waited {
    /// A virt-operator that is ready may still wait for ever: for a virt-handler whose node is lost, or for a virt-controller
    /// that does not start. Only the administrator knows that such guests do not run, so that is not taken for granted.
    pub fn course(self) -> Course {
        match self {
            Self { without_operator, patience, .. } if without_operator > patience => {
                Course::TakeOver("virt-operator is not responding; continuing without it")
            }
            Self { force: true, without_progress, patience, .. } if without_progress > patience => {
                Course::TakeOver("virt-operator makes no progress; continuing without it")
            }
            Self { timed_out: true, .. } => Course::GiveUp,
            _ => Course::Wait,
        }
    }
}

/// The patch that removes finalizers from an object that is being deleted, once nobody is left who would; `None` if there is
/// nothing to remove. CRDs keep Kubernetes' own.
pub fn release(id: Option<&Id>, object: &Value) -> Option<Value> {
    let metadata = &object["metadata"];
    let finalizers: Vec<&str> = metadata["finalizers"].as_array()?.iter().filter_map(Value::as_str).collect();
    let is_definition = id.is_some_and(|id| id.kind == "CustomResourceDefinition");
    let rest: Vec<&str> =
        finalizers.iter().copied().filter(|one| is_definition && *one != finalizers::OPERATOR).collect();
    if metadata["deletionTimestamp"].is_null() || rest == finalizers {
        return None;
    }
    let mut patch = json!({"metadata": {"finalizers": rest}});
    if is_definition {
        patch["metadata"]["resourceVersion"] = metadata["resourceVersion"].clone();
    }
    Some(patch)
}

/// Why the installation's namespace is kept, given its metadata and the objects of [`KEEPING`] in it, each with its kind.
pub fn keeps_namespace(namespace: &Value, inside: &[(&str, Value)]) -> Option<String> {
    let name = namespace["metadata"]["name"].as_str().unwrap_or_default();
    if KEPT.contains(&name) {
        return Some("it is a Kubernetes namespace".to_owned());
    }
    if !Owner::of(namespace).is_in(name) {
        return Some("it is not from Ferrovirt's manifests".to_owned());
    }
    let foreign: Vec<String> = inside.iter().filter(|(kind, object)| is_foreign(kind, object)).map(shown).collect();
    let (first, others) = foreign.split_first()?;
    Some(match others.len() {
        0 => format!("{first} in it is not Ferrovirt's"),
        more => format!("{first} and {more} more in it are not Ferrovirt's"),
    })
}

fn shown((kind, object): &(&str, Value)) -> String {
    format!("{kind} {}", object["metadata"]["name"].as_str().unwrap_or_default())
}

/// Whether an object is neither ours, nor Kubernetes', nor going anyway.
fn is_foreign(kind: &str, object: &Value) -> bool {
    let metadata = &object["metadata"];
    let (name, labels) = (metadata["name"].as_str().unwrap_or_default(), &metadata["labels"]);
    let managed = labels[api::labels::MANAGED_BY] == names::app::OPERATOR;
    let launcher = kind == "Pod" && labels[api::labels::APP].is_string();
    let certificate = certificates("").any(|id| id.kind == kind && id.name == name);
    let of_kubernetes = match kind {
        "ConfigMap" => OF_EVERY_NAMESPACE.contains(&name),
        "Secret" => metadata["annotations"][OF_ACCOUNT].is_string(),
        _ => false,
    };
    let going = !metadata["deletionTimestamp"].is_null();
    !(managed || launcher || certificate || of_kubernetes || going || is_owned(metadata))
}

/// Whether it goes with an object of our kinds.
fn is_owned(metadata: &Value) -> bool {
    let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
    let mut groups = owners.filter_map(|owner| owner["apiVersion"].as_str()?.split_once('/')).map(|(group, _)| group);
    groups.any(|group| RESOURCES.iter().any(|resource| resource.group == group))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virt_operator_is_waited_for_until_it_is_gone_or_stuck() {
        let wait = |without_operator, without_progress, force, timed_out| {
            let [without_operator, without_progress] = [without_operator, without_progress].map(Duration::from_secs);
            Waited { without_operator, without_progress, patience: Duration::from_secs(30), force, timed_out }.course()
        };
        let (gone, stuck) = (
            Course::TakeOver("virt-operator is not responding; continuing without it"),
            Course::TakeOver("virt-operator makes no progress; continuing without it"),
        );
        let table = [
            // Seconds without virt-operator and without progress, --force, timed out.
            ((0, 0, false, false), Course::Wait),
            ((30, 30, true, false), Course::Wait),
            ((31, 31, false, false), gone),
            ((31, 31, true, false), gone),
            ((0, 31, false, false), Course::Wait),
            ((0, 31, true, false), stuck),
            ((0, 31, false, true), Course::GiveUp),
            ((0, 31, true, true), stuck),
            ((31, 31, false, true), gone),
        ];
        for ((operator, progress, force, timed_out), expected) in table {
            assert_eq!(
                wait(operator, progress, force, timed_out),
                expected,
                "{operator} {progress} {force} {timed_out}"
            );
        }
    }

    #[test]
    fn finalizers_go_only_from_what_is_being_deleted() {
        let of_crd = Id {
            group: "apiextensions.k8s.io".to_owned(),
            kind: "CustomResourceDefinition".to_owned(),
            namespace: String::new(),
            name: "virtualmachines.kubevirt.io".to_owned(),
        };
        let object = |deleted: bool, finalizers: &[&str]| {
            let deleted = deleted.then_some("2026-01-01T00:00:00Z");
            json!({"metadata": {"resourceVersion": "7", "deletionTimestamp": deleted, "finalizers": finalizers}})
        };
        let cleanup = "customresourcecleanup.apiextensions.k8s.io";
        let table = [
            (None, object(true, &["kubevirt.io/a", "b"]), Some(json!({"metadata": {"finalizers": []}}))),
            (None, object(false, &["kubevirt.io/a"]), None),
            (None, object(true, &[]), None),
            (
                Some(&of_crd),
                object(true, &[finalizers::OPERATOR, cleanup]),
                Some(json!({"metadata": {"finalizers": [cleanup], "resourceVersion": "7"}})),
            ),
            (Some(&of_crd), object(true, &[cleanup]), None),
            (Some(&of_crd), object(false, &[finalizers::OPERATOR]), None),
        ];
        for (id, object, expected) in table {
            assert_eq!(release(id, &object), expected, "{object}");
        }
    }

    #[test]
    fn a_namespace_with_objects_of_others_is_kept() {
        let marked = |name: &str| json!({"metadata": {"name": name, "labels": {names::INSTALLATION_LABEL: name}}});
        let object = |name: &str, more: Value| {
            let mut object = json!({"metadata": {"name": name}});
            json_patch::merge(&mut object["metadata"], &more);
            object
        };
        let ours = vec![
            ("Pod", object("virt-operator-x", json!({"labels": {"app.kubernetes.io/managed-by": "virt-operator"}}))),
            ("Pod", object("virt-launcher-x", json!({"labels": {"kubevirt.io": "virt-launcher"}}))),
            ("Pod", object("web", json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}))),
            ("Secret", object("kubevirt-ca", json!({}))),
            ("Secret", object("default-token", json!({"annotations": {OF_ACCOUNT: "default"}}))),
            ("ConfigMap", object("kubevirt-ca", json!({}))),
            ("ConfigMap", object("kube-root-ca.crt", json!({}))),
            ("PersistentVolumeClaim", object("state", json!({"ownerReferences": [{"apiVersion": "kubevirt.io/v1"}]}))),
        ];
        let with = |kind: &'static str, more: Value| [ours.clone(), vec![(kind, object("web", more))]].concat();
        let owned = json!({"ownerReferences": [{"apiVersion": "apps/v1"}]});
        let table = [
            (marked("vms"), vec![], None),
            (marked("vms"), ours.clone(), None),
            (marked("vms"), with("Pod", owned), Some("Pod web in it is not Ferrovirt's")),
            (marked("vms"), with("PersistentVolumeClaim", json!({})), Some("PersistentVolumeClaim web in it")),
            (marked("vms"), with("ConfigMap", json!({})), Some("ConfigMap web in it")),
            (marked("vms"), with("Deployment", json!({})), Some("Deployment web in it")),
            (
                marked("vms"),
                [with("Secret", json!({})), with("Pod", json!({}))].concat(),
                Some("Secret web and 1 more in it are not Ferrovirt's"),
            ),
            (marked("default"), vec![], Some("a Kubernetes namespace")),
            (json!({"metadata": {"name": "vms"}}), vec![], Some("not from Ferrovirt's manifests")),
        ];
        for (namespace, inside, expected) in table {
            let why = keeps_namespace(&namespace, &inside);
            let fits = why.as_deref().map(|why| expected.is_some_and(|expected| why.contains(expected)));
            assert_eq!(fits, expected.map(|_| true), "{namespace}: {why:?}");
        }
    }

    #[test]
    fn a_ready_replica_answers() {
        for (deployment, expected) in [
            (None, false),
            (Some(json!({})), false),
            (Some(json!({"status": {"readyReplicas": 0}})), false),
            (Some(json!({"status": {"readyReplicas": 1}})), true),
        ] {
            assert_eq!(answers(deployment.as_ref()), expected, "{deployment:?}");
        }
    }
}
