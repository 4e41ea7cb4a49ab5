//! The desired state: every object, from virt-operator's settings and the KubeVirt object.

use api::v1::{ComponentConfig, KubeVirt, KubeVirtConfiguration, NodePlacement};
use install::{Manifest, Settings, Step};
use serde_json::{Value, json};

use crate::customize::customize;
use crate::drift::{TEMPLATE_HASH, hash, stamped};
use crate::world::{Id, World};

/// Labels that name a product, from `spec.productVersion`, `productName` and `productComponent`.
const PRODUCT: [&str; 3] = ["app.kubernetes.io/version", "app.kubernetes.io/part-of", "app.kubernetes.io/component"];

/// A desired object with its hash.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Desired {
    pub(crate) step: Step,
    pub(crate) id: Id,
    pub(crate) object: Value,
}

/// What to install.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) settings: Settings,
    pub(crate) objects: Vec<Desired>,
}

impl Target {
    /// The error names the invalid field of the KubeVirt object.
    pub(crate) fn new(w: &World<'_>, kubevirt: &KubeVirt, bundle: Option<String>) -> Result<Self, String> {
        let settings = Settings { ca_bundle: bundle, ..settings(w, kubevirt) };
        let managed = install::managed(&settings, &w.operator.programs).into_iter();
        let ours = managed.filter(|manifest| !w.operator.own.contains(&Id::of(&manifest.object)));
        let objects = ours.map(|manifest| desired(manifest, kubevirt)).collect::<Result<_, _>>()?;
        Ok(Self { settings, objects })
    }

    /// The objects of a step.
    pub(crate) fn of(&self, step: Step) -> impl Iterator<Item = &Desired> {
        self.objects.iter().filter(move |desired| desired.step == step)
    }

    /// Identifier of the deployed version with its settings.
    pub(crate) fn identifier(&self) -> String {
        self.settings.identifier()
    }
}

/// The settings that a KubeVirt object asks for.
pub(crate) fn settings(w: &World<'_>, kubevirt: &KubeVirt) -> Settings {
    let (spec, base) = (&kubevirt.spec, w.operator.base.clone());
    let given = |value: &Option<String>| value.clone().filter(|value| !value.is_empty());
    Settings {
        image_prefix: given(&spec.image_registry).unwrap_or(base.image_prefix),
        image_tag: given(&spec.image_tag).unwrap_or(base.image_tag),
        image_pull_policy: given(&spec.image_pull_policy).unwrap_or(base.image_pull_policy),
        image_pull_secrets: spec.image_pull_secrets.clone(),
        replicas: spec.infra.as_ref().and_then(|infra| infra.replicas),
        // Before virt-handler has labelled nodes, nothing is known.
        nodes: Some(w.nodes).filter(|&nodes| nodes > 0),
        infra: placement(spec.infra.as_ref()),
        workloads: placement(spec.workloads.as_ref()),
        migration_network: spec.configuration.as_ref().and_then(migration_network),
        namespace: base.namespace,
        kubelet_root: base.kubelet_root,
        // This virt-operator signs them.
        node_certificates: true,
        ca_bundle: None,
        former: base.former,
    }
}

fn migration_network(configuration: &KubeVirtConfiguration) -> Option<String> {
    let migrations = configuration.migrations.as_ref()?;
    migrations.network.clone().filter(|network| !network.is_empty())
}

fn placement(component: Option<&ComponentConfig>) -> Option<NodePlacement> {
    component.and_then(|component| component.node_placement.clone())
}

fn desired(manifest: Manifest, kubevirt: &KubeVirt) -> Result<Desired, String> {
    let Manifest { step, mut object } = manifest;
    let spec = &kubevirt.spec;
    for (label, value) in PRODUCT.iter().zip([&spec.product_version, &spec.product_name, &spec.product_component]) {
        if let Some(value) = value.as_ref().filter(|value| !value.is_empty()) {
            object["metadata"]["labels"][label] = json!(value);
        }
    }
    if let Some(changes) = &spec.customize_components {
        customize(&mut object, changes)?;
    }
    if let Some(template) = object.pointer_mut("/spec/template") {
        template["metadata"]["annotations"][TEMPLATE_HASH] = json!(hash(template));
    }
    Ok(Desired { step, id: Id::of(&object), object: stamped(object) })
}
