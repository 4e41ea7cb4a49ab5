//! Layers: a tree as a tar, in a file named by its digest.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use flate2::GzBuilder;
use serde::{Deserialize, Serialize};
use tar::{EntryType, Header};

use crate::blob::Hashing;
use crate::capability::RECORD;
use crate::error::Error;
use crate::tree::{Content, Entry, Kind, Tree};

/// The longest name that fits into a tar's header.
const NAME_MAX: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Compression {
    None,
    Gzip,
}

/// A written layer. It can be stored as JSON, to find the blob again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// Digest of the blob.
    pub digest: String,
    /// Digest of the tar in it.
    pub diff_id: String,
    /// Bytes of the blob.
    pub size: u64,
    pub compression: Compression,
    /// Where the blob is.
    pub blob: PathBuf,
}

impl Tree {
    /// Writes the tree as a layer into a directory of blobs.
    pub fn write_layer(&self, blobs: &Path, compression: Compression) -> Result<Layer, Error> {
        fs::create_dir_all(blobs).map_err(Error::io("make", blobs))?;
        let new = blobs.join(format!(".new-{}", std::process::id()));
        let written = self.write_to(&new, blobs, compression);
        if written.is_err() {
            let _ = fs::remove_file(&new);
        }
        written
    }

    fn write_to(&self, new: &Path, blobs: &Path, compression: Compression) -> Result<Layer, Error> {
        let failed = || Error::io("write", new);
        let file = Hashing::new(BufWriter::new(File::create(new).map_err(failed())?));
        let (file, diff_id) = match compression {
            Compression::None => (self.write_tar(file)?, None),
            Compression::Gzip => {
                let packed = GzBuilder::new().mtime(0).write(file, flate2::Compression::default());
                let (packed, diff_id, _) = self.write_tar(Hashing::new(packed))?.finish();
                (packed.finish().map_err(failed())?, Some(diff_id))
            }
        };
        let (mut file, digest, size) = file.finish();
        file.flush().map_err(failed())?;
        // What is not compressed is its own content.
        let diff_id = diff_id.unwrap_or_else(|| digest.clone());
        let blob = blobs.join(digest.trim_start_matches("sha256:"));
        fs::rename(new, &blob).map_err(Error::io("publish", &blob))?;
        Ok(Layer { digest, diff_id, size, compression, blob })
    }

    fn write_tar<W: Write>(&self, to: W) -> Result<W, Error> {
        let mut tar = tar::Builder::new(to);
        for (path, entry) in &self.entries {
            self.append(&mut tar, path, entry)?;
        }
        tar.into_inner().map_err(Error::io("finish", Path::new("the layer")))
    }

    fn append<W: Write>(&self, tar: &mut tar::Builder<W>, path: &Path, entry: &Entry) -> Result<(), Error> {
        // Who unpacks a second name gives the file the owner, mode and capabilities that come with it.
        let (kind, target, file) = match &entry.kind {
            Kind::Directory => (EntryType::Directory, None, entry),
            Kind::File(_) => (EntryType::Regular, None, entry),
            Kind::Symlink(target) => (EntryType::Symlink, Some(target), entry),
            Kind::HardLink(target) => (EntryType::Link, Some(target), self.linked(path, target)?),
        };
        let mut name = path.as_os_str().as_bytes().to_vec();
        if kind == EntryType::Directory {
            name.push(b'/');
        }
        let link = target.map(|target| target.as_os_str().as_bytes()).unwrap_or_default();
        let failed = || Error::io("add to the layer", path);
        append_records(tar, &name, link, file).map_err(failed())?;
        let header = header(kind, &name, link, file)
            .ok_or_else(|| Error::Entry { path: path.to_owned(), reason: "tar has no header for it" })?;
        match &entry.kind {
            Kind::File(Content::Bytes(bytes)) => append_data(tar, header, bytes.len() as u64, bytes.as_slice()),
            Kind::File(Content::Path(from)) => {
                let file = File::open(from).map_err(Error::io("open", from))?;
                let size = file.metadata().map_err(Error::io("look at", from))?.len();
                append_data(tar, header, size, file)
            }
            _ => append_data(tar, header, 0, io::empty()),
        }
        .map_err(failed())
    }

    /// The file of a hard link. Who unpacks the layer must have met it before.
    fn linked(&self, path: &Path, target: &Path) -> Result<&Entry, Error> {
        let file = self.get(target).filter(|file| target < path && matches!(file.kind, Kind::File(_)));
        let reason = "it is a hard link to a file that does not come before it";
        file.ok_or_else(|| Error::Entry { path: path.to_owned(), reason })
    }
}

fn header(kind: EntryType, name: &[u8], link: &[u8], file: &Entry) -> Option<Header> {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(file.mode);
    header.set_uid(file.uid.into());
    header.set_gid(file.gid.into());
    header.set_mtime(0);
    let fields = header.as_ustar_mut()?;
    fill(&mut fields.name, name);
    fill(&mut fields.linkname, link);
    Some(header)
}

/// What the header has no place for comes in records before it.
fn append_records<W: Write>(tar: &mut tar::Builder<W>, name: &[u8], link: &[u8], file: &Entry) -> io::Result<()> {
    let long = [("path", name), ("linkpath", link)].into_iter().filter(|(_, value)| value.len() > NAME_MAX);
    let capability = file.capability.iter().map(|value| (RECORD, value.as_slice()));
    let records: Vec<(&str, &[u8])> = long.chain(capability).collect();
    if records.is_empty() { Ok(()) } else { tar.append_pax_extensions(records) }
}

fn append_data<W: Write>(tar: &mut tar::Builder<W>, mut header: Header, size: u64, data: impl Read) -> io::Result<()> {
    header.set_size(size);
    header.set_cksum();
    // A file that grows meanwhile must not spoil what follows; one that shrinks is an error.
    let mut data = Exactly { data, left: size };
    tar.append(&header, &mut data)
}

/// As many bytes as announced, or an error.
struct Exactly<R> {
    data: R,
    left: u64,
}

impl<R: Read> Read for Exactly<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let n = self.data.read(&mut buffer[..wanted])?;
        if n == 0 && wanted > 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter while it was read"));
        }
        self.left -= n as u64;
        Ok(n)
    }
}

/// As much of a name as fits; a longer one is in a record before the header.
fn fill(field: &mut [u8], name: &[u8]) {
    let length = name.len().min(field.len());
    field[..length].copy_from_slice(&name[..length]);
}
