//! Devices other than disks and interfaces.

use serde_json::{Value, json};

use super::{both, check, devices, domain, gate, row, spec};

#[test]
fn inputs_and_threads() {
    let input = |input: Value| devices(json!({ "inputs": [input] }));
    let threads = |threads: Value| domain(threads);
    let pool = |count: u32| {
        let pool = json!({ "supplementalPoolThreadCount": count });
        threads(json!({ "ioThreadsPolicy": "supplementalPool", "ioThreads": pool }))
    };
    check([
        row(
            "bus of an input",
            input(json!({ "name": "i", "type": "tablet", "bus": "ps2" })),
            "Invalid spec.domain.devices.inputs[0].bus",
            input(json!({ "name": "i", "type": "tablet", "bus": "virtio" })),
        ),
        row(
            "type of an input",
            input(json!({ "name": "i", "type": "mouse" })),
            "Invalid spec.domain.devices.inputs[0].type",
            input(json!({ "name": "i", "type": "tablet" })),
        ),
        row(
            "policy of threads",
            threads(json!({ "ioThreadsPolicy": "many" })),
            "Invalid spec.domain.ioThreadsPolicy",
            threads(json!({ "ioThreadsPolicy": "auto" })),
        ),
        row(
            "a pool has threads",
            threads(json!({ "ioThreadsPolicy": "supplementalPool" })),
            "Invalid spec.domain.ioThreads.supplementalPoolThreadCount",
            pool(1),
        ),
        row("at least one", pool(0), "Invalid spec.domain.ioThreads.supplementalPoolThreadCount", pool(1)),
    ]);
}

#[test]
fn displays_and_sound() {
    let gpu = |name: &str, display: Value| json!({ "name": name, "deviceName": "d", "virtualGPUOptions": { "display": display } });
    let gpus = |one: Value, other: Value| devices(json!({ "gpus": [gpu("a", one), gpu("b", other)] }));
    let sound = |sound: Value| devices(json!({ "sound": sound }));
    check([
        row(
            "one display to boot on",
            gpus(json!({}), json!({})),
            "Invalid spec.domain.devices.gpus",
            gpus(json!({}), json!({ "enabled": false })),
        ),
        row(
            "both switches are on by themselves",
            gpus(json!({}), json!({ "ramFB": {} })),
            "Invalid spec.domain.devices.gpus",
            gpus(json!({}), json!({ "ramFB": { "enabled": false } })),
        ),
        row(
            "model of the sound card",
            sound(json!({ "name": "s", "model": "sb16" })),
            "Invalid spec.domain.devices.sound",
            sound(json!({ "name": "s", "model": "ac97" })),
        ),
        row(
            "name of the sound card",
            sound(json!({ "name": "", "model": "ich9" })),
            "Invalid spec.domain.devices.sound",
            sound(json!({ "name": "s" })),
        ),
        row(
            "a graphics card needs a display",
            devices(json!({ "video": { "type": "vga" }, "autoattachGraphicsDevice": false })),
            "Invalid spec.domain.devices.video",
            devices(json!({ "video": { "type": "vga" }, "autoattachGraphicsDevice": true })),
        ),
    ]);
}

#[test]
fn gates() {
    check([
        gate(
            "HostDevices",
            devices(json!({ "hostDevices": [{ "name": "h", "deviceName": "d" }] })),
            "Invalid spec.domain.devices.hostDevices",
        ),
        gate("VSOCK", devices(json!({ "autoattachVSOCK": true })), "Invalid spec.domain.devices.autoattachVSOCK"),
        gate(
            "DownwardMetrics",
            devices(json!({ "downwardMetrics": {} })),
            "Invalid spec.domain.devices.downwardMetrics",
        ),
    ]);
}

#[test]
fn panic_devices() {
    let device = |model: &str| devices(json!({ "panicDevices": [{ "model": "isa" }, { "model": model }] }));
    let s390x = spec(json!({ "architecture": "s390x" }));
    check([
        row("model", device("telephone"), "Invalid spec.domain.devices.panicDevices[1].model", device("pvpanic")),
        row(
            "s390x has its own",
            both(device("hyperv"), s390x.clone()),
            "Invalid spec.domain.devices.panicDevices",
            both(devices(json!({ "panicDevices": [] })), s390x),
        ),
    ]);
}
