//! A guest as seen by controllers that create migrations on their own.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::v1::{
    MigrationPriority, VirtualMachineInstance, VirtualMachineInstanceMigration as Migration,
    VirtualMachineInstanceMigrationSpec,
};
use api::{finalizers, labels};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinery::names;

use crate::{meta, migration, pods};

/// A VMI with its Pods and migrations.
#[derive(Clone, Debug)]
pub struct Guest {
    pub vmi: Arc<VirtualMachineInstance>,
    /// Every Pod the VMI controls.
    pub pods: Vec<Arc<Pod>>,
    /// Every migration that names the VMI.
    pub migrations: Vec<Arc<Migration>>,
}

impl Guest {
    /// Its unfinished migrations.
    pub(crate) fn unfinished(&self) -> impl Iterator<Item = &Migration> {
        self.migrations.iter().map(AsRef::as_ref).filter(|migration| !migration.is_final())
    }

    pub(crate) fn active_pods(&self) -> usize {
        self.pods.iter().filter(|pod| !pods::is_down(pod)).count()
    }

    /// The Pod that the guest runs in.
    pub(crate) fn launcher(&self) -> Option<&Pod> {
        let node = self.vmi.status.as_ref()?.node_name.as_deref().filter(|node| !node.is_empty());
        pods::current(&self.pods, node).filter(|pod| !pods::is_temporary(pod))
    }

    /// Identifies the next attempt to migrate it: the VMI's UID and its last finished migration. As long as an attempt
    /// is not in the cache, the same value is derived again; once it has finished, the value changes.
    pub(crate) fn attempt(&self) -> String {
        let ended: Vec<_> = self.migrations.iter().filter(|migration| migration.is_final()).collect();
        // Timestamps have a resolution of one second: if two began in the same second, the one that ended later is the
        // later one.
        let age = |m: &&&Arc<Migration>| {
            (m.metadata.creation_timestamp.clone(), migration::ended(m), m.metadata.name.clone())
        };
        let after = |last: Option<&Arc<Migration>>| {
            let last = last.map(|migration| meta::uid(&migration.metadata)).unwrap_or_default();
            names::suffix(&format!("{}/{last}", meta::uid(&self.vmi.metadata)))
        };
        let mut attempt = after(ended.iter().max_by_key(age).copied());
        // Both may also end in the same second, if they are canceled at once. Then the name tells which came after which.
        for _ in 0..ended.len() {
            let made = |migration: &&&Arc<Migration>| meta::name(&migration.metadata).ends_with(&attempt);
            match ended.iter().find(made).copied() {
                Some(successor) => attempt = after(Some(successor)),
                None => break,
            }
        }
        attempt
    }

    /// The next migration of it. Its annotation names the controller that requested it.
    pub(crate) fn next_migration(
        &self,
        prefix: &str,
        (annotation, value): (&str, &str),
        priority: MigrationPriority,
    ) -> Migration {
        let name = meta::name(&self.vmi.metadata);
        Migration {
            metadata: ObjectMeta {
                name: Some(names::truncated_name(&format!("{prefix}-{name}"), &self.attempt(), names::LABEL_MAX)),
                namespace: self.vmi.metadata.namespace.clone(),
                // Lets others select it before the migration controller has reconciled it. Not every name is a valid
                // label value.
                labels: (name.len() <= names::LABEL_MAX)
                    .then(|| BTreeMap::from([(labels::VMI_NAME.to_owned(), name.to_owned())])),
                annotations: Some(BTreeMap::from([(annotation.to_owned(), value.to_owned())])),
                // Set by admission too, which may not be available yet when guests have to be migrated.
                finalizers: Some(vec![finalizers::MIGRATION.to_owned()]),
                ..ObjectMeta::default()
            },
            spec: VirtualMachineInstanceMigrationSpec {
                vmi_name: Some(name.to_owned()),
                priority: Some(priority),
                ..VirtualMachineInstanceMigrationSpec::default()
            },
            ..Migration::default()
        }
    }
}
