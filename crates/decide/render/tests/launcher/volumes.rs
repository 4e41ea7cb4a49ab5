//! Volumes that cannot be had, and names that are not free.

use render::{Context, Error, launcher_pod};
use serde_json::{Value, json};

use crate::shapes::launcher;
use crate::vmi;

fn refusal(over: Value) -> Error {
    launcher_pod(&vmi(over), &Default::default(), &Context::default()).expect_err("no Pod")
}

#[test]
fn a_missing_claim_is_named() {
    let volumes = [
        json!({ "name": "root", "persistentVolumeClaim": { "claimName": "gone" } }),
        json!({ "name": "root", "dataVolume": { "name": "gone" } }),
        json!({ "name": "root", "ephemeral": { "persistentVolumeClaim": { "claimName": "gone" } } }),
    ];
    for volume in volumes {
        let error = refusal(json!({ "spec": { "volumes": [volume] } }));
        assert_eq!(error, Error::ClaimNotFound { volume: "root".to_owned(), name: "gone".to_owned() });
    }
}

#[test]
fn a_plugged_volume_waits_for_no_claim() {
    let volume = json!({ "name": "root", "persistentVolumeClaim": { "claimName": "gone", "hotpluggable": true } });
    let pod = launcher_pod(&vmi(json!({ "spec": { "volumes": [volume] } })), &Default::default(), &Context::default());
    assert!(pod.is_ok(), "{pod:?}");
}

#[test]
fn a_volume_cannot_take_the_place_of_one_of_the_pods_own() {
    let volume = json!({ "name": "private", "containerDisk": { "image": "i" } });
    let error = refusal(json!({ "spec": { "volumes": [volume] } }));
    assert_eq!(error, Error::VolumeName { name: "private".to_owned() });
}

#[test]
fn persistent_state_needs_its_claim() {
    let error = refusal(json!({ "spec": { "domain": { "devices": { "tpm": { "persistent": true } } } } }));
    assert_eq!(error, Error::NoBackendClaim);
}

#[test]
fn a_sidecars_missing_script_is_named() {
    let shape = launcher("sidecars");
    let mut context = shape.context();
    context.missing_config_maps.insert("script".to_owned());
    let error = launcher_pod(&shape.vmi(), &shape.config(), &context).expect_err("no Pod");
    assert_eq!(error, Error::ConfigMapNotFound { sidecar: 1, name: "script".to_owned() });
}

#[test]
fn sidecars_that_do_not_decode_are_told() {
    let annotations = json!({ "hooks.kubevirt.io/hookSidecars": "{" });
    let error = refusal(json!({ "metadata": { "annotations": annotations } }));
    assert!(matches!(error, Error::Sidecars(_)), "{error}");
}

#[test]
fn a_network_bound_by_an_unknown_plugin_is_told() {
    let interfaces = json!([{ "name": "default", "binding": { "name": "mine" } }]);
    let error = refusal(json!({ "spec": { "domain": { "devices": { "interfaces": interfaces } } } }));
    assert_eq!(error, Error::UnknownBinding { interface: "default".to_owned(), plugin: "mine".to_owned() });
}

#[test]
fn only_permitted_devices_are_lent_once_there_is_a_list() {
    let shape = launcher("gpu");
    let mut vmi = shape.vmi();
    vmi.spec.domain.devices.gpus[1].device_name = Some("nvidia.com/other".to_owned());
    let error = launcher_pod(&vmi, &shape.config(), &shape.context()).expect_err("no Pod");
    let field = "spec.domain.devices.gpus[1].deviceName".to_owned();
    assert_eq!(error, Error::NotPermitted { field, resource: "nvidia.com/other".to_owned() });
    assert!(launcher_pod(&vmi, &Default::default(), &shape.context()).is_ok(), "without a list nothing is checked");
}

#[test]
fn a_verbosity_that_is_no_number_is_told() {
    let error = refusal(json!({ "metadata": { "labels": { "logVerbosity": "loud" } } }));
    assert!(error.to_string().starts_with("metadata.labels.logVerbosity is \"loud\""), "{error}");
}
