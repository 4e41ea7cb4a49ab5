//! Lists and watches one kind into a [`Store`].

use std::fmt::Debug;
use std::time::Duration;

use futures::{Stream, StreamExt};
use kube::runtime::watcher::{self, DefaultBackoff, Event, InitialListStrategy};
use kube::{Api, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::held::Packing;
use crate::store::{IndexFn, Ingest, Intake, Prune, Store, cache};

/// Builder for the cache of one kind; [`Informer::start`] starts it. See the crate's example.
pub struct Informer<K> {
    config: watcher::Config,
    indexes: Vec<(&'static str, IndexFn<K>)>,
    prune: Option<Prune<K>>,
    packing: Option<Packing<K>>,
    optional: bool,
}

impl<K> Default for Informer<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    fn default() -> Self {
        Self::new()
    }
}

impl<K> Informer<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    pub fn new() -> Self {
        Self { config: watcher::Config::default(), indexes: vec![], prune: None, packing: None, optional: false }
    }

    /// Restricts to objects with these labels, in string form.
    pub fn labels(mut self, selector: &str) -> Self {
        self.config = self.config.labels(selector);
        self
    }

    /// Restricts to objects with these fields, in string form.
    pub fn fields(mut self, selector: &str) -> Self {
        self.config = self.config.fields(selector);
        self
    }

    /// Asks the server to stream the initial list through the watch. Falls back to a plain list if the server refuses.
    pub fn streaming_lists(mut self) -> Self {
        self.config = self.config.streaming_lists();
        self
    }

    /// The server may not serve the kind, since its CRD belongs to another project. Meanwhile the cache is synced and
    /// empty; when the kind appears, so do its objects.
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// Runs on every object before it is cached, to drop unused fields. `managedFields` are always dropped.
    ///
    /// Objects that are written back whole must not be pruned: an update from the cache would delete the pruned fields.
    pub fn prune(mut self, prune: impl Fn(&mut K) + Send + Sync + 'static) -> Self {
        self.prune = Some(Box::new(prune));
        self
    }

    /// Adds a secondary index: `keys_of` returns the values under which an object is found.
    pub fn index(mut self, name: &'static str, keys_of: impl Fn(&K) -> Vec<String> + Send + Sync + 'static) -> Self {
        self.indexes.push((name, Box::new(keys_of)));
        self
    }

    /// Keeps objects as JSON and decodes them on access: for kinds with many objects of which few are read at a time.
    pub fn packed(mut self) -> Self
    where
        K: Serialize,
    {
        self.packing = Some(Packing::json());
        self
    }

    /// Undoes [`Informer::packed`]: for simulations, which are short of time rather than memory.
    pub fn whole(mut self) -> Self {
        self.packing = None;
        self
    }

    /// The cache and its write end, for callers that feed it without an API server.
    pub fn detached(self) -> (Store<K>, Ingest<K>) {
        cache(Intake { prune: self.prune, indexes: self.indexes, packing: self.packing })
    }

    /// Starts the watch in its own task, which stops with `shutdown`.
    pub fn start(self, api: Api<K>, shutdown: CancellationToken) -> Store<K> {
        let (config, optional) = (self.config.clone(), self.optional);
        let (store, ingest) = self.detached();
        tokio::spawn(async move {
            let watching = keep_watching(config, optional, |config| watcher::watcher(api.clone(), config), ingest);
            shutdown.run_until_cancelled(watching).await;
        });
        store
    }
}

/// How to handle an error of the stream.
#[derive(Debug, PartialEq)]
enum Recovery {
    /// kube's watcher resumes or relists by itself.
    Continue,
    /// The watch cannot be resumed at the last resource version; kube would retry that version for ever.
    Relist,
    /// The server does not support streaming lists; kube would retry for ever.
    PlainList,
    /// The server does not serve the kind, which is allowed.
    Absent,
}

/// How often to check whether a kind that was not served has appeared.
pub(crate) const ABSENT_KIND: Duration = Duration::from_secs(30);

fn recovery(error: &watcher::Error, streaming: bool, optional: bool) -> Recovery {
    let (start, status) = match error {
        watcher::Error::WatchStartFailed(kube::Error::Api(status)) => (true, status),
        watcher::Error::InitialListFailed(kube::Error::Api(status)) => (false, status),
        _ => return Recovery::Continue,
    };
    match status.code {
        404 if optional => Recovery::Absent,
        410 if start => Recovery::Relist,
        400 | 422 if start && streaming => Recovery::PlainList,
        _ => Recovery::Continue,
    }
}

/// Feeds `ingest` for ever. A healthy watch that ended (servers close one every few minutes) is resumed without delay;
/// errors are retried with exponential back-off and jitter.
pub(crate) async fn keep_watching<K, S>(
    mut config: watcher::Config,
    optional: bool,
    open: impl Fn(watcher::Config) -> S,
    mut ingest: Ingest<K>,
) where
    K: Resource<DynamicType = ()>,
    S: Stream<Item = watcher::Result<Event<K>>>,
{
    let mut pauses = DefaultBackoff::default();
    loop {
        let mut stream = std::pin::pin!(open(config.clone()));
        while let Some(event) = stream.next().await {
            let error = match event {
                Ok(event) => {
                    ingest.apply(event);
                    continue;
                }
                Err(error) => error,
            };
            let streaming = config.initial_list_strategy == InitialListStrategy::StreamingList;
            let recovery = recovery(&error, streaming, optional);
            if recovery == Recovery::Absent {
                ingest.apply(Event::Init);
                ingest.apply(Event::InitDone);
                tokio::time::sleep(ABSENT_KIND).await;
                break;
            }
            if recovery == Recovery::PlainList {
                tracing::debug!(kind = %K::kind(&()), "the server does not stream lists");
                config.initial_list_strategy = InitialListStrategy::ListWatch;
                break;
            }
            let pause = pauses.next().unwrap_or(Duration::from_secs(30));
            tracing::warn!(kind = %K::kind(&()), ?pause, error = &error as &dyn std::error::Error, "the watch failed");
            tokio::time::sleep(pause).await;
            if recovery == Recovery::Relist {
                break;
            }
        }
    }
}
