use std::process::Command as Tool;

use tempfile::TempDir;

use super::*;

fn in_path(tool: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(tool).exists()))
}

#[test]
fn independent_readers_find_every_file_under_its_name() {
    if !in_path("isoinfo") {
        return test_support::skip("isoinfo (genisoimage) is not installed");
    }
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("seed.iso");
    let big = vec![b'x'; 10_000];
    let files = [("user-data", b"#!/bin/sh\n".to_vec()), ("meta-data", big.clone()), ("network-config", Vec::new())];
    fs::write(&file, iso::image("cidata", &files).unwrap()).unwrap();
    let isoinfo = |args: &[&str]| {
        let out = Tool::new("isoinfo").arg("-i").arg(&file).args(args).output().unwrap();
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        out.stdout
    };
    let described = String::from_utf8(isoinfo(&["-d"])).unwrap();
    assert!(described.contains("Volume id: cidata") && described.contains("Rock Ridge signatures version 1 found"));
    assert!(described.contains("Joliet with UCS level 3 found"), "{described}");
    for names in ["-R", "-J"] {
        let list = String::from_utf8(isoinfo(&[names, "-f"])).unwrap();
        assert_eq!(list.lines().collect::<Vec<_>>(), ["/meta-data", "/network-config", "/user-data"], "{names}");
        assert_eq!(isoinfo(&[names, "-x", "/meta-data"]), big);
        assert_eq!(isoinfo(&[names, "-x", "/user-data"]), b"#!/bin/sh\n");
    }
}

#[test]
fn the_same_files_give_the_same_image() {
    let files = [("user-data", b"a".to_vec()), ("meta-data", b"b".to_vec())];
    let image = iso::image("cidata", &files).unwrap();
    assert_eq!(image, iso::image("cidata", &files).unwrap());
    assert_eq!(image.len() % 2048, 0);
    assert_eq!(&image[32808..32814], b"cidata");
}

#[test]
fn the_image_is_the_only_file_or_the_one_that_is_named() {
    let dir = TempDir::new().unwrap();
    let root = dir.path().to_str().unwrap();
    assert!(matches!(image_path(root, "v", None), Err(Error::Io { .. })));
    fs::create_dir(dir.path().join("disk")).unwrap();
    assert!(matches!(image_path(root, "v", None), Err(Error::NotOneFile { found: 0, .. })));
    fs::write(dir.path().join("disk/a.img"), "x").unwrap();
    assert_eq!(image_path(root, "v", None).unwrap(), "disk/a.img");
    assert_eq!(image_path(root, "v", Some("/other/b.img")).unwrap(), "other/b.img");
    fs::write(dir.path().join("disk/b.img"), "x").unwrap();
    assert!(matches!(image_path(root, "v", None), Err(Error::NotOneFile { found: 2, .. })));
}

#[test]
fn secrets_are_readable_by_their_owner_only() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("deep/er/seed.iso");
    write_private(file.to_str().unwrap(), b"one").unwrap();
    write_private(file.to_str().unwrap(), b"two").unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"two");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn capacities_are_whole_sectors() {
    let quantity = |text: &str| k8s_openapi::apimachinery::pkg::api::resource::Quantity(text.into());
    assert_eq!(capacity("v", &quantity("1Gi")).unwrap(), 1 << 30);
    assert_eq!(capacity("v", &quantity("1000")).unwrap(), 1024);
    for wrong in ["0", "-1Gi", "many"] {
        assert!(matches!(capacity("v", &quantity(wrong)), Err(Error::Volume { .. })), "{wrong}");
    }
}
