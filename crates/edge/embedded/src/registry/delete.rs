//! Deletion: at once, with a grace period, or after finalizers.
//!
//! ```text
//!            no grace, no finalizer
//!   present ─────────────────────────────► gone
//!      │                                    ▲
//!      └─ deletionTimestamp ─► terminating ─┘  last finalizer removed, or deleted again without grace
//! ```

use jiff::{SignedDuration, Timestamp};
use placement::ownership::{FOREGROUND, ORPHAN, Propagation};
use serde_json::{Value, json};

use super::update::is_released;
use super::{Outcome, RETRIES, Registry, SubmitError, WriteContext, metadata, modified};
use crate::cache::{Filter, Key, Object, ObjectName, Snapshot};
use crate::errors::ApiError;
use crate::kinds::{KindId, Strategy};
use crate::store::{Expect, Op};

/// Namespaces that cannot be deleted.
const IMMORTAL: &[&str] = &["default", "kube-system", "kube-public"];

#[derive(Debug, Clone, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) grace_period_seconds: Option<i64>,
    pub(crate) propagation: Option<Propagation>,
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
}

/// The outcome of a deletion.
#[derive(Debug)]
pub(crate) enum Deleted {
    /// The last version, with its deletion timestamp.
    Gone(Value),
    Terminating(Outcome),
}

impl Registry {
    pub(crate) async fn delete(
        &self,
        kind: KindId,
        name: &ObjectName,
        options: &DeleteOptions,
        cx: &mut WriteContext,
    ) -> Result<Deleted, ApiError> {
        let definition = self.kinds.definition(kind);
        let strategy = self.kinds.strategy(kind);
        let key = Key { kind, name: name.clone() };
        if kind == self.kinds.namespaces() && IMMORTAL.contains(&name.name.as_str()) {
            return Err(ApiError::forbidden(definition, &name.name, "this namespace may not be deleted".into()));
        }
        for _ in 0..RETRIES {
            let current = self.get(kind, name)?;
            self.check_preconditions(&key, options, &current)?;
            let old = current.value();
            let object = terminating(strategy, &old, options, Timestamp::now());
            if object == old {
                return Ok(Deleted::Terminating(Outcome::Committed(current))); // already terminating
            }
            self.review_deletion(kind, &old, cx)?;
            let gone = is_released(strategy, &object);
            if cx.dry_run {
                return Ok(if gone { Deleted::Gone(object) } else { Deleted::Terminating(Outcome::DryRun(object)) });
            }
            let (op, last) = if gone { (Op::Delete, object) } else { (Op::Put(object), Value::Null) };
            match self.submit(&key, Expect::Revision(current.revision), op).await {
                Ok(_) if gone => return Ok(Deleted::Gone(last)),
                Ok(object) => return Ok(Deleted::Terminating(Outcome::Committed(object))),
                Err(SubmitError::Conflict { .. }) => {}
                Err(SubmitError::Other(err)) => return Err(err),
            }
        }
        Err(modified(definition, &name.name))
    }

    /// Deletes everything that matches a filter and returns it; objects that vanish meanwhile count as deleted.
    pub(crate) async fn delete_collection(
        &self,
        kind: KindId,
        filter: &Filter,
        options: &DeleteOptions,
        cx: &mut WriteContext,
    ) -> Result<Snapshot, ApiError> {
        let mut snapshot = self.cache.list(kind, filter.namespace());
        snapshot.objects.retain(|object| filter.matches(object));
        for object in &snapshot.objects {
            match self.delete(kind, &object.name, options, cx).await {
                Ok(_) | Err(ApiError::NotFound(_)) => {}
                Err(err) => return Err(err),
            }
        }
        Ok(snapshot)
    }

    fn check_preconditions(&self, key: &Key, options: &DeleteOptions, current: &Object) -> Result<(), ApiError> {
        let conflict = |what: &str, expected: &str, actual: &str| {
            let text =
                format!("Precondition failed: {what} in precondition: {expected}, {what} in object meta: {actual}");
            Err(ApiError::precondition(self.kinds.definition(key.kind), &key.name.name, text))
        };
        if let Some(uid) = &options.uid
            && *uid != current.uid
        {
            return conflict("UID", uid, &current.uid);
        }
        let actual = current.revision.to_string();
        if let Some(revision) = &options.resource_version
            && *revision != actual
        {
            return conflict("ResourceVersion", revision, &actual);
        }
        Ok(())
    }
}

/// The terminating version of an object. Repeated deletions change nothing, except that they may shorten the grace
/// period.
fn terminating(strategy: &dyn Strategy, old: &Value, options: &DeleteOptions, now: Timestamp) -> Value {
    let mut object = old.clone();
    let grace = strategy.grace_period(old, options.grace_period_seconds).unwrap_or(0);
    let already = old["metadata"].get("deletionTimestamp").is_some();
    let running = old["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    if !already || grace < running {
        let at = now.saturating_add(SignedDuration::from_secs(grace)).unwrap_or(now);
        object["metadata"]["deletionTimestamp"] = json!(metadata::time(at));
        // A namespace is removed when it is empty; grace periods do not apply to it.
        if strategy.definition().plural != "namespaces" {
            object["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        }
    }
    if !already {
        if strategy.definition().generation {
            metadata::raise_generation(&mut object);
        }
        strategy.prepare_for_delete(&mut object);
    }
    set_propagation(&mut object, options.propagation);
    object
}

/// The two policies that need a finalizer exclude each other; background deletion needs none.
fn set_propagation(object: &mut Value, propagation: Option<Propagation>) {
    let Some(propagation) = propagation else { return };
    let wanted = match propagation {
        Propagation::Background => None,
        Propagation::Foreground => Some(FOREGROUND),
        Propagation::Orphan => Some(ORPHAN),
    };
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    let mut finalizers: Vec<Value> = match metadata.remove("finalizers") {
        Some(Value::Array(finalizers)) => finalizers,
        _ => vec![],
    };
    finalizers.retain(|name| name == wanted.unwrap_or_default() || (name != FOREGROUND && name != ORPHAN));
    if let Some(wanted) = wanted
        && !finalizers.iter().any(|name| name == wanted)
    {
        finalizers.push(json!(wanted));
    }
    if !finalizers.is_empty() {
        metadata.insert("finalizers".into(), Value::Array(finalizers));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::Kinds;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn asked(grace: Option<i64>, propagation: Option<Propagation>) -> DeleteOptions {
        DeleteOptions { grace_period_seconds: grace, propagation, ..DeleteOptions::default() }
    }

    #[test]
    fn a_running_pod_gets_its_grace_and_can_be_hurried() {
        let kinds = Kinds::get();
        let pods = kinds.strategy(kinds.find("", "pods").unwrap());
        let pod =
            json!({"metadata": {"generation": 1}, "spec": {"nodeName": "n1", "terminationGracePeriodSeconds": 30}});
        let first = terminating(pods, &pod, &asked(None, None), at(0));
        assert_eq!(first["metadata"]["deletionTimestamp"], "1970-01-01T00:00:30Z");
        assert_eq!(first["metadata"]["deletionGracePeriodSeconds"], 30);
        assert!(!is_released(pods, &first));
        assert_eq!(terminating(pods, &first, &asked(None, None), at(5)), first, "asking again changes nothing");
        assert_eq!(terminating(pods, &first, &asked(Some(60), None), at(5)), first, "grace is not prolonged");
        let hurried = terminating(pods, &first, &asked(Some(0), None), at(5));
        assert!(is_released(pods, &hurried));
    }

    #[test]
    fn finalizers_hold_and_propagation_adds_its_own() {
        let kinds = Kinds::get();
        let maps = kinds.strategy(kinds.find("", "configmaps").unwrap());
        let held = json!({"metadata": {"finalizers": ["a"]}});
        assert!(!is_released(maps, &terminating(maps, &held, &asked(None, None), at(0))));
        let free = json!({"metadata": {}});
        assert!(is_released(maps, &terminating(maps, &free, &asked(None, Some(Propagation::Background)), at(0))));
        let foreground = terminating(maps, &free, &asked(None, Some(Propagation::Foreground)), at(0));
        assert_eq!(foreground["metadata"]["finalizers"], json!([FOREGROUND]));
        let orphan = terminating(maps, &foreground, &asked(None, Some(Propagation::Orphan)), at(0));
        assert_eq!(orphan["metadata"]["finalizers"], json!([ORPHAN]));
        let background = terminating(maps, &orphan, &asked(None, Some(Propagation::Background)), at(0));
        assert!(is_released(maps, &background));
    }
}
