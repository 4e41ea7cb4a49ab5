//! The engine is killed at every step, and at moments of the clock's choice; what is there afterwards must make sense.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use volumeplan::create::From;
use volumeplan::{Kind, PoolId as _, Range, Reach, RequestName, SnapshotId, VolumeId};
use volumes::{Config, Engine, Error, Steps};

use crate::home::{Copies, Home, MIB, config, content, disk, fill, isolated, publication, snapshot_of, wanted};
use crate::published::attached;

/// What the child works on: its directory, the kind of volumes, and the step at which it is killed (0: none, again and
/// again until the parent kills it).
const TASK: &str = "FERROVIRT_TEST_CRASH";
const SIZE: u64 = 4 << 20;
const HOLDER: &str = "the import of the claim default/base";
const KILLED: i32 = 9;
/// More steps than the story has.
const STEPS_MAX: usize = 400;

/// Kills the process without a chance to clear up.
struct KillAt {
    step: usize,
    seen: AtomicUsize,
}

impl Steps for KillAt {
    fn before(&self, step: &'static str) {
        if self.seen.fetch_add(1, Ordering::Relaxed) + 1 == self.step {
            eprintln!("killed before: {step}");
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
        }
    }
}

fn ids(engine: &Engine) -> impl Fn(&str) -> (String, String) {
    let reach: Reach = engine.reach().clone();
    move |name| {
        let name = RequestName::parse(name).unwrap();
        (VolumeId::derive(&name, &reach).to_string(), SnapshotId::derive(&name, &reach).to_string())
    }
}

/// One thing after another that an engine does. Each can be repeated.
fn story(engine: &Engine, home: &Path, kind: Kind, tell: &mut dyn FnMut(&str)) -> Result<(), Error> {
    let ids = ids(engine);
    let (volume, snapshot) = (|name: &str| ids(name).0, |name: &str| ids(name).1);
    let target = home.join("kubelet/pods/target").to_str().unwrap().to_owned();
    let larger = Range { required: 8 * MIB, limit: 0 };
    type Act<'a> = Box<dyn Fn() -> Result<(), Error> + 'a>;
    let acts: Vec<(&str, Act<'_>)> = vec![
        ("snapshot s", Box::new(|| engine.create_snapshot(&snapshot_of("s", &volume("base"))).map(drop))),
        ("volume c", {
            let from = From::Snapshot(snapshot("s"));
            Box::new(move || engine.create_volume(&wanted("c", kind, 8, Some(from.clone()))).map(drop))
        }),
        ("volume d", {
            let from = From::Volume(volume("base"));
            Box::new(move || engine.create_volume(&wanted("d", kind, 0, Some(from.clone()))).map(drop))
        }),
        ("publish", Box::new(|| engine.publish(&volume("base"), &publication(&target, kind, false)))),
        ("grow", Box::new(|| engine.grow(&volume("base"), larger).map(drop))),
        ("grow on node", Box::new(|| engine.grow_on_node(&volume("base"), &target, larger).map(drop))),
        ("unpublish", Box::new(|| engine.unpublish(&volume("base"), &target))),
        ("hold", Box::new(|| engine.hold(&volume("base"), HOLDER).map(drop))),
        ("release", Box::new(|| engine.release_hold(&volume("base"), HOLDER))),
        ("snapshot t", Box::new(|| engine.create_snapshot(&snapshot_of("t", &volume("base"))).map(drop))),
        ("delete d", Box::new(|| engine.delete_volume(&volume("d")))),
        ("delete s", Box::new(|| engine.delete_snapshot(&snapshot("s")))),
    ];
    for (name, act) in acts {
        tell(&format!("begin {name}"));
        act()?;
        tell(&format!("done {name}"));
    }
    Ok(())
}

/// Not a test: what the tests below run in a process of its own, and kill.
#[test]
fn child() {
    let Ok(task) = std::env::var(TASK) else { return };
    let words: Vec<&str> = task.split('|').collect();
    let [home, kind, step] = words[..] else { panic!("{task}") };
    let (home, kind, step) = (PathBuf::from(home), parse(kind), step.parse().unwrap());
    // Opened anew each time: the file is removed at the end of a story.
    let mut tell = |text: &str| {
        let told = OpenOptions::new().create(true).append(true).open(home.join("told")).unwrap();
        writeln!(&told, "{text}").unwrap();
    };
    let steps = Arc::new(KillAt { step, seen: AtomicUsize::new(0) });
    let engine = Engine::open(Config { steps, ..config(&home) }).unwrap();
    engine.release_hold(&ids(&engine)("base").0, HOLDER).unwrap();
    loop {
        story(&engine, &home, kind, &mut tell).unwrap();
        if step > 0 {
            return;
        }
        let _ = fs::remove_file(home.join("told"));
        let c = ids(&engine)("c").0;
        let t = ids(&engine)("t").1;
        engine.delete_volume(&c).unwrap();
        engine.delete_snapshot(&t).unwrap();
    }
}

fn parse(kind: &str) -> Kind {
    if kind == "Block" { Kind::Block } else { Kind::Filesystem }
}

fn start(home: &Home, kind: Kind, step: usize) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crashes::child", "--nocapture", "--test-threads=1"])
        .env(TASK, format!("{}|{kind:?}|{step}", home.path().display()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(home.path().join("said")).unwrap())
        .spawn()
        .unwrap()
}

/// Makes the volume that the story is about, and returns its content.
fn base(home: &Home, kind: Kind) -> Vec<u8> {
    let engine = home.engine();
    let volume = engine.create_volume(&wanted("base", kind, 4, None)).unwrap();
    fill(&engine, &volume);
    content(&disk(&engine, &volume), SIZE)
}

/// Every file of the pool below this folder that is there for a reason.
fn names(pool: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![pool.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else {
                found.insert(entry.path().strip_prefix(pool).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found
}

/// What must hold whenever an engine has opened the pool.
fn nothing_is_torn(home: &Home, engine: &Engine, kind: Kind, data: &[u8], when: &str) {
    let told = fs::read_to_string(home.path().join("told")).unwrap_or_default();
    let happened = |what: &str| told.lines().any(|line| line == what);
    assert_eq!(fs::read_dir(home.pool().join("work")).unwrap().count(), 0, "{when}: left in work");
    let volumes = engine.list_volumes(0, "").unwrap().entries;
    for volume in &volumes {
        assert!(content(&disk(engine, volume), SIZE) == data, "{when}: volume {} was damaged", volume.name);
        if kind == Kind::Block {
            let size = fs::metadata(disk(engine, volume)).unwrap().len();
            assert_eq!(size, volume.capacity, "{when}: volume {}", volume.name);
        }
    }
    let snapshots = engine.list_snapshots("", "", 0, "").unwrap().entries;
    for snapshot in &snapshots {
        let folder = home.pool().join("snapshots").join(snapshot.id.as_str());
        let file = if kind == Kind::Block { folder.join("disk.img") } else { folder.join("data/disk.img") };
        assert!(content(&file, SIZE) == data, "{when}: snapshot {} was damaged", snapshot.name);
    }
    let has_volume = |name: &str| volumes.iter().any(|volume| volume.name == name);
    let has_snapshot = |name: &str| snapshots.iter().any(|snapshot| snapshot.name == name);
    assert!(has_volume("base"), "{when}: the volume is lost");
    for (name, made, is_there, removal) in [
        ("c", "done volume c", has_volume("c"), "begin never"),
        ("d", "done volume d", has_volume("d"), "begin delete d"),
        ("s", "done snapshot s", has_snapshot("s"), "begin delete s"),
        ("t", "done snapshot t", has_snapshot("t"), "begin never"),
    ] {
        assert!(is_there || !happened(made) || happened(removal), "{when}: {name} was promised and is lost");
    }
    assert!(!happened("done delete d") || !has_volume("d"), "{when}: d is back");
    assert!(!happened("done delete s") || !has_snapshot("s"), "{when}: s is back");
    let id = ids(engine)("base").0;
    let is_held = engine.volume(&id).unwrap().1.hold.is_some();
    let released = happened("begin release");
    assert!(is_held || !happened("done hold") || released, "{when}: a hold was promised and is lost");
    assert!(!is_held || happened("begin hold") && !happened("done release"), "{when}: a hold nobody has");
    let published = !engine.volume(&id).unwrap().1.publications.is_empty();
    let target = home.target("target");
    assert_eq!(hostfs::mounts::is_mount_point(&target).unwrap(), published, "{when}: mount and record differ");
    assert_eq!(attached(home.path()), usize::from(published && kind == Kind::Block), "{when}: loop devices");
    assert!(published || !happened("done publish") || happened("begin unpublish"), "{when}: a Pod has lost its volume");
}

/// Opens the pool as the next process would, checks it, and does everything that is left to do.
fn recovers(home: &Home, kind: Kind, data: &[u8], when: &str) {
    let engine = home.engine();
    // A mount that an interrupted `unpublish` has removed stays on record until the kubelet asks again.
    let target = home.target("target");
    let told = fs::read_to_string(home.path().join("told")).unwrap_or_default();
    let times = |what: &str| told.lines().filter(|line| *line == what).count();
    if times("begin unpublish") > times("done unpublish") {
        engine.unpublish(&ids(&engine)("base").0, &target).unwrap();
    }
    nothing_is_torn(home, &engine, kind, data, when);
    // A hold stays until its holder comes back.
    engine.release_hold(&ids(&engine)("base").0, HOLDER).unwrap();
    story(&engine, home.path(), kind, &mut |_| {}).unwrap_or_else(|error| panic!("{when}: the retry failed: {error}"));
    let engine = home.engine();
    let found = names(&home.pool());
    let ids = ids(&engine);
    let file = if kind == Kind::Block { "disk.img" } else { "data/disk.img" };
    let mut expected = BTreeSet::from(["lock".to_owned(), "pool.json".to_owned()]);
    for folder in
        [format!("volumes/{}", ids("base").0), format!("volumes/{}", ids("c").0), format!("snapshots/{}", ids("t").1)]
    {
        expected.extend([format!("{folder}/record.json"), format!("{folder}/{file}")]);
    }
    assert_eq!(found, expected, "{when}");
    assert_eq!(attached(home.path()), 0, "{when}");
    for volume in engine.list_volumes(0, "").unwrap().entries {
        assert_eq!(volume.capacity, 8 << 20, "{when}");
        assert!(content(&disk(&engine, &volume), SIZE) == data, "{when}: volume {} was damaged", volume.name);
    }
}

/// What a writer of a record leaves that is killed between two system calls.
#[test]
fn records_that_were_being_written_are_swept() {
    isolated("half-written records", Copies::Plain, |home| {
        let data = base(home, Kind::Block);
        let folder = home.pool().join("volumes").join(ids(&home.engine())("base").0);
        for left in [home.pool().join(".pool.json.7-0.tmp"), folder.join(".record.json.7-1.tmp")] {
            fs::write(left, "{").unwrap();
        }
        fs::write(folder.join("published/.x.json.7-2.tmp"), "{").unwrap();
        recovers(home, Kind::Block, &data, "half-written records");
    });
}

fn killed_at_every_step(copies: Copies, kind: Kind) {
    isolated("crashes", copies, |_| {
        for step in 1..STEPS_MAX {
            let home = Home::new(copies).unwrap();
            let data = base(&home, kind);
            let status = start(&home, kind, step).wait().unwrap();
            let said = fs::read_to_string(home.path().join("said")).unwrap();
            if status.success() {
                assert!(step > 40, "the story has more steps than {step}");
                eprintln!("{kind:?}, {copies:?}: killed at each of {} steps", step - 1);
                return;
            }
            assert_eq!(status.signal(), Some(KILLED), "{said}");
            let at = said.lines().find(|line| line.starts_with("killed before")).unwrap_or_default();
            recovers(&home, kind, &data, &format!("step {step}, {at}"));
        }
        panic!("the story never ends");
    });
}

#[test]
fn block_volumes_survive_a_kill_at_every_step() {
    killed_at_every_step(Copies::Plain, Kind::Block);
}

#[test]
fn file_system_volumes_survive_a_kill_at_every_step() {
    killed_at_every_step(Copies::Plain, Kind::Filesystem);
}

/// The process that clears up after a crash is killed, too.
#[test]
fn a_kill_while_an_earlier_one_is_mended_is_survived() {
    for kind in [Kind::Block, Kind::Filesystem] {
        isolated("a second crash", Copies::Plain, |_| {
            for step in (8..50).step_by(3) {
                let home = Home::new(Copies::Plain).unwrap();
                let data = base(&home, kind);
                start(&home, kind, step).wait().unwrap();
                let second = 4 + step % 5;
                let status = start(&home, kind, second).wait().unwrap();
                assert_eq!(status.signal(), Some(KILLED), "step {step}, then {second}");
                recovers(&home, kind, &data, &format!("step {step}, then {second}"));
            }
        });
    }
}

#[test]
fn a_kill_at_any_moment_is_survived_too() {
    for (copies, kind) in [(Copies::Reflinks, Kind::Block), (Copies::Plain, Kind::Filesystem)] {
        isolated("kills at any moment", copies, |home| {
            let data = base(home, kind);
            for round in 0..12_u64 {
                let _ = fs::remove_file(home.path().join("told"));
                let mut child = start(home, kind, 0);
                // From before it has opened the pool to some times through the story.
                std::thread::sleep(Duration::from_millis(5 + round * 37 % 200));
                child.kill().unwrap();
                child.wait().unwrap();
                recovers(home, kind, &data, &format!("round {round}"));
            }
        });
    }
}
