//! Creation.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceQuota};
use placement::quota;
use serde_json::{Value, json};
use tokio::sync::MutexGuard;

use super::{Outcome, Part, Registry, SubmitError, WriteContext, intake, metadata};
use crate::cache::{Key, ObjectName};
use crate::errors::{ApiError, invalid, required};
use crate::kinds::Definition;
use crate::store::{Expect, Op};
use crate::views::Served;

/// Number of attempts at a generated name before a conflict is reported.
const GENERATED_NAMES: usize = 8;

const CLAIMS: &str = "persistentvolumeclaims";

impl Registry {
    /// Creates an object; `namespace` is that of the path, empty for a cluster-scoped kind.
    pub(crate) async fn create(
        &self,
        served: &Served,
        namespace: &str,
        body: Value,
        cx: &mut WriteContext,
    ) -> Result<Outcome, ApiError> {
        let object = intake::intake(served, body, cx.field_validation, &mut cx.warnings)?;
        let object = self.prepare_new(served, namespace, object)?;
        let generate = object["metadata"]["generateName"].as_str().unwrap_or_default().to_owned();
        let generated = object["metadata"]["name"].as_str().unwrap_or_default().is_empty() && !generate.is_empty();
        let attempts = if generated { GENERATED_NAMES } else { 1 };
        let mut last_name = String::new();
        for _ in 0..attempts {
            let mut object = object.clone();
            if generated {
                object["metadata"]["name"] = json!(metadata::generate_name(&generate));
            }
            let object = self.complete_new(served, object, cx)?;
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let key = Key { kind: served.kind, name: ObjectName::new(namespace, name) };
            self.check_free(&key)?;
            let _turn = self.check_quota(&key, &object).await?;
            if cx.dry_run || !self.kinds.definition(served.kind).stored {
                return Ok(Outcome::DryRun(object));
            }
            last_name = name.to_owned();
            match self.submit(&key, Expect::Absent, Op::Put(object)).await {
                Ok(created) => return Ok(Outcome::Committed(created)),
                Err(SubmitError::Conflict { .. }) => {}
                Err(SubmitError::Other(err)) => return Err(err),
            }
        }
        Err(ApiError::already_exists(self.kinds.definition(served.kind), &last_name))
    }

    /// Sets everything but the name: the identity and the initial state of the kind.
    fn prepare_new(&self, served: &Served, namespace: &str, mut object: Value) -> Result<Value, ApiError> {
        let definition = self.kinds.definition(served.kind);
        let strategy = self.kinds.strategy(served.kind);
        check_namespace(definition, namespace, &object)?;
        let revision = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        if !revision.is_empty() && revision != "0" {
            return Err(ApiError::BadRequest("resourceVersion should not be set on objects to be created".into()));
        }
        metadata::begin(&mut object, namespace, definition.generation);
        if definition.status
            && !strategy.keeps_status_on_create()
            && let Some(map) = object.as_object_mut()
        {
            map.remove("status");
        }
        Ok(object)
    }

    /// Applies defaults, hooks and validation, once the name is known.
    fn complete_new(&self, served: &Served, mut object: Value, cx: &mut WriteContext) -> Result<Value, ApiError> {
        let strategy = self.kinds.strategy(served.kind);
        let definition = strategy.definition();
        if object["metadata"]["name"].as_str().unwrap_or_default().is_empty() {
            let error = required("metadata.name", "name or generateName is required");
            return Err(ApiError::invalid(definition, "", vec![error]));
        }
        strategy.default(&mut object);
        strategy.prepare_for_create(&mut object);
        self.fill_in_class(served.kind, &mut object);
        let (mut object, refusal) = self.review(served, Part::Main, object, None, cx);
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("resourceVersion");
        }
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let mut errors: Vec<_> = strategy
            .validate_name(name)
            .into_iter()
            .map(|detail| invalid("metadata.name", &json!(name), &detail))
            .collect();
        errors.extend(metadata::validate(&object, definition.is_custom()));
        errors.extend(strategy.validate(&object));
        errors.extend(strategy.validate_schema(&object, None));
        if !errors.is_empty() {
            return Err(ApiError::invalid(definition, name, errors));
        }
        if let Some(refusal) = refusal {
            return Err(refusal);
        }
        cx.warnings.extend(strategy.warnings(&object));
        Ok(object)
    }

    /// Whether a new Pod or claim fits into the quotas of its namespace. While the guard is held, no other one is added to
    /// a namespace with quotas: two that fit individually need not fit together.
    pub(super) async fn check_quota(&self, key: &Key, object: &Value) -> Result<Option<MutexGuard<'_, ()>>, ApiError> {
        let is = |plural| self.kinds.find("", plural) == Some(key.kind);
        let namespace = &key.name.namespace;
        let Some(quotas) = self.kinds.find("", "resourcequotas").filter(|_| is("pods") || is(CLAIMS)) else {
            return Ok(None);
        };
        if self.cache.list(quotas, Some(namespace)).objects.is_empty() {
            return Ok(None);
        }
        let turn = self.quota_turn.lock().await;
        let quotas: Vec<ResourceQuota> = self.objects(quotas, namespace);
        let unreadable = |error: serde_json::Error| ApiError::Internal(format!("an object cannot be read: {error}"));
        let exceeded = if is(CLAIMS) {
            let claim: PersistentVolumeClaim = serde_json::from_value(object.clone()).map_err(unreadable)?;
            quota::exceeded_by_claim(&claim, &quotas, &self.objects(key.kind, namespace))
        } else {
            let pod: Pod = serde_json::from_value(object.clone()).map_err(unreadable)?;
            quota::exceeded(&pod, &quotas, &self.objects(key.kind, namespace))
        };
        match exceeded {
            Some(why) => Err(ApiError::forbidden(self.kinds.definition(key.kind), &key.name.name, why)),
            None => Ok(Some(turn)),
        }
    }

    /// Reports a name conflict early, and in a dry run too.
    fn check_free(&self, key: &Key) -> Result<(), ApiError> {
        if !key.name.namespace.is_empty() {
            let namespaces = self.kinds.namespaces();
            let namespace = self.get(namespaces, &ObjectName::new("", &key.name.namespace))?;
            if namespace.deleting {
                return Err(self.terminating(key));
            }
        }
        match self.cache.get(key.kind, &key.name) {
            Some(_) => Err(ApiError::already_exists(self.kinds.definition(key.kind), &key.name.name)),
            None => Ok(()),
        }
    }
}

fn check_namespace(definition: &Definition, namespace: &str, object: &Value) -> Result<(), ApiError> {
    let claimed = object["metadata"]["namespace"].as_str().unwrap_or_default();
    if definition.namespaced && !claimed.is_empty() && claimed != namespace {
        let text = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(ApiError::BadRequest(text.into()));
    }
    Ok(())
}
