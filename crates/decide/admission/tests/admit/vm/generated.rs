//! Properties of machines and instances that are made from their schemas.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use admission::{Judged, Operation, Refusal, Review, Shape, User, World};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{cluster_instancetype, cluster_preference};
use crate::{component, config, now};

/// Texts that mean something somewhere, so that not every object is refused for its first field.
const WORDS: &[&str] = &[
    "",
    "root",
    "data",
    "default",
    "a",
    "b",
    "virtio",
    "scsi",
    "sata",
    "amd64",
    "arm64",
    "s390x",
    "q35",
    "virt",
    "linux",
    "small",
    "Always",
    "Halted",
    "Manual",
    "None",
    "LiveMigrate",
    "Ignore",
    "none",
    "threads",
    "auto",
    "shared",
    "host-model",
    "02:00:00:00:00:07",
    "registry.example/guest:1",
    "/disk/d.img",
    "TCP",
    "e1000e",
    "require",
    "DataSource",
    "2Mi",
];
const QUANTITIES: &[&str] = &["1", "2", "1500m", "128Mi", "1Gi", "4Gi", "2G", "0"];
const NUMBERS: &[i64] = &[0, 1, 2, 3, 16, 512];

/// Fields without which hardly an object is valid.
const USUAL: [&str; 3] = ["template", "memory", "guest"];

/// Choices that follow from a seed.
struct Choices {
    state: u64,
    /// One in how many optional fields is there, near the top.
    sparse: usize,
}

impl Choices {
    fn new(seed: u64) -> Self {
        let mut choices = Choices { state: seed, sparse: 1 };
        choices.sparse = choices.of(&[4, 12, 40]);
        choices
    }

    fn below(&mut self, bound: usize) -> usize {
        // Steele, Lea and Flood's SplitMix.
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }

    fn of<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }
}

/// A value of a schema.
fn grow(schema: &Value, name: &str, depth: usize, choices: &mut Choices) -> Value {
    if let Some(allowed) = schema["enum"].as_array() {
        return allowed[choices.below(allowed.len())].clone();
    }
    match schema["type"].as_str() {
        Some("object") if name == "metadata" => metadata(choices),
        Some("object") => object(schema, depth, choices),
        Some("array") => {
            // Lists that are sets or maps have no two equal items; one item never has an equal.
            let most = if schema["x-kubernetes-list-type"].is_string() { 2 } else { 3 };
            let count = choices.below(most);
            (0..count).map(|_| grow(&schema["items"], "", depth + 1, choices)).collect()
        }
        Some("boolean") => json!(choices.below(2) == 0),
        Some("integer" | "number") => {
            let least = schema["minimum"].as_i64().unwrap_or(i64::MIN);
            json!(choices.of(NUMBERS).max(least))
        }
        Some(_) if schema["format"] == "date-time" => json!("2023-11-14T22:00:00Z"),
        Some(_) => json!(choices.of(WORDS)),
        None if choices.below(4) == 0 => json!(choices.of(NUMBERS)),
        None => json!(choices.of(QUANTITIES)),
    }
}

fn object(schema: &Value, depth: usize, choices: &mut Choices) -> Value {
    let mut object = Map::new();
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let needed = required.iter().any(|required| required == name) || USUAL.contains(&name.as_str());
        if needed || choices.below(choices.sparse + depth) == 0 {
            object.insert(name.clone(), grow(field, name, depth + 1, choices));
        }
    }
    if schema["additionalProperties"].is_object() {
        for key in ["cpu", "memory", "app"].into_iter().take(choices.below(4)) {
            object.insert(key.to_owned(), grow(&schema["additionalProperties"], "", depth + 1, choices));
        }
    }
    Value::Object(object)
}

fn metadata(choices: &mut Choices) -> Value {
    let mut metadata = json!({ "name": choices.of(&["guest", "dv", ""]), "namespace": "ns" });
    if choices.below(2) == 0 {
        metadata["labels"] = json!({ "app": choices.of(WORDS) });
        metadata["annotations"] = json!({ "note": choices.of(WORDS) });
    }
    metadata
}

const KINDS: [(&str, &str); 2] =
    [("VirtualMachine", "virtualmachines"), ("VirtualMachineInstance", "virtualmachineinstances")];

static SCHEMAS: LazyLock<BTreeMap<&str, Value>> = LazyLock::new(|| {
    KINDS.iter().map(|(kind, _)| (*kind, api::schema::openapi(kind).expect("the kind is ours"))).collect()
});

/// An object of a kind.
fn generated(kind: &str, seed: u64) -> Value {
    let mut object = grow(&SCHEMAS[kind], "", 0, &mut Choices::new(seed));
    object["apiVersion"] = json!("kubevirt.io/v1");
    object["kind"] = json!(kind);
    object
}

fn judged(resource: &str, user: &User, old: Option<&Value>, object: &Value) -> Result<Judged, Refusal> {
    let operation = if old.is_some() { Operation::Update } else { Operation::Create };
    let request = Review { old, ..Review::of(operation, "v1", resource, user, object, now()) };
    let world = World::of([
        cluster_instancetype("small", json!({})),
        cluster_preference(
            "linux",
            json!({ "preferredArchitecture": "arm64", "volumes": { "preferredStorageClassName": "fast" } }),
        ),
    ]);
    admission::judge(&request, Shape::Kubernetes, &config(), &world)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn defaulting_what_is_defaulted_changes_nothing(seed in any::<u64>()) {
        // As the controller, which may bring a status.
        let user = component("kubevirt-controller");
        for (kind, resource) in KINDS {
            if let Ok(once) = judged(resource, &user, None, &generated(kind, seed)) {
                let twice = judged(resource, &user, None, &once.object).map(|judged| judged.object);
                prop_assert_eq!(twice.as_ref(), Ok(&once.object));
                if once.causes.is_empty() {
                    let unchanged = judged(resource, &user, Some(&once.object), &once.object);
                    prop_assert_eq!(unchanged.map(|judged| (judged.object, judged.causes)), Ok((once.object, vec![])));
                }
            }
        }
    }
}

#[test]
fn some_generated_objects_are_read_and_some_of_these_are_valid() {
    for (kind, resource) in KINDS {
        let user = component("kubevirt-controller");
        let results: Vec<_> =
            (0..200).filter_map(|seed| judged(resource, &user, None, &generated(kind, seed)).ok()).collect();
        let valid = results.iter().filter(|judged| judged.causes.is_empty()).count();
        assert!(results.len() > 100, "only {} of 200 are read as {kind}", results.len());
        assert!(valid > 5, "only {valid} of 200 are a valid {kind}");
    }
}
