//! Gathers the input for a decision about a VMI. Lookups that only some VMIs need are made only for those.

use std::sync::Arc;
use std::time::Duration;

use api::cdi::{CDIConfig, CONFIG_NAME, FilesystemOverhead};
use api::v1::{VirtualMachine, VirtualMachineInstance};
use informer::Key;
use k8s_openapi::Resource as _;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use machinery::meta::controller_of;
use plan::node::lowest_tsc_frequency;
use plan::object::Kind;
use plan::vmi::{Owner, Storage, World, vsock_cid};

use super::Vmis;
use crate::owned::uid;
use crate::stores::{BY_CONTROLLER, BY_INSTANCE, BY_NODE, BY_STATE, BY_VSOCK, state_of};
use crate::volumes;

/// Maximum clock skew between us and the API server.
const CLOCKS_DIFFER: Duration = Duration::from_secs(10);

impl Vmis {
    pub(super) fn world(&self, key: &Key) -> Option<World> {
        let stores = &self.ctx.stores;
        let vmi = stores.vmis.get(key)?;
        let config = self.ctx.config.now();
        let pods = stores.pods.by_index(BY_CONTROLLER, uid(&vmi.metadata));
        let memory = &self.ctx.memory;
        let unseen = memory.written(Kind::Vmi).behind(key, vmi.metadata.resource_version.as_deref());
        let (of_pods, of_claims) = (memory.expected(Kind::Pod).open(key), memory.expected(Kind::Claim).open(key));
        let expected = [of_pods, of_claims, self.unseen_pod(key, &pods)].into_iter().flatten();
        let claims = volumes::claims_of(stores, &vmi);
        let state_claims = stores.claims.by_index(BY_STATE, &state_of(&key.namespace, &key.name));
        let uses_storage = !claims.claims.is_empty() || plan::vmi::keeps_state(&vmi);
        let mut world = World {
            helpers: pods.iter().flat_map(|pod: &Arc<Pod>| self.helpers_of(pod)).collect(),
            pods,
            owner: self.owner(&vmi),
            state_claims: self.with_legacy(key, state_claims),
            storage: if uses_storage { self.storage() } else { Storage::default() },
            claims,
            migrations: stores.migrations.by_index(BY_INSTANCE, &key.to_string()),
            launched: self.has_launched(key, &vmi),
            inherited: self.is_inherited(&vmi),
            settings: self.settings.clone(),
            behind: unseen.into_iter().chain(expected).max(),
            ..World::new(vmi, config, self.ctx.clock.api_time())
        };
        if !world.vmi.is_final() {
            self.surroundings(key, &mut world);
        }
        Some(world)
    }

    /// How long to wait at most until the cache shows our last write to a Pod. Without Pods there is nothing to wait
    /// for.
    fn unseen_pod(&self, key: &Key, pods: &[Arc<Pod>]) -> Option<Duration> {
        let writes = self.ctx.memory.written(Kind::Pod);
        let number = |pod: &&Arc<Pod>| pod.metadata.resource_version.as_ref().and_then(|text| text.parse::<u64>().ok());
        let Some(newest) = pods.iter().max_by_key(number) else {
            writes.forget(key);
            return None;
        };
        writes.behind(key, newest.metadata.resource_version.as_deref())
    }

    /// What is needed to render Pods.
    fn surroundings(&self, key: &Key, world: &mut World) {
        let stores = &self.ctx.stores;
        world.namespace = stores.namespaces.get(&Key::new("", &key.namespace));
        world.quotas = stores.quotas.in_namespace(&key.namespace);
        if plan::vmi::awaits_hints(world) {
            let runs_vmis = |node: &str| !stores.vmis.keys_by_index(BY_NODE, node).is_empty();
            let lowest = lowest_tsc_frequency(&stores.nodes.all(), runs_vmis, &world.config);
            world.lowest_tsc = lowest.map_err(|error| error.to_string());
        }
        if world.vmi.spec.domain.devices.autoattach_vsock == Some(true) {
            let taken =
                |cid: u32| stores.vmis.keys_by_index(BY_VSOCK, &cid.to_string()).iter().any(|other| other != key);
            world.vsock_cid = vsock_cid(uid(&world.vmi.metadata), taken);
        }
    }

    fn helpers_of(&self, pod: &Pod) -> Vec<Arc<Pod>> {
        self.ctx.stores.pods.by_index(BY_CONTROLLER, uid(&pod.metadata))
    }

    fn owner(&self, vmi: &VirtualMachineInstance) -> Owner {
        let controller = controller_of(&vmi.metadata).filter(|owner| owner.kind == VirtualMachine::KIND);
        let Some(owner) = controller else { return Owner::Nobody };
        let key = Key::new(vmi.metadata.namespace.clone().unwrap_or_default(), &owner.name);
        let vm = self.ctx.stores.vms.get(&key).filter(|vm| vm.metadata.uid.as_ref() == Some(&owner.uid));
        if vm.is_some() { Owner::Alive } else { Owner::Gone }
    }

    /// Whether this process has created a launcher Pod that the VMI does not show yet. Forgotten once it does.
    fn has_launched(&self, key: &Key, vmi: &VirtualMachineInstance) -> bool {
        let mut launched = self.launched();
        let same = launched.get(key).is_some_and(|made_for| made_for == uid(&vmi.metadata));
        if !same || !vmi.is_unprocessed() {
            launched.remove(key);
        }
        same && vmi.is_unprocessed()
    }

    /// Whether another process may have reconciled the VMI before.
    fn is_inherited(&self, vmi: &VirtualMachineInstance) -> bool {
        vmi.metadata.creation_timestamp.as_ref().is_none_or(|created| created.0 <= self.since.0 + CLOCKS_DIFFER)
    }

    /// Adds legacy backend-storage claims, which were known by name only.
    fn with_legacy(&self, key: &Key, mut claims: Vec<Arc<PersistentVolumeClaim>>) -> Vec<Arc<PersistentVolumeClaim>> {
        let name = format!("{}-{}", api::labels::PERSISTENT_STATE_FOR, key.name);
        if !claims.iter().any(|claim| claim.metadata.name.as_ref() == Some(&name)) {
            claims.extend(self.ctx.stores.claims.get(&Key::new(&key.namespace, &name)));
        }
        claims
    }

    fn storage(&self) -> Storage {
        let stores = &self.ctx.stores;
        let profiles = stores.storage_profiles.all();
        let by_name = profiles.into_iter().map(|profile| (profile.metadata.name.clone().unwrap_or_default(), profile));
        Storage { classes: stores.storage_classes.all(), profiles: by_name.collect(), overhead: self.overhead() }
    }

    /// CDI's filesystem overhead; none if there is not exactly one CDI.
    fn overhead(&self) -> Option<FilesystemOverhead> {
        let stores = &self.ctx.stores;
        let config: Arc<CDIConfig> = stores.cdi_configs.get(&Key::new("", CONFIG_NAME))?;
        let status = config.status.as_ref().filter(|_| stores.cdis.len() == 1)?;
        status.filesystem_overhead.clone()
    }
}
