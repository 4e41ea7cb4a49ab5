//! Updates: the common path of replace and patch.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Outcome, RETRIES, Registry, SubmitError, WriteContext, intake, metadata, modified};
use crate::cache::{Key, Object, ObjectName};
use crate::errors::{ApiError, FieldError, invalid};
use crate::kinds::Strategy;
use crate::store::{Expect, Op};
use crate::views::Served;

/// The part of an object that a path writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Everything that has no separate path.
    Main,
    Status,
    /// `spec.finalizers` of a namespace.
    Finalize,
    /// The number of replicas.
    Scale,
}

impl Part {
    pub(crate) fn subresource(self) -> &'static str {
        match self {
            Self::Main => "",
            Self::Status => "status",
            Self::Finalize => "finalize",
            Self::Scale => "scale",
        }
    }
}

/// The next version as requested by the client, before the server's own rules.
pub(super) struct Wanted {
    /// In the served form.
    pub(super) object: Value,
    /// Whether a concurrent change may be overwritten: then the update is retried instead of failing.
    pub(super) unconditional: bool,
    /// Whether it results from a patch, which is then blamed for any error.
    pub(super) patched: bool,
}

impl Registry {
    /// Replaces an object.
    pub(crate) async fn replace(
        &self,
        served: &Served,
        name: &ObjectName,
        part: Part,
        body: Value,
        cx: &mut WriteContext,
    ) -> Result<Outcome, ApiError> {
        let definition = self.kinds.definition(served.kind);
        let revision = body["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        let unconditional = revision.is_empty() || revision == "0";
        if unconditional && !definition.unconditional_update {
            let error = invalid("metadata.resourceVersion", &json!(0), "must be specified for an update");
            return Err(ApiError::invalid_resource(definition, &name.name, vec![error]));
        }
        let claimed = body["metadata"]["name"].as_str().unwrap_or_default();
        if claimed != name.name {
            let on_url = &name.name;
            let text = format!("the name of the object ({claimed}) does not match the name on the URL ({on_url})");
            return Err(ApiError::BadRequest(text));
        }
        self.update(served, name, part, cx, |_| Ok(Wanted { object: body.clone(), unconditional, patched: false }))
            .await
    }

    /// An update by the server itself, applied to the current version.
    pub(crate) async fn modify(&self, key: &Key, part: Part, change: impl Fn(&mut Value)) -> Result<Outcome, ApiError> {
        let served = Served::stored(key.kind);
        self.update(&served, &key.name, part, &mut WriteContext::server(), |current| {
            let mut object = current.value();
            change(&mut object);
            Ok(Wanted { object, unconditional: true, patched: false })
        })
        .await
    }

    /// Reads the object, lets `make` compute the next version, and writes it; retries on a conflict if `make` allows
    /// it.
    pub(super) async fn update(
        &self,
        served: &Served,
        name: &ObjectName,
        part: Part,
        cx: &mut WriteContext,
        make: impl Fn(&Object) -> Result<Wanted, ApiError>,
    ) -> Result<Outcome, ApiError> {
        let definition = self.kinds.definition(served.kind);
        let key = Key { kind: served.kind, name: name.clone() };
        for _ in 0..RETRIES {
            let current = self.get(served.kind, name)?;
            let old = current.value();
            let wanted = make(&current)?;
            cx.warnings.clear();
            let object = intake::intake(served, wanted.object, cx.field_validation, &mut cx.warnings);
            let object = if wanted.patched { object.map_err(ApiError::of_patch)? } else { object? };
            check_preconditions(definition, name, &object, &current)?;
            let object = self.next_version(served, part, object, &old, cx)?;
            if object == old {
                return Ok(Outcome::Committed(current));
            }
            if cx.dry_run {
                return Ok(Outcome::DryRun(object));
            }
            let _turn = match self.grows(key.kind, part, &object, &old) {
                true => self.check_quota(&key, &object).await?,
                false => None,
            };
            let released = is_released(self.kinds.strategy(key.kind), &object).then(|| object.clone());
            match self.write_version(&key, &current, object).await {
                Err(SubmitError::Conflict { exists: true }) if wanted.unconditional => {}
                Err(SubmitError::Conflict { exists: false }) => {
                    return Err(ApiError::not_found(definition, &name.name));
                }
                Err(SubmitError::Conflict { .. }) => return Err(modified(definition, &name.name)),
                Err(SubmitError::Other(err)) => return Err(err),
                // The final version, not the last stored one.
                Ok(written) => return Ok(released.map_or(Outcome::Committed(written), Outcome::Removed)),
            }
        }
        Err(modified(definition, &name.name))
    }

    /// Stores a version; a terminating object that nothing blocks any more is removed instead.
    pub(super) async fn write_version(
        &self,
        key: &Key,
        current: &Arc<Object>,
        object: Value,
    ) -> Result<Arc<Object>, SubmitError> {
        let done = is_released(self.kinds.strategy(key.kind), &object);
        let op = if done { Op::Delete } else { Op::Put(object) };
        self.submit(key, Expect::Revision(current.revision), op).await
    }

    fn next_version(
        &self,
        served: &Served,
        part: Part,
        object: Value,
        old: &Value,
        cx: &mut WriteContext,
    ) -> Result<Value, ApiError> {
        let strategy = self.kinds.strategy(served.kind);
        let definition = strategy.definition();
        let mut object = select_part(part, definition.status, object, old);
        metadata::carry_over(&mut object, old);
        strategy.default(&mut object);
        if part == Part::Main {
            strategy.prepare_for_update(&mut object, old);
        }
        let (mut object, refusal) = self.review(served, part, object, Some(old), cx);
        metadata::carry_over(&mut object, old);
        if definition.generation {
            metadata::count_generation(&mut object, old, definition.status);
        }
        let errors = validate(strategy, part, &object, old);
        if !errors.is_empty() {
            let name = old["metadata"]["name"].as_str().unwrap_or_default();
            return Err(ApiError::invalid(definition, name, errors));
        }
        self.check_growth(served.kind, part, &object, old)?;
        refusal.map_or(Ok(object), Err)
    }
}

fn validate(strategy: &dyn Strategy, part: Part, object: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors: Vec<FieldError> = metadata::validate_finalizers(object, old).into_iter().collect();
    if part == Part::Main {
        errors.extend(metadata::validate(object, strategy.definition().is_custom()));
        errors.extend(strategy.validate(object));
        errors.extend(strategy.validate_update(object, old));
    }
    errors.extend(strategy.validate_schema(object, Some(old)));
    errors
}

/// The old version with only the written part replaced.
fn select_part(part: Part, status_apart: bool, mut object: Value, old: &Value) -> Value {
    let set = |target: &mut Value, field: &str, source: &Value| {
        let Some(map) = target.as_object_mut() else { return };
        match source.get(field) {
            Some(value) => map.insert(field.into(), value.clone()),
            None => map.remove(field),
        };
    };
    match part {
        Part::Main | Part::Scale => {
            if status_apart {
                set(&mut object, "status", old);
            }
            object
        }
        Part::Status => {
            let mut result = old.clone();
            set(&mut result, "status", &object);
            result
        }
        Part::Finalize => {
            let mut result = old.clone();
            set(&mut result["spec"], "finalizers", &object["spec"]);
            result
        }
    }
}

fn check_preconditions(
    definition: &crate::kinds::Definition,
    name: &ObjectName,
    object: &Value,
    current: &Object,
) -> Result<(), ApiError> {
    let metadata = &object["metadata"];
    let uid = metadata["uid"].as_str().unwrap_or_default();
    if !uid.is_empty() && uid != current.uid {
        let actual = &current.uid;
        let text = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {actual}");
        return Err(ApiError::conflict(definition, &name.name, text));
    }
    let revision = metadata["resourceVersion"].as_str().unwrap_or_default();
    if !revision.is_empty() && revision != "0" && revision.parse() != Ok(current.revision) {
        return Err(modified(definition, &name.name));
    }
    Ok(())
}

/// Whether the object is being deleted and neither a finalizer nor a grace period blocks its removal.
pub(super) fn is_released(strategy: &dyn Strategy, object: &Value) -> bool {
    let metadata = &object["metadata"];
    metadata.get("deletionTimestamp").is_some_and(|time| !time.is_null())
        && metadata["finalizers"].as_array().is_none_or(Vec::is_empty)
        && metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
        && !strategy.holds(object)
}
