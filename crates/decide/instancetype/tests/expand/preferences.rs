//! What an instance becomes by a preference.

use serde_json::{Value, json};

use crate::{applied, preference};

fn apply(preferred: &Value, spec: &Value) -> Value {
    applied(None, Some(&preference(preferred.clone())), spec, json!(null)).expect("a preference never conflicts").0
}

fn domain(domain: Value) -> Value {
    json!({ "domain": domain })
}

fn devices(devices: Value) -> Value {
    json!({ "domain": { "devices": devices } })
}

/// One preference: what it does to an instance that leaves the choice open, and an instance that has made its choice,
/// which stays as it is.
struct Case {
    preferred: Value,
    open: Value,
    becomes: (&'static str, Value),
    chosen: Value,
}

fn case(preferred: Value, open: Value, becomes: (&'static str, Value), chosen: Value) -> Case {
    Case { preferred, open, becomes, chosen }
}

fn check(cases: Vec<Case>) {
    for Case { preferred, open, becomes: (pointer, expected), chosen } in cases {
        let spec = apply(&preferred, &open);
        assert_eq!(spec.pointer(pointer), Some(&expected), "{preferred} fills what is open");
        let base = devices(json!({}));
        let mut chosen_spec = base;
        machinery::patch::merge(&mut chosen_spec, &chosen);
        let kept = apply(&preferred, &chosen_spec);
        assert_eq!(kept, chosen_spec, "{preferred} overrules nothing");
    }
}

/// A switch of the devices: its preference, and the field it fills.
#[test]
fn switches_of_devices_are_filled() {
    let switches = [
        ("preferredUseVirtioTransitional", "useVirtioTransitional"),
        ("preferredBlockMultiQueue", "blockMultiQueue"),
        ("preferredNetworkInterfaceMultiQueue", "networkInterfaceMultiqueue"),
        ("preferredAutoattachGraphicsDevice", "autoattachGraphicsDevice"),
        ("preferredAutoattachMemBalloon", "autoattachMemBalloon"),
        ("preferredAutoattachPodInterface", "autoattachPodInterface"),
        ("preferredAutoattachSerialConsole", "autoattachSerialConsole"),
        ("preferredAutoattachInputDevice", "autoattachInputDevice"),
    ];
    for (preferred, field) in switches {
        for value in [true, false] {
            let preferred = json!({ "devices": { preferred: value } });
            assert_eq!(apply(&preferred, &json!({}))["domain"]["devices"][field], value, "{preferred}");
            let chosen = devices(json!({ field: !value }));
            assert_eq!(apply(&preferred, &chosen), chosen, "{preferred} overrules nothing");
        }
    }
}

#[test]
fn devices_are_filled() {
    check(vec![
        case(
            json!({ "devices": { "preferredRng": {} } }),
            json!({}),
            ("/domain/devices/rng", json!({})),
            devices(json!({ "rng": {} })),
        ),
        case(
            json!({ "devices": { "preferredTPM": { "persistent": true } } }),
            json!({}),
            ("/domain/devices/tpm", json!({ "persistent": true })),
            devices(json!({ "tpm": {} })),
        ),
        case(
            json!({ "devices": { "preferredSoundModel": "ac97" } }),
            devices(json!({ "sound": { "name": "s" } })),
            ("/domain/devices/sound/model", json!("ac97")),
            devices(json!({ "sound": { "name": "s", "model": "ich9" } })),
        ),
        case(
            json!({ "devices": { "preferredVideoType": "virtio" } }),
            json!({}),
            ("/domain/devices/video", json!({ "type": "virtio" })),
            devices(json!({ "video": { "type": "vga" } })),
        ),
        case(
            json!({ "devices": { "preferredInputBus": "virtio", "preferredInputType": "tablet" } }),
            devices(json!({ "inputs": [{ "name": "i", "type": "" }] })),
            ("/domain/devices/inputs/0", json!({ "name": "i", "bus": "virtio", "type": "tablet" })),
            devices(json!({ "inputs": [{ "name": "i", "bus": "usb", "type": "mouse" }] })),
        ),
        case(
            json!({ "devices": { "preferredPanicDeviceModel": "isa" } }),
            json!({}),
            ("/domain/devices/panicDevices", json!([{ "model": "isa" }])),
            devices(json!({ "panicDevices": [{ "model": "hyperv" }] })),
        ),
        case(
            json!({ "devices": { "preferredPanicDeviceModel": "isa" } }),
            devices(json!({ "panicDevices": [{ "model": "hyperv" }, {}] })),
            ("/domain/devices/panicDevices", json!([{ "model": "hyperv" }, { "model": "isa" }])),
            devices(json!({ "panicDevices": [{ "model": "hyperv" }] })),
        ),
    ]);
}

#[test]
fn devices_that_would_make_the_guest_invalid_are_not_added() {
    let sound = json!({ "devices": { "preferredSoundModel": "ac97" } });
    assert_eq!(apply(&sound, &devices(json!({}))), devices(json!({})));
    let video = json!({ "devices": { "preferredVideoType": "virtio" } });
    let none = devices(json!({ "autoattachGraphicsDevice": false }));
    assert_eq!(apply(&video, &none), none);
    let panic = json!({ "devices": { "preferredPanicDeviceModel": "isa" } });
    let mut mainframe = devices(json!({}));
    mainframe["architecture"] = json!("s390x");
    assert_eq!(apply(&panic, &mainframe), mainframe);
}

#[test]
fn disks_are_filled() {
    let disks = |disk: Value| devices(json!({ "disks": [disk] }));
    let at = "/domain/devices/disks/0";
    check(vec![
        case(
            json!({ "devices": { "preferredDiskBus": "virtio" } }),
            disks(json!({ "name": "d" })),
            (at, json!({ "name": "d", "disk": { "bus": "virtio" } })),
            disks(json!({ "name": "d", "disk": { "bus": "sata" } })),
        ),
        case(
            json!({ "devices": { "preferredDiskBlockSize": { "matchVolume": {} } } }),
            disks(json!({ "name": "d", "disk": {} })),
            (at, json!({ "name": "d", "disk": {}, "blockSize": { "matchVolume": {} } })),
            disks(json!({ "name": "d", "disk": {}, "blockSize": {} })),
        ),
        case(
            json!({ "devices": { "preferredDiskCache": "none" } }),
            disks(json!({ "name": "d", "disk": {} })),
            (at, json!({ "name": "d", "disk": {}, "cache": "none" })),
            disks(json!({ "name": "d", "disk": {}, "cache": "writeback" })),
        ),
        case(
            json!({ "devices": { "preferredDiskIO": "native" } }),
            disks(json!({ "name": "d", "disk": {} })),
            (at, json!({ "name": "d", "disk": {}, "io": "native" })),
            disks(json!({ "name": "d", "disk": {}, "io": "threads" })),
        ),
        case(
            json!({ "devices": { "preferredDiskDedicatedIoThread": true, "preferredDiskBus": "virtio" } }),
            disks(json!({ "name": "d", "disk": {} })),
            (at, json!({ "name": "d", "disk": { "bus": "virtio" }, "dedicatedIOThread": true })),
            disks(json!({ "name": "d", "disk": { "bus": "virtio" }, "dedicatedIOThread": false })),
        ),
        // A thread of its own is only for virtio.
        case(
            json!({ "devices": { "preferredDiskDedicatedIoThread": true } }),
            disks(json!({ "name": "d", "disk": { "bus": "sata" } })),
            (at, json!({ "name": "d", "disk": { "bus": "sata" } })),
            disks(json!({ "name": "d", "disk": { "bus": "sata" } })),
        ),
        case(
            json!({ "devices": { "preferredCdromBus": "scsi", "preferredDiskBus": "virtio", "preferredDiskCache": "none" } }),
            disks(json!({ "name": "d", "cdrom": {} })),
            (at, json!({ "name": "d", "cdrom": { "bus": "scsi" } })),
            disks(json!({ "name": "d", "cdrom": { "bus": "sata" } })),
        ),
        case(
            json!({ "devices": { "preferredLunBus": "scsi", "preferredDiskBus": "virtio", "preferredDiskIO": "native" } }),
            disks(json!({ "name": "d", "lun": {} })),
            (at, json!({ "name": "d", "lun": { "bus": "scsi" } })),
            disks(json!({ "name": "d", "lun": { "bus": "virtio" } })),
        ),
    ]);
}

#[test]
fn interfaces_are_filled() {
    let with = |interface: Value, network: Value| json!({ "domain": { "devices": { "interfaces": [interface] } }, "networks": [network] });
    let pod = json!({ "name": "n", "pod": {} });
    let at = "/domain/devices/interfaces/0";
    let masquerade = json!({ "devices": { "preferredInterfaceMasquerade": {} } });
    check(vec![
        case(
            json!({ "devices": { "preferredInterfaceModel": "e1000e" } }),
            with(json!({ "name": "n", "bridge": {} }), pod.clone()),
            (at, json!({ "name": "n", "bridge": {}, "model": "e1000e" })),
            with(json!({ "name": "n", "bridge": {}, "model": "virtio" }), pod.clone()),
        ),
        case(
            masquerade.clone(),
            with(json!({ "name": "n" }), pod.clone()),
            (at, json!({ "name": "n", "masquerade": {} })),
            with(json!({ "name": "n", "bridge": {} }), pod.clone()),
        ),
        case(
            masquerade.clone(),
            with(json!({ "name": "n", "sriov": {} }), pod.clone()),
            (at, json!({ "name": "n", "sriov": {} })),
            with(json!({ "name": "n", "binding": { "name": "plugin" } }), pod),
        ),
        // Masquerading is for the Pod's network only.
        case(
            masquerade.clone(),
            with(json!({ "name": "n" }), json!({ "name": "n", "multus": { "networkName": "m" } })),
            (at, json!({ "name": "n" })),
            with(json!({ "name": "n" }), json!({ "name": "other", "pod": {} })),
        ),
    ]);
}

#[test]
fn features_are_filled() {
    let features = |features: Value| domain(json!({ "features": features }));
    let on = json!({ "enabled": true });
    let names = ["apic", "kvm", "pvspinlock", "smm"];
    let preferences = ["preferredApic", "preferredKvm", "preferredPvspinlock", "preferredSmm"];
    for (name, preferred) in names.into_iter().zip(preferences) {
        let (value, chosen) = if name == "kvm" {
            (json!({ "hidden": true }), json!({ "hidden": false }))
        } else {
            (on.clone(), json!({ "enabled": false }))
        };
        check(vec![case(
            json!({ "features": { preferred: value } }),
            json!({}),
            ("/domain/features", json!({ name: value })),
            features(json!({ name: chosen })),
        )]);
    }
    let enlightenments = [
        "evmcs",
        "frequencies",
        "ipi",
        "reenlightenment",
        "relaxed",
        "reset",
        "runtime",
        "spinlocks",
        "synic",
        "synictimer",
        "tlbflush",
        "vapic",
        "vendorid",
        "vpindex",
    ];
    for name in enlightenments {
        check(vec![case(
            json!({ "features": { "preferredHyperv": { name: on } } }),
            json!({}),
            ("/domain/features/hyperv", json!({ name: on })),
            features(json!({ "hyperv": { name: { "enabled": false } } })),
        )]);
    }
}

#[test]
fn two_preferences_overrule_the_instance() {
    let acpi = json!({ "features": { "preferredAcpi": { "enabled": false } } });
    let spec = apply(&acpi, &domain(json!({ "features": { "acpi": { "enabled": true } } })));
    assert_eq!(spec["domain"]["features"]["acpi"], json!({ "enabled": false }));
    let hotplug = json!({ "devices": { "preferredDisableHotplug": false } });
    let spec = apply(&hotplug, &devices(json!({ "disableHotplug": true })));
    assert_eq!(spec["domain"]["devices"]["disableHotplug"], false);
}

#[test]
fn firmware_is_filled() {
    let boots = |bootloader: Value| domain(json!({ "firmware": { "bootloader": bootloader } }));
    let at = "/domain/firmware/bootloader";
    let (bios, efi) = (json!({ "bios": {} }), json!({ "efi": {} }));
    // The preference, the boot loader the instance names, and the one it gets.
    let cases = [
        (json!({ "preferredUseBios": true }), json!({}), bios.clone()),
        (json!({ "preferredUseBios": true }), efi.clone(), efi.clone()),
        (json!({ "preferredUseBios": false }), json!({}), json!({})),
        (json!({ "preferredUseBiosSerial": true }), bios.clone(), json!({ "bios": { "useSerial": true } })),
        (json!({ "preferredUseBiosSerial": true }), json!({}), json!({})),
        (
            json!({ "preferredUseBiosSerial": true }),
            json!({ "bios": { "useSerial": false } }),
            json!({ "bios": { "useSerial": false } }),
        ),
        (
            json!({ "preferredUseBios": true, "preferredUseBiosSerial": true }),
            json!({}),
            json!({ "bios": { "useSerial": true } }),
        ),
        (json!({ "preferredEfi": { "persistent": true } }), json!({}), json!({ "efi": { "persistent": true } })),
        (json!({ "preferredEfi": { "persistent": true } }), bios.clone(), bios.clone()),
        (json!({ "preferredEfi": { "persistent": true } }), efi.clone(), efi.clone()),
        // The new field speaks for the old ones.
        (json!({ "preferredEfi": {}, "preferredUseSecureBoot": true }), json!({}), efi.clone()),
        (json!({ "preferredUseEfi": true }), json!({}), efi.clone()),
        (json!({ "preferredUseEfi": true }), bios.clone(), bios.clone()),
        (
            json!({ "preferredUseEfi": true, "preferredUseSecureBoot": true }),
            json!({}),
            json!({ "efi": { "secureBoot": true } }),
        ),
        (json!({ "preferredUseSecureBoot": true }), efi, json!({ "efi": { "secureBoot": true } })),
        (
            json!({ "preferredUseSecureBoot": true }),
            json!({ "efi": { "secureBoot": false } }),
            json!({ "efi": { "secureBoot": false } }),
        ),
        (json!({ "preferredUseSecureBoot": true }), bios.clone(), bios),
    ];
    for (firmware, named, expected) in cases {
        let spec = apply(&json!({ "firmware": firmware }), &boots(named.clone()));
        assert_eq!(spec.pointer(at), Some(&expected), "{firmware} with {named}");
    }
}

#[test]
fn platform_and_life_cycle_are_filled() {
    check(vec![
        case(
            json!({ "machine": { "preferredMachineType": "pc-q35-9.0" } }),
            json!({}),
            ("/domain/machine/type", json!("pc-q35-9.0")),
            domain(json!({ "machine": { "type": "q35" } })),
        ),
        case(
            json!({ "clock": { "preferredClockOffset": { "timezone": "Europe/Berlin" } } }),
            json!({}),
            ("/domain/clock", json!({ "timezone": "Europe/Berlin" })),
            domain(json!({ "clock": { "utc": {} } })),
        ),
        case(
            json!({ "clock": { "preferredTimer": { "pit": { "present": true } } } }),
            json!({}),
            ("/domain/clock/timer", json!({ "pit": { "present": true } })),
            domain(json!({ "clock": { "timer": {} } })),
        ),
        case(
            json!({ "preferredSubdomain": "guests" }),
            json!({}),
            ("/subdomain", json!("guests")),
            json!({ "subdomain": "own" }),
        ),
        case(
            json!({ "preferredTerminationGracePeriodSeconds": 5 }),
            json!({}),
            ("/terminationGracePeriodSeconds", json!(5)),
            json!({ "terminationGracePeriodSeconds": 0 }),
        ),
        case(
            json!({ "preferredArchitecture": "arm64" }),
            json!({}),
            ("/architecture", json!("arm64")),
            json!({ "architecture": "amd64" }),
        ),
        case(
            json!({ "preferredLaunchSecurity": { "snp": {} } }),
            json!({}),
            ("/domain/launchSecurity", json!({ "snp": {} })),
            domain(json!({ "launchSecurity": { "sev": {} } })),
        ),
        case(
            json!({ "cpu": { "preferredCPUFeatures": [{ "name": "vmx" }, { "name": "md-clear", "policy": "require" }] } }),
            domain(json!({ "cpu": { "features": [{ "name": "vmx", "policy": "disable" }] } })),
            (
                "/domain/cpu/features",
                json!([{ "name": "vmx", "policy": "disable" }, { "name": "md-clear", "policy": "require" }]),
            ),
            domain(json!({ "cpu": { "features": [{ "name": "md-clear" }, { "name": "vmx" }] } })),
        ),
    ]);
}

#[test]
fn annotations_are_added_and_never_replaced() {
    let preference = preference(json!({ "annotations": { "a": "preferred", "b": "preferred" } }));
    let (_, annotations) =
        applied(None, Some(&preference), &json!({}), json!({ "a": "own", "c": "own" })).expect("no conflict");
    assert_eq!(annotations, json!({ "a": "own", "b": "preferred", "c": "own" }));
}

#[test]
fn an_empty_preference_changes_nothing() {
    let spec = devices(
        json!({ "disks": [{ "name": "d" }], "interfaces": [{ "name": "n" }], "inputs": [{ "name": "i", "type": "" }] }),
    );
    assert_eq!(apply(&json!({}), &spec), spec);
}
