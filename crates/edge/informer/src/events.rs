//! Records Kubernetes events without blocking reconciles.
//!
//! [`Recorder`] only adds to a bounded queue; a separate task talks to the API server. An event's name is derived from
//! its content, so a repeated event (also from a later process) finds the object and increments its count. Each object
//! may have 25 events written at once and one more every five minutes; suppressed repeats are counted in the next one
//! written. When ten events about an object differ only in their message, further ones within ten minutes are combined
//! into one that is counted up and shows the last message, so that a message with a changing number in it does not
//! create new events.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Error};
use machinery::rights::{Right, Verb};
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::Clock;
use crate::limiter::Bucket;

const WAITING: usize = 1000;
const BURST_PER_OBJECT: f64 = 25.0;
const PER_SECOND_PER_OBJECT: f64 = 1.0 / 300.0;
const ATTEMPTS: u32 = 4;
/// Size limit of the memory of events and objects. Beyond it entries are dropped, at the cost of one read per repeat.
const REMEMBERED: usize = 4096;
/// Number of distinct messages per reason before events are combined.
const SIMILAR: usize = 10;
/// Combining stops after this long without a similar event.
const SIMILAR_FOR: Duration = Duration::from_secs(600);
/// Prefix of combined messages, as other components write it.
const COMBINED: &str = "(combined from similar events): ";
/// Timeout for writing queued events at shutdown.
const FLUSH: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    Normal,
    Warning,
}

impl EventType {
    fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

struct Note {
    component: Arc<str>,
    about: ObjectReference,
    type_: EventType,
    reason: String,
    message: String,
    at: Timestamp,
}

/// Records events of one component. Cheap to clone.
#[derive(Clone)]
pub struct Recorder {
    component: Arc<str>,
    notes: mpsc::Sender<Note>,
}

impl Recorder {
    /// The rights its client needs.
    pub const RIGHT: Right = Right::on::<Event>(&[Verb::Create, Verb::Get, Verb::Patch]);

    /// `component` is shown as "From" by `kubectl describe`; `instance` is the process or node.
    pub fn start(client: Client, component: &str, instance: &str, shutdown: CancellationToken) -> Self {
        let (notes, waiting) = mpsc::channel(WAITING);
        let writer = Writer {
            client,
            clock: Clock::system(),
            instance: instance.to_owned(),
            written: HashMap::new(),
            buckets: HashMap::new(),
            similar: HashMap::new(),
        };
        tokio::spawn(writer.run(waiting, shutdown));
        Self { component: component.into(), notes }
    }

    /// A recorder for another component of the process, with the same queue and writer.
    pub fn of(&self, component: &str) -> Self {
        Self { component: component.into(), notes: self.notes.clone() }
    }

    /// Does not block. `about` usually is `object.object_ref(&())`.
    pub fn publish(&self, about: ObjectReference, type_: EventType, reason: &str, message: impl Into<String>) {
        let note = Note {
            component: self.component.clone(),
            about,
            type_,
            reason: reason.to_owned(),
            message: message.into(),
            at: Timestamp::now(),
        };
        if let Err(error) = self.notes.try_send(note) {
            tracing::debug!(reason, error = &error as &dyn std::error::Error, "an event was dropped");
        }
    }
}

struct Writer {
    client: Client,
    clock: Clock,
    instance: String,
    /// Occurrences per event name, including suppressed ones.
    written: HashMap<String, i32>,
    buckets: HashMap<String, Bucket>,
    /// By the fields that similar events share.
    similar: HashMap<u64, Similar>,
}

/// Events about one object that differ only in their message.
struct Similar {
    messages: HashSet<u64>,
    last: Duration,
}

fn hash_of(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl Writer {
    async fn run(mut self, mut waiting: mpsc::Receiver<Note>, shutdown: CancellationToken) {
        while let Some(Some(note)) = shutdown.run_until_cancelled(waiting.recv()).await {
            self.take(note).await;
        }
        waiting.close();
        let flush = async {
            while let Some(note) = waiting.recv().await {
                self.take(note).await;
            }
        };
        if timeout(FLUSH, flush).await.is_err() {
            tracing::debug!("events were left unwritten at the end");
        }
    }

    /// Whether the note is to be combined with similar ones.
    fn combines(&mut self, note: &Note) -> bool {
        let now = self.clock.elapsed();
        if self.similar.len() > REMEMBERED {
            self.similar.clear();
        }
        let like = hash_of((&note.component, object_identity(&note.about), note.type_, &note.reason));
        let similar = self.similar.entry(like).or_insert_with(|| Similar { messages: HashSet::new(), last: now });
        if now.saturating_sub(similar.last) > SIMILAR_FOR {
            similar.messages.clear();
        }
        similar.last = now;
        let message = hash_of(&note.message);
        if similar.messages.contains(&message) {
            return false;
        }
        let combines = similar.messages.len() >= SIMILAR;
        if !combines {
            similar.messages.insert(message);
        }
        combines
    }

    async fn take(&mut self, mut note: Note) {
        let combined = self.combines(&note);
        if combined {
            note.message.insert_str(0, COMBINED);
        }
        // All combined events of a kind share one object, whatever the last message is.
        let name = name(&note, if combined { COMBINED } else { &note.message });
        let note = &note;
        if self.buckets.len() > REMEMBERED {
            self.buckets.clear();
        }
        if self.written.len() > REMEMBERED {
            self.written.clear();
        }
        let bucket = self.buckets.entry(object_identity(&note.about));
        let allowed = bucket
            .or_insert_with(|| Bucket::new(PER_SECOND_PER_OBJECT, BURST_PER_OBJECT))
            .try_take(self.clock.elapsed());
        if !allowed {
            if let Some(count) = self.written.get_mut(&name) {
                *count = count.saturating_add(1);
            }
            return;
        }
        for attempt in 0..ATTEMPTS {
            match self.write(&name, note).await {
                Ok(()) => return,
                Err(error) if worth_retrying(&error) && attempt + 1 < ATTEMPTS => {
                    sleep(Duration::from_secs(1 << attempt)).await;
                }
                Err(error) => {
                    tracing::debug!(name, error = &error as &dyn std::error::Error, "an event could not be written");
                    return;
                }
            }
        }
    }

    async fn write(&mut self, name: &str, note: &Note) -> Result<(), Error> {
        let namespace = note.about.namespace.as_deref().filter(|n| !n.is_empty()).unwrap_or("default");
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let known = match self.written.get(name) {
            Some(count) => Some(*count),
            None => match api.create(&PostParams::default(), &self.event(namespace, name, note)).await {
                Ok(_) => None,
                Err(Error::Api(status)) if status.is_already_exists() => Some(api.get(name).await?.count.unwrap_or(1)),
                Err(error) => return Err(error),
            },
        };
        let count = known.map_or(1, |count| count.saturating_add(1));
        if known.is_some() {
            let patch = json!({ "count": count, "lastTimestamp": Time(note.at), "message": note.message });
            match api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
                Ok(_) => {}
                Err(Error::Api(status)) if status.is_not_found() => {
                    // The event expired; the next attempt creates it again.
                    self.written.remove(name);
                    return Err(Error::Api(status));
                }
                Err(error) => return Err(error),
            }
        }
        self.written.insert(name.to_owned(), count);
        Ok(())
    }

    fn event(&self, namespace: &str, name: &str, note: &Note) -> Event {
        Event {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some(namespace.to_owned()),
                ..Default::default()
            },
            involved_object: note.about.clone(),
            type_: Some(note.type_.as_str().to_owned()),
            reason: Some(note.reason.clone()),
            message: Some(note.message.clone()),
            count: Some(1),
            first_timestamp: Some(Time(note.at)),
            last_timestamp: Some(Time(note.at)),
            source: Some(EventSource {
                component: Some(note.component.to_string()),
                host: Some(self.instance.clone()),
            }),
            reporting_component: Some(note.component.to_string()),
            reporting_instance: Some(self.instance.clone()),
            ..Default::default()
        }
    }
}

/// A rejection by the server is final, except for an event that has expired meanwhile.
fn worth_retrying(error: &Error) -> bool {
    match error {
        Error::Api(status) => status.code >= 500 || matches!(status.code, 404 | 409 | 429),
        _ => true,
    }
}

fn object_identity(about: &ObjectReference) -> String {
    let field = |value: &Option<String>| value.clone().unwrap_or_default();
    format!("{}/{}/{}/{}", field(&about.kind), field(&about.namespace), field(&about.name), field(&about.uid))
}

fn name(note: &Note, message: &str) -> String {
    let mut hash = Sha256::new();
    let identity = object_identity(&note.about);
    for part in [note.component.as_ref(), &identity, note.type_.as_str(), &note.reason, message] {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    let digest: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    // Object names have at most 253 characters, of which the digest and its dot take 17.
    let about = note.about.name.as_deref().unwrap_or("unknown");
    let about: String = about.chars().take(236).collect();
    format!("{}.{digest}", about.trim_end_matches(['-', '.']))
}
