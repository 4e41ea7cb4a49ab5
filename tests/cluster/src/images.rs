//! Images for tests, made from files of this machine, and what the nodes need to know of an image.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use oci_image::{Compression, Entry, Image, Run, Tree};
use serde::Deserialize;

use crate::run;

/// The image `registry.local/busybox:1`.
pub const BUSYBOX: &str = "registry.local/busybox:1";

const PAUSE_SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/pause.c");
const BUSYBOX_PROGRAM: &str = "/usr/bin/busybox";
/// No index of an image is longer.
const INDEX_LIMIT: u64 = 1 << 20;

/// An image in an archive.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) digest: String,
}

impl Listed {
    /// `NAME@DIGEST`, which has no tag.
    pub(crate) fn by_digest(&self) -> String {
        let tag = self.name.rfind(':').filter(|colon| !self.name[*colon..].contains('/'));
        format!("{}@{}", &self.name[..tag.unwrap_or(self.name.len())], self.digest)
    }
}

/// The images that an archive lists by name.
pub(crate) fn list(archive: &Path) -> Result<Vec<Listed>> {
    let listed = list_in(archive).with_context(|| format!("cannot read the image archive {}", archive.display()))?;
    ensure!(
        !listed.is_empty(),
        "{} names no image; it needs the annotation io.containerd.image.name",
        archive.display()
    );
    Ok(listed)
}

fn list_in(archive: &Path) -> Result<Vec<Listed>> {
    #[derive(Deserialize)]
    struct Index {
        manifests: Vec<Manifest>,
    }
    #[derive(Deserialize)]
    struct Manifest {
        digest: String,
        #[serde(default)]
        annotations: Annotations,
    }
    #[derive(Default, Deserialize)]
    struct Annotations {
        #[serde(rename = "io.containerd.image.name")]
        name: Option<String>,
    }
    let mut archive = tar::Archive::new(File::open(archive)?);
    for entry in archive.entries_with_seek()? {
        let entry = entry?;
        if entry.path()?.as_ref() == Path::new("index.json") {
            let mut text = Vec::new();
            entry.take(INDEX_LIMIT).read_to_end(&mut text)?;
            let index: Index = serde_json::from_slice(&text).context("its index.json is not as expected")?;
            let listed = index.manifests.into_iter();
            return Ok(listed.filter_map(|m| Some(Listed { name: m.annotations.name?, digest: m.digest })).collect());
        }
    }
    bail!("it has no index.json: it is no OCI archive")
}

/// Writes one image of files to `NAME.tar` of a folder, as `registry.local/NAME:1`.
pub fn write(folder: &Path, name: &str, tree: &Tree, run: Run) -> Result<PathBuf> {
    let doing = || format!("cannot make the image {name}");
    let layer = tree.write_layer(&folder.join("blobs"), Compression::None).with_context(doing)?;
    let archive = folder.join(format!("{name}.tar"));
    let image = Image::new(&format!("registry.local/{name}:1"), run, vec![layer]).with_context(doing)?;
    image.write_archive(&archive).with_context(doing)?;
    Ok(archive)
}

/// Busybox with a link for each of its commands: [`BUSYBOX`].
pub fn busybox(folder: &Path) -> Result<PathBuf> {
    let commands = run::output(Command::new(BUSYBOX_PROGRAM).arg("--list"))?;
    let mut tree = Tree::default();
    tree.insert("bin/busybox", Entry::file(BUSYBOX_PROGRAM, 0o755))?;
    for command in commands.lines().filter(|command| *command != "busybox") {
        tree.insert(Path::new("bin").join(command), Entry::symlink("busybox"))?;
    }
    tree.insert("tmp", Entry::directory(0o1777))?;
    tree.insert("etc/passwd", Entry::text("root:x:0:0::/:/bin/sh\nqemu:x:107:107::/:/bin/sh\n"))?;
    tree.insert("etc/group", Entry::text("root:x:0:\nqemu:x:107:\n"))?;
    write(folder, "busybox", &tree, run(&["/bin/sh"]))
}

/// What every node needs: the image that holds a Pod's namespaces, and DNS.
pub(crate) fn of_every_cluster(folder: &Path, coredns: &Path) -> Result<Vec<PathBuf>> {
    let pause = folder.join("pause");
    run::output(Command::new("cc").args(["-Os", "-static", "-s", "-o"]).arg(&pause).arg(PAUSE_SOURCE))?;
    let one = |name: &str, file: &Path| {
        let mut tree = Tree::default();
        tree.insert(name, Entry::file(file, 0o755))?;
        write(folder, name, &tree, run(&[&format!("/{name}")]))
    };
    Ok(vec![one("pause", &pause)?, one("coredns", &coredns.join("coredns"))?])
}

fn run(entrypoint: &[&str]) -> Run {
    Run { entrypoint: entrypoint.iter().map(|word| (*word).to_owned()).collect(), ..Run::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_tells_its_image() {
        let folder = tempfile::tempdir().unwrap();
        let mut tree = Tree::default();
        tree.insert("file", Entry::text("text")).unwrap();
        let archive = write(folder.path(), "small", &tree, Run::default()).unwrap();
        let listed = list(&archive).unwrap();
        assert_eq!(listed.len(), 1);
        assert_eq!(listed[0].name, "registry.local/small:1");
        assert_eq!(listed[0].by_digest(), format!("registry.local/small@{}", listed[0].digest));
        assert!(listed[0].digest.starts_with("sha256:"));
    }

    #[test]
    fn the_port_of_a_registry_is_no_tag() {
        let named = |name: &str| Listed { name: name.to_owned(), digest: "sha256:1".to_owned() }.by_digest();
        assert_eq!(named("localhost:5000/a"), "localhost:5000/a@sha256:1");
        assert_eq!(named("localhost:5000/a:2"), "localhost:5000/a@sha256:1");
    }

    #[test]
    fn what_is_no_image_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("empty.tar");
        tar::Builder::new(File::create(&path).unwrap()).finish().unwrap();
        let error = format!("{:#}", list(&path).unwrap_err());
        assert!(error.contains("empty.tar") && error.ends_with("it is no OCI archive"), "{error}");
    }
}
