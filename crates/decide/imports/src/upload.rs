//! Requests to the upload proxy: which are uploads, and whether the claim takes one now.

use api::cdi;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use machinery::meta;

use crate::words::{content, keys, phases};

/// What a path of the proxy is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Answered when the content has arrived, before it is converted.
    pub asynchronous: bool,
    /// The content is the part `file` of a form.
    pub form: bool,
}

/// The paths of the proxy. A claim for an archive takes one at any of them.
pub fn endpoint(path: &str) -> Option<Endpoint> {
    let of = |asynchronous, form| Some(Endpoint { asynchronous, form });
    match path {
        "/v1beta1/upload" | "/v1alpha1/upload" => of(false, false),
        "/v1beta1/upload-async" | "/v1alpha1/upload-async" => of(true, false),
        "/v1beta1/upload-archive" | "/v1alpha1/upload-archive" => of(false, false),
        "/v1beta1/upload-form" | "/v1alpha1/upload-form" => of(false, true),
        "/v1beta1/upload-form-async" | "/v1alpha1/upload-form-async" => of(true, true),
        _ => None,
    }
}

/// Whether a claim takes an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    Ready,
    /// It will, before long.
    Soon,
    /// It will not.
    Never(String),
}

/// Whether a claim takes an upload; `None` is one that does not exist.
pub fn readiness(name: &str, claim: Option<&PersistentVolumeClaim>) -> Readiness {
    let never = |what: &str| Readiness::Never(format!("rejecting Upload Request for PVC {name} {what}"));
    let Some(claim) = claim.filter(|claim| !meta::is_deleting(&claim.metadata)) else {
        return never("that doesn't exist");
    };
    let noted = |key| meta::annotation(&claim.metadata, key);
    if noted(keys::UPLOAD).is_none() {
        return Readiness::Never(format!("PVC {name} is not an upload target"));
    }
    if noted(keys::PHASE) == Some(phases::SUCCEEDED) {
        return never("that already finished uploading");
    }
    match noted(cdi::CONTENT_TYPE).unwrap_or_default() {
        "" | content::KUBEVIRT | content::ARCHIVE => {}
        other => return never(&format!("- upload content-type {other} is invalid")),
    }
    if noted(keys::READY) == Some("true") { Readiness::Ready } else { Readiness::Soon }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_claim_takes_one_upload() {
        let claim = |annotations: serde_json::Value| -> PersistentVolumeClaim {
            serde_json::from_value(json!({"metadata": {"name": "d", "annotations": annotations}})).unwrap()
        };
        let target = keys::UPLOAD;
        for (annotations, word) in [
            (json!({target: "", keys::READY: "true"}), "Ready"),
            (json!({target: ""}), "Soon"),
            (json!({target: "", keys::READY: "true", keys::PHASE: "Succeeded"}), "already finished"),
            (json!({target: "", keys::READY: "true", cdi::CONTENT_TYPE: "tape"}), "content-type tape is invalid"),
            (json!({keys::READY: "true"}), "not an upload target"),
        ] {
            let found = format!("{:?}", readiness("d", Some(&claim(annotations.clone()))));
            assert!(found.contains(word), "{annotations}: {found}");
        }
        assert!(matches!(readiness("d", None), Readiness::Never(why) if why.contains("doesn't exist")));
    }

    #[test]
    fn only_known_paths_take_uploads() {
        assert_eq!(endpoint("/v1beta1/upload-form-async"), Some(Endpoint { asynchronous: true, form: true }));
        assert_eq!(endpoint("/v1beta1/upload"), Some(Endpoint { asynchronous: false, form: false }));
        for path in ["/", "/v1beta1/upload/", "/v1beta1/upload-archive-async", "/v2/upload"] {
            assert_eq!(endpoint(path), None, "{path}");
        }
    }
}
