//! Everything a decision may see.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use api::v1::KubeVirt;
use install::owner::Owner;
use install::{Manifest, Programs, Settings};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use crate::absence::NotReady;
use crate::certificates::Facts;

/// Identifies an object of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    pub group: String,
    pub kind: String,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    pub name: String,
}

impl Id {
    /// The name of an object that says its kind.
    pub fn of(object: &Value) -> Self {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let api_version = text("/apiVersion");
        let group = api_version.split_once('/').map(|(group, _)| group.to_owned()).unwrap_or_default();
        Self { group, kind: text("/kind"), namespace: text("/metadata/namespace"), name: text("/metadata/name") }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_str() {
            "" => write!(f, "{} {}", self.kind, self.name),
            namespace => write!(f, "{} {namespace}/{}", self.kind, self.name),
        }
    }
}

/// Objects by name.
pub type Objects = BTreeMap<Id, Value>;

/// What virt-operator knows about itself.
#[derive(Clone, Debug)]
pub struct Operator {
    /// The version of this build, such as `v0.1.0`.
    pub version: String,
    /// The settings to install, unless the KubeVirt object overrides them.
    pub base: Settings,
    /// The CPU architecture it runs on, as Kubernetes names it.
    pub architecture: String,
    pub programs: Programs,
    /// The objects that were applied together with virt-operator. They belong to the administrator.
    pub(crate) own: BTreeSet<Id>,
    /// The objects that it creates, independent of the KubeVirt object.
    pub(crate) managed: BTreeSet<Id>,
}

impl Operator {
    pub fn new(version: String, base: Settings, architecture: String, programs: Programs) -> Self {
        let ids = |manifests: Vec<Manifest>| manifests.iter().map(|manifest| Id::of(&manifest.object)).collect();
        let own: BTreeSet<Id> = ids(install::with_operator(&base, &programs));
        let managed: BTreeSet<Id> = ids(install::managed(&base, &programs));
        Self { version, base, architecture, programs, managed: &managed - &own, own }
    }

    /// Whether an earlier version created this cluster-scoped object, which this one does not have.
    pub(crate) fn is_former(&self, id: &Id, live: &Value) -> bool {
        let Settings { former, namespace, .. } = &self.base;
        let is_named =
            former.iter().any(|former| (former.group, former.kind, former.name) == (&*id.group, &*id.kind, &*id.name));
        is_named && id.namespace.is_empty() && Owner::of(live).is_in(namespace)
    }
}

/// What a pass sees.
#[derive(Clone, Debug)]
pub struct World<'a> {
    pub now: Timestamp,
    pub operator: &'a Operator,
    /// Every KubeVirt object of the cluster.
    pub kubevirts: Vec<KubeVirt>,
    /// Every object with the label of virt-operator, whoever created it; and the CA bundle.
    pub live: Objects,
    /// virt-handler's Pods.
    pub handlers: Vec<Pod>,
    /// The NotReady ones among the nodes of [`doubtful_nodes`](crate::doubtful_nodes).
    pub not_ready: NotReady,
    pub certificates: Facts,
    /// Nodes that can run VMs.
    pub nodes: u32,
    /// Nodes with Ferrovirt's labels.
    pub labelled_nodes: Vec<String>,
    /// Kinds of workloads that exist, such as VirtualMachine. Known only during removal.
    pub workloads: Vec<String>,
}
