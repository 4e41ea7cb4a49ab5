//! Names, labels and placement.

use serde_json::json;

use crate::{render, vmi};

fn label(pod: &k8s_openapi::api::core::v1::Pod, key: &str) -> String {
    pod.metadata.labels.as_ref().expect("labels")[key].clone()
}

#[test]
fn the_name_is_the_same_each_time_and_another_for_another_uid() {
    let name = |uid: &str| render(&vmi(json!({ "metadata": { "uid": uid } }))).metadata.name.expect("a name");
    assert_eq!(name("a"), name("a"));
    assert_ne!(name("a"), name("b"));
    assert!(name("a").starts_with("virt-launcher-testvm-"), "{}", name("a"));
}

#[test]
fn a_name_too_long_for_a_label_is_cut_and_hashed() {
    let long = "n".repeat(70);
    let pod = render(&vmi(json!({ "metadata": { "name": long } })));
    // First four bytes of the SHA-1 sum of 70 times the letter n.
    assert_eq!(label(&pod, "vmi.kubevirt.io/id"), format!("{}-2be92776", "n".repeat(54)));
    assert_eq!(label(&render(&vmi(json!({}))), "vmi.kubevirt.io/id"), "testvm");
}

#[test]
fn the_hostname_is_a_single_label() {
    let hostname = |over| render(&vmi(over)).spec.expect("a spec").hostname.expect("a host name");
    assert_eq!(hostname(json!({})), "testvm");
    assert_eq!(hostname(json!({ "metadata": { "name": "web.example.com" } })), "web");
    assert_eq!(hostname(json!({ "spec": { "hostname": "own" } })), "own");
    let long = format!("{}-tail", "n".repeat(62));
    assert_eq!(hostname(json!({ "metadata": { "name": long } })), "n".repeat(62));
}

#[test]
fn users_cannot_take_over_the_labels_that_identify_the_pod() {
    let labels = json!({ "kubevirt.io": "mine", "kubevirt.io/created-by": "me", "app": "web" });
    let pod = render(&vmi(json!({ "metadata": { "labels": labels } })));
    assert_eq!(label(&pod, "kubevirt.io"), "virt-launcher");
    assert_eq!(label(&pod, "kubevirt.io/created-by"), "3b8b1d5e-0a4c-4a57-9d0c-1f6d0a3c9b11");
    assert_eq!(label(&pod, "app"), "web");
}

#[test]
fn only_guests_that_see_the_hosts_cpu_avoid_obsolete_hosts() {
    let affinity = |model: &str| {
        let cpu = json!({ "spec": { "domain": { "cpu": { "model": model } } } });
        render(&vmi(cpu)).spec.expect("a spec").affinity
    };
    assert!(affinity("").is_some());
    assert!(affinity("host-model").is_some());
    assert_eq!(affinity("host-passthrough"), None);
}

#[test]
fn the_guest_the_launcher_and_the_pod_end_one_after_the_other() {
    let ends = |over| {
        let spec = render(&vmi(over)).spec.expect("a spec");
        let args = spec.containers[0].args.clone().expect("arguments");
        let flag = args.iter().position(|arg| arg == "--grace-period-seconds").expect("the flag is there");
        (args[flag + 1].clone(), spec.termination_grace_period_seconds)
    };
    assert_eq!(ends(json!({})), ("45".to_owned(), Some(60)));
    assert_eq!(ends(json!({ "spec": { "terminationGracePeriodSeconds": 0 } })), ("15".to_owned(), Some(30)));
}

#[test]
fn one_pull_secret_is_listed_once() {
    let disk = |name: &str| json!({ "name": name, "containerDisk": { "image": "i", "imagePullSecret": "key" } });
    let pod = render(&vmi(json!({ "spec": { "volumes": [disk("a"), disk("b")] } })));
    assert_eq!(pod.spec.expect("a spec").image_pull_secrets.expect("secrets").len(), 1);
}
