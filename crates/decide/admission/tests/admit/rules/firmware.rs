//! Firmware, machine type and credentials.

use serde_json::{Value, json};

use super::{both, check, domain, row, spec, volume};
use crate::gated;

fn firmware(firmware: Value) -> Value {
    domain(json!({ "firmware": firmware }))
}

#[test]
fn machine_type() {
    let machine = |type_: &str| domain(json!({ "machine": { "type": type_ } }));
    check([row("machine type", machine("pc-i440fx-7.2"), "Invalid spec.domain.machine.type", machine("pc-q35-7.2"))]);
    let mut other = gated(&[]);
    other.configuration.emulated_machines = vec!["pc-i440fx-?.[0-4]".to_owned()];
    check([row(
        "the cluster's own patterns",
        machine("pc-i440fx-7.5"),
        "Invalid spec.domain.machine.type",
        machine("pc-i440fx-7.2"),
    )
    .of(&other)]);
}

#[test]
fn acpi_tables() {
    let acpi =
        |acpi: Value| both(firmware(json!({ "acpi": acpi })), volume(json!({ "secret": { "secretName": "s" } })));
    let fine = acpi(json!({ "slicNameRef": "root" }));
    check([
        row("a table", acpi(json!({})), "Invalid spec.domain.firmware.acpi", fine.clone()),
        row(
            "from a volume",
            acpi(json!({ "slicNameRef": "other" })),
            "Invalid spec.domain.firmware.acpi.slicNameRef",
            fine,
        ),
        row(
            "that is a Secret",
            firmware(json!({ "acpi": { "msdmNameRef": "root" } })),
            "Invalid spec.domain.firmware.acpi.msdmNameRef",
            acpi(json!({ "msdmNameRef": "root" })),
        ),
    ]);
}

#[test]
fn boot_loader() {
    let efi = |efi: Value| firmware(json!({ "bootloader": { "efi": efi } }));
    let smm = domain(json!({ "features": { "smm": {} } }));
    let off = domain(json!({ "features": { "smm": { "enabled": false } } }));
    check([
        row(
            "one",
            firmware(json!({ "bootloader": { "bios": {}, "efi": { "secureBoot": false } } })),
            "Invalid spec.domain.firmware.bootloader",
            efi(json!({ "secureBoot": false })),
        ),
        row(
            "secure boot, which is on by itself, needs SMM",
            efi(json!({})),
            "Invalid spec.domain.firmware.bootloader.efi.secureBoot",
            both(efi(json!({})), smm),
        ),
        row(
            "and SMM that is on",
            both(efi(json!({ "secureBoot": true })), off),
            "Invalid spec.domain.firmware.bootloader.efi.secureBoot",
            efi(json!({ "secureBoot": false })),
        ),
        row(
            "except in a trust domain",
            efi(json!({})),
            "Invalid spec.domain.firmware.bootloader.efi.secureBoot",
            both(efi(json!({})), domain(json!({ "launchSecurity": { "tdx": {} } }))),
        )
        .behind(&["WorkloadEncryptionTDX"]),
    ]);
}

#[test]
fn direct_kernel_boot() {
    let kernel = |boot: Value| firmware(json!({ "kernelBoot": boot }));
    let in_image = |container: Value| kernel(json!({ "kernelArgs": "quiet", "container": container }));
    let fine = in_image(json!({ "image": "i", "kernelPath": "/vmlinuz", "initrdPath": "/boot/initrd" }));
    check([
        row(
            "arguments need a kernel",
            kernel(json!({ "kernelArgs": "quiet" })),
            "Invalid spec.domain.firmware.kernelBoot.kernelArgs",
            kernel(json!({})),
        ),
        row(
            "an image",
            in_image(json!({ "image": "", "kernelPath": "/vmlinuz" })),
            "Required spec.domain.firmware.kernelBoot.container.image",
            fine.clone(),
        ),
        row(
            "something to boot",
            kernel(json!({ "container": { "image": "i" } })),
            "Required spec.domain.firmware.kernelBoot.container",
            kernel(json!({ "container": { "image": "i", "initrdPath": "/initrd" } })),
        ),
        row(
            "absolute kernel path",
            in_image(json!({ "image": "i", "kernelPath": "vmlinuz" })),
            "Invalid spec.domain.firmware.kernelBoot.container.kernelPath",
            fine.clone(),
        ),
        row(
            "clean initrd path",
            in_image(json!({ "image": "i", "kernelPath": "/vmlinuz", "initrdPath": "/boot/../initrd" })),
            "Invalid spec.domain.firmware.kernelBoot.container.initrdPath",
            fine,
        ),
    ]);
}

#[test]
fn credentials() {
    let credential = |credential: Value| spec(json!({ "accessCredentials": [credential] }));
    let secret = json!({ "secret": { "secretName": "s" } });
    let keys =
        |source: &Value, method: Value| json!({ "sshPublicKey": { "source": source, "propagationMethod": method } });
    let agent = json!({ "qemuGuestAgent": { "users": ["root"] } });
    let password = |source: &Value, method: Value| {
        credential(json!({ "userPassword": { "source": source, "propagationMethod": method } }))
    };
    let none = json!({});
    let fine = credential(keys(&secret, agent.clone()));
    let no_cloud = volume(json!({ "cloudInitNoCloud": { "userData": "a" } }));
    let config_drive = volume(json!({ "cloudInitConfigDrive": { "userData": "a" } }));
    let methods = "Invalid spec.accessCredentials[0].sshPublicKey.propagationMethod";
    let mut two = keys(&secret, agent.clone());
    two["userPassword"] = json!({ "source": secret, "propagationMethod": { "qemuGuestAgent": {} } });
    check([
        row("some credential", credential(json!({})), "Invalid spec.accessCredentials[0]", fine.clone()),
        row("one credential", credential(two), "Invalid spec.accessCredentials[0]", fine.clone()),
        row(
            "a source of keys",
            credential(keys(&none, agent)),
            "Invalid spec.accessCredentials[0].sshPublicKey.source",
            fine.clone(),
        ),
        row("a way for keys", credential(keys(&secret, json!({}))), methods, fine.clone()),
        row(
            "one way for keys",
            both(
                credential(keys(&secret, json!({ "noCloud": {}, "qemuGuestAgent": { "users": ["a"] } }))),
                no_cloud.clone(),
            ),
            methods,
            fine.clone(),
        ),
        row(
            "NoCloud has a volume",
            credential(keys(&secret, json!({ "noCloud": {} }))),
            methods,
            both(credential(keys(&secret, json!({ "noCloud": {} }))), no_cloud),
        ),
        row(
            "a config drive has a volume",
            credential(keys(&secret, json!({ "configDrive": {} }))),
            methods,
            both(credential(keys(&secret, json!({ "configDrive": {} }))), config_drive),
        ),
        row(
            "the agent has users",
            credential(keys(&secret, json!({ "qemuGuestAgent": { "users": [] } }))),
            "Invalid spec.accessCredentials[0].sshPublicKey.propagationMethod.qemuGuestAgent.users",
            fine,
        ),
        row(
            "a source of passwords",
            password(&none, json!({ "qemuGuestAgent": {} })),
            "Invalid spec.accessCredentials[0].userPassword.source",
            password(&secret, json!({ "qemuGuestAgent": {} })),
        ),
        row(
            "a way for passwords",
            password(&secret, json!({})),
            "Invalid spec.accessCredentials[0].userPassword.propagationMethod",
            password(&secret, json!({ "qemuGuestAgent": {} })),
        ),
    ]);
}
