//! Lookups of other objects, answered from the world and recorded.

use std::cell::RefCell;

use api::instancetype::{VirtualMachineInstancetypeSpec, VirtualMachinePreferenceSpec};
use instancetype::{Objects, Scope, decode_instancetype, decode_preference};
use k8s_openapi::api::apps::v1::ControllerRevision;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{Wanted, World};

const INSTANCETYPE_GROUP: &str = "instancetype.kubevirt.io";

/// The world during one validation.
pub(super) struct Lookup<'a> {
    world: &'a World,
    asked: RefCell<Vec<Wanted>>,
}

impl<'a> Lookup<'a> {
    pub(super) fn new(world: &'a World) -> Self {
        Lookup { world, asked: RefCell::default() }
    }

    /// One object, if it is there and readable.
    pub(super) fn get<T: DeserializeOwned>(
        &self,
        group: &'static str,
        kind: &'static str,
        namespace: &str,
        name: &str,
    ) -> Option<T> {
        self.asked.borrow_mut().push(Wanted::one(group, kind, namespace, name));
        self.world.get(kind, namespace, name)
    }

    /// Every object that was looked up, without duplicates.
    pub(super) fn into_asked(self) -> Vec<Wanted> {
        let mut asked = self.asked.into_inner();
        asked.sort();
        asked.dedup();
        asked
    }
}

impl Objects for Lookup<'_> {
    fn revision(&self, namespace: &str, name: &str) -> Option<ControllerRevision> {
        self.get("apps", "ControllerRevision", namespace, name)
    }

    fn instancetype(&self, scope: Scope<'_>, name: &str) -> Option<VirtualMachineInstancetypeSpec> {
        let object: Value = match scope {
            Scope::Cluster => self.get(INSTANCETYPE_GROUP, "VirtualMachineClusterInstancetype", "", name),
            Scope::Namespace(namespace) => self.get(INSTANCETYPE_GROUP, "VirtualMachineInstancetype", namespace, name),
        }?;
        decode_instancetype(&object).ok()
    }

    fn preference(&self, scope: Scope<'_>, name: &str) -> Option<VirtualMachinePreferenceSpec> {
        let object: Value = match scope {
            Scope::Cluster => self.get(INSTANCETYPE_GROUP, "VirtualMachineClusterPreference", "", name),
            Scope::Namespace(namespace) => self.get(INSTANCETYPE_GROUP, "VirtualMachinePreference", namespace, name),
        }?;
        decode_preference(&object).ok()
    }
}
