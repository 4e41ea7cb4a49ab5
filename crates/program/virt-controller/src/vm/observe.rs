//! Gathers the input for a decision about a VM.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::cdi::DataSource;
use api::v1::VirtualMachine;
use informer::{Key, Store};
use k8s_openapi::Metadata;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use plan::claims::Claims;
use plan::object::Kind;
use plan::vm::{Live, Object, Place, Wanted, World, wanted};

use super::Vms;
use crate::controller::Cached;
use crate::owned::uid;
use crate::stores::BY_CONTROLLER;

impl Vms {
    pub(super) fn world(&self, key: &Key) -> Option<World> {
        let (stores, memory) = (&self.ctx.stores, &self.ctx.memory);
        let vm = stores.vms.get(key)?;
        let vmi = stores.vmis.get(key);
        let mut data_sources = BTreeMap::new();
        let mut wanted = wanted(&vm, vmi.as_deref(), &data_sources);
        while self.find_data_sources(&wanted, &mut data_sources) {
            wanted = plan::vm::wanted(&vm, vmi.as_deref(), &data_sources);
        }
        let exists = |place: &&Place| stores.claims.get(&Key::new(&place.0, &place.1)).is_some();
        let namespace = stores.namespaces.get(&Key::new("", &key.namespace));
        Some(World {
            vmi,
            revisions: self.revisions(key, &vm, &wanted),
            claims: self.claims(key, &wanted),
            copied_claims: wanted.copied_claims.iter().filter(exists).cloned().collect(),
            data_sources,
            instancetype: wanted.instancetype.as_ref().and_then(|object| {
                if object.cluster {
                    live("", object, &stores.cluster_instancetypes, |found| found.spec.clone())
                } else {
                    live(&key.namespace, object, &stores.instancetypes, |found| found.spec.clone())
                }
            }),
            preference: wanted.preference.as_ref().and_then(|object| {
                if object.cluster {
                    live("", object, &stores.cluster_preferences, |found| found.spec.clone())
                } else {
                    live(&key.namespace, object, &stores.preferences, |found| found.spec.clone())
                }
            }),
            namespace_labels: namespace.and_then(|namespace| namespace.metadata.labels.clone()).unwrap_or_default(),
            config: self.ctx.config.now(),
            settings: self.ctx.instances.clone(),
            behind: memory.written(Kind::Vm).behind(key, vm.metadata.resource_version.as_deref()),
            expects_instance: memory.expected(Kind::Vmi).open(key),
            expects_data_volumes: memory.expected(Kind::DataVolume).open(key),
            hold_starts: self.ctx.hold_starts,
            failed: None,
            now: self.ctx.clock.api_time(),
            vm,
        })
    }

    /// Looks up wanted DataSources that are not known yet. Returns whether there were any.
    fn find_data_sources(&self, wanted: &Wanted, known: &mut BTreeMap<Place, Arc<DataSource>>) -> bool {
        let before = known.len();
        for place in &wanted.data_sources {
            if !known.contains_key(place)
                && let Some(found) = self.ctx.stores.data_sources.get(&Key::new(&place.0, &place.1))
            {
                known.insert(place.clone(), found);
            }
        }
        known.len() > before
    }

    fn revisions(&self, key: &Key, vm: &VirtualMachine, wanted: &Wanted) -> Vec<Arc<ControllerRevision>> {
        let stores = &self.ctx.stores;
        let mut revisions = stores.revisions.by_index(BY_CONTROLLER, uid(&vm.metadata));
        for name in &wanted.revisions {
            if !revisions.iter().any(|revision| revision.metadata.name.as_ref() == Some(name)) {
                revisions.extend(stores.revisions.get(&Key::new(&key.namespace, name)));
            }
        }
        revisions
    }

    fn claims(&self, key: &Key, wanted: &Wanted) -> Claims {
        let stores = &self.ctx.stores;
        let mut found = Claims::default();
        for name in &wanted.claims {
            let of_name = Key::new(&key.namespace, name);
            if let Some(claim) = stores.claims.get(&of_name) {
                found.claims.insert(name.clone(), claim);
            }
            if let Some(data_volume) = stores.data_volumes.get(&of_name) {
                found.data_volumes.insert(name.clone(), data_volume);
            }
        }
        found
    }
}

/// The named object, if it exists.
fn live<K, T>(namespace: &str, object: &Object, store: &Store<K>, spec: impl Fn(&K) -> T) -> Option<Live<T>>
where
    K: Cached + Metadata<Ty = ObjectMeta>,
{
    let found = store.get(&Key::new(namespace, &object.name))?;
    Some(Live { kind: K::KIND.to_owned(), metadata: found.metadata().clone(), spec: spec(&found) })
}
