//! Disks that come and go while the guest runs.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use api::v1::VirtualMachineInstance;
use launcher_contract::types::{Command, LauncherState, RefusalCode};
use serde_json::{Value, json};

use crate::support::{Launcher, set_script, vmi};

type Case = (&'static str, fn(&Launcher));

pub(crate) const CASES: [Case; 3] = [
    ("disks_are_plugged_and_unplugged_each_for_itself", come_and_go),
    ("a_disk_that_the_guest_holds_on_to_stays_until_it_lets_go", held),
    ("a_drive_gets_a_medium_and_loses_it", media),
];

/// Prints the serial numbers of the guest's plugged disks whenever they change, and the size of what is in its drive.
const WATCH: &str = r#"
(old=x; while :; do now=
for f in /sys/block/sd*/device/vpd_pg80 /sys/block/vd*/serial; do
  [ -e $f ] && s=$(tr -cd 'A-Za-z0-9' <$f) && [ "$s" ] && now="$now $s"; done
now="$now. drive $(cat /sys/block/sr0/size 2>/dev/null)"
[ "$now" = "$old" ] || echo "SERIALS$now" >/dev/console; old=$now; sleep 0.2; done) &
"#;

fn watching(cdrom: bool) -> VirtualMachineInstance {
    let mut vmi = vmi("kernel");
    set_script(&mut vmi, WATCH);
    if cdrom {
        let drive = json!({ "name": "drive", "cdrom": { "bus": "sata" } });
        vmi.spec.domain.devices.disks.push(serde_json::from_value(drive).unwrap());
    }
    vmi
}

fn add(vmi: &mut VirtualMachineInstance, name: &str, bus: Option<&str>, mode: &str) {
    let volume = json!({ "name": name, "persistentVolumeClaim": { "claimName": name, "hotpluggable": true } });
    vmi.spec.volumes.push(serde_json::from_value(volume).unwrap());
    if let Some(bus) = bus {
        let disk = json!({ "name": name, "serial": name, "disk": { "bus": bus } });
        vmi.spec.domain.devices.disks.push(serde_json::from_value(disk).unwrap());
    }
    let info = json!({ "claimName": name, "volumeMode": mode, "capacity": { "storage": "8Mi" } });
    let status: Value = json!({ "name": name, "target": "", "hotplugVolume": {}, "persistentVolumeClaimInfo": info });
    vmi.status_mut().volume_status.push(serde_json::from_value(status).unwrap());
}

fn remove(vmi: &mut VirtualMachineInstance, name: &str) {
    vmi.spec.volumes.retain(|volume| volume.name != name);
    vmi.spec.domain.devices.disks.retain(|disk| disk.name != name || disk.is_cdrom());
}

fn image(launcher: &Launcher, name: &str, bytes: u64) -> PathBuf {
    let directory = launcher.run_dir("kubevirt/hotplug-disks");
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join(format!("{name}.img"));
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(bytes).unwrap();
    std::os::unix::fs::fchown(&file, Some(107), Some(107)).unwrap();
    path
}

fn disks(state: &LauncherState) -> Vec<(String, String)> {
    let disks = state.domain.iter().flat_map(|domain| &domain.disks);
    let plugged = disks.filter(|disk| disk.source.contains("/hotplug-disks/"));
    let mut plugged: Vec<_> = plugged.map(|disk| (disk.alias.clone(), disk.target.clone())).collect();
    plugged.sort();
    plugged
}

fn named(state: &LauncherState) -> Vec<String> {
    disks(state).into_iter().map(|(name, _)| name).collect()
}

fn come_and_go(launcher: &Launcher) {
    let mut vmi = watching(false);
    // What is in the spec and not there yet does not hold up the start.
    add(&mut vmi, "late", Some("scsi"), "Filesystem");
    // What is there comes with the guest.
    let first = image(launcher, "first", 1 << 20);
    add(&mut vmi, "first", Some("scsi"), "Filesystem");
    launcher.sync_with(&vmi, &["first"]).unwrap();
    let serial = launcher.serial();
    serial.wait_for("SERIALS first.");
    assert_eq!(disks(&launcher.state()), [("first".to_owned(), "sdb".to_owned())]);

    // Several at once, on files and on a device, on both buses.
    let device = crate::disks::LoopDevice::new(launcher.run_dir("device-file"), 4 << 20);
    let plugged = launcher.run_dir("kubevirt/hotplug-disks");
    let node = plugged.join("second");
    let made = std::process::Command::new("mknod").arg(&node).args(device.numbers().split(' ')).status().unwrap();
    assert!(made.success());
    std::os::unix::fs::chown(&node, Some(107), Some(107)).unwrap();
    image(launcher, "late", 2 << 20);
    image(launcher, "third", 3 << 20);
    add(&mut vmi, "second", Some("scsi"), "Block");
    add(&mut vmi, "third", Some("virtio"), "Filesystem");
    launcher.sync_with(&vmi, &["first", "late", "second", "third"]).unwrap();
    serial.wait_for("SERIALS first late second third.");
    let seen = disks(&launcher.state());
    assert_eq!(named(&launcher.state()), ["first", "late", "second", "third"]);
    assert_eq!(seen[0].1, "sdb", "the first is not disturbed: {seen:?}");
    launcher.sync_with(&vmi, &["first", "late", "second", "third"]).unwrap();
    assert_eq!(disks(&launcher.state()), seen, "a second time changes nothing");

    // One that cannot be plugged in is named, and does not hold up another.
    std::fs::create_dir(plugged.join("broken.img")).unwrap();
    add(&mut vmi, "broken", Some("scsi"), "Filesystem");
    image(launcher, "fifth", 5 << 20);
    add(&mut vmi, "fifth", Some("scsi"), "Filesystem");
    let all = ["first", "late", "second", "third", "broken", "fifth"];
    let error = launcher.sync_with(&vmi, &all).unwrap_err();
    assert_eq!(error.refusal(), Some(RefusalCode::Libvirt));
    assert!(error.to_string().contains("broken"), "{error}");
    serial.wait_for("fifth third.");
    remove(&mut vmi, "broken");

    // What the guest has written is in the image, and the image is nobody's when it has left.
    remove(&mut vmi, "first");
    remove(&mut vmi, "third");
    launcher.sync_with(&vmi, &["late", "second", "fifth"]).unwrap();
    launcher.wait_state("two to leave", |state| named(state) == ["fifth", "late", "second"]);
    serial.wait_for("SERIALS late second fifth.");
    let file = std::fs::File::options().write(true).open(&first).unwrap();
    file.write_all_at(b"free", 0).unwrap();
    let mut resize = std::process::Command::new("qemu-img");
    let resized = resize.args(["resize", "-q", "-f", "raw"]).arg(&first).arg("+1M").status().unwrap();
    assert!(resized.success(), "nobody has a lock on it");

    // The name and the place of a disk that left are free for another.
    add(&mut vmi, "first", Some("scsi"), "Filesystem");
    launcher.sync_with(&vmi, &["late", "second", "fifth", "first"]).unwrap();
    assert_eq!(disks(&launcher.state())[1], ("first".to_owned(), "sdb".to_owned()));
    // virt-handler says what is mounted: without its word a disk leaves.
    launcher.sync_with(&vmi, &[]).unwrap();
    launcher.wait_state("all to leave", |state| named(state).is_empty());
    launcher.command(Command::Kill).unwrap();
}

fn held(launcher: &Launcher) {
    let mut vmi = watching(false);
    image(launcher, "data", 1 << 20);
    add(&mut vmi, "data", Some("virtio"), "Filesystem");
    launcher.sync_with(&vmi, &["data"]).unwrap();
    let serial = launcher.serial();
    serial.wait_for("SERIALS data.");
    // A guest that stands still cannot release what is on the PCI bus.
    launcher.command(Command::Pause).unwrap();
    remove(&mut vmi, "data");
    let error = launcher.sync_with(&vmi, &[]).unwrap_err();
    assert_eq!(error.refusal(), Some(RefusalCode::NotReady));
    assert!(error.to_string().contains("the guest has not released data"), "{error}");
    assert_eq!(named(&launcher.state()), ["data"], "it is still the guest's");
    launcher.command(Command::Unpause).unwrap();
    launcher.wait_state("the guest to let go", |state| named(state).is_empty());
    serial.wait_for("SERIALS. drive");
    launcher.sync_with(&vmi, &[]).unwrap();
    launcher.command(Command::Kill).unwrap();
}

fn media(launcher: &Launcher) {
    let mut vmi = watching(true);
    launcher.sync_with(&vmi, &[]).unwrap();
    let serial = launcher.serial();
    serial.wait_for("SERIALS. drive");
    image(launcher, "drive", 6 << 20);
    add(&mut vmi, "drive", None, "Filesystem");
    launcher.sync_with(&vmi, &["drive"]).unwrap();
    assert_eq!(named(&launcher.state()), ["drive"]);
    remove(&mut vmi, "drive");
    launcher.sync_with(&vmi, &[]).unwrap();
    launcher.wait_state("the medium to leave", |state| named(state).is_empty());
    let drives = launcher.state().domain.unwrap().disks;
    assert!(drives.iter().any(|disk| disk.alias == "drive" && disk.source.is_empty()), "{drives:?}");
    launcher.command(Command::Kill).unwrap();
}
