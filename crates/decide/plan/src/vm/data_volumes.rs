//! The DataVolumes of a VM's templates: each is created once, and waited for.

use std::collections::BTreeMap;

use api::cdi::{self, DataVolume, DataVolumePhase};
use api::v1::{ConditionStatus, DataVolumeTemplateSpec};
use api::{events, labels, reasons};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinery::field::Cause;

use super::action::{self, Action, Own};
use super::clone_source;
use super::world::World;
use crate::claims::phase;
use crate::object::Kind;
use crate::{Note, SyncError, meta};

/// The result of reconciling the templates in this pass.
#[derive(Default)]
pub(super) struct Provision {
    /// Creates missing DataVolumes.
    pub(super) actions: Vec<Action>,
    /// What the VM waits for, as a message.
    pub(super) waits: Option<String>,
    /// The same as an event, if it needs a user's action.
    pub(super) warning: Option<Action>,
    /// Why an existing DataVolume cannot be used, and the reason of its event.
    pub(super) refusal: Option<(SyncError, &'static str)>,
}

/// Creates missing DataVolumes and reports which ones are not ready.
pub(super) fn provide(w: &World) -> Result<Provision, SyncError> {
    let mut provision = Provision::default();
    for (index, template) in w.vm.spec.data_volume_templates.iter().enumerate() {
        let name = template.metadata.as_ref().map(meta::name).unwrap_or_default();
        let Some(found) = w.claims.data_volume(name) else {
            let field = format!("spec.dataVolumeTemplates[{index}].spec");
            provision.actions.extend(create(w, &field, name, template)?);
            provision.waits.get_or_insert_with(|| format!("DataVolume {name} does not exist yet"));
            continue;
        };
        if is_usable(found) {
            continue;
        }
        let words = waiting(found);
        if let Some(over) = over_quota(found) {
            let message = format!("DataVolume {name} does not fit into the namespace's quota: {over}");
            let error = SyncError::new(reasons::FAILED_CREATE, message);
            provision.refusal.get_or_insert((error, reasons::FAILED_DATA_VOLUME_IMPORT));
        } else if phase(found) == Some(&DataVolumePhase::Failed) && provision.waits.is_none() && !is_told(w, &words) {
            let note = Note::warning(reasons::FAILED_DATA_VOLUME_IMPORT, words.clone());
            provision.warning = Some(Action::Note(note));
        }
        provision.waits.get_or_insert(words);
    }
    Ok(provision)
}

/// Good enough to start: a VMI that waits for the content is itself the first consumer.
fn is_usable(dv: &DataVolume) -> bool {
    use DataVolumePhase::{PendingPopulation, Succeeded, WaitForFirstConsumer};
    matches!(phase(dv), Some(Succeeded | WaitForFirstConsumer | PendingPopulation))
}

/// The state of a DataVolume. Progress is left out, since it would cause constant status writes.
fn waiting(dv: &DataVolume) -> String {
    let name = meta::name(&dv.metadata);
    match phase(dv) {
        Some(DataVolumePhase::Failed) => {
            format!("DataVolume {name} has failed; see its events, and delete it to retry")
        }
        Some(phase) => match running_error(dv) {
            Some(why) => format!("DataVolume {name} is in phase {phase} and makes no progress: {why}"),
            None => format!("DataVolume {name} is in phase {phase}"),
        },
        None => format!("DataVolume {name} has no status yet; is the Containerized Data Importer running?"),
    }
}

/// The VM already shows this message.
fn is_told(w: &World, words: &str) -> bool {
    w.vm.condition(api::conditions::READY).is_some_and(|ready| ready.message().contains(words))
}

fn condition<'a>(dv: &'a DataVolume, type_: &str) -> Option<&'a cdi::Condition> {
    dv.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == type_)
}

/// The importer's message if it exceeds the quota. Its condition is not even False then.
fn over_quota(dv: &DataVolume) -> Option<&str> {
    let bound = condition(dv, cdi::CONDITION_BOUND).filter(|_| phase(dv) == Some(&DataVolumePhase::Pending))?;
    let over = bound.status != ConditionStatus::True && bound.reason.as_deref() == Some(cdi::REASON_EXCEEDED_QUOTA);
    over.then(|| bound.message.as_deref().unwrap_or("the importer gave no message"))
}

/// The importer's message about why the transfer stopped.
fn running_error(dv: &DataVolume) -> Option<&str> {
    let running = condition(dv, cdi::CONDITION_RUNNING).filter(|running| running.status == ConditionStatus::False)?;
    let reason = running.reason.as_deref()?;
    let stopped = [cdi::REASON_ERROR, cdi::REASON_IMAGE_PULL_FAILED].contains(&reason);
    stopped.then(|| running.message.as_deref().filter(|message| !message.is_empty()).unwrap_or(reason))
}

/// A volume's DataVolume has failed and needs a user's action.
pub(super) fn has_error(w: &World) -> bool {
    used(w).any(|dv| phase(dv) == Some(&DataVolumePhase::Failed) || running_error(dv).is_some())
}

/// A volume's DataVolume is being populated. One that only waits for a consumer does not count.
pub(super) fn is_provisioning(w: &World) -> bool {
    use DataVolumePhase::{PendingPopulation, Succeeded, WaitForFirstConsumer};
    let bound = |dv| condition(dv, cdi::CONDITION_BOUND).is_some_and(|bound| bound.status == ConditionStatus::True);
    let done = |dv| matches!(phase(dv), Some(Succeeded | PendingPopulation));
    used(w).any(|dv| !done(dv) && (bound(dv) || phase(dv) != Some(&WaitForFirstConsumer)))
}

fn used(w: &World) -> impl Iterator<Item = &DataVolume> {
    let volumes = w.vm.spec.template.spec.volumes.iter().filter_map(|volume| volume.source().data_volume());
    volumes.filter_map(|volume| w.claims.data_volume(&volume.name))
}

/// Adopts an ownerless DataVolume of ours.
pub(super) fn adopt(w: &World) -> Option<Action> {
    let templates = w.vm.spec.data_volume_templates.iter().filter_map(|template| template.metadata.as_ref());
    let mut found = templates.filter_map(|metadata| w.claims.data_volume(meta::name(metadata)));
    let orphan = found.find(|dv| meta::controller_of(&dv.metadata).is_none() && !meta::is_deleting(&dv.metadata))?;
    action::adopt(Kind::DataVolume, &orphan.metadata, &w.vm)
}

/// Whether the refusal to create a DataVolume, for causes with these reasons, only says that its claim exists: importers
/// too old to adopt a claim call it a duplicate. The disk has its content then.
pub fn is_populated_already<'a>(claim_exists: bool, mut causes: impl Iterator<Item = &'a str>) -> bool {
    claim_exists && causes.any(|reason| reason == Cause::Duplicate.as_str())
}

fn create(w: &World, field: &str, name: &str, template: &DataVolumeTemplateSpec) -> Result<Vec<Action>, SyncError> {
    let data_volume = manifest(w, field, template)?;
    let source = data_volume.spec.source.clone().unwrap_or_default();
    let mut actions = vec![];
    if let Some((namespace, claim)) = clone_source::missing_claim(w, &source) {
        let message = format!(
            "The claim {claim} in namespace {namespace} does not exist: DataVolume {name} stays empty until it does"
        );
        actions.push(Action::Note(Note::warning(events::SOURCE_PVC_NOT_AVAILABLE, message)));
    }
    let any_of = clone_source::questions(&w.vm, &source);
    let claim_exists = w.claims.claim(name).is_some();
    let created = Note::normal(events::SUCCESSFUL_DATA_VOLUME_CREATE, format!("Created DataVolume {name}"));
    let create = Own::CreateDataVolume { data_volume: Box::new(data_volume), claim_exists };
    let then = vec![Action::Own(create), Action::Note(created)];
    if any_of.is_empty() {
        actions.extend(then);
    } else {
        actions.push(Action::Own(Own::Authorize { name: name.to_owned(), any_of, then }));
    }
    Ok(actions)
}

fn manifest(w: &World, field: &str, template: &DataVolumeTemplateSpec) -> Result<DataVolume, SyncError> {
    let stamped = template.metadata.clone().unwrap_or_default();
    let with = |map: Option<BTreeMap<String, String>>, key: &str, value: &str| {
        let mut map = map.unwrap_or_default();
        map.insert(key.to_owned(), value.to_owned());
        Some(map)
    };
    let mut spec = template.spec.clone();
    if spec.priority_class_name.as_deref().unwrap_or_default().is_empty() {
        spec.priority_class_name = w.vm.spec.template.spec.priority_class_name.clone();
    }
    spec.source = clone_source::resolve(w, field, &spec)?;
    spec.source_ref = None;
    let metadata = ObjectMeta {
        name: stamped.name,
        namespace: w.vm.metadata.namespace.clone(),
        labels: with(stamped.labels, labels::CREATED_BY, meta::uid(&w.vm.metadata)),
        annotations: with(stamped.annotations, cdi::ALLOW_CLAIM_ADOPTION, "true"),
        owner_references: meta::controller_ref(w.vm.as_ref()).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    };
    Ok(DataVolume { metadata, spec, status: None })
}
