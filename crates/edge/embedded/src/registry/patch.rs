//! The three types of patches.

use machinery::patch::PatchError;
use serde_json::Value;

use super::update::Wanted;
use super::{Outcome, Part, Registry, WriteContext};
use crate::cache::ObjectName;
use crate::errors::ApiError;
use crate::views::Served;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatchType {
    Json,
    Merge,
    /// Lists are merged by keys of their elements; only Kubernetes kinds have such keys.
    Strategic,
}

#[derive(Debug)]
pub(crate) struct Patch {
    pub(crate) kind: PatchType,
    pub(crate) document: Value,
}

impl Registry {
    pub(crate) async fn patch(
        &self,
        served: &Served,
        name: &ObjectName,
        part: Part,
        patch: &Patch,
        cx: &mut WriteContext,
    ) -> Result<Outcome, ApiError> {
        self.update(served, name, part, cx, |current| {
            let mut object = served.serve(current.value());
            apply(served, patch, &mut object)?;
            if object["metadata"]["name"].as_str() != Some(name.name.as_str()) {
                return Err(ApiError::BadRequest("metadata.name: a patch cannot rename an object".into()));
            }
            // If a patch sets resourceVersion, it has been compared with the current one by now or will be; if not, the
            // patch applies to whatever version there is.
            let same = object["metadata"]["resourceVersion"].as_str() == Some(&current.revision.to_string());
            Ok(Wanted { object, unconditional: same && !names_revision(patch), patched: true })
        })
        .await
    }
}

pub(super) fn apply(served: &Served, patch: &Patch, object: &mut Value) -> Result<(), ApiError> {
    let document = &patch.document;
    match patch.kind {
        PatchType::Json => {
            if !document.as_array().is_some_and(|operations| operations.iter().all(Value::is_object)) {
                return Err(ApiError::BadRequest("error decoding patch: it is no list of operations".into()));
            }
            let operations: json_patch::Patch = serde_json::from_value(document.clone())
                .map_err(|err| ApiError::Unprocessable(format!("an operation of the patch is none: {err}")))?;
            machinery::patch::apply(object, &operations).map_err(refused)
        }
        PatchType::Merge => {
            machinery::patch::merge(object, document);
            Ok(())
        }
        PatchType::Strategic => machinery::strategic::apply(served.definition.kind, object, document)
            .map_err(|err| ApiError::BadRequest(format!("error applying the strategic merge patch: {err}"))),
    }
}

fn refused(err: PatchError) -> ApiError {
    match err {
        PatchError::TooManyOperations(_) => ApiError::TooLarge(err.to_string()),
        _ => {
            let cause = std::error::Error::source(&err).map(|cause| format!(": {cause}")).unwrap_or_default();
            let text = "the server rejected our request due to an error in our request";
            ApiError::Unprocessable(format!("{text}: {err}{cause}"))
        }
    }
}

pub(super) fn names_revision(patch: &Patch) -> bool {
    match patch.kind {
        PatchType::Json => patch
            .document
            .as_array()
            .into_iter()
            .flatten()
            .any(|operation| operation["path"].as_str().is_some_and(|path| path == "/metadata/resourceVersion")),
        _ => patch.document["metadata"].get("resourceVersion").is_some(),
    }
}
