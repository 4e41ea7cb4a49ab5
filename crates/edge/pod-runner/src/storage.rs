//! Claims of Pods, through the volume engine.
//!
//! ```text
//!   <pods>/<uid>/claims.json                                  what was asked of the engine, written before it is asked
//!                volumes/kubernetes.io~csi/<pv>/mount         a file system claim
//!                volumeDevices/kubernetes.io~csi/<pv>         a block claim: the node of a loop device
//! ```
//!
//! The engine decides who may use a volume, and remembers who does; the Pod's record says what the Pod has to give back.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hostfs::atomic;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use podstate::claims::{Backing, Claimed};
use podstate::{Blocked, FAILED_ATTACH, FAILED_MOUNT};
use serde::{Deserialize, Serialize};
use volumeplan::{
    Access, AccessMode, Capability, Code, NodeName, PoolId as _, Publication, Publish, Range, Reach, Users,
};
use volumes::{Class, Config, Engine};

use crate::error::{Error, chain};
use crate::ownership;
use crate::paths::PodPaths;
use crate::record::Accepted;

/// The volume engine of a node, opened when the first Pod needs it.
pub struct Storage {
    config: Config,
    engine: Mutex<Option<Arc<Engine>>>,
}

impl std::fmt::Debug for Storage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Storage({} of node {})", self.config.pool.display(), self.config.node)
    }
}

/// `claims.json`: enough to give everything back without the process that took it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claims {
    pool: Pool,
    /// By the PersistentVolume's name.
    volumes: BTreeMap<String, Volume>,
}

/// Where the engine is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Pool {
    path: PathBuf,
    reach: Reach,
    node: NodeName,
    /// The directory below which it publishes.
    pods: PathBuf,
    dev: PathBuf,
}

/// A volume of the Pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Volume {
    /// The claim, with its namespace.
    pub(crate) claim: String,
    handle: String,
    pub(crate) block: bool,
    read_only: bool,
    mode: AccessMode,
    mount_options: Vec<String>,
    pub(crate) target: PathBuf,
}

/// A claim that a Pod needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    /// The claim, with its namespace.
    pub(crate) claim: String,
    pub(crate) claimed: Claimed,
}

impl Storage {
    pub fn new(config: Config) -> Self {
        Self { config, engine: Mutex::default() }
    }

    /// Opens the pool, and completes or undoes what an earlier process was interrupted in.
    pub(crate) fn engine(&self) -> Result<Arc<Engine>, volumes::Error> {
        let mut engine = self.engine.lock();
        if let Some(engine) = &*engine {
            return Ok(engine.clone());
        }
        let opened = Arc::new(Engine::open(self.config.clone())?);
        Ok(engine.insert(opened).clone())
    }

    fn pool(&self) -> Pool {
        let Config { pool, reach, node, kubelet_dir, dev, .. } = &self.config;
        Pool {
            path: pool.clone(),
            reach: reach.clone(),
            node: node.clone(),
            pods: kubelet_dir.clone(),
            dev: dev.clone(),
        }
    }

    fn of(pool: &Pool) -> Self {
        let Pool { path, reach, node, pods, dev } = pool.clone();
        let local = Config::local(path, node);
        Self::new(Config { reach, kubelet_dir: pods, dev, ..local })
    }

    /// The engine that these Pods have their volumes from, if one has any: for when the node's process is gone.
    pub(crate) fn recorded(pods: &[PodPaths]) -> Result<Option<Self>, Error> {
        for paths in pods {
            if let Some(claims) = recorded(paths)? {
                return Ok(Some(Self::of(&claims.pool)));
            }
        }
        Ok(None)
    }

    /// Makes all claims of a Pod appear in its directory. May be repeated.
    pub(crate) fn publish(
        &self,
        paths: &PodPaths,
        needs: &[Need],
        fs_group: Option<ownership::Group>,
    ) -> Result<(), PublishError> {
        let wanted = self.record(paths, needs)?;
        for (name, volume) in &wanted {
            let blocked = |reason, why: String| {
                let message = format!("MountVolume.SetUp failed for volume {name:?} (PVC {}): {why}", volume.claim);
                PublishError::Blocked(Blocked { reason, message })
            };
            let failed = |error: &volumes::Error| blocked(FAILED_MOUNT, chain(error));
            let engine = self.engine().map_err(|error| failed(&error))?;
            match engine.publish(&volume.handle, &volume.request()) {
                Ok(()) => {}
                Err(error) => {
                    let others = self.others(&engine, volume);
                    return Err(match others.as_slice() {
                        [] => failed(&error),
                        others => PublishError::Blocked(Blocked {
                            reason: FAILED_ATTACH,
                            message: format!(
                                "Multi-Attach error for volume {name:?} (PVC {}): Volume is already used by {}; {error}",
                                volume.claim,
                                others.join(", ")
                            ),
                        }),
                    });
                }
            }
            if let (Some(group), false, false) = (fs_group, volume.block, volume.read_only) {
                ownership::hand_over(&volume.target, group)?;
            }
        }
        Ok(())
    }

    /// Notes what is about to be published. What an earlier attempt has noted stays: it may be published.
    fn record(&self, paths: &PodPaths, needs: &[Need]) -> Result<BTreeMap<String, Volume>, Error> {
        let mut wanted = BTreeMap::<String, Volume>::new();
        for need in needs {
            let Claimed { persistent_volume, block, read_only, backing } = &need.claimed;
            let Backing::Pool { handle, mode, mount_options } = backing else { continue };
            let volume = Volume {
                claim: need.claim.clone(),
                handle: handle.clone(),
                block: *block,
                read_only: *read_only,
                mode: *mode,
                mount_options: mount_options.clone(),
                target: paths.claim(persistent_volume, *block),
            };
            // Two volumes of a Pod can be one claim. It is published once; each mount has its own flag.
            wanted
                .entry(persistent_volume.clone())
                .and_modify(|same| same.read_only &= volume.read_only)
                .or_insert(volume);
        }
        if wanted.is_empty() {
            return Ok(wanted);
        }
        let before = recorded(paths)?;
        let mut volumes = before.as_ref().map(|before| before.volumes.clone()).unwrap_or_default();
        volumes.extend(wanted.clone());
        let claims = Claims { pool: self.pool(), volumes };
        if before.as_ref() != Some(&claims) {
            atomic::write_json(paths.claims(), &claims)?;
        }
        for volume in wanted.values() {
            let parent = volume.target.parent().unwrap_or(paths.dir());
            fs::create_dir_all(parent).map_err(Error::io("make", parent))?;
        }
        Ok(wanted)
    }

    /// The users that keep a Pod from a volume, by name where that is known.
    fn others(&self, engine: &Engine, volume: &Volume) -> Vec<String> {
        let Ok((_, Users { publications, hold })) = engine.volume(&volume.handle) else { return vec![] };
        if hold.is_some() {
            return vec![]; // the engine's message says who
        }
        let target = volume.target.to_string_lossy();
        let others: Vec<&Publication> = publications.iter().filter(|p| *p.target != *target).collect();
        let elsewhere = others.iter().any(|other| other.node != self.config.node);
        let disturbs = |other: &&&Publication| !elsewhere || other.node != self.config.node;
        others.iter().filter(disturbs).map(|other| named(other)).collect()
    }

    /// Makes sure that what a Pod has is still where it was, and of the right size.
    pub(crate) fn renew(&self, paths: &PodPaths) -> Result<(), Error> {
        let Some(claims) = recorded(paths)? else { return Ok(()) };
        for volume in claims.volumes.values() {
            let (engine, target) = (self.engine()?, volume.target.to_string_lossy());
            // Only what was published: a start may have been interrupted before.
            let (_, users) = engine.volume(&volume.handle)?;
            if users.publications.iter().any(|p| p.node == self.config.node && *p.target == *target) {
                engine.publish(&volume.handle, &volume.request())?;
                engine.grow_on_node(&volume.handle, &target, Range::default())?;
            }
        }
        Ok(())
    }

    /// Shows a Pod the new size of a volume that has grown.
    pub(crate) fn grow(&self, volume: &Volume) -> Result<u64, Error> {
        Ok(self.engine()?.grow_on_node(&volume.handle, &volume.target.to_string_lossy(), Range::default())?)
    }

    /// Takes away what no Pod on disk has any more.
    pub(crate) fn sweep(&self, known: &[PodPaths]) -> Result<(), Error> {
        let engine = self.engine()?;
        let mut theirs: Vec<PathBuf> = Vec::new();
        for paths in known {
            theirs.extend(recorded(paths)?.into_iter().flat_map(|c| c.volumes.into_values()).map(|v| v.target));
        }
        let mut token = String::new();
        loop {
            let page = engine.list_volumes(0, &token)?;
            for volume in &page.entries {
                let (_, users) = engine.volume(volume.id.as_str())?;
                let ours = users.publications.iter().filter(|publication| publication.node == self.config.node);
                for Publication { target, .. } in ours.filter(|ours| !theirs.iter().any(|t| *t == *ours.target)) {
                    tracing::info!(id = %volume.id, target, "unpublishing a volume whose Pod is gone");
                    engine.unpublish(volume.id.as_str(), target)?;
                }
            }
            match page.next {
                Some(next) => token = next,
                None => return Ok(()),
            }
        }
    }
}

/// Why a Pod does not have its claims.
#[derive(Debug)]
pub(crate) enum PublishError {
    Blocked(Blocked),
    Error(Error),
}

impl<E: Into<Error>> From<E> for PublishError {
    fn from(error: E) -> Self {
        PublishError::Error(error.into())
    }
}

impl Volume {
    fn request(&self) -> Publish {
        let access = match self.block {
            true => Access::Block,
            false => Access::Mount { fs_type: String::new(), flags: self.mount_options.clone() },
        };
        Publish {
            target: self.target.to_string_lossy().into_owned(),
            read_only: self.read_only,
            capability: Capability { access: Some(access), mode: Some(self.mode) },
        }
    }
}

fn recorded(paths: &PodPaths) -> Result<Option<Claims>, Error> {
    Ok(atomic::read_json(paths.claims())?)
}

/// The volumes that a Pod has, by the PersistentVolume's name.
pub(crate) fn volumes_of(paths: &PodPaths) -> Result<BTreeMap<String, Volume>, Error> {
    Ok(recorded(paths)?.map(|claims| claims.volumes).unwrap_or_default())
}

/// Gives back what a Pod has taken. `storage` is the node's own, if its process is alive. May be repeated.
pub(crate) fn give_back(paths: &PodPaths, storage: Option<&Storage>) -> Result<(), Error> {
    let Some(claims) = recorded(paths)? else { return Ok(()) };
    if !claims.pool.path.exists() {
        tracing::warn!(pool = %claims.pool.path.display(), "the pool of a Pod's volumes is gone");
        return Ok(());
    }
    let another = Storage::of(&claims.pool);
    let storage = storage.filter(|storage| storage.pool() == claims.pool).unwrap_or(&another);
    for volume in claims.volumes.values() {
        match storage.engine()?.unpublish(&volume.handle, &volume.target.to_string_lossy()) {
            Err(error) if error.class() != Class::Refused(Code::NotFound) => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}

/// A user of a volume, as messages name it.
fn named(publication: &Publication) -> String {
    let node = &publication.node;
    // Every node of the cluster is on this machine: the target lies in a Pod's directory.
    let records = Path::new(&publication.target).ancestors().map(|dir| PodPaths::at(dir.to_owned()).pod());
    let mut pods = records.filter_map(|record| atomic::read_json::<Accepted>(record).ok().flatten());
    match pods.next().map(|accepted| accepted.pod) {
        Some(Pod { metadata, .. }) => {
            let (namespace, name) = (metadata.namespace.unwrap_or_default(), metadata.name.unwrap_or_default());
            format!("Pod {namespace}/{name} on node {node}")
        }
        None => format!("node {node}"),
    }
}
