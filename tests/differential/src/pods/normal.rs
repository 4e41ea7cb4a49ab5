//! A Pod in a form in which what does not matter is the same: lists that are sets are maps, amounts are numbers, texts that are
//! JSON are read, and names that are drawn on one side and derived on the other are gone.

use machinery::quantity::Quantity;
use serde_json::{Map, Value, json};

use super::Case;
use super::clusters::LAUNCHER;

/// The annotation that tells how much memory a Pod has beside the guest's.
const OVERHEAD: &str = "kubevirt.io/memory-overhead-bytes";

/// How much memory a Pod has beside the guest's, by its own account.
pub(crate) fn overhead(pod: &Value) -> Option<i64> {
    pod["metadata"]["annotations"][OVERHEAD].as_str()?.parse().ok()
}

/// A Pod to compare.
pub(crate) fn pod(mut pod: Value) -> Value {
    let fields = |value: &mut Value, names: &[&str]| {
        for name in names {
            value.as_object_mut().map(|fields| fields.remove(*name));
        }
    };
    fields(&mut pod, &["apiVersion", "kind", "status"]);
    // KubeVirt's come without a namespace: the client gives them one.
    fields(&mut pod["metadata"], &["name", "generateName", "namespace"]);
    if let Some(annotations) = pod["metadata"]["annotations"].as_object_mut() {
        annotations.remove(OVERHEAD);
        annotations.values_mut().for_each(read);
    }
    for list in ["containers", "initContainers"] {
        let containers = pod["spec"][list].take();
        let mut order = Vec::new();
        let mut named = Map::new();
        for container in containers.as_array().into_iter().flatten() {
            order.push(container["name"].clone());
            named.insert(text(&container["name"]), self::container(container.clone()));
        }
        pod["spec"][list] = Value::Object(named);
        pod["spec"][format!("{list} in order")] = Value::Array(order);
    }
    by(&mut pod["spec"], "volumes", |volume| text(&volume["name"]));
    by(&mut pod["spec"], "imagePullSecrets", |secret| text(&secret["name"]));
    by(&mut pod["spec"], "resourceClaims", |claim| text(&claim["name"]));
    for volume in pod["spec"]["volumes"].as_object_mut().into_iter().flat_map(|volumes| volumes.values_mut()) {
        amount(volume.pointer_mut("/emptyDir/sizeLimit"));
        let items = volume.pointer_mut("/downwardAPI/items").and_then(Value::as_array_mut);
        for reference in items.into_iter().flatten().filter_map(|item| item.get_mut("resourceFieldRef")) {
            amount(reference.get_mut("divisor"));
            // Go's encoder cannot leave it out.
            if reference["divisor"] == 0 {
                fields(reference, &["divisor"]);
            }
        }
    }
    without_nothing(&mut pod);
    pod
}

fn container(mut container: Value) -> Value {
    let words: Vec<String> = ["command", "args"]
        .iter()
        .flat_map(|list| container[list].as_array().into_iter().flatten().map(text).collect::<Vec<_>>())
        .collect();
    for list in ["command", "args"] {
        container.as_object_mut().map(|fields| fields.remove(list));
    }
    container["command"] = match words.iter().any(|word| word == "--qemu-timeout") {
        true => flags(&words),
        false => json!(words),
    };
    if container["image"] == LAUNCHER {
        container["image"] = json!("(launcher)");
    }
    by(&mut container, "env", |variable| text(&variable["name"]));
    by(&mut container, "volumeDevices", |device| text(&device["devicePath"]));
    by(&mut container, "volumeMounts", |mount| text(&mount["mountPath"]));
    for list in ["requests", "limits"] {
        let amounts = container["resources"][list].as_object_mut();
        amounts.into_iter().flat_map(|amounts| amounts.values_mut()).for_each(|value| amount(Some(value)));
    }
    if let Some(capabilities) = container.pointer_mut("/securityContext/capabilities/add").and_then(Value::as_array_mut)
    {
        capabilities.sort_by_key(text);
    }
    container
}

/// The launcher's command line: the program, and what follows each flag. What is drawn is only there or not.
fn flags(words: &[String]) -> Value {
    let mut flags = Map::new();
    let mut words = words.iter().peekable();
    flags.insert("program".to_owned(), json!(words.next()));
    while let Some(flag) = words.next() {
        let value = words.next_if(|word| !word.starts_with("--"));
        let value = if flag == "--qemu-timeout" { json!("(drawn)") } else { json!(value.map_or("", String::as_str)) };
        flags.insert(flag.clone(), value);
    }
    Value::Object(flags)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Turns a list into a map by a key. What has the same key as another stands beside it under a longer one.
fn by(object: &mut Value, list: &str, key: impl Fn(&Value) -> String) {
    let Some(items) = object.get(list).and_then(Value::as_array) else { return };
    let mut map = Map::new();
    for item in items {
        let mut key = key(item);
        while map.contains_key(&key) {
            key.push_str(" again");
        }
        map.insert(key, item.clone());
    }
    object[list] = Value::Object(map);
}

/// An amount as a number of thousandths.
fn amount(value: Option<&mut Value>) {
    if let Some(value) = value
        && let Some(quantity) = value.as_str().and_then(|text| text.parse::<Quantity>().ok())
    {
        *value = json!(quantity.milli_value());
    }
}

/// A text that is a JSON list or object becomes one.
fn read(value: &mut Value) {
    if let Some(text) = value.as_str()
        && text.starts_with(['[', '{'])
        && let Ok(meaning) = serde_json::from_str(text)
    {
        *value = meaning;
    }
}

/// Leaves out empty lists and maps, of which Go's encoder writes some, and `readOnly: false`, which it does not write. An empty
/// directory without any wish is told by its field's name alone, so it stays.
fn without_nothing(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(without_nothing);
            fields.retain(|name, value| {
                name == "emptyDir" || !(is_empty(value) || (name == "readOnly" && *value == false))
            });
        }
        Value::Array(items) => items.iter_mut().for_each(without_nothing),
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// Puts our overhead into KubeVirt's Pod in place of its own: how much memory a launcher takes is ours to measure, where it is
/// added is not.
pub(crate) fn exchange_overhead(case: &Case, ours: i64, theirs: i64, pod: &mut Value) {
    let vmi = &case.vmi;
    let resources = &vmi["spec"]["domain"]["resources"];
    let hugepages = vmi.pointer("/spec/domain/memory/hugepages").is_some();
    let overcommitted = resources["overcommitGuestOverhead"] == true && !hugepages;
    let Some(amounts) = pod.pointer_mut("/spec/containers/compute/resources") else { return };
    let of = |list: &str| amounts[list]["memory"].as_i64();
    let (request, limit) = (of("requests"), of("limits"));
    let more = (ours - theirs) * 1000;
    let new_request = request.map(|request| if overcommitted { request } else { request + more });
    if let Some(request) = new_request {
        amounts["requests"]["memory"] = json!(request);
    }
    let (Some(limit), Some(new_request)) = (limit, new_request) else { return };
    // A limit that nobody asked for is a multiple of the request.
    let asked = resources["limits"].get("memory").is_some()
        || vmi.pointer("/spec/domain/cpu/dedicatedCpuPlacement") == Some(&json!(true));
    let new_limit = match asked {
        true => limit + more,
        false => ((new_request / 1000) as f64 * case.cluster.memory_ratio()) as i64 * 1000,
    };
    amounts["limits"]["memory"] = json!(new_limit);
}
