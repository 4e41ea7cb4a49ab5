//! A guest as those see it who move guests on their own account.

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

/// An instance with what stands around it.
#[derive(Clone, Debug)]
pub struct Guest {
    pub vmi: Arc<VirtualMachineInstance>,
    /// Every Pod the instance controls.
    pub pods: Vec<Arc<Pod>>,
    /// Every migration that names the instance.
    pub migrations: Vec<Arc<Migration>>,
}

impl Guest {
    /// The migrations of it that have not ended.
    pub(crate) fn unfinished(&self) -> impl Iterator<Item = &Migration> {
        self.migrations.iter().map(AsRef::as_ref).filter(|migration| !migration::is_final(migration))
    }

    pub(crate) fn active_pods(&self) -> usize {
        self.pods.iter().filter(|pod| !pods::is_down(pod)).count()
    }

    /// The Pod that the guest is in.
    pub(crate) fn launcher(&self) -> Option<&Pod> {
        let node = self.vmi.status.as_ref()?.node_name.as_deref().filter(|node| !node.is_empty());
        pods::current(&self.pods, node).filter(|pod| !pods::is_temporary(pod))
    }

    /// What stands for the next attempt to move it: the instance, and the last migration of it that has ended. Whoever
    /// does not see an attempt yet derives the same once more; after its end it is another.
    pub(crate) fn attempt(&self) -> String {
        let ended = self.migrations.iter().filter(|migration| migration::is_final(migration));
        // Times are whole seconds; of two that began in the same one, the later to end was the later attempt.
        let age =
            |m: &&Arc<Migration>| (m.metadata.creation_timestamp.clone(), migration::ended(m), m.metadata.name.clone());
        let last = ended.max_by_key(age);
        let last = last.map(|migration| meta::uid(&migration.metadata)).unwrap_or_default();
        names::suffix(&format!("{}/{last}", meta::uid(&self.vmi.metadata)))
    }

    /// The migration that moves it next. Its annotation tells for whom.
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
                // By which others find it before the migration controller has looked at it. Not every name fits.
                labels: (name.len() <= names::LABEL_MAX)
                    .then(|| BTreeMap::from([(labels::VMI_NAME.to_owned(), name.to_owned())])),
                annotations: Some(BTreeMap::from([(annotation.to_owned(), value.to_owned())])),
                // As admission has it, which may not be there yet when guests have to move.
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
