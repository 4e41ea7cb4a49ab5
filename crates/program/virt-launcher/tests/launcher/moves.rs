//! Two real launchers, and a guest that goes from one to the other. In place of the node agents a relay of Unix sockets
//! that the test can cut.

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use api::v1::VirtualMachineInstance;
use launcher_contract::MigrationUid;
use launcher_contract::migration::{
    AbortState, MigrationMode, MigrationOptions, MigrationPhase, MigrationState, MovedVolume,
};
use launcher_contract::types::{Command, DomainReason, DomainStatus, DomainType, LauncherState, SyncOptions};
use parking_lot::Mutex;
use serde_json::json;
use tempfile::TempDir;
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::disks::{LoopDevice, check_blocks, writer};
use crate::support::{Launcher, Serial, UID, add_disk, set_script, vmi_uid, vmi_with};

type Case = (&'static str, fn(&Pair));

pub(crate) const CASES: [Case; 10] = [
    ("a_guest_moves_with_its_disks_and_counts_on", moves),
    ("a_paused_guest_moves_and_stays_paused", moves_paused),
    ("a_guest_that_does_not_converge_is_switched_over_where_that_is_allowed", switched_over),
    ("an_aborted_migration_leaves_the_guest_where_it_was", aborted),
    ("a_guest_that_does_not_converge_is_given_up_in_time", given_up),
    ("a_cut_link_leaves_the_guest_at_its_source", link_cut),
    ("a_target_whose_qemu_dies_leaves_the_guest_at_its_source", target_qemu_dies),
    ("a_killed_libvirtd_at_either_end_leaves_one_guest", daemons_die),
    ("a_lost_answer_is_asked_for_again_and_one_guest_runs", answer_lost),
    ("a_target_is_told_of_by_its_node_agent_when_it_cannot_be_asked", settled),
];

const MIGRATION: &str = "0d4c1a34-0000-4000-8000-000000000001";

fn migration() -> MigrationUid {
    MigrationUid::new(MIGRATION).unwrap()
}

pub(crate) const SHARED: [Case; 3] = [
    ("volumes_move_to_other_claims_with_their_guest", to_other_claims),
    ("a_guest_moves_and_its_shared_disks_stay_where_they_are", moves_on_shared_storage),
    ("a_shared_disk_that_a_node_caches_keeps_its_guest_where_it_is", cached),
];

pub(crate) struct Pair {
    /// Storage that both sides have.
    storage: Option<(LoopDevice, TempDir)>,
    source: Launcher,
    target: Launcher,
    relay: Mutex<Option<Relay>>,
    runtime: Runtime,
}

/// Joins the source's sockets to the target's.
struct Relay {
    stop: CancellationToken,
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Pair {
    pub(crate) fn start() -> Pair {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (source, target) = (Launcher::named("source", "120s"), Launcher::named("target", "120s"));
        Pair { storage: None, source, target, relay: Mutex::new(None), runtime }
    }

    /// With a directory and a device that both Pods have.
    pub(crate) fn start_with_storage() -> Pair {
        let dir = tempfile::Builder::new().prefix("vs").tempdir_in("/tmp").unwrap();
        std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let claim = dir.path().join("claim");
        std::fs::create_dir(&claim).unwrap();
        std::os::unix::fs::chown(&claim, Some(107), Some(107)).unwrap();
        let device = LoopDevice::new(dir.path().join("device"), 32 << 20);
        let setup = format!(
            "mkdir $C/file; mount --bind {} $C/file; mknod -m 660 /dev/device {1}; chown 107:107 /dev/device
             mkdir $C/moving $C/turning; chown 107:107 $C/moving $C/turning
             if [ $POD = target ]; then rmdir $C/turning; mknod -m 660 /dev/turning {1}; chown 107:107 /dev/turning; fi",
            claim.display(),
            device.numbers()
        );
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let start = |pod: &str| Launcher::with(pod, "120s", &setup);
        let (source, target) = (start("source"), start("target"));
        Pair { storage: Some((device, dir)), source, target, relay: Mutex::new(None), runtime }
    }

    pub(crate) fn log(&self) -> String {
        format!("source:\n{}\ntarget:\n{}", self.source.log(), self.target.log())
    }

    /// Opens the sockets in the source's Pod.
    fn link(&self) {
        let stop = CancellationToken::new();
        let from = self.source.run_dir("kubevirt/migrationproxy");
        std::fs::create_dir_all(&from).unwrap();
        let own = |path: &PathBuf| std::os::unix::fs::chown(path, Some(107), Some(107)).unwrap();
        own(&from);
        let to = self.target.run_dir("kubevirt/migrationproxy");
        let _inside = self.runtime.enter();
        for (name, to) in [
            (format!("{UID}-source.sock"), self.target.run_dir("libvirt/libvirt-sock")),
            (format!("{UID}-49152-source.sock"), to.join(format!("{UID}-49152-source.sock"))),
            (format!("{UID}-49153-source.sock"), to.join(format!("{UID}-49153-source.sock"))),
        ] {
            let path = from.join(name);
            let _ = std::fs::remove_file(&path);
            let listener = UnixListener::bind(&path).unwrap();
            own(&path);
            let stop = stop.clone();
            self.runtime.spawn(async move {
                while let Some(Ok((mut inner, _))) = stop.run_until_cancelled(listener.accept()).await {
                    let (to, stop) = (to.clone(), stop.clone());
                    tokio::spawn(async move {
                        let join = async {
                            let mut outer = UnixStream::connect(&to).await?;
                            tokio::io::copy_bidirectional(&mut inner, &mut outer).await
                        };
                        let _ = stop.run_until_cancelled(join).await;
                    });
                }
            });
        }
        *self.relay.lock() = Some(Relay { stop });
    }

    fn cut(&self) {
        self.relay.lock().take();
        for name in ["source.sock", "49152-source.sock", "49153-source.sock"] {
            let _ = std::fs::remove_file(self.source.run_dir("kubevirt/migrationproxy").join(format!("{UID}-{name}")));
        }
    }

    /// A guest that counts at the source, and a target that waits for it.
    fn ready(&self, arguments: &str) -> Serial {
        self.ready_with(vmi_with("kernel", arguments), "tick 2 ")
    }

    fn ready_with(&self, vmi: VirtualMachineInstance, sign: &str) -> Serial {
        self.ready_between(vmi.clone(), vmi, sign)
    }

    /// With the VMI as it was when the guest started, and as it is when the guest moves.
    fn ready_between(&self, started: VirtualMachineInstance, vmi: VirtualMachineInstance, sign: &str) -> Serial {
        self.source.sync(&started).unwrap();
        let serial = self.source.serial();
        serial.wait_for(sign);
        let options = SyncOptions { serial_console_log_disabled: true, ..Default::default() };
        let prepare =
            || self.target.call(|client| async move { client.prepare_target(&vmi, &migration(), &options).await });
        prepare().unwrap();
        assert_eq!(phase(&self.target.state()), Some(MigrationPhase::Ready));
        self.link();
        serial
    }

    fn migrate(&self, options: &MigrationOptions) {
        self.source
            .call(|client| async move { client.migrate(&vmi_uid(), &migration(), options, None).await })
            .unwrap();
    }

    fn ended(&self) -> MigrationState {
        let done = |state: &LauncherState| phase(state).is_some_and(MigrationPhase::is_final);
        self.source.wait_state("the end of the migration", done).migration.unwrap()
    }

    fn transferring(&self) {
        self.source.wait_state("data on its way", |state| {
            state.migration.as_ref().is_some_and(|migration| migration.progress.data_processed > 8 << 20)
        });
    }

    fn switching(&self) {
        self.source.wait_state("the switch-over", |state| phase(state) == Some(MigrationPhase::SwitchingOver));
    }

    /// Which of the two launchers have a guest that runs.
    fn running(&self) -> (bool, bool) {
        let runs = |launcher: &Launcher| launcher.is(&launcher.state(), DomainStatus::Running);
        (runs(&self.source), runs(&self.target))
    }

    /// Which of the two launchers have left the mark that their guest is gone, where their state is kept.
    fn marked(&self) -> (bool, bool) {
        let is_marked = |launcher: &Launcher| {
            let claim = std::fs::read_dir(launcher.run_dir("kubevirt-private/backend-storage-meta")).unwrap();
            let names: Vec<_> = claim.map(|entry| entry.unwrap().file_name()).collect();
            assert!(names.iter().all(|name| name == "migrated"), "{names:?}");
            !names.is_empty()
        };
        (is_marked(&self.source), is_marked(&self.target))
    }

    /// The guest goes on at the source, and nothing is left of it at the target.
    fn stayed(&self, serial: &Serial) {
        self.target.wait_state("an empty target", |state| state.domain.as_ref().is_none_or(|domain| domain.is_down()));
        self.source.wait_state("a guest that runs", |state| self.source.is(state, DomainStatus::Running));
        assert_eq!(self.running(), (true, false));
        assert_eq!(self.marked(), (false, false));
        let next = last_tick(&serial.text()) + 2;
        serial.wait_for(&format!("tick {next} "));
        assert!(self.target.find_qemu().is_none(), "no QEMU is left at the target");
    }

    /// The guest is at the target, counts on from where it was, and QEMU at the source is gone.
    fn moved(&self, before: u64) {
        self.target.wait_state("the guest", |state| phase(state) == Some(MigrationPhase::Completed));
        self.source.wait_state("its end at the source", |state| state.domain.as_ref().is_some_and(|d| d.is_down()));
        let domain = self.source.state().domain.unwrap();
        assert_eq!((domain.status, domain.reason), (DomainStatus::Shutoff, DomainReason::Migrated));
        assert_eq!(self.running(), (false, true));
        assert_eq!(self.marked(), (true, false));
        assert!(self.source.find_qemu().is_none(), "no QEMU is left at the source");
        let serial = self.target.serial();
        let limit = Instant::now() + Duration::from_secs(60);
        while last_tick(&serial.text()) == 0 {
            assert!(Instant::now() < limit, "the guest says nothing at the target");
            std::thread::sleep(Duration::from_millis(100));
        }
        let after = first_tick(&serial.text());
        assert!(after > before && after < before + 60, "tick {before} at the source, then {after}");
    }
}

fn phase(state: &LauncherState) -> Option<MigrationPhase> {
    state.migration.as_ref().map(|migration| migration.phase)
}

fn ticks(text: &str) -> impl DoubleEndedIterator<Item = u64> + '_ {
    text.lines().filter_map(|line| line.trim().strip_prefix("tick ")?.split(' ').next()?.parse().ok())
}

fn last_tick(text: &str) -> u64 {
    ticks(text).next_back().unwrap_or_default()
}

fn first_tick(text: &str) -> u64 {
    ticks(text).next().unwrap_or_default()
}

fn moves(pair: &Pair) {
    let serial = pair.ready("");
    pair.migrate(&MigrationOptions::default());
    let ended = pair.ended();
    assert_eq!((ended.phase, ended.mode, ended.failure), (MigrationPhase::Completed, MigrationMode::PreCopy, None));
    let progress = &ended.progress;
    assert!(progress.data_processed > 0 && progress.downtime_ms > 0 && progress.elapsed_ms > 0, "{progress:?}");
    eprintln!("moved in {} ms, downtime {} ms", progress.elapsed_ms, progress.downtime_ms);
    pair.moved(last_tick(&serial.text()));
    // Emulated or not: `domain` says why an emulated guest's memory has no whole number of 64 pages.
    let (asked, has) = (256 << 20, pair.target.memory());
    let emulated = pair.target.state().domain.unwrap().domain_type == DomainType::Qemu;
    assert_eq!(has, if emulated { asked + (64 << 10) } else { asked });
    pair.target.call(|client| async move { client.finalize_target(&vmi_uid(), &migration()).await }).unwrap();

    let again = pair
        .source
        .call(|client| async move { client.migrate(&vmi_uid(), &migration(), &Default::default(), None).await });
    assert!(again.is_err(), "a migration happens once");
    let late = pair.source.sync(&vmi_with("kernel", ""));
    assert!(late.is_err(), "a guest that has moved is not started again");
    pair.source.command(Command::Delete).unwrap();
    assert_eq!(pair.source.wait_exit(), 0);
    pair.target.command(Command::Shutdown).unwrap();
    let state = pair.target.wait_state("the end", |state| state.domain.as_ref().is_some_and(|d| d.is_down()));
    assert_eq!(state.domain.unwrap().reason, DomainReason::Shutdown);
}

/// A guest with a claim as a file and one as a device, both of which it writes to all the time.
fn on_shared_storage(cache: &str) -> VirtualMachineInstance {
    let mut vmi = vmi_with("kernel", "");
    for (name, mode) in [("file", "Filesystem"), ("device", "Block")] {
        let claim = json!({ "persistentVolumeClaim": { "claimName": name } });
        let info = json!({ "volumeMode": mode, "accessModes": ["ReadWriteMany"], "capacity": { "storage": "32Mi" } });
        add_disk(&mut vmi, name, claim, info);
    }
    for disk in &mut vmi.spec.domain.devices.disks[2..] {
        disk.cache = (!cache.is_empty()).then(|| cache.to_owned());
    }
    set_script(&mut vmi, &writer("/dev/vdc /dev/vdd"));
    vmi
}

fn sharing() -> MigrationOptions {
    MigrationOptions { shared_volumes: vec!["file".into(), "device".into()], ..Default::default() }
}

/// Both QEMUs have the images open at the switch-over: if the target copied to them, it would need the lock that the source
/// holds.
fn moves_on_shared_storage(pair: &Pair) {
    let serial = pair.ready_with(on_shared_storage(""), "SYNCED 20");
    pair.migrate(&sharing());
    assert_eq!(pair.ended().phase, MigrationPhase::Completed);
    let before = serial.last("SYNCED");
    pair.moved(last_tick(&serial.text()));
    let there = pair.target.serial();
    pair.target.wait("blocks written at the target", || (there.last("SYNCED") >= before + 20).then_some(()));
    pair.target.signal(pair.target.qemu(), "-KILL");
    let synced = there.last("SYNCED");
    assert!(synced >= before + 20, "{before} at the source, {synced} at the target");
    let (device, dir) = pair.storage.as_ref().unwrap();
    check_blocks(&File::open(dir.path().join("claim/disk.img")).unwrap(), synced, "the image");
    check_blocks(&File::open(&device.path).unwrap(), synced, "the device");
}

/// From a file to a smaller claim's file that is exactly as large, and from a file to a larger device.
fn to_other_claims(pair: &Pair) {
    let claimed = |mode: &str, size: &str| json!({ "volumeMode": mode, "accessModes": ["ReadWriteOnce"], "capacity": { "storage": size } });
    let volume = |name: &str| json!({ "persistentVolumeClaim": { "claimName": name } });
    let mut vmi = vmi_with("kernel", "");
    add_disk(&mut vmi, "moving", volume("moving"), claimed("Filesystem", "24Mi"));
    add_disk(&mut vmi, "turning", volume("turning"), claimed("Filesystem", "24Mi"));
    set_script(&mut vmi, &writer("/dev/vdc /dev/vdd"));
    let mut there = vmi.clone();
    let status = there.status_mut();
    let infos =
        [claimed("Filesystem", "64Mi"), claimed("Block", "32Mi")].map(|info| serde_json::from_value(info).unwrap());
    for (known, info) in status.volume_status.iter_mut().zip(infos) {
        (known.persistent_volume_claim_info, known.size) = (Some(info), Some(24 << 20));
        status
            .migrated_volumes
            .push(api::v1::StorageMigratedVolumeInfo { volume_name: known.name.clone(), ..Default::default() });
    }
    let serial = pair.ready_between(vmi, there, "SYNCED 20");
    let moved = |volume: &str, block: bool| MovedVolume { volume: volume.into(), block, plugged: false };
    let moved_volumes = vec![moved("moving", false), moved("turning", true)];
    pair.source.wait_state("the sizes of the disks", |state| {
        state.domain.iter().flat_map(|domain| &domain.disks).all(|disk| disk.capacity > 0)
    });
    pair.migrate(&MigrationOptions { moved_volumes, ..Default::default() });
    let ended = pair.ended();
    assert_eq!((ended.phase, ended.failure), (MigrationPhase::Completed, None));
    let before = serial.last("SYNCED");
    pair.moved(last_tick(&serial.text()));
    let sizes = |state: &LauncherState| {
        let disks = state.domain.iter().flat_map(|domain| &domain.disks);
        disks.skip(2).map(|disk| (disk.source.clone(), disk.capacity >> 20)).collect::<Vec<_>>()
    };
    let at_target = |state: &LauncherState| sizes(state).len() == 2 && sizes(state).iter().all(|(_, size)| *size > 0);
    let sizes = sizes(&pair.target.wait_state("the sizes of the disks", at_target));
    let file = "/var/run/kubevirt-private/vmi-disks/moving/disk.img";
    assert_eq!(sizes, [(file.to_owned(), 24), ("/dev/turning".to_owned(), 24)], "the guest's disks did not change");
    let serial = pair.target.serial();
    pair.target.wait("blocks written at the target", || (serial.last("SYNCED") >= before + 20).then_some(()));
    pair.target.signal(pair.target.qemu(), "-KILL");
    let synced = serial.last("SYNCED");
    let image = pair.target.run_dir("kubevirt-private/vmi-disks/moving/disk.img");
    check_blocks(&File::open(image).unwrap(), synced, "the image");
    let (device, _) = pair.storage.as_ref().unwrap();
    check_blocks(&File::open(&device.path).unwrap(), synced, "the device");
}

fn cached(pair: &Pair) {
    let serial = pair.ready_with(on_shared_storage("writeback"), "SYNCED 2");
    pair.migrate(&sharing());
    let ended = pair.ended();
    assert_eq!(ended.phase, MigrationPhase::Failed);
    let failure = ended.failure.unwrap();
    assert!(failure.contains("unsafe") || failure.contains("cache"), "{failure}");
    pair.stayed(&serial);
}

fn moves_paused(pair: &Pair) {
    let _serial = pair.ready("");
    pair.source.command(Command::Pause).unwrap();
    pair.migrate(&MigrationOptions::default());
    assert_eq!(pair.ended().phase, MigrationPhase::Completed);
    let state = pair.target.wait_state("the guest", |state| phase(state) == Some(MigrationPhase::Completed));
    assert!(pair.target.is(&state, DomainStatus::Paused), "{state:?}");
    pair.target.command(Command::Unpause).unwrap();
    pair.target.wait_state("a guest that runs", |state| pair.target.is(state, DomainStatus::Running));
}

fn aborted(pair: &Pair) {
    let serial = pair.ready("");
    // Of an earlier move, in a claim that both sides share.
    std::fs::write(pair.source.run_dir("kubevirt-private/backend-storage-meta/migrated"), "").unwrap();
    pair.migrate(&MigrationOptions { bandwidth_mib: 5, ..Default::default() });
    pair.transferring();
    let pause = pair.source.command(Command::Pause);
    assert!(pause.is_err(), "a guest on its way is not paused");
    pair.source.call(|client| async move { client.abort_migration(&vmi_uid(), &migration()).await }).unwrap();
    let ended = pair.ended();
    assert_eq!((ended.phase, ended.abort), (MigrationPhase::Failed, AbortState::Succeeded));
    assert_eq!(ended.failure.as_deref(), Some("Live migration has been aborted"));
    pair.stayed(&serial);
}

fn given_up(pair: &Pair) {
    let serial = pair.ready("dirty=64 rate=80");
    let options = MigrationOptions { bandwidth_mib: 10, completion_timeout_per_gib_seconds: 8, ..Default::default() };
    pair.migrate(&options);
    let ended = pair.ended();
    assert_eq!(ended.phase, MigrationPhase::Failed);
    let failure = ended.failure.unwrap();
    assert!(failure.contains("did not complete within 8 s"), "{failure}");
    pair.stayed(&serial);
}

/// By post-copy where QEMU may fetch pages, and by stopping the guest where it may not.
fn switched_over(pair: &Pair) {
    let serial = pair.ready("dirty=64 rate=80");
    let options = MigrationOptions {
        bandwidth_mib: 40,
        completion_timeout_per_gib_seconds: 6,
        allow_post_copy: true,
        allow_workload_disruption: true,
        ..Default::default()
    };
    pair.migrate(&options);
    let ended = pair.ended();
    assert_eq!(ended.phase, MigrationPhase::Completed, "{ended:?}");
    assert_ne!(ended.mode, MigrationMode::PreCopy);
    eprintln!(
        "switched over by {:?}: {} ms, downtime {} ms",
        ended.mode, ended.progress.elapsed_ms, ended.progress.downtime_ms
    );
    pair.moved(last_tick(&serial.text()));
}

fn link_cut(pair: &Pair) {
    let serial = pair.ready("");
    pair.migrate(&MigrationOptions { bandwidth_mib: 5, ..Default::default() });
    pair.transferring();
    pair.cut();
    assert_eq!(pair.ended().phase, MigrationPhase::Failed);
    pair.stayed(&serial);
}

fn target_qemu_dies(pair: &Pair) {
    let serial = pair.ready("");
    pair.migrate(&MigrationOptions { bandwidth_mib: 5, ..Default::default() });
    pair.transferring();
    pair.target.signal(pair.target.qemu(), "-KILL");
    assert_eq!(pair.ended().phase, MigrationPhase::Failed);
    pair.stayed(&serial);
}

fn daemons_die(pair: &Pair) {
    let serial = pair.ready("");
    pair.migrate(&MigrationOptions { bandwidth_mib: 5, ..Default::default() });
    pair.transferring();
    pair.source.signal(pair.source.libvirtd(), "-KILL");
    assert_eq!(pair.ended().phase, MigrationPhase::Failed);
    pair.stayed(&serial);

    // The target's launcher is still there for a migration that has failed; a second one gets a launcher of its own in
    // a cluster, so here only its daemon is tried: it must come back empty.
    pair.target.signal(pair.target.libvirtd(), "-KILL");
    pair.target.wait("a new libvirtd", || pair.target.find_libvirtd());
    pair.stayed(&serial);
}

/// The link breaks as soon as all is sent: Finish is on its way, or its answer is.
fn answer_lost(pair: &Pair) {
    let serial = pair.ready("");
    pair.migrate(&MigrationOptions::default());
    pair.switching();
    pair.cut();
    std::thread::sleep(Duration::from_secs(1));
    let (source, target) = pair.running();
    assert!(!(source && target), "two guests run");
    pair.link();
    let ended = pair.ended();
    let before = last_tick(&serial.text());
    match ended.phase {
        MigrationPhase::Completed => pair.moved(before),
        _ => pair.stayed(&serial),
    }
    eprintln!("after a lost answer: {:?}", ended.phase);
}

/// As before, but the link stays down: the node agents have to say how it ended.
fn settled(pair: &Pair) {
    let serial = pair.ready("");
    pair.migrate(&MigrationOptions::default());
    pair.switching();
    pair.cut();
    let state = pair.source.wait_state("an end, or doubt", |state| {
        phase(state).is_some_and(|phase| phase.is_final() || phase == MigrationPhase::Undecided)
    });
    if phase(&state) == Some(MigrationPhase::Undecided) {
        std::thread::sleep(Duration::from_secs(2));
        let (source, target_runs) = pair.running();
        assert!(!source, "in doubt the guest stands still at its source");
        if !target_runs {
            pair.target.command(Command::Kill).unwrap();
        }
        pair.source
            .call(|client| async move { client.settle_migration(&vmi_uid(), &migration(), target_runs).await })
            .unwrap();
        eprintln!("settled: the guest runs at the target: {target_runs}");
    }
    let before = last_tick(&serial.text());
    match pair.ended().phase {
        MigrationPhase::Completed => pair.moved(before),
        _ => pair.stayed(&serial),
    }
}
