//! The cluster's storage: one pool in the data directory, which every node of this machine sees, and the classes that
//! claims and snapshots get their volumes from.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use api::annotations::{DEFAULT_SNAPSHOT_CLASS, DEFAULT_STORAGE_CLASS};
use api::volumesnapshot::VolumeSnapshotClass;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Api, ListParams, PostParams};
use serde_json::{Value, json};
use volumeplan::{NodeName, PoolId as _, Reach};
use volumes::{Config, Engine};

use super::layout::Layout;
use super::record::NodeRecord;

/// The supervisor's name among the users of the pool. It publishes nothing, so no node's name can be in its way.
const OWN_NAME: &str = "supervisor";

/// The engine's configuration for a process of this cluster that calls itself `node` and shows volumes to Pods below
/// `pods`.
pub fn engine_config(layout: &Layout, node: &str, pods: &Path) -> Result<Config> {
    let node = NodeName::parse(node).context("cannot use the pool under this name")?;
    Ok(Config { reach: Reach::Shared, kubelet_dir: pods.to_owned(), ..Config::local(layout.pool(), node) })
}

/// Opens the pool, and completes or undoes what an earlier process was interrupted in. Blocks.
pub fn open(layout: &Layout) -> Result<Arc<Engine>> {
    let pool = layout.pool();
    make_private(&pool)?;
    make_private(&layout.images())?;
    check_locks(&pool)?;
    let config = engine_config(layout, OWN_NAME, &layout.root().join("nodes"))?;
    let engine =
        Engine::open(config).with_context(|| format!("cannot open the pool of volumes at {}", pool.display()))?;
    Ok(Arc::new(engine))
}

/// Takes all volumes away from nodes whose Pods are gone: mounts and loop devices that a crash has left. Their data stays.
pub fn withdraw_all(layout: &Layout, nodes: &[NodeRecord]) -> Result<()> {
    if !layout.pool().exists() {
        return Ok(());
    }
    for node in nodes {
        // Opening it as the node undoes what the node was interrupted in.
        let engine = Engine::open(engine_config(layout, &node.name, &layout.pods(&node.name))?);
        let engine =
            engine.with_context(|| format!("cannot open the pool of volumes at {}", layout.pool().display()))?;
        let volumes = engine.list_volumes(0, "").context("cannot list the volumes of the pool")?.entries;
        for volume in volumes {
            let (_, users) = engine.volume(volume.id.as_str()).context("cannot read a volume of the pool")?;
            for left in users.publications.iter().filter(|publication| publication.node.as_str() == node.name) {
                engine
                    .unpublish(volume.id.as_str(), &left.target)
                    .with_context(|| format!("cannot take volume {} away from {}", volume.id, left.target))?;
            }
        }
    }
    Ok(())
}

/// Makes a directory for root alone. Volumes hold what guests have written, and images programs that run as their owner: tenants
/// choose images, and what is in one must be of no use to users of this machine.
fn make_private(dir: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::create_dir_all(dir)
        .and_then(|()| std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700)))
        .with_context(|| format!("cannot make {}", dir.display()))
}

/// The processes of this cluster exclude each other by locks of open file descriptions. A file system that pretends to
/// have them would let two of them change one volume at once.
fn check_locks(pool: &Path) -> Result<()> {
    let file = pool.join(".locks");
    let opened = || std::fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&file);
    let opened = || opened().with_context(|| format!("cannot write to {}", pool.display()));
    let (first, second) = (opened()?, opened()?);
    let mine = lock(&first);
    let theirs = lock(&second);
    let removed = std::fs::remove_file(&file);
    removed.with_context(|| format!("cannot write to {}", pool.display()))?;
    if let Err(err) = mine {
        bail!(
            "the file system of {} has no file locks ({err}); choose a data directory on a local file system (XFS is best, \
             ext4 and btrfs work) with --data-dir",
            pool.display()
        );
    }
    if theirs.is_ok() {
        bail!(
            "the file system of {} does not honour file locks; choose a data directory on a local file system (XFS is \
             best, ext4 and btrfs work) with --data-dir",
            pool.display()
        );
    }
    Ok(())
}

fn lock(file: &std::fs::File) -> std::io::Result<()> {
    use std::os::fd::AsRawFd as _;
    // SAFETY: all fields are numbers, for which zero is valid.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = libc::F_WRLCK as libc::c_short;
    range.l_len = 1;
    // SAFETY: the descriptor is open, and the structure outlives the call.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const range) } {
        -1 => Err(std::io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Makes the classes that are missing. Those that are there belong to the user, and so does the choice of the default.
pub async fn make_classes(client: &kube::Client) -> Result<()> {
    let classes: Api<StorageClass> = Api::all(client.clone());
    let known = classes.list(&ListParams::default()).await.context("cannot list the StorageClasses")?.items;
    let has_default = claims::default_class(&known).is_some();
    for class in storage_classes(!has_default) {
        let class: StorageClass = serde_json::from_value(class).context("a built-in StorageClass")?;
        if !known.iter().any(|other| other.metadata.name == class.metadata.name) {
            classes.create(&PostParams::default(), &class).await.context("cannot create a StorageClass")?;
        }
    }
    let classes: Api<VolumeSnapshotClass> = Api::all(client.clone());
    let known = classes.list(&ListParams::default()).await.context("cannot list the VolumeSnapshotClasses")?.items;
    if !known.iter().any(|other| other.metadata.name.as_deref() == Some(CLASS)) {
        let class =
            serde_json::from_value(snapshot_class(known.is_empty())).context("the built-in VolumeSnapshotClass")?;
        classes.create(&PostParams::default(), &class).await.context("cannot create a VolumeSnapshotClass")?;
    }
    Ok(())
}

const CLASS: &str = "local";

fn storage_classes(default: bool) -> [Value; 2] {
    [(CLASS, "WaitForFirstConsumer", default), ("local-immediate", "Immediate", false)].map(
        |(name, binding, default)| {
            json!({
                "metadata": {"name": name, "annotations": {DEFAULT_STORAGE_CLASS: default.to_string()}},
                "provisioner": claims::DRIVER,
                "reclaimPolicy": "Delete",
                "volumeBindingMode": binding,
                "allowVolumeExpansion": true,
            })
        },
    )
}

fn snapshot_class(default: bool) -> Value {
    json!({
        "metadata": {"name": CLASS, "annotations": {DEFAULT_SNAPSHOT_CLASS: default.to_string()}},
        "driver": claims::DRIVER,
        "deletionPolicy": "Delete",
    })
}

#[cfg(test)]
mod tests {
    use volumeplan::{Access, AccessMode, Capability, Parameters, Publish, Range, Requirement, create};

    use super::*;

    #[test]
    fn pool_and_images_are_private_and_the_pool_can_be_opened_by_several_processes() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        let supervisor = open(&layout).unwrap();
        let node = Engine::open(engine_config(&layout, "n1", dir.path()).unwrap()).unwrap();
        assert_eq!((supervisor.reach(), node.reach()), (&Reach::Shared, &Reach::Shared));
        use std::os::unix::fs::PermissionsExt as _;
        for dir in [layout.pool(), layout.images()] {
            assert_eq!(std::fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700, "{}", dir.display());
        }
        open(&layout).unwrap();
    }

    #[test]
    fn what_a_crash_has_left_of_volumes_on_nodes_is_taken_away_and_the_data_stays() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("skipped: mounts and loop devices need root");
        }
        std::thread::spawn(|| {
            hostfs::ns::unshare(hostfs::ns::Kinds::NEWNS | hostfs::ns::Kinds::FS).unwrap();
            hostfs::mounts::make_private_recursive("/").unwrap();
            let dir = tempfile::tempdir().unwrap();
            let layout = Layout::new(dir.path());
            let node = NodeRecord::new(1);
            let pods = layout.pods(&node.name);
            std::fs::create_dir_all(&pods).unwrap();
            open(&layout).unwrap();
            let engine = Engine::open(engine_config(&layout, &node.name, &pods).unwrap()).unwrap();
            let capability = Capability { access: Some(Access::Block), mode: Some(AccessMode::SingleNodeMultiWriter) };
            let volume = engine
                .create_volume(&create::Request {
                    name: "v".to_owned(),
                    range: Range { required: 1 << 20, limit: 0 },
                    capabilities: vec![capability.clone()],
                    parameters: Parameters::default(),
                    from: None,
                    topology: Requirement::default(),
                })
                .unwrap();
            let target = pods.join("device").to_str().unwrap().to_owned();
            engine
                .publish(volume.id.as_str(), &Publish { target: target.clone(), read_only: false, capability })
                .unwrap();
            drop(engine); // the node is killed
            let devices = || {
                let all = std::fs::read_dir("/sys/block").unwrap().flatten();
                let backing =
                    all.filter_map(|entry| std::fs::read_to_string(entry.path().join("loop/backing_file")).ok());
                backing.filter(|file| file.contains(volume.id.as_str())).count()
            };
            assert_eq!(devices(), 1);
            withdraw_all(&layout, std::slice::from_ref(&node)).unwrap();
            withdraw_all(&layout, &[node]).unwrap();
            assert_eq!(devices(), 0);
            assert!(!std::path::Path::new(&target).exists());
            assert!(open(&layout).unwrap().volume(volume.id.as_str()).unwrap().1.publications.is_empty());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn the_classes_of_this_build_are_objects_of_their_kinds() {
        let classes: Vec<StorageClass> =
            storage_classes(true).into_iter().map(|class| serde_json::from_value(class).unwrap()).collect();
        assert_eq!(claims::default_class(&classes).and_then(|class| class.metadata.name.as_deref()), Some("local"));
        assert!(classes.iter().all(claims::allows_growth));
        let none: Vec<StorageClass> =
            storage_classes(false).into_iter().map(|class| serde_json::from_value(class).unwrap()).collect();
        assert!(claims::default_class(&none).is_none(), "the user has chosen another one");
        let snapshots: VolumeSnapshotClass = serde_json::from_value(snapshot_class(true)).unwrap();
        assert_eq!((snapshots.driver.as_str(), snapshots.deletion_policy.as_str()), ("csi.ferrovirt.io", "Delete"));
    }
}
