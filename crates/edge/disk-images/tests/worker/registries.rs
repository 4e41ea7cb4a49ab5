//! Registries: a layout behind a small server that speaks the distribution protocol.

use std::collections::BTreeMap;
use std::path::Path;

use disk_images::{Registry, Source, reasons};
use oci_image::{Compression, Entry, Image, Run, Tree};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::TempDir;

use crate::harness::{Claim, MIB, Tests, converted, disk};
use crate::server::{Answer, Asked, Server};

pub(crate) const TESTS: Tests = &[
    ("the_disk_of_an_image_is_imported", the_disk_of_an_image_is_imported),
    ("an_image_over_tls_with_a_token", an_image_over_tls_with_a_token),
    ("layers_hide_what_is_below_them", layers_hide_what_is_below_them),
    ("images_without_one_disk_are_refused", images_without_one_disk_are_refused),
    ("damaged_layers_and_manifests_are_refused", damaged_layers_and_manifests_are_refused),
    ("an_image_is_pulled_into_a_layout", an_image_is_pulled_into_a_layout),
];

pub(crate) fn tls(authority: &test_support::Authority) -> ServerConfig {
    let mut params = test_support::pki::named("localhost", &[]);
    params.subject_alt_names = vec![rcgen::SanType::DnsName("localhost".try_into().unwrap())];
    let pair = authority.sign(params);
    let chain = CertificateDer::pem_slice_iter(pair.cert.as_bytes()).collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap()
}

/// The files of a layout by the paths of the protocol.
fn served(layers: &[Tree]) -> BTreeMap<String, Vec<u8>> {
    let dir = TempDir::new().unwrap();
    let blobs = dir.path().join("layers");
    let written = layers.iter().enumerate().map(|(index, tree)| {
        let compression = if index % 2 == 0 { Compression::Gzip } else { Compression::None };
        tree.write_layer(&blobs, compression).unwrap()
    });
    let image = Image::new("example.com/disk:1", Run::default(), written.collect()).unwrap();
    let layout = dir.path().join("layout");
    image.write_layout(&layout).unwrap();
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(layout.join("blobs/sha256")).unwrap() {
        let path = entry.unwrap().path();
        let digest = format!("sha256:{}", path.file_name().unwrap().to_str().unwrap());
        let content = std::fs::read(&path).unwrap();
        files.insert(format!("/v2/test/disk/blobs/{digest}"), content.clone());
        files.insert(format!("/v2/test/disk/manifests/{digest}"), content);
    }
    files.insert("/v2/test/disk/manifests/index".to_owned(), std::fs::read(layout.join("index.json")).unwrap());
    let digest = image.digest().unwrap();
    files.insert("/v2/test/disk/manifests/1".to_owned(), files[&format!("/v2/test/disk/manifests/{digest}")].clone());
    files
}

fn answers(files: BTreeMap<String, Vec<u8>>) -> impl Fn(&Asked) -> Answer + Send + Sync {
    move |asked| files.get(&asked.path).map_or(Answer::status(404), |file| Answer::of(file.clone()).ranged(asked))
}

fn tree(files: &[(&str, &[u8])]) -> Tree {
    let dir = TempDir::new().unwrap();
    let mut tree = Tree::default();
    for (index, (path, content)) in files.iter().enumerate() {
        let file = dir.path().join(index.to_string());
        std::fs::write(&file, content).unwrap();
        tree.insert(path, Entry::file(&file, 0o644)).unwrap();
    }
    // The files are read when the layer is written.
    std::mem::forget(dir);
    tree
}

fn plain(server: &Server, version: &str) -> Source {
    let url = format!("docker://{}/test/disk{version}", server.address);
    Source::Registry(Registry { url, insecure: true, ..Registry::default() })
}

fn the_disk_of_an_image_is_imported() {
    let raw = disk(2 * MIB);
    for image in [raw.clone(), converted(&raw, "qcow2", &[])] {
        let files = served(&[tree(&[("etc/passwd", b"x")]), tree(&[("disk/image", &image), ("other/file", b"y")])]);
        let digest = files
            .keys()
            .find(|path| path.contains("manifests/sha256") && files[*path] == files["/v2/test/disk/manifests/1"]);
        let digest = digest.unwrap().rsplit('/').next().unwrap().to_owned();
        let server = Server::start(answers(files));
        for version in [":1".to_owned(), ":index".to_owned(), format!("@{digest}")] {
            let claim = Claim::directory();
            claim.import(plain(&server, &version), 4 * MIB).done();
            claim.assert_holds(&raw, &version);
        }
    }
}

fn an_image_over_tls_with_a_token() {
    let authority = test_support::Authority::new();
    let files = served(&[tree(&[("disk/image", &disk(MIB))])]);
    let files = answers(files);
    let server = Server::start_tls(tls(&authority), move |asked| {
        if asked.path.starts_with("/token") {
            let right = asked.header("authorization") == Some("Basic dXNlcjpwYXNz")
                && asked.path.contains("scope=repository%3Atest%2Fdisk%3Apull");
            return if right { Answer::of(r#"{"token":"t0ken"}"#) } else { Answer::status(401) };
        }
        if asked.header("authorization") != Some("Bearer t0ken") {
            let host = asked.header("host").unwrap();
            let challenge = format!(r#"Bearer realm="https://{host}/token",service="tests""#);
            return Answer::status(401).with("WWW-Authenticate", challenge);
        }
        files(asked)
    });
    let source = |password: &str, insecure: bool, ca: Option<&str>| {
        Source::Registry(Registry {
            url: format!("docker://localhost:{}/test/disk:1", server.address.port()),
            insecure,
            ca_pem: ca.map(str::to_owned),
            username: Some("user".to_owned()),
            password: Some(password.to_owned()),
        })
    };
    let claim = Claim::directory();
    claim.import(source("pass", false, Some(authority.pem())), 2 * MIB).done();
    claim.assert_holds(&disk(MIB), "with a token");
    claim.import(source("pass", true, None), 2 * MIB).done();
    let wrong = claim.import(source("word", false, Some(authority.pem())), 2 * MIB).failed().message.clone();
    assert!(wrong.contains("failed to pull image: ") && wrong.contains("unauthorized"), "{wrong}");
    let stranger = claim.import(source("pass", false, None), 2 * MIB).failed().clone();
    assert_eq!(stranger.reason, reasons::CONNECT);
}

fn layers_hide_what_is_below_them() {
    let (old, new) = (disk(MIB), vec![7; MIB as usize]);
    let replaced = served(&[tree(&[("disk/image", &old)]), tree(&[("disk/image", &new)])]);
    let claim = Claim::directory();
    claim.import(plain(&Server::start(answers(replaced)), ":1"), 2 * MIB).done();
    claim.assert_holds(&new, "the upper one");

    let lower = tree(&[("disk/a", &old), ("disk/b", &new)]);
    let one_hidden = served(&[lower.clone(), tree(&[("disk/.wh.a", b"")])]);
    claim.import(plain(&Server::start(answers(one_hidden)), ":1"), 2 * MIB).done();
    claim.assert_holds(&new, "the one that is not hidden");

    for hides in ["disk/.wh..wh..opq", ".wh.disk"] {
        let hidden = served(&[lower.clone(), tree(&[(hides, b"")])]);
        let failure = claim.import(plain(&Server::start(answers(hidden)), ":1"), 2 * MIB).failed().clone();
        assert!(
            failure.message.contains("Failed to find VM disk image file in the container image"),
            "{}",
            failure.message
        );
    }
}

fn images_without_one_disk_are_refused() {
    let mut link = Tree::default();
    link.insert("disk/image", Entry::symlink("/etc/shadow")).unwrap();
    let mut hard = tree(&[("a", b"x")]);
    hard.insert("disk/image", Entry::hard_link("a")).unwrap();
    let rows = [
        (tree(&[("other", b"x")]), "Failed to find VM disk image file"),
        (tree(&[("disk/a", b"x"), ("disk/b", b"y")]), "more than one file"),
        (tree(&[("disk/sub/a", b"x")]), "another directory"),
        (link, "is a link or a device"),
        (hard, "is a link or a device"),
    ];
    for (tree, why) in rows {
        let server = Server::start(answers(served(&[tree])));
        let claim = Claim::directory();
        let failure = claim.import(plain(&server, ":1"), 2 * MIB).failed().clone();
        assert!(failure.message.contains(why), "{}", failure.message);
        assert!(!claim.disk().exists());
    }
    let claim = Claim::directory();
    let missing = claim.import(plain(&Server::start(|_| Answer::status(404)), ":1"), MIB).failed().message.clone();
    assert!(missing.starts_with("Unable to process data: Unable to transfer source data to scratch space: Failed to read registry image: failed to pull image: "), "{missing}");
    assert!(missing.contains("manifest unknown"), "{missing}");
    for url in ["oci-archive:/etc/passwd", "docker://", "docker://../../x", "http://x/y"] {
        let source = Source::Registry(Registry { url: url.to_owned(), ..Registry::default() });
        assert!(claim.import(source, MIB).failed().permanent, "{url}");
    }
    assert!(Path::new(&claim.path()).is_dir());
}

fn damaged_layers_and_manifests_are_refused() {
    let good = served(&[tree(&[("disk/image", &disk(MIB))])]);
    for part in ["blobs/sha256", "manifests/sha256"] {
        let mut bad = good.clone();
        let digest = good["/v2/test/disk/manifests/index"].clone();
        let index = String::from_utf8(digest).unwrap();
        for (path, content) in bad.iter_mut().filter(|(path, _)| path.contains(part)) {
            let listed = index.contains(path.rsplit('/').next().unwrap());
            if listed == part.starts_with("manifests") {
                let last = content.len() - 1;
                content[last] ^= 1;
            }
        }
        let claim = Claim::directory();
        let server = Server::start(answers(bad));
        let failure = claim.import(plain(&server, ":index"), 2 * MIB).failed().clone();
        assert!(failure.message.contains("Unable to process data: "), "{}", failure.message);
        assert!(!claim.disk().exists(), "{part}");
    }
}

fn an_image_is_pulled_into_a_layout() {
    use disk_images::registry::{Access, Reference, pull};
    let files = served(&[tree(&[("a/b", b"lower"), ("c", b"c")]), tree(&[("a/b", b"upper"), (".wh.c", b"")])]);
    let served_by = answers(files);
    let server = Server::start(move |asked| {
        // Every transfer breaks once.
        let answer = served_by(asked);
        let broken = asked.header("range").is_none() && asked.path.contains("blobs");
        Answer { breaks_after: broken.then_some(50), ..answer }
    });
    let reference = Reference::parse(&format!("{}/test/disk:1", server.address)).unwrap();
    let access = Access { insecure: true, ..Access::default() };
    let dir = TempDir::new().unwrap();
    let mut seen = Vec::new();
    let layout = dir.path().join("layout");
    let runtime = crate::harness::runtime();
    let digest = runtime.block_on(pull(&reference, &access, &layout, 1 << 20, |now| seen.push(now))).unwrap();
    let root = dir.path().join("root");
    std::fs::create_dir(&root).unwrap();
    assert_eq!(oci_image::unpack_within(&layout, &root, 1 << 20).unwrap().digest, digest);
    assert_eq!(std::fs::read_to_string(root.join("a/b")).unwrap(), "upper");
    assert!(!root.join("c").exists());
    let last = seen.last().unwrap();
    assert!(last.bytes_done == last.bytes && last.layers_done == 2 && last.layers == 2, "{last:?}");
    assert!(oci_image::unpack_within(&layout, &dir.path().join("root"), 100).is_err(), "more than it may have");
    let too_large = runtime.block_on(pull(&reference, &access, &dir.path().join("other"), 10, |_| {})).unwrap_err();
    assert!(too_large.refused, "{too_large}");
}
