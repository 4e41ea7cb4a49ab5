//! Reading images: archives and layouts, ours and those of other tools.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};

use oci_spec::image::{Arch, Descriptor, ImageIndex, ImageManifest, MediaType, Os};

use crate::blob::{self, Hashing};
use crate::capability::{ATTRIBUTE, RECORD};
use crate::error::Error;
use crate::image::{FULL_NAME, INDEX, MARK};

/// The largest document that is read, and the most layers.
const DOCUMENT_MAX: u64 = 4 << 20;
const LAYERS_MAX: usize = 256;
/// An index may list indexes, which some tools make.
const DEPTH_MAX: usize = 2;
/// The most files of an archive that are looked at.
const FILES_MAX: usize = 4096;
/// The most entries of all layers, the deepest path, and the most bytes that describe one entry: its names and attributes are kept in
/// memory, and trees are removed with a descriptor for each level.
const ENTRIES_MAX: u64 = 1_000_000;
const NESTED_MAX: usize = 128;
const HEAD_MAX: u64 = 1 << 20;

const WHITEOUT: &str = ".wh.";
const OPAQUE: &str = ".wh..wh..opq";

/// What an image says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unpacked {
    /// The name it was given when it was made.
    pub name: Option<String>,
    /// The manifest's digest.
    pub digest: String,
}

/// Whether a file or directory is an image rather than the files of one.
pub fn is_image(path: &Path) -> Result<bool, Error> {
    let meta = fs::metadata(path).map_err(Error::io("look at", path))?;
    if meta.is_dir() {
        return Ok(path.join(MARK).is_file() && path.join(INDEX).is_file());
    }
    let files = || Source::open(path).ok();
    Ok(files().is_some_and(|source| source.has(MARK) && source.has(INDEX)))
}

/// Unpacks the layers of an image, lowest first, into an empty directory. Every blob is checked against its digest; on an
/// error the directory holds a part of the image.
pub fn unpack(image: &Path, into: &Path) -> Result<Unpacked, Error> {
    unpack_within(image, into, u64::MAX)
}

/// The same for an image that is not trusted: its layers, unpacked, may have so many bytes in all.
pub fn unpack_within(image: &Path, into: &Path, limit: u64) -> Result<Unpacked, Error> {
    let left = Left { bytes: Cell::new(limit), head: Cell::new(HEAD_MAX), entries: Cell::new(ENTRIES_MAX) };
    let mut source = Source::open(image)?;
    let index = source.document(INDEX)?;
    let listed = source.manifest(&index)?;
    let name = listed.annotations().as_ref().and_then(|all| all.get(FULL_NAME).cloned());
    let manifest: ImageManifest = source.parse(&source.blob_document(&listed)?)?;
    if manifest.layers().len() > LAYERS_MAX {
        return Err(Error::image(image, format!("it has more than {LAYERS_MAX} layers")));
    }
    for layer in manifest.layers() {
        source.unpack_layer(layer, into, &left)?;
    }
    Ok(Unpacked { name, digest: listed.digest().to_string() })
}

/// The files of a layout, by name.
struct Source {
    path: PathBuf,
    archive: Option<Archive>,
}

struct Archive {
    file: File,
    /// Position and size of each file in it.
    files: BTreeMap<String, (u64, u64)>,
}

impl Source {
    fn open(path: &Path) -> Result<Self, Error> {
        if path.is_dir() {
            return Ok(Source { path: path.to_owned(), archive: None });
        }
        let file = File::open(path).map_err(Error::io("open", path))?;
        let files = list(&file).map_err(Error::io("list", path))?;
        Ok(Source { path: path.to_owned(), archive: Some(Archive { file, files }) })
    }

    fn has(&self, name: &str) -> bool {
        match &self.archive {
            Some(archive) => archive.files.contains_key(name),
            None => self.path.join(name).is_file(),
        }
    }

    fn read(&self, name: &str) -> Result<impl Read + use<>, Error> {
        let failed = |err: io::Error| Error::image(&self.path, format!("{name}: {err}"));
        let Some(Archive { file, files }) = &self.archive else {
            return File::open(self.path.join(name)).map(|file| file.take(u64::MAX)).map_err(failed);
        };
        let (position, size) = files.get(name).ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        // One after the other: a clone of the descriptor shares its position.
        let mut file = file.try_clone().map_err(failed)?;
        file.seek(SeekFrom::Start(*position)).map_err(failed)?;
        Ok(file.take(*size))
    }

    fn document(&self, name: &str) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![];
        let read = self.read(name)?.take(DOCUMENT_MAX + 1).read_to_end(&mut bytes);
        read.map_err(|err| Error::image(&self.path, format!("{name}: {err}")))?;
        if bytes.len() as u64 > DOCUMENT_MAX {
            return Err(Error::image(&self.path, format!("{name} has more than {DOCUMENT_MAX} bytes")));
        }
        Ok(bytes)
    }

    fn blob_document(&self, descriptor: &Descriptor) -> Result<Vec<u8>, Error> {
        let bytes = self.document(&self.place(descriptor)?)?;
        self.check(descriptor, &blob::digest(&bytes)).map(|()| bytes)
    }

    fn place(&self, descriptor: &Descriptor) -> Result<String, Error> {
        let digest = descriptor.digest().to_string();
        blob::place(&digest).ok_or_else(|| Error::image(&self.path, format!("{digest:?} is no digest by sha256")))
    }

    fn check(&self, descriptor: &Descriptor, found: &str) -> Result<(), Error> {
        let wanted = descriptor.digest().to_string();
        if wanted == found { Ok(()) } else { Err(Error::image(&self.path, format!("blob {wanted} is damaged"))) }
    }

    fn parse<T: serde::de::DeserializeOwned>(&self, bytes: &[u8]) -> Result<T, Error> {
        serde_json::from_slice(bytes).map_err(|err| Error::image(&self.path, err.to_string()))
    }

    /// The manifest for this kind of machine.
    fn manifest(&self, index: &[u8]) -> Result<Descriptor, Error> {
        let mut index: ImageIndex = self.parse(index)?;
        for _ in 0..DEPTH_MAX {
            let ours = |one: &&Descriptor| {
                one.platform().as_ref().is_none_or(|p| *p.architecture() == Arch::Amd64 && *p.os() == Os::Linux)
            };
            let found = index.manifests().iter().find(ours).cloned();
            let found = found.ok_or_else(|| Error::image(&self.path, "it has nothing for linux on amd64"))?;
            if *found.media_type() != MediaType::ImageIndex {
                return Ok(found);
            }
            index = self.parse(&self.blob_document(&found)?)?;
        }
        Err(Error::image(&self.path, "its indexes are nested too deeply"))
    }

    fn unpack_layer(&mut self, layer: &Descriptor, into: &Path, left: &Left) -> Result<(), Error> {
        let gzipped = match layer.media_type() {
            MediaType::ImageLayer => false,
            MediaType::ImageLayerGzip => true,
            MediaType::Other(kind) if kind == "application/vnd.docker.image.rootfs.diff.tar.gzip" => true,
            other => return Err(Error::image(&self.path, format!("layers of type {other} are not supported"))),
        };
        let mut blob = Hashing::new(BufReader::with_capacity(1 << 16, self.read(&self.place(layer)?)?));
        let failed = |err: io::Error| Error::Io { doing: "unpack a layer into", path: into.to_owned(), err };
        if gzipped {
            unpack_tar(flate2::read::MultiGzDecoder::new(&mut blob), into, left).map_err(failed)?;
        } else {
            unpack_tar(&mut blob, into, left).map_err(failed)?;
        }
        // The rest belongs to the blob, too.
        io::copy(&mut blob, &mut io::sink()).map_err(failed)?;
        let (_, digest, _) = blob.finish();
        self.check(layer, &digest)
    }
}

/// What is left of an image's limits.
struct Left {
    bytes: Cell<u64>,
    /// For what describes the next entry.
    head: Cell<u64>,
    entries: Cell<u64>,
}

fn take(left: &Cell<u64>, count: u64, otherwise: &str) -> io::Result<()> {
    left.set(left.get().checked_sub(count).ok_or_else(|| io::Error::other(otherwise))?);
    Ok(())
}

/// Ends with an error where an image goes beyond its limits.
struct Limited<'a, R> {
    inner: R,
    left: &'a Left,
}

impl<R: Read> Read for Limited<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        take(&self.left.bytes, count as u64, "it is too large")?;
        take(&self.left.head, count as u64, "the name or the attributes of a file are too long")?;
        Ok(count)
    }
}

/// The regular files of an archive, with their positions.
fn list(file: &File) -> io::Result<BTreeMap<String, (u64, u64)>> {
    let mut files = BTreeMap::new();
    let mut archive = tar::Archive::new(file);
    for entry in archive.entries_with_seek()?.take(FILES_MAX) {
        let entry = entry?;
        if entry.header().entry_type().is_file()
            && let Some(name) = entry.path()?.to_str()
        {
            let name = name.strip_prefix("./").unwrap_or(name).to_owned();
            files.insert(name, (entry.raw_file_position(), entry.size()));
        }
    }
    Ok(files)
}

fn unpack_tar(from: impl Read, into: &Path, left: &Left) -> io::Result<()> {
    let root = rustix::process::geteuid().is_root();
    let mut archive = tar::Archive::new(Limited { inner: from, left });
    archive.set_preserve_permissions(true);
    archive.set_preserve_ownerships(root);
    archive.set_preserve_mtime(true);
    archive.set_overwrite(true);
    let mut entries = archive.entries()?;
    loop {
        left.head.set(HEAD_MAX);
        let Some(entry) = entries.next() else { return Ok(()) };
        let mut entry = entry?;
        take(&left.entries, 1, "it has more than a million files")?;
        let path = plain(&entry.path()?)?;
        if let Some(name) = path.file_name().and_then(|name| name.to_str()).filter(|name| name.starts_with(WHITEOUT)) {
            remove(into, &path, name)?;
            continue;
        }
        let capability = capability(&mut entry)?.filter(|_| root && entry.header().entry_type().is_file());
        left.head.set(u64::MAX);
        // The library refuses what would lie outside, also by way of links, and makes no devices.
        entry.unpack_in(into)?;
        if let Some(value) = capability {
            rustix::fs::lsetxattr(into.join(&path), ATTRIBUTE, &value, rustix::fs::XattrFlags::empty())?;
        }
    }
}

/// A path of an archive, relative to the image's root: also one that begins with a slash.
fn plain(path: &Path) -> io::Result<PathBuf> {
    let refused = |why: &str| io::Error::other(format!("{}: its path {why}", path.display()));
    let mut plain = PathBuf::new();
    for (depth, component) in path.components().enumerate() {
        match component {
            _ if depth > NESTED_MAX => return Err(refused("is nested too deeply")),
            Component::Normal(name) => plain.push(name),
            Component::ParentDir => return Err(refused("leads out of the image")),
            Component::Prefix(_) | Component::RootDir | Component::CurDir => {}
        }
    }
    Ok(plain)
}

fn capability(entry: &mut tar::Entry<'_, impl Read>) -> io::Result<Option<Vec<u8>>> {
    let Some(records) = entry.pax_extensions()? else { return Ok(None) };
    let mut value = None;
    for record in records {
        let record = record?;
        if record.key_bytes() == RECORD.as_bytes() {
            value = Some(record.value_bytes().to_vec());
        }
    }
    Ok(value)
}

/// Removes what a layer hides of those below it. Links on the way must not lead out of the image.
fn remove(into: &Path, whiteout: &Path, name: &str) -> io::Result<()> {
    let Some(parent) = whiteout.parent() else { return Ok(()) };
    let (inside, parent) = (into.canonicalize()?, into.join(parent));
    let Ok(parent) = parent.canonicalize() else { return Ok(()) };
    if !parent.starts_with(&inside) {
        return Err(io::Error::other(format!("{} leads out of the image", whiteout.display())));
    }
    if name == OPAQUE {
        for entry in fs::read_dir(&parent)? {
            delete(&entry?.path())?;
        }
        return Ok(());
    }
    match &name[WHITEOUT.len()..] {
        "" | "." | ".." => Err(io::Error::other(format!("{} hides no file", whiteout.display()))),
        hidden => delete(&parent.join(hidden)),
    }
}

fn delete(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(err) => Err(err),
    }
}
