//! Volumes and snapshots: made, listed, grown and removed.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use hostfs::beneath::{OFlags, Root};
use rustix::fs::Mode;
use volumeplan::create::{self, Origin};
use volumeplan::{
    Capability, Expansion, Kind, Lookup, NodeName, Parameters, PoolId, Range, Reach, Removal, Segments, Snapshot,
    SnapshotId, Source, Time, Users, Volume, VolumeId, list, no_such, snapshot,
};

use crate::error::{Context as _, Result};
use crate::lock::Lock;
use crate::loops::Loops;
use crate::pool::{DATA, DISK, Object, Pool};
use crate::steps::{Steps, Unwatched};
use crate::tree;

/// Settings of an [`Engine`].
#[derive(Clone)]
pub struct Config {
    /// The pool's directory, which has to exist.
    pub pool: PathBuf,
    /// Who sees that directory.
    pub reach: Reach,
    /// The node we run on.
    pub node: NodeName,
    /// Volumes are published below this directory only.
    pub kubelet_dir: PathBuf,
    /// Where device nodes are.
    pub dev: PathBuf,
    #[doc(hidden)]
    pub steps: Arc<dyn Steps>,
}

impl Config {
    /// For a pool of this node.
    pub fn local(pool: impl Into<PathBuf>, node: NodeName) -> Self {
        Config {
            pool: pool.into(),
            reach: Reach::Local(node.clone()),
            node,
            kubelet_dir: "/var/lib/kubelet".into(),
            dev: "/dev".into(),
            steps: Arc::new(Unwatched),
        }
    }
}

/// A volume engine. Its methods block; several may run at once, in several processes, too.
pub struct Engine {
    pub(crate) config: Config,
    pub(crate) pool: Pool,
    pub(crate) loops: Loops,
}

/// A volume that has grown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grown {
    pub capacity: u64,
    /// Whether the nodes that use it have something to do, too.
    pub on_node: bool,
}

/// A part of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed<T> {
    pub entries: Vec<T>,
    /// Asks for the rest.
    pub next: Option<String>,
}

/// Bytes and files of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub total: u64,
    pub used: u64,
    pub available: u64,
    /// Total, used and available inodes of a file system volume.
    pub inodes: Option<(u64, u64, u64)>,
}

impl Engine {
    /// Opens a pool, and completes or undoes what an earlier process was interrupted in.
    pub fn open(config: Config) -> Result<Engine> {
        let pool = Pool::open(&config.pool, &config.reach, config.steps.clone())?;
        let loops = Loops::new(&config.dev, &config.node.tag());
        let engine = Engine { config, pool, loops };
        engine.recover()?;
        Ok(engine)
    }

    pub fn reach(&self) -> &Reach {
        &self.pool.reach
    }

    pub fn node(&self) -> &NodeName {
        &self.config.node
    }

    pub fn create_volume(&self, request: &create::Request) -> Result<Volume> {
        let wanted = create::admit(request, self.reach())?;
        let _lock = self.pool.locks.content(&wanted.id)?;
        let existing = self.pool.read::<Volume>(&wanted.id)?;
        let (origin, _source_lock) = match &wanted.source {
            Some(source) if existing.is_none() && *source != Source::Volume(wanted.id.clone()) => {
                self.origin(source)?
            }
            _ => (None, None),
        };
        let seen = create::Seen { existing, origin, free: self.pool.free()? };
        let volume = match create::decide(&wanted, &seen)? {
            create::Creation::Exists(volume) => return Ok(volume),
            create::Creation::Make(volume) => volume,
        };
        self.pool.make(&volume, |work| match &volume.source {
            None => self.empty(work, &volume),
            Some(Source::Snapshot(id)) => self.copy::<Snapshot>(id, work, volume.kind, volume.capacity),
            Some(Source::Volume(id)) => self.copy::<Volume>(id, work, volume.kind, volume.capacity),
        })?;
        tracing::info!(id = %volume.id, name = volume.name, capacity = volume.capacity, "volume created");
        Ok(volume)
    }

    /// What a volume is to be copied from, which stays as long as the lock is held.
    fn origin(&self, source: &Source) -> Result<(Option<Origin>, Option<Lock>)> {
        let (lock, origin) = match source {
            Source::Snapshot(id) => {
                let lock = self.pool.locks.source(id)?;
                let snapshot = self.pool.read::<Snapshot>(id)?;
                (lock, snapshot.map(|snapshot| Origin { kind: snapshot.kind, size: snapshot.size, hold: None }))
            }
            Source::Volume(id) => {
                let lock = self.pool.locks.source(id)?;
                let volume = self.pool.read::<Volume>(id)?;
                let hold = self.pool.hold(id)?;
                (lock, volume.map(|volume| Origin { kind: volume.kind, size: volume.capacity, hold }))
            }
        };
        Ok((origin, Some(lock)))
    }

    fn empty(&self, work: &Root, volume: &Volume) -> Result<()> {
        self.pool.steps.before("make the content");
        match volume.kind {
            Kind::Filesystem => data_directory(work).map(drop),
            Kind::Block => {
                let file = work.open_file(DISK, NEW_FILE)?;
                finish(&file, volume.capacity)
            }
        }
    }

    fn copy<O: Object>(&self, from: &O::Id, to: &Root, kind: Kind, capacity: u64) -> Result<()> {
        let path = self.pool.content::<O>(from, kind);
        self.pool.steps.before("copy the content");
        let method = match kind {
            Kind::Filesystem => {
                let source = self.pool.root::<O>(from)?.open_dir(DATA)?;
                tree::copy(&source, &data_directory(to)?, &path, &self.pool.steps)?
            }
            Kind::Block => {
                let (file, method) = tree::copy_file(&self.pool.disk::<O>(from, false)?, to, DISK, &path)?;
                self.pool.steps.before("size the copy");
                finish(&file, capacity)?;
                method
            }
        };
        tracing::debug!(source = from.as_str(), ?method, "content copied");
        Ok(())
    }

    pub fn delete_volume(&self, id: &str) -> Result<()> {
        let Some(id) = Removal::of_volume(id, self.reach())? else { return Ok(()) };
        let _content = self.pool.locks.content(&id)?;
        let _publications = self.pool.locks.publications(&id)?;
        let volume = self.pool.read::<Volume>(&id)?;
        let users = if volume.is_some() { self.users(&id)? } else { Users::default() };
        if volumeplan::delete_volume(volume.as_ref(), &users)? == Removal::Remove {
            self.detach_unused(&id)?;
            self.pool.remove::<Volume>(&id)?;
            tracing::info!(%id, "volume deleted");
        }
        Ok(())
    }

    /// A volume, and who uses it.
    pub fn volume(&self, id: &str) -> Result<(Volume, Users)> {
        let id = VolumeId::find(id, self.reach())?;
        Ok((self.existing(&id)?, self.users(&id)?))
    }

    pub(crate) fn existing(&self, id: &VolumeId) -> Result<Volume> {
        Ok(self.pool.read::<Volume>(id)?.ok_or_else(|| no_such::<VolumeId>(id.as_str()))?)
    }

    /// The directory or the raw file of a volume, for a hypervisor that needs no device.
    pub fn content(&self, volume: &Volume) -> PathBuf {
        self.pool.content::<Volume>(&volume.id, volume.kind)
    }

    pub fn list_volumes(&self, max_entries: i32, token: &str) -> Result<Listed<Volume>> {
        let page = list::page(&self.pool.ids::<Volume>()?, max_entries, token)?;
        Ok(Listed { entries: page.ids.iter().filter_map(|id| self.readable(id)).collect(), next: page.next })
    }

    /// An object of a list. One whose record is damaged is left out, so that it does not hide all the others.
    pub(crate) fn readable<O: Object>(&self, id: &O::Id) -> Option<O> {
        self.pool.read::<O>(id).unwrap_or_else(|error| {
            tracing::error!(id = id.as_str(), error = &error as &dyn std::error::Error, "left out of a list");
            None
        })
    }

    /// Whether a volume can be used in these ways, or why not.
    pub fn validate(
        &self,
        id: &str,
        capabilities: &[Capability],
        parameters: &Parameters,
    ) -> Result<Result<(), String>> {
        let id = VolumeId::find(id, self.reach())?;
        Ok(volumeplan::validate(&self.existing(&id)?, capabilities, parameters, self.reach())?)
    }

    /// Bytes that new volumes can have here.
    pub fn available(&self, capabilities: &[Capability], place: Option<&Segments>) -> Result<u64> {
        Ok(volumeplan::available(self.reach(), capabilities, place, self.pool.free()?))
    }

    pub fn create_snapshot(&self, request: &snapshot::Request) -> Result<Snapshot> {
        let wanted = snapshot::admit(request, self.reach())?;
        let _lock = self.pool.locks.content(&wanted.id)?;
        let existing = self.pool.read::<Snapshot>(&wanted.id)?;
        let _source_lock = match &existing {
            Some(_) => None,
            None => Some(self.pool.locks.source(&wanted.source)?),
        };
        let source = self.pool.read::<Volume>(&wanted.source)?;
        let hold = self.pool.hold(&wanted.source)?;
        let source = source.as_ref().map(|source| (source, hold.as_ref()));
        let snapshot = match snapshot::decide(&wanted, existing.as_ref(), source, now())? {
            snapshot::Creation::Exists(snapshot) => return Ok(snapshot),
            snapshot::Creation::Make(snapshot) => snapshot,
        };
        self.pool.make(&snapshot, |work| self.copy::<Volume>(&snapshot.source, work, snapshot.kind, snapshot.size))?;
        tracing::info!(id = %snapshot.id, name = snapshot.name, source = %snapshot.source, "snapshot created");
        Ok(snapshot)
    }

    pub fn delete_snapshot(&self, id: &str) -> Result<()> {
        let Some(id) = Removal::of_snapshot(id, self.reach())? else { return Ok(()) };
        let _lock = self.pool.locks.content(&id)?;
        let exists = self.pool.folder::<Snapshot>(&id).exists();
        if volumeplan::delete_snapshot(exists) == Removal::Remove {
            self.pool.remove::<Snapshot>(&id)?;
            tracing::info!(%id, "snapshot deleted");
        }
        Ok(())
    }

    /// Snapshots; of one volume, or the one with this ID, where the filters are not empty.
    pub fn list_snapshots(&self, id: &str, source: &str, max_entries: i32, token: &str) -> Result<Listed<Snapshot>> {
        let mut ids = self.pool.ids::<Snapshot>()?;
        if !id.is_empty() {
            ids.retain(|found| found.as_str() == id);
        }
        let mut found = std::collections::BTreeMap::new();
        if !source.is_empty() {
            // The source is in the record, so all have to be read before pages can be counted.
            let of_source = |id: &SnapshotId| {
                let snapshot = self.readable::<Snapshot>(id).filter(|snapshot| snapshot.source.as_str() == source)?;
                Some((id.clone(), snapshot))
            };
            found = ids.iter().filter_map(of_source).collect();
            ids.retain(|id| found.contains_key(id));
        }
        let page = list::page(&ids, max_entries, token)?;
        let entries = page.ids.iter().filter_map(|id| found.remove(id).or_else(|| self.readable::<Snapshot>(id)));
        Ok(Listed { entries: entries.collect(), next: page.next })
    }

    /// Grows a volume. What nodes that use it have to do is done by [`Engine::grow_on_node`].
    pub fn grow(&self, id: &str, range: Range) -> Result<Grown> {
        match VolumeId::look_up(id, self.reach())? {
            Lookup::Here(id) => self.grow_here(&id, range),
            // There is one resizer for the cluster, and it asks whichever driver leads.
            Lookup::Elsewhere(_) => Ok(Grown { capacity: Expansion::promise(range)?, on_node: true }),
            Lookup::Unknown => Err(no_such::<VolumeId>(id).into()),
        }
    }

    fn grow_here(&self, id: &VolumeId, range: Range) -> Result<Grown> {
        let _lock = self.pool.locks.content(id)?;
        let volume = self.existing(id)?;
        let capacity = self.grow_locked(&volume, range)?;
        Ok(Grown { capacity, on_node: volume.kind == Kind::Block })
    }

    /// The caller holds the lock on the content.
    pub(crate) fn grow_locked(&self, volume: &Volume, range: Range) -> Result<u64> {
        let Expansion::Grow { capacity } = volumeplan::expand(volume, range, self.pool.free()?)? else {
            return Ok(volume.capacity);
        };
        if volume.kind == Kind::Block {
            // First the file: should the record fail, the next start takes the file's size for it.
            let file = self.pool.disk::<Volume>(&volume.id, true)?;
            self.pool.steps.before("grow the file");
            finish(&file, capacity)?;
        }
        self.pool.rewrite(&Volume { capacity, ..volume.clone() })?;
        tracing::info!(id = %volume.id, capacity, "volume grown");
        Ok(capacity)
    }
}

const NEW_FILE: OFlags = OFlags::RDWR.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::CLOEXEC);

/// The directory of a file system volume, as `mkfs` would leave its root.
fn data_directory(work: &Root) -> Result<Root> {
    const MODE: Mode = Mode::from_raw_mode(0o755);
    rustix::fs::mkdirat(work, DATA, MODE).doing("make the directory", DATA)?;
    let dir = work.open_dir(DATA)?;
    rustix::fs::fchmod(&dir, MODE).doing("set the permissions of", DATA)?;
    Ok(dir)
}

/// Gives a raw file its size, and syncs it.
fn finish(file: &File, size: u64) -> Result<()> {
    file.set_len(size).and_then(|()| file.sync_all()).doing("set the size of", DISK)
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time { seconds: since.as_secs().cast_signed(), nanos: since.subsec_nanos().cast_signed() }
}
