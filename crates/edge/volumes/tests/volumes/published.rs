//! Volumes at paths of Pods.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use volumeplan::{AccessMode, Code, Kind, PoolId as _, Publish, Range, Users, Volume, create};
use volumes::{Class, Error};

use crate::home::{Copies, Home, MIB, capability, isolated, publication, snapshot_of, wanted};

pub(crate) fn code(error: &Error) -> Option<Code> {
    match error.class() {
        Class::Refused(code) => Some(code),
        Class::Internal => None,
    }
}

/// The files that loop devices are attached to, below a directory.
pub(crate) fn attached(dir: &Path) -> usize {
    let dir = dir.canonicalize().unwrap();
    let files = fs::read_dir("/sys/block")
        .unwrap()
        .filter_map(|entry| fs::read_to_string(entry.unwrap().path().join("loop/backing_file")).ok());
    files.filter(|file| Path::new(file.trim_end()).starts_with(&dir) && !file.contains(".image")).count()
}

fn size_of_device(path: &str) -> u64 {
    File::open(path).unwrap().seek(SeekFrom::End(0)).unwrap()
}

/// What the kernel says of the loop device at a path.
fn of_device(path: &str, file: &str) -> String {
    let rdev = fs::metadata(path).unwrap().rdev();
    let number = rustix::fs::minor(rdev);
    fs::read_to_string(format!("/sys/block/loop{number}/{file}")).unwrap().trim().to_owned()
}

/// What a guest has discarded, the pool gets back; and nothing is cached twice.
fn devices_discard_and_use_direct_io(home: &Home) {
    let engine = home.engine();
    let volume = engine.create_volume(&wanted("v", Kind::Block, 8, None)).unwrap();
    let (id, target) = (volume.id.as_str(), home.target("a"));
    engine.publish(id, &publication(&target, Kind::Block, false)).unwrap();
    assert_eq!(of_device(&target, "loop/dio"), "1");
    let mut device = File::options().write(true).open(&target).unwrap();
    device.write_all(&[1; 4 << 20]).unwrap();
    device.sync_all().unwrap();
    drop(device);
    let allocated = || fs::metadata(engine.content(&volume)).unwrap().blocks() * 512;
    assert!(allocated() >= 4 << 20);
    let discarded = Command::new("blkdiscard").env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin").arg(&target).status();
    assert!(discarded.unwrap().success());
    assert!(allocated() < 1 << 20, "{} bytes are still taken", allocated());
    engine.unpublish(id, &target).unwrap();
}

#[test]
fn devices_give_back_what_is_discarded() {
    isolated("discards on XFS", Copies::Reflinks, devices_discard_and_use_direct_io);
}

fn block_volumes_are_devices(home: &Home) {
    let engine = home.engine();
    let volume = engine.create_volume(&wanted("v", Kind::Block, 8, None)).unwrap();
    let (id, target, second) = (volume.id.as_str(), home.target("a"), home.target("b"));
    for _ in 0..2 {
        engine.publish(id, &publication(&target, Kind::Block, false)).unwrap();
        engine.publish(id, &publication(&second, Kind::Block, false)).unwrap();
    }
    let meta = fs::metadata(&target).unwrap();
    assert!(meta.file_type().is_block_device());
    assert_eq!(meta.rdev(), fs::metadata(&second).unwrap().rdev(), "Pods of one node share the device");
    assert_eq!(attached(home.path()), 1);
    let mut device = File::options().write(true).open(&target).unwrap();
    device.write_all(b"written by a Pod").unwrap();
    device.sync_all().unwrap();
    drop(device);
    let mut content = [0; 16];
    File::open(engine.content(&volume)).unwrap().read_exact(&mut content).unwrap();
    assert_eq!(&content, b"written by a Pod");

    let range = Range { required: 16 * MIB, limit: 0 };
    assert!(engine.grow(id, range).unwrap().on_node);
    assert_eq!(engine.grow_on_node(id, &target, range).unwrap(), 16 << 20);
    assert_eq!(size_of_device(&target), 16 << 20);
    let usage = engine.usage(id, &target).unwrap();
    assert_eq!(usage.total, 16 << 20);
    assert!(usage.used >= 4096 && usage.used < 1 << 20, "{usage:?}");

    // Another process takes over.
    let engine = home.engine();
    assert_eq!(code(&engine.delete_volume(id).unwrap_err()), Some(Code::FailedPrecondition));
    for path in [&target, &target, &second] {
        engine.unpublish(id, path).unwrap();
        assert!(!Path::new(path).exists());
    }
    assert_eq!(attached(home.path()), 0);
    engine.delete_volume(id).unwrap();
    engine.delete_volume(id).unwrap();
}

#[test]
fn block_volumes_are_devices_that_grow_while_they_are_used() {
    isolated("block volumes", Copies::Plain, block_volumes_are_devices);
    isolated("block volumes on XFS", Copies::Reflinks, block_volumes_are_devices);
}

#[test]
fn devices_of_all_nodes_of_a_machine_grow_from_one_process() {
    isolated("devices of several nodes", Copies::Plain, |home| {
        let [controller, first, second] = ["supervisor", "n1", "n2"].map(|name| home.shared(name));
        let shared = |target: &str, read_only| Publish {
            capability: capability(Kind::Block, AccessMode::MultiNodeMultiWriter),
            ..publication(target, Kind::Block, read_only)
        };
        let request = create::Request {
            capabilities: vec![capability(Kind::Block, AccessMode::MultiNodeMultiWriter)],
            ..wanted("v", Kind::Block, 8, None)
        };
        let volume = controller.create_volume(&request).unwrap();
        let id = volume.id.as_str();
        let [writer, reader, other] = ["writer", "reader", "other"].map(|name| home.target(name));
        first.publish(id, &shared(&writer, false)).unwrap();
        first.publish(id, &shared(&reader, true)).unwrap();
        second.publish(id, &shared(&other, false)).unwrap();
        assert_eq!(attached(home.path()), 3, "one of each node that writes, and one that only reads");
        assert!(controller.grow(id, Range { required: 16 * MIB, limit: 0 }).unwrap().on_node);
        for target in [&writer, &reader, &other] {
            assert_eq!(size_of_device(target), 8 << 20, "{target}");
        }
        for _ in 0..2 {
            controller.grow_devices(id).unwrap();
        }
        for target in [&writer, &reader, &other] {
            assert_eq!(size_of_device(target), 16 << 20, "{target}");
        }
        first.unpublish(id, &writer).unwrap();
        first.unpublish(id, &reader).unwrap();
        second.unpublish(id, &other).unwrap();
        controller.grow_devices(id).unwrap();
        assert_eq!(attached(home.path()), 0);
    });
}

#[test]
fn writes_through_a_device_are_noticed_by_a_copy_that_is_not_of_one_instant() {
    isolated("writes through a device", Copies::Plain, |home| {
        let engine = home.engine();
        let volume = engine.create_volume(&wanted("v", Kind::Block, 64, None)).unwrap();
        let (id, target) = (volume.id.as_str(), home.target("a"));
        engine.publish(id, &publication(&target, Kind::Block, false)).unwrap();
        let mut device = File::options().write(true).open(&target).unwrap();
        device.write_all(&[7; 64 << 20]).unwrap();
        device.sync_all().unwrap();
        let stop = AtomicBool::new(false);
        let refused = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    device.write_all_at(&[8; 4096], 4096).unwrap();
                    device.sync_data().unwrap();
                }
            });
            let taken = engine.create_snapshot(&snapshot_of("s", id));
            stop.store(true, Ordering::Relaxed);
            taken.unwrap_err()
        });
        assert_eq!(code(&refused), Some(Code::FailedPrecondition), "{refused}");
        // A guest that is frozen does not write.
        engine.create_snapshot(&snapshot_of("s", id)).unwrap();
        drop(device);
        engine.unpublish(id, &target).unwrap();
    });
}

#[test]
fn a_device_that_only_reads_cannot_be_written_to() {
    isolated("read-only devices", Copies::Plain, |home| {
        let engine = home.engine();
        let volume = engine.create_volume(&wanted("v", Kind::Block, 8, None)).unwrap();
        let (id, target) = (volume.id.as_str(), home.target("a"));
        engine.publish(id, &publication(&target, Kind::Block, true)).unwrap();
        let opened = File::options().write(true).open(&target);
        let refused = opened.and_then(|mut device| device.write_all(&[1; 4096]).and_then(|()| device.sync_all()));
        assert!(refused.is_err());
        engine.unpublish(id, &target).unwrap();
        assert_eq!(attached(home.path()), 0);
    });
}

#[test]
fn file_system_volumes_are_directories() {
    isolated("file system volumes", Copies::Plain, |home| {
        let engine = home.engine();
        let volume = engine.create_volume(&wanted("v", Kind::Filesystem, 8, None)).unwrap();
        let (id, target, reader) = (volume.id.as_str(), home.target("a"), home.target("reader"));
        engine.publish(id, &publication(&target, Kind::Filesystem, false)).unwrap();
        engine.publish(id, &publication(&reader, Kind::Filesystem, true)).unwrap();
        engine.publish(id, &publication(&reader, Kind::Filesystem, true)).unwrap();
        fs::write(Path::new(&target).join("f"), "x").unwrap();
        assert_eq!(fs::read_to_string(Path::new(&reader).join("f")).unwrap(), "x");
        let error = fs::write(Path::new(&reader).join("f"), "y").unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
        assert!(engine.usage(id, &target).unwrap().inodes.is_some());
        assert_eq!(code(&engine.usage(id, "some/path").unwrap_err()), Some(Code::NotFound));
        let changed = engine.publish(id, &publication(&target, Kind::Filesystem, true)).unwrap_err();
        assert_eq!(code(&changed), Some(Code::AlreadyExists));

        let open = File::open(Path::new(&target).join("f")).unwrap();
        assert!(engine.unpublish(id, &target).is_err(), "a volume that is in use is not declared to be gone");
        assert_eq!(code(&engine.delete_volume(id).unwrap_err()), Some(Code::FailedPrecondition));
        drop(open);
        for path in [&target, &reader] {
            engine.unpublish(id, path).unwrap();
        }
        assert_eq!(fs::read_to_string(engine.content(&volume).join("f")).unwrap(), "x");
        engine.delete_volume(id).unwrap();
    });
}

#[test]
fn nothing_is_mounted_outside_of_the_kubelets_directory() {
    isolated("safe targets", Copies::Plain, |home| {
        let engine = home.engine();
        let volume = engine.create_volume(&wanted("v", Kind::Filesystem, 8, None)).unwrap();
        let id = volume.id.as_str();
        let outside = home.path().join("outside");
        fs::create_dir_all(outside.join("inner")).unwrap();
        symlink(&outside, home.kubelet().join("link")).unwrap();
        symlink(&outside, home.kubelet().join("pods/link")).unwrap();
        for target in ["link/a", "link/inner", "../outside/a", "pods/link", "nowhere/a"] {
            let target = home.kubelet().join(target).to_str().unwrap().to_owned();
            assert!(engine.publish(id, &publication(&target, Kind::Filesystem, false)).is_err(), "{target}");
            assert_eq!(engine.volume(id).unwrap().1, Users::default(), "{target}");
        }
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
        // What somebody else has mounted, or has put there, stays.
        let taken = home.target("taken");
        fs::create_dir(&taken).unwrap();
        hostfs::mounts::tmpfs(&taken, 0o755, None).unwrap();
        let error = engine.publish(id, &publication(&taken, Kind::Filesystem, false)).unwrap_err();
        assert_eq!(code(&error), Some(Code::FailedPrecondition));
        engine.unpublish(id, &taken).unwrap();
        assert!(hostfs::mounts::is_mount_point(&taken).unwrap());
        let file = home.target("file");
        fs::write(&file, "kept").unwrap();
        assert!(engine.unpublish(id, &file).is_err());
        assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
        engine.delete_volume(id).unwrap();
    });
}

#[test]
fn a_volume_for_one_pod_or_one_node_is_given_to_no_second_one() {
    isolated("second users", Copies::Plain, |home| {
        let (here, there) = (home.shared("node-1"), home.shared("node-2"));
        let volume = here.create_volume(&wanted("v", Kind::Filesystem, 8, None)).unwrap();
        let id = volume.id.as_str();
        let publish = |target: &str, mode| Publish {
            target: home.target(target),
            read_only: false,
            capability: capability(Kind::Filesystem, mode),
        };
        here.publish(id, &publish("a", AccessMode::SingleNodeMultiWriter)).unwrap();
        here.publish(id, &publish("b", AccessMode::SingleNodeMultiWriter)).unwrap();
        for (engine, mode) in [
            (&here, AccessMode::SingleNodeSingleWriter),
            (&there, AccessMode::SingleNodeMultiWriter),
            (&there, AccessMode::MultiNodeMultiWriter),
        ] {
            let error = engine.publish(id, &publish("c", mode)).unwrap_err();
            assert_eq!(code(&error), Some(Code::FailedPrecondition), "{mode:?}: {error}");
        }
        assert_eq!(code(&there.delete_volume(id).unwrap_err()), Some(Code::FailedPrecondition));
        for path in ["a", "b"] {
            here.unpublish(id, &home.target(path)).unwrap();
        }
        here.publish(id, &publish("a", AccessMode::MultiNodeMultiWriter)).unwrap();
        there.publish(id, &publish("c", AccessMode::MultiNodeMultiWriter)).unwrap();
        fs::write(Path::new(&home.target("a")).join("f"), "seen by both").unwrap();
        assert_eq!(fs::read_to_string(Path::new(&home.target("c")).join("f")).unwrap(), "seen by both");
        // A node that starts anew neither forgets nor disturbs what another has.
        drop(home.shared("node-2"));
        here.unpublish(id, &home.target("a")).unwrap();
        assert_eq!(code(&here.delete_volume(id).unwrap_err()), Some(Code::FailedPrecondition));
        there.unpublish(id, &home.target("c")).unwrap();
        here.delete_volume(id).unwrap();
    });
}

/// What a reboot leaves: records, and neither mounts nor devices.
#[test]
fn publications_end_with_the_boot_they_were_made_in() {
    isolated("reboots", Copies::Plain, |home| {
        let engine = home.engine();
        let make = |name: &str, kind| -> Volume {
            let volume = engine.create_volume(&wanted(name, kind, 8, None)).unwrap();
            engine.publish(volume.id.as_str(), &publication(&home.target(name), kind, false)).unwrap();
            volume
        };
        let volumes = [make("files", Kind::Filesystem), make("block", Kind::Block)];
        drop(home.engine());
        hostfs::mounts::umount_all_below(home.kubelet()).unwrap();
        for volume in &volumes {
            assert_eq!(
                engine.volume(volume.id.as_str()).unwrap().1.publications.len(),
                1,
                "a mount that is not seen is not gone"
            );
            let records = home.pool().join("volumes").join(volume.id.as_str()).join("published");
            for record in fs::read_dir(records).unwrap() {
                let path = record.unwrap().path();
                let mut value: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
                value["boot"] = 1.into();
                fs::write(&path, value.to_string()).unwrap();
            }
        }
        let engine = home.engine();
        assert_eq!(attached(home.path()), 0);
        for volume in &volumes {
            assert_eq!(engine.volume(volume.id.as_str()).unwrap().1, Users::default());
            engine.delete_volume(volume.id.as_str()).unwrap();
        }
    });
}
