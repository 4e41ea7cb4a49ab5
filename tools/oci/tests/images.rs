//! Images written, compared and read back.

#![allow(clippy::unwrap_used, reason = "the helpers of a test may panic like the test itself")]

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use oci_image::{Capability, Compression, Entry, Error, Image, Kind, Layer, Run, Tree, is_image, unpack};
use tempfile::TempDir;

const NAME: &str = "registry.example:5000/a/disk:1";
/// `setcap cap_net_bind_service+ep`, as the kernel stores it.
const BIND: [u8; 20] = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// A directory with the same files whatever `order` is: only dates and the order of creation differ.
fn source(order: bool) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut names = ["b", "a", "c"];
    if order {
        names.reverse();
    }
    for name in names {
        let below = dir.path().join(name);
        fs::create_dir(&below).unwrap();
        fs::set_permissions(&below, fs::Permissions::from_mode(0o750)).unwrap();
        fs::write(below.join("file"), name.repeat(1000)).unwrap();
        let date = std::time::UNIX_EPOCH + std::time::Duration::from_secs(if order { 5 } else { 1_000_000 });
        File::open(below.join("file")).unwrap().set_modified(date).unwrap();
    }
    fs::hard_link(dir.path().join("a/file"), dir.path().join("c/same")).unwrap();
    symlink("../a/file", dir.path().join("b/link")).unwrap();
    fs::write(dir.path().join("a").join("n".repeat(180)), "long").unwrap();
    dir
}

fn image(layers: Vec<Layer>) -> Image {
    let labels = [("one", "1"), ("two", "2"), ("three", "3")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    let run = Run {
        entrypoint: vec!["/usr/bin/program".to_owned()],
        user: "107:107".to_owned(),
        env: vec!["PATH=/usr/bin".to_owned()],
        labels: labels.into(),
    };
    Image::new(NAME, run, layers).unwrap()
}

fn archive(dir: &Path, tree: &Tree, compression: Compression) -> PathBuf {
    let layer = tree.write_layer(&dir.join("layers"), compression).unwrap();
    let file = dir.join("image.tar");
    let size = image(vec![layer]).write_archive(&file).unwrap();
    assert_eq!(size, fs::metadata(&file).unwrap().len());
    file
}

/// A file of an archive.
fn member(archive: &Path, wanted: &str) -> Vec<u8> {
    let mut archive = tar::Archive::new(File::open(archive).unwrap());
    let mut entries = archive.entries().unwrap().map(Result::unwrap);
    let mut found = entries.find(|entry| entry.path().unwrap() == Path::new(wanted)).unwrap();
    let mut bytes = vec![];
    std::io::copy(&mut found, &mut bytes).unwrap();
    bytes
}

fn document(archive: &Path, wanted: &str) -> serde_json::Value {
    serde_json::from_slice(&member(archive, wanted)).unwrap()
}

fn blob(descriptor: &serde_json::Value) -> String {
    format!("blobs/{}", descriptor["digest"].as_str().unwrap().replace(':', "/"))
}

#[test]
fn the_same_files_give_the_same_bytes() {
    for compression in [Compression::None, Compression::Gzip] {
        let bytes = [true, false].map(|order| {
            let (from, to) = (source(order), tempfile::tempdir().unwrap());
            fs::read(archive(to.path(), &Tree::from_dir(from.path()).unwrap(), compression)).unwrap()
        });
        assert!(bytes[0] == bytes[1], "{compression:?}");
    }
}

#[test]
fn other_content_gives_another_digest() {
    let digest = |text: &str| {
        let to = tempfile::tempdir().unwrap();
        let mut tree = Tree::default();
        tree.insert("file", Entry::text(text)).unwrap();
        image(vec![tree.write_layer(to.path(), Compression::None).unwrap()]).digest().unwrap()
    };
    assert_eq!(digest("a"), digest("a"));
    assert_ne!(digest("a"), digest("b"));
}

#[test]
fn an_archive_and_a_layout_read_back_match_what_was_written() {
    for compression in [Compression::None, Compression::Gzip] {
        let (from, to) = (source(true), tempfile::tempdir().unwrap());
        let tree = Tree::from_dir(from.path()).unwrap();
        let archive = archive(to.path(), &tree, compression);
        let layout = to.path().join("layout");
        let image = image(vec![tree.write_layer(&to.path().join("layers"), compression).unwrap()]);
        image.write_layout(&layout).unwrap();
        for (number, written) in [archive, layout].iter().enumerate() {
            assert!(is_image(written).unwrap());
            let root = to.path().join(format!("root-{number}"));
            fs::create_dir(&root).unwrap();
            let unpacked = unpack(written, &root).unwrap();
            assert_eq!(unpacked.name.as_deref(), Some(NAME));
            assert_eq!(unpacked.digest, image.digest().unwrap());
            same_files(from.path(), &root);
        }
    }
}

fn same_files(from: &Path, root: &Path) {
    let text = |path: &str| fs::read_to_string(root.join(path)).unwrap();
    assert_eq!(text("b/file"), "b".repeat(1000));
    assert_eq!(text(&format!("a/{}", "n".repeat(180))), "long");
    assert_eq!(fs::read_link(root.join("b/link")).unwrap(), Path::new("../a/file"));
    let inode = |path: &str| fs::metadata(root.join(path)).unwrap().ino();
    assert_eq!(inode("a/file"), inode("c/same"));
    for path in ["a", "a/file"] {
        let (before, after) = (fs::metadata(from.join(path)).unwrap(), fs::metadata(root.join(path)).unwrap());
        assert_eq!((before.mode(), before.uid()), (after.mode(), after.uid()), "{path}");
    }
    // The library that unpacks makes it 1, for tools that take 0 for "no date".
    assert!(fs::metadata(root.join("a/file")).unwrap().mtime() <= 1);
    assert!(!is_image(root).unwrap());
}

#[test]
fn the_index_names_the_image_for_containerd_and_the_configuration_says_how_to_run_it() {
    let to = tempfile::tempdir().unwrap();
    let mut tree = Tree::default();
    tree.insert("/disk/disk.img", Entry::text("disk").owned_by(107, 107)).unwrap();
    let file = archive(to.path(), &tree, Compression::None);

    assert_eq!(document(&file, "oci-layout")["imageLayoutVersion"], "1.0.0");
    let listed = &document(&file, "index.json")["manifests"][0];
    assert_eq!(listed["annotations"]["io.containerd.image.name"], NAME);
    assert_eq!(listed["annotations"]["org.opencontainers.image.ref.name"], "1");
    let manifest = document(&file, &blob(listed));
    let config = document(&file, &blob(&manifest["config"]));
    assert_eq!(config["config"]["Entrypoint"][0], "/usr/bin/program");
    assert_eq!(config["config"]["User"], "107:107");
    assert_eq!(config["config"]["Labels"]["two"], "2");
    assert_eq!((&config["architecture"], &config["os"]), (&"amd64".into(), &"linux".into()));
    let layer = &manifest["layers"][0];
    assert_eq!(layer["mediaType"], "application/vnd.oci.image.layer.v1.tar");
    assert_eq!(config["rootfs"]["diff_ids"][0], layer["digest"], "nothing is compressed");
    let layer = member(&file, &blob(layer));
    let mut layer = tar::Archive::new(layer.as_slice());
    let disk = layer.entries().unwrap().map(Result::unwrap).find(|entry| entry.path().unwrap().ends_with("disk.img"));
    let header = disk.unwrap().header().clone();
    assert_eq!((header.uid().unwrap(), header.gid().unwrap(), header.mode().unwrap()), (107, 107, 0o644));
}

#[test]
fn capabilities_survive() {
    assert_eq!(Capability::NetBindService.attribute(), BIND);
    let to = tempfile::tempdir().unwrap();
    let mut tree = Tree::default();
    let program = Entry::text("program").with_capability(Capability::NetBindService);
    tree.insert("usr/bin/program", program).unwrap();
    let file = archive(to.path(), &tree, Compression::Gzip);
    let root = to.path().join("root");
    fs::create_dir(&root).unwrap();
    unpack(&file, &root).unwrap();
    if !rustix::process::geteuid().is_root() {
        eprintln!("only root may give files capabilities: what was unpacked is not looked at");
        return;
    }
    let again = Tree::from_dir(&root).unwrap();
    assert_eq!(again.get("usr/bin/program").unwrap().capability.as_deref(), Some(BIND.as_slice()));
}

#[test]
fn a_second_name_carries_the_attributes_of_its_file() {
    let to = tempfile::tempdir().unwrap();
    let program = Entry { mode: 0o755, ..Entry::text("program") }.owned_by(5, 6);
    let mut tree = Tree::default();
    tree.insert("a", program.with_capability(Capability::NetBindService)).unwrap();
    tree.insert("b", Entry::hard_link("a")).unwrap();
    let layer = tree.write_layer(to.path(), Compression::None).unwrap();
    let mut layer = tar::Archive::new(File::open(layer.blob).unwrap());
    let mut seen = vec![];
    for entry in layer.entries().unwrap() {
        let mut entry = entry.unwrap();
        let records = entry.pax_extensions().unwrap().unwrap().map(|record| record.unwrap().value_bytes().to_vec());
        let records: Vec<_> = records.collect();
        let header = entry.header();
        seen.push((header.mode().unwrap(), header.uid().unwrap(), header.gid().unwrap(), records));
    }
    let expected = (0o755, 5, 6, vec![BIND.to_vec()]);
    assert_eq!(seen, [expected.clone(), expected]);
}

#[test]
fn an_upper_layer_replaces_and_hides_what_is_below() {
    let to = tempfile::tempdir().unwrap();
    let layer = |files: &[(&str, &str)]| {
        let mut tree = Tree::default();
        for (path, text) in files {
            tree.insert(path, Entry::text(*text)).unwrap();
        }
        tree.write_layer(&to.path().join("layers"), Compression::None).unwrap()
    };
    let lower = layer(&[("etc/kept", "1"), ("etc/gone", "1"), ("etc/new", "1"), ("opaque/old", "1")]);
    let upper = layer(&[("etc/.wh.gone", ""), ("etc/new", "2"), ("opaque/.wh..wh..opq", ""), ("opaque/young", "2")]);
    let file = to.path().join("image.tar");
    image(vec![lower, upper]).write_archive(&file).unwrap();
    let root = to.path().join("root");
    fs::create_dir(&root).unwrap();
    unpack(&file, &root).unwrap();
    let read = |path: &str| fs::read_to_string(root.join(path)).ok();
    assert_eq!(read("etc/kept").as_deref(), Some("1"));
    assert_eq!(read("etc/new").as_deref(), Some("2"));
    assert_eq!(read("opaque/young").as_deref(), Some("2"));
    for gone in ["etc/gone", "opaque/old", "etc/.wh.gone", "opaque/.wh..wh..opq"] {
        assert_eq!(read(gone), None, "{gone}");
    }
}

/// A layout with one layer, which is whatever its author likes.
fn hostile(dir: &Path, layer: &[u8]) -> PathBuf {
    use sha2::Digest as _;
    let layout = dir.join("layout");
    fs::create_dir_all(layout.join("blobs/sha256")).unwrap();
    let store = |bytes: &[u8]| {
        let hex: String = sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        fs::write(layout.join("blobs/sha256").join(&hex), bytes).unwrap();
        serde_json::json!({"digest": format!("sha256:{hex}"), "size": bytes.len()})
    };
    let with = |mut descriptor: serde_json::Value, kind: &str| {
        descriptor["mediaType"] = kind.into();
        descriptor
    };
    let layer = with(store(layer), "application/vnd.oci.image.layer.v1.tar");
    let config = with(store(b"{}"), "application/vnd.oci.image.config.v1+json");
    let manifest = serde_json::json!({"schemaVersion": 2, "config": config, "layers": [layer]}).to_string();
    let manifest = with(store(manifest.as_bytes()), "application/vnd.oci.image.manifest.v1+json");
    fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    let index = serde_json::json!({"schemaVersion": 2, "manifests": [manifest]});
    fs::write(layout.join("index.json"), index.to_string()).unwrap();
    layout
}

/// An entry as an attacker would write it: the library's own checks are for those who mean well.
fn entry(kind: tar::EntryType, name: &str, content: &[u8]) -> Vec<u8> {
    let mut header = tar::Header::new_gnu();
    header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_entry_type(kind);
    header.set_mode(0o755);
    header.set_uid(rustix::process::getuid().as_raw().into());
    header.set_gid(rustix::process::getgid().as_raw().into());
    header.set_mtime(1);
    header.set_size(content.len() as u64);
    header.set_cksum();
    let mut bytes = [header.as_bytes().as_slice(), content].concat();
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn unpack_hostile(to: &Path, entries: &[Vec<u8>]) -> Result<PathBuf, String> {
    let layout = hostile(to, &[entries.concat(), vec![0; 1024]].concat());
    let root = to.join("root");
    fs::create_dir(&root).unwrap();
    oci_image::unpack_within(&layout, &root, 64 << 20).map(|_| root).map_err(|err| {
        std::iter::successors(Some(&err as &dyn std::error::Error), |err| err.source())
            .map(|err| format!("{err}: "))
            .collect()
    })
}

#[test]
fn a_file_with_an_absolute_name_leaves_that_of_the_host_alone() {
    let to = tempfile::tempdir().unwrap();
    let host = to.path().join("program");
    fs::write(&host, "of the host").unwrap();
    let mut record = b" SCHILY.xattr.security.capability=".to_vec();
    record.extend(BIND);
    record.push(b'\n');
    // Its length, with the two digits that say it.
    let record = [(record.len() + 2).to_string().as_bytes(), &record].concat();
    let name = host.to_str().unwrap();
    let entries = [entry(tar::EntryType::XHeader, "x", &record), entry(tar::EntryType::Regular, name, b"program")];
    let root = unpack_hostile(to.path(), &entries).unwrap();
    let inside = root.join(name.trim_start_matches('/'));
    assert_eq!(fs::read_to_string(&inside).unwrap(), "program");
    assert_eq!(fs::read_to_string(&host).unwrap(), "of the host");
    let capability = |path: &Path| {
        let mut value = [0; 64];
        rustix::fs::lgetxattr(path, "security.capability", &mut value[..]).map(|size| value[..size].to_vec()).ok()
    };
    assert_eq!(capability(&host), None, "the host's program has no capability");
    if rustix::process::geteuid().is_root() {
        assert_eq!(capability(&inside).as_deref(), Some(BIND.as_slice()));
    }
}

#[test]
fn what_would_fill_memory_or_could_not_be_removed_is_refused() {
    let long = vec![b'a'; 2 << 20];
    let record = [format!("{} comment=", long.len() + 17).as_bytes(), &long, b"\n"].concat();
    let deep = format!("{}f", "d/".repeat(200));
    let deep = [deep.as_bytes(), &[0]].concat();
    for (what, parts) in [
        ("a long name", vec![entry(tar::EntryType::GNULongName, "n", &long), entry(tar::EntryType::Regular, "f", b"")]),
        ("a long link", vec![entry(tar::EntryType::GNULongLink, "n", &long), entry(tar::EntryType::Symlink, "f", b"")]),
        ("attributes", vec![entry(tar::EntryType::XHeader, "x", &record), entry(tar::EntryType::Regular, "f", b"")]),
        ("attributes of all", vec![entry(tar::EntryType::XGlobalHeader, "x", &record)]),
    ] {
        let to = tempfile::tempdir().unwrap();
        let error = unpack_hostile(to.path(), &parts).unwrap_err();
        assert!(error.contains("too long"), "{what}: {error}");
    }
    let to = tempfile::tempdir().unwrap();
    let parts = [entry(tar::EntryType::GNULongName, "n", &deep), entry(tar::EntryType::Regular, "f", b"")];
    let error = unpack_hostile(to.path(), &parts).unwrap_err();
    assert!(error.contains("nested too deeply"), "{error}");
    let to = tempfile::tempdir().unwrap();
    let error = unpack_hostile(to.path(), &[entry(tar::EntryType::Regular, "a/../../f", b"")]).unwrap_err();
    assert!(error.contains("leads out of the image"), "{error}");
    // A file is no head, however long it is.
    let to = tempfile::tempdir().unwrap();
    let root = unpack_hostile(to.path(), &[entry(tar::EntryType::Regular, "f", &long)]).unwrap();
    assert_eq!(fs::metadata(root.join("f")).unwrap().len(), long.len() as u64);
}

#[test]
fn devices_of_an_image_are_not_made() {
    use std::os::unix::fs::FileTypeExt as _;
    for kind in [tar::EntryType::Char, tar::EntryType::Block, tar::EntryType::Fifo] {
        let to = tempfile::tempdir().unwrap();
        let Ok(root) = unpack_hostile(to.path(), &[entry(kind, "dev", b"")]) else { continue };
        let Ok(meta) = fs::symlink_metadata(root.join("dev")) else { continue };
        let special = meta.file_type();
        assert!(!special.is_char_device() && !special.is_block_device() && !special.is_fifo(), "{kind:?}");
    }
}

#[test]
fn a_damaged_blob_is_refused() {
    let to = tempfile::tempdir().unwrap();
    let mut tree = Tree::default();
    tree.insert("file", Entry::text("what it says")).unwrap();
    let file = archive(to.path(), &tree, Compression::None);
    let mut bytes = fs::read(&file).unwrap();
    let place = bytes.windows(12).position(|w| w == b"what it says").unwrap();
    bytes[place] = b'W';
    fs::write(&file, bytes).unwrap();
    let root = to.path().join("root");
    fs::create_dir(&root).unwrap();
    let error = unpack(&file, &root).unwrap_err().to_string();
    assert!(error.contains("is damaged"), "{error}");
}

#[test]
fn a_digest_of_others_does_not_become_a_path() {
    let to = tempfile::tempdir().unwrap();
    fs::write(to.path().join("oci-layout"), "{}").unwrap();
    let index = r#"{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json",
        "digest":"sha256:../../../../etc/passwd","size":3}]}"#;
    fs::write(to.path().join("index.json"), index).unwrap();
    assert!(matches!(unpack(to.path(), to.path()), Err(Error::Image { .. })));
}

#[test]
fn what_cannot_be_in_an_image_is_refused() {
    let to = tempfile::tempdir().unwrap();
    for name in ["no-tag", "registry.example:5000/no-tag", "a b:1", "a@sha256:00", ":1", "a:"] {
        assert!(matches!(Image::new(name, Run::default(), vec![]), Err(Error::Name(_))), "{name}");
    }
    let mut tree = Tree::default();
    assert!(matches!(tree.insert("../out", Entry::text("")), Err(Error::Entry { .. })));
    assert!(matches!(tree.insert("/", Entry::text("")), Err(Error::Entry { .. })));
    tree.insert("b", Entry::hard_link("a")).unwrap();
    assert!(matches!(tree.write_layer(to.path(), Compression::None), Err(Error::Entry { .. })));
    tree.insert("a", Entry::text("")).unwrap();
    assert!(tree.write_layer(to.path(), Compression::None).is_ok());
    assert_eq!(fs::read_dir(to.path()).unwrap().count(), 1, "the failed one left nothing");
    assert!(matches!(tree.get("b").unwrap().kind, Kind::HardLink(_)));
}
