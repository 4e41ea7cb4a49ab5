//! The objects that an upload makes, and what it has to know of those that exist.

use std::collections::BTreeMap;

use api::cdi::{self, DataVolume, DataVolumePhase};
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim};
use machinery::meta;
use machinery::quantity::Quantity;
use serde_json::{Map, Value, json};

use super::args::{ImageUploadArgs, Plan};

pub(crate) const UPLOAD_TARGET: &str = "cdi.kubevirt.io/storage.upload.target";
const POD_PHASE: &str = "cdi.kubevirt.io/storage.pod.phase";
const POD_READY: &str = "cdi.kubevirt.io/storage.pod.ready";
const ARCHIVE: &str = "archive";

/// The labels that flags ask for.
pub(crate) fn labels(args: &ImageUploadArgs) -> BTreeMap<&'static str, String> {
    let pairs = [
        ("instancetype.kubevirt.io/default-instancetype", &args.default_instancetype),
        ("instancetype.kubevirt.io/default-instancetype-kind", &args.default_instancetype_kind),
        ("instancetype.kubevirt.io/default-preference", &args.default_preference),
        ("instancetype.kubevirt.io/default-preference-kind", &args.default_preference_kind),
    ];
    pairs.into_iter().filter_map(|(key, value)| Some((key, value.clone()?))).collect()
}

/// What the volume is to be like, as far as flags say it.
fn storage(args: &ImageUploadArgs, plan: &Plan) -> anyhow::Result<Map<String, Value>> {
    let size = plan
        .size
        .as_deref()
        .ok_or_else(|| anyhow::anyhow!("{} does not exist; say with --size how large it is to be made", plan.name))?;
    let parsed = size.parse::<Quantity>();
    parsed.map_err(|error| anyhow::anyhow!("--size: {error}"))?;
    let mut spec = Map::new();
    spec.insert("resources".into(), json!({"requests": {"storage": size}}));
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            spec.insert(key.into(), value);
        }
    };
    set("storageClassName", args.storage_class.as_ref().map(|class| json!(class)));
    set("accessModes", args.access_mode.as_ref().map(|mode| json!([mode])));
    set("volumeMode", plan.volume_mode.map(|mode| json!(mode.as_str())));
    Ok(spec)
}

fn content_type(plan: &Plan) -> &'static str {
    if plan.archive { ARCHIVE } else { "kubevirt" }
}

/// The DataVolume to create.
pub(crate) fn data_volume(args: &ImageUploadArgs, plan: &Plan) -> anyhow::Result<Value> {
    let mut annotations = BTreeMap::new();
    if args.force_bind {
        annotations.insert(cdi::IMMEDIATE_BINDING, "");
    }
    Ok(json!({
        "metadata": {"name": plan.name, "annotations": annotations, "labels": labels(args)},
        "spec": {
            "source": {"upload": {}},
            "contentType": content_type(plan),
            "storage": storage(args, plan)?,
        },
    }))
}

/// The claim to create.
pub(crate) fn claim(args: &ImageUploadArgs, plan: &Plan) -> anyhow::Result<Value> {
    let mut annotations = BTreeMap::from([(UPLOAD_TARGET, ""), (cdi::CONTENT_TYPE, content_type(plan))]);
    if args.force_bind {
        annotations.insert(cdi::IMMEDIATE_BINDING, "");
    }
    let mut labels = labels(args);
    labels.insert(cdi::APPLY_STORAGE_PROFILE, "true".to_owned());
    let mut spec = storage(args, plan)?;
    spec.entry("accessModes").or_insert_with(|| json!(["ReadWriteOnce"]));
    Ok(json!({"metadata": {"name": plan.name, "annotations": annotations, "labels": labels}, "spec": spec}))
}

fn noted<'a>(claim: &'a PersistentVolumeClaim, key: &str) -> Option<&'a str> {
    meta::annotation(&claim.metadata, key)
}

/// Why the content of a claim that exists cannot be uploaded.
pub(crate) fn obstacle(claim: &PersistentVolumeClaim, plan: &Plan, no_create: bool) -> Option<String> {
    let name = &plan.name;
    if is_filled(claim) {
        return Some(format!("PVC {name} already successfully imported/cloned/updated; upload to another name"));
    }
    if !no_create && noted(claim, UPLOAD_TARGET).is_none() {
        return Some(format!("PVC {name} not available for upload; --no-create uploads to it all the same"));
    }
    if plan.archive && noted(claim, cdi::CONTENT_TYPE) != Some(ARCHIVE) {
        return Some(format!("PVC {name} doesn't have archive contentType annotation; it takes disk images only"));
    }
    None
}

/// Whether an upload to a claim can begin.
pub(crate) fn is_ready(claim: &PersistentVolumeClaim) -> bool {
    noted(claim, POD_READY) == Some("true")
}

/// Whether the content has arrived and was processed.
pub(crate) fn is_filled(claim: &PersistentVolumeClaim) -> bool {
    noted(claim, POD_PHASE) == Some("Succeeded")
}

/// Where a DataVolume stands.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Stand {
    Ready,
    NotYet,
    /// It will not become ready by itself.
    Stuck(String),
}

/// Whether an upload to a DataVolume can begin.
pub(crate) fn stand(dv: &DataVolume, force_bind: bool) -> Stand {
    use DataVolumePhase::{Failed, PendingPopulation, UploadReady, WaitForFirstConsumer};
    let status = dv.status.clone().unwrap_or_default();
    match status.phase {
        Some(UploadReady) => Stand::Ready,
        Some(phase @ (WaitForFirstConsumer | PendingPopulation)) if !force_bind => Stand::Stuck(format!(
            "cannot upload to DataVolume in {phase} phase, make sure the PVC is Bound, or use force-bind flag",
        )),
        Some(Failed) => {
            let mut said = status.conditions.iter().filter_map(|condition| condition.message.clone());
            let said = said.rfind(|message| !message.is_empty()).unwrap_or_default();
            Stand::Stuck(format!("DataVolume {} has failed: {said}", dv.metadata.name.as_deref().unwrap_or_default()))
        }
        _ => Stand::NotYet,
    }
}

/// What an event says that makes waiting pointless.
pub(crate) fn bad_news(events: &[Event], uids: &[&str]) -> Option<String> {
    let about = |event: &&Event| event.involved_object.uid.as_deref().is_some_and(|uid| uids.contains(&uid));
    events.iter().filter(about).find_map(|event| {
        let message = event.message.as_deref().unwrap_or_default();
        match event.reason.as_deref() {
            // A conflict is tried again.
            Some("ProvisioningFailed") if !message.contains("the object has been modified") => {
                Some(format!("Provisioning failed: {message}"))
            }
            Some("ErrClaimNotValid") => Some(format!("Claim not valid: {message}")),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use serde::de::DeserializeOwned;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: ImageUploadArgs,
    }

    fn args(line: &str) -> (ImageUploadArgs, Plan) {
        let cli = Cli::parse_from(std::iter::once("x").chain(line.split_whitespace()));
        let plan = cli.args.plan().unwrap();
        (cli.args, plan)
    }

    fn of<T: DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn objects_say_what_the_flags_say() {
        let (flags, plan) = args(
            "dv disk --size 1Gi --image-path a --force-bind --storage-class local --access-mode ReadWriteMany \
             --volume-mode block --default-preference linux",
        );
        let expected = json!({
            "metadata": {"name": "disk", "annotations": {"cdi.kubevirt.io/storage.bind.immediate.requested": ""},
                         "labels": {"instancetype.kubevirt.io/default-preference": "linux"}},
            "spec": {"source": {"upload": {}}, "contentType": "kubevirt", "storage": {
                "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "local",
                "accessModes": ["ReadWriteMany"], "volumeMode": "Block"}},
        });
        assert_eq!(data_volume(&flags, &plan).unwrap(), expected);
        let (flags, plan) = args("pvc tree --size 1Gi --archive-path a.tar");
        let made = claim(&flags, &plan).unwrap();
        assert_eq!(made["metadata"]["annotations"], json!({UPLOAD_TARGET: "", cdi::CONTENT_TYPE: "archive"}));
        assert_eq!(made["spec"]["accessModes"], json!(["ReadWriteOnce"]));
        let (flags, plan) = args("dv disk --image-path a");
        assert!(data_volume(&flags, &plan).unwrap_err().to_string().contains("--size"));
        let (flags, plan) = args("dv disk --image-path a --size big");
        assert!(data_volume(&flags, &plan).unwrap_err().to_string().contains("--size"));
    }

    #[test]
    fn only_an_empty_upload_target_is_uploaded_to() {
        let (_, plan) = args("pvc disk --image-path a");
        let (_, archive) = args("pvc disk --archive-path a");
        let claim = |annotations: Value| of::<PersistentVolumeClaim>(json!({"metadata": {"annotations": annotations}}));
        let target = claim(json!({UPLOAD_TARGET: ""}));
        assert_eq!(obstacle(&target, &plan, false), None);
        assert_eq!(obstacle(&claim(json!({})), &plan, true), None);
        for (claim, plan, word) in [
            (claim(json!({})), &plan, "not available"),
            (claim(json!({UPLOAD_TARGET: "", POD_PHASE: "Succeeded"})), &plan, "already successfully"),
            (target, &archive, "archive contentType"),
        ] {
            assert!(obstacle(&claim, plan, false).unwrap().contains(word), "{word}");
        }
    }

    #[test]
    fn a_data_volume_is_waited_for_unless_that_is_pointless() {
        let dv = |phase: &str| {
            of::<DataVolume>(json!({"metadata": {"name": "d"}, "spec": {}, "status": {"phase": phase,
            "conditions": [{"type": "Running", "status": "False", "message": "no"}]}}))
        };
        assert_eq!(stand(&dv("UploadReady"), false), Stand::Ready);
        assert_eq!(stand(&dv("UploadScheduled"), false), Stand::NotYet);
        assert_eq!(stand(&dv("WaitForFirstConsumer"), true), Stand::NotYet);
        assert!(matches!(stand(&dv("WaitForFirstConsumer"), false), Stand::Stuck(why) if why.contains("force-bind")));
        assert!(matches!(stand(&dv("Failed"), true), Stand::Stuck(why) if why.ends_with(": no")));
    }

    #[test]
    fn bad_news_about_our_objects_end_the_wait() {
        let event = |uid: &str, reason: &str, message: &str| {
            of::<Event>(json!({"metadata": {}, "involvedObject": {"uid": uid}, "reason": reason, "message": message}))
        };
        let events = [
            event("other", "ProvisioningFailed", "no room"),
            event("mine", "ProvisioningFailed", "x: the object has been modified; try again"),
            event("mine", "Provisioning", "working"),
        ];
        assert_eq!(bad_news(&events, &["mine"]), None);
        assert_eq!(bad_news(&events, &["other"]).as_deref(), Some("Provisioning failed: no room"));
    }
}
