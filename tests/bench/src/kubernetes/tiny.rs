//! The smallest guest: a boot sector that greets on the serial console and halts.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use launcher_contract::USER;
use oci_image::{Entry, Run, Tree};
use serde_json::{Value, json};

/// The image of its disk.
const IMAGE: &str = "registry.local/tiny:1";
/// The smallest that is common for disks.
const DISK_SIZE: usize = 1 << 20;
/// Firmware works with half of it.
const MEMORY: &str = "32Mi";

/// 16-bit code, loaded at 0x7c00.
const CODE: [u8; 24] = [
    0x31, 0xc0, // xor ax, ax
    0x8e, 0xd8, // mov ds, ax
    0xfc, // cld
    0xba, 0xf8, 0x03, // mov dx, 0x3f8: the first serial port
    0xbe, 0x18, 0x7c, // mov si, the text behind this code
    0xac, // next: lodsb
    0x84, 0xc0, // test al, al
    0x74, 0x03, // jz done
    0xee, // out dx, al
    0xeb, 0xf8, // jmp next
    0xfa, // done: cli
    0xf4, // halt: hlt
    0xeb, 0xfd, // jmp halt
    0x90, // nop
];
const TEXT: &[u8] = b"tiny guest\r\n\0";

/// Writes the image of its disk into a folder.
pub(crate) fn image(folder: &Path) -> Result<PathBuf> {
    let file = folder.join("tiny.img");
    fs::write(&file, disk()).with_context(|| format!("cannot write {}", file.display()))?;
    let mut tree = Tree::default();
    let mut folder_of_disk = Entry::directory(0o755);
    (folder_of_disk.uid, folder_of_disk.gid) = (USER, USER);
    tree.insert("disk", folder_of_disk)?;
    tree.insert("disk/tiny.img", Entry::file(file, 0o440).owned_by(USER, USER))?;
    test_cluster::images::write(folder, "tiny", &tree, Run::default())
}

fn disk() -> Vec<u8> {
    let mut disk = [&CODE[..], TEXT].concat();
    disk.resize(510, 0);
    disk.extend([0x55, 0xaa]); // what makes a sector bootable
    disk.resize(DISK_SIZE, 0);
    disk
}

/// A VM that runs it, with a network card and a disk from an image like any other. It asks for little CPU, so that many fit
/// onto a node.
pub(crate) fn vm(name: &str) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name},
        "spec": {"runStrategy": "Always", "template": {"spec": {
            "terminationGracePeriodSeconds": 0,
            "domain": {
                "memory": {"guest": MEMORY},
                "resources": {"requests": {"cpu": "10m"}},
                "devices": {
                    "interfaces": [{"name": "default", "masquerade": {}}],
                    "disks": [{"name": "image", "disk": {"bus": "virtio"}}],
                },
            },
            "networks": [{"name": "default", "pod": {}}],
            "volumes": [{"name": "image", "containerDisk": {"image": IMAGE, "imagePullPolicy": "IfNotPresent"}}],
        }}},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_is_bootable_and_its_code_finds_the_text() {
        let disk = disk();
        assert_eq!((disk.len(), &disk[510..512]), (DISK_SIZE, &[0x55, 0xaa][..]));
        let text = usize::from(u16::from_le_bytes([CODE[9], CODE[10]]) - 0x7c00);
        assert!(disk[text..].starts_with(TEXT));
    }
}
