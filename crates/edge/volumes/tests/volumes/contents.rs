//! Volumes, snapshots and clones, and what they hold.

use std::fs::File;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};

use volumeplan::create::From;
use volumeplan::{Code, Kind, NodeName, Range, Snapshot};
use volumes::{Class, Config, Engine, Error, Steps};

use crate::home::{Copies, Home, MIB, config, content, disk, fill, isolated, publication, snapshot_of, wanted};

const BOTH: [Kind; 2] = [Kind::Filesystem, Kind::Block];

fn refused(result: Result<impl std::fmt::Debug, Error>) -> Code {
    match result.unwrap_err().class() {
        Class::Refused(code) => code,
        Class::Internal => panic!("an internal error"),
    }
}

fn copies_are_equal(home: &Home) {
    let engine = home.engine();
    for kind in BOTH {
        let name = |name: &str| format!("{name}-{kind:?}");
        let base = engine.create_volume(&wanted(&name("base"), kind, 8, None)).unwrap();
        fill(&engine, &base);
        let before = content(&disk(&engine, &base), base.capacity);
        let snapshot = engine.create_snapshot(&snapshot_of(&name("snap"), base.id.as_ref())).unwrap();
        let clone = From::Volume(base.id.to_string());
        let clone = engine.create_volume(&wanted(&name("clone"), kind, 0, Some(clone))).unwrap();
        // From here on they have nothing in common.
        let file = File::options().write(true).open(disk(&engine, &base)).unwrap();
        file.write_all_at(b"changed", 100).unwrap();
        let restored = From::Snapshot(snapshot.id.to_string());
        let restored = engine.create_volume(&wanted(&name("restored"), kind, 16, Some(restored))).unwrap();
        engine.delete_volume(base.id.as_ref()).unwrap();
        engine.delete_snapshot(snapshot.id.as_ref()).unwrap();
        assert_eq!(clone.capacity, base.capacity);
        for copy in [&clone, &restored] {
            let path = disk(&engine, copy);
            assert!(content(&path, base.capacity) == before, "{kind:?}: the copy has another content");
            let meta = std::fs::metadata(&path).unwrap();
            assert!(meta.blocks() * 512 < 4 << 20, "the holes of {kind:?} were filled: {} blocks", meta.blocks());
        }
        if kind == Kind::Block {
            assert_eq!(std::fs::metadata(disk(&engine, &restored)).unwrap().len(), 16 << 20);
        }
    }
    assert_eq!(engine.list_volumes(0, "").unwrap().entries.len(), 4);
    assert_eq!(std::fs::read_dir(home.pool().join("work")).unwrap().count(), 0);
}

trait Text {
    fn as_ref(&self) -> &str;
}

impl<Id: volumeplan::PoolId> Text for Id {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

#[test]
fn snapshots_and_clones_equal_their_source_at_that_instant() {
    isolated("copies", Copies::Plain, copies_are_equal);
}

#[test]
fn so_they_do_where_the_file_system_has_reflinks() {
    isolated("reflinks", Copies::Reflinks, copies_are_equal);
}

/// Writes to a volume for as long as the copy of it takes.
fn copy_under_writes(home: &Home) -> Vec<Result<Snapshot, Error>> {
    let engine = home.engine();
    let volume = engine.create_volume(&wanted("busy", Kind::Block, 64, None)).unwrap();
    let path = disk(&engine, &volume);
    let file = File::options().write(true).open(path).unwrap();
    for at in 0..64 {
        file.write_all_at(&[7; MIB as usize], at << 20).unwrap();
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut at = 0;
            while !stop.load(Ordering::Relaxed) {
                file.write_all_at(b"x", at % (64 << 20)).unwrap();
                at += 4096;
            }
        });
        let taken = (0..3).map(|n| engine.create_snapshot(&snapshot_of(&format!("s{n}"), volume.id.as_ref())));
        let taken = taken.collect();
        stop.store(true, Ordering::Relaxed);
        taken
    })
}

#[test]
fn a_volume_that_is_written_to_is_copied_at_one_instant_or_not_at_all() {
    isolated("copies under writes", Copies::Plain, |home| {
        for taken in copy_under_writes(home) {
            assert_eq!(refused(taken), Code::FailedPrecondition);
        }
        assert_eq!(home.engine().list_snapshots("", "", 0, "").unwrap().entries, []);
        assert_eq!(std::fs::read_dir(home.pool().join("work")).unwrap().count(), 0);
    });
    isolated("reflinks under writes", Copies::Reflinks, |home| {
        for taken in copy_under_writes(home) {
            taken.unwrap();
        }
    });
}

#[test]
fn a_full_pool_refuses_and_keeps_nothing_of_the_attempt() {
    isolated("a full pool", Copies::Reflinks, |home| {
        let engine = home.engine();
        assert_eq!(refused(engine.create_volume(&wanted("huge", Kind::Block, 1 << 20, None))), Code::ResourceExhausted);
        let volume = engine.create_volume(&wanted("v", Kind::Block, 8, None)).unwrap();
        let huge = Range { required: 1 << 40, limit: 0 };
        assert_eq!(refused(engine.grow(volume.id.as_ref(), huge)), Code::OutOfRange);
        let copied = engine.create_volume(&wanted("small", Kind::Block, 4, Some(From::Volume(volume.id.to_string()))));
        assert_eq!(refused(copied), Code::OutOfRange);
        assert_eq!(engine.list_volumes(0, "").unwrap().entries, [volume]);
    });
}

#[test]
fn a_copy_that_does_not_fit_leaves_nothing() {
    isolated("a copy that does not fit", Copies::Plain, |home| {
        hostfs::mounts::tmpfs(home.pool(), 0o700, Some(8 << 20)).unwrap();
        let engine = home.engine();
        let volume = engine.create_volume(&wanted("v", Kind::Block, 6, None)).unwrap();
        let file = File::options().write(true).open(disk(&engine, &volume)).unwrap();
        file.write_all_at(&[7; 5 << 20], 0).unwrap();
        let taken = engine.create_snapshot(&snapshot_of("s", volume.id.as_ref()));
        assert_eq!(refused(taken), Code::ResourceExhausted);
        assert_eq!(engine.list_snapshots("", "", 0, "").unwrap().entries, []);
        assert_eq!(std::fs::read_dir(home.pool().join("work")).unwrap().count(), 0);
        assert!(content(&disk(&engine, &volume), 5 << 20).iter().all(|byte| *byte == 7));
        drop((file, engine));
        hostfs::mounts::umount_all_below(home.pool()).unwrap();
    });
}

#[test]
fn two_requests_for_one_volume_make_one_volume() {
    isolated("two requests", Copies::Plain, |home| {
        let engines = [home.engine(), home.engine()];
        let request = wanted("v", Kind::Block, 8, None);
        let made: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|n| {
                    let (engine, request) = (&engines[n % 2], &request);
                    scope.spawn(move || engine.create_volume(request))
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect()
        });
        assert!(made.iter().all(|volume| *volume == made[0]));
        assert_eq!(engines[0].list_volumes(0, "").unwrap().entries.len(), 1);
    });
}

/// Stops a copy before it begins, until told to go on.
struct Hold(Barrier);

impl Steps for Hold {
    fn before(&self, step: &'static str) {
        if step == "copy the content" {
            self.0.wait();
            self.0.wait();
        }
    }
}

#[test]
fn a_long_copy_is_not_disturbed_and_disturbs_no_pod() {
    isolated("a long copy", Copies::Plain, |home| {
        let hold = Arc::new(Hold(Barrier::new(2)));
        let copying = Engine::open(Config { steps: hold.clone(), ..config(home.path()) }).unwrap();
        let volume = copying.create_volume(&wanted("v", Kind::Block, 8, None)).unwrap();
        let (id, request) = (volume.id.as_ref(), snapshot_of("s", volume.id.as_ref()));
        std::thread::scope(|scope| {
            let copy = scope.spawn(|| copying.create_snapshot(&request));
            hold.0.wait();
            // Another process, as in an update of the driver.
            let engine = home.engine();
            assert_eq!(std::fs::read_dir(home.pool().join("work")).unwrap().count(), 1, "it was cleared up");
            assert_eq!(refused(engine.create_snapshot(&request)), Code::Aborted);
            assert_eq!(refused(engine.delete_volume(id)), Code::Aborted);
            assert_eq!(refused(engine.grow(id, Range { required: 16 * MIB, limit: 0 })), Code::Aborted);
            let target = home.target("a");
            engine.publish(id, &publication(&target, Kind::Block, false)).unwrap();
            engine.unpublish(id, &target).unwrap();
            hold.0.wait();
            let made = copy.join().unwrap().unwrap();
            assert_eq!(engine.create_snapshot(&request).unwrap(), made);
            engine.delete_volume(id).unwrap();
        });
    });
}

#[test]
fn a_pool_is_used_by_whom_it_belongs_to() {
    isolated("another's pool", Copies::Plain, |home| {
        drop(home.engine());
        let other = Config { reach: volumeplan::Reach::Shared, ..config(home.path()) };
        assert!(matches!(Engine::open(other), Err(Error::OtherPool { .. })));
        let other = Config::local(home.pool(), NodeName::parse("node-2").unwrap());
        let error = Engine::open(other).err().unwrap().to_string();
        assert!(error.contains("belongs to node node-1, not to node node-2"), "{error}");
        std::fs::write(home.pool().join("pool.json"), r#"{"format": 9, "reach": "Shared"}"#).unwrap();
        assert!(matches!(Engine::open(config(home.path())), Err(Error::Newer { .. })));
    });
}

#[test]
fn what_another_node_has_is_neither_deleted_nor_copied_here() {
    isolated("two nodes", Copies::Plain, |home| {
        std::fs::create_dir(home.path().join("pool2")).unwrap();
        let here = home.engine();
        let there = Engine::open(Config::local(home.path().join("pool2"), NodeName::parse("node-2").unwrap())).unwrap();
        let volume = there.create_volume(&wanted("v", Kind::Block, 8, None)).unwrap();
        let id = volume.id.to_string();
        assert_eq!(refused(here.delete_volume(&id)), Code::FailedPrecondition);
        let copied = here.create_volume(&wanted("c", Kind::Block, 8, Some(From::Volume(id.clone()))));
        assert_eq!(refused(copied), Code::ResourceExhausted);
        // The cluster's resizer may ask any driver; the node that has the volume grows it.
        let range = Range { required: 16 * MIB, limit: 0 };
        let grown = here.grow(&id, range).unwrap();
        assert_eq!((grown.capacity, grown.on_node), (16 << 20, true));
        assert_eq!(there.grow_on_node(&id, "/some/path", range).unwrap(), 16 << 20);
        assert_eq!(there.volume(&id).unwrap().0.capacity, 16 << 20);
    });
}

/// Not a test that passes or fails everywhere: a figure for the documents. It writes 10 GiB.
#[test]
#[ignore = "writes 10 GiB; run by hand to measure"]
fn how_long_a_clone_of_10_gib_takes() {
    isolated("a clone of 10 GiB", Copies::Plain, |home| {
        let xfs = test_support::xfs::Xfs::mount(home.path(), "large", 24 << 30).unwrap();
        let local = Config::local(xfs.path(), NodeName::parse("node-1").unwrap());
        let engine = Engine::open(local).unwrap();
        let volume = engine.create_volume(&wanted("v", Kind::Block, 10 << 10, None)).unwrap();
        let file = File::options().write(true).open(disk(&engine, &volume)).unwrap();
        let block: Vec<u8> = (0..4 * MIB as usize).map(|byte| (byte * 31 % 253) as u8).collect();
        for at in (0..10_u64 << 30).step_by(block.len()) {
            file.write_all_at(&block, at).unwrap();
        }
        file.sync_all().unwrap();
        let allocated = file.metadata().unwrap().blocks() * 512;
        for n in 0..5 {
            let started = std::time::Instant::now();
            let from = From::Volume(volume.id.to_string());
            engine.create_volume(&wanted(&format!("c{n}"), Kind::Block, 0, Some(from))).unwrap();
            let cloned = started.elapsed();
            engine.create_snapshot(&snapshot_of(&format!("s{n}"), volume.id.as_ref())).unwrap();
            let both = started.elapsed();
            eprintln!("{allocated} bytes allocated: clone {cloned:?}, snapshot {:?}", both - cloned);
        }
    });
}
