//! Where our Pods differ from KubeVirt's on purpose. One row is one decision; a difference without a row is a mistake, and so
//! is a row without a difference.

use super::Case;
use crate::compare::Difference;
use crate::differences::matches;

/// A deliberate difference.
pub struct Row {
    /// The keys of the differences it speaks for; a `*` stands for any text.
    pub keys: &'static [&'static str],
    /// Why we differ.
    pub reason: &'static str,
    /// When the row speaks for a difference that has one of the keys.
    pub when: fn(&Case, &Difference) -> bool,
}

const ALWAYS: fn(&Case, &Difference) -> bool = |_, _| true;

/// All of them.
pub const ROWS: &[Row] = &[
    Row {
        keys: &[
            "* spec.containers.compute.command.program",
            "* theirs spec.containers.compute.command.--run-as-nonroot",
            "* theirs spec.containers.compute.command.--libvirt-hook-server-and-client",
            "* theirs spec.containers.compute.command.--upgrade-ordinal-ifaces",
        ],
        reason: "Our launcher is a program of its own. Nobody watches over it, it sees by itself who it runs as and what its \
                 interfaces are called, and it answers libvirt's hooks in its own way.",
        when: ALWAYS,
    },
    Row {
        keys: &[
            "* theirs spec.containers.compute.command.--hook-sidecars",
            "* theirs spec.containers.compute.command.--hypervisor",
            "* theirs spec.containers.compute.command.--ovmf-path",
        ],
        reason: "Flags for what is not in use are left out: sidecars where there are none, another hypervisor, firmware for \
                 guests that boot without.",
        when: |case, difference| match difference.key.rsplit_once("--") {
            Some((_, "hook-sidecars")) => difference.theirs == "\"0\"",
            Some((_, "hypervisor")) => difference.theirs == "\"kvm\"",
            _ => case.vmi.pointer("/spec/domain/firmware/bootloader/efi").is_none(),
        },
    },
    Row {
        keys: &["* theirs spec.containers.compute.command.--keep-after-failure"],
        reason: "An annotation without a value asks for nothing, as admission reads it.",
        when: |case, _| {
            let asked = "/metadata/annotations/kubevirt.io~1keep-launcher-alive-after-failure";
            case.vmi.pointer(asked).is_some_and(|value| value == "")
        },
    },
    Row {
        keys: &["* both spec.containers.compute.command.--ovmf-path"],
        reason: "Since the judge's release, firmware lies elsewhere in the launcher's image.",
        when: |_, difference| difference.ours == "\"/usr/share/edk2/ovmf\"",
    },
    Row {
        keys: &["* both spec.containers.compute.command.--container-disk-dir"],
        reason: "Our launcher finds the disks of image volumes where this flag says; KubeVirt's knows a second place.",
        when: |_, difference| difference.ours == "\"/var/run/kubevirt-image-volume\"",
    },
    Row {
        keys: &["first-consumer * spec.containers.compute.command[]"],
        reason: "A Pod that is there to be scheduled does nothing, in fewer words.",
        when: ALWAYS,
    },
    Row {
        keys: &["* ours spec.containers.hook-sidecar-#.env.NETWORK_BINDING_PLUGIN_NAME"],
        reason: "Since the judge's release, the sidecar of a plugin is told which one it serves.",
        when: ALWAYS,
    },
    Row {
        keys: &[
            "* both spec.containers.hook-sidecar-#.image",
            "* spec.containers.hook-sidecar-#.volumeMounts./etc/podinfo",
        ],
        reason: "Plugins come in the order of their names. KubeVirt takes them in the order of a Go map, which is drawn.",
        when: |case, _| ["\"passt\"", "\"l2bridge\""].iter().all(|plugin| case.vmi.to_string().contains(plugin)),
    },
    Row {
        keys: &["* theirs spec.*-access-cred again"],
        reason: "A secret that serves two credentials is mounted once. KubeVirt mounts it twice, under one name, and the API \
                 server refuses the Pod.",
        when: ALWAYS,
    },
    Row {
        keys: &["* theirs spec.volumes.launcher-volume", "* theirs spec.initContainers*"],
        reason: "Since the judge's release, an annotation spares the containers that find out digests.",
        when: digests_are_skipped,
    },
    Row {
        keys: &["* error ours spec.domain.devices.gpus[*].deviceName asks for *"],
        reason: "The list of permitted devices holds for GPUs as well. KubeVirt looks at them only while the gate for claimed \
                 GPUs is closed.",
        when: ALWAYS,
    },
    Row {
        keys: &["* error theirs HostDevice  is not permitted in permittedHostDevices configuration"],
        reason: "A claimed device has no name that a list could permit.",
        when: |case, _| case.vmi.to_string().contains("\"claimName\":\"claim\""),
    },
    Row {
        keys: &[
            "* ours metadata.labels.pr.kubevirt.io/uid-of-*",
            "* ours spec.affinity*",
            "launcher error ours volume vol-# needs *",
        ],
        reason: "Since the judge's release, guests that reserve the same disk keep away from each other. The claim's UID tells \
                 whether it is the same, also where the disk is plugged later.",
        when: |case, difference| {
            let text = format!("{}{}", difference.key, difference.ours);
            let about = text.contains("pr.kubevirt.io/uid-of-") || text.contains(" error ours ");
            about && case.vmi.to_string().contains("\"reservation\":true")
        },
    },
    Row {
        keys: &["* ours spec.containers.compute.resources.*.devices.kubevirt.io/tdx"],
        reason: "Since the judge's release, guests with TDX ask for its device.",
        when: |case, _| case.vmi.pointer("/spec/domain/launchSecurity/tdx").is_some(),
    },
    Row {
        keys: &["migration-target value theirs metadata.annotations.k8s.v1.cni.cncf.io/networks"],
        reason: "A Pod without further networks has no list of them.",
        when: |_, difference| difference.theirs == "\"\"",
    },
    Row {
        keys: &["migration-target error ours source Pod's status has no image digest of volume *"],
        reason: "A guest finds the same image where it goes, or stays. KubeVirt takes what the name means by then.",
        when: digests_are_skipped,
    },
    Row {
        keys: &["attachment error ours volume vol-# needs the PersistentVolumeClaim dv-#, *"],
        reason: "What is not there cannot be attached, and the Pod would wait for it in silence. KubeVirt lists the claim and \
                 does not mount it.",
        when: ALWAYS,
    },
    Row {
        keys: &["attachment value ours spec.containers.hotplug-disk.volumeMounts*"],
        reason: "The kubelet gives a volume back that no container mounts, while the guest still writes to it.",
        when: ALWAYS,
    },
    Row {
        keys: &["attachment value both spec.containers.hotplug-disk.command*"],
        reason: "The program is found by its name and started without a shell: an embedded node has it elsewhere.",
        when: ALWAYS,
    },
    Row {
        keys: &[
            "attachment value ours metadata.annotations*",
            "trigger value ours metadata.annotations.kubevirt.io/owner-vmi-*",
        ],
        reason: "Since the judge's release, these Pods tell whom they serve.",
        when: |_, difference| format!("{}{}", difference.key, difference.ours).contains("kubevirt.io/owner-vmi-"),
    },
    Row {
        keys: &[
            "migration-target value ours metadata.annotations.kubevirt.io/migrationJobName",
            "migration-target value ours metadata.labels.kubevirt.io/migrationJobUID",
            "migration-target value ours spec.nodeSelector.cpu-*",
            "migration-target value * spec.securityContext.seLinuxOptions*",
            "migration-target value ours spec.affinity*",
            "migration-target error ours status.selinuxContext is not known yet",
        ],
        reason: "Our function gives the whole Pod of a target. KubeVirt's migration controller puts these into what its template \
                 service gives: whose target it is, nodes with a CPU like the source's, the guest's level, and another node.",
        when: |_, difference| match difference.key.contains("spec.affinity") {
            true => difference.ours.contains("kubevirt.io/created-by"),
            false => true,
        },
    },
];

fn digests_are_skipped(case: &Case, _: &Difference) -> bool {
    let annotation = "/metadata/annotations/kubevirt.io~1image-volume-skip-digest-resolution";
    case.vmi.pointer(annotation).is_some_and(|text| text == "true")
}

/// The row that speaks for a difference.
pub fn row(case: &Case, difference: &Difference) -> Option<usize> {
    let speaks =
        |row: &Row| row.keys.iter().any(|shape| matches(shape, &difference.key)) && (row.when)(case, difference);
    ROWS.iter().position(speaks)
}
