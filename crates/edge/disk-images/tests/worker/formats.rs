//! What qemu-img and the packers write is read, and the disk is the same.

use crate::harness::{Claim, MIB, Tests, converted, disk, http, packed, run, text};
use crate::server::{Answer, Server};

pub(crate) const TESTS: Tests = &[
    ("every_format_gives_the_same_disk_on_a_file_system", every_format_gives_the_same_disk_on_a_file_system),
    ("every_format_gives_the_same_disk_on_a_block_volume", every_format_gives_the_same_disk_on_a_block_volume),
    ("what_was_on_a_block_volume_is_gone", what_was_on_a_block_volume_is_gone),
    ("a_preallocated_disk_takes_its_space", a_preallocated_disk_takes_its_space),
    ("a_file_system_keeps_its_share_unless_the_disk_needs_it", a_file_system_keeps_its_share_unless_the_disk_needs_it),
    ("a_block_device_is_filled", a_block_device_is_filled),
    ("an_archive_fills_a_file_system", an_archive_fills_a_file_system),
];

const SIZE: u64 = 24 * MIB;

fn images() -> Vec<(&'static str, Vec<u8>)> {
    let raw = disk(SIZE);
    let qcow2 = converted(&raw, "qcow2", &[]);
    let vmdk = converted(&raw, "vmdk", &[]);
    vec![
        ("raw", raw.clone()),
        ("raw.gz", packed("gzip", &raw)),
        ("raw.xz", packed("xz", &raw)),
        ("raw.zst", packed("zstd", &raw)),
        ("qcow2", qcow2.clone()),
        ("qcow2 of version 2", converted(&raw, "qcow2", &["-o", "compat=0.10"])),
        ("compressed qcow2", converted(&raw, "qcow2", &["-c"])),
        ("qcow2 with zstd", converted(&raw, "qcow2", &["-c", "-o", "compression_type=zstd"])),
        ("qcow2 with extended tables", converted(&raw, "qcow2", &["-o", "extended_l2=on"])),
        ("qcow2 with small clusters", converted(&raw, "qcow2", &["-o", "cluster_size=512"])),
        ("qcow2.gz", packed("gzip", &qcow2)),
        ("qcow2.xz", packed("xz", &qcow2)),
        ("qcow2.zst", packed("zstd", &qcow2)),
        ("vmdk", vmdk.clone()),
        ("streamOptimized vmdk", converted(&raw, "vmdk", &["-o", "subformat=streamOptimized"])),
        ("vmdk.gz", packed("gzip", &vmdk)),
        ("vdi", converted(&raw, "vdi", &[])),
        ("static vdi", converted(&raw, "vdi", &["-o", "static=on"])),
        ("vhd", converted(&raw, "vpc", &["-o", "force_size=on"])),
        ("vhdx", converted(&raw, "vhdx", &[])),
        ("fixed vhdx", converted(&raw, "vhdx", &["-o", "subformat=fixed"])),
    ]
}

fn each(claim: impl Fn() -> Claim) {
    let raw = disk(SIZE);
    for (name, image) in images() {
        let server = Server::start(move |asked| Answer::of(image.clone()).ranged(asked));
        let claim = claim();
        let outcome = claim.import(http(server.url("/image")), 32 * MIB);
        assert_eq!(outcome.done().virtual_size, 32 * MIB, "{name}");
        claim.assert_holds(&raw, name);
        assert!(claim.allocated() < 12 * MIB, "{name}: {} bytes are allocated", claim.allocated());
    }
}

fn every_format_gives_the_same_disk_on_a_file_system() {
    use std::os::unix::fs::MetadataExt as _;
    each(Claim::directory);
    let claim = Claim::directory();
    let server = Server::start(|_| Answer::of(disk(MIB)));
    claim.import(http(server.url("/")), 4 * MIB).done();
    let meta = std::fs::metadata(claim.disk()).unwrap();
    assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o7777), (107, 107, 0o660));
}

fn every_format_gives_the_same_disk_on_a_block_volume() {
    use std::os::unix::fs::MetadataExt as _;
    each(|| Claim::file(32 * MIB));
    let claim = Claim::file(4 * MIB);
    let before = std::fs::metadata(claim.disk()).unwrap();
    let server = Server::start(|_| Answer::of(converted(&disk(MIB), "qcow2", &[])));
    claim.import(http(server.url("/")), 4 * MIB).done();
    let after = std::fs::metadata(claim.disk()).unwrap();
    let facts = |meta: &std::fs::Metadata| (meta.uid(), meta.gid(), meta.mode(), meta.len(), meta.ino());
    assert_eq!(facts(&after), facts(&before));
}

fn what_was_on_a_block_volume_is_gone() {
    let claim = Claim::file(4 * MIB);
    claim.import(disk_images::Source::Blank {}, 4 * MIB).done();
    claim.assert_holds(&[], "blank");
    let claim = Claim::directory();
    std::fs::write(claim.disk(), "old").unwrap();
    assert_eq!(claim.import(disk_images::Source::Blank {}, 4 * MIB).done().virtual_size, 4 * MIB);
    claim.assert_holds(&[], "blank");
}

fn a_preallocated_disk_takes_its_space() {
    for claim in [Claim::directory(), Claim::file(8 * MIB)] {
        let image = converted(&disk(MIB), "qcow2", &[]);
        let server = Server::start(move |_| Answer::of(image.clone()));
        let mut job = claim.job(http(server.url("/")), 8 * MIB);
        job.preallocate = true;
        assert!(claim.run(&job, None).done().preallocated);
        assert!(claim.allocated() >= 8 * MIB, "{}", claim.allocated());
        claim.assert_holds(&disk(MIB), "preallocated");
    }
}

fn a_file_system_keeps_its_share_unless_the_disk_needs_it() {
    for (size, expected) in [(2 * MIB, 6 * MIB), (7 * MIB, 7 * MIB)] {
        for image in [disk(size), converted(&disk(size), "qcow2", &[])] {
            let server = Server::start(move |_| Answer::of(image.clone()));
            let claim = Claim::directory();
            let mut job = claim.job(http(server.url("/")), 8 * MIB);
            job.filesystem_overhead = 0.3;
            assert_eq!(claim.run(&job, None).done().virtual_size, expected);
            assert_eq!(std::fs::metadata(claim.disk()).unwrap().len(), expected);
            claim.assert_holds(&disk(size), "within the share");
        }
    }
}

fn a_block_device_is_filled() {
    let file = Claim::file(8 * MIB);
    let device = run("losetup", &["--find", "--show", text(&file.path())]);
    let device = String::from_utf8(device).unwrap().trim().to_owned();
    let claim = Claim::device(&device);
    for image in [disk(6 * MIB), converted(&disk(6 * MIB), "qcow2", &[])] {
        let server = Server::start(move |_| Answer::of(image.clone()));
        let outcome = claim.import(http(server.url("/")), 8 * MIB);
        let held = std::panic::catch_unwind(|| {
            assert_eq!(outcome.done().virtual_size, 8 * MIB);
            run("blockdev", &["--flushbufs", &device]);
            file.assert_holds(&disk(6 * MIB), "behind the device");
        });
        if let Err(panicked) = held {
            run("losetup", &["--detach", &device]);
            std::panic::resume_unwind(panicked);
        }
    }
    run("losetup", &["--detach", &device]);
}

fn an_archive_fills_a_file_system() {
    let dir = tempfile::TempDir::new().unwrap();
    std::fs::create_dir(dir.path().join("sub")).unwrap();
    std::fs::write(dir.path().join("sub/file"), "hello").unwrap();
    std::os::unix::fs::symlink("sub/file", dir.path().join("link")).unwrap();
    let plain = run("tar", &["-cC", text(dir.path()), "."]);
    for (name, archive) in [("tar.gz", packed("gzip", &plain)), ("tar.xz", packed("xz", &plain)), ("tar", plain)] {
        use std::os::unix::fs::MetadataExt as _;
        let server = Server::start(move |_| Answer::of(archive.clone()));
        let claim = Claim::directory();
        std::fs::write(claim.path().join("of an earlier attempt"), "").unwrap();
        let mut job = claim.job(http(server.url("/")), 8 * MIB);
        job.content_type = disk_images::ContentType::Archive;
        assert_eq!(claim.run(&job, None).done().format, "archive", "{name}");
        assert_eq!(std::fs::read_to_string(claim.path().join("link")).unwrap(), "hello", "{name}");
        assert_eq!(std::fs::metadata(claim.path().join("sub/file")).unwrap().uid(), 107);
        assert_eq!(std::fs::read_dir(claim.path()).unwrap().count(), 2);
    }
}
