//! Hyper-V, architectures and confidential computing.

use serde_json::{Value, json};

use super::{both, causes, check, devices, disk, domain, gate, interface, row, spec};
use crate::{closed, config};

fn hyperv(hyperv: Value) -> Value {
    domain(json!({ "features": { "hyperv": hyperv } }))
}

fn arch(architecture: &str, over: Value) -> Value {
    both(over, spec(json!({ "architecture": architecture })))
}

#[test]
fn hyper_v() {
    let off = json!({ "enabled": false });
    let at = |name: &str| -> &'static str { format!("Invalid spec.domain.features.hyperv.{name}").leak() };
    let rests_on = |name: &'static str, other: &str| {
        row(name, hyperv(json!({ name: {}, other: off })), at(name), hyperv(json!({ name: {} })))
    };
    let evmcs = |policy: &str| {
        let flags = json!([{ "name": "vmx", "policy": policy }]);
        both(hyperv(json!({ "evmcs": {}, "vapic": {} })), domain(json!({ "cpu": { "features": flags } })))
    };
    check([
        rests_on("evmcs", "vapic").and("Required spec.domain.cpu.features"),
        rests_on("ipi", "vpindex"),
        rests_on("tlbflush", "vpindex"),
        rests_on("synic", "vpindex"),
        rests_on("synictimer", "synic"),
        row(
            "hyperv and all of it",
            domain(json!({ "features": { "hyperv": {}, "hypervPassthrough": {} } })),
            "Invalid spec.domain.features.hyperv",
            domain(json!({ "features": { "hypervPassthrough": {} } })),
        ),
    ]);
    // The defaults set the flag's policy right, unless a feature that is turned off kept them from it.
    assert_eq!(causes(&evmcs("disable"), &config()), Vec::<String>::new());
    let kept = both(evmcs("disable"), hyperv(json!({ "ipi": {}, "vpindex": off })));
    assert_eq!(causes(&kept, &config()), [at("ipi"), "Invalid spec.domain.cpu.features[0].policy"]);
}

#[test]
fn amd64() {
    let video = |type_: &str| devices(json!({ "video": { "type": type_ } }));
    let watchdog = |dog: Value| devices(json!({ "watchdog": dog }));
    check([
        row("video", video("qxl"), "NotSupported spec.domain.devices.video.type", video("ramfb")),
        row(
            "watchdog",
            watchdog(json!({ "name": "w", "diag288": {} })),
            "NotSupported spec.domain.devices.watchdog",
            watchdog(json!({ "name": "w" })),
        ),
        row(
            "architecture",
            spec(json!({ "architecture": "riscv64" })),
            "Invalid spec.architecture",
            spec(json!({ "architecture": "amd64" })),
        ),
    ]);
}

#[test]
fn arm64() {
    let arm = |over: Value| arch("arm64", both(disk(json!({ "disk": { "bus": "virtio" } })), over));
    let fine = arm(json!({}));
    let bus = |target: &str, bus: &str| {
        let mut over = json!({ "disk": null });
        over[target] = json!({ "bus": bus });
        let claim = json!([{ "name": "root", "persistentVolumeClaim": { "claimName": "c" } }]);
        arch("arm64", both(disk(over), spec(json!({ "volumes": claim }))))
    };
    check([
        row(
            "no BIOS",
            arm(domain(json!({ "firmware": { "bootloader": { "bios": {} } } }))),
            "NotSupported spec.domain.firmware.bootloader.bios",
            arm(domain(json!({ "firmware": { "bootloader": { "efi": {} } } }))),
        ),
        row(
            "the host's CPU",
            arm(domain(json!({ "cpu": { "model": "host-model" } }))),
            "NotSupported spec.domain.cpu.model",
            arm(domain(json!({ "cpu": { "model": "host-passthrough" } }))),
        ),
        row(
            "bus of a disk",
            bus("disk", "sata"),
            "NotSupported spec.domain.devices.disks[0].disk.bus",
            bus("disk", "scsi"),
        ),
        row(
            "bus of a CD-ROM",
            bus("cdrom", "sata"),
            "NotSupported spec.domain.devices.disks[0].cdrom.bus",
            bus("cdrom", "scsi"),
        ),
        row("bus of a LUN", bus("lun", "usb"), "NotSupported spec.domain.devices.disks[0].lun.bus", bus("lun", "scsi")),
        row(
            "no watchdog",
            arm(devices(json!({ "watchdog": { "name": "w" } }))),
            "NotSupported spec.domain.devices.watchdog",
            fine.clone(),
        ),
        row(
            "no sound",
            arm(devices(json!({ "sound": { "name": "s" } }))),
            "NotSupported spec.domain.devices.sound",
            fine,
        ),
        row(
            "video",
            arm(devices(json!({ "video": { "type": "vga" } }))),
            "NotSupported spec.domain.devices.video.type",
            arm(devices(json!({ "video": { "type": "virtio" } }))),
        ),
    ]);
}

#[test]
fn s390x() {
    check([
        row(
            "watchdog",
            arch("s390x", devices(json!({ "watchdog": { "name": "w", "i6300esb": {} } }))),
            "NotSupported spec.domain.devices.watchdog",
            arch("s390x", devices(json!({ "watchdog": { "name": "w", "diag288": {} } }))),
        ),
        row(
            "video",
            arch("s390x", devices(json!({ "video": { "type": "vga" } }))),
            "NotSupported spec.domain.devices.video.type",
            arch("s390x", devices(json!({ "video": { "type": "virtio" } }))),
        ),
    ]);
}

#[test]
fn confidential_computing() {
    let gates = ["WorkloadEncryptionTDX"];
    let at = "Invalid spec.domain.launchSecurity";
    let with = |security: Value, efi: Value| {
        domain(json!({ "launchSecurity": security, "firmware": { "bootloader": { "efi": efi } } }))
    };
    let unsigned = json!({ "secureBoot": false });
    let persistent = json!({ "secureBoot": false, "persistent": true });
    let sev = json!({ "sev": {} });
    let snp = json!({ "snp": {} });
    let tdx = json!({ "tdx": {} });
    let fine = |security: &Value| with(security.clone(), unsigned.clone());
    let smm = domain(json!({ "features": { "smm": {} } }));
    let attested = with(json!({ "sev": { "attestation": {} } }), unsigned.clone());
    check([
        row(
            "one technology",
            with(json!({ "sev": {}, "tdx": {} }), unsigned.clone()),
            "Forbidden spec.domain.launchSecurity",
            fine(&sev),
        ),
        row("some technology", with(json!({}), unsigned.clone()), "Forbidden spec.domain.launchSecurity", fine(&snp)),
        gate("WorkloadEncryptionTDX", fine(&tdx), at),
        row("no SMM in a trust domain", both(fine(&tdx), smm), at, fine(&tdx)).behind(&gates),
        row("EFI", domain(json!({ "launchSecurity": sev })), at, fine(&sev)),
        row(
            "no secure boot",
            both(with(sev.clone(), json!({})), domain(json!({ "features": { "smm": {} } }))),
            at,
            fine(&sev),
        ),
        row("SNP keeps no variables", with(snp, persistent.clone()), at, with(sev.clone(), persistent.clone())),
        row("nor does a trust domain", with(tdx.clone(), persistent), at, fine(&tdx)).behind(&gates),
        row(
            "attestation happens while the guest waits",
            attested.clone(),
            at,
            both(attested, spec(json!({ "startStrategy": "Paused" }))),
        ),
        row("no booting from the network", both(fine(&sev), interface(json!({ "bootOrder": 1 }))), at, fine(&sev)),
        row(
            "not on arm64",
            arch("arm64", fine(&sev)),
            "Invalid spec.architecture",
            arch("s390x", domain(json!({ "launchSecurity": {} }))),
        ),
    ]);
    assert_eq!(causes(&fine(&sev), &closed(&["WorkloadEncryptionSEV"])), [at]);
}
