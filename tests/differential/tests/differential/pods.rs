//! Whether KubeVirt and we make the same Pods of the same instances.
//!
//! For hunting: `DIFFERENTIAL_COUNT` and `DIFFERENTIAL_SEED` choose the cases, and `DIFFERENTIAL_REPORT=FOLDER` writes all
//! differences, each with its smallest instance, to `diff-pods.txt` in the folder.

#![allow(clippy::unwrap_used, reason = "the helpers of a test may panic like the test itself")]

use std::path::Path;
use std::time::Instant;

use differential::judge::Judge;
use differential::pods::compare::compare;
use differential::pods::differences::ROWS;
use differential::pods::report::Report;
use differential::pods::{Kind, generate, ours};
use serde_json::{Value, json};

const SEED: u64 = 20_260_102;
const COUNT: u64 = 2_000;
/// How many differences are spelled out.
const SHOWN: usize = 5;

/// What there has to be in KubeVirt's Pods somewhere, lest the comparison be about little. A path with `#` for numbers.
const SEEN: &[&str] = &[
    "attachment.spec.containers.hotplug-disk.volumeDevices./path/vol-#/uid-of-claim-#",
    "attachment.spec.containers.hotplug-disk.volumeMounts./vol-#",
    "first-consumer.metadata.annotations.kubevirt.io/ephemeral-provisioning",
    "launcher.metadata.annotations.istio.io/reroute-virtual-interfaces",
    "launcher.metadata.annotations.k8s.v1.cni.cncf.io/networks[].cni-args.logicNetworkName",
    "launcher.metadata.annotations.k8s.v1.cni.cncf.io/networks[].mac",
    "launcher.metadata.annotations.v1.multus-cni.io/default-network",
    "launcher.metadata.labels.sidecar.istio.io/inject",
    "launcher.spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[].preference",
    "launcher.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[].matchExpressions[].values",
    "launcher.spec.affinity.podAffinity",
    "launcher.spec.affinity.podAntiAffinity",
    "launcher.spec.containers.compute.command.--allow-emulation",
    "launcher.spec.containers.compute.command.--keep-after-failure",
    "launcher.spec.containers.compute.command.--libvirt-log-filters",
    "launcher.spec.containers.compute.env.SHARED_FILESYSTEM_PATHS",
    "launcher.spec.containers.compute.env.VIRT_LAUNCHER_LOG_VERBOSITY",
    "launcher.spec.containers.compute.livenessProbe.exec.command",
    "launcher.spec.containers.compute.livenessProbe.tcpSocket",
    "launcher.spec.containers.compute.ports[].protocol",
    "launcher.spec.containers.compute.readinessProbe.exec.command",
    "launcher.spec.containers.compute.readinessProbe.httpGet.httpHeaders",
    "launcher.spec.containers.compute.resources.claims[].request",
    "launcher.spec.containers.compute.resources.limits.cpu",
    "launcher.spec.containers.compute.resources.limits.devices.kubevirt.io/kvm",
    "launcher.spec.containers.compute.resources.limits.devices.kubevirt.io/pr-helper",
    "launcher.spec.containers.compute.resources.limits.devices.kubevirt.io/sev",
    "launcher.spec.containers.compute.resources.limits.devices.kubevirt.io/tun",
    "launcher.spec.containers.compute.resources.limits.devices.kubevirt.io/vhost-net",
    "launcher.spec.containers.compute.resources.limits.devices.kubevirt.io/vhost-vsock",
    "launcher.spec.containers.compute.resources.limits.ephemeral-storage",
    "launcher.spec.containers.compute.resources.limits.example.org/thing",
    "launcher.spec.containers.compute.resources.limits.hugepages-#Mi",
    "launcher.spec.containers.compute.resources.limits.memory",
    "launcher.spec.containers.compute.resources.limits.nvidia.com/T4",
    "launcher.spec.containers.compute.resources.limits.vendor.example/nic",
    "launcher.spec.containers.compute.resources.limits.vendor.example/vf",
    "launcher.spec.containers.compute.volumeDevices./dev/vol-#",
    "launcher.spec.containers.compute.volumeMounts./dev/hugepages/libvirt/qemu",
    "launcher.spec.containers.compute.volumeMounts./etc/podinfo",
    "launcher.spec.containers.compute.volumeMounts./run/kubevirt-private/backend-storage-meta",
    "launcher.spec.containers.compute.volumeMounts./shared",
    "launcher.spec.containers.compute.volumeMounts./var/run/kubevirt-image-volume/disk_#",
    "launcher.spec.containers.compute.volumeMounts./var/run/kubevirt-kernel-boot",
    "launcher.spec.containers.compute.volumeMounts./var/run/kubevirt-private/downwardmetric-disk",
    "launcher.spec.containers.compute.volumeMounts./var/run/kubevirt-private/secret/vol-#/userData",
    "launcher.spec.containers.compute.volumeMounts./var/run/kubevirt-private/sysprep/vol-#",
    "launcher.spec.containers.compute.volumeMounts./var/run/kubevirt-private/vmi-disks/vol-#",
    "launcher.spec.containers.hook-sidecar-#.securityContext.seLinuxOptions.level",
    "launcher.spec.containers.hook-sidecar-#.volumeMounts./usr/bin/onDefineDomain",
    "launcher.spec.containers.virtiofs-vol-#.volumeMounts./vol-#",
    "launcher.spec.containers.volumekernel-boot-volume",
    "launcher.spec.containers.volumevol-#",
    "launcher.spec.dnsConfig.options[].value",
    "launcher.spec.imagePullSecrets.kernel-secret",
    "launcher.spec.imagePullSecrets.launcher-secret",
    "launcher.spec.imagePullSecrets.puller",
    "launcher.spec.initContainers.container-disk-binary",
    "launcher.spec.initContainers.guest-console-log",
    "launcher.spec.initContainers.volumekernel-boot-volume",
    "launcher.spec.initContainers.volumevol-#",
    "launcher.spec.initContainers.volumevol-#-init",
    "launcher.spec.nodeSelector.cpu-feature.node.kubevirt.io/vmx",
    "launcher.spec.nodeSelector.cpu-model.node.kubevirt.io/Haswell",
    "launcher.spec.nodeSelector.hyperv.node.kubevirt.io/vpindex",
    "launcher.spec.nodeSelector.kubevirt.io/cpumanager",
    "launcher.spec.nodeSelector.kubevirt.io/realtime",
    "launcher.spec.nodeSelector.kubevirt.io/sev",
    "launcher.spec.nodeSelector.machine-type.node.kubevirt.io/q35",
    "launcher.spec.nodeSelector.pool",
    "launcher.spec.nodeSelector.scheduling.node.kubevirt.io/tsc-frequency-#",
    "launcher.spec.priorityClassName",
    "launcher.spec.resourceClaims.claim",
    "launcher.spec.runtimeClassName",
    "launcher.spec.schedulerName",
    "launcher.spec.securityContext.runAsNonRoot",
    "launcher.spec.securityContext.seLinuxOptions.type",
    "launcher.spec.securityContext.seccompProfile.localhostProfile",
    "launcher.spec.serviceAccountName",
    "launcher.spec.subdomain",
    "launcher.spec.tolerations[].effect",
    "launcher.spec.topologySpreadConstraints[].whenUnsatisfiable",
    "launcher.spec.volumes.vol-#.configMap",
    "launcher.spec.volumes.vol-#.downwardAPI",
    "launcher.spec.volumes.vol-#.hostPath",
    "launcher.spec.volumes.vol-#.image",
    "launcher.spec.volumes.vol-#.persistentVolumeClaim.readOnly",
    "launcher.spec.volumes.vol-#.secret",
    "trigger.spec.containers.hotplug-disk.volumeDevices./dev/hotplugblockdevice",
    "trigger.spec.containers.hotplug-disk.volumeMounts./pvc",
];

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

#[test]
fn kubevirt_and_we_render_alike() {
    let folder = peers::build_or_skip("kubevirt/judge", "no comparison with KubeVirt's Pods").unwrap();
    let Some(folder) = folder else { return };
    let mut judge = Judge::start(&folder.join("judge")).unwrap();
    let started = Instant::now();
    let (seed, count) = (number("DIFFERENTIAL_SEED", SEED), number("DIFFERENTIAL_COUNT", COUNT));
    let report = Report::run(&mut judge, seed, count).unwrap();
    eprintln!(
        "{count} cases in {} s; Pods: {:?}; KubeVirt has none for {}; {} kinds of difference",
        started.elapsed().as_secs(),
        report.pods,
        report.refused.values().sum::<usize>(),
        report.groups.len()
    );
    for (reason, count) in &report.refused {
        eprintln!("{count:5} × no Pod: {reason}");
    }
    if let Some(folder) = std::env::var_os("DIFFERENTIAL_REPORT") {
        let text = report.text(&mut judge, usize::MAX).unwrap();
        std::fs::write(Path::new(&folder).join("diff-pods.txt"), text).unwrap();
        let seen: Vec<&str> = report.seen.iter().map(String::as_str).collect();
        std::fs::write(Path::new(&folder).join("seen-pods.txt"), seen.join("\n")).unwrap();
        return;
    }
    let text = report.text(&mut judge, SHOWN).unwrap();
    assert!(report.groups.is_empty(), "differences that no row of src/pods/differences.rs explains:\n{text}");
    if (seed, count) == (SEED, COUNT) {
        // Instances that cannot be rendered compare nothing.
        for kind in Kind::ALL {
            assert!(
                report.pods.get(&kind).is_some_and(|pods| *pods > 20),
                "too few Pods of kind {kind}: {:?}",
                report.pods
            );
        }
        let refused: usize = report.refused.values().sum();
        assert!(refused as u64 * 8 < COUNT, "KubeVirt has no Pod for {refused} cases");
        let missed: Vec<_> = SEEN.iter().filter(|path| !report.seen.contains(**path)).collect();
        assert!(missed.is_empty(), "no Pod of KubeVirt's has {missed:#?}");
        let unused = ROWS.iter().enumerate().filter(|(index, _)| !report.rows.contains(index));
        let unused: Vec<_> = unused.map(|(_, row)| row.keys).collect();
        assert!(unused.is_empty(), "rows of src/pods/differences.rs that nothing needs any more: {unused:#?}");
    }
}

/// What may be different without notice: names that are drawn on one side, and how much a launcher needs.
const UNNOTICED: &[&str] = &[
    "/apiVersion",
    "/kind",
    "/metadata/name",
    "/metadata/namespace",
    "/metadata/annotations/kubevirt.io~1memory-overhead-bytes",
];

#[test]
fn no_other_value_in_a_pod_passes_for_the_same() {
    let mut tried = 0;
    for index in 0..60 {
        let case = generate::case(SEED, index);
        let Ok(pod) = ours::render(&case) else { continue };
        let mut pointers = Vec::new();
        leaves(&pod, String::new(), &mut pointers);
        for pointer in pointers {
            let mut other = pod.clone();
            let value = other.pointer_mut(&pointer).unwrap();
            let timeout = value.as_str().is_some_and(|text| text.ends_with('s') && pointer.contains("/args/"));
            *value = match &*value {
                Value::String(text) => json!(format!("{text}x")),
                Value::Bool(flag) => json!(!flag),
                number => json!(number.as_i64().unwrap() + 1),
            };
            let noticed = !compare(&case, &Ok(other), &Ok(pod.clone())).is_empty();
            assert!(noticed || timeout || UNNOTICED.contains(&pointer.as_str()), "{pointer} of {pod}");
            tried += 1;
        }
    }
    assert!(tried > 5_000, "only {tried} values were changed");
}

fn leaves(value: &Value, pointer: String, pointers: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                leaves(field, format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1")), pointers);
            }
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| leaves(item, format!("{pointer}/{index}"), pointers));
        }
        _ => pointers.push(pointer),
    }
}
