//! Volumes that are filled without a Pod.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;

use hostfs::beneath::descriptor_path;
use volumeplan::create::From;
use volumeplan::{Code, Kind, PoolId as _, Range, Users};

use crate::home::{Copies, Home, MIB, content, disk, isolated, publication, snapshot_of, wanted};
use crate::published::{attached, code};

const IMPORT: &str = "the import of the claim default/a";

fn nobody_else_uses_a_held_volume(home: &Home, kind: Kind) {
    let engine = home.shared("supervisor");
    let node = home.shared("node-1");
    let volume = engine.create_volume(&wanted("v", kind, 8, None)).unwrap();
    let (id, target) = (volume.id.as_str(), home.target("a"));
    let held = engine.hold(id, IMPORT).unwrap();
    assert_eq!((held.kind, held.capacity), (kind, 8 << 20));
    match kind {
        Kind::Block => File::from(held.directory_or_file).write_all_at(b"imported", 0).unwrap(),
        Kind::Filesystem => {
            fs::write(descriptor_path(&held.directory_or_file).join("disk.img"), "imported").unwrap();
        }
    }
    assert_eq!(content(&disk(&engine, &volume), 8), b"imported");

    // The process is killed, and the next one comes.
    let engine = home.shared("supervisor");
    assert_eq!(engine.volume(id).unwrap().1.hold.unwrap().holder, IMPORT);
    engine.release_hold(id, "somebody else").unwrap();
    let clone = wanted("clone", kind, 8, Some(From::Volume(id.to_owned())));
    for refused in [
        node.publish(id, &publication(&target, kind, true)).unwrap_err(),
        engine.delete_volume(id).unwrap_err(),
        engine.create_snapshot(&snapshot_of("s", id)).unwrap_err(),
        engine.create_volume(&clone).unwrap_err(),
        engine.hold(id, "another import").unwrap_err(),
    ] {
        assert_eq!(code(&refused), Some(Code::FailedPrecondition), "{refused}");
        assert!(refused.to_string().contains(IMPORT), "{refused}");
    }
    assert_eq!(attached(home.path()), 0);
    engine.grow(id, Range { required: 16 * MIB, limit: 0 }).unwrap();
    assert_eq!(engine.hold(id, IMPORT).unwrap().capacity, 16 << 20, "the holder may come again");

    for _ in 0..2 {
        engine.release_hold(id, IMPORT).unwrap();
    }
    assert_eq!(engine.volume(id).unwrap().1, Users::default());
    node.publish(id, &publication(&target, kind, false)).unwrap();
    let refused = engine.hold(id, IMPORT).unwrap_err();
    assert_eq!(code(&refused), Some(Code::FailedPrecondition), "{refused}");
    assert!(refused.to_string().contains("node-1"), "{refused}");
    node.unpublish(id, &target).unwrap();
    engine.create_snapshot(&snapshot_of("s", id)).unwrap();
    engine.delete_volume(id).unwrap();
    engine.release_hold(id, IMPORT).unwrap();
    assert_eq!(code(&engine.hold(id, IMPORT).unwrap_err()), Some(Code::NotFound));
}

#[test]
fn nobody_else_uses_a_volume_that_is_being_filled() {
    for kind in [Kind::Block, Kind::Filesystem] {
        isolated("held volumes", Copies::Plain, |home| nobody_else_uses_a_held_volume(home, kind));
    }
}
