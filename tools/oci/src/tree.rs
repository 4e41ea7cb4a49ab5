//! The files of a layer.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use crate::capability::{ATTRIBUTE, Capability};
use crate::error::Error;

/// The longest attribute of file capabilities; the kernel's have 20 or 24 bytes.
const ATTRIBUTE_MAX: usize = 64;

/// Files by their paths, relative to the root of the image. Parents come before what is in them.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    pub(crate) entries: BTreeMap<PathBuf, Entry>,
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub kind: Kind,
    /// Permissions, with the set-user-ID, set-group-ID and sticky bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// The attribute `security.capability`.
    pub capability: Option<Vec<u8>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Directory,
    File(Content),
    Symlink(PathBuf),
    /// Another name of a file that comes before it in the same layer.
    HardLink(PathBuf),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    Bytes(Vec<u8>),
    /// Read when the layer is written.
    Path(PathBuf),
}

impl Entry {
    fn new(kind: Kind, mode: u32) -> Self {
        Entry { kind, mode, uid: 0, gid: 0, capability: None }
    }

    pub fn directory(mode: u32) -> Self {
        Self::new(Kind::Directory, mode)
    }

    pub fn text(text: impl Into<String>) -> Self {
        Self::new(Kind::File(Content::Bytes(text.into().into_bytes())), 0o644)
    }

    pub fn file(from: impl Into<PathBuf>, mode: u32) -> Self {
        Self::new(Kind::File(Content::Path(from.into())), mode)
    }

    pub fn symlink(target: impl Into<PathBuf>) -> Self {
        Self::new(Kind::Symlink(target.into()), 0o777)
    }

    pub fn hard_link(target: impl Into<PathBuf>) -> Self {
        Self::new(Kind::HardLink(target.into()), 0o644)
    }

    pub fn owned_by(self, uid: u32, gid: u32) -> Self {
        Entry { uid, gid, ..self }
    }

    pub fn with_capability(self, capability: Capability) -> Self {
        Entry { capability: Some(capability.attribute()), ..self }
    }
}

impl Tree {
    /// Everything below a directory, with its owners, modes, hard links and capabilities. Devices, sockets and pipes are
    /// left out: a container gets its own.
    pub fn from_dir(dir: &Path) -> Result<Self, Error> {
        let mut tree = Tree::default();
        tree.walk(dir, Path::new(""), &mut HashMap::new())?;
        Ok(tree)
    }

    /// Puts an entry at a path, in place of an earlier one. Missing parents become directories of root.
    pub fn insert(&mut self, path: impl AsRef<Path>, entry: Entry) -> Result<(), Error> {
        let path = relative(path.as_ref())?;
        for parent in path.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty()) {
            self.entries.entry(parent.to_owned()).or_insert_with(|| Entry::directory(0o755));
        }
        self.entries.insert(path, entry);
        Ok(())
    }

    /// Removes a path and everything below it.
    pub fn remove(&mut self, path: impl AsRef<Path>) {
        let path = path.as_ref();
        self.entries.retain(|name, _| !name.starts_with(path));
    }

    pub fn get(&self, path: impl AsRef<Path>) -> Option<&Entry> {
        self.entries.get(path.as_ref())
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&Path, &mut Entry)> {
        self.entries.iter_mut().map(|(path, entry)| (path.as_path(), entry))
    }

    fn walk(&mut self, root: &Path, below: &Path, links: &mut HashMap<(u64, u64), PathBuf>) -> Result<(), Error> {
        let dir = root.join(below);
        let listed = fs::read_dir(&dir).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let mut names: Vec<_> = listed.map_err(Error::io("list", &dir))?.iter().map(fs::DirEntry::file_name).collect();
        names.sort();
        for name in names {
            let (path, place) = (below.join(&name), dir.join(&name));
            let meta = fs::symlink_metadata(&place).map_err(Error::io("look at", &place))?;
            let Some(kind) = kind(&place, &path, &meta, links)? else { continue };
            let capability = if matches!(kind, Kind::File(_)) { capability(&place)? } else { None };
            let mode = meta.mode() & 0o7777;
            self.entries.insert(path.clone(), Entry { kind, mode, uid: meta.uid(), gid: meta.gid(), capability });
            if meta.is_dir() {
                self.walk(root, &path, links)?;
            }
        }
        Ok(())
    }
}

fn kind(
    place: &Path,
    path: &Path,
    meta: &fs::Metadata,
    links: &mut HashMap<(u64, u64), PathBuf>,
) -> Result<Option<Kind>, Error> {
    if meta.is_dir() {
        return Ok(Some(Kind::Directory));
    }
    if meta.is_symlink() {
        return fs::read_link(place).map(|target| Some(Kind::Symlink(target))).map_err(Error::io("read link", place));
    }
    if !meta.is_file() {
        return Ok(None);
    }
    if meta.nlink() > 1 {
        let first = links.entry((meta.dev(), meta.ino())).or_insert_with(|| path.to_owned());
        if first != path {
            return Ok(Some(Kind::HardLink(first.clone())));
        }
    }
    Ok(Some(Kind::File(Content::Path(place.to_owned()))))
}

fn capability(place: &Path) -> Result<Option<Vec<u8>>, Error> {
    let mut value = [0; ATTRIBUTE_MAX];
    match rustix::fs::lgetxattr(place, ATTRIBUTE, &mut value) {
        Ok(length) => Ok(Some(value[..length].to_vec())),
        Err(rustix::io::Errno::NODATA | rustix::io::Errno::NOTSUP) => Ok(None),
        Err(err) => Err(Error::io("read the capabilities of", place)(err.into())),
    }
}

/// A path below the root, whether or not it starts with a slash.
fn relative(path: &Path) -> Result<PathBuf, Error> {
    let bad = |reason| Error::Entry { path: path.to_owned(), reason };
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => plain.push(name),
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => return Err(bad("it leaves the image")),
        }
    }
    if plain.as_os_str().is_empty() { Err(bad("it has no name")) } else { Ok(plain) }
}
