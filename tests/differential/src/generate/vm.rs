//! Virtual machines: a template, how it is to run, and what it takes from elsewhere.

use serde_json::{Value, json};

use super::grow::{Grower, VM, below};
use super::rng::Rng;
use super::vmi;
use crate::clusters::{INSTANCETYPES, PREFERENCES};

/// The spec of a virtual machine that KubeVirt should accept, at least in a cluster with all gates open.
pub(crate) fn spec(rng: &mut Rng) -> Value {
    let mut spec = json!({ "template": { "spec": vmi::spec(rng) } });
    if let Some(metadata) = super::labels(rng) {
        spec["template"]["metadata"] = metadata;
    }
    if rng.chance(20) {
        spec["running"] = json!(rng.chance(50));
    } else {
        spec["runStrategy"] =
            Grower { rng, density: 0, without: &[] }.grow(below(&VM, "spec.runStrategy"), "runStrategy");
    }
    if rng.chance(10) {
        spec["updateVolumesStrategy"] = json!(*rng.pick(&["Migration", "Replacement"]));
    }
    data_volumes(&mut spec, rng);
    if rng.chance(25) {
        instancetype(&mut spec, rng);
    }
    if rng.chance(25) {
        spec["preference"] = matcher(rng, PREFERENCES, "Preference");
    }
    if rng.chance(8) {
        inferred(&mut spec, rng);
    }
    spec
}

fn matcher(rng: &mut Rng, names: &[&str], kind: &str) -> Value {
    let mut matcher = json!({ "name": *rng.pick(names) });
    if rng.chance(50) {
        let scope = *rng.pick(&["", "Cluster"]);
        matcher["kind"] = json!(format!("VirtualMachine{scope}{kind}"));
        if rng.chance(20) {
            matcher["kind"] = json!(format!("virtualmachine{}{}s", scope.to_lowercase(), kind.to_lowercase()));
        }
    }
    matcher
}

/// An instance type, and a template that leaves to it what is its to say.
fn instancetype(spec: &mut Value, rng: &mut Rng) {
    spec["instancetype"] = matcher(rng, INSTANCETYPES, "Instancetype");
    if rng.chance(80)
        && let Some(domain) = spec.pointer_mut("/template/spec/domain").and_then(Value::as_object_mut)
    {
        for field in ["cpu", "memory", "resources", "ioThreads", "ioThreadsPolicy", "launchSecurity"] {
            domain.remove(field);
        }
    }
}

/// Matchers that are to be read off a volume's labels.
fn inferred(spec: &mut Value, rng: &mut Rng) {
    let field = *rng.pick(&["instancetype", "preference"]);
    let volumes = spec["template"]["spec"]["volumes"].as_array().into_iter().flatten();
    let labelled =
        |volume: &&Value| ["dataVolume", "persistentVolumeClaim"].iter().any(|source| volume.get(*source).is_some());
    let mut names: Vec<Value> = volumes.filter(labelled).map(|volume| volume["name"].clone()).collect();
    names.extend(names.clone());
    names.extend([json!("vol-0"), json!("nowhere")]);
    spec[field] = json!({ "inferFromVolume": rng.pick(&names) });
    if rng.chance(50) {
        spec[field]["inferFromVolumeFailurePolicy"] = json!(*rng.pick(&["Reject", "Ignore"]));
    }
}

/// A template for some of the volumes that want a DataVolume or a claim.
fn data_volumes(spec: &mut Value, rng: &mut Rng) {
    let volumes = spec["template"]["spec"]["volumes"].as_array().into_iter().flatten();
    let names: Vec<Value> = volumes
        .filter_map(|volume| volume.pointer("/dataVolume/name").or(volume.pointer("/persistentVolumeClaim/claimName")))
        .cloned()
        .collect();
    let mut templates = Vec::new();
    for name in names {
        if rng.chance(60) && templates.iter().all(|template: &Value| template["metadata"]["name"] != name) {
            templates.push(data_volume(name, rng));
        }
    }
    if !templates.is_empty() {
        spec["dataVolumeTemplates"] = Value::Array(templates);
    }
}

fn data_volume(name: Value, rng: &mut Rng) -> Value {
    const ELSEWHERE: &[&str] = &[
        "dataVolumeTemplates[].metadata",
        "dataVolumeTemplates[].status",
        "dataVolumeTemplates[].spec.source",
        "dataVolumeTemplates[].spec.sourceRef",
        "dataVolumeTemplates[].spec.pvc.dataSource",
        "dataVolumeTemplates[].spec.pvc.dataSourceRef",
        "dataVolumeTemplates[].spec.storage.dataSource",
        "dataVolumeTemplates[].spec.storage.dataSourceRef",
    ];
    let density = *rng.pick(&[5, 20]);
    let schema = below(&VM, "spec.dataVolumeTemplates[]");
    let mut template = Grower { rng, density, without: ELSEWHERE }.grow(schema, "dataVolumeTemplates[]");
    template["metadata"] = json!({ "name": name });
    match rng.below(4) {
        0 => {
            let source = *rng.pick(&["golden", "linked", "unlabelled", "missing"]);
            template["spec"]["sourceRef"] = json!({ "kind": "DataSource", "name": source });
            if rng.chance(30) {
                template["spec"]["sourceRef"]["namespace"] = json!(*rng.pick(&["default", "images"]));
            }
        }
        1 => {
            let storage = if template["spec"].get("pvc").is_some() { "pvc" } else { "storage" };
            template["spec"][storage]["dataSource"] = json!({ "kind": "PersistentVolumeClaim", "name": "claim-1" });
        }
        _ => {
            let path = "dataVolumeTemplates[].spec.source";
            let mut grower = Grower { rng, density, without: &[] };
            template["spec"]["source"] = grower.grow(below(&VM, &format!("spec.{path}")), path);
        }
    }
    template
}
