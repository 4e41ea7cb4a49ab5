//! The image store: images and root file systems that were imported by hand or pulled from a registry.
//!
//! ```text
//! <images>/<escaped reference>/rootfs/…   the files
//! <images>/<escaped reference>/lock       shared lock of every shim that uses the image
//! <images>/<escaped reference>/digest     what the files are, in one number: of what was pulled, the manifest's digest
//! <images>/.retired-<n>/                  replaced or removed while in use; deleted when nobody holds its lock
//! <images>/.new-<n>/                      being imported
//! ```
//!
//! An import becomes visible with one rename. Pods keep running from a replaced version, since they hold its directory
//! and lock by descriptor.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FlockOperation, RenameFlags};
use sha2::{Digest, Sha256};

use crate::record::RootSource;

/// Separator between an image's name and its digest.
const PINNED: &str = "@sha256:";

/// The reference to the host's own root file system, with any tag. The tag distinguishes Pods created by different
/// builds of the program.
pub const HOST_IMAGE: &str = "ferrovirt.io/host";

/// A requested image that is not in the store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "image {reference:?} is not in this machine's image store; import it with: ferrovirt image import {reference} DIR|TAR"
)]
pub struct Missing {
    pub reference: String,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0:?} is not an image reference: use a name such as example.com/disk:1")]
    BadReference(String),
    #[error("the reference {HOST_IMAGE} stands for the host itself and cannot be imported or removed")]
    HostImage,
    #[error(
        "failed to read {path} as a root file system; give an OCI image, a directory, a tar archive or a gzipped one"
    )]
    Unpack {
        path: PathBuf,
        #[source]
        err: io::Error,
    },
    #[error(transparent)]
    Image(#[from] oci_image::Error),
    #[error("failed to {doing} {path}")]
    Store {
        doing: &'static str,
        path: PathBuf,
        #[source]
        err: io::Error,
    },
}

/// The root file system of a reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageRoot {
    Host,
    /// A directory of the store, to be opened and locked before use.
    Stored(PathBuf),
}

impl ImageRoot {
    /// The image's files, for read-only tools.
    pub fn rootfs(&self) -> PathBuf {
        match self {
            ImageRoot::Host => PathBuf::from("/"),
            ImageRoot::Stored(dir) => dir.join("rootfs"),
        }
    }

    pub(crate) fn source(self) -> RootSource {
        match self {
            ImageRoot::Host => RootSource::Host,
            ImageRoot::Stored(dir) => RootSource::Image(dir),
        }
    }
}

/// Resolves the image reference of a Pod. A reference with a digest means exactly these files, whatever their current
/// name.
pub fn resolve(images_dir: &Path, reference: &str) -> Result<ImageRoot, Missing> {
    if is_host(reference) {
        return Ok(ImageRoot::Host);
    }
    if let Some((_, digest)) = reference.split_once(PINNED) {
        let missing = || Missing { reference: reference.to_owned() };
        return with_digest(images_dir, digest).map(ImageRoot::Stored).ok_or_else(missing);
    }
    let dir = images_dir.join(escape(&normalize(reference)));
    if dir.join("rootfs").is_dir() {
        Ok(ImageRoot::Stored(dir))
    } else {
        Err(Missing { reference: reference.to_owned() })
    }
}

/// The reference with the current digest, which always means the same files. `None` if the image is not in the store or
/// has no digest: the host, and images imported before digests were recorded.
pub fn pinned(images_dir: &Path, reference: &str) -> Option<String> {
    let ImageRoot::Stored(dir) = resolve(images_dir, reference).ok()? else { return None };
    let digest = noted_digest(&dir)?;
    let untagged = match reference.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => name,
        _ => reference,
    };
    let name = reference.split_once(PINNED).map_or(untagged, |(name, _)| name);
    Some(format!("{name}{PINNED}{digest}"))
}

fn noted_digest(dir: &Path) -> Option<String> {
    fs::read_to_string(dir.join("digest")).ok().filter(|digest| !digest.is_empty())
}

/// Includes replaced versions that are still in use.
fn with_digest(images_dir: &Path, digest: &str) -> Option<PathBuf> {
    let all = names(images_dir).ok()?.into_iter().filter(|name| !name.starts_with(".new-"));
    all.map(|name| images_dir.join(name)).find(|dir| noted_digest(dir).as_deref() == Some(digest))
}

/// Imports a root file system into the store, replacing one of the same reference. `from` is an OCI image (an archive, as
/// `make images` writes it, or a layout), or the files themselves: a directory or a tar archive, optionally gzipped.
pub fn import(images_dir: &Path, reference: &str, from: &Path) -> Result<(), Error> {
    import_as(images_dir, reference, from, None)
}

/// Imports what was pulled, under the digest of its manifest: `from` is an OCI layout. Its content is not trusted: unpacked, it
/// may have `limit` bytes.
pub fn import_pulled(images_dir: &Path, reference: &str, from: &Path, digest: &str, limit: u64) -> Result<(), Error> {
    import_as(images_dir, reference, from, Some((digest, limit)))
}

/// A directory in the store to pull into, on the same file system. It goes with this process.
pub fn workspace(images_dir: &Path) -> Result<PathBuf, Error> {
    fs::create_dir_all(images_dir).map_err(store("make", images_dir))?;
    fresh_dir(images_dir, ".new")
}

fn import_as(images_dir: &Path, reference: &str, from: &Path, pulled: Option<(&str, u64)>) -> Result<(), Error> {
    let name = storable(reference)?;
    fs::create_dir_all(images_dir).map_err(store("make", images_dir))?;
    collect_garbage(images_dir)?;
    let new = fresh_dir(images_dir, ".new")?;
    let result = fill(&new, from, pulled).and_then(|()| publish(images_dir, &new, &images_dir.join(name)));
    if result.is_err() {
        let _ = fs::remove_dir_all(&new);
    }
    result
}

/// Removes an image from the store; succeeds if it is absent. Pods that use it keep running.
pub fn remove(images_dir: &Path, reference: &str) -> Result<(), Error> {
    let dir = images_dir.join(storable(reference)?);
    if dir.exists() {
        let retired = fresh_dir(images_dir, ".retired")?;
        fs::rename(&dir, &retired).map_err(store("retire", &dir))?;
    }
    collect_garbage(images_dir)
}

/// The references in the store, sorted.
pub fn list(images_dir: &Path) -> Result<Vec<String>, Error> {
    let mut references: Vec<String> =
        names(images_dir)?.iter().filter(|n| !n.starts_with('.')).filter_map(|n| unescape(n)).collect();
    references.sort();
    Ok(references)
}

/// An image that is kept unchanged as long as this value lives.
#[derive(Debug)]
pub(crate) struct Held {
    dir: File,
    _lock: File,
}

impl Held {
    pub(crate) fn open(dir: &Path) -> io::Result<Held> {
        let opened = File::open(dir)?;
        let lock = rustix::fs::openat(
            &opened,
            "lock",
            rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        )?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockShared)?;
        Ok(Held { dir: opened, _lock: lock.into() })
    }

    /// Reopens the image in the caller's mount namespace: a directory opened in another one cannot be mounted. The
    /// kernel reports its current path; it may have been retired since.
    pub(crate) fn reopen(&self) -> io::Result<Reopened> {
        const ATTEMPTS: usize = 10;
        for _ in 0..ATTEMPTS {
            let path = fs::read_link(hostfs::beneath::descriptor_path(&self.dir))?;
            if let Ok(dir) = File::open(path)
                && same_file(&dir, &self.dir)?
            {
                return Ok(Reopened(dir));
            }
        }
        Err(io::Error::new(io::ErrorKind::NotFound, "the image is being moved about"))
    }
}

/// See [`Held::reopen`].
pub(crate) struct Reopened(File);

impl Reopened {
    /// A path to the files that stays valid when the image is replaced.
    pub(crate) fn rootfs(&self) -> PathBuf {
        hostfs::beneath::descriptor_path(&self.0).join("rootfs")
    }
}

fn same_file(a: &File, b: &File) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let (a, b) = (a.metadata()?, b.metadata()?);
    Ok((a.dev(), a.ino()) == (b.dev(), b.ino()))
}

fn is_host(reference: &str) -> bool {
    normalize(reference).strip_prefix(HOST_IMAGE).is_some_and(|rest| rest.starts_with(':'))
}

/// A reference without tag and digest means the tag `latest`.
fn normalize(reference: &str) -> String {
    let last = reference.rsplit('/').next().unwrap_or(reference);
    if last.contains([':', '@']) { reference.to_owned() } else { format!("{reference}:latest") }
}

fn storable(reference: &str) -> Result<String, Error> {
    let printable = reference.bytes().all(|b| b.is_ascii_graphic());
    if reference.is_empty() || reference.len() > 512 || !printable {
        return Err(Error::BadReference(reference.to_owned()));
    }
    if is_host(reference) {
        return Err(Error::HostImage);
    }
    let name = escape(&normalize(reference));
    // The longest file name that file systems support.
    if name.len() > 255 { Err(Error::BadReference(reference.to_owned())) } else { Ok(name) }
}

/// Maps a reference to a file name: everything but letters, digits, hyphen, underscore and inner dots is escaped as
/// `%XX`.
fn escape(reference: &str) -> String {
    let mut name = String::new();
    for (i, b) in reference.bytes().enumerate() {
        let plain = b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_') || (b == b'.' && i > 0);
        if plain { name.push(char::from(b)) } else { name.push_str(&format!("%{b:02X}")) }
    }
    name
}

fn unescape(name: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = name.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        if *first == b'%' {
            let digits = std::str::from_utf8(tail.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &tail[2..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).ok()
}

fn fill(new: &Path, from: &Path, pulled: Option<(&str, u64)>) -> Result<(), Error> {
    let rootfs = new.join("rootfs");
    fs::create_dir(&rootfs).map_err(store("make", &rootfs))?;
    let unpack = |err| Error::Unpack { path: from.to_owned(), err };
    let directory = fs::metadata(from).map_err(unpack)?.is_dir();
    if let Some((_, limit)) = pulled {
        oci_image::unpack_within(from, &rootfs, limit)?;
    } else if oci_image::is_image(from)? {
        oci_image::unpack(from, &rootfs)?;
    } else if directory {
        copy_tree(from, &rootfs).map_err(unpack)?;
    } else {
        unpack_archive(from, &rootfs).map_err(unpack)?;
    }
    // Readable by any user of a Pod; the parent directory restricts access.
    set_mode(&rootfs, 0o755).map_err(store("open up", &rootfs))?;
    let digest = new.join("digest");
    let text = match pulled {
        Some((digest, _)) => digest.trim_start_matches("sha256:").to_owned(),
        None => {
            let mut hash = Sha256::new();
            hash_tree(&rootfs, &mut hash).map_err(store("read back", &rootfs))?;
            hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
        }
    };
    fs::write(&digest, text).map_err(store("write", &digest))?;
    let lock = new.join("lock");
    File::create(&lock).map(drop).map_err(store("make", &lock))
}

/// Hashes names, modes and contents of everything below, sorted by name.
fn hash_tree(dir: &Path, hash: &mut Sha256) -> io::Result<()> {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::MetadataExt;
    let mut entries = fs::read_dir(dir)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (path, meta) = (entry.path(), entry.metadata()?);
        let name = entry.file_name();
        hash.update((name.len() as u64).to_le_bytes());
        hash.update(name.as_bytes());
        hash.update(meta.mode().to_le_bytes());
        if meta.is_dir() {
            hash_tree(&path, hash)?;
            hash.update([0]); // separates the members from what follows
        } else if meta.is_symlink() {
            hash.update(fs::read_link(&path)?.as_os_str().as_bytes());
        } else if meta.is_file() {
            hash.update(meta.len().to_le_bytes());
            io::copy(&mut File::open(&path)?, hash)?;
        }
    }
    Ok(())
}

/// Publishes with a rename, or exchanges it with the previous version.
fn publish(images_dir: &Path, new: &Path, place: &Path) -> Result<(), Error> {
    match rustix::fs::renameat_with(CWD, new, CWD, place, RenameFlags::NOREPLACE) {
        Ok(()) => return Ok(()),
        Err(rustix::io::Errno::EXIST) => {}
        Err(e) => return Err(store("publish", place)(e.into())),
    }
    rustix::fs::renameat_with(CWD, new, CWD, place, RenameFlags::EXCHANGE)
        .map_err(|e| store("replace", place)(e.into()))?;
    let retired = fresh_dir(images_dir, ".retired")?;
    fs::rename(new, &retired).map_err(store("retire", new))?;
    collect_garbage(images_dir)
}

/// Deletes unused retired versions and interrupted imports.
fn collect_garbage(images_dir: &Path) -> Result<(), Error> {
    for name in names(images_dir)? {
        let dir = images_dir.join(&name);
        // An import killed right after the exchange leaves the old version, still in use, under its temporary name.
        let abandoned = name.starts_with(".retired-") || (name.starts_with(".new-") && !being_filled(&name));
        let unused = abandoned
            && File::open(dir.join("lock"))
                .map_or(true, |lock| rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok());
        if unused {
            fs::remove_dir_all(&dir).map_err(store("delete", &dir))?;
        }
    }
    Ok(())
}

/// The name of a directory under construction contains the PID of its process.
fn being_filled(name: &str) -> bool {
    let pid = name.trim_start_matches(".new-").split('-').next().and_then(|p| p.parse().ok());
    pid.is_some_and(|pid: i32| hostfs::process::ProcessId::of(pid).is_ok_and(|p| p.alive()))
}

fn fresh_dir(images_dir: &Path, prefix: &str) -> Result<PathBuf, Error> {
    let pid = std::process::id();
    let mut n = 0;
    loop {
        let dir = images_dir.join(format!("{prefix}-{pid}-{n}"));
        match fs::create_dir(&dir) {
            Ok(()) => return Ok(dir),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => n += 1,
            Err(e) => return Err(store("make", &dir)(e)),
        }
    }
}

fn names(images_dir: &Path) -> Result<Vec<String>, Error> {
    let entries = match fs::read_dir(images_dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(store("list", images_dir)(e)),
    };
    Ok(entries.flatten().filter_map(|e| e.file_name().into_string().ok()).collect())
}

fn unpack_archive(from: &Path, to: &Path) -> io::Result<()> {
    let mut file = io::BufReader::new(File::open(from)?);
    let gzipped = io::BufRead::fill_buf(&mut file)?.starts_with(&[0x1f, 0x8b]);
    let reader: Box<dyn Read> =
        if gzipped { Box::new(flate2::bufread::MultiGzDecoder::new(file)) } else { Box::new(file) };
    let mut archive = tar::Archive::new(reader);
    archive.set_preserve_permissions(true);
    archive.set_preserve_ownerships(rustix::process::geteuid().is_root());
    archive.set_preserve_mtime(true);
    archive.set_overwrite(true);
    // The library rejects entries outside of the target, also through links.
    archive.unpack(to)
}

/// Copies files, directories and links with their modes and owners; skips sockets, pipes and devices.
fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, symlink};
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let meta = entry.metadata()?;
        if meta.is_dir() {
            fs::create_dir(&target)?;
            copy_tree(&source, &target)?;
        } else if meta.is_symlink() {
            symlink(fs::read_link(&source)?, &target)?;
        } else if meta.is_file() {
            copy_file(&source, &target)?;
        } else {
            continue;
        }
        let owner = (Some(rustix::fs::Uid::from_raw(meta.uid())), Some(rustix::fs::Gid::from_raw(meta.gid())));
        rustix::fs::chownat(CWD, &target, owner.0, owner.1, AtFlags::SYMLINK_NOFOLLOW)?;
        if !meta.is_symlink() {
            set_mode(&target, meta.mode() & 0o7777)?;
        }
    }
    Ok(())
}

/// Reflinks the file where the file system supports it, which preserves holes, and copies it otherwise.
fn copy_file(source: &Path, target: &Path) -> io::Result<()> {
    let (from, to) = (File::open(source)?, File::create(target)?);
    match rustix::fs::ioctl_ficlone(&to, &from) {
        Ok(()) => Ok(()),
        Err(_) => fs::copy(source, target).map(drop),
    }
}

fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode))
}

fn store<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> Error + 'a {
    move |err| Error::Store { doing, path: path.to_owned(), err }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    fn tree(dir: &Path, text: &str) -> PathBuf {
        let root = dir.join(format!("tree-{text}"));
        fs::create_dir_all(root.join("disk")).unwrap();
        fs::write(root.join("disk/image"), text).unwrap();
        fs::set_permissions(root.join("disk/image"), fs::Permissions::from_mode(0o640)).unwrap();
        symlink("disk/image", root.join("link")).unwrap();
        root
    }

    fn content(images: &Path, reference: &str) -> String {
        let root = resolve(images, reference).unwrap().rootfs();
        fs::read_to_string(root.join("disk/image")).unwrap()
    }

    #[test]
    fn a_directory_and_an_archive_give_the_same_image() {
        let dir = tempfile::tempdir().unwrap();
        let images = dir.path().join("images");
        let source = tree(dir.path(), "a");
        import(&images, "example.com/a", &source).unwrap();

        let mut archive = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
        archive.follow_symlinks(false);
        archive.append_dir_all(".", &source).unwrap();
        let packed = dir.path().join("a.tar.gz");
        fs::write(&packed, archive.into_inner().unwrap().finish().unwrap()).unwrap();
        import(&images, "example.com/b:1", &packed).unwrap();

        for reference in ["example.com/a", "example.com/a:latest", "example.com/b:1"] {
            assert_eq!(content(&images, reference), "a");
            let root = resolve(&images, reference).unwrap().rootfs();
            assert_eq!(fs::metadata(root.join("disk/image")).unwrap().mode() & 0o777, 0o640);
            assert_eq!(fs::read_link(root.join("link")).unwrap(), Path::new("disk/image"));
        }
        assert_eq!(list(&images).unwrap(), ["example.com/a:latest", "example.com/b:1"]);
        remove(&images, "example.com/a").unwrap();
        remove(&images, "example.com/a").unwrap();
        assert_eq!(list(&images).unwrap(), ["example.com/b:1"]);
    }

    #[test]
    fn an_oci_image_gives_the_same_files_and_not_itself() {
        let dir = tempfile::tempdir().unwrap();
        let images = dir.path().join("images");
        let layer = oci_image::Tree::from_dir(&tree(dir.path(), "a")).unwrap();
        let layer = layer.write_layer(&dir.path().join("layers"), oci_image::Compression::Gzip).unwrap();
        let image = oci_image::Image::new("example.com/other:1", oci_image::Run::default(), vec![layer]).unwrap();
        let (archive, layout) = (dir.path().join("a.tar"), dir.path().join("layout"));
        image.write_archive(&archive).unwrap();
        image.write_layout(&layout).unwrap();
        for (reference, from) in [("example.com/a:1", &archive), ("example.com/b:1", &layout)] {
            import(&images, reference, from).unwrap();
            assert_eq!(content(&images, reference), "a");
            assert!(!resolve(&images, reference).unwrap().rootfs().join("oci-layout").exists());
        }
        // A cut-off one must not be taken for the files of an image.
        let bytes = fs::read(&archive).unwrap();
        fs::write(&archive, &bytes[..bytes.len() / 2]).unwrap();
        assert!(import(&images, "example.com/a:1", &archive).is_err());
        assert_eq!(content(&images, "example.com/a:1"), "a");
    }

    #[test]
    fn a_replaced_image_stays_for_those_who_hold_it_and_goes_afterwards() {
        let dir = tempfile::tempdir().unwrap();
        let images = dir.path().join("images");
        import(&images, "r", &tree(dir.path(), "old")).unwrap();
        let ImageRoot::Stored(place) = resolve(&images, "r").unwrap() else { panic!("stored") };
        let held = Held::open(&place).unwrap();
        import(&images, "r", &tree(dir.path(), "new")).unwrap();
        assert_eq!(content(&images, "r"), "new");
        assert_eq!(fs::read_to_string(held.reopen().unwrap().rootfs().join("disk/image")).unwrap(), "old");
        assert_eq!(fs::read_dir(&images).unwrap().count(), 2);
        drop(held);
        remove(&images, "other").unwrap();
        assert_eq!(fs::read_dir(&images).unwrap().count(), 1);
    }

    #[test]
    fn a_pinned_reference_means_the_same_files_after_the_image_was_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let images = dir.path().join("images");
        import(&images, "example.com:5000/r:1", &tree(dir.path(), "old")).unwrap();
        let old = pinned(&images, "example.com:5000/r:1").unwrap();
        assert!(old.starts_with("example.com:5000/r@sha256:"), "{old}");
        assert_eq!(pinned(&images, &old).as_ref(), Some(&old));
        assert_eq!(content(&images, &old), "old");
        let ImageRoot::Stored(place) = resolve(&images, &old).unwrap() else { panic!("stored") };
        let held = Held::open(&place).unwrap();
        import(&images, "example.com:5000/r:1", &tree(dir.path(), "new")).unwrap();
        assert_eq!(content(&images, "example.com:5000/r:1"), "new");
        assert_eq!(content(&images, &old), "old", "somebody runs from it");
        drop(held);
        remove(&images, "other").unwrap();
        assert!(resolve(&images, &old).is_err(), "nobody needs it any more");
        assert_eq!(pinned(&images, "ferrovirt.io/host"), None);
        assert_eq!(pinned(&images, "nobody/knows"), None);
    }

    #[test]
    fn a_pulled_image_is_known_by_the_digest_of_its_manifest_and_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let images = dir.path().join("images");
        let layer = oci_image::Tree::from_dir(&tree(dir.path(), "a")).unwrap();
        let layer = layer.write_layer(&dir.path().join("layers"), oci_image::Compression::Gzip).unwrap();
        let image = oci_image::Image::new("example.com/a:1", oci_image::Run::default(), vec![layer]).unwrap();
        let layout = dir.path().join("layout");
        image.write_layout(&layout).unwrap();
        let digest = image.digest().unwrap();
        assert!(import_pulled(&images, "example.com/a:1", &layout, &digest, 100).is_err());
        assert!(list(&images).unwrap().is_empty());
        import_pulled(&images, "example.com/a:1", &layout, &digest, 1 << 20).unwrap();
        let pinned = pinned(&images, "example.com/a:1").unwrap();
        assert_eq!(pinned, format!("example.com/a@{digest}"));
        assert_eq!(content(&images, &pinned), "a");
    }

    #[test]
    fn a_failed_import_leaves_the_image_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let images = dir.path().join("images");
        import(&images, "r", &tree(dir.path(), "kept")).unwrap();
        let broken = dir.path().join("broken");
        fs::write(&broken, "this is no archive".repeat(100)).unwrap();
        assert!(matches!(import(&images, "r", &broken), Err(Error::Unpack { .. })));
        assert!(matches!(import(&images, "r", Path::new("/no/such/file")), Err(Error::Unpack { .. })));
        assert_eq!(content(&images, "r"), "kept");
        assert_eq!(fs::read_dir(&images).unwrap().count(), 1);
    }

    #[test]
    fn references_become_file_names_that_stay_inside_and_come_back() {
        for reference in ["../../etc:1", "a/b:c", ".hidden:1", "x@sha256:00", "a%2Fb:1", "..:1"] {
            let name = escape(reference);
            assert!(!name.contains('/') && !name.starts_with('.'), "{name}");
            assert_eq!(unescape(&name).as_deref(), Some(reference));
        }
        let images = Path::new("/nowhere");
        for host in ["ferrovirt.io/host", "ferrovirt.io/host:latest", "ferrovirt.io/host:0123abcd"] {
            assert_eq!(resolve(images, host), Ok(ImageRoot::Host));
            assert!(matches!(import(images, host, images), Err(Error::HostImage)));
        }
        for other in ["ferrovirt.io/hostess", "ferrovirt.io/host/x:1", "ferrovirt.io/host@sha256:00"] {
            assert!(resolve(images, other).is_err(), "{other}");
        }
        let missing = resolve(images, "example.com/x").unwrap_err().to_string();
        assert!(missing.contains("ferrovirt image import example.com/x DIR|TAR"), "{missing}");
        assert!(matches!(import(images, "with blank", images), Err(Error::BadReference(_))));
    }
}
