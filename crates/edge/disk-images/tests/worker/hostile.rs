//! Images and servers that mean harm: refused with a sentence, in bounded time and space, and nothing else is read or written.

use std::path::Path;
use std::time::{Duration, Instant};

use disk_images::{ContentType, reasons};
use tempfile::TempDir;

use crate::harness::{Claim, MIB, Tests, converted, disk, http, packed, run, text};
use crate::server::{Answer, Server};

pub(crate) const TESTS: Tests = &[
    ("images_that_name_other_files_are_refused", images_that_name_other_files_are_refused),
    ("images_that_were_cut_off_are_refused", images_that_were_cut_off_are_refused),
    ("images_with_broken_tables_are_refused", images_with_broken_tables_are_refused),
    ("bombs_are_bounded_by_the_claim", bombs_are_bounded_by_the_claim),
    ("archives_that_lead_out_are_refused", archives_that_lead_out_are_refused),
    ("what_converts_can_open_nothing_else", what_converts_can_open_nothing_else),
    ("a_server_that_drips_is_given_up", a_server_that_drips_is_given_up),
    ("what_is_no_image_is_refused", what_is_no_image_is_refused),
    (
        "a_disk_image_that_is_a_link_is_replaced_and_not_followed",
        a_disk_image_that_is_a_link_is_replaced_and_not_followed,
    ),
];

const SECRET: &str = "this must not be in any volume";

/// Imports and expects a refusal; the secret stays where it is.
fn refused(image: Vec<u8>, what: &str) -> String {
    let server = Server::start(move |_| Answer::of(image.clone()));
    for claim in [Claim::directory(), Claim::file(8 * MIB)] {
        let failure = claim.import(http(server.url("/")), 8 * MIB).failed().clone();
        assert!(failure.permanent && failure.message.starts_with("Unable to process data: "), "{what}: {failure:?}");
        if claim.path().is_file() {
            claim.assert_holds(&[], what);
        } else {
            assert!(!claim.disk().exists(), "{what}: nothing is left");
        }
    }
    let claim = Claim::directory();
    claim.import(http(server.url("/")), 8 * MIB).failed().message.clone()
}

fn images_that_name_other_files_are_refused() {
    let dir = TempDir::new().unwrap();
    let secret = dir.path().join("secret");
    std::fs::write(&secret, SECRET.repeat(1000)).unwrap();
    let at = |name: &str| dir.path().join(name);
    let read = |path: &Path| std::fs::read(path).unwrap();
    let secret = text(&secret);

    let qcow2 = at("backing");
    run("qemu-img", &["create", "-q", "-f", "qcow2", "-b", secret, "-F", "raw", text(&qcow2), "1M"]);
    assert!(refused(read(&qcow2), "backing file").contains("has a backing file"));

    let data = at("data");
    let option = format!("data_file={secret}.new,data_file_raw=on");
    run("qemu-img", &["create", "-q", "-f", "qcow2", "-o", &option, text(&data), "1M"]);
    assert!(refused(read(&data), "data file").contains("keeps its data in another file"));

    let vmdk = at("child.vmdk");
    let parent = at("parent.vmdk");
    run("qemu-img", &["create", "-q", "-f", "vmdk", text(&parent), "1M"]);
    run("qemu-img", &["create", "-q", "-f", "vmdk", "-b", text(&parent), "-F", "vmdk", text(&vmdk)]);
    assert!(refused(read(&vmdk), "vmdk with a parent").contains("has a backing file"));

    let flat = at("flat.vmdk");
    run("qemu-img", &["create", "-q", "-f", "vmdk", "-o", "subformat=monolithicFlat", text(&flat), "1M"]);
    assert!(refused(read(&flat), "vmdk in two files").contains("VMDK in several files"));

    // A descriptor inside that names another file as its extent.
    let mut extent = converted(&disk(MIB), "vmdk", &[]);
    let descriptor = format!(
        "# Disk DescriptorFile\nversion=1\nCID=1\nparentCID=ffffffff\ncreateType=\"monolithicFlat\"\nRW 2048 FLAT \"{secret}\" 0\n"
    );
    extent[512..512 + 20 * 512].fill(0);
    extent[512..512 + descriptor.len()].copy_from_slice(descriptor.as_bytes());
    assert!(refused(extent.clone(), "vmdk with an extent").contains("keeps its data in other files"));
    extent[12..20].fill(0);
    assert!(refused(extent, "a frame of a descriptor").contains("keeps its data in other files"));

    let mut encrypted = converted(&disk(MIB), "qcow2", &[]);
    encrypted[35] = 2;
    assert!(refused(encrypted, "encrypted").contains("is encrypted"));
    assert_eq!(std::fs::read_to_string(secret).unwrap(), SECRET.repeat(1000));
}

fn images_that_were_cut_off_are_refused() {
    let raw = disk(4 * MIB);
    let formats: [(&str, &[&str]); 6] = [
        ("qcow2", &[]),
        ("qcow2", &["-c"]),
        ("vmdk", &[]),
        ("vmdk", &["-o", "subformat=streamOptimized"]),
        ("vdi", &[]),
        ("vhdx", &[]),
    ];
    for (format, options) in formats {
        let image = converted(&raw, format, options);
        let kept = image.len() / 2;
        refused(image[..kept].to_vec(), &format!("half of {format} {options:?}"));
        refused(image[..100].to_vec(), &format!("100 bytes of {format}"));
    }
    for program in ["gzip", "xz", "zstd"] {
        let image = packed(program, &raw);
        refused(image[..image.len() / 2].to_vec(), &format!("half of {program}"));
    }
}

fn images_with_broken_tables_are_refused() {
    let image = converted(&disk(4 * MIB), "qcow2", &[]);
    let l1 = u64::from_be_bytes(image[40..48].try_into().unwrap()) as usize;
    let changes: [(&str, usize, &[u8]); 6] = [
        ("a table beyond the end", l1, &[0x80, 0x00, 0x00, 0x40, 0, 0, 0, 0]),
        ("a table at an odd place", l1, &[0x80, 0, 0, 0, 0, 0, 2, 0]),
        ("a huge disk", 24, &[0x00, 0xff, 0, 0, 0, 0, 0, 0]),
        ("a huge first table", 36, &[0x7f, 0xff, 0xff, 0xff]),
        ("a huge table of reference counts", 56, &[0x7f, 0xff, 0xff, 0xff]),
        ("many snapshots", 60, &[0x00, 0x00, 0xff, 0xff]),
    ];
    for (what, at, bytes) in changes {
        let mut image = image.clone();
        image[at..at + bytes.len()].copy_from_slice(bytes);
        refused(image, what);
    }
    // What only qemu-img finds: a compressed cluster that is none.
    let mut image = converted(&disk(4 * MIB), "qcow2", &["-c"]);
    let middle = image.len() / 2;
    let end = (middle + 4096).min(image.len());
    image[middle..end].fill(0xa5);
    assert!(refused(image, "damaged clusters").contains("could not convert image to raw: "));
}

fn bombs_are_bounded_by_the_claim() {
    let started = Instant::now();
    // Many times the claim, in a few KiB.
    for program in ["gzip -1", "xz -0", "zstd -1"] {
        let bomb = run("sh", &["-c", &format!("head -c 300000000 /dev/zero | {program} -c")]);
        let message = refused(bomb, program);
        assert!(message.contains("A larger PVC is required"), "{message}");
    }
    // Twice packed.
    let bomb = run("sh", &["-c", "head -c 300000000 /dev/zero | gzip -1 | xz -0 -c"]);
    refused(bomb, "twice");
    // A qcow2 in it that is as large as it may be, and more than the claim.
    let image = converted(&vec![0; 64 << 20], "qcow2", &["-o", "preallocation=full"]);
    assert!(refused(packed("gzip", &image), "packed qcow2").contains("A larger PVC is required"));
    assert!(started.elapsed() < Duration::from_secs(90), "{:?}", started.elapsed());
}

fn archives_that_lead_out_are_refused() {
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("file"), "x").unwrap();
    std::fs::create_dir(dir.path().join("inner")).unwrap();
    std::os::unix::fs::symlink("/etc", dir.path().join("link")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        dir.path().join("null"),
        rustix::fs::FileType::CharacterDevice,
        rustix::fs::Mode::from_raw_mode(0o666),
        rustix::fs::makedev(1, 3),
    )
    .unwrap();
    let root = text(dir.path());
    let rows: [(&str, &[&str]); 4] = [
        ("..", &["-P", "--transform=s|file|../file|", "-cC", root, "file"]),
        ("absolute", &["-P", "--transform=s|file|/tmp/evil-of-ferrovirt|", "-cC", root, "file"]),
        ("link", &["-cC", root, "link"]),
        ("device", &["-cC", root, "null"]),
    ];
    for (what, args) in rows {
        let archive = run("tar", args);
        let server = Server::start(move |_| Answer::of(archive.clone()));
        let claim = Claim::directory();
        let mut job = claim.job(http(server.url("/")), 8 * MIB);
        job.content_type = ContentType::Archive;
        let failure = claim.run(&job, None).failed().clone();
        assert_eq!(failure.reason, reasons::DATA, "{what}");
        assert!(failure.message.contains("is refused: "), "{what}: {}", failure.message);
        assert_eq!(std::fs::read_dir(claim.dir.path()).unwrap().count(), 2, "{what}: nothing outside");
    }
    assert!(!Path::new("/tmp/evil-of-ferrovirt").exists());
}

/// The stage that converts, without the reader before it: QEMU does what the image says, and the kernel refuses.
fn what_converts_can_open_nothing_else() {
    let dir = TempDir::new().unwrap();
    let (secret, target) = (dir.path().join("secret"), dir.path().join("target"));
    std::fs::write(&secret, SECRET.repeat(1000)).unwrap();
    // Nobody but the kernel is in the way.
    std::fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut image = vec![0; 64 * 1024];
    let descriptor = format!(
        "# Disk DescriptorFile\nversion=1\nCID=1\nparentCID=ffffffff\ncreateType=\"monolithicFlat\"\n\nRW 20 FLAT \"{}\" 0\n",
        text(&secret)
    );
    image[..descriptor.len()].copy_from_slice(descriptor.as_bytes());
    let source = dir.path().join("image");
    std::fs::write(&source, image).unwrap();
    std::fs::write(&target, vec![0; MIB as usize]).unwrap();
    for file in [&source, &target] {
        std::os::unix::fs::chown(file, Some(65_531), Some(65_531)).unwrap();
    }
    let (source, to) =
        (std::fs::File::open(&source).unwrap(), std::fs::File::options().read(true).write(true).open(&target).unwrap());
    let job = disk_images::Job::new(disk_images::Source::Blank {}, disk_images::Target::File {}, MIB);
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args([disk_images::SUBCOMMAND, "--stage", "convert", "--format", "vmdk", "--cache", "writeback"]);
    for (flag, file) in [("--scratch", &source), ("--target", &to)] {
        rustix::io::fcntl_setfd(file, rustix::io::FdFlags::empty()).unwrap();
        command.args([flag, &std::os::fd::AsRawFd::as_raw_fd(file).to_string()]);
    }
    command
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let line = format!("{}\n", serde_json::to_string(&job).unwrap());
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), line.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("Permission denied") && said.contains("secret"), "{said}");
    assert!(std::fs::read(&target).unwrap().iter().all(|byte| *byte == 0));
}

fn a_server_that_drips_is_given_up() {
    let server = Server::start(|_| {
        let answer = Answer::of(vec![1; 4 << 20]);
        Answer { drips: Some(Duration::from_millis(100)), ..answer }
    });
    let claim = Claim::directory();
    let mut job = claim.job(http(server.url("/")), 8 * MIB);
    job.stall_seconds = 3;
    let started = Instant::now();
    let failure = claim.run(&job, None).failed().clone();
    assert_eq!(failure.reason, reasons::STALLED, "{failure:?}");
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
}

fn what_is_no_image_is_refused() {
    assert!(refused(Vec::new(), "nothing").contains("could not process image header: EOF"));
    assert!(refused(b"QED\0 and more".to_vec(), "QED").contains("QED"));
    let mut old = vec![0; 4096];
    old[..8].copy_from_slice(b"QFI\xfb\0\0\0\x01");
    assert!(refused(old, "qcow").contains("qcow"));
}

fn a_disk_image_that_is_a_link_is_replaced_and_not_followed() {
    let claim = Claim::directory();
    let outside = claim.dir.path().join("outside");
    std::fs::write(&outside, SECRET).unwrap();
    std::os::unix::fs::symlink(&outside, claim.disk()).unwrap();
    let server = Server::start(|_| Answer::of(disk(MIB)));
    claim.import(http(server.url("/")), 2 * MIB).done();
    claim.assert_holds(&disk(MIB), "in place of the link");
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), SECRET);
    assert!(!std::fs::symlink_metadata(claim.disk()).unwrap().is_symlink());
}
