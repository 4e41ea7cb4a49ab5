//! Instances that have been let in, made from the schemas and a seed.

use admission::World;
use serde_json::{Value, json};

use super::clusters::{self, Cluster};
use super::{Case, Kind, ours};
use crate::generate::{self, Rng};

/// Case number `index` of a run.
pub fn case(seed: u64, index: u64) -> Case {
    let mut rng = Rng::new(seed, index);
    loop {
        let cluster = clusters::pick(&mut rng);
        if let Some(vmi) = admitted(&instance(&mut rng), cluster) {
            return complete(vmi, cluster, &mut rng);
        }
    }
}

/// An instance as its owner would write it.
fn instance(rng: &mut Rng) -> Value {
    let mut spec = generate::vmi_spec(rng);
    storage(&mut spec, rng);
    devices(&mut spec, rng);
    resources(&mut spec, rng);
    let name = match rng.below(20) {
        0 => "guest.of.example",
        1 => "a-guest-with-a-name-that-is-longer-than-any-label-of-a-host-may-be-dot",
        _ => "guest",
    };
    let mut metadata = json!({ "name": name, "namespace": "default", "uid": "5d307ca9-b3ef-428c-8861-06e72d69f223" });
    for (field, texts) in [("labels", LABELS), ("annotations", ANNOTATIONS)] {
        for _ in 0..rng.below(4) {
            let (name, text) = rng.pick(texts);
            metadata[field][*name] = json!(text);
        }
    }
    if rng.chance(1) {
        metadata["annotations"]["hooks.kubevirt.io/hookSidecars"] = json!(HOOK_WITHOUT_SCRIPT);
    }
    json!({ "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": metadata, "spec": spec })
}

const LABELS: &[(&str, &str)] = &[
    ("app", "web"),
    ("logVerbosity", "2"),
    ("logVerbosity", "9"),
    ("debugLogs", "true"),
    ("debugLogs", "no"),
    ("virtiofsdDebugLogs", "true"),
    ("vm.kubevirt.io/name", "another"),
    ("kubevirt.io/vm", "guest"),
];

const ANNOTATIONS: &[(&str, &str)] = &[
    ("example.org/note", "hello"),
    ("kubectl.kubernetes.io/last-applied-configuration", "{}"),
    ("kubevirt.io/latest-observed-api-version", "v1"),
    ("kubevirt.io/storage-observed-api-version", "v1"),
    ("kubevirt.io/libvirt-log-filters", "3:remote 4:event"),
    ("kubevirt.io/keep-launcher-alive-after-failure", ""),
    ("kubevirt.io/keep-launcher-alive-after-failure", "true"),
    ("kubevirt.io/func-test-virt-launcher-fail-fast", ""),
    ("kubevirt.io/skip-velero-hooks", "true"),
    ("kubevirt.io/nonroot", "true"),
    ("sidecar.istio.io/inject", "true"),
    ("sidecar.istio.io/inject", "false"),
    ("alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity", ""),
    ("kubevirt.io/image-volume-skip-digest-resolution", "true"),
    ("hooks.kubevirt.io/hookSidecars", r#"[{"image": "hook:1"}]"#),
    (
        "hooks.kubevirt.io/hookSidecars",
        r#"[{"args": ["--version", "v1alpha3"], "configMap": {"name": "hook", "key": "run.sh", "hookPath": "/usr/bin/onDefineDomain"}}]"#,
    ),
    (
        "hooks.kubevirt.io/hookSidecars",
        r#"[{"image": "hook:2", "imagePullPolicy": "Always", "command": ["run"], "pvc": {"name": "claim-2", "volumePath": "/debug", "sharedComputePath": "/shared"}}, {"image": "hook:3"}]"#,
    ),
];

/// A sidecar whose script is not there.
const HOOK_WITHOUT_SCRIPT: &str = r#"[{"configMap": {"name": "gone", "key": "x", "hookPath": "/x"}}]"#;

/// Volumes that are plugged, and disks that are locked.
fn storage(spec: &mut Value, rng: &mut Rng) {
    for volume in spec["volumes"].as_array_mut().into_iter().flatten() {
        for source in ["persistentVolumeClaim", "dataVolume"] {
            if volume.get(source).is_some() && rng.chance(45) {
                volume[source]["hotpluggable"] = json!(true);
            }
        }
        if volume.get("sysprep").is_some() {
            volume["sysprep"] = json!({ *rng.pick(&["configMap", "secret"]): { "name": "answers" } });
        }
        for source in ["cloudInitNoCloud", "cloudInitConfigDrive"] {
            for reference in ["secretRef", "networkDataSecretRef"] {
                if volume[source].get(reference).is_some() {
                    volume[source][reference] = json!({ "name": "cloud-init" });
                }
            }
        }
        // KubeVirt's own code fails without one.
        if volume.get("ephemeral").is_some() {
            volume["ephemeral"]["persistentVolumeClaim"] = json!({ "claimName": *rng.pick(&["claim-1", "claim-2"]) });
        }
    }
    if spec["volumes"].is_null() {
        spec.as_object_mut().map(|fields| fields.remove("volumes"));
    }
    if rng.chance(10) {
        let volume = json!({ "name": "vol-9", "dataVolume": { "name": "dv-3", "hotpluggable": true } });
        list(&mut spec["volumes"]).push(volume);
        list(&mut spec["domain"]["devices"]["disks"]).push(json!({ "name": "vol-9", "disk": { "bus": "scsi" } }));
    }
    let disks = spec.pointer_mut("/domain/devices/disks").and_then(Value::as_array_mut);
    for disk in disks.into_iter().flatten() {
        if disk.get("lun").is_some() && rng.chance(40) {
            disk["lun"] = json!({ "bus": "scsi", "reservation": true });
        }
    }
}

/// The items of a list, which is made if it is not there.
fn list(value: &mut Value) -> &mut Vec<Value> {
    if !value.is_array() {
        *value = json!([]);
    }
    value.as_array_mut().expect("it was made a list")
}

/// Devices that change the Pod, more of them than would grow by themselves.
fn devices(spec: &mut Value, rng: &mut Rng) {
    let devices = &mut spec["domain"]["devices"];
    if rng.chance(10) {
        devices["tpm"] = json!({ "persistent": rng.chance(70) });
    }
    if rng.chance(5) {
        devices["gpus"] = json!([{ "name": "gpu-0", "deviceName": "nvidia.com/T4" }]);
    }
    if rng.chance(5) {
        devices["hostDevices"] = json!([
            { "name": "device-0", "deviceName": "vendor.example/nic" }, { "name": "device-1", "deviceName": "vendor.example/nic" },
        ]);
    }
    if rng.chance(5) {
        devices["autoattachVSOCK"] = json!(true);
    }
    if devices.is_null() {
        spec["domain"]["devices"] = json!({});
    }
    if rng.chance(5) {
        spec["domain"]["firmware"]["kernelBoot"] = json!({
            "container": { "image": "kernel:1", "kernelPath": "/boot/vmlinuz", "imagePullSecret": "kernel-secret" },
        });
    }
    if rng.chance(8) {
        spec["domain"]["cpu"]["features"] = json!([
            { "name": "vmx", "policy": *rng.pick(&["require", "forbid", "optional", ""]) }, { "name": "pcid" },
        ]);
        spec["domain"]["cpu"]["model"] = json!(*rng.pick(&["Haswell", "host-model", "host-passthrough"]));
    }
    if rng.chance(5) {
        spec["domain"]["features"]["hyperv"] =
            json!({ "reenlightenment": {}, "evmcs": {}, "vpindex": {}, "synic": {}, "vapic": {} });
    }
}

/// Processors and amounts in the combinations that matter.
fn resources(spec: &mut Value, rng: &mut Rng) {
    if rng.chance(8) {
        let domain = &mut spec["domain"];
        domain["cpu"] = json!({ "dedicatedCpuPlacement": true, "isolateEmulatorThread": rng.chance(70), "cores": *rng.pick(&[1, 2, 3]) });
        domain["resources"] = json!({ "requests": { "memory": "1Gi" } });
        domain["memory"] = json!({ "guest": "1Gi" });
        if rng.chance(50) {
            domain["ioThreadsPolicy"] = json!("supplementalPool");
            domain["ioThreads"] = json!({ "supplementalPoolThreadCount": *rng.pick(&[1, 2]) });
        }
    } else if rng.chance(8) {
        let resources = &mut spec["domain"]["resources"];
        resources["requests"]["ephemeral-storage"] = json!("100Mi");
        if rng.chance(50) {
            resources["limits"]["ephemeral-storage"] = json!("1Gi");
        }
        if rng.chance(50) {
            resources["limits"]["example.org/thing"] = json!("3");
            resources["requests"]["example.org/thing"] = json!("3");
        }
    }
    if rng.chance(3) {
        spec["utilityVolumes"] = json!([{ "name": "utility", "claimName": "claim-2" }]);
    }
}

/// What our admission makes of an instance, if it lets it in.
fn admitted(instance: &Value, cluster: &Cluster) -> Option<Value> {
    if !generate::keeps_schema("VirtualMachineInstance", instance) {
        return None;
    }
    let mut instance = instance.clone();
    api::schema::apply_defaults("VirtualMachineInstance", &mut instance);
    let judged = crate::ours::judged(&instance, None, &cluster.config, &World::default()).ok()?;
    judged.causes.is_empty().then_some(judged.object)
}

/// The instance some time after it was let in, and which of its Pods to look at.
fn complete(mut vmi: Value, cluster: &'static Cluster, rng: &mut Rng) -> Case {
    let plugged = plugged(&vmi);
    let kind = match rng.below(100) {
        0..10 => Kind::FirstConsumer,
        10..80 if !plugged.is_empty() => *rng.pick(&[Kind::Attachment, Kind::Trigger]),
        80..90 => Kind::MigrationTarget,
        _ => Kind::Launcher,
    };
    if rng.chance(30) {
        vmi["status"]["topologyHints"] = json!({ "tscFrequency": 2_000_000_000u64 });
    }
    if rng.chance(5) {
        vmi["status"]["changedBlockTracking"] = json!({ "state": "Enabled" });
    }
    if rng.chance(10) {
        vmi["status"]["machine"] = json!({ "type": "pc-q35-9.0" });
    }
    if rng.chance(5)
        && let Some(interface) = vmi.pointer_mut("/spec/domain/devices/interfaces/1")
    {
        interface["state"] = json!("absent");
    }
    for name in &plugged {
        if rng.chance(30) {
            let phase = *rng.pick(&["Ready", "MountedToPod", "AttachedToNode", "Pending"]);
            let status =
                json!({ "name": name, "phase": phase, "target": "", "hotplugVolume": { "attachPodName": "hp" } });
            list(&mut vmi["status"]["volumeStatus"]).push(status);
        }
    }
    if rng.chance(90) {
        vmi["status"]["selinuxContext"] = json!(*rng.pick(&["none", "system_u:object_r:container_file_t:s0:c1,c2"]));
    }
    let volumes = match kind {
        Kind::Trigger => vec![rng.pick(&plugged).clone()],
        Kind::Attachment => plugged,
        _ => Vec::new(),
    };
    if kind == Kind::MigrationTarget && rng.chance(15) {
        vmi["metadata"]["annotations"]["kubevirt.io/image-volume-skip-digest-resolution"] = json!("true");
    }
    let mut case = Case { kind, vmi, cluster, volumes, launcher: None };
    if matches!(kind, Kind::Attachment | Kind::Trigger | Kind::MigrationTarget) {
        let once_more = kind == Kind::MigrationTarget && rng.chance(30);
        case.launcher = if once_more { ours::moved(&case) } else { ours::running(&case) };
        if kind == Kind::MigrationTarget && rng.chance(30) {
            name_by_number(case.launcher.as_mut());
        }
        if case.launcher.is_none() {
            // Nothing runs, so nothing can be attached to it.
            case.kind = Kind::Launcher;
        }
    }
    case
}

/// Lets a Pod have interfaces that are numbered, as those of old releases are.
fn name_by_number(launcher: Option<&mut Value>) {
    let Some(launcher) = launcher else { return };
    let status = r#"[{"name": "default/red", "interface": "net1", "ips": [], "mac": "02:00:00:00:00:01"}]"#;
    launcher["metadata"]["annotations"]["k8s.v1.cni.cncf.io/network-status"] = json!(status);
}

/// The plugged volumes of an instance.
fn plugged(vmi: &Value) -> Vec<String> {
    let volumes = vmi["spec"]["volumes"].as_array().into_iter().flatten();
    let claimed = volumes.filter(|volume| {
        ["persistentVolumeClaim", "dataVolume"].iter().any(|source| volume[source]["hotpluggable"] == true)
    });
    claimed.filter_map(|volume| volume["name"].as_str()).map(str::to_owned).collect()
}
