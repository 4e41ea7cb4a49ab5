//! The sandbox of one Pod: created, stopped and removed. Every step is idempotent and leaves a state on disk from which
//! any process can continue.
//!
//! ```text
//!            start()                 all containers ended       release()            purge()
//!  absent ──────────► shim runs ───────────────────────► ended ───────────► records ─────────► absent
//!                        │  ▲                              ▲                 and logs
//!                 stop() │  │ (SIGTERM sent,               │
//!                        ▼  │  stop.json says when)        │
//!                      stopping ──────── kill() ───────────┘
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hostfs::cgroup::{Cgroup, Hierarchies};
use hostfs::process::{ProcessId, Signal};
use hostfs::{atomic, mounts, ns};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use podstate::claims::Backing;
use podstate::{Blocked, CONFIG_ERROR, FAILED_MOUNT, Observed, ShimState, containers};
use rustix::fs::FlockOperation;

use crate::addresses::Addresses;
use crate::error::Error;
use crate::network::{self, PodNetwork};
use crate::ownership::Group;
use crate::paths::{PodPaths, PodUid};
use crate::record::{Accepted, MountSource, ShimSpec, Stopping};
use crate::resolve::{self, FileContent, HostPathKind, Inputs, NodeFacts, Resolved, VolumePlan};
use crate::shim;
use crate::storage::{self, Need, PublishError, Storage, Volume};

/// Parent cgroup of all Pods on this machine.
const GROUPS: &str = "ferrovirt";
/// The cgroup of all shims. It has no limits; a shim must not be killed together with what it watches.
pub(crate) const SHIM_GROUP: &str = "ferrovirt/shims";
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
const SHIM_START_TIMEOUT: Duration = Duration::from_secs(20);

/// The part of the node that sandboxes need.
#[derive(Clone, Debug)]
pub struct Host {
    pub pods_dir: PathBuf,
    pub network: PodNetwork,
    pub facts: NodeFacts,
    /// What claims are mounted from; without it, Pods with claims wait.
    pub storage: Option<Arc<Storage>>,
}

/// Why a Pod did not start.
#[derive(Debug)]
pub enum StartFailure {
    /// Something it needs is not available yet.
    Blocked(Blocked),
    Error(Error),
}

impl<E: Into<Error>> From<E> for StartFailure {
    fn from(error: E) -> Self {
        StartFailure::Error(error.into())
    }
}

#[derive(Clone, Debug)]
pub struct PodSandbox {
    uid: PodUid,
    paths: PodPaths,
    addresses: Addresses,
    storage: Option<Arc<Storage>>,
}

impl PodSandbox {
    pub fn new(pods_dir: &Path, uid: PodUid) -> PodSandbox {
        let paths = PodPaths::new(pods_dir, &uid);
        PodSandbox { uid, paths, addresses: Addresses::of(pods_dir), storage: None }
    }

    /// A Pod whose claims are mounted from here.
    #[must_use]
    pub fn with_storage(self, storage: Option<Arc<Storage>>) -> PodSandbox {
        PodSandbox { storage, ..self }
    }

    pub fn paths(&self) -> &PodPaths {
        &self.paths
    }

    /// Reads the Pod's state; `None` if there is none.
    pub fn observe(&self) -> Result<Option<Observed>, Error> {
        let (accepted_at, spec) = match atomic::read_json::<Accepted>(self.paths.pod())? {
            Some(accepted) => (accepted.at, accepted.pod.spec),
            // A start that was interrupted right at the beginning.
            None if self.paths.dir().exists() => (Timestamp::now(), None),
            None => return Ok(None),
        };
        let mut records = BTreeMap::new();
        for container in spec.iter().flat_map(containers) {
            if let Some(record) = atomic::read_json(self.paths.status(&container.name))? {
                records.insert(container.name.clone(), record);
            }
        }
        Ok(Some(Observed {
            accepted_at,
            address: self.addresses.held_by(&self.uid)?,
            shim: self.shim_state()?,
            containers: records,
            stopping_since: atomic::read_json::<Stopping>(self.paths.stop())?.map(|s| s.since),
            released: self.paths.released().exists(),
        }))
    }

    /// The Pod as it was accepted, for when its object is not available.
    pub(crate) fn recorded(&self) -> Result<Option<Pod>, Error> {
        Ok(atomic::read_json::<Accepted>(self.paths.pod())?.map(|accepted| accepted.pod))
    }

    /// The Pod's last shim process.
    pub(crate) fn shim(&self) -> Result<Option<ProcessId>, Error> {
        Ok(atomic::read_json(self.paths.shim())?)
    }

    fn shim_state(&self) -> Result<ShimState, Error> {
        let process = self.shim()?;
        if process.is_some_and(|p| p.alive()) || self.lock_is_held()? {
            return Ok(ShimState::Alive);
        }
        Ok(if process.is_some() { ShimState::Gone } else { ShimState::NotStarted })
    }

    /// A shim that has just been started is detected by its lock before it has recorded its process.
    fn lock_is_held(&self) -> Result<bool, Error> {
        let path = self.paths.shim_lock();
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(e) => return Err(Error::io("open", path)(e)),
        };
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(false),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(true),
            Err(e) => Err(Error::io("query the lock", path)(e.into())),
        }
    }

    /// Prepares everything and starts the shim. Completed steps of an earlier attempt are kept.
    pub fn start(&self, host: &Host, pod: &Pod, inputs: &Inputs) -> Result<(), StartFailure> {
        self.accept(pod)?;
        self.end_leftovers()?;
        let address = self.addresses.take(&self.uid, host.network.cidr)?;
        let resolved = self.resolve(host, pod, inputs, address)?;
        self.publish_claims(host, &resolved)?;
        self.prepare_volumes(&resolved)?;
        self.prepare_files(&resolved.spec)?;
        let netns = ns::create_netns(self.paths.netns())?;
        network::connect(&host.network, &self.uid, address, &netns)?;
        self.start_shim(&host.facts.exe)?;
        Ok(())
    }

    fn accept(&self, pod: &Pod) -> Result<(), Error> {
        let dir = self.paths.dir();
        for sub in ["status", "logs", "termination", "ns", "root"] {
            let sub = dir.join(sub);
            fs::create_dir_all(&sub).map_err(Error::io("make", &sub))?;
        }
        fs::set_permissions(dir, fs::Permissions::from_mode(0o750)).map_err(Error::io("close", dir))?;
        File::options()
            .create(true)
            .append(true)
            .open(self.paths.shim_lock())
            .map_err(Error::io("make", self.paths.shim_lock()))?;
        if !self.paths.pod().exists() {
            atomic::write_json(self.paths.pod(), &Accepted { at: Timestamp::now(), pod: pod.clone() })?;
        }
        Ok(())
    }

    /// Cleans up after a killed shim. Only called when none is alive.
    fn end_leftovers(&self) -> Result<(), Error> {
        self.kill()?;
        atomic::remove(self.paths.shim())?;
        Ok(())
    }

    fn resolve(&self, host: &Host, pod: &Pod, inputs: &Inputs, address: Ipv4Addr) -> Result<Resolved, StartFailure> {
        let spec = pod.spec.as_ref().ok_or_else(|| {
            StartFailure::Blocked(Blocked { reason: CONFIG_ERROR, message: "the Pod has no spec".to_owned() })
        })?;
        resolve::resolve(pod, spec, &self.paths, &host.facts, inputs, address, &self.group_name())
            .map_err(StartFailure::Blocked)
    }

    fn publish_claims(&self, host: &Host, resolved: &Resolved) -> Result<(), StartFailure> {
        let need = |plan: &VolumePlan| match plan {
            VolumePlan::Claim { need, .. } if matches!(need.claimed.backing, Backing::Pool { .. }) => {
                Some(need.clone())
            }
            _ => None,
        };
        let needs: Vec<Need> = resolved.volumes.values().filter_map(need).collect();
        let Some(first) = needs.first() else { return Ok(()) };
        let storage = host.storage.as_ref().ok_or_else(|| {
            let message = format!("Unable to attach or mount PVC {}: this node has no storage pool", first.claim);
            StartFailure::Blocked(Blocked { reason: FAILED_MOUNT, message })
        })?;
        match storage.publish(&self.paths, &needs, resolved.fs_group) {
            Ok(()) => Ok(()),
            Err(PublishError::Blocked(blocked)) => Err(StartFailure::Blocked(blocked)),
            Err(PublishError::Error(error)) => Err(error.into()),
        }
    }

    fn prepare_volumes(&self, resolved: &Resolved) -> Result<(), StartFailure> {
        for (name, plan) in &resolved.volumes {
            match plan {
                VolumePlan::EmptyDir { dir } => empty_dir(dir, resolved.fs_group)?,
                VolumePlan::MemoryDir { dir, size } => {
                    fs::create_dir_all(dir).map_err(Error::io("make", dir))?;
                    if !mounts::is_mount_point(dir)? {
                        mounts::tmpfs(dir, 0o777, *size)?;
                    }
                    empty_dir(dir, resolved.fs_group)?;
                }
                VolumePlan::Files { dir, files } => write_files(dir, files, resolved.fs_group)?,
                VolumePlan::HostPath { path, kind } => host_path(name, path, *kind)?,
                VolumePlan::Claim { need, .. } => match &need.claimed.backing {
                    Backing::Directory(path) => host_path(name, path, HostPathKind::Directory)?,
                    Backing::Pool { .. } => {} // published already
                },
                VolumePlan::Image { .. } => {} // already resolved
            }
        }
        self.share_followed(&resolved.spec)?;
        Ok(())
    }

    /// What the node mounts later below these directories reaches the containers that ask for that: those mounts have to
    /// be of a shared kind, whatever the machine's are.
    fn share_followed(&self, spec: &ShimSpec) -> Result<(), Error> {
        for mount in spec.all().flat_map(|c| &c.mounts).filter(|mount| mount.follows_node) {
            let MountSource::Path(dir) = &mount.source else { continue };
            if dir.starts_with(self.paths.dir()) && dir.is_dir() {
                if !mounts::is_mount_point(dir)? {
                    mounts::bind(dir, dir)?;
                }
                mounts::make_shared(dir)?;
            }
        }
        Ok(())
    }

    fn prepare_files(&self, spec: &ShimSpec) -> Result<(), Error> {
        for container in spec.all() {
            atomic::write_mode(self.paths.termination(&container.name), b"", 0o666)?;
        }
        atomic::write_json(self.paths.spec(), spec)?;
        Ok(())
    }

    fn start_shim(&self, exe: &Path) -> Result<(), Error> {
        let log_path = self.paths.shim_log();
        let log = File::options().create(true).append(true).open(&log_path).map_err(Error::io("open", &log_path))?;
        let status = Command::new(exe)
            .arg(shim::SUBCOMMAND)
            .arg(self.paths.dir())
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .status()
            .map_err(Error::io("execute", exe))?;
        let deadline = Instant::now() + SHIM_START_TIMEOUT;
        while !self.paths.shim().exists() {
            if !status.success() || Instant::now() > deadline {
                let log = fs::read_to_string(&log_path).unwrap_or_default();
                let log = log.lines().next_back().unwrap_or("it says nothing").to_owned();
                return Err(Error::NoShim { uid: self.uid.to_string(), log });
            }
            // Only if a shim requested by an earlier process came first.
            std::thread::sleep(Duration::from_millis(5));
        }
        self.await_first_record();
        Ok(())
    }

    /// Containers start shortly after their shim. Waiting for the first record avoids a status that is outdated at
    /// once.
    fn await_first_record(&self) {
        let deadline = Instant::now() + Duration::from_secs(2);
        // Names with a leading dot are temporary files.
        let written = |e: fs::DirEntry| !e.file_name().to_string_lossy().starts_with('.');
        let none = || fs::read_dir(self.paths.status_dir()).is_ok_and(|entries| !entries.flatten().any(written));
        while none() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Asks the containers to stop, and records when.
    pub fn stop(&self) -> Result<(), Error> {
        let Some(shim) = self.shim()? else {
            return Err(Error::NoShim { uid: self.uid.to_string(), log: "it is about to start".to_owned() });
        };
        shim.signal(Signal::TERM)?;
        if !self.paths.stop().exists() {
            atomic::write_json(self.paths.stop(), &Stopping { since: Timestamp::now() })?;
        }
        Ok(())
    }

    /// Kills everything in the containers. The shim sees them exit, records that and exits itself.
    pub fn kill(&self) -> Result<(), Error> {
        if self.group()?.kill(KILL_TIMEOUT)? { Ok(()) } else { Err(Error::Unkillable { uid: self.uid.to_string() }) }
    }

    /// Releases everything but the records and the logs. The shim must be gone.
    pub fn release(&self) -> Result<(), Error> {
        if self.shim_state()? == ShimState::Alive {
            return Err(Error::ShimAlive { uid: self.uid.to_string() });
        }
        self.kill()?;
        let group = self.group()?;
        group.remove(KILL_TIMEOUT)?;
        network::disconnect(&self.uid, &self.paths.netns())?;
        // Before other mounts are detached: one that is in use has to be noticed.
        storage::give_back(&self.paths, self.storage.as_deref())?;
        mounts::umount_all_below(self.paths.dir())?;
        self.addresses.give_back(&self.uid)?;
        if self.paths.dir().exists() {
            let released = self.paths.released();
            File::create(&released).map_err(Error::io("write", released))?;
        }
        Ok(())
    }

    /// Removes the rest of the Pod.
    pub fn purge(&self) -> Result<(), Error> {
        // A shim requested by a process that was killed right afterwards must not start any more.
        let lock = shim::lock(&self.paths.shim_lock())?;
        if lock.is_none() && self.paths.shim_lock().exists() {
            return Err(Error::ShimAlive { uid: self.uid.to_string() });
        }
        // Symlinks are not followed; mounts were removed by the release.
        match fs::remove_dir_all(self.paths.dir()) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", self.paths.dir())(e)),
            _ => Ok(()),
        }
    }

    /// Kills the shim too, unconditionally.
    pub(crate) fn destroy(&self) -> Result<(), Error> {
        let deadline = Instant::now() + KILL_TIMEOUT;
        while self.shim_state()? == ShimState::Alive {
            if let Some(shim) = self.shim()? {
                shim.signal(Signal::KILL)?;
                shim.wait_gone(KILL_TIMEOUT)?;
            }
            if Instant::now() > deadline {
                return Err(Error::ShimAlive { uid: self.uid.to_string() });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.release()?;
        self.purge()
    }

    /// After a restart of the node: recreates the mounts of an earlier mount namespace from what the shim holds.
    pub fn adopt(&self) -> Result<(), Error> {
        let path = self.paths.netns();
        let Some(shim) = self.shim()?.filter(ProcessId::alive) else {
            return Ok(());
        };
        if ns::open_netns(&path).is_err() && !ns::same(format!("/proc/{}/ns/net", shim.pid), "/proc/self/ns/net")? {
            ns::keep_netns_of(shim.pid, &path)?;
        }
        if let Some(storage) = &self.storage
            // At best: the Pod has what it has, and must be stopped all the same when its time has come.
            && let Err(error) = storage.renew(&self.paths)
        {
            tracing::warn!(uid = %self.uid, error = &error as &dyn std::error::Error, "failed to renew the Pod's claims");
        }
        Ok(())
    }

    /// The Pod's claims, by the PersistentVolume's name.
    pub(crate) fn volumes(&self) -> Result<BTreeMap<String, Volume>, Error> {
        storage::volumes_of(&self.paths)
    }

    fn group_name(&self) -> String {
        format!("{GROUPS}/pod{}", self.uid)
    }

    fn group(&self) -> Result<Cgroup, Error> {
        Ok(Hierarchies::detect()?.group(&self.group_name())?)
    }
}

/// Removes the cgroups shared by all Pods, if nothing on this machine uses them any more.
pub(crate) fn remove_shared_groups() -> Result<(), Error> {
    let hierarchies = Hierarchies::detect()?;
    for name in [SHIM_GROUP, GROUPS] {
        hierarchies.group(name)?.remove_unused();
    }
    Ok(())
}

/// Accessible to all users of the Pod; with an fsGroup, new files get that group.
fn empty_dir(dir: &Path, fs_group: Option<Group>) -> Result<(), Error> {
    fs::create_dir_all(dir).map_err(Error::io("make", dir))?;
    if fs_group.is_some() {
        chown(dir, None, fs_group.map(|group| group.gid)).map_err(Error::io("hand over", dir))?;
    }
    let mode = if fs_group.is_some() { 0o2777 } else { 0o777 };
    fs::set_permissions(dir, fs::Permissions::from_mode(mode)).map_err(Error::io("open up", dir))
}

fn write_files(dir: &Path, files: &BTreeMap<String, FileContent>, fs_group: Option<Group>) -> Result<(), Error> {
    fs::create_dir_all(dir).map_err(Error::io("make", dir))?;
    for (name, content) in files {
        let path = dir.join(name);
        let _ = fs::remove_file(&path);
        let mut file = File::create_new(&path).map_err(Error::io("write", &path))?;
        file.write_all(&content.bytes).map_err(Error::io("write", &path))?;
        // The fsGroup may read what the owner may read.
        let mode = if fs_group.is_some() { content.mode | (content.mode & 0o400) >> 3 } else { content.mode };
        if fs_group.is_some() {
            chown(&path, None, fs_group.map(|group| group.gid)).map_err(Error::io("hand over", &path))?;
        }
        file.set_permissions(fs::Permissions::from_mode(mode)).map_err(Error::io("close", &path))?;
    }
    Ok(())
}

fn host_path(volume: &str, path: &Path, kind: HostPathKind) -> Result<(), StartFailure> {
    if kind == HostPathKind::DirectoryOrCreate && !path.exists() {
        fs::create_dir_all(path).map_err(Error::io("make", path))?;
    }
    let found = fs::metadata(path);
    let expected = match (kind, &found) {
        (HostPathKind::Any, Ok(_)) => return Ok(()),
        (HostPathKind::Directory | HostPathKind::DirectoryOrCreate, Ok(found)) if found.is_dir() => return Ok(()),
        (HostPathKind::File, Ok(found)) if found.is_file() => return Ok(()),
        (HostPathKind::Any, Err(_)) => "there",
        (HostPathKind::Directory | HostPathKind::DirectoryOrCreate, _) => "a directory",
        (HostPathKind::File, _) => "a file",
    };
    let why = format!("hostPath type check failed: {} is not {expected}", path.display());
    let message = format!("MountVolume.SetUp failed for volume {volume:?}: {why}");
    Err(StartFailure::Blocked(Blocked { reason: FAILED_MOUNT, message }))
}
