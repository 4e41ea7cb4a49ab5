//! `ferrovirt render`: what manifests would become.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Ran, up_to_date, workspace};

fn render(words: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferrovirt"));
    Ran::of(command.arg("render").args(words).env("FERROVIRT_LOG", "off").output().unwrap())
}

fn example(name: &str) -> String {
    workspace().join("examples").join(name).display().to_string()
}

/// The shapes of Pods that the renderer is tested with; each holds all that its Pod depends on.
fn shape(name: &str) -> String {
    workspace().join("crates/decide/render/tests/launcher/shapes").join(name).display().to_string()
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/program/dictionary/golden").join(name)
}

#[test]
fn machines_and_instances_become_pods() {
    for (file, name) in [("vm.yaml", "pod-of-vm.yaml"), ("vmi-containerdisk.yaml", "pod-of-vmi.yaml")] {
        let ran = render(&["pod", "-f", &example(file)]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        up_to_date(&golden(name), &ran.out);
    }
}

#[test]
fn an_object_beside_the_instance_or_in_the_context_is_found() {
    let whole = shape("launcher/claim-block.yaml");
    let beside = render(&["pod", "--ignore-unsupported", "-f", &whole]);
    assert_eq!(beside.code, 0, "{}", beside.err);
    assert!(beside.out.contains("devicePath: /dev/root"), "{}", beside.out);
    let text = std::fs::read_to_string(&whole).unwrap();
    let (instance, claims) = text.split_once("---\n").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (instance, claims) = (write("vmi.yaml", instance), write("claims.yaml", claims));
    let apart = render(&["pod", "--ignore-unsupported", "-f", &instance, "--context", &claims]);
    assert_eq!((apart.code, apart.out), (0, beside.out), "{}", apart.err);
    let without = render(&["pod", "--ignore-unsupported", "-f", &instance]);
    assert_eq!(without.code, 1);
    for part in ["vmi.yaml", "volume root", "PersistentVolumeClaim fedora", "--context"] {
        assert!(without.err.contains(part), "{part} is missing in:\n{}", without.err);
    }
}

#[test]
fn the_other_pods_of_a_guest_can_be_seen_too() {
    let rows = [
        ("first-consumer-pod", "first-consumer/claim.yaml", "kubevirt.io/ephemeral-provisioning: \"true\""),
        ("attachment-pod", "attachment/volumes.yaml", "name: hotplug-disk"),
        ("migration-pod", "migration-target/local.yaml", "kubevirt.io/migrationJobName: move"),
    ];
    for (what, file, expected) in rows {
        let ran = render(&[what, "--ignore-unsupported", "-f", &shape(file)]);
        assert_eq!(ran.code, 0, "{what}: {}", ran.err);
        assert!(ran.out.contains(expected), "{what} lacks {expected}:\n{}", ran.out);
    }
}

#[test]
fn the_clusters_configuration_counts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubevirt.yaml");
    let kubevirt = "apiVersion: kubevirt.io/v1\nkind: KubeVirt\nmetadata: {name: kubevirt, namespace: kubevirt}\n\
                    spec: {configuration: {developerConfiguration: {nodeSelectors: {pool: vms}}}}\n";
    std::fs::write(&path, kubevirt).unwrap();
    let ran = render(&["pod", "-f", &example("vmi-containerdisk.yaml"), "--kubevirt-config", path.to_str().unwrap()]);
    assert!(ran.code == 0 && ran.out.contains("pool: vms"), "{}{}", ran.out, ran.err);
}

#[test]
fn what_is_refused_is_told_by_file_and_field() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("broken.yaml");
    std::fs::write(&path, "apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {name: x}\nspec: {}\n")
        .unwrap();
    let ran = render(&["pod", "-f", path.to_str().unwrap()]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("broken.yaml") && ran.err.contains("spec.domain"), "{}", ran.err);
    let ran = render(&["pod", "-f", &example("client-pod.yaml")]);
    assert!(ran.code == 1 && ran.err.contains("no VirtualMachine"), "{}", ran.err);
}

#[test]
fn help_tells_what_can_be_rendered() {
    let ran = render(&["--help"]);
    for what in ["pod", "first-consumer-pod", "attachment-pod", "migration-pod", "domain"] {
        assert!(ran.code == 0 && ran.out.contains(what), "{}", ran.out);
    }
}
