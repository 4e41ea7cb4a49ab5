//! A pool and a kubelet's directory for one test, in a mount namespace of its own.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use test_support::xfs::{Xfs, detach_loops};
use volumeplan::create::{From, Request};
use volumeplan::{
    Access, AccessMode, Capability, Kind, NodeName, Parameters, Publish, Range, Reach, Requirement, Volume,
};
use volumes::{Config, Engine};

pub(crate) const MIB: i64 = 1 << 20;

/// What the pool's file system can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copies {
    /// Whatever the machine's temporary directory can.
    Plain,
    Reflinks,
}

pub(crate) struct Home {
    _xfs: Option<Xfs>,
    dir: TempDir,
}

impl Drop for Home {
    fn drop(&mut self) {
        // Not `unwrap`: a test that fails clears up as well.
        let _ = hostfs::mounts::umount_all_below(self.kubelet());
        detach_loops(self.dir.path());
    }
}

/// Runs a test in a thread with a mount namespace of its own. Skips it where that is not possible.
pub(crate) fn isolated(what: &str, copies: Copies, test: impl FnOnce(&Home) + Send) {
    if !rustix::process::geteuid().is_root() {
        return test_support::skip(&format!("{what}: needs root for mounts and loop devices"));
    }
    std::thread::scope(|scope| {
        let work = move || {
            hostfs::ns::unshare(hostfs::ns::Kinds::NEWNS | hostfs::ns::Kinds::FS).unwrap();
            hostfs::mounts::make_private_recursive("/").unwrap();
            match Home::new(copies) {
                Ok(home) => test(&home),
                Err(missing) => test_support::skip(&format!("{what}: {missing}")),
            }
        };
        if let Err(panic) = scope.spawn(work).join() {
            std::panic::resume_unwind(panic);
        }
    });
}

impl Home {
    pub(crate) fn new(copies: Copies) -> Result<Home, String> {
        let dir = tempfile::tempdir().unwrap();
        let xfs = match copies {
            Copies::Plain => {
                std::fs::create_dir(dir.path().join("pool")).unwrap();
                None
            }
            Copies::Reflinks => Some(Xfs::mount(dir.path(), "pool", 2 << 30)?),
        };
        std::fs::create_dir_all(dir.path().join("kubelet/pods")).unwrap();
        Ok(Home { _xfs: xfs, dir })
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn pool(&self) -> PathBuf {
        self.path().join("pool")
    }

    pub(crate) fn kubelet(&self) -> PathBuf {
        self.path().join("kubelet")
    }

    /// A path for a publication.
    pub(crate) fn target(&self, name: &str) -> String {
        self.kubelet().join("pods").join(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn engine(&self) -> Engine {
        Engine::open(config(self.path())).unwrap()
    }

    /// The engine of a node that shares the pool with others.
    pub(crate) fn shared(&self, node: &str) -> Engine {
        let config = config(self.path());
        Engine::open(Config { node: NodeName::parse(node).unwrap(), reach: Reach::Shared, ..config }).unwrap()
    }
}

/// Settings of the engine in this directory.
pub(crate) fn config(home: &Path) -> Config {
    let local = Config::local(home.join("pool"), NodeName::parse("node-1").unwrap());
    Config { kubelet_dir: home.join("kubelet"), ..local }
}

pub(crate) fn capability(kind: Kind, mode: AccessMode) -> Capability {
    let access = match kind {
        Kind::Block => Access::Block,
        Kind::Filesystem => Access::Mount { fs_type: String::new(), flags: vec![] },
    };
    Capability { access: Some(access), mode: Some(mode) }
}

/// A request for a volume of so many MiB.
pub(crate) fn wanted(name: &str, kind: Kind, mib: i64, from: Option<From>) -> Request {
    Request {
        name: name.to_owned(),
        range: Range { required: mib * MIB, limit: 0 },
        capabilities: vec![capability(kind, AccessMode::SingleNodeMultiWriter)],
        parameters: Parameters::default(),
        from,
        topology: Requirement::default(),
    }
}

pub(crate) fn snapshot_of(name: &str, volume: &str) -> volumeplan::snapshot::Request {
    let parameters = Parameters::default();
    volumeplan::snapshot::Request { name: name.to_owned(), source: volume.to_owned(), parameters }
}

pub(crate) fn publication(target: &str, kind: Kind, read_only: bool) -> Publish {
    let capability = capability(kind, AccessMode::SingleNodeMultiWriter);
    Publish { target: target.to_owned(), read_only, capability }
}

/// The raw file of a volume: its own, or the VM's disk in its directory.
pub(crate) fn disk(engine: &Engine, volume: &Volume) -> PathBuf {
    match volume.kind {
        Kind::Block => engine.content(volume),
        Kind::Filesystem => engine.content(volume).join("disk.img"),
    }
}

/// Puts data with holes into a volume, as much as a tenant would.
pub(crate) fn fill(engine: &Engine, volume: &Volume) {
    let file = File::options().read(true).write(true).create(true).truncate(false).open(disk(engine, volume)).unwrap();
    file.set_len(volume.capacity).unwrap();
    for (number, at) in [0, 1 << 20, 3 << 20].into_iter().enumerate() {
        let data: Vec<u8> = (0..300_000_usize).map(|byte| (byte * (number + 3) % 251) as u8).collect();
        file.write_all_at(&data, at).unwrap();
    }
    file.sync_all().unwrap();
}

/// The first bytes of a file.
pub(crate) fn content(path: &Path, bytes: u64) -> Vec<u8> {
    let mut content = Vec::new();
    File::open(path).unwrap().take(bytes).read_to_end(&mut content).unwrap();
    assert_eq!(content.len() as u64, bytes, "{} is too short", path.display());
    content
}
