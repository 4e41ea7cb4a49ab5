//! What is done when a pool is opened: whatever a process was killed in is completed or undone.
//!
//! | killed while                      | then                                                                          |
//! |-----------------------------------|-------------------------------------------------------------------------------|
//! | making a volume or a snapshot     | what is in `work` is removed; a retry makes it anew                           |
//! | removing one                      | what is in `work` is removed                                                  |
//! | growing a block volume            | the file's size becomes the record's                                          |
//! | publishing                        | the mount, the mount point and the loop device go; a retry makes them anew    |
//! | unpublishing                      | the publication stays on record; the kubelet asks again                       |
//! | filling a volume it holds         | the hold stays until its holder comes back or releases it                     |
//! | anything, and the node restarted  | publications of an earlier boot are forgotten: their mounts went with it      |

use volumeplan::{Kind, Volume, VolumeId};

use crate::engine::Engine;
use crate::error::{Context as _, Result};
use crate::node::is_absent;
use crate::pool::Entry;
use crate::target::Target;

impl Engine {
    pub(crate) fn recover(&self) -> Result<()> {
        self.pool.sweep()?;
        for id in self.pool.ids::<Volume>()? {
            // One volume that cannot be mended must not keep the others from their Pods.
            if let Err(error) = self.recover_volume(&id) {
                let error = &error as &dyn std::error::Error;
                tracing::error!(%id, error, "failed to complete or undo what was interrupted");
            }
        }
        Ok(())
    }

    fn recover_volume(&self, id: &VolumeId) -> Result<()> {
        // Whoever is at work on it knows what it does.
        let Some(_content) = self.pool.locks.try_content(id)? else { return Ok(()) };
        let _publications = self.pool.locks.publications(id)?;
        let Some(volume) = self.pool.read::<Volume>(id)? else { return Ok(()) };
        self.pool.sweep_records(id)?;
        self.complete_growth(&volume)?;
        for entry in self.pool.entries(id)? {
            if entry.publication.node == *self.node() {
                self.recover_publication(&volume, &entry)?;
            }
        }
        self.detach_unused(id)
    }

    fn complete_growth(&self, volume: &Volume) -> Result<()> {
        if volume.kind != Kind::Block {
            return Ok(());
        }
        let file = self.pool.disk::<Volume>(&volume.id, false)?;
        let size = file.metadata().doing("look up", self.content(volume))?.len();
        if size > volume.capacity {
            tracing::info!(id = %volume.id, size, "completing the growth of a volume");
            self.pool.rewrite(&Volume { capacity: size, ..volume.clone() })?;
        }
        Ok(())
    }

    fn recover_publication(&self, volume: &Volume, entry: &Entry) -> Result<()> {
        let publication = &entry.publication;
        if entry.boot != hostfs::process::boot()? {
            tracing::info!(id = %volume.id, target = publication.target, "forgetting a publication of an earlier boot");
            return self.forget(volume, publication);
        }
        if entry.settled {
            return Ok(());
        }
        tracing::info!(id = %volume.id, target = publication.target, "undoing an interrupted publication");
        let inner = volumeplan::beneath(&publication.target, &self.config.kubelet_dir)?;
        match Target::open(&self.config.kubelet_dir, &inner) {
            Ok(target) => self.withdraw(volume, &target, publication),
            Err(error) if is_absent(&error) => self.forget(volume, publication),
            Err(error) => Err(error),
        }
    }
}
