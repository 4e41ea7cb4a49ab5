//! Get and list.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use bytes::{BufMut as _, Bytes, BytesMut};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::negotiate::Shape;
use super::params::{Params, forbidden_option};
use crate::cache::{Cache, Object, ObjectName, Snapshot, TooOld};
use crate::errors::ApiError;
use crate::kinds::Kinds;
use crate::table::{IncludeObject, partial_metadata, table};
use crate::views::Served;

/// How long a read waits for a future revision.
const PATIENCE: Duration = Duration::from_secs(3);

/// Continue token of a list: the revision of its first page and the last name returned.
#[derive(Debug, Serialize, Deserialize)]
struct Continue {
    v: String,
    rv: u64,
    namespace: String,
    name: String,
}

const CONTINUE_VERSION: &str = "meta.k8s.io/v1";

/// The form of all objects in a response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    pub(crate) shape: Shape,
    pub(crate) include: IncludeObject,
}

impl Form {
    pub(crate) fn new(shape: Shape, params: &Params) -> Result<Self, ApiError> {
        let include = match params.get("includeObject") {
            None | Some("Metadata") => IncludeObject::Metadata,
            Some("None") => IncludeObject::None,
            Some("Object") => IncludeObject::Object,
            Some(other) => return Err(ApiError::BadRequest(format!("includeObject: {other:?} is not known"))),
        };
        Ok(Self { shape, include })
    }
}

/// One object in the requested form.
pub(crate) fn one(served: Served, form: Form, object: &Object) -> Bytes {
    match form.shape {
        Shape::Object if served.is_stored_form() => object.json.clone(),
        Shape::Object => served.serve(object.value()).to_string().into(),
        Shape::Metadata => partial_metadata(&object.value()).to_string().into(),
        Shape::Table => {
            let meta = json!({"resourceVersion": object.revision.to_string()});
            let columns = Kinds::get().strategy(served.kind).columns();
            let objects = std::iter::once(object.value());
            table(columns, true, form.include, meta, objects, Timestamp::now()).to_string().into()
        }
    }
}

/// Waits until the cache has reached a revision that the client has seen elsewhere.
pub(crate) async fn wait_for(cache: &Cache, asked: u64) -> Result<(), ApiError> {
    let mut revision = cache.revision();
    let reached = tokio::time::timeout(PATIENCE, revision.wait_for(|current| *current >= asked)).await;
    match reached {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(_)) => Err(ApiError::ShuttingDown),
        Err(_) => Err(ApiError::FutureRevision { asked, current: *cache.revision().borrow() }),
    }
}

pub(crate) fn too_old(error: TooOld) -> ApiError {
    ApiError::Expired(format!("too old resource version: {} ({})", error.asked, error.oldest))
}

/// A list, or a page of one.
pub(crate) async fn list(
    cache: &Cache,
    served: Served,
    form: Form,
    namespace: &str,
    params: &Params,
) -> Result<Bytes, ApiError> {
    let filter = params.filter(served, namespace)?;
    let token = params.get("continue").map(decode_token).transpose()?;
    let snapshot = snapshot(cache, served, filter.namespace(), params, token.as_ref()).await?;
    let after = token.map(|token| ObjectName { namespace: token.namespace, name: token.name });
    let revision = snapshot.revision;
    let mut objects: Vec<Arc<Object>> = snapshot
        .objects
        .into_iter()
        .filter(|object| after.as_ref().is_none_or(|after| object.name > *after) && filter.matches(object))
        .collect();
    let mut meta = json!({"resourceVersion": revision.to_string()});
    if let Some(limit) = params.limit()?
        && objects.len() > limit
    {
        if !filter.is_selective() {
            meta["remainingItemCount"] = json!(objects.len() - limit);
        }
        objects.truncate(limit);
        if let Some(last) = objects.last() {
            meta["continue"] = json!(encode_token(revision, &last.name));
        }
    }
    Ok(encode(served, form, &meta, &objects))
}

/// A list of all objects in a snapshot.
pub(crate) fn whole(served: Served, snapshot: &Snapshot) -> Bytes {
    let form = Form { shape: Shape::Object, include: IncludeObject::Metadata };
    encode(served, form, &json!({"resourceVersion": snapshot.revision.to_string()}), &snapshot.objects)
}

/// The snapshot that the list's parameters ask for.
async fn snapshot(
    cache: &Cache,
    served: Served,
    namespace: Option<&str>,
    params: &Params,
    token: Option<&Continue>,
) -> Result<Snapshot, ApiError> {
    let asked = params.revision()?;
    let unset = params.get("resourceVersion").is_none();
    if let Some(token) = token {
        if asked.is_some() {
            let text = "specifying resource version is not allowed when using continue";
            return Err(ApiError::BadRequest(text.into()));
        }
        return cache.list_at(served.kind, namespace, token.rv).map_err(|_| expired_token());
    }
    match (params.get("resourceVersionMatch"), asked) {
        (Some(_), _) if unset => Err(forbidden_option(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        )),
        (Some("Exact"), None) => {
            let text = "resourceVersionMatch \"Exact\" is forbidden for resourceVersion \"0\"";
            Err(forbidden_option("resourceVersionMatch", text))
        }
        (Some("Exact"), Some(revision)) => {
            wait_for(cache, revision).await?;
            cache.list_at(served.kind, namespace, revision).map_err(too_old)
        }
        (None | Some("NotOlderThan"), Some(revision)) => {
            wait_for(cache, revision).await?;
            Ok(cache.list(served.kind, namespace))
        }
        (None | Some("NotOlderThan"), None) => Ok(cache.list(served.kind, namespace)),
        (Some(other), _) => Err(ApiError::BadRequest(format!("resourceVersionMatch: {other:?} is not supported"))),
    }
}

fn encode_token(revision: u64, last: &ObjectName) -> String {
    let (namespace, name) = (last.namespace.clone(), last.name.clone());
    let token = Continue { v: CONTINUE_VERSION.into(), rv: revision, namespace, name };
    BASE64.encode(json!(token).to_string())
}

fn decode_token(token: &str) -> Result<Continue, ApiError> {
    let decoded = BASE64.decode(token).ok().and_then(|json| serde_json::from_slice::<Continue>(&json).ok());
    let bad = || ApiError::BadRequest("continue key is not valid".into());
    decoded.filter(|token| token.v == CONTINUE_VERSION).ok_or_else(bad)
}

fn expired_token() -> ApiError {
    let text = "The provided continue parameter is too old to display a consistent list result. You can start a new list \
                without the continue parameter.";
    ApiError::Expired(text.into())
}

fn encode(served: Served, form: Form, meta: &Value, objects: &[Arc<Object>]) -> Bytes {
    let values = || objects.iter().map(|object| served.serve(object.value()));
    match form.shape {
        Shape::Table => {
            let columns = Kinds::get().strategy(served.kind).columns();
            // Columns refer to the stored form.
            let objects = objects.iter().map(|object| object.value());
            table(columns, true, form.include, meta.clone(), objects, Timestamp::now()).to_string().into()
        }
        Shape::Metadata => {
            let items: Vec<Value> = values().map(|object| partial_metadata(&object)).collect();
            let list = json!({
                "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": meta, "items": items,
            });
            list.to_string().into()
        }
        Shape::Object if served.is_stored_form() => {
            join(served, meta, objects.iter().map(|object| object.json.as_ref()))
        }
        Shape::Object => {
            let items: Vec<String> = values().map(|object| object.to_string()).collect();
            join(served, meta, items.iter().map(String::as_bytes))
        }
    }
}

/// A list of objects that are already encoded as JSON.
fn join<'a>(served: Served, meta: &Value, items: impl Iterator<Item = &'a [u8]> + Clone) -> Bytes {
    let definition = served.definition;
    let head = format!(
        "{{\"kind\":\"{}List\",\"apiVersion\":\"{}\",\"metadata\":{meta},\"items\":[",
        definition.kind,
        definition.api_version(),
    );
    let size: usize = items.clone().map(|item| item.len() + 1).sum();
    let mut list = BytesMut::with_capacity(head.len() + size + 3);
    list.put_slice(head.as_bytes());
    for (index, item) in items.enumerate() {
        if index > 0 {
            list.put_u8(b',');
        }
        list.put_slice(item);
    }
    list.put_slice(b"]}\n");
    list.freeze()
}
