//! What `ferrovirt validate` prints, and how it ends.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::{Ran, validate};

const VMI: &str = "\
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: small}
spec:
  domain:
    memory: {guest: 128Mi}
    devices:
      disks: [{name: root, disk: {bus: virtio}}]
      interfaces: [{name: default, masquerade: {}}]
  networks: [{name: default, pod: {}}]
  volumes: [{name: root, containerDisk: {image: registry.example/guest}}]
";

/// The instance with something that only a later build does.
fn with_tpm() -> String {
    VMI.replace("    devices:\n", "    devices:\n      tpm: {}\n")
}

/// The instance with a mistake.
fn broken() -> String {
    VMI.replace("spec:\n", "spec:\n  hostname: \"-\"\n")
}

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Files(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn with(&self, name: &str, text: &str) -> String {
        std::fs::write(self.path(name), text).unwrap();
        self.path(name).to_str().unwrap().to_owned()
    }
}

fn validate_input(text: &str, words: &[&str]) -> Ran {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ferrovirt"))
        .args(["validate", "-f", "-"])
        .args(words)
        .env("FERROVIRT_LOG", "off")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    Ran::of(child.wait_with_output().unwrap())
}

#[test]
fn a_valid_object_comes_back_with_its_defaults() {
    let ran = validate_input(VMI, &[]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("architecture: amd64"), "{}", ran.out);
    assert!(!ran.out.contains("namespace:"), "{}", ran.out);
}

#[test]
fn what_comes_out_can_go_in_again_and_comes_out_the_same() {
    for output in ["yaml", "json"] {
        let once = validate_input(&format!("{VMI}---\n{VMI}"), &["--output", output]);
        let twice = validate_input(&once.out, &["--output", output]);
        assert_eq!((once.code, twice.code), (0, 0), "{}{}", once.err, twice.err);
        assert_eq!(once.out, twice.out);
    }
}

#[test]
fn a_refusal_names_every_field_on_a_line_of_its_own_and_ends_with_1() {
    let ran = validate_input(&broken(), &[]);
    assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{}", ran.err);
    let mut lines = ran.err.lines();
    assert_eq!(lines.next(), Some("standard input, document 1 (line 1): VirtualMachineInstance small is refused:"));
    assert!(lines.next().is_some_and(|line| line.starts_with("spec.hostname: ")), "{}", ran.err);
}

#[test]
fn what_is_valid_and_not_honoured_is_printed_and_ends_with_3() {
    let ran = validate_input(&with_tpm(), &[]);
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert!(ran.out.contains("tpm: {}"), "{}", ran.out);
    assert!(
        ran.err.contains("\nspec.domain.devices.tpm: a trusted platform module is not supported by this build\n"),
        "{}",
        ran.err
    );
    let ran = validate_input(&with_tpm(), &["--ignore-unsupported"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("warning: spec.domain.devices.tpm: "), "{}", ran.err);
}

#[test]
fn the_worst_document_decides_how_it_ends() {
    let text = format!("{VMI}---\n{}---\n{}---\n{VMI}", broken(), with_tpm());
    let ran = validate_input(&text, &["--ignore-unsupported"]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert_eq!(ran.out.matches("kind: VirtualMachineInstance").count(), 3, "{}", ran.out);
    assert!(ran.err.contains("document 2 (line 12)"), "{}", ran.err);
}

#[test]
fn unreadable_input_is_named_with_file_document_and_line_and_ends_with_2() {
    let files = Files::new();
    let file = files.with("broken.yaml", &format!("{VMI}---\nkind: [\n"));
    let ran = validate(&["-f", &file]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains(&format!("{file}, document 2, line 1")), "{}", ran.err);
    let twice = files.with("twice.json", "{\"apiVersion\": \"v1\",\n\"kind\": \"A\",\n\"kind\": \"B\"}");
    let ran = validate(&["-f", &twice]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains(&format!("{twice}, document 1, line 3")), "{}", ran.err);
    assert_eq!(validate(&["-f", files.path("missing.yaml").to_str().unwrap()]).code, 2);
}

#[test]
fn every_kind_in_every_served_version_is_judged() {
    for resource in api::resources::RESOURCES {
        for version in resource.versions {
            let (group, kind) = (resource.group, resource.kind);
            let text = format!(
                "apiVersion: {group}/{}\nkind: {kind}\nmetadata: {{name: a}}\nspec: {{nonsense: 1}}\n",
                version.name
            );
            let ran = validate_input(&text, &["--ignore-unsupported"]);
            assert_eq!(ran.code, 1, "{kind} {}: {}", version.name, ran.err);
            assert!(ran.err.contains("nonsense"), "{kind} {}: {}", version.name, ran.err);
        }
    }
}

#[test]
fn kinds_that_are_not_ours_are_passed_over_with_a_note() {
    let ran = validate_input("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n", &[]);
    assert_eq!((ran.code, ran.out.as_str()), (0, ""));
    assert!(ran.err.contains("Pod p is not one of Ferrovirt's kinds and was not checked"), "{}", ran.err);
}

#[test]
fn a_virtual_machine_is_judged_with_the_instance_type_that_comes_with_it() {
    let files = Files::new();
    let vm = "\
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: vm, namespace: default}
spec:
  instancetype: {kind: VirtualMachineInstancetype, name: small}
  runStrategy: Halted
  template:
    spec:
      domain:
        cpu: {cores: 2}
        devices:
          disks: [{name: root, disk: {bus: virtio}}]
          interfaces: [{name: default, masquerade: {}}]
      networks: [{name: default, pod: {}}]
      volumes: [{name: root, containerDisk: {image: registry.example/guest}}]
";
    let instancetype = "\
apiVersion: instancetype.kubevirt.io/v1beta1
kind: VirtualMachineInstancetype
metadata: {name: small}
spec: {cpu: {guest: 1}, memory: {guest: 128Mi}}
";
    let (vm, instancetype) = (files.with("vm.yaml", vm), files.with("type.yaml", instancetype));
    let alone = validate(&["-f", &vm, "--ignore-unsupported"]);
    assert_eq!(alone.code, 0, "an instance type that is not there yet is no error: {}", alone.err);
    let together = validate(&["-f", &vm, "-f", &instancetype, "--ignore-unsupported"]);
    assert_eq!(together.code, 1, "{}", together.err);
    assert!(together.err.contains("\nspec.template.spec.domain.cpu.cores: "), "{}", together.err);
}

#[test]
fn the_configuration_decides_what_an_instance_becomes() {
    let files = Files::new();
    let kubevirt = "\
apiVersion: kubevirt.io/v1
kind: KubeVirt
metadata: {name: kubevirt, namespace: kubevirt}
spec: {configuration: {cpuModel: host-passthrough, ksmConfiguration: {nodeLabelSelector: {matchLabels: {a: b}}}}}
";
    let config = files.with("kubevirt.yaml", kubevirt);
    let ran = validate_input(VMI, &["--kubevirt-config", &config]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("model: host-passthrough"), "{}", ran.out);
    let ran = validate(&["-f", &config]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("warning: spec.configuration.ksmConfiguration: "), "{}", ran.err);
}
