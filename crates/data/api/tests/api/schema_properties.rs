//! Properties of the schema functions over arbitrary JSON that has the right kind.

use std::sync::LazyLock;

use api::schema::{
    KINDS, apply_defaults, check, is_tidy, openapi, prune, respell_quantities, unknown_fields, validate, validations,
};
use proptest::prelude::*;
use proptest::test_runner::TestRng;
use serde_json::{Map, Value, json};

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z0-9./-]{0,6}".prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        prop_oneof![Just("1Gi"), Just("1e1.5"), Just("2024-01-01T00:00:00Z"), Just("25%")].prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,4}", inner, 0..3).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

/// A value of the schema's shape that is broken here and there, drawn from `rng`.
fn drawn(schema: &Value, depth: usize, noise: &[Value], rng: &mut TestRng) -> Value {
    let odd = |rng: &mut TestRng| noise[rng.random_range(0..noise.len())].clone();
    if rng.random_range(0..12) == 0 || depth > 12 {
        return odd(rng);
    }
    match schema["type"].as_str() {
        Some("boolean") => json!(rng.random_range(0..2) == 0),
        Some("integer") => json!(rng.random_range(-3..300_i64)),
        Some("array") => {
            let count = rng.random_range(0..3);
            (0..count).map(|_| drawn(&schema["items"], depth + 1, noise, rng)).collect()
        }
        Some("object") => {
            let mut object = Map::new();
            for (name, field) in schema["properties"].as_object().into_iter().flatten() {
                // A few fields of each object, and of small ones most.
                if rng.random_range(0..2 + depth) == 0 {
                    object.insert(name.clone(), drawn(field, depth + 1, noise, rng));
                }
            }
            if schema["additionalProperties"].is_object() || rng.random_range(0..20) == 0 {
                object.insert("a".to_owned(), drawn(&schema["additionalProperties"], depth + 1, noise, rng));
            }
            Value::Object(object)
        }
        _ => match rng.random_range(0..3) {
            0 => schema["enum"].get(0).cloned().unwrap_or_else(|| json!("/a")),
            1 => json!("1"),
            _ => odd(rng),
        },
    }
}

static SCHEMAS: LazyLock<Vec<(&'static str, Value)>> =
    LazyLock::new(|| KINDS.iter().map(|&kind| (kind, openapi(kind).expect("one of our kinds"))).collect());

/// A kind and an object that looks like one of it.
fn any_object() -> impl Strategy<Value = (&'static str, Value)> {
    (0..KINDS.len(), prop::collection::vec(any_json(), 1..8)).prop_perturb(|(index, noise), mut rng| {
        let (kind, schema) = &SCHEMAS[index];
        let mut object = drawn(schema, 0, &noise, &mut rng);
        if let Some(fields) = object.as_object_mut() {
            fields.insert("kind".to_owned(), json!(kind));
        }
        (*kind, object)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn nothing_panics_and_only_pruning_and_defaulting_change_anything((kind, object) in any_object(), (_, other) in any_object()) {
        let _ = (check(kind, &object), validations(kind, &object, None), validations(kind, &object, Some(&other)));
        let _ = (validate(kind, &object, None), validate(kind, &object, Some(&other)));
        prop_assert_eq!(prune("Pod", &mut object.clone()), []);
        prop_assert_eq!(check("Pod", &object), []);
    }

    #[test]
    fn pruning_twice_is_pruning_once((kind, mut object) in any_object()) {
        let unknown = unknown_fields(kind, &object);
        prop_assert_eq!(prune(kind, &mut object), unknown);
        prop_assert_eq!(prune(kind, &mut object), []);
    }

    #[test]
    fn defaulting_twice_is_defaulting_once((kind, mut object) in any_object()) {
        apply_defaults(kind, &mut object);
        let once = object.clone();
        apply_defaults(kind, &mut object);
        prop_assert_eq!(&object, &once);
        respell_quantities(kind, &mut object);
        let once = object.clone();
        respell_quantities(kind, &mut object);
        prop_assert_eq!(&object, &once);
    }

    #[test]
    fn defaults_are_known_and_valid((kind, mut object) in any_object()) {
        prune(kind, &mut object);
        let before = check(kind, &object);
        apply_defaults(kind, &mut object);
        prop_assert_eq!(unknown_fields(kind, &object), []);
        // Dropping a null may uncover that a field is required; nothing else can become wrong.
        for error in check(kind, &object) {
            prop_assert!(before.contains(&error) || error.message == "Required value", "{}", error);
        }
    }

    #[test]
    fn what_is_tidy_stays_and_what_was_tidied_is_tidy((kind, object) in any_object()) {
        let tidied = |object: &Value| {
            let mut object = object.clone();
            prune(kind, &mut object);
            apply_defaults(kind, &mut object);
            respell_quantities(kind, &mut object);
            object
        };
        let once = tidied(&object);
        if is_tidy(kind, &object) {
            prop_assert_eq!(&once, &object);
        }
        if check(kind, &once).is_empty() {
            prop_assert!(is_tidy(kind, &once), "{}", once);
        }
    }

    #[test]
    fn an_update_that_changes_nothing_is_never_refused((kind, object) in any_object()) {
        prop_assert_eq!(validate(kind, &object, Some(&object)), []);
    }

    #[test]
    fn quantities_keep_their_amount_when_respelled(text in "[-+]?[0-9]{1,7}([.][0-9]{0,3})?(m|k|M|G|Ki|Mi|Gi|e3)?") {
        let mut object = json!({ "spec": { "domain": { "devices": {}, "memory": { "guest": text } } } });
        respell_quantities("VirtualMachineInstance", &mut object);
        let written = object["spec"]["domain"]["memory"]["guest"].as_str().unwrap_or_default();
        let amount = |text: &str| text.parse::<machinery::quantity::Quantity>().unwrap();
        prop_assert_eq!(amount(written), amount(&text));
    }
}

#[test]
fn quantities_are_respelled_wherever_they_are() {
    let mut object = json!({ "spec": { "domain": {
        "devices": {},
        "memory": { "guest": 1024 },
        "cpu": { "cores": 2 },
        "resources": { "requests": { "memory": "1024Mi", "cpu": 2, "odd": "Gb" }, "limits": { "cpu": "0.5" } },
    } } });
    respell_quantities("VirtualMachineInstance", &mut object);
    let domain = &object["spec"]["domain"];
    assert_eq!(domain["memory"]["guest"], "1024");
    assert_eq!(domain["cpu"]["cores"], 2);
    assert_eq!(domain["resources"]["requests"], json!({ "memory": "1Gi", "cpu": "2", "odd": "Gb" }));
    assert_eq!(domain["resources"]["limits"], json!({ "cpu": "500m" }));
}

#[test]
fn an_instance_as_people_write_it_is_tidy() {
    let instance = |memory: Value| {
        json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": { "name": "guest", "labels": { "app": "web" } },
            "spec": {
                "terminationGracePeriodSeconds": 30,
                "domain": {
                    "memory": { "guest": memory },
                    "devices": {
                        "disks": [{ "name": "root", "bootOrder": 1, "disk": { "bus": "virtio" } }],
                        "interfaces": [{ "name": "default", "masquerade": {} }],
                    },
                },
                "networks": [{ "name": "default", "pod": {} }],
                "volumes": [{ "name": "root", "containerDisk": { "image": "i" } }],
            },
        })
    };
    assert!(is_tidy("VirtualMachineInstance", &instance(json!("256Mi"))));
    assert!(!is_tidy("VirtualMachineInstance", &instance(json!("1024Mi"))), "that is 1Gi");
    assert!(!is_tidy("VirtualMachineInstance", &instance(json!(1024))), "that is a text");
    assert!(!is_tidy("VirtualMachineInstance", &instance(Value::Null)));
}
