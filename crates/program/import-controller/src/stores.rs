//! One watch per kind.

use std::sync::Arc;

use api::cdi::{CDIConfig, CONFIG_NAME, DataSource, DataVolume, FilesystemOverhead, StorageProfile};
use api::rights::Right;
use api::volumesnapshot::VolumeSnapshot;
use imports::{Cluster, installation};
use informer::{Change, Informer, Key, Store, WorkQueue};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

macro_rules! stores {
    ($($field:ident: $kind:ty;)*) => {
        /// The caches of the importer.
        #[derive(Clone)]
        pub(crate) struct Stores {
            $(pub(crate) $field: Store<$kind>,)*
        }

        impl Stores {
            /// Starts all watches; they stop with `stop`.
            pub(crate) fn start(client: &Client, stop: &CancellationToken) -> Self {
                Self { $($field: Informer::new().optional().start(Api::all(client.clone()), stop.clone()),)* }
            }

            /// The rights needed for all watches.
            pub(crate) fn rights() -> Vec<Right> {
                vec![$(Right::watch::<$kind>(),)*]
            }

            /// Waits until every cache has synced. Returns false if the watches were stopped first.
            pub(crate) async fn synced(&self) -> bool {
                true $(&& self.$field.synced().await)*
            }
        }
    };
}

stores! {
    data_volumes: DataVolume;
    claims: PersistentVolumeClaim;
    volumes: PersistentVolume;
    classes: StorageClass;
    profiles: StorageProfile;
    data_sources: DataSource;
    snapshots: VolumeSnapshot;
    configs: CDIConfig;
    nodes: Node;
}

impl Stores {
    /// Lets changes of DataVolumes, claims and volumes wake the passes about them.
    pub(crate) fn feed(&self, queue: &WorkQueue<Key>) {
        self.data_volumes.feed(queue);
        self.claims.feed(queue);
        let queue = queue.clone();
        self.volumes.subscribe(move |change: &Change<PersistentVolume>| {
            let claim = change.object().spec.as_ref().and_then(|spec| spec.claim_ref.clone());
            if let Some(claim) = claim {
                queue.add(Key::new(claim.namespace.unwrap_or_default(), claim.name.unwrap_or_default()));
            }
        });
    }

    /// A node for claims that are not to wait for a consumer. All see the pool; the choice is the same each time.
    pub(crate) fn a_node(&self) -> Option<String> {
        self.nodes.keys().into_iter().map(|key| key.name).next()
    }

    /// The volume that the claim is bound to, if it is the one.
    pub(crate) fn volume_of(&self, claim: &PersistentVolumeClaim) -> Option<Arc<PersistentVolume>> {
        let name = claim.spec.as_ref()?.volume_name.as_deref().filter(|name| !name.is_empty())?;
        let volume = self.volumes.get(&Key::new("", name))?;
        let bound_to = volume.spec.as_ref()?.claim_ref.as_ref()?.uid.clone();
        (bound_to.is_some() && bound_to == claim.metadata.uid).then_some(volume)
    }
}

impl Cluster for Stores {
    fn claim(&self, namespace: &str, name: &str) -> Option<Arc<PersistentVolumeClaim>> {
        self.claims.get(&Key::new(namespace, name))
    }

    fn data_volume(&self, namespace: &str, name: &str) -> Option<Arc<DataVolume>> {
        self.data_volumes.get(&Key::new(namespace, name))
    }

    fn data_source(&self, namespace: &str, name: &str) -> Option<Arc<DataSource>> {
        self.data_sources.get(&Key::new(namespace, name))
    }

    fn snapshot(&self, namespace: &str, name: &str) -> Option<Arc<VolumeSnapshot>> {
        self.snapshots.get(&Key::new(namespace, name))
    }

    fn classes(&self) -> Vec<Arc<StorageClass>> {
        self.classes.all()
    }

    fn profile(&self, class: &str) -> Option<Arc<StorageProfile>> {
        let key = Key::new("", class);
        let found = self.profiles.get(&key);
        if found.as_ref().is_some_and(|profile| profile.status.is_some()) {
            return found;
        }
        // Its status is about to be written: what it will say is known.
        let class = self.classes.get(&key)?;
        let mut profile = found.map_or_else(|| installation::profile(&class), |profile| profile.as_ref().clone());
        profile.status = Some(installation::profile_status(&profile, &class));
        Some(Arc::new(profile))
    }

    fn overhead(&self) -> FilesystemOverhead {
        let config = self.configs.get(&Key::new("", CONFIG_NAME));
        let status = config.and_then(|config| config.status.clone());
        status.and_then(|status| status.filesystem_overhead).unwrap_or_default()
    }
}
