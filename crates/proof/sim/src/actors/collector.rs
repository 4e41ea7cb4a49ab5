//! The garbage collector: deletes or orphans dependents.

use std::sync::Arc;

use kube::Resource;
use machinery::meta::{has_finalizer, is_deleting, remove_finalizer};
use virt_controller::api::Part;

use crate::engine::Sim;
use crate::hub::lock;
use crate::kinds::{key, uid};
use crate::server::{Propagation, Server, Writer};

const BY: Writer = Writer::GarbageCollector;

impl Sim {
    /// Checks all dependents once.
    pub(super) fn collect(&mut self) {
        let server = &mut lock(&self.hub).server;
        let leaving: Vec<_> = server
            .tables
            .vms
            .all()
            .filter(|vm| is_deleting(&vm.metadata) && has_finalizer(&vm.metadata, api::finalizers::ORPHAN))
            .cloned()
            .collect();
        for vm in leaving {
            orphan(server, uid(&vm.metadata));
            let mut vm = (*vm).clone();
            remove_finalizer(&mut vm.metadata, api::finalizers::ORPHAN);
            server.update(BY, Part::Object, vm).expect("written right after it was read");
        }
        sweep::<api::v1::VirtualMachineInstance>(server);
        sweep::<api::cdi::DataVolume>(server);
        sweep::<k8s_openapi::api::core::v1::Pod>(server);
        sweep::<k8s_openapi::api::core::v1::PersistentVolumeClaim>(server);
        sweep::<k8s_openapi::api::apps::v1::ControllerRevision>(server);
        sweep::<k8s_openapi::api::batch::v1::Job>(server);
    }
}

fn all<K: 'static>(server: &Server) -> Vec<Arc<K>> {
    server.tables.of::<K>().into_iter().flat_map(|table| table.all()).cloned().collect()
}

fn sweep<K: Resource<DynamicType = ()> + Clone + 'static>(server: &mut Server) {
    for object in all::<K>(server) {
        let Some(owners) = &object.meta().owner_references else { continue };
        if owners.iter().any(|owner| server.exists(&owner.uid)) || is_deleting(object.meta()) {
            continue;
        }
        let deleted =
            server.delete::<K>(BY, &key(object.meta()), Some(uid(object.meta())), None, Propagation::Background);
        deleted.expect("it was listed just now");
    }
}

/// Removes this owner from all of its dependents.
fn orphan(server: &mut Server, owner: &str) {
    release::<api::v1::VirtualMachineInstance>(server, owner);
    release::<api::cdi::DataVolume>(server, owner);
    release::<k8s_openapi::api::core::v1::PersistentVolumeClaim>(server, owner);
    release::<k8s_openapi::api::apps::v1::ControllerRevision>(server, owner);
}

fn release<K: Resource<DynamicType = ()> + Clone + 'static>(server: &mut Server, owner: &str) {
    for object in all::<K>(server) {
        let owned = object.meta().owner_references.iter().flatten().any(|reference| reference.uid == owner);
        if owned {
            let mut object = (*object).clone();
            if let Some(owners) = &mut object.meta_mut().owner_references {
                owners.retain(|reference| reference.uid != owner);
            }
            server.update(BY, Part::Object, object).expect("written right after it was read");
        }
    }
}
