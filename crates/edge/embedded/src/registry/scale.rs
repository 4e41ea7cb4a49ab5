//! The `scale` subresource: current and desired replicas in the same form for all kinds.

use k8s_openapi::api::autoscaling::v1::{Scale, ScaleSpec, ScaleStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::patch::{self, Patch};
use super::update::Wanted;
use super::{Outcome, Part, Registry, WriteContext};
use crate::cache::ObjectName;
use crate::errors::{ApiError, invalid};
use crate::kinds::{Definition, at};
use crate::views::Served;

/// The requested change of a scale.
pub(crate) enum ScaleChange {
    Replace(Value),
    Patch(Patch),
}

impl Registry {
    /// Changes the number of replicas. The rest of the object is unchanged, so hooks are not called.
    pub(crate) async fn rescale(
        &self,
        served: &Served,
        name: &ObjectName,
        change: &ScaleChange,
        cx: &mut WriteContext,
    ) -> Result<Value, ApiError> {
        let definition = served.definition;
        let outcome = self
            .update(&Served::stored(served.kind), name, Part::Scale, cx, |current| {
                let object = current.value();
                let before = scale(definition, &object)?;
                let mut after = match change {
                    ScaleChange::Replace(scale) => scale.clone(),
                    ScaleChange::Patch(_) => json!(before),
                };
                let mut unconditional = false;
                if let ScaleChange::Patch(patch) = change {
                    patch::apply(served, patch, &mut after)?;
                    unconditional = !patch::names_revision(patch);
                }
                let after = read(&after)?;
                unconditional |= after.metadata.resource_version.as_deref().unwrap_or_default().is_empty();
                Ok(Wanted { object: scaled(definition, object, name, after)?, unconditional, patched: false })
            })
            .await?;
        let object = match outcome {
            Outcome::Committed(object) => object.value(),
            Outcome::DryRun(object) | Outcome::Removed(object) => object,
        };
        Ok(json!(scale(definition, &object)?))
    }
}

/// The scale of an object.
pub(crate) fn scale(definition: &Definition, object: &Value) -> Result<Scale, ApiError> {
    let paths = definition.scale.ok_or(ApiError::UnknownPath)?;
    let number = |path: &str| at(object, field(path)).as_i64().and_then(|number| i32::try_from(number).ok());
    let Some(replicas) = number(paths.spec_replicas) else {
        return Err(ApiError::Internal(format!("the spec replicas field {:?} does not exist", paths.spec_replicas)));
    };
    let metadata: ObjectMeta = serde_json::from_value(object["metadata"].clone()).unwrap_or_default();
    Ok(Scale {
        metadata: ObjectMeta {
            name: metadata.name,
            namespace: metadata.namespace,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            creation_timestamp: metadata.creation_timestamp,
            ..ObjectMeta::default()
        },
        // Zero is omitted.
        spec: Some(ScaleSpec { replicas: Some(replicas).filter(|replicas| *replicas != 0) }),
        status: Some(ScaleStatus {
            replicas: number(paths.status_replicas).unwrap_or(0),
            selector: at(object, field(paths.label_selector)).as_str().map(str::to_owned),
        }),
    })
}

/// The path without its leading dot.
fn field(path: &str) -> &str {
    path.trim_start_matches('.')
}

fn read(scale: &Value) -> Result<Scale, ApiError> {
    serde_json::from_value(scale.clone())
        .map_err(|err| ApiError::BadRequest(format!("Scale in version \"v1\" cannot be handled as a Scale: {err}")))
}

/// The object with the replicas and preconditions of the requested scale.
fn scaled(definition: &Definition, mut object: Value, name: &ObjectName, wanted: Scale) -> Result<Value, ApiError> {
    let metadata = wanted.metadata;
    if metadata.name.as_ref().is_some_and(|claimed| *claimed != name.name) {
        let text = "the name of the object does not match the name on the URL";
        return Err(ApiError::BadRequest(text.into()));
    }
    let replicas = wanted.spec.and_then(|spec| spec.replicas).unwrap_or(0);
    if replicas < 0 {
        let error = invalid(
            definition.scale.map_or("", |paths| paths.spec_replicas),
            &json!(replicas),
            "should be a non-negative integer",
        );
        return Err(ApiError::invalid(definition, &name.name, vec![error]));
    }
    let paths = definition.scale.ok_or(ApiError::UnknownPath)?;
    let target = field(paths.spec_replicas).split('.').fold(&mut object, |value, step| &mut value[step]);
    *target = json!(replicas);
    for (key, value) in [("resourceVersion", metadata.resource_version), ("uid", metadata.uid)] {
        if let Some(value) = value {
            object["metadata"][key] = json!(value);
        }
    }
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{Cache, Key, Object};
    use crate::hooks::Hooks;
    use crate::kinds::Kinds;
    use crate::registry::PatchType;
    use crate::store::{RedbEngine, Writer};
    use std::sync::Arc;

    fn pools() -> &'static Definition {
        Served::find("pool.kubevirt.io", "v1beta1", "virtualmachinepools").unwrap().definition
    }

    #[test]
    fn a_scale_is_read_from_the_paths_of_the_kind() {
        let pool = json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}},
            "spec": {"replicas": 3}, "status": {"replicas": 2, "labelSelector": "a=b"},
        });
        let expected = json!({
            "apiVersion": "autoscaling/v1", "kind": "Scale",
            "metadata": {"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "7"},
            "spec": {"replicas": 3}, "status": {"replicas": 2, "selector": "a=b"},
        });
        assert_eq!(json!(scale(pools(), &pool).unwrap()), expected);
        let error = scale(pools(), &json!({"metadata": {}, "spec": {}})).unwrap_err().to_string();
        assert!(error.contains("\".spec.replicas\" does not exist"), "{error}");
    }

    #[test]
    fn a_scale_changes_nothing_but_the_replicas() {
        let name = ObjectName::new("ns", "p");
        let pool = json!({"metadata": {"name": "p", "resourceVersion": "7"}, "spec": {"replicas": 3, "x": 1}});
        let wanted = |replicas: i32, claimed: &str| {
            let metadata = ObjectMeta { name: Some(claimed.to_owned()), ..ObjectMeta::default() };
            Scale { metadata, spec: Some(ScaleSpec { replicas: Some(replicas) }), status: None }
        };
        let after = scaled(pools(), pool.clone(), &name, wanted(5, "p")).unwrap();
        assert_eq!(after["spec"], json!({"replicas": 5, "x": 1}));
        assert!(scaled(pools(), pool.clone(), &name, wanted(-1, "p")).is_err());
        assert!(scaled(pools(), pool, &name, wanted(1, "q")).is_err());
    }

    fn served() -> Served {
        Served::find("pool.kubevirt.io", "v1alpha1", "virtualmachinepools").unwrap()
    }

    /// A registry that has one pool of three.
    fn registry(dir: &tempfile::TempDir) -> Registry {
        let kinds = Kinds::get();
        let cache = Arc::new(Cache::new(kinds.len()));
        let pool = json!({
            "apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool",
            "metadata": {"name": "p", "namespace": "ns", "uid": "u", "generation": 1},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"a": "b"}}, "virtualMachineTemplate": {
                "spec": {"runStrategy": "Always", "template": {"spec": {"domain": {"devices": {}}}}},
            }},
        });
        let key = Key { kind: served().kind, name: ObjectName::new("ns", "p") };
        cache.load(key.kind, Object::encode(kinds.strategy(key.kind), pool, 1));
        cache.loaded(1);
        let engine = RedbEngine::open(&dir.path().join("store.redb")).unwrap();
        let writer = Writer::start(Box::new(engine), cache.clone(), kinds).unwrap();
        Registry { kinds, cache, writer, hooks: Hooks::new(Kinds::get(), &[]), quota_turn: Default::default() }
    }

    #[tokio::test]
    async fn replicas_are_replaced_and_patched_in_any_version() {
        let dir = tempfile::tempdir().unwrap();
        let registry = registry(&dir);
        let name = ObjectName::new("ns", "p");
        let rescale =
            async |change: ScaleChange| registry.rescale(&served(), &name, &change, &mut WriteContext::server()).await;
        let replace = |replicas: i32, metadata: Value| {
            ScaleChange::Replace(json!({"metadata": metadata, "spec": {"replicas": replicas}}))
        };
        let patch = |document: Value| ScaleChange::Patch(Patch { kind: PatchType::Merge, document });
        let scale = rescale(replace(5, json!({"name": "p"}))).await.unwrap();
        assert_eq!((&scale["kind"], &scale["spec"]["replicas"]), (&json!("Scale"), &json!(5)));
        let scale = rescale(patch(json!({"spec": {"replicas": 2}}))).await.unwrap();
        assert_eq!(scale["spec"]["replicas"], 2);
        let pool = registry.get(served().kind, &name).unwrap().value();
        assert_eq!((&pool["spec"]["replicas"], &pool["metadata"]["generation"]), (&json!(2), &json!(3)));
        assert_eq!(pool["apiVersion"], "pool.kubevirt.io/v1beta1");
        let stale = rescale(replace(7, json!({"name": "p", "resourceVersion": "1"}))).await.unwrap_err();
        assert_eq!(stale.status().code, Some(409), "{stale}");
        let stale = rescale(patch(json!({"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 7}}))).await;
        assert_eq!(stale.unwrap_err().status().code, Some(409));
        let negative = rescale(patch(json!({"spec": {"replicas": -1}}))).await.unwrap_err();
        assert_eq!(negative.status().code, Some(422), "{negative}");
        assert!(rescale(patch(json!({"spec": {"replicas": "many"}}))).await.is_err());
    }
}
