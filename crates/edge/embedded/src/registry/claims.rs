//! What Kubernetes' admission plugins do about claims: `DefaultStorageClass` and `PersistentVolumeClaimResize`.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;
use machinery::quantity::Quantity;
use serde_json::{Value, json};

use super::{Part, Registry};
use crate::errors::ApiError;
use crate::kinds::{KindId, at, text_at};

const SIZE: &str = "spec.resources.requests.storage";

impl Registry {
    fn is_claim(&self, kind: KindId) -> bool {
        self.kinds.find("", "persistentvolumeclaims") == Some(kind)
    }

    fn classes(&self) -> Vec<StorageClass> {
        let kind = self.kinds.find("storage.k8s.io", "storageclasses");
        kind.map(|kind| self.objects(kind, "")).unwrap_or_default()
    }

    /// A new claim that names no class, not even the empty one, gets the default class.
    pub(super) fn fill_in_class(&self, kind: KindId, claim: &mut Value) {
        const OLD: &str = "volume.beta.kubernetes.io/storage-class";
        let named = claim["spec"].get("storageClassName").is_some_and(|class| !class.is_null());
        if !self.is_claim(kind) || named || claim["metadata"]["annotations"].get(OLD).is_some() {
            return;
        }
        let classes = self.classes();
        if let Some(class) = claims::default_class(&classes) {
            claim["spec"]["storageClassName"] = json!(class.metadata.name);
        }
    }

    /// Whether an update lets a claim ask for more.
    pub(super) fn grows(&self, kind: KindId, part: Part, claim: &Value, old: &Value) -> bool {
        let size = |claim| at(claim, SIZE).as_str().unwrap_or_default().parse::<Quantity>().unwrap_or(Quantity::ZERO);
        part == Part::Main && self.is_claim(kind) && size(claim) > size(old)
    }

    /// A claim grows only if its class can grow volumes.
    pub(super) fn check_growth(&self, kind: KindId, part: Part, claim: &Value, old: &Value) -> Result<(), ApiError> {
        if !self.grows(kind, part, claim, old) {
            return Ok(());
        }
        let (name, definition) = (text_at(claim, "metadata.name"), self.kinds.definition(kind));
        let refuse = |why: &str| Err(ApiError::forbidden(definition, name, why.to_owned()));
        if text_at(old, "status.phase") != "Bound" {
            return refuse("Only bound persistent volume claims can be expanded");
        }
        let parsed: Option<PersistentVolumeClaim> = serde_json::from_value(claim.clone()).ok();
        let class = parsed.as_ref().and_then(claims::class_of);
        let classes = self.classes();
        let class = classes.iter().find(|found| class.is_some() && found.metadata.name.as_deref() == class);
        if class.is_some_and(claims::allows_growth) {
            return Ok(());
        }
        refuse(
            "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
        )
    }
}
