//! The operations common to all kinds: create, update, patch, delete.
//!
//! Writes are optimistic: a write reads the object from the cache, computes the next version, and submits it to the
//! writer with the revision it started from. If another write came first, an unconditional write is retried; a
//! conditional one is a conflict.

mod binding;
mod claims;
mod create;
mod delete;
mod eviction;
mod intake;
mod metadata;
mod patch;
mod scale;
mod update;

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use review::{Operation, Refusal, Review, Verdict};
use serde_json::Value;

use crate::auth::User;
use crate::cache::{Cache, Key, Object, ObjectName};
use crate::errors::ApiError;
use crate::hooks::Hooks;
use crate::kinds::{Definition, KindId, Kinds, text_at};
use crate::store::{Expect, Op, Write, WriteError, Writer};
use crate::views::Served;

pub(crate) use delete::{DeleteOptions, Deleted};
pub(crate) use intake::FieldValidation;
pub(crate) use metadata::{now, time};
pub(crate) use patch::{Patch, PatchType};
pub(crate) use placement::ownership::{FOREGROUND, ORPHAN, Propagation};
pub(crate) use scale::{ScaleChange, scale};
pub(crate) use update::Part;

/// Maximum number of retries of an unconditional write before it fails with a conflict.
const RETRIES: usize = 16;

pub(crate) struct Registry {
    pub(crate) kinds: &'static Kinds,
    pub(crate) cache: Arc<Cache>,
    pub(crate) writer: Writer,
    pub(crate) hooks: Hooks,
    /// Held from computing a namespace's usage to the write that adds to it.
    pub(crate) quota_turn: tokio::sync::Mutex<()>,
}

/// The user and options of a write; collects warnings for the client.
pub(crate) struct WriteContext {
    pub(crate) user: User,
    pub(crate) dry_run: bool,
    pub(crate) field_validation: FieldValidation,
    pub(crate) warnings: Vec<String>,
}

impl WriteContext {
    /// For the server's own controllers.
    pub(crate) fn server() -> Self {
        let field_validation = FieldValidation::Ignore;
        Self { user: User::server(), dry_run: false, field_validation, warnings: vec![] }
    }
}

/// The object that resulted from a write.
#[derive(Debug)]
pub(crate) enum Outcome {
    Committed(Arc<Object>),
    /// What would have been written.
    DryRun(Value),
    /// The last version of an object that was removed by this write.
    Removed(Value),
}

impl Outcome {
    /// The object in the served form.
    pub(crate) fn into_json(self, served: &Served) -> Bytes {
        match self {
            Self::Committed(object) if served.is_stored_form() => object.json.clone(),
            Self::Committed(object) => served.serve(object.value()).to_string().into(),
            Self::DryRun(object) | Self::Removed(object) => served.serve(object).to_string().into(),
        }
    }
}

impl Registry {
    pub(crate) fn get(&self, kind: KindId, name: &ObjectName) -> Result<Arc<Object>, ApiError> {
        let missing = || ApiError::not_found(self.kinds.definition(kind), &name.name);
        self.cache.get(kind, name).ok_or_else(missing)
    }

    /// Runs hooks that mutate and validate an object. Their errors are returned separately, since those of the schema
    /// are reported first.
    fn review(
        &self,
        served: &Served,
        part: Part,
        mut object: Value,
        old: Option<&Value>,
        cx: &mut WriteContext,
    ) -> (Value, Option<ApiError>) {
        let operation = if old.is_some() { Operation::Update } else { Operation::Create };
        let mut hooks = self.hooks.about(served.kind, operation, part.subresource()).peekable();
        if hooks.peek().is_none() {
            return (object, None);
        }
        let user = cx.user.reviewed();
        let mut refusal: Option<Refusal> = None;
        for hook in hooks {
            let review = write(served, operation, part.subresource(), &user, old, &object, cx.dry_run);
            let mut verdict: Verdict = hook.review(&review, &*self.cache);
            cx.warnings.append(&mut verdict.warnings);
            if let Some(changed) = verdict.object {
                object = changed;
                // Hooks may know only one version of a kind, which need not be the stored one.
                object["apiVersion"] = self.kinds.definition(served.kind).api_version().into();
                self.kinds.strategy(served.kind).default(&mut object);
            }
            refusal = refusal.or(verdict.refusal);
        }
        (object, refusal.map(ApiError::refused))
    }

    /// Whether hooks allow a deletion.
    fn review_deletion(&self, kind: KindId, object: &Value, cx: &mut WriteContext) -> Result<(), ApiError> {
        for hook in self.hooks.about(kind, Operation::Delete, "") {
            let (served, user) = (Served::stored(kind), cx.user.reviewed());
            let review = write(&served, Operation::Delete, "", &user, Some(object), object, cx.dry_run);
            let mut verdict = hook.review(&review, &*self.cache);
            cx.warnings.append(&mut verdict.warnings);
            verdict.refusal.map_or(Ok(()), |refusal| Err(ApiError::refused(refusal)))?;
        }
        Ok(())
    }

    /// Submits a write and translates the writer's errors.
    async fn submit(&self, key: &Key, expect: Expect, op: Op) -> Result<Arc<Object>, SubmitError> {
        let result = self.writer.submit(Write { key: key.clone(), expect, op }).await;
        result.map_err(|err| match err {
            WriteError::Conflict(current) => SubmitError::Conflict { exists: current.is_some() },
            WriteError::NamespaceMissing => {
                let namespaces = self.kinds.definition(self.kinds.namespaces());
                SubmitError::Other(ApiError::not_found(namespaces, &key.name.namespace))
            }
            WriteError::NamespaceTerminating => SubmitError::Other(self.terminating(key)),
            WriteError::Store(err) => SubmitError::Other(ApiError::Store(err)),
            WriteError::Closed => SubmitError::Other(ApiError::ShuttingDown),
        })
    }

    fn terminating(&self, key: &Key) -> ApiError {
        let namespace = &key.name.namespace;
        let text = format!("unable to create new content in namespace {namespace} because it is being terminated");
        ApiError::forbidden(self.kinds.definition(key.kind), &key.name.name, text)
    }
}

/// A write in the form hooks see it.
fn write<'a>(
    served: &'a Served,
    operation: Operation,
    subresource: &'a str,
    user: &'a review::User,
    old: Option<&'a Value>,
    object: &'a Value,
    dry_run: bool,
) -> Review<'a> {
    let definition = served.definition;
    Review {
        operation,
        group: definition.group,
        version: definition.version,
        resource: definition.plural,
        subresource,
        namespace: text_at(object, "metadata.namespace"),
        name: text_at(object, "metadata.name"),
        user,
        old,
        object,
        dry_run,
        now: Time(Timestamp::now()),
    }
}

enum SubmitError {
    /// Another write came first; `exists` says whether there is an object now.
    Conflict {
        exists: bool,
    },
    Other(ApiError),
}

fn modified(definition: &Definition, name: &str) -> ApiError {
    let text = "the object has been modified; please apply your changes to the latest version and try again";
    ApiError::conflict(definition, name, text.into())
}
