//! Virtual machines and instances, made from the schemas and a seed.
//!
//! Half of them are meant to be valid; the others are made like those and broken in one to three places. All of them
//! satisfy the schema, which is judged elsewhere.
//!
//! ```text
//! schema + words ─► grow ─► vmi, vm: put together what must agree ─► valid object ─► spoil (words, combinations) ─► broken
//! ```

mod grow;
mod rng;
mod spoil;
mod vm;
mod vmi;
mod words;

use serde_json::{Value, json};

use crate::clusters::{self, Cluster};
pub use rng::Rng;

pub(crate) use grow::{VM, VMI};
pub(crate) use vmi::spec as vmi_spec;

/// One object, and the cluster it is to be written to.
#[derive(Clone)]
pub struct Case {
    /// The object.
    pub object: Value,
    /// What it takes the place of; nothing for a new one.
    pub old: Option<Value>,
    /// The cluster.
    pub cluster: &'static Cluster,
}

impl Case {
    /// The object's kind.
    pub fn kind(&self) -> &str {
        self.object["kind"].as_str().unwrap_or_default()
    }

    /// How large the object is, in no particular unit.
    pub fn size(&self) -> usize {
        self.object.to_string().len() + self.old.as_ref().map_or(0, |old| old.to_string().len())
    }
}

/// How often to try a break that keeps the schema.
const TRIES: usize = 20;

/// Case number `index` of a run.
pub fn case(seed: u64, index: u64) -> Case {
    let mut rng = Rng::new(seed, index);
    let cluster = clusters::pick(&mut rng);
    let mut object = whole(&mut rng);
    if rng.chance(50) {
        for _ in 0..1 + rng.below(3) {
            break_once(&mut object, &mut rng);
        }
    }
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    // An API server does this before it asks anybody.
    api::schema::apply_defaults(&kind, &mut object);
    Case { object, old: None, cluster }
}

/// An object that is meant to be valid.
fn whole(rng: &mut Rng) -> Value {
    let (kind, spec) =
        if rng.chance(40) { ("VirtualMachine", vm::spec(rng)) } else { ("VirtualMachineInstance", vmi::spec(rng)) };
    let mut metadata = labels(rng).unwrap_or_else(|| json!({}));
    metadata["name"] = json!("guest");
    metadata["namespace"] = json!("default");
    let object = json!({ "apiVersion": "kubevirt.io/v1", "kind": kind, "metadata": metadata, "spec": spec });
    // What is grown may hold a thing twice where the schema wants it once.
    if keeps_schema(kind, &object) { object } else { whole(rng) }
}

/// Changes one place, so that the schema still holds.
fn break_once(object: &mut Value, rng: &mut Rng) {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    for _ in 0..TRIES {
        let mut broken = object.clone();
        if rng.chance(3) {
            let metadata = broken.pointer_mut(if rng.chance(50) { "/metadata" } else { "/spec/template/metadata" });
            spoil_metadata(metadata, rng);
        } else {
            spoil::spoil(&mut broken["spec"], &kind, rng);
        }
        if broken != *object && keeps_schema(&kind, &broken) {
            *object = broken;
            return;
        }
    }
}

/// Whether the schema has nothing to say about an object.
pub fn keeps_schema(kind: &str, object: &Value) -> bool {
    api::schema::validate(kind, object, None).is_empty() && api::schema::unknown_fields(kind, object).is_empty()
}

/// Labels and annotations, if there are to be any.
fn labels(rng: &mut Rng) -> Option<Value> {
    const ANNOTATIONS: &[(&str, &str)] = &[
        ("kubevirt.io/pci-topology-version", "v2"),
        ("hooks.kubevirt.io/hookSidecars", "[{\"image\": \"hook:1\"}]"),
        ("kubevirt.io/ignitiondata", "{}"),
        ("virtualmachineinstancepresets.admission.kubevirt.io/exclude", "true"),
        ("example.org/note", "hello"),
    ];
    let mut metadata = json!({});
    if rng.chance(20) {
        metadata["labels"] = json!({ "app": *rng.pick(&["web", "web", "db", "db", "cache"]) });
    }
    if rng.chance(10) {
        let (name, value) = *rng.pick(ANNOTATIONS);
        metadata["annotations"] = json!({ name: value });
    }
    metadata.as_object().is_some_and(|fields| !fields.is_empty()).then_some(metadata)
}

fn spoil_metadata(metadata: Option<&mut Value>, rng: &mut Rng) {
    const RESERVED: &[&str] = &[
        "kubevirt.io/created-by",
        "kubevirt.io/migrationJobUID",
        "kubevirt.io/nodeName",
        "kubevirt.io/migrationTargetNodeName",
        "kubevirt.io/schedulable",
        "kubevirt.io/install-strategy",
    ];
    if let Some(metadata) = metadata {
        metadata["labels"] = json!({ *rng.pick(RESERVED): "x" });
    }
}
