//! What this build cannot honour, in one place.
//!
//! The types hold every field KubeVirt has; the launcher's converter, the node agent and the controllers act on some of
//! them. A field nobody acts on is refused with its path and a reason, instead of being stored as a promise that is
//! not kept. The tables list both sides, so a field that is in neither is refused as well: a new field of the schema
//! has to be thought about before it does anything.
//!
//! To support a field is to move its line from `No` to `Yes`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinery::field::{Cause, FieldError, FieldPath};
use serde_json::Value;

/// What the build does about a field.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Support {
    /// Honours it, with everything below it.
    Yes,
    /// Honours these values; what all others are.
    Only(&'static [&'static str], &'static str),
    /// Refuses it; what it is, up to and with the verb.
    No(&'static str),
}

use Support::{No, Only, Yes};

/// Fields of an instance's spec. `[]` stands for any item of a list. A field above a listed one is only a way to it.
const VMI_SPEC: &[(&str, Support)] = &[
    ("accessCredentials", No("handing credentials to the guest is")),
    ("affinity", Yes),
    ("architecture", Only(&["amd64"], "other architectures than amd64 are")),
    ("dnsConfig", Yes),
    ("dnsPolicy", Yes),
    ("domain.chassis", Yes),
    ("domain.clock", Yes),
    ("domain.cpu.cores", Yes),
    ("domain.cpu.dedicatedCpuPlacement", No("pinning virtual CPUs to CPUs of the node is")),
    ("domain.cpu.features", No("choosing CPU flags, for which nodes would have to be labelled, is")),
    ("domain.cpu.isolateEmulatorThread", No("a CPU of its own for the emulator's threads is")),
    ("domain.cpu.maxSockets", No("plugging CPUs into a running guest is")),
    (
        "domain.cpu.model",
        Only(&["host-model", "host-passthrough"], "CPU models by name, for which nodes would have to be labelled, are"),
    ),
    ("domain.cpu.numa", No("showing the node's NUMA topology to the guest is")),
    ("domain.cpu.realtime", No("real-time scheduling of virtual CPUs is")),
    ("domain.cpu.sockets", Yes),
    ("domain.cpu.threads", Yes),
    ("domain.devices.autoattachGraphicsDevice", Yes),
    ("domain.devices.autoattachInputDevice", No("a pointing device is")),
    ("domain.devices.autoattachMemBalloon", Yes),
    ("domain.devices.autoattachPodInterface", Yes),
    ("domain.devices.autoattachSerialConsole", Yes),
    ("domain.devices.autoattachVSOCK", No("a VSOCK device is")),
    ("domain.devices.blockMultiQueue", No("more than one queue per disk is")),
    ("domain.devices.clientPassthrough", No("redirecting USB devices of the client is")),
    ("domain.devices.disableHotplug", Yes),
    ("domain.devices.disks[].blockSize", No("choosing a disk's block size is")),
    ("domain.devices.disks[].bootOrder", Yes),
    ("domain.devices.disks[].cache", Yes),
    ("domain.devices.disks[].cdrom.bus", Only(&["sata", "scsi"], "other buses for a CD-ROM than sata and scsi are")),
    ("domain.devices.disks[].cdrom.readonly", Yes),
    ("domain.devices.disks[].cdrom.tray", Only(&["closed"], "an open tray is")),
    ("domain.devices.disks[].changedBlockTracking", No("tracking changed blocks is")),
    ("domain.devices.disks[].dedicatedIOThread", No("a thread of its own for a disk is")),
    (
        "domain.devices.disks[].disk.bus",
        Only(&["virtio", "sata", "scsi"], "other buses for a disk than virtio, sata and scsi are"),
    ),
    ("domain.devices.disks[].disk.pciAddress", No("choosing a disk's PCI address is")),
    ("domain.devices.disks[].disk.readonly", Yes),
    ("domain.devices.disks[].errorPolicy", Yes),
    ("domain.devices.disks[].io", Yes),
    ("domain.devices.disks[].lun", No("passing SCSI commands through to the disk is")),
    ("domain.devices.disks[].name", Yes),
    ("domain.devices.disks[].serial", Yes),
    ("domain.devices.disks[].shareable", No("sharing a disk between guests is")),
    ("domain.devices.disks[].tag", No("tagging devices for cloud-init is")),
    ("domain.devices.downwardMetrics", No("showing metrics of the node to the guest is")),
    ("domain.devices.filesystems", No("sharing file systems with the guest is")),
    ("domain.devices.gpus", No("GPUs are")),
    ("domain.devices.hostDevices", No("devices of the node are")),
    ("domain.devices.inputs", No("pointing devices are")),
    ("domain.devices.interfaces[].acpiIndex", Yes),
    ("domain.devices.interfaces[].binding", No("network binding plugins are")),
    ("domain.devices.interfaces[].bootOrder", Yes),
    ("domain.devices.interfaces[].bridge", No("the bridge binding (use masquerade instead) is")),
    ("domain.devices.interfaces[].dhcpOptions", Yes),
    ("domain.devices.interfaces[].macAddress", Yes),
    ("domain.devices.interfaces[].macvtap", No("the macvtap binding is")),
    ("domain.devices.interfaces[].masquerade", Yes),
    (
        "domain.devices.interfaces[].model",
        Only(&["virtio", "e1000", "e1000e", "ne2k_pci", "pcnet", "rtl8139"], "this model of network card is"),
    ),
    ("domain.devices.interfaces[].name", Yes),
    ("domain.devices.interfaces[].passt", No("the passt binding is")),
    ("domain.devices.interfaces[].passtBinding", No("the passt binding is")),
    ("domain.devices.interfaces[].pciAddress", No("choosing a network card's PCI address is")),
    ("domain.devices.interfaces[].portRanges", No("forwarding ranges of ports is")),
    ("domain.devices.interfaces[].ports", Yes),
    ("domain.devices.interfaces[].slirp", No("the slirp binding is")),
    ("domain.devices.interfaces[].sriov", No("SR-IOV is")),
    ("domain.devices.interfaces[].state", Yes),
    ("domain.devices.interfaces[].tag", No("tagging devices for cloud-init is")),
    ("domain.devices.logSerialConsole", No("a container that logs the serial console is")),
    ("domain.devices.networkInterfaceMultiqueue", No("more than one queue per network card is")),
    ("domain.devices.panicDevices[].model", Only(&["isa"], "other panic devices than isa are")),
    ("domain.devices.rng", Yes),
    ("domain.devices.sound", No("a sound card is")),
    ("domain.devices.tpm", No("a trusted platform module is")),
    ("domain.devices.useVirtioTransitional", Yes),
    ("domain.devices.video.type", Only(&["vga", "virtio", "bochs", "cirrus"], "this model of graphics card is")),
    ("domain.devices.watchdog", No("a watchdog is")),
    ("domain.features.acpi", Yes),
    ("domain.features.apic.enabled", Yes),
    ("domain.features.apic.endOfInterrupt", No("the paravirtual end of interrupt is")),
    ("domain.features.hyperv", No("showing Hyper-V to the guest is")),
    ("domain.features.hypervPassthrough", No("showing Hyper-V to the guest is")),
    ("domain.features.kvm", No("hiding KVM from the guest is")),
    ("domain.features.pvspinlock", No("choosing paravirtual spin locks is")),
    ("domain.features.smm", Yes),
    ("domain.firmware.acpi", No("extra ACPI tables are")),
    ("domain.firmware.bootloader.bios", Yes),
    ("domain.firmware.bootloader.efi", No("EFI firmware is")),
    ("domain.firmware.kernelBoot", Yes),
    ("domain.firmware.serial", Yes),
    ("domain.firmware.uuid", Yes),
    ("domain.ioThreads", No("a pool of threads for disks is")),
    ("domain.ioThreadsPolicy", No("a pool of threads for disks is")),
    ("domain.launchSecurity", No("confidential computing is")),
    ("domain.machine.type", Yes),
    ("domain.memory.guest", Yes),
    ("domain.memory.hugepages", No("backing the guest's memory with huge pages is")),
    ("domain.memory.maxGuest", No("plugging memory into a running guest is")),
    ("domain.memory.reservedOverhead", No("reserving memory on top of the computed overhead is")),
    ("domain.rebootPolicy", Yes),
    ("domain.resources", Yes),
    (
        "evictionStrategy",
        Only(&["None", "LiveMigrateIfPossible"], "moving guests off a node that is drained, by live migration, is"),
    ),
    ("hostname", Yes),
    ("livenessProbe", No("probing the guest's health is")),
    ("networks[].multus", No("a network other than the Pod's is")),
    ("networks[].name", Yes),
    ("networks[].pod", Yes),
    ("networks[].resourceClaim", No("a network other than the Pod's is")),
    ("nodeSelector", Yes),
    ("priorityClassName", Yes),
    ("readinessProbe", No("probing the guest's health is")),
    ("resourceClaims", No("dynamic resource allocation is")),
    ("schedulerName", Yes),
    ("serviceAccountName", Yes),
    ("startStrategy", Yes),
    ("subdomain", Yes),
    ("terminationGracePeriodSeconds", Yes),
    ("tolerations", Yes),
    ("topologySpreadConstraints", Yes),
    ("utilityVolumes", No("plugging volumes into a running guest is")),
    ("volumes[].cloudInitConfigDrive", No("the config drive layout of cloud-init is")),
    ("volumes[].cloudInitNoCloud.networkData", Yes),
    ("volumes[].cloudInitNoCloud.networkDataBase64", Yes),
    ("volumes[].cloudInitNoCloud.networkDataSecretRef", No("cloud-init data from a Secret is")),
    ("volumes[].cloudInitNoCloud.secretRef", No("cloud-init data from a Secret is")),
    ("volumes[].cloudInitNoCloud.userData", Yes),
    ("volumes[].cloudInitNoCloud.userDataBase64", Yes),
    ("volumes[].configMap", No("a ConfigMap as a disk is")),
    ("volumes[].containerDisk", Yes),
    ("volumes[].containerPath", No("sharing file systems with the guest is")),
    ("volumes[].dataVolume", No("a persistent disk is")),
    ("volumes[].downwardAPI", No("facts about the Pod as a disk are")),
    ("volumes[].downwardMetrics", No("showing metrics of the node to the guest is")),
    ("volumes[].emptyDisk", Yes),
    ("volumes[].ephemeral", No("a persistent disk is")),
    ("volumes[].hostDisk", No("a disk image on the node is")),
    ("volumes[].memoryDump", No("dumping the guest's memory is")),
    ("volumes[].name", Yes),
    ("volumes[].persistentVolumeClaim", No("a persistent disk is")),
    ("volumes[].secret", No("a Secret as a disk is")),
    ("volumes[].serviceAccount", No("a service account's token as a disk is")),
    ("volumes[].sysprep", No("answer files for the Windows set-up are")),
];

/// Fields of a virtual machine's spec; those of the template are judged as an instance's.
const VM_SPEC: &[(&str, Support)] = &[
    ("dataVolumeTemplates", No("a persistent disk is")),
    ("instancetype", No("an instance type is")),
    ("preference", No("a preference is")),
    (
        "runStrategy",
        Only(&["Always", "Halted", "Manual", "RerunOnFailure", "Once"], "receiving a guest from elsewhere is"),
    ),
    ("running", Yes),
    ("template", Yes),
    ("updateVolumesStrategy", No("replacing volumes of a running guest is")),
];

/// Annotations with which users ask for something the build does not do.
const ANNOTATIONS: &[(&str, &str)] = &[
    ("hooks.kubevirt.io/hookSidecars", "hook sidecars are"),
    ("kubevirt.io/create-migration-target", "receiving a guest from elsewhere is"),
    ("kubevirt.io/disablePCIHole64", "choosing the PCI layout is"),
    ("kubevirt.io/ignitiondata", "Ignition is"),
    ("kubevirt.io/keep-launcher-alive-after-failure", "keeping a failed launcher is"),
    ("kubevirt.io/libvirt-log-filters", "choosing libvirt's log filters is"),
    ("kubevirt.io/placePCIDevicesOnRootComplex", "choosing the PCI layout is"),
    ("sidecar.istio.io/inject", "a service mesh sidecar is"),
];

/// Annotation values that ask for nothing.
const OFF: [&str; 2] = ["", "false"];

type Table = BTreeMap<&'static str, Support>;

static VMI_TABLE: LazyLock<Table> = LazyLock::new(|| VMI_SPEC.iter().copied().collect());
static VM_TABLE: LazyLock<Table> = LazyLock::new(|| VM_SPEC.iter().copied().collect());

/// What an instance's spec at `field` asks for and does not get.
pub(crate) fn vmi_spec(field: &FieldPath, spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(&VMI_TABLE, "", field, spec, &mut errors);
    errors
}

/// What a virtual machine's spec at `field` asks for and does not get, its template aside.
pub(crate) fn vm_spec(field: &FieldPath, spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(&VM_TABLE, "", field, spec, &mut errors);
    errors
}

/// What the annotations of metadata at `field` ask for and do not get.
pub(crate) fn annotations(field: &FieldPath, metadata: &ObjectMeta) -> Vec<FieldError> {
    let present = metadata.annotations.iter().flatten().filter(|(_, value)| !OFF.contains(&value.as_str()));
    let refused = present.filter_map(|(key, _)| {
        let (_, what) = ANNOTATIONS.iter().find(|(refused, _)| key == refused)?;
        Some(refusal(field.child("annotations").key(key), what))
    });
    refused.collect()
}

/// Both kinds of errors, each field once: a value that no build would take is simply wrong.
pub(crate) fn with_rules(mut unsupported: Vec<FieldError>, rules: Vec<FieldError>) -> Vec<FieldError> {
    unsupported.retain(|refused| rules.iter().all(|broken| broken.field != refused.field));
    unsupported.extend(rules);
    unsupported
}

/// A refusal of something that is not a field of its own.
pub(crate) fn refusal(field: FieldPath, what: &str) -> FieldError {
    FieldError::new(Cause::Unsupported, field, format!("{what} not supported by this build"))
}

/// `pattern` is the path as the table spells it, `field` as the user reads it.
fn walk(table: &Table, pattern: &str, field: &FieldPath, value: &Value, errors: &mut Vec<FieldError>) {
    match table.get(pattern) {
        Some(Yes) => {}
        Some(No(what)) if is_set(value) => errors.push(refusal(field.clone(), what)),
        Some(Only(values, what)) if is_set(value) => {
            if !value.as_str().is_some_and(|value| values.contains(&value)) {
                errors.push(refusal(field.clone(), what));
            }
        }
        Some(_) => {}
        None if !leads_somewhere(table, pattern) => {
            if is_set(value) {
                errors.push(refusal(field.clone(), "this field is"));
            }
        }
        None => match value {
            Value::Object(fields) => fields.iter().for_each(|(name, value)| {
                let pattern = if pattern.is_empty() { name.clone() } else { format!("{pattern}.{name}") };
                walk(table, &pattern, &field.child(name), value, errors);
            }),
            Value::Array(items) => items.iter().enumerate().for_each(|(index, value)| {
                walk(table, &format!("{pattern}[]"), &field.index(index), value, errors);
            }),
            _ => {}
        },
    }
}

/// Whether some line of the table lies below.
fn leads_somewhere(table: &Table, pattern: &str) -> bool {
    let below = |line: &str| line.strip_prefix(pattern).is_some_and(|rest| rest.starts_with(['.', '[']));
    pattern.is_empty()
        || table.range(pattern..).take_while(|(line, _)| line.starts_with(pattern)).any(|(l, _)| below(l))
}

/// Whether a value asks for anything. An empty object does: `tpm: {}` is a TPM. One that says `enabled: false` does not.
fn is_set(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Bool(true) => true,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => fields.get("enabled") != Some(&Value::Bool(false)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    /// Every path of a schema that ends in a value, spelled as the tables do.
    fn leaves(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
        if let Some(fields) = schema["properties"].as_object() {
            for (name, schema) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                leaves(schema, &path, found);
            }
        } else if schema["items"].is_object() {
            leaves(&schema["items"], &format!("{path}[]"), found);
        } else {
            found.insert(path.to_owned());
        }
    }

    fn spec_leaves(kind: &str) -> BTreeSet<String> {
        let schema = api::schema::openapi(kind).expect("the kind is ours");
        let mut found = BTreeSet::new();
        leaves(&schema["properties"]["spec"], "", &mut found);
        assert!(found.len() > 5, "the schema of {kind} has fields");
        found
    }

    fn covers(line: &str, path: &str) -> bool {
        path.strip_prefix(line).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    }

    #[test]
    fn every_field_of_the_schema_is_either_honoured_or_refused() {
        for (kind, table) in [("VirtualMachineInstance", VMI_SPEC), ("VirtualMachine", VM_SPEC)] {
            let paths = spec_leaves(kind);
            let missing: Vec<_> =
                paths.iter().filter(|path| !table.iter().any(|(line, _)| covers(line, path))).collect();
            assert_eq!(missing, Vec::<&String>::new(), "{kind}: fields in no line of the table");
        }
    }

    #[test]
    fn every_line_of_the_tables_is_a_field_of_the_schema() {
        for (kind, table) in [("VirtualMachineInstance", VMI_SPEC), ("VirtualMachine", VM_SPEC)] {
            let paths = spec_leaves(kind);
            let stray: Vec<_> = table.iter().filter(|(line, _)| !paths.iter().any(|path| covers(line, path))).collect();
            assert_eq!(stray, Vec::<&(&str, Support)>::new(), "{kind}: lines for no field");
        }
    }

    #[test]
    fn no_line_is_hidden_below_another() {
        for table in [VMI_SPEC, VM_SPEC] {
            for (line, _) in table {
                let above: Vec<_> = table.iter().filter(|(other, _)| other != line && covers(other, line)).collect();
                assert_eq!(above, Vec::<&(&str, Support)>::new(), "{line}");
            }
        }
    }

    #[test]
    fn a_refusal_names_the_field_and_the_thing() {
        let spec = json!({ "domain": { "devices": { "gpus": [{ "name": "a" }] } } });
        let errors = vmi_spec(&FieldPath::new("spec"), &spec);
        let said: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(said, ["spec.domain.devices.gpus: GPUs are not supported by this build"]);
        assert_eq!(errors[0].cause, Cause::Unsupported);
    }

    #[test]
    fn items_of_lists_are_named_by_their_index() {
        let disks = json!([{ "name": "a" }, { "name": "b", "lun": {} }]);
        let errors =
            vmi_spec(&FieldPath::new("spec.template.spec"), &json!({ "domain": { "devices": { "disks": disks } } }));
        assert_eq!(errors[0].field.as_str(), "spec.template.spec.domain.devices.disks[1].lun");
    }

    #[test]
    fn what_is_turned_off_or_empty_asks_for_nothing() {
        let spec = json!({
            "accessCredentials": [],
            "evictionStrategy": null,
            "domain": {
                "cpu": { "dedicatedCpuPlacement": false, "maxSockets": 0, "model": "" },
                "devices": { "tpm": { "enabled": false }, "autoattachVSOCK": false, "gpus": null },
                "features": { "hyperv": { "enabled": false } },
            },
        });
        assert_eq!(vmi_spec(&FieldPath::new("spec"), &spec), []);
    }

    #[test]
    fn an_empty_object_asks_for_what_it_stands_for() {
        let spec = json!({ "domain": { "devices": { "tpm": {} } } });
        assert_eq!(vmi_spec(&FieldPath::new("spec"), &spec).len(), 1);
    }

    #[test]
    fn a_field_that_is_in_no_line_is_refused() {
        let spec = json!({ "domain": { "devices": { "teleporter": { "power": 9 } } } });
        let errors = vmi_spec(&FieldPath::new("spec"), &spec);
        assert_eq!(errors[0].to_string(), "spec.domain.devices.teleporter: this field is not supported by this build");
    }

    #[test]
    fn annotations_that_ask_for_nothing_pass() {
        let annotated = |value: &str| ObjectMeta {
            annotations: Some([("sidecar.istio.io/inject".to_owned(), value.to_owned())].into()),
            ..ObjectMeta::default()
        };
        let metadata = FieldPath::new("metadata");
        assert_eq!(annotations(&metadata, &annotated("false")), []);
        let errors = annotations(&metadata, &annotated("true"));
        assert_eq!(errors[0].field.as_str(), "metadata.annotations[sidecar.istio.io/inject]");
    }
}
