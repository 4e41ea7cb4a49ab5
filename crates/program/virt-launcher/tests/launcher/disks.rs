//! Disks that outlive their guest, on files and on loop devices.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use launcher_contract::types::Command::Kill;
use launcher_contract::types::{DiskError, DomainReason, DomainStatus, LauncherState, RefusalCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Launcher, add_disk, set_script, vmi};

type Case = (&'static str, fn(&Storage));

pub(crate) const CASES: [Case; 4] = [
    ("what_a_guest_has_synced_is_there_after_its_qemu_was_killed", survives),
    ("a_full_file_system_pauses_the_guest_until_there_is_space", full),
    ("disks_grow_with_their_claims_under_a_running_guest", grows),
    ("storage_that_cannot_be_used_is_named_with_the_reason", unusable),
];

const MIB: u64 = 1 << 20;
const OURS: u32 = 107;

/// Storage out here, and a launcher that has it in its Pod.
pub(crate) struct Storage {
    dir: TempDir,
    device: LoopDevice,
    launcher: Launcher,
}

/// A loop device over a file.
pub(crate) struct LoopDevice {
    pub(crate) path: PathBuf,
    file: PathBuf,
}

impl LoopDevice {
    pub(crate) fn new(file: PathBuf, bytes: u64) -> LoopDevice {
        File::create(&file).and_then(|made| made.set_len(bytes)).unwrap();
        let output = Command::new("losetup").args(["--find", "--show", "--direct-io=on"]).arg(&file).output().unwrap();
        assert!(output.status.success(), "losetup: {}", String::from_utf8_lossy(&output.stderr));
        LoopDevice { path: String::from_utf8(output.stdout).unwrap().trim().into(), file }
    }

    /// Words of `mknod` for it.
    pub(crate) fn numbers(&self) -> String {
        let number = std::fs::metadata(&self.path).unwrap().rdev();
        format!("b {} {}", rustix::fs::major(number), rustix::fs::minor(number))
    }

    fn grow(&self, bytes: u64) {
        File::options().write(true).open(&self.file).and_then(|file| file.set_len(bytes)).unwrap();
        assert!(Command::new("losetup").arg("--set-capacity").arg(&self.path).status().unwrap().success());
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.path).status();
    }
}

impl Storage {
    pub(crate) fn start() -> Storage {
        let dir = tempfile::Builder::new().prefix("vs").tempdir_in("/tmp").unwrap();
        std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let directory = |name: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir(&path).unwrap();
            std::os::unix::fs::chown(&path, Some(OURS), Some(OURS)).unwrap();
        };
        ["data", "base", "host"].into_iter().for_each(directory);
        let device = LoopDevice::new(dir.path().join("device"), 32 * MIB);
        let setup = format!(
            "for c in data base host; do mkdir $C/$c; mount --bind {0}/$c $C/$c; done
             mknod -m 660 /dev/device {1}; chown 107:107 /dev/device
             mkdir $C/small; mount -t tmpfs -o mode=700,uid=107,gid=107,size=24m small $C/small
             mkdir $C/tight; mount -t tmpfs -o mode=700,uid=107,gid=107,size=8m tight $C/tight
             mkdir $C/foreign $C/linked $C/locked; ln -s /etc/passwd $C/linked/disk.img
             head -c 1048576 /dev/zero > $C/foreign/disk.img; chmod 600 $C/foreign/disk.img
             mknod -m 600 /dev/taken {1}; mknod -m 666 /dev/tty9 c 1 3",
            dir.path().display(),
            device.numbers(),
        );
        let launcher = Launcher::with("pod", "120s", &setup);
        Storage { dir, device, launcher }
    }

    pub(crate) fn log(&self) -> String {
        self.launcher.log()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn make(&self, name: &str, bytes: u64) -> File {
        let file = File::options().read(true).write(true).create_new(true).open(self.path(name)).unwrap();
        file.set_len(bytes).unwrap();
        std::os::unix::fs::fchown(&file, Some(OURS), Some(OURS)).unwrap();
        file
    }

    fn paused_by_io(&self, state: &LauncherState) -> bool {
        state
            .domain
            .as_ref()
            .is_some_and(|d| (d.status, d.reason) == (DomainStatus::Paused, DomainReason::PausedIOError))
    }
}

fn claim(name: &str) -> Value {
    json!({ "persistentVolumeClaim": { "claimName": name } })
}

fn info(mode: &str, size: &str) -> Value {
    let overhead = if mode == "Block" { "0" } else { "0.055" };
    json!({ "volumeMode": mode, "accessModes": ["ReadWriteOnce"], "capacity": { "storage": size }, "filesystemOverhead": overhead })
}

/// The blocks that the guest's script has written, by the line at the beginning of each.
pub(crate) fn check_blocks(file: &File, last: u64, what: &str) {
    for number in 1..=last {
        let mut line = [0; 15];
        file.read_exact_at(&mut line, number * 4096).unwrap();
        assert_eq!(String::from_utf8_lossy(&line), format!("block {number:08}\n"), "{what}");
    }
}

/// Writes numbered blocks to these devices, each of them synced before its number is printed.
pub(crate) fn writer(devices: &str) -> String {
    format!(
        "(n=0; while [ $n -lt 5000 ]; do n=$((n+1)); for d in {devices}; do
         printf 'block %08d\\n' $n | dd of=$d bs=4096 seek=$n conv=notrunc,fsync,sync 2>/dev/null; done
         echo SYNCED $n >/dev/console; done) &\n"
    )
}

fn survives(storage: &Storage) {
    let launcher = &storage.launcher;
    let base = storage.make("base/disk.img", 8 * MIB);
    base.write_all_at(b"from the base", 0).unwrap();
    // What a guest could have written to it: it must not be taken for what it says.
    let host = storage.make("host/vm.img", 8 * MIB);
    host.write_all_at(b"QFI\xfb\0\0\0\x03\0\0\0\0\0\0\0\x68\0\0\0\x0b", 0).unwrap();
    host.write_all_at(b"/etc/passwd", 0x68).unwrap();

    let mut vmi = vmi("kernel");
    add_disk(&mut vmi, "data", claim("data"), info("Filesystem", "64Mi"));
    add_disk(&mut vmi, "device", claim("device"), info("Block", "32Mi"));
    add_disk(&mut vmi, "base", json!({ "ephemeral": claim("base") }), info("Filesystem", "8Mi"));
    add_disk(&mut vmi, "host", json!({ "hostDisk": { "path": "/data/vm.img", "type": "Disk" } }), Value::Null);
    let script = writer("/dev/vdc /dev/vdd");
    let script = format!(
        "echo SIZES $(cat /sys/block/vd[cdef]/size); head -c 13 /dev/vde; echo; echo overwritten >/dev/vde; sync
         echo HEADER $(head -c 3 /dev/vdf)\n{script}"
    );
    set_script(&mut vmi, &script);
    launcher.sync(&vmi).unwrap();
    let serial = launcher.serial();
    serial.wait_for("SIZES 131072 65536 16384 16384");
    serial.wait_for("from the base");
    serial.wait_for("HEADER QFI");
    serial.wait_for("SYNCED 20");
    let sizes = |state: &LauncherState| {
        let disks = state.domain.iter().flat_map(|domain| &domain.disks);
        disks.map(|disk| (disk.alias.clone(), disk.capacity / MIB)).collect::<Vec<_>>()
    };
    let known = |state: &LauncherState| sizes(state).iter().all(|(name, size)| name == "seed" || *size > 0);
    let state = launcher.wait_state("the sizes of the disks", known);
    let expected = [("data", 64), ("device", 32), ("base", 8), ("host", 8)].map(|(name, size)| (name.to_owned(), size));
    assert_eq!(sizes(&state)[2..], expected);
    let mut resize = Command::new("qemu-img");
    let second =
        resize.args(["resize", "-q", "-f", "raw"]).arg(storage.path("data/disk.img")).arg("+1M").output().unwrap();
    assert!(String::from_utf8_lossy(&second.stderr).contains("lock"), "nobody else writes to the image: {second:?}");

    launcher.signal(launcher.qemu(), "-KILL");
    let synced = serial.last("SYNCED");
    launcher.wait_state("the end", |state| state.domain.as_ref().is_some_and(|domain| domain.is_down()));
    assert!(synced >= 20);
    let image = File::open(storage.path("data/disk.img")).unwrap();
    let found = image.metadata().unwrap();
    assert_eq!((found.len(), found.uid(), found.gid(), found.mode() & 0o777), (64 * MIB, OURS, OURS, 0o600));
    assert!(found.blocks() * 512 < 32 * MIB, "it is sparse");
    check_blocks(&image, synced, "the image");
    check_blocks(&File::open(&storage.device.path).unwrap(), synced, "the device");
    let mut untouched = [0; 13];
    base.read_exact_at(&mut untouched, 0).unwrap();
    assert_eq!(&untouched, b"from the base");
}

fn full(storage: &Storage) {
    let launcher = &storage.launcher;
    let small = "/run/kubevirt-private/vmi-disks/small";
    launcher.run(&format!("truncate -s 64M {small}/disk.img; chown 107:107 {small}/disk.img"));
    let mut vmi = vmi("kernel");
    add_disk(&mut vmi, "small", claim("small"), info("Filesystem", "64Mi"));
    set_script(
        &mut vmi,
        "(dd if=/dev/zero of=/dev/vdc bs=1M count=48 conv=fsync 2>/dev/null && echo WRITTEN >/dev/console) &\n",
    );
    launcher.sync(&vmi).unwrap();
    let failed = |state: &LauncherState| {
        let error = state.domain.as_ref()?.disks.iter().find(|disk| disk.alias == "small")?.error;
        error.filter(|_| storage.paused_by_io(state))
    };
    let state = launcher.wait_state("a paused guest", |state| failed(state).is_some());
    assert_eq!(failed(&state), Some(DiskError::NoSpace));
    let others = state.domain.iter().flat_map(|domain| &domain.disks).filter(|disk| disk.error.is_some()).count();
    assert_eq!(others, 1, "only this disk failed");

    // As virt-handler retries: without space it stands still again.
    launcher.sync(&vmi).unwrap();
    let serial = launcher.serial();
    launcher.wait_state("another pause", |state| failed(state) == Some(DiskError::NoSpace));
    assert!(!serial.text().contains("WRITTEN"));
    launcher.run(&format!("mount -o remount,size=80m {small}"));
    launcher.sync(&vmi).unwrap();
    launcher
        .wait_state("a guest that runs", |state| launcher.is(state, DomainStatus::Running) && failed(state).is_none());
    serial.wait_for("WRITTEN");
    assert!(launcher.is(&launcher.state(), DomainStatus::Running));
}

fn grows(storage: &Storage) {
    let launcher = &storage.launcher;
    let mut vmi = vmi("kernel");
    add_disk(&mut vmi, "data", claim("data"), info("Filesystem", "16Mi"));
    add_disk(&mut vmi, "device", claim("device"), info("Block", "32Mi"));
    // Smaller than its claim: it grows before the guest starts.
    storage.make("host/disk.img", 4 * MIB);
    add_disk(&mut vmi, "host", claim("host"), info("Filesystem", "20Mi"));
    set_script(
        &mut vmi,
        "(while sleep 1; do s=$(cat /sys/block/vd[cde]/size | tr '\\n' ' '); [ \"$s\" = \"$o\" ] || echo SIZES ${s}END >/dev/console
         o=$s; done) &\n",
    );
    launcher.sync(&vmi).unwrap();
    let serial = launcher.serial();
    // 18 MiB are whole MiB of 94.5 % of 20 MiB.
    serial.wait_for("SIZES 32768 65536 36864 END");
    launcher.sync(&vmi).unwrap();
    assert_eq!(std::fs::metadata(storage.path("data/disk.img")).unwrap().len(), 16 * MIB, "it has what its claim has");

    storage.device.grow(48 * MIB);
    for (status, size) in vmi.status_mut().volume_status.iter_mut().zip(["40Mi", "48Mi"]) {
        let info = status.persistent_volume_claim_info.as_mut().unwrap();
        info.capacity.insert("storage".into(), k8s_openapi::apimachinery::pkg::api::resource::Quantity(size.into()));
    }
    launcher.wait_state("the sizes of the disks", |state| {
        state.domain.iter().flat_map(|domain| &domain.disks).all(|disk| disk.capacity > 0)
    });
    launcher.sync(&vmi).unwrap();
    // 37 MiB are whole MiB of 94.5 % of 40 MiB.
    serial.wait_for("SIZES 75776 98304 36864 END");
    launcher.wait_state("the new sizes", |state| {
        let size = |name: &str| {
            let disk = state.domain.as_ref()?.disks.iter().find(|disk| disk.alias == name)?;
            Some(disk.capacity / MIB)
        };
        (size("data"), size("device")) == (Some(37), Some(48))
    });
    launcher.sync(&vmi).unwrap();
    assert_eq!(
        std::fs::metadata(storage.path("data/disk.img")).unwrap().len(),
        37 * MIB,
        "it is as large as it can be"
    );
}

fn unusable(storage: &Storage) {
    let launcher = &storage.launcher;
    let refused = |name: &str, source: Value, claim: Value| {
        let mut vmi = vmi("kernel");
        add_disk(&mut vmi, name, source, claim);
        let error = launcher.sync(&vmi).expect_err(name);
        let text = error.to_string();
        assert!(text.contains(&format!("volume {name}")), "{text}");
        assert_ne!(error.refusal(), Some(RefusalCode::Impossible), "what may change is tried again: {text}");
        text
    };
    let file = |name: &str| refused(name, claim(name), info("Filesystem", "64Mi"));
    let device = |name: &str| refused(name, claim(name), info("Block", "64Mi"));
    for (told, expected) in [
        (file("nowhere"), "vmi-disks/nowhere is not mounted in the launcher's Pod"),
        (file("linked"), "disk.img is a symbolic link, which is not followed"),
        (file("foreign"), "it belongs to 0:0 with mode 600, and the guest runs as 107:107; change its owner"),
        (file("locked"), "there is no /var/run/kubevirt-private/vmi-disks/locked/disk.img"),
        (file("tight"), "more than 10 % less than that"),
        (device("missing"), "the device /dev/missing is not in the launcher's Pod"),
        (device("tty9"), "/dev/tty9 is not a block device"),
        (device("taken"), "Permission denied"),
        (refused("base", json!({ "ephemeral": claim("base") }), info("Filesystem", "1Gi")), "there is no /var/run"),
        (
            refused("host", json!({ "hostDisk": { "path": "/data/none.img", "type": "Disk" } }), Value::Null),
            "there is no /var/run/kubevirt-private/vmi-disks/host/none.img",
        ),
    ] {
        assert!(told.contains(expected), "{told}");
    }
    assert_eq!(std::fs::read_dir(storage.path("base")).unwrap().count(), 0, "nothing was made in passing");
    let told = launcher.state().last_error.unwrap();
    assert!(told.contains("none.img"), "{told}");
    let metadata = std::fs::metadata("/etc/passwd").unwrap();
    assert_ne!(metadata.uid(), OURS);

    // A host disk is made with its capacity, and a file system that is a little too small gets a smaller image.
    let mut vmi = vmi("kernel");
    let made = json!({ "hostDisk": { "path": "/data/made.img", "type": "DiskOrCreate", "capacity": "12Mi" } });
    add_disk(&mut vmi, "host", made, Value::Null);
    add_disk(&mut vmi, "small", claim("small"), info("Filesystem", "25Mi"));
    launcher.sync(&vmi).unwrap();
    assert_eq!(std::fs::metadata(storage.path("host/made.img")).unwrap().len(), 12 * MIB);
    let small = launcher.state().small_volumes;
    assert_eq!(small.len(), 1, "{small:?}");
    assert!(small[0].contains("volume small: PV size too small: expected 26214400 B, found 24117248 B"), "{small:?}");
    launcher.command(Kill).unwrap();
}

/// Whether loop devices can be made here.
pub(crate) fn missing() -> Option<String> {
    (!Path::new("/dev/loop-control").exists()).then(|| "there are no loop devices".to_owned())
}
