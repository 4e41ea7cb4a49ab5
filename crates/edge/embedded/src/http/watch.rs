//! Streams a watch as lines of JSON.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::{BufMut as _, Bytes, BytesMut};
use jiff::Timestamp;
use machinery::watch::WatchEvent;
use rand::Rng as _;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::negotiate::Shape;
use super::params::{Params, forbidden_option};
use super::read::{Form, too_old, wait_for};
use crate::cache::{Cache, Object, Start, Watch, WatchItem};
use crate::errors::ApiError;
use crate::kinds::Kinds;
use crate::table::{partial_metadata, table};
use crate::views::Served;

/// Minimum default timeout of a watch; randomized, so that clients do not all reconnect at once.
const MIN_TIMEOUT: u64 = 1800;

/// Opens the watch. Invalid parameters are an error response; later errors are watch events.
pub(crate) async fn watch(
    cache: &Arc<Cache>,
    served: Served,
    form: Form,
    namespace: &str,
    params: &Params,
    shutdown: CancellationToken,
) -> Result<Body, ApiError> {
    let filter = params.filter(served, namespace)?;
    let bookmarks = params.flag("allowWatchBookmarks");
    let start = start(cache, params, bookmarks).await?;
    let seconds = match params.timeout_seconds()? {
        Some(seconds) if seconds > 0 => seconds,
        _ => rand::rng().random_range(MIN_TIMEOUT..2 * MIN_TIMEOUT),
    };
    let timeout = Duration::from_secs(seconds);
    let watch = Watch::new(cache.clone(), served.kind, filter, start, bookmarks, timeout, shutdown);
    let encoder = Encoder { served, form, header: true };
    let lines = futures::stream::unfold((watch, encoder), |(mut watch, mut encoder)| async move {
        let items = watch.next().await?;
        Some((Ok::<_, Infallible>(encoder.lines(items)), (watch, encoder)))
    });
    Ok(Body::from_stream(lines))
}

/// Applies the rules of `resourceVersion`, `resourceVersionMatch` and `sendInitialEvents`.
async fn start(cache: &Cache, params: &Params, bookmarks: bool) -> Result<Start, ApiError> {
    let initial = params.tristate("sendInitialEvents");
    let asked = params.revision()?;
    match (params.get("resourceVersionMatch"), initial) {
        (Some("NotOlderThan"), Some(_)) | (None, None) => {}
        (_, Some(_)) => {
            let text = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            return Err(forbidden_option("resourceVersionMatch", text));
        }
        (Some(_), None) => {
            let text = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            return Err(forbidden_option("resourceVersionMatch", text));
        }
    }
    match (initial, asked) {
        (Some(true), asked) => {
            wait_for(cache, asked.unwrap_or(0)).await?;
            Ok(Start::State { mark_end: bookmarks })
        }
        (None, None) => Ok(Start::State { mark_end: false }),
        (Some(false), None) => Ok(Start::Now),
        (_, Some(revision)) => Ok(Start::After(revision)),
    }
}

struct Encoder {
    served: Served,
    form: Form,
    /// Whether the next table includes column definitions; only the first does.
    header: bool,
}

impl Encoder {
    fn lines(&mut self, items: Vec<WatchItem>) -> Bytes {
        let mut buffer = BytesMut::new();
        for item in items {
            match item {
                WatchItem::Added(object) => self.object(&mut buffer, "ADDED", &object, None),
                WatchItem::Modified(object) => self.object(&mut buffer, "MODIFIED", &object, None),
                WatchItem::Deleted { object, revision } => self.object(&mut buffer, "DELETED", &object, Some(revision)),
                WatchItem::Bookmark { revision, initial_events_end } => {
                    buffer.put_slice(&self.bookmark(revision, initial_events_end).to_line());
                }
                WatchItem::Expired(error) => {
                    buffer.put_slice(&WatchEvent::error(&too_old(error).status()).to_line());
                }
            }
        }
        buffer.freeze()
    }

    /// `revision`, if given, overrides the object's resource version.
    fn object(&mut self, buffer: &mut BytesMut, kind: &str, object: &Object, revision: Option<u64>) {
        buffer.put_slice(b"{\"type\":\"");
        buffer.put_slice(kind.as_bytes());
        buffer.put_slice(b"\",\"object\":");
        let unchanged = revision.is_none_or(|revision| revision == object.revision);
        if unchanged && self.form.shape == Shape::Object && self.served.is_stored_form() {
            buffer.put_slice(&object.json);
        } else {
            let mut value = object.value();
            if let Some(revision) = revision {
                value["metadata"]["resourceVersion"] = json!(revision.to_string());
            }
            buffer.put_slice(self.shaped(value).to_string().as_bytes());
        }
        buffer.put_slice(b"}\n");
    }

    fn shaped(&mut self, object: Value) -> Value {
        match self.form.shape {
            Shape::Object => self.served.serve(object),
            Shape::Metadata => partial_metadata(&object),
            Shape::Table => {
                let meta = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
                let columns = Kinds::get().strategy(self.served.kind).columns();
                let header = std::mem::take(&mut self.header);
                table(columns, header, self.form.include, meta, std::iter::once(object), Timestamp::now())
            }
        }
    }

    fn bookmark(&self, revision: u64, initial_events_end: bool) -> WatchEvent {
        let (api_version, kind) = match self.form.shape {
            Shape::Object => (self.served.definition.api_version(), self.served.definition.kind),
            Shape::Metadata => ("meta.k8s.io/v1".into(), "PartialObjectMetadata"),
            Shape::Table => ("meta.k8s.io/v1".into(), "Table"),
        };
        WatchEvent::bookmark(&api_version, kind, &revision.to_string(), initial_events_end)
    }
}
