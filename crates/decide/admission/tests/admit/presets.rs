//! Presets.

use admission::{Judged, Operation, Refusal, Review, Wanted, World};
use serde_json::{Value, json};

use crate::{config, now, someone, validity, vmi};

fn preset(name: &str, selector: Value, domain: Value) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstancePreset",
        "metadata": { "name": name, "namespace": "ns" },
        "spec": { "selector": selector, "domain": domain },
    })
}

fn for_web(name: &str, domain: Value) -> Value {
    preset(name, json!({ "matchLabels": { "app": "web" } }), domain)
}

fn web(over: Value) -> Value {
    let mut object = vmi(json!({ "metadata": { "labels": { "app": "web" } } }));
    machinery::patch::merge(&mut object, &over);
    object
}

fn create(object: &Value, presets: impl IntoIterator<Item = Value>) -> Result<Judged, Refusal> {
    validity("virtualmachineinstances", &someone(), None, object, &config(), &World::of(presets))
}

fn created(object: &Value, presets: impl IntoIterator<Item = Value>) -> Value {
    let judged = create(object, presets).expect("it passes");
    assert_eq!(judged.causes, []);
    judged.object
}

fn applied(object: &Value) -> Vec<&str> {
    let annotations = object["metadata"]["annotations"].as_object().expect("there are annotations");
    let names = annotations.iter().filter(|(_, version)| *version == "kubevirt.io/v1").map(|(key, _)| key.as_str());
    names.filter_map(|key| key.strip_prefix("virtualmachinepreset.kubevirt.io/")).collect()
}

#[test]
fn a_new_instance_wants_the_presets_of_its_namespace() {
    let object = web(json!({}));
    let user = someone();
    let request = |operation| Review::of(operation, "v1", "virtualmachineinstances", &user, &object, now());
    let mut world = World::default();
    let presets = Wanted::all("kubevirt.io", "VirtualMachineInstancePreset", "ns");
    assert_eq!(admission::wanted(&request(Operation::Create), &world), std::slice::from_ref(&presets));
    assert_eq!(admission::wanted(&request(Operation::Update), &world), []);
    world.learn(presets, []);
    assert_eq!(admission::wanted(&request(Operation::Create), &world), []);
}

#[test]
fn a_preset_fills_what_an_instance_leaves_open() {
    let domain = json!({
        "resources": { "requests": { "cpu": "2", "memory": "64Mi" } },
        "cpu": { "cores": 2 },
        "firmware": { "serial": "s" },
        "clock": { "utc": {}, "timer": { "rtc": {} } },
        "features": { "smm": {} },
        "devices": { "watchdog": { "name": "w", "i6300esb": { "action": "poweroff" } } },
        "ioThreadsPolicy": "shared",
    });
    let object = created(&web(json!({})), [for_web("all", domain)]);
    let filled = &object["spec"]["domain"];
    assert_eq!(filled["resources"]["requests"], json!({ "cpu": "2", "memory": "64Mi" }));
    assert_eq!(filled["cpu"]["cores"], 2);
    assert_eq!(filled["firmware"]["serial"], "s");
    assert_eq!(filled["clock"], json!({ "utc": {}, "timer": { "rtc": { "present": true } } }));
    assert_eq!(filled["features"]["smm"], json!({ "enabled": true }));
    assert_eq!(filled["devices"]["watchdog"]["i6300esb"]["action"], "poweroff");
    assert_eq!(filled["ioThreadsPolicy"], "shared");
    assert_eq!(applied(&object), ["all"]);
}

#[test]
fn a_preset_overrides_nothing_and_is_recorded_if_anything_agrees() {
    let own = web(json!({ "spec": { "domain": { "cpu": { "cores": 4 }, "features": { "smm": {} } } } }));
    let object = created(&own, [for_web("cpu", json!({ "cpu": { "cores": 2 } }))]);
    assert_eq!(object["spec"]["domain"]["cpu"]["cores"], 4);
    assert_eq!(applied(&object), Vec::<&str>::new(), "nothing agrees");
    let object = created(&own, [for_web("some", json!({ "cpu": { "cores": 2 }, "ioThreadsPolicy": "auto" }))]);
    assert_eq!(object["spec"]["domain"]["cpu"]["cores"], 4);
    assert_eq!(object["spec"]["domain"]["ioThreadsPolicy"], "auto");
    assert_eq!(applied(&object), ["some"]);
    let object = created(&own, [for_web("same", json!({ "features": { "smm": {} } }))]);
    assert_eq!(applied(&object), ["same"], "what is the same agrees");
}

#[test]
fn requests_are_filled_as_a_whole_or_not_at_all() {
    let own = web(json!({ "spec": { "domain": { "resources": { "requests": { "memory": "128Mi" } } } } }));
    let object = created(&own, [for_web("p", json!({ "resources": { "requests": { "cpu": "2" } } }))]);
    assert_eq!(object["spec"]["domain"]["resources"]["requests"], json!({ "memory": "128Mi" }));
}

#[test]
fn presets_are_for_instances_with_their_labels() {
    let two = json!({ "cpu": { "cores": 2 } });
    let exists = |key: &str| json!({ "matchExpressions": [{ "key": key, "operator": "Exists" }] });
    let cores = |object: &Value, selector: Value| {
        created(object, [preset("p", selector, two.clone())])["spec"]["domain"]["cpu"]["cores"].clone()
    };
    assert_eq!(cores(&web(json!({})), exists("app")), 2);
    assert_eq!(cores(&web(json!({})), exists("tier")), 1);
    assert_eq!(cores(&vmi(json!({})), exists("app")), 1);
    let mut elsewhere = for_web("p", two.clone());
    elsewhere["metadata"]["namespace"] = "other".into();
    assert_eq!(created(&web(json!({})), [elsewhere])["spec"]["domain"]["cpu"]["cores"], 1);
    let exclude = json!({ "virtualmachineinstancepresets.admission.kubevirt.io/exclude": "true" });
    let excluded = web(json!({ "metadata": { "annotations": exclude } }));
    assert_eq!(cores(&excluded, exists("app")), 1);
}

#[test]
fn presets_that_disagree_make_the_instance_impossible() {
    let areas = [
        ("cpu", json!({ "cpu": { "cores": 2 } }), json!({ "cpu": { "cores": 3 } })),
        ("firmware", json!({ "firmware": { "serial": "a" } }), json!({ "firmware": { "serial": "b" } })),
        ("clock", json!({ "clock": { "utc": {} } }), json!({ "clock": { "timezone": "Europe/Berlin" } })),
        (
            "clock.timer",
            json!({ "clock": { "utc": {}, "timer": { "rtc": {} } } }),
            json!({ "clock": { "utc": {}, "timer": { "pit": {} } } }),
        ),
        ("features", json!({ "features": { "smm": {} } }), json!({ "features": { "apic": {} } })),
        (
            "devices.watchdog",
            json!({ "devices": { "watchdog": { "name": "a" } } }),
            json!({ "devices": { "watchdog": { "name": "b" } } }),
        ),
        ("ioThreadsPolicy", json!({ "ioThreadsPolicy": "auto" }), json!({ "ioThreadsPolicy": "shared" })),
        (
            "resources.requests[memory]",
            json!({ "resources": { "requests": { "memory": "1Gi" } } }),
            json!({ "resources": { "requests": { "memory": "2Gi", "cpu": "1" } } }),
        ),
    ];
    for (area, one, other) in areas {
        let Err(Refusal::Invalid(errors)) = create(&web(json!({})), [for_web("a", one.clone()), for_web("b", other)])
        else {
            panic!("{area}: presets that disagree are refused");
        };
        assert_eq!(errors.len(), 1);
        let said = &errors[0].message;
        assert!(said.contains(&format!("presets \"b\" and \"a\" conflict in {area}")), "{said}");
        assert!(
            create(&web(json!({})), [for_web("a", one.clone()), for_web("b", one)]).is_ok(),
            "{area}: the same twice"
        );
    }
    let different = [
        for_web("a", json!({ "resources": { "requests": { "memory": "1024Mi" } } })),
        for_web("b", json!({ "resources": { "requests": { "memory": "1Gi" } } })),
    ];
    assert!(create(&web(json!({})), different).is_ok(), "one amount, written in two ways");
}

#[test]
fn presets_are_deprecated() {
    let about = |judged: Judged| judged.warnings.iter().filter(|warning| warning.contains("Presets")).count();
    let applied = create(&web(json!({})), [for_web("p", json!({ "cpu": { "cores": 2 } }))]).expect("it passes");
    assert_eq!(about(applied), 1);
    assert_eq!(about(create(&web(json!({})), []).expect("it passes")), 0);
}
