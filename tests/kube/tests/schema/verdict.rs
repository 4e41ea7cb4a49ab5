//! What the server and we make of an object.

use anyhow::{Context, Result};
use api::resources::Resource;
use api::schema;
use http::Method;
use serde_json::Value;

use crate::cluster::{Answer, Cluster, collection, item};

/// How an object reaches the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Create,
    Update,
    /// An update of the status alone.
    Status,
}

/// An object on its way to the server.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) resource: &'static Resource,
    pub(crate) way: Way,
    /// The object whose place it takes.
    pub(crate) old: Value,
    /// How it was broken, and where.
    pub(crate) story: String,
    pub(crate) object: Value,
}

/// What is made of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// The fields that nobody knows, as paths in order.
    pub(crate) unknown: Vec<String>,
    pub(crate) outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is stored like this, metadata left out.
    Stored(Value),
    /// The causes, in order.
    Refused(Vec<Cause>),
    /// The request as a whole makes no sense.
    Rejected(u16, String),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cause {
    pub(crate) field: String,
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl Verdict {
    /// The causes of a refusal; none if there is no refusal.
    pub(crate) fn causes(&mut self) -> &mut [Cause] {
        match &mut self.outcome {
            Outcome::Refused(causes) => causes,
            Outcome::Stored(_) | Outcome::Rejected(..) => &mut [],
        }
    }
}

fn refused(mut causes: Vec<Cause>) -> Outcome {
    causes.sort(); // The server goes through fields in no order.
    Outcome::Refused(causes)
}

fn stored(mut object: Value) -> Outcome {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("metadata");
    }
    Outcome::Stored(object)
}

impl Case {
    /// What the server makes of it. Nothing is written.
    pub(crate) async fn theirs(&self, cluster: &Cluster) -> Result<Verdict> {
        const DRY: &str = "?dryRun=All&fieldValidation=Warn";
        let item = || item(self.resource, &self.object);
        let (method, path) = match self.way {
            Way::Create => (Method::POST, collection(self.resource)),
            Way::Update => (Method::PUT, item()),
            Way::Status => (Method::PUT, format!("{}/status", item())),
        };
        let answer = cluster.ask(method, &format!("{path}{DRY}"), Some(&self.object)).await?;
        let mut unknown = answer.warnings.iter().filter_map(|text| unknown_field(text)).collect::<Vec<_>>();
        unknown.sort();
        Ok(Verdict { unknown, outcome: their_outcome(answer).with_context(|| self.object.to_string())? })
    }

    /// What we make of it.
    pub(crate) fn ours(&self) -> Verdict {
        let kind = self.resource.kind;
        let mut object = self.object.clone();
        let mut unknown: Vec<String> = schema::prune(kind, &mut object).iter().map(ToString::to_string).collect();
        unknown.sort();
        schema::apply_defaults(kind, &mut object);
        self.keep_apart(&mut object);
        let old = (self.way != Way::Create).then_some(&self.old);
        let errors = schema::validate(kind, &object, old);
        let outcome = if errors.is_empty() {
            stored(object)
        } else {
            let cause = |error: &machinery::field::FieldError| Cause {
                field: error.field.to_string(),
                reason: error.cause.as_str().to_owned(),
                message: error.message.clone(),
            };
            refused(errors.iter().map(cause).collect())
        };
        Verdict { unknown, outcome }
    }

    /// Where the status is a resource of its own, the one cannot be written through the other.
    fn keep_apart(&self, object: &mut Value) {
        let Some(fields) = object.as_object_mut() else { return };
        match self.way {
            Way::Create if self.resource.status => _ = fields.remove("status"),
            Way::Update if self.resource.status => match self.old.get("status") {
                Some(status) => _ = fields.insert("status".to_owned(), status.clone()),
                None => _ = fields.remove("status"),
            },
            Way::Create | Way::Update => {}
            Way::Status => {
                let status = fields.remove("status");
                *object = self.old.clone();
                match (status, object.as_object_mut()) {
                    (Some(status), Some(fields)) => _ = fields.insert("status".to_owned(), status),
                    (None, Some(fields)) => _ = fields.remove("status"),
                    _ => {}
                }
            }
        }
    }
}

fn their_outcome(answer: Answer) -> Result<Outcome> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok(match answer.code {
        200 | 201 => stored(answer.body),
        422 => {
            let causes = answer.body["details"]["causes"].as_array().context("a refusal without causes")?;
            let cause = |cause: &Value| Cause {
                field: text(&cause["field"]),
                reason: text(&cause["reason"]),
                message: text(&cause["message"]),
            };
            refused(causes.iter().map(cause).collect())
        }
        code => Outcome::Rejected(code, text(&answer.body["message"])),
    })
}

/// The path in a warning such as `299 - "unknown field \"spec.a\""`.
fn unknown_field(warning: &str) -> Option<String> {
    let text = warning.strip_prefix("299 - \"")?.strip_suffix('"')?.replace("\\\"", "\"").replace(r"\\", r"\");
    Some(text.strip_prefix("unknown field \"")?.strip_suffix('"')?.to_owned())
}
