use std::time::Duration;

use api::config::ClusterConfig;
use api::v1::{
    KubeVirt, KubeVirtPhase, KubeVirtWorkloadUpdateStrategy as Strategy, MigrationPriority, VirtualMachineInstance,
    VirtualMachineInstanceMigration as Migration,
};
use api::{annotations, conditions, events, labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinery::names::{self, PodName};

use super::{Action, Guest, Own, World};
use crate::effect::{Part, Patch, Report, reference};
use crate::guard::Guarded;
use crate::object::Kind;
use crate::{Note, claims, eviction, flight, meta, migration, pods};

/// The prefix of these migrations' names.
const PREFIX: &str = "kubevirt-workload-update";
/// The requeue interval while there is something left to do.
const PERIOD: Duration = Duration::from_secs(30);
const DEFAULT_BATCH: usize = 10;
const DEFAULT_INTERVAL: Duration = Duration::from_secs(60);

/// Whether the updater has to consider the VMI, judging by its metadata and status; the VMI controller sets the label.
pub fn is_pending(vmi: &VirtualMachineInstance) -> bool {
    machinery::meta::label(&vmi.metadata, labels::OUTDATED_LAUNCHER_IMAGE).is_some() || is_changing(vmi)
}

/// Decides which guests are migrated, evicted, or left alone now.
pub fn decide(w: &World) -> Vec<Action> {
    if w.hold || !is_settled(&w.kubevirt) {
        return vec![];
    }
    if let Some(expires) = w.behind {
        return vec![Action::RequeueAfter(expires.min(PERIOD))]; // usually an event requeues us before that
    }
    let alive = |guest: &&Guest| guest.vmi.is_running() && !guest.vmi.is_marked_for_deletion();
    let alive: Vec<&Guest> = w.guests.iter().filter(alive).collect();
    let pending: Vec<&Guest> = alive.iter().copied().filter(|guest| wants_update(w, guest)).collect();
    let mut actions: Vec<Action> = alive.iter().flat_map(|guest| aborts(w, guest)).collect();
    let busy = !actions.is_empty() || !pending.is_empty();
    let methods = methods(&w.kubevirt);
    let free = pending.iter().copied().filter(|guest| is_free(w, guest));
    let (movable, rest): (Vec<_>, Vec<_>) = free.partition(|guest| methods.migrate && can_move(guest));
    let evictable = rest.into_iter().filter(|guest| methods.evict && can_be_evicted(guest, &w.config)).collect();
    actions.extend(moves(w, movable));
    let (evictions, next_batch) = batch(w, evictable);
    actions.extend(evictions);
    actions.extend(count(&w.kubevirt, pending.len()));
    if busy {
        actions.push(Action::RequeueAfter(next_batch.unwrap_or(PERIOD).clamp(Duration::from_secs(1), PERIOD)));
    }
    actions
}

/// The installation is complete and up to date: during an update, a controller of the previous version would take its
/// own image for the newest.
fn is_settled(kubevirt: &KubeVirt) -> bool {
    let Some(status) = &kubevirt.status else { return false };
    let deployed = status.phase == Some(KubeVirtPhase::Deployed) && !meta::is_deleting(&kubevirt.metadata);
    let id = |id: &Option<String>| id.clone().unwrap_or_default();
    deployed && id(&status.observed_deployment_id) == id(&status.target_deployment_id)
}

struct Methods {
    migrate: bool,
    evict: bool,
}

fn methods(kubevirt: &KubeVirt) -> Methods {
    let named = |method: &str| strategy(kubevirt).workload_update_methods.iter().any(|named| named == method);
    Methods { migrate: named("LiveMigrate"), evict: named("Evict") }
}

fn strategy(kubevirt: &KubeVirt) -> Strategy {
    kubevirt.spec.workload_update_strategy.clone().unwrap_or_default()
}

/// The launcher image of the guest, if known: right after a migration it has not been reported yet.
fn image(vmi: &VirtualMachineInstance) -> Option<&str> {
    vmi.status.as_ref()?.launcher_container_image_version.as_deref().filter(|image| !image.is_empty())
}

fn is_outdated(vmi: &VirtualMachineInstance, config: &ClusterConfig) -> bool {
    image(vmi).is_some_and(|image| image != config.launcher_image)
}

/// Whether there is a pending change that takes effect by migration.
fn is_changing(vmi: &VirtualMachineInstance) -> bool {
    vmi.condition(conditions::HOT_VCPU_CHANGE).is_some()
        || vmi.has_condition(conditions::HOT_MEMORY_CHANGE)
        || vmi.has_condition(conditions::MIGRATION_REQUIRED)
        || vmi.has_condition(conditions::VOLUMES_CHANGE)
}

fn is_called_off(vmi: &VirtualMachineInstance) -> bool {
    meta::annotation(&vmi.metadata, annotations::WORKLOAD_UPDATE_MIGRATION_ABORTION).is_some()
}

fn wants_update(w: &World, guest: &Guest) -> bool {
    let vmi = &guest.vmi;
    let by_moving = is_changing(vmi) && !is_called_off(vmi) && !flight::is_migrating(vmi, &w.now);
    is_outdated(vmi, &w.config) || by_moving
}

/// Whether nothing else is about to act on the guest.
fn is_free(w: &World, guest: &Guest) -> bool {
    let asked = guest.vmi.status.as_ref().and_then(|status| status.evacuation_node_name.as_deref());
    asked.is_none_or(str::is_empty) && !flight::is_migrating(&guest.vmi, &w.now) && guest.unfinished().next().is_none()
}

fn can_move(guest: &Guest) -> bool {
    guest.vmi.has_condition(conditions::LIVE_MIGRATABLE) || copies_its_volumes(&guest.vmi)
}

/// Volumes that are local to the node do not prevent a migration that copies all of them.
fn copies_its_volumes(vmi: &VirtualMachineInstance) -> bool {
    let Some(status) = vmi.status.as_ref().filter(|_| vmi.has_condition(conditions::VOLUMES_CHANGE)) else {
        return false;
    };
    let copied = |volume: &str| status.migrated_volumes.iter().any(|moved| moved.volume_name == volume);
    let shared = |volume: &str| {
        let claim = status.volume_status.iter().find(|one| one.name == volume);
        let claim = claim.and_then(|one| one.persistent_volume_claim_info.as_ref());
        claim.is_some_and(|claim| claim.access_modes.iter().any(|mode| mode == "ReadWriteMany"))
    };
    let mut on_claims = vmi.spec.volumes.iter().filter(|volume| claims::claim_name(volume).is_some());
    let refused = vmi.condition(conditions::STORAGE_LIVE_MIGRATABLE).is_some_and(|condition| condition.is_false());
    !status.migrated_volumes.is_empty() && !refused && on_claims.all(|v| copied(&v.name) || shared(&v.name))
}

/// Aborts our migrations that have become unnecessary because the change was reverted.
fn aborts(w: &World, guest: &Guest) -> Vec<Action> {
    let vmi = &guest.vmi;
    // As long as the launcher image is not reported, the launcher may be outdated.
    if image(vmi) != Some(w.config.launcher_image.as_str()) {
        return vec![];
    }
    let state = vmi.status.as_ref().and_then(|status| status.migration_state.as_ref());
    let arrived = |migration: &Migration| {
        migration::owns(migration, state)
            && state.is_some_and(|state| state.target_node_domain_ready_timestamp.is_some())
    };
    let pointless = |m: &&Migration| is_called_off(vmi) || !is_changing(vmi) && !arrived(m);
    let ours = guest.unfinished().filter(|m| is_ours(m) && !meta::is_deleting(&m.metadata));
    ours.filter(pointless).map(|migration| abort(vmi, migration)).collect()
}

fn is_ours(migration: &Migration) -> bool {
    meta::annotation(&migration.metadata, annotations::WORKLOAD_UPDATE_MIGRATION).is_some()
}

fn abort(vmi: &VirtualMachineInstance, migration: &Migration) -> Action {
    let name = meta::name(&migration.metadata);
    let message = format!("Aborted migration {name}: the change was reverted");
    let done = Note::normal(events::SUCCESSFUL_CHANGE_ABORTION, message);
    let delete = Action::Delete {
        kind: Kind::Migration,
        namespace: migration.metadata.namespace.clone(),
        name: name.to_owned(),
        uid: meta::uid(&migration.metadata).to_owned(),
        grace_seconds: None,
        why: "the change it was created for was reverted".into(),
    };
    delete.tell(report(vmi, done, events::FAILED_CHANGE_ABORTION, "abort the migration"))
}

/// As many migrations as the cluster has room for.
///
/// KubeVirt shuffles the guests, so that failing ones do not always come first. Here the order is derived from the UIDs
/// of the VMI and of its last migration: each attempt changes a guest's position, and the decision stays deterministic.
fn moves(w: &World, mut movable: Vec<&Guest>) -> Vec<Action> {
    let limit = w.config.migrations().parallel_migrations_per_cluster.unwrap_or_default() as usize;
    let running = w.unfinished.iter().filter(|migration| migration::is_running(migration)).count();
    movable.sort_by_cached_key(|guest| (guest.attempt(), guest.vmi.metadata.uid.clone()));
    movable.into_iter().take(limit.saturating_sub(running)).map(create).collect()
}

fn create(guest: &Guest) -> Action {
    let vmi = &guest.vmi;
    let (priority, why) = match is_changing(vmi) {
        true => (MigrationPriority::UserTriggered, "to a launcher that has its changes"),
        false => (MigrationPriority::SystemCritical, "to a newer launcher"),
    };
    let mut migration = guest.next_migration(PREFIX, (annotations::WORKLOAD_UPDATE_MIGRATION, ""), priority);
    if vmi.has_condition(conditions::VOLUMES_CHANGE) {
        let (name, uid) = (meta::name(&vmi.metadata), meta::uid(&vmi.metadata));
        let value = if name.len() > names::LABEL_MAX { uid } else { name };
        let all = migration.metadata.labels.get_or_insert_default();
        all.insert(labels::VOLUME_UPDATE_MIGRATION.to_owned(), value.to_owned());
    }
    let message = format!("Created migration {} to move the guest {why}", meta::name(&migration.metadata));
    let done = Note::normal(events::SUCCESSFUL_CREATE, message);
    let doing = "create a migration that updates the guest";
    Action::Migrate(Box::new(migration)).tell(report(vmi, done, events::FAILED_CREATE, doing))
}

fn report(vmi: &VirtualMachineInstance, done: Note, failed: &'static str, doing: &'static str) -> Report {
    Report { about: reference::<VirtualMachineInstance>(&vmi.metadata), done, failed, doing: doing.into(), go_on: true }
}

/// Whether there is a Pod to evict. If the guest must not be stopped and cannot migrate, every eviction would be
/// refused.
fn can_be_evicted(guest: &Guest, config: &ClusterConfig) -> bool {
    let stays = eviction::strategy(&guest.vmi, config) == "LiveMigrate"
        && !guest.vmi.has_condition(conditions::LIVE_MIGRATABLE);
    launcher(guest).is_some() && !stays
}

/// The Pod to evict, if it is not already terminating.
fn launcher(guest: &Guest) -> Option<&k8s_openapi::api::core::v1::Pod> {
    guest.launcher().filter(|pod| !pods::is_down_or_going_down(pod))
}

/// The evictions of this pass, and the time until the next batch.
///
/// The order is derived like that of migrations, with the time of the last batch in place of the last attempt, since a
/// refused eviction leaves no trace.
fn batch(w: &World, mut evictable: Vec<&Guest>) -> (Vec<Action>, Option<Duration>) {
    if evictable.is_empty() {
        return (vec![], None);
    }
    let (size, interval) = batches(&w.kubevirt);
    let since = elapsed(&w.last_batch, &w.now);
    if since < interval {
        return (vec![], Some(interval - since));
    }
    let rank = |guest: &&Guest| names::suffix(&format!("{}/{}", meta::uid(&guest.vmi.metadata), w.last_batch.0));
    evictable.sort_by_cached_key(|guest| (rank(guest), guest.vmi.metadata.uid.clone()));
    let left = evictable.len() > size;
    (evictable.into_iter().take(size).filter_map(evict).collect(), left.then_some(interval))
}

/// The batch size for evictions, and the interval between batches.
fn batches(kubevirt: &KubeVirt) -> (usize, Duration) {
    let strategy = strategy(kubevirt);
    let size = strategy.batch_eviction_size.map_or(DEFAULT_BATCH, |size| usize::try_from(size).unwrap_or(0));
    let interval = strategy.batch_eviction_interval.and_then(|text| text.parse::<machinery::duration::Duration>().ok());
    (size, interval.map_or(DEFAULT_INTERVAL, |interval| interval.to_std().unwrap_or_default()))
}

fn elapsed(since: &Time, now: &Time) -> Duration {
    Duration::try_from(now.0.duration_since(since.0)).unwrap_or_default()
}

fn evict(guest: &Guest) -> Option<Action> {
    let pod = launcher(guest)?;
    let name = meta::name(&pod.metadata);
    let message = format!("Evicted launcher Pod {name} to update its guest");
    let evict = Own::Evict {
        namespace: meta::namespace(&pod.metadata).to_owned(),
        pod: PodName::new(name),
        uid: meta::uid(&pod.metadata).to_owned(),
    };
    let done = Note::normal(events::SUCCESSFUL_EVICT, message);
    let doing = "evict the launcher Pod to update the guest";
    Some(Action::Own(evict).tell(report(&guest.vmi, done, events::FAILED_EVICT, doing)))
}

/// Reports the number of remaining VMIs in the KubeVirt object's status.
fn count(kubevirt: &KubeVirt, pending: usize) -> Option<Action> {
    let before = kubevirt.status.as_ref().and_then(|status| status.outdated_virtual_machine_instance_workloads);
    let path = ["status", "outdatedVirtualMachineInstanceWorkloads"];
    let after = i64::try_from(pending).ok();
    let patch = Guarded::new(&kubevirt.metadata).field(&path, &before, &after).build()?;
    Some(Action::Patch {
        kind: Kind::KubeVirt,
        namespace: None,
        name: meta::name(&kubevirt.metadata).to_owned(),
        part: Part::Status,
        patch: Patch::Json(patch),
        why: "the number of outdated instances has changed".into(),
    })
}
