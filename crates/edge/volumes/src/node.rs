//! Volumes at paths of this node's Pods.

use hostfs::beneath::{OFlags, Root};
use volumeplan::{
    Code, Kind, Lookup, NodeName, PoolId, Publication, Publish, Publishing, Range, Refusal, Users, Volume, VolumeId,
};

use crate::engine::{Engine, Usage};
use crate::error::{Context as _, Result};
use crate::loops::Loops;
use crate::pool::{DATA, DISK, Entry};
use crate::target::{Target, identity};
use crate::tree;

impl Engine {
    /// Makes a volume appear at a path of this node.
    pub fn publish(&self, id: &str, request: &Publish) -> Result<()> {
        let inner = volumeplan::beneath(&request.target, &self.config.kubelet_dir)?;
        let id = VolumeId::find(id, self.reach())?;
        let _lock = self.pool.locks.publications(&id)?;
        let volume = self.existing(&id)?;
        let users = self.users(&id)?;
        let publishing = volumeplan::publish(&volume, &users, self.node(), self.reach(), request)?;
        let target = Target::open(&self.config.kubelet_dir, &inner)?;
        let entry = |settled| -> Result<Entry> {
            Ok(Entry { publication: publishing.publication.clone(), boot: hostfs::process::boot()?, settled })
        };
        if !publishing.recorded {
            is_free(&target, volume.kind, &request.target)?;
            self.pool.write_entry(&id, &entry(false)?)?;
        }
        let shown = self.show(&volume, &publishing, &target);
        match shown {
            Ok(()) => self.pool.write_entry(&id, &entry(true)?)?,
            // Nobody was told that it is there: the kubelet may not ask for its removal.
            Err(error) if !publishing.recorded => {
                if let Err(undo) = self.withdraw(&volume, &target, &publishing.publication) {
                    tracing::warn!(%id, error = &undo as &dyn std::error::Error, "failed to undo a publication");
                }
                return Err(error);
            }
            Err(error) => return Err(error),
        }
        tracing::info!(%id, target = request.target, read_only = publishing.publication.read_only, "volume published");
        Ok(())
    }

    fn show(&self, volume: &Volume, publishing: &Publishing, target: &Target) -> Result<()> {
        let read_only = publishing.publication.read_only;
        let source = self.source(volume, read_only)?;
        let expected = identity(&source).doing("look up", self.content(volume))?;
        let seen = target.look()?;
        if seen.is_some_and(|seen| seen.mounted && seen.identity != expected) {
            // The loop device was detached behind our back, and attached again as another one.
            self.pool.steps.before("unmount what is in the way");
            target.unmount()?;
        }
        if !seen.is_some_and(|seen| seen.mounted && seen.identity == expected) {
            self.pool.steps.before("make the mount point");
            target.make(volume.kind)?;
            self.pool.steps.before("mount");
            target.mount(&source)?;
        }
        if volume.kind == Kind::Filesystem {
            self.pool.steps.before("restrict the mount");
            target.restrict(read_only, &publishing.flags)?;
        }
        Ok(())
    }

    /// What is mounted: the volume's directory, or the node of a loop device on its file.
    fn source(&self, volume: &Volume, read_only: bool) -> Result<std::os::fd::OwnedFd> {
        let root = self.pool.root::<Volume>(&volume.id)?;
        match volume.kind {
            Kind::Filesystem => {
                Ok(root.open_file(DATA, OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC)?.into())
            }
            Kind::Block => {
                let file = self.pool.disk::<Volume>(&volume.id, !read_only)?;
                self.pool.steps.before("attach a loop device");
                let device = self.loops.attach(&file, volume.id.as_str(), read_only)?;
                let node = rustix::fs::open(&device.path, OFlags::PATH | OFlags::CLOEXEC, rustix::fs::Mode::empty());
                node.doing("open", &device.path)
            }
        }
    }

    /// Makes a volume disappear from a path of this node. Succeeds if it is not there.
    pub fn unpublish(&self, id: &str, target: &str) -> Result<()> {
        let inner = volumeplan::beneath(target, &self.config.kubelet_dir)?;
        let id = match VolumeId::look_up(id, self.reach())? {
            Lookup::Here(id) => id,
            // Never published by us, so nothing of ours is there.
            Lookup::Elsewhere(_) | Lookup::Unknown => return Ok(()),
        };
        let _lock = self.pool.locks.publications(&id)?;
        let Some(volume) = self.pool.read::<Volume>(&id)? else { return Ok(()) };
        let publications = self.publications(&id)?;
        let recorded = publications.into_iter().find(|entry| entry.node == *self.node() && entry.target == target);
        let place = match Target::open(&self.config.kubelet_dir, &inner) {
            Ok(place) => Some(place),
            Err(error) if is_absent(&error) => None,
            Err(error) => return Err(error),
        };
        match (place, recorded) {
            (Some(place), Some(publication)) => self.withdraw(&volume, &place, &publication)?,
            (None, Some(publication)) => self.forget(&volume, &publication)?,
            // The kubelet has made the directory and never asked for the volume, or asks for the second time.
            (Some(place), None) if !place.look()?.is_some_and(|seen| seen.mounted) => place.remove()?,
            (Some(_), None) => {
                tracing::warn!(%id, target, "something else than this volume is mounted at the path; left alone");
            }
            (None, None) => {}
        }
        tracing::info!(%id, target, "volume unpublished");
        Ok(())
    }

    /// Undoes a publication, in the opposite order of its making.
    pub(crate) fn withdraw(&self, volume: &Volume, target: &Target, publication: &Publication) -> Result<()> {
        self.pool.steps.before("unmount");
        target.unmount()?;
        self.pool.steps.before("remove the mount point");
        target.remove()?;
        self.forget(volume, publication)
    }

    /// Forgets a publication whose mount is gone, and detaches the loop device that nobody uses any more.
    pub(crate) fn forget(&self, volume: &Volume, publication: &Publication) -> Result<()> {
        if volume.kind == Kind::Block {
            let others = self.publications(&volume.id)?;
            let used = others.iter().any(|other| {
                other != publication && other.node == publication.node && other.read_only == publication.read_only
            });
            if !used {
                self.detach(&volume.id, Some(publication.read_only))?;
            }
        }
        self.pool.remove_entry(&volume.id, publication)
    }

    /// Detaches this node's loop devices from a volume: all of them, or those that only read, or those that do not.
    fn detach(&self, id: &VolumeId, read_only: Option<bool>) -> Result<()> {
        let file = self.pool.disk::<Volume>(id, false)?;
        for device in self.loops.of(&file, id.as_str())? {
            if read_only.is_none_or(|read_only| device.read_only() == read_only) {
                self.pool.steps.before("detach a loop device");
                self.loops.detach(&device)?;
            }
        }
        Ok(())
    }

    /// Detaches loop devices that a crash has left to a volume which is not published on this node.
    pub(crate) fn detach_unused(&self, id: &VolumeId) -> Result<()> {
        let is_block = self.pool.folder::<Volume>(id).join(DISK).exists();
        let here = |publication: &Publication| publication.node == *self.node();
        if is_block && !self.publications(id)?.iter().any(here) {
            self.detach(id, None)?;
        }
        Ok(())
    }

    /// Where a volume is published.
    pub(crate) fn publications(&self, id: &VolumeId) -> Result<Vec<Publication>> {
        Ok(self.pool.entries(id)?.into_iter().map(|entry| entry.publication).collect())
    }

    /// Who uses a volume.
    pub(crate) fn users(&self, id: &VolumeId) -> Result<Users> {
        Ok(Users { publications: self.publications(id)?, hold: self.pool.hold(id)? })
    }

    /// Shows this node's Pods the size of a volume that has grown; grows it first, where the controller could not.
    pub fn grow_on_node(&self, id: &str, path: &str, range: Range) -> Result<u64> {
        if path.is_empty() {
            return Err(no_path());
        }
        let id = VolumeId::find(id, self.reach())?;
        let _lock = self.pool.locks.content(&id)?;
        let volume = self.existing(&id)?;
        let capacity = if range == Range::default() { volume.capacity } else { self.grow_locked(&volume, range)? };
        if volume.kind == Kind::Block {
            let file = self.pool.disk::<Volume>(&id, false)?;
            for device in self.loops.of(&file, id.as_str())? {
                self.pool.steps.before("grow a loop device");
                self.loops.grow(&device)?;
            }
        }
        Ok(capacity)
    }

    /// Shows the Pods of all nodes the size of a volume that has grown: for nodes that are on one machine.
    pub fn grow_devices(&self, id: &str) -> Result<()> {
        let id = VolumeId::find(id, self.reach())?;
        let _lock = self.pool.locks.content(&id)?;
        if self.existing(&id)?.kind == Kind::Filesystem {
            return Ok(());
        }
        let file = self.pool.disk::<Volume>(&id, false)?;
        let publications = self.publications(&id)?;
        let mut nodes: Vec<&NodeName> = publications.iter().map(|publication| &publication.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        for node in nodes {
            let loops = Loops::new(&self.config.dev, &node.tag());
            for device in loops.of(&file, id.as_str())? {
                self.pool.steps.before("grow a loop device");
                loops.grow(&device)?;
            }
        }
        Ok(())
    }

    /// How full a volume is that is published at this path.
    pub fn usage(&self, id: &str, path: &str) -> Result<Usage> {
        if path.is_empty() {
            return Err(no_path());
        }
        let id = VolumeId::find(id, self.reach())?;
        let volume = self.existing(&id)?;
        let here = |publication: &Publication| publication.node == *self.node() && publication.target == path;
        if !self.publications(&id)?.iter().any(here) {
            let message = format!("volume {id} is not published at {path}");
            return Err(Refusal::new(Code::NotFound, message).into());
        }
        match volume.kind {
            Kind::Block => {
                let used = tree::allocated(&self.pool.disk::<Volume>(&id, false)?).doing("look up", DISK)?;
                let used = used.min(volume.capacity);
                Ok(Usage { total: volume.capacity, used, available: volume.capacity - used, inodes: None })
            }
            Kind::Filesystem => self.file_system_usage(&self.pool.root::<Volume>(&id)?.open_dir(DATA)?),
        }
    }

    /// That of the pool: directories have no quota of their own.
    fn file_system_usage(&self, dir: &Root) -> Result<Usage> {
        let stat = rustix::fs::fstatvfs(dir).doing("ask for the free space of", &self.pool.path)?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        Ok(Usage {
            total: bytes(stat.f_blocks),
            used: bytes(stat.f_blocks.saturating_sub(stat.f_bfree)),
            available: bytes(stat.f_bavail),
            inodes: Some((stat.f_files, stat.f_files.saturating_sub(stat.f_ffree), stat.f_favail)),
        })
    }
}

/// Whether an error says that a path is not there.
pub(crate) fn is_absent(error: &crate::Error) -> bool {
    matches!(error, crate::Error::Host(error) if error.is_not_found())
}

/// Refuses a place that is taken, before anything is recorded: to undo the publication must not touch what others have.
fn is_free(target: &Target, kind: Kind, path: &str) -> Result<()> {
    let why = match target.look()? {
        None => return Ok(()),
        Some(seen) if seen.mounted => "something is mounted there already, and not by this driver",
        Some(seen) if seen.holds(kind) => return Ok(()),
        Some(_) if kind == Kind::Block => "it is there already, and no empty file",
        Some(_) => "it is there already, and no directory",
    };
    Err(Refusal::new(Code::FailedPrecondition, format!("the volume cannot be mounted at {path}: {why}")).into())
}

fn no_path() -> crate::Error {
    Refusal::new(Code::InvalidArgument, "the request has no volume path").into()
}
