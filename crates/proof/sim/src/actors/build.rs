//! The initial objects of a history, and those the user creates.

use std::sync::OnceLock;

use api::cdi::StorageProfile;
use api::migrations::MigrationPolicy;
use api::v1::{KubeVirt, RunStrategy, TPMDevice, VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceSpec};
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolumeClaim, ResourceQuota};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::script::{Disk, NAMESPACE, Script, node_name, vm_name, vm_namespace};
use crate::server::{Server, Writer};

/// Keeps a claim that Pods use.
pub(crate) const PROTECTION: &str = "kubernetes.io/pvc-protection";
/// The class whose claims are bound at once.
pub(crate) const IMMEDIATE: &str = "immediate";
/// The class whose claims are bound when a Pod uses them.
pub(crate) const STANDARD: &str = "standard";

/// The last one never fails.
pub(crate) const NODES: u8 = 3;

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("a constant object")
}

fn instance_spec(volume: Value) -> Value {
    json!({
        "architecture": "amd64",
        "terminationGracePeriodSeconds": 30,
        "domain": {
            "machine": {"type": "q35"},
            "cpu": {"sockets": 1, "cores": 1, "threads": 1},
            "memory": {"guest": "128Mi"},
            "resources": {"requests": {"memory": "128Mi"}},
            "devices": {
                "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
                "interfaces": [{"name": "default", "masquerade": {}}]
            }
        },
        "networks": [{"name": "default", "pod": {}}],
        "volumes": [volume]
    })
}

fn templates() -> &'static [VirtualMachine; 3] {
    static TEMPLATES: OnceLock<[VirtualMachine; 3]> = OnceLock::new();
    TEMPLATES.get_or_init(|| {
        let vm = |volume: Value| -> VirtualMachine {
            read(json!({
                "metadata": {"namespace": NAMESPACE},
                "spec": {"template": {"metadata": {"labels": {"app": "guest"}}, "spec": instance_spec(volume)}}
            }))
        };
        [
            vm(json!({"name": "root", "containerDisk": {"image": "example.com/guest:1"}})),
            vm(json!({"name": "root", "dataVolume": {"name": "root"}})),
            vm(json!({"name": "root", "persistentVolumeClaim": {"claimName": "claim"}})),
        ]
    })
}

pub(crate) fn vm(number: u8, strategy: &RunStrategy, disk: Disk, keeps: bool) -> VirtualMachine {
    let name = vm_name(number);
    let mut vm = templates()[disk as usize].clone();
    vm.spec.run_strategy = Some(strategy.clone());
    let root = &mut vm.spec.template.spec.volumes[0];
    match disk {
        Disk::Image => {}
        Disk::Template => {
            let volume = format!("{name}-root");
            vm.spec.data_volume_templates = vec![read(json!({
                "metadata": {"name": volume},
                "spec": {
                    "source": {"http": {"url": "http://images.example.com/guest.img"}},
                    "pvc": {
                        "accessModes": ["ReadWriteOnce"],
                        "storageClassName": "standard",
                        "resources": {"requests": {"storage": "1Gi"}}
                    }
                }
            }))];
            *root = read(json!({"name": "root", "dataVolume": {"name": volume}}));
        }
        Disk::Claim => {
            let claim = format!("{name}-claim");
            *root = read(json!({"name": "root", "persistentVolumeClaim": {"claimName": claim}}));
        }
    }
    vm.metadata.name = Some(name);
    vm.metadata.namespace = Some(vm_namespace(number).to_owned());
    give_character(&mut vm, number);
    if keeps {
        keep_state(&mut vm.spec.template.spec);
    }
    vm
}

/// The guest has a persistent TPM.
fn keep_state(spec: &mut VirtualMachineInstanceSpec) {
    spec.domain.devices.tpm = Some(TPMDevice { enabled: None, persistent: Some(true) });
}

/// A VM that waits for a guest. Not every owner sets how it is to run afterwards.
pub(crate) fn receiver(number: u8) -> VirtualMachine {
    let mut vm = vm(number, &RunStrategy::WaitAsReceiver, Disk::Image, false);
    if !number.is_multiple_of(4) || number.is_multiple_of(8) {
        let notes = vm.metadata.annotations.get_or_insert_default();
        let strategy = ["Always", "Manual", "RerunOnFailure"][usize::from(number % 3)];
        notes.insert(api::annotations::RESTORE_RUN_STRATEGY.to_owned(), strategy.to_owned());
    }
    vm
}

pub(crate) fn namespace(name: &str) -> Namespace {
    read(json!({"metadata": {"name": name}}))
}

/// Guests differ: in memory, in how they may migrate, and in their eviction strategy.
fn give_character(vm: &mut VirtualMachine, number: u8) {
    let template = &mut vm.spec.template;
    let amount = Quantity(["128Mi", "512Mi", "1Gi", "2Gi"][usize::from(number % 4)].to_owned());
    let domain = &mut template.spec.domain;
    domain.memory.get_or_insert_default().guest = Some(amount.clone());
    domain.resources.get_or_insert_default().requests.insert("memory".to_owned(), amount);
    template.spec.eviction_strategy = match number % 4 {
        1 => Some("LiveMigrateIfPossible".to_owned()),
        3 => Some("External".to_owned()),
        _ => None,
    };
    if number % 2 == 1 {
        let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
        labels.insert("transfer".to_owned(), "post-copy".to_owned());
    }
}

/// A VMI without a VM.
pub(crate) fn vmi(number: u8, keeps: bool) -> VirtualMachineInstance {
    let template = &templates()[Disk::Image as usize];
    let mut vmi = VirtualMachineInstance { spec: template.spec.template.spec.clone(), ..Default::default() };
    vmi.metadata.name = Some(vm_name(number));
    vmi.metadata.namespace = Some(vm_namespace(number).to_owned());
    vmi.spec.eviction_strategy = (number % 2 == 1).then(|| "None".to_owned());
    if keeps {
        keep_state(&mut vmi.spec);
    }
    vmi
}

/// A claim that is already bound.
pub(crate) fn claim(name: &str) -> PersistentVolumeClaim {
    read(json!({
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "standard",
            "volumeMode": "Filesystem",
            "resources": {"requests": {"storage": "1Gi"}}
        },
        "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
    }))
}

/// A claim that is not bound yet: before a Pod uses it, or once one does.
pub(crate) fn unbound_claim(name: &str, class: &str) -> PersistentVolumeClaim {
    let mut claim = claim(name);
    claim.status = None;
    claim.metadata.finalizers = Some(vec![PROTECTION.to_owned()]);
    claim.spec.get_or_insert_default().storage_class_name = Some(class.to_owned());
    claim
}

pub(crate) fn node(number: u8, heartbeat: &str) -> Node {
    let name = node_name(number);
    read(json!({
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/arch": "amd64",
                "kubevirt.io/schedulable": "true",
                "machine-type.node.kubevirt.io/q35": "true",
                "cpu-vendor.node.kubevirt.io/Intel": "true"
            },
            "annotations": {"kubevirt.io/heartbeat": heartbeat}
        },
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}
    }))
}

/// A quota without room for target Pods.
pub(crate) fn quota() -> ResourceQuota {
    read(json!({"metadata": {"name": "targets", "namespace": NAMESPACE}, "spec": {"hard": {"pods": "1"}}}))
}

/// A budget for a VMI, as created by earlier versions.
pub(crate) fn budget(vmi: &VirtualMachineInstance) -> PodDisruptionBudget {
    let name = format!("kubevirt-disruption-budget-{}", vmi.metadata.name.as_deref().unwrap_or_default());
    let mut budget: PodDisruptionBudget =
        read(json!({"metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"minAvailable": 1}}));
    budget.metadata.owner_references = machinery::meta::controller_ref(vmi).map(|owner| vec![owner]);
    budget
}

/// The more specific a policy is, the better it fits. The invariant in `policies.rs` knows these.
fn policies() -> [MigrationPolicy; 2] {
    let policy = |name: &str, labels: Value, post_copy: bool| {
        read(json!({
            "metadata": {"name": name},
            "spec": {"selectors": {"virtualMachineInstanceSelector": labels}, "allowPostCopy": post_copy}
        }))
    };
    [
        policy("guests", json!({"app": "guest"}), false),
        policy("post-copy", json!({"app": "guest", "transfer": "post-copy"}), true),
    ]
}

/// The initial cluster.
pub(crate) fn furniture(server: &mut Server, script: &Script) {
    let seed = script.seed;
    let heartbeat = server.time().0.to_string();
    let put = "an empty cluster takes everything";
    server.create(Writer::User, namespace(NAMESPACE)).expect(put);
    let class: StorageClass = read(json!({
        "metadata": {"name": STANDARD, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "example.com/disk",
        "volumeBindingMode": "WaitForFirstConsumer"
    }));
    server.create(Writer::User, class).expect(put);
    if script.storage {
        let class: StorageClass = read(json!({
            "metadata": {"name": IMMEDIATE}, "provisioner": "example.com/disk", "volumeBindingMode": "Immediate"
        }));
        server.create(Writer::User, class).expect(put);
    }
    // Sometimes both sides of a migration can share one claim.
    if !script.keeps.is_empty() && seed.is_multiple_of(5) {
        let profile: StorageProfile = read(json!({
            "metadata": {"name": "standard"},
            "status": {"claimPropertySets": [{"accessModes": ["ReadWriteMany"], "volumeMode": "Filesystem"}]}
        }));
        server.create(Writer::User, profile).expect(put);
    }
    let (cluster, outbound) = if seed.is_multiple_of(2) { (2, 1) } else { (3, 2) };
    let kubevirt: KubeVirt = read(json!({
        "metadata": {"name": "kubevirt", "namespace": "kubevirt"},
        "spec": {"configuration": {"evictionStrategy": "LiveMigrate",
            "migrations": {"parallelMigrationsPerCluster": cluster, "parallelOutboundMigrationsPerNode": outbound,
                "completionTimeoutPerGiB": 60},
            "developerConfiguration": {"featureGates": ["HotplugVolumes"]}}},
        "status": {"phase": "Deployed", "outdatedVirtualMachineInstanceWorkloads": 0}
    }));
    server.create(Writer::User, kubevirt).expect(put);
    for policy in policies() {
        server.create(Writer::User, policy).expect(put);
    }
    for number in 0..NODES {
        server.create(Writer::NodeAgent, node(number, &heartbeat)).expect(put);
    }
}
