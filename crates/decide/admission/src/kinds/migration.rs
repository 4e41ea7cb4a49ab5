//! Migrations of running guests.

use api::conditions::LIVE_MIGRATABLE;
use api::v1::{VirtualMachineInstance, VirtualMachineInstanceMigration};
use api::{finalizers, labels, v1};
use k8s_openapi::Resource;
use machinery::field::{Cause, FieldError, FieldPath};
use machinery::meta::{add_finalizer, label};
use serde_json::Value;

use super::{Case, Found, namespace, text};
use crate::decode::encode;
use crate::{Refusal, Wanted, accounts, unsupported};

/// The reason of a VMI that cannot migrate within its cluster, but can be sent elsewhere with its disks.
const DISKS_NOT_LIVE_MIGRATABLE: &str = "DisksNotLiveMigratable";

/// The prefix of receivers' addresses; the namespace follows.
const THIS_CLUSTER: &str = "this-cluster/";

/// The VMI, and the other migrations.
pub(super) fn wanted(object: &Value) -> Vec<Wanted> {
    let namespace = text(object, "/metadata/namespace");
    vec![wanted_instance(namespace, text(object, "/spec/vmiName")), wanted_migrations(namespace)]
}

fn wanted_instance(namespace: &str, name: &str) -> Wanted {
    Wanted::one(v1::GROUP, VirtualMachineInstance::KIND, namespace, name)
}

fn wanted_migrations(namespace: &str) -> Wanted {
    Wanted::all(v1::GROUP, VirtualMachineInstanceMigration::KIND, namespace)
}

pub(super) fn rules(
    case: &Case<'_>,
    migration: &mut VirtualMachineInstanceMigration,
    old: Option<&VirtualMachineInstanceMigration>,
) -> Result<Found, Refusal> {
    match old {
        Some(old) => Ok(update(migration, old).into()),
        None => {
            let causes = create(case, migration)?;
            let unsupported = unsupported::migration_spec(&FieldPath::new("spec"), &encode(&migration.spec));
            Ok(Found { causes, unsupported, ..Found::default() })
        }
    }
}

/// Stops at the first error: further ones could be about a VMI that is not the intended one.
fn create(case: &Case<'_>, migration: &mut VirtualMachineInstanceMigration) -> Result<Vec<FieldError>, Refusal> {
    let name = migration.spec.vmi_name.clone().unwrap_or_default();
    migration.metadata.labels.get_or_insert_default().insert(labels::VMI_NAME.to_owned(), name.clone());
    add_finalizer(&mut migration.metadata, finalizers::MIGRATION);
    let spec = FieldPath::new("spec");
    if name.is_empty() {
        return Ok(vec![FieldError::required(spec.child("vmiName"), "the instance to migrate has to be named")]);
    }
    if migration.spec.priority.is_some() && !accounts::is_controller(case.review.user, case.config) {
        // Clients know the field of the error under this name, although the spec calls it priority.
        let field = spec.child("migrationPriority");
        return Ok(vec![FieldError::forbidden(field, "only virt-controller may set the priority of a migration")]);
    }
    can_move(case, migration, &name)?;
    none_under_way(case, namespace(&migration.metadata), &name)?;
    Ok(decentralized(case, migration).into_iter().collect())
}

/// Whether the VMI exists, runs, and is not known to be non-migratable. A VMI without that condition is accepted; the
/// migration waits for it.
fn can_move(case: &Case<'_>, migration: &VirtualMachineInstanceMigration, name: &str) -> Result<(), Refusal> {
    let namespace = namespace(&migration.metadata);
    if !case.world.knows(&wanted_instance(namespace, name)) {
        return Ok(());
    }
    let refuse = |message: String| Err(Refusal::BadRequest(message));
    let Some(vmi) = case.world.get::<VirtualMachineInstance>(VirtualMachineInstance::KIND, namespace, name) else {
        return refuse(format!("the VMI \"{namespace}/{name}\" does not exist"));
    };
    if vmi.is_final() {
        return refuse(format!("Cannot migrate VMI {name} in finalized state: its guest has ended"));
    }
    let status = vmi.status.unwrap_or_default();
    let elsewhere = migration.spec.send_to.is_some() || migration.spec.receive.is_some();
    let unfit = status.conditions.iter().find(|condition| {
        let tolerated = elsewhere && condition.reason() == DISKS_NOT_LIVE_MIGRATABLE;
        condition.type_ == LIVE_MIGRATABLE && condition.is_false() && !tolerated
    });
    match unfit {
        Some(why) => refuse(format!("Cannot migrate VMI, Reason: {}, Message: {}", why.reason(), why.message())),
        None => Ok(()),
    }
}

fn none_under_way(case: &Case<'_>, namespace: &str, name: &str) -> Result<(), Refusal> {
    let others = case.world.all::<VirtualMachineInstanceMigration>(VirtualMachineInstanceMigration::KIND, namespace);
    let of_instance = |other: &&VirtualMachineInstanceMigration| label(&other.metadata, labels::VMI_NAME) == Some(name);
    match others.iter().filter(of_instance).find(|other| !other.is_final()) {
        Some(other) => {
            let other = other.metadata.name.as_deref().unwrap_or_default();
            Err(Refusal::BadRequest(format!("in-flight migration detected: {other} is moving VMI {name} already")))
        }
        None => Ok(()),
    }
}

/// A decentralized migration consists of two objects with the same ID.
fn decentralized(case: &Case<'_>, migration: &VirtualMachineInstanceMigration) -> Option<FieldError> {
    let spec = FieldPath::new("spec");
    let (send, receive) = (migration.spec.send_to.as_ref(), migration.spec.receive.as_ref());
    if send.is_none() && receive.is_none() {
        return None;
    }
    if !case.config.feature_gate("DecentralizedLiveMigration") {
        let field = spec.child(if send.is_some() { "sendTo" } else { "receive" });
        let message = "DecentralizedLiveMigration feature gate is not enabled";
        return Some(FieldError::new(Cause::NotSupported, field, message));
    }
    if let (Some(send), Some(receive)) = (send, receive) {
        let ids = (send.migration_id.as_str(), receive.migration_id.as_str());
        if ids.0 != ids.1 {
            let detail = format!("differs from {:?}, the migrationID of receive", ids.1);
            return Some(FieldError::invalid(spec.child("sendTo").child("migrationID"), ids.0, detail));
        }
        // KubeVirt would treat it as a local migration, which is not what its owner means.
        let detail = "one migration cannot send and receive: make one of each, and set only one of the two";
        return Some(FieldError::forbidden(spec.child("receive"), detail));
    }
    let (field, id) = match (send, receive) {
        (Some(send), _) => (spec.child("sendTo"), &send.migration_id),
        (_, Some(receive)) => (spec.child("receive"), &receive.migration_id),
        _ => return None,
    };
    if id.is_empty() {
        let detail = "the two sides find each other by it; choose one that nobody else uses";
        return Some(FieldError::required(field.child("migrationID"), detail));
    }
    let url = send.map(|send| send.connect_url.as_str())?;
    let known =
        url.strip_prefix(THIS_CLUSTER).is_some_and(|namespace| !namespace.is_empty() && !namespace.contains('/'));
    let detail = "guests are sent only within this cluster: it has to be this-cluster/NAMESPACE with the namespace of the \
                  receiving migration, as that says in status.synchronizationAddresses";
    (!known).then(|| FieldError::invalid(field.child("connectURL"), url, detail))
}

fn update(migration: &VirtualMachineInstanceMigration, old: &VirtualMachineInstanceMigration) -> Vec<FieldError> {
    if migration.spec != old.spec {
        let message = "update of Migration object's spec is restricted: create another migration";
        return vec![FieldError::new(Cause::NotSupported, FieldPath::new("spec"), message)];
    }
    let before = label(&old.metadata, labels::VMI_NAME);
    if before.is_some() && before != label(&migration.metadata, labels::VMI_NAME) && !old.is_final() {
        let field = FieldPath::new("metadata.labels").key(labels::VMI_NAME);
        let message = "the label cannot be changed or removed while the migration is in progress";
        return vec![FieldError::new(Cause::NotSupported, field, message)];
    }
    Vec::new()
}
