//! An image: layers and how to run them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use oci_spec::image::{
    Arch, Config, Descriptor, Digest, History, ImageConfiguration, ImageIndex, ImageManifestBuilder, MediaType, Os,
    Platform, RootFs, SCHEMA_VERSION,
};
use serde::Serialize;
use tar::Header;

use crate::blob;
use crate::error::Error;
use crate::layer::{Compression, Layer};

/// The file that marks a layout, and what it holds.
pub(crate) const MARK: &str = "oci-layout";
const MARK_TEXT: &[u8] = br#"{"imageLayoutVersion":"1.0.0"}"#;
pub(crate) const INDEX: &str = "index.json";
/// The full name, for containerd.
pub(crate) const FULL_NAME: &str = "io.containerd.image.name";
const TAG: &str = "org.opencontainers.image.ref.name";
/// No clock: the same files are the same image.
const CREATED: &str = "1970-01-01T00:00:00Z";

/// How to run an image. What is empty is left to the container.
#[derive(Clone, Debug, Default)]
pub struct Run {
    pub entrypoint: Vec<String>,
    /// `uid` or `uid:gid`.
    pub user: String,
    /// `NAME=value`.
    pub env: Vec<String>,
    pub labels: BTreeMap<String, String>,
}

#[derive(Clone, Debug)]
pub struct Image {
    name: String,
    run: Run,
    layers: Vec<Layer>,
}

/// The JSON documents of a layout.
struct Documents {
    config: Vec<u8>,
    manifest: Vec<u8>,
    index: Vec<u8>,
}

impl Image {
    /// `name` has a tag: without one it would mean `latest`, which the kubelet always pulls.
    pub fn new(name: &str, run: Run, layers: Vec<Layer>) -> Result<Self, Error> {
        match tag(name) {
            Some(_) => Ok(Image { name: name.to_owned(), run, layers }),
            None => Err(Error::Name(name.to_owned())),
        }
    }

    /// The digest that Pods refer to as `NAME@DIGEST`.
    pub fn digest(&self) -> Result<String, Error> {
        Ok(blob::digest(&self.documents()?.manifest))
    }

    /// Writes the image as one tar; returns its size. An earlier file stays until the new one is complete.
    pub fn write_archive(&self, to: &Path) -> Result<u64, Error> {
        let new = to.with_extension(format!("new-{}", std::process::id()));
        let written = self.write_tar(&new).and_then(|()| {
            let size = fs::metadata(&new).map_err(Error::io("look at", &new))?.len();
            fs::rename(&new, to).map_err(Error::io("publish", to)).map(|()| size)
        });
        if written.is_err() {
            let _ = fs::remove_file(&new);
        }
        written
    }

    fn write_tar(&self, to: &Path) -> Result<(), Error> {
        let documents = self.documents()?;
        let failed = || Error::io("write", to);
        let mut tar = tar::Builder::new(BufWriter::new(File::create(to).map_err(failed())?));
        for (name, bytes) in documents.files() {
            append(&mut tar, &name, bytes.len() as u64, bytes).map_err(failed())?;
        }
        for layer in self.distinct() {
            let (file, name) = (layer.open()?, layer.place()?);
            append(&mut tar, &name, layer.size, file).map_err(failed())?;
        }
        let mut file = tar.into_inner().map_err(failed())?;
        file.flush().map_err(failed())
    }

    /// Writes the image as a directory.
    pub fn write_layout(&self, dir: &Path) -> Result<(), Error> {
        let blobs = dir.join("blobs/sha256");
        fs::create_dir_all(&blobs).map_err(Error::io("make", &blobs))?;
        for (name, bytes) in self.documents()?.files() {
            let file = dir.join(name);
            fs::write(&file, bytes).map_err(Error::io("write", &file))?;
        }
        for layer in self.distinct() {
            let file = dir.join(layer.place()?);
            fs::copy(&layer.blob, &file).map_err(Error::io("write", &file))?;
        }
        Ok(())
    }

    /// The layers, each once.
    fn distinct(&self) -> impl Iterator<Item = &Layer> {
        let by_digest: BTreeMap<&str, &Layer> =
            self.layers.iter().map(|layer| (layer.digest.as_str(), layer)).collect();
        by_digest.into_values()
    }

    fn documents(&self) -> Result<Documents, Error> {
        let config = json(&self.configuration())?;
        let manifest = ImageManifestBuilder::default()
            .schema_version(SCHEMA_VERSION)
            .media_type(MediaType::ImageManifest)
            .config(descriptor(MediaType::ImageConfig, &config)?)
            .layers(self.layers.iter().map(Layer::descriptor).collect::<Result<Vec<_>, _>>()?)
            .build()
            .map_err(|err| Error::image(Path::new(&self.name), err.to_string()))?;
        let manifest = json(&manifest)?;

        let mut listed = descriptor(MediaType::ImageManifest, &manifest)?;
        let mut platform = Platform::default();
        platform.set_architecture(Arch::Amd64).set_os(Os::Linux);
        let names = [(FULL_NAME, self.name.as_str()), (TAG, tag(&self.name).unwrap_or_default())];
        let names = names.map(|(key, value)| (key.to_owned(), value.to_owned()));
        listed.set_platform(Some(platform)).set_annotations(Some(names.into()));
        let mut index = ImageIndex::default();
        index
            .set_schema_version(SCHEMA_VERSION)
            .set_media_type(Some(MediaType::ImageIndex))
            .set_manifests(vec![listed]);
        Ok(Documents { config, manifest, index: json(&index)? })
    }

    fn configuration(&self) -> ImageConfiguration {
        let Run { entrypoint, user, env, labels } = self.run.clone();
        let mut config = Config::default();
        config
            .set_entrypoint((!entrypoint.is_empty()).then_some(entrypoint))
            .set_user((!user.is_empty()).then_some(user))
            .set_env((!env.is_empty()).then_some(env))
            .set_labels((!labels.is_empty()).then(|| labels.into_iter().collect()));
        let mut root = RootFs::default();
        root.set_diff_ids(self.layers.iter().map(|layer| layer.diff_id.clone()).collect());
        let mut step = History::default();
        step.set_created(Some(CREATED.to_owned())).set_created_by(Some("ferrovirt".to_owned()));
        let mut all = ImageConfiguration::default();
        all.set_created(Some(CREATED.to_owned()))
            .set_architecture(Arch::Amd64)
            .set_os(Os::Linux)
            .set_config(Some(config))
            .set_rootfs(root)
            .set_history(Some(vec![step; self.layers.len()]));
        all
    }
}

impl Documents {
    /// By their names in a layout.
    fn files(&self) -> Vec<(String, &[u8])> {
        let blob = |bytes: &[u8]| blob::place(&blob::digest(bytes)).unwrap_or_default();
        vec![
            (MARK.to_owned(), MARK_TEXT),
            (INDEX.to_owned(), &self.index),
            (blob(&self.config), &self.config),
            (blob(&self.manifest), &self.manifest),
        ]
    }
}

impl Layer {
    fn descriptor(&self) -> Result<Descriptor, Error> {
        let kind = match self.compression {
            Compression::None => MediaType::ImageLayer,
            Compression::Gzip => MediaType::ImageLayerGzip,
        };
        Ok(Descriptor::new(kind, self.size, parse(&self.digest)?))
    }

    fn place(&self) -> Result<String, Error> {
        blob::place(&self.digest).ok_or_else(|| bad_digest(&self.digest))
    }

    /// Fails if the blob is no longer what was written.
    fn open(&self) -> Result<File, Error> {
        let file = File::open(&self.blob).map_err(Error::io("open the layer", &self.blob))?;
        let size = file.metadata().map_err(Error::io("look at", &self.blob))?.len();
        if size == self.size { Ok(file) } else { Err(Error::image(&self.blob, "the layer has another size")) }
    }
}

/// The tag of a name; a port is none.
fn tag(name: &str) -> Option<&str> {
    let valid = !name.contains('@') && name.bytes().all(|b| b.is_ascii_graphic());
    let (repository, tag) = name.rsplit_once(':')?;
    (valid && !repository.is_empty() && !tag.is_empty() && !tag.contains('/')).then_some(tag)
}

/// Sorted: maps of the specification's types have no order of their own.
fn json(document: &impl Serialize) -> Result<Vec<u8>, Error> {
    let sorted = serde_json::to_value(document).and_then(|mut value| {
        value.sort_all_objects();
        serde_json::to_vec(&value)
    });
    sorted.map_err(|err| Error::image(Path::new("the image"), err.to_string()))
}

fn descriptor(kind: MediaType, bytes: &[u8]) -> Result<Descriptor, Error> {
    Ok(Descriptor::new(kind, bytes.len() as u64, parse(&blob::digest(bytes))?))
}

fn parse(digest: &str) -> Result<Digest, Error> {
    digest.parse().map_err(|_| bad_digest(digest))
}

fn bad_digest(digest: &str) -> Error {
    Error::image(Path::new("the layer"), format!("{digest:?} is no digest"))
}

fn append<W: Write>(tar: &mut tar::Builder<W>, name: &str, size: u64, data: impl io::Read) -> io::Result<()> {
    let mut header = Header::new_ustar();
    header.set_path(name)?;
    header.set_mode(0o644);
    header.set_mtime(0);
    header.set_size(size);
    header.set_cksum();
    tar.append(&header, data)
}
