//! Patching: the only place where objects become JSON.

use std::sync::Arc;

use informer::Key;
use json_patch::PatchOperation;
use kube::Resource;
use machinery::status::{self, About};
use machinery::{patch as json, strategic};
use serde::Serialize;
use serde::de::DeserializeOwned;
use virt_controller::api::{Part, Patch};

use super::{Answer, Server, Verb, Writer};

/// Whether the patch reads and writes only metadata and status.
fn leaves_spec(patch: &Patch) -> bool {
    let outside = |field: &str| matches!(field, "metadata" | "status");
    match patch {
        Patch::Json(patch) => patch.0.iter().all(|step| {
            let alone = !matches!(step, PatchOperation::Copy(_) | PatchOperation::Move(_));
            alone && step.path().first().is_some_and(|field| outside(&field.decoded()))
        }),
        Patch::Merge(patch) | Patch::Strategic(patch) => {
            patch.as_object().is_some_and(|fields| fields.keys().all(|field| outside(field)))
        }
    }
}

impl Server {
    pub(crate) fn patch<K>(&mut self, by: Writer, key: &Key, part: Part, patch: &Patch) -> Answer<Arc<K>>
    where
        K: Resource<DynamicType = ()> + Clone + Serialize + DeserializeOwned + 'static,
    {
        let old = self.stored::<K>(key)?;
        let invalid = |why: String| {
            let (group, kind) = (K::group(&()), K::kind(&()));
            let mut answer = status::invalid(About::new(&group, &kind, &key.name), Vec::new());
            answer.message = Some(why);
            Box::new(answer)
        };
        let internal = |error: serde_json::Error| Box::new(status::internal(&error.to_string()));
        let apart = self.table::<K>()?.spec_apart.as_ref().filter(|_| leaves_spec(patch));
        let mut document = match apart {
            Some(apart) => serde_json::to_value((apart.without_spec)(&old)),
            None => serde_json::to_value(old.as_ref()),
        }
        .map_err(internal)?;
        // A patch that does not set a resource version must not be guarded by one.
        if let Some(meta) = document.get_mut("metadata").and_then(|meta| meta.as_object_mut())
            && !matches!(patch, Patch::Json(_))
        {
            meta.remove("resourceVersion");
            meta.remove("uid");
        }
        match patch {
            Patch::Json(patch) => json::apply(&mut document, patch).map_err(|error| invalid(error.to_string()))?,
            Patch::Merge(patch) => json::merge(&mut document, patch),
            Patch::Strategic(patch) => {
                strategic::apply(&K::kind(&()), &mut document, patch).map_err(|error| invalid(error.to_string()))?;
            }
        }
        let mut new: K = serde_json::from_value(document).map_err(|error| invalid(error.to_string()))?;
        if let Some(apart) = apart {
            (apart.copy_spec)(&mut new, &old);
        }
        let verb = if part == Part::Status { Verb::PatchStatus } else { Verb::Patch };
        self.replace(by, verb, part, new)
    }
}
