//! Volumes that are filled without a Pod: publications without a mount.

use std::os::fd::OwnedFd;

use hostfs::beneath::OFlags;
use volumeplan::{Kind, Lookup, PoolId as _, Volume, VolumeId};

use crate::engine::Engine;
use crate::error::Result;
use crate::pool::DATA;

/// The content of a volume that is held.
#[derive(Debug)]
pub struct Held {
    /// A directory to open files beneath, or a raw file, open for reading and writing, of `capacity` bytes.
    pub directory_or_file: OwnedFd,
    pub kind: Kind,
    pub capacity: u64,
}

impl Engine {
    /// Takes a volume out of use for `holder`, who fills it: it is neither deleted nor copied nor published until
    /// [`Engine::release_hold`], also not after a crash of this process or of the machine. May be repeated by the same
    /// holder; refused while somebody else uses the volume.
    pub fn hold(&self, id: &str, holder: &str) -> Result<Held> {
        let id = VolumeId::find(id, self.reach())?;
        // Who copies the volume has the content's lock, and must not see what we are about to write.
        let _content = self.pool.locks.content(&id)?;
        let _publications = self.pool.locks.publications(&id)?;
        let volume = self.existing(&id)?;
        let holding = volumeplan::hold(&volume, &self.users(&id)?, holder)?;
        // Opened first: what cannot be opened is not held.
        let directory_or_file = self.open_content(&volume)?;
        if !holding.recorded {
            self.pool.write_hold(&id, &holding.hold)?;
            tracing::info!(%id, holder, "volume held");
        }
        Ok(Held { directory_or_file, kind: volume.kind, capacity: volume.capacity })
    }

    fn open_content(&self, volume: &Volume) -> Result<OwnedFd> {
        const DIRECTORY: OFlags =
            OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
        Ok(match volume.kind {
            Kind::Filesystem => self.pool.root::<Volume>(&volume.id)?.open_file(DATA, DIRECTORY)?.into(),
            Kind::Block => self.pool.disk::<Volume>(&volume.id, true)?.into(),
        })
    }

    /// Gives a volume back. Succeeds if `holder` does not hold it, or if it is gone.
    pub fn release_hold(&self, id: &str, holder: &str) -> Result<()> {
        let Lookup::Here(id) = VolumeId::look_up(id, self.reach())? else { return Ok(()) };
        let _publications = self.pool.locks.publications(&id)?;
        if self.pool.read::<Volume>(&id)?.is_some() && volumeplan::release_hold(&self.users(&id)?, holder)? {
            self.pool.remove_hold(&id)?;
            tracing::info!(%id, holder, "volume released");
        }
        Ok(())
    }
}
