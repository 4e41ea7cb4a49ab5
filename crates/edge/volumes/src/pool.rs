//! The pool's directory.
//!
//! ```text
//!   POOL/pool.json                 what made it: the format, and whose pool it is
//!        lock                      see `lock`
//!        volumes/ID/record.json    a volume,
//!                   data/          its directory, or
//!                   disk.img       its sparse raw file,
//!                   published/     and a record for each path it is at
//!                   hold.json      somebody who is no Pod fills it
//!        snapshots/ID/             the same without `published`
//!        work/new-ID               being made: renamed to its place once it is whole and on disk
//!        work/gone-ID              being removed
//! ```
//!
//! A rename decides: an object is there or it is not, and what a crash leaves in `work` belongs to nobody. All names here
//! are ours (IDs have no slash), and only root can enter these directories; a tenant's names begin below `data`.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use hostfs::atomic;
use hostfs::beneath::{OFlags, Root};
use rustix::fs::{Mode, RenameFlags};
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use volumeplan::{Hold, Kind, PoolId, Publication, Reach, Snapshot, SnapshotId, Volume, VolumeId};

use crate::error::{Context as _, Error, Result};
use crate::lock::Locks;
use crate::steps::Watched;
use crate::tree;

const FORMAT: u32 = 1;
const RECORD: &str = "record.json";
const PUBLISHED: &str = "published";
const HOLD: &str = "hold.json";
pub(crate) const DATA: &str = "data";
pub(crate) const DISK: &str = "disk.img";
const WORK: &str = "work";
const NEW: &str = "new-";
const GONE: &str = "gone-";
const RENAME: &str = "move into its place";

/// The content of `pool.json`.
#[derive(Debug, Serialize, Deserialize)]
struct Label {
    format: u32,
    reach: Reach,
}

/// What the pool holds: volumes and snapshots.
pub(crate) trait Object: Serialize + DeserializeOwned {
    type Id: PoolId;
    const FOLDER: &'static str;
    /// Whether publications are recorded beside it.
    const PUBLISHED: bool;

    fn id(&self) -> &Self::Id;
}

impl Object for Volume {
    type Id = VolumeId;
    const FOLDER: &'static str = "volumes";
    const PUBLISHED: bool = true;

    fn id(&self) -> &VolumeId {
        &self.id
    }
}

impl Object for Snapshot {
    type Id = SnapshotId;
    const FOLDER: &'static str = "snapshots";
    const PUBLISHED: bool = false;

    fn id(&self) -> &SnapshotId {
        &self.id
    }
}

/// The record of a publication.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) publication: Publication,
    /// The boot of the node in which it was made: with the boot, the mount is gone.
    pub(crate) boot: u64,
    /// Whether the mount was made. Otherwise nobody was told that it is there.
    pub(crate) settled: bool,
}

#[derive(Clone)]
pub(crate) struct Pool {
    pub(crate) path: PathBuf,
    pub(crate) reach: Reach,
    pub(crate) locks: Locks,
    pub(crate) steps: Watched,
}

impl Pool {
    /// Opens a pool, or makes one in a directory that exists.
    pub(crate) fn open(path: &Path, reach: &Reach, steps: Watched) -> Result<Pool> {
        let locks = Locks::new(path);
        // Another node may open a new shared pool at the same time.
        let _lock = locks.pool()?;
        atomic::sweep(path)?;
        for folder in [Volume::FOLDER, Snapshot::FOLDER, WORK] {
            steps.before("make a folder of the pool");
            make_directory(&path.join(folder), 0o700)?;
        }
        let file = path.join("pool.json");
        match atomic::read_json::<Label>(&file)? {
            Some(Label { format, .. }) if format != FORMAT => return Err(Error::Newer { path: file, found: format }),
            Some(label) if label.reach != *reach => return Err(other(path, &label.reach, reach)),
            Some(_) => {}
            None => {
                steps.before("label the pool");
                atomic::write_json(&file, &Label { format: FORMAT, reach: reach.clone() })?;
            }
        }
        sync(path)?;
        Ok(Pool { path: path.to_owned(), reach: reach.clone(), locks, steps })
    }

    pub(crate) fn folder<O: Object>(&self, id: &O::Id) -> PathBuf {
        self.path.join(O::FOLDER).join(id.as_str())
    }

    /// The record of an object, if it is there.
    pub(crate) fn read<O: Object>(&self, id: &O::Id) -> Result<Option<O>> {
        let path = self.folder::<O>(id).join(RECORD);
        match atomic::read_json::<O>(&path)? {
            Some(object) if object.id() != id => Err(Error::WrongRecord { path }),
            found => Ok(found),
        }
    }

    /// Replaces the record of an object that is there.
    pub(crate) fn rewrite<O: Object>(&self, object: &O) -> Result<()> {
        self.steps.before("replace a record");
        Ok(atomic::write_json(self.folder::<O>(object.id()).join(RECORD), object)?)
    }

    /// The IDs of all objects, sorted.
    pub(crate) fn ids<O: Object>(&self) -> Result<Vec<O::Id>> {
        let mut ids: Vec<O::Id> =
            names(&self.path.join(O::FOLDER))?.iter().filter_map(|name| O::Id::parse(name)).collect();
        ids.sort();
        Ok(ids)
    }

    /// The content of an object: a directory or a file.
    pub(crate) fn content<O: Object>(&self, id: &O::Id, kind: Kind) -> PathBuf {
        self.folder::<O>(id).join(match kind {
            Kind::Filesystem => DATA,
            Kind::Block => DISK,
        })
    }

    /// The raw file of a block volume or of its snapshot.
    pub(crate) fn disk<O: Object>(&self, id: &O::Id, write: bool) -> Result<File> {
        let mode = if write { OFlags::RDWR } else { OFlags::RDONLY };
        Ok(self.root::<O>(id)?.open_file(DISK, mode | OFlags::NOFOLLOW | OFlags::CLOEXEC)?)
    }

    pub(crate) fn root<O: Object>(&self, id: &O::Id) -> Result<Root> {
        Ok(Root::open(self.path.join(O::FOLDER))?.open_dir(id.as_str())?)
    }

    /// Makes an object: `fill` puts the content into an empty directory, and syncs it.
    pub(crate) fn make<O: Object>(&self, object: &O, fill: impl FnOnce(&Root) -> Result<()>) -> Result<()> {
        let work = Root::open(self.path.join(WORK))?;
        let name = format!("{NEW}{}", object.id());
        let path = self.path.join(WORK).join(&name);
        tree::remove(&work, &name, &path, &self.steps)?;
        let made = self.build(object, &path, fill).and_then(|()| self.settle::<O>(&work, &name, object.id()));
        if made.is_err() {
            // At best: what is left is cleared up by the next attempt, or the next start.
            if let Err(error) = tree::remove(&work, &name, &path, &self.steps) {
                tracing::warn!(error = &error as &dyn std::error::Error, "failed to clear up");
            }
        }
        made
    }

    fn build<O: Object>(&self, object: &O, path: &Path, fill: impl FnOnce(&Root) -> Result<()>) -> Result<()> {
        self.steps.before("make a directory to work in");
        make_directory(path, 0o700)?;
        fill(&Root::open(path)?)?;
        if O::PUBLISHED {
            self.steps.before("make the folder of publications");
            make_directory(&path.join(PUBLISHED), 0o700)?;
        }
        self.steps.before("write a record");
        atomic::write_json(path.join(RECORD), object)?;
        sync(path)
    }

    /// Moves what is whole into its place.
    fn settle<O: Object>(&self, work: &Root, name: &str, id: &O::Id) -> Result<()> {
        let folder = self.path.join(O::FOLDER);
        let target = Root::open(&folder)?;
        self.steps.before(RENAME);
        rustix::fs::renameat_with(work, name, &target, id.as_str(), RenameFlags::NOREPLACE)
            .doing(RENAME, folder.join(id.as_str()))?;
        self.steps.before("sync a rename");
        sync(&folder)?;
        sync(&self.path.join(WORK))
    }

    /// Removes an object. It is gone at once; what it held is removed afterwards, by the next start if need be.
    pub(crate) fn remove<O: Object>(&self, id: &O::Id) -> Result<()> {
        let work = Root::open(self.path.join(WORK))?;
        let name = format!("{GONE}{id}");
        let path = self.path.join(WORK).join(&name);
        tree::remove(&work, &name, &path, &self.steps)?;
        let folder = self.path.join(O::FOLDER);
        self.steps.before("move away");
        rustix::fs::renameat_with(Root::open(&folder)?, id.as_str(), &work, name.as_str(), RenameFlags::NOREPLACE)
            .doing("remove", folder.join(id.as_str()))?;
        self.steps.before("sync a removal");
        sync(&folder)?;
        tree::remove(&work, &name, &path, &self.steps)
    }

    /// Clears up what crashes have left half made or half removed. What another process is at work on stays.
    pub(crate) fn sweep(&self) -> Result<()> {
        let work_path = self.path.join(WORK);
        let work = Root::open(&work_path)?;
        for name in names(&work_path)? {
            let id = name.strip_prefix(NEW).or_else(|| name.strip_prefix(GONE)).unwrap_or_default();
            let lock = match (VolumeId::parse(id), SnapshotId::parse(id)) {
                (Some(id), _) => self.locks.try_content(&id)?,
                (_, Some(id)) => self.locks.try_content(&id)?,
                (None, None) => {
                    tracing::warn!(path = %work_path.join(&name).display(), "not made by this driver; left alone");
                    continue;
                }
            };
            if lock.is_some() {
                tracing::info!(name, "removing what an interrupted request has left");
                tree::remove(&work, &name, &work_path.join(&name), &self.steps)?;
            }
        }
        Ok(())
    }

    /// The records of where a volume is published.
    pub(crate) fn entries(&self, id: &VolumeId) -> Result<Vec<Entry>> {
        let folder = self.folder::<Volume>(id).join(PUBLISHED);
        let mut entries = Vec::new();
        for name in names(&folder)?.iter().filter(|name| !name.starts_with('.')) {
            entries.extend(atomic::read_json::<Entry>(folder.join(name))?);
        }
        entries.sort_by(|a, b| a.publication.target.cmp(&b.publication.target));
        Ok(entries)
    }

    pub(crate) fn write_entry(&self, id: &VolumeId, entry: &Entry) -> Result<()> {
        self.steps.before("record a publication");
        Ok(atomic::write_json(self.entry_path(id, &entry.publication), entry)?)
    }

    pub(crate) fn remove_entry(&self, id: &VolumeId, publication: &Publication) -> Result<()> {
        self.steps.before("remove the record of a publication");
        Ok(atomic::remove(self.entry_path(id, publication))?)
    }

    fn entry_path(&self, id: &VolumeId, publication: &Publication) -> PathBuf {
        let key = Publication::key(&publication.node, &publication.target);
        self.folder::<Volume>(id).join(PUBLISHED).join(format!("{key}.json"))
    }

    /// Who fills a volume.
    pub(crate) fn hold(&self, id: &VolumeId) -> Result<Option<Hold>> {
        Ok(atomic::read_json(self.folder::<Volume>(id).join(HOLD))?)
    }

    pub(crate) fn write_hold(&self, id: &VolumeId, hold: &Hold) -> Result<()> {
        self.steps.before("record a hold");
        Ok(atomic::write_json(self.folder::<Volume>(id).join(HOLD), hold)?)
    }

    pub(crate) fn remove_hold(&self, id: &VolumeId) -> Result<()> {
        self.steps.before("remove the record of a hold");
        Ok(atomic::remove(self.folder::<Volume>(id).join(HOLD))?)
    }

    /// Removes what writers of records were killed in the middle of. The caller holds the volume's locks.
    pub(crate) fn sweep_records(&self, id: &VolumeId) -> Result<()> {
        let folder = self.folder::<Volume>(id);
        atomic::sweep(&folder)?;
        Ok(atomic::sweep(folder.join(PUBLISHED))?)
    }

    /// Free space, in bytes.
    pub(crate) fn free(&self) -> Result<u64> {
        let stat = rustix::fs::statvfs(&self.path).doing("ask for the free space of", &self.path)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

fn other(path: &Path, found: &Reach, expected: &Reach) -> Error {
    let name = |reach: &Reach| match reach {
        Reach::Local(node) => format!("node {node}"),
        Reach::Shared => "all nodes".to_owned(),
    };
    let remedy = match (found, expected) {
        (Reach::Shared, _) => "start with --shared, or use another directory",
        (_, Reach::Shared) => "start without --shared, or use another directory",
        _ => "use another directory, or the former --node-id",
    };
    Error::OtherPool { path: path.to_owned(), found: name(found), expected: name(expected), remedy }
}

/// Makes a directory with this mode, whatever the umask; one that is there stays as it is.
pub(crate) fn make_directory(path: &Path, mode: u32) -> Result<()> {
    match rustix::fs::mkdir(path, Mode::from_raw_mode(mode)) {
        Ok(()) => rustix::fs::chmod(path, Mode::from_raw_mode(mode)).doing("set the permissions of", path),
        Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error).doing("make the directory", path),
    }
}

/// Makes the names in a directory survive a power failure.
pub(crate) fn sync(path: &Path) -> Result<()> {
    File::open(path).and_then(|dir| dir.sync_all()).doing("sync", path)
}

/// The names in a directory of ours; none if it is not there.
fn names(path: &Path) -> Result<Vec<String>> {
    let entries = match std::fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
        entries => entries.doing("list", path)?,
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry.doing("list", path)?.file_name().into_string());
    }
    Ok(names)
}
