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
use crate::store::{IndexFn, Ingest, Intake, Store, cache};

/// Describes the cache of one kind; [`Informer::start`] brings it to life. See the crate's example.
pub struct Informer<K> {
    config: watcher::Config,
    indexes: Vec<(&'static str, IndexFn<K>)>,
    prune: Box<dyn Fn(&mut K) + Send + Sync>,
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
        Self {
            config: watcher::Config::default(),
            indexes: vec![],
            prune: Box::new(|_| {}),
            packing: None,
            optional: false,
        }
    }

    /// Only objects with these labels, in the API's string form.
    pub fn labels(mut self, selector: &str) -> Self {
        self.config = self.config.labels(selector);
        self
    }

    /// Only objects with these fields, in the API's string form.
    pub fn fields(mut self, selector: &str) -> Self {
        self.config = self.config.fields(selector);
        self
    }

    /// Asks the server to stream the initial list through the watch. A server that refuses is listed the plain way.
    pub fn streaming_lists(mut self) -> Self {
        self.config = self.config.streaming_lists();
        self
    }

    /// The server may not know the kind: its definition belongs to somebody else. While that is so the cache is complete
    /// and empty; when the kind appears its objects do.
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// Runs on every object before it is cached, to drop what no reader needs. `managedFields` are always dropped.
    ///
    /// Objects written back whole must stay whole: whoever updates from the cache would delete what was pruned.
    pub fn prune(mut self, prune: impl Fn(&mut K) + Send + Sync + 'static) -> Self {
        self.prune = Box::new(prune);
        self
    }

    /// Adds a secondary index: `keys_of` names the values under which an object can be found.
    pub fn index(mut self, name: &'static str, keys_of: impl Fn(&K) -> Vec<String> + Send + Sync + 'static) -> Self {
        self.indexes.push((name, Box::new(keys_of)));
        self
    }

    /// Keeps objects as JSON and decodes them for each reader: for kinds of which there are many and of which few are
    /// looked at at a time.
    pub fn packed(mut self) -> Self
    where
        K: Serialize,
    {
        self.packing = Some(Packing::json());
        self
    }

    /// Takes back [`Informer::packed`]: for a simulation, which lacks time and not memory.
    pub fn whole(mut self) -> Self {
        self.packing = None;
        self
    }

    /// The cache with its writing end, for whoever feeds it without an API server.
    pub fn detached(self) -> (Store<K>, Ingest<K>) {
        let prune = self.prune;
        let prune = Box::new(move |object: &mut K| {
            object.meta_mut().managed_fields = None;
            prune(object);
        });
        cache(Intake { prune, indexes: self.indexes, packing: self.packing })
    }

    /// Starts the watch on a task of its own that ends with `shutdown`.
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

/// What to do after the stream reported an error.
#[derive(Debug, PartialEq)]
enum Recovery {
    /// kube's watcher resumes or lists again by itself.
    Continue,
    /// The watch cannot be opened at the last resource version any more; kube would try that version for ever.
    Relist,
    /// The server does not stream lists; kube would ask for ever.
    PlainList,
    /// The server does not know the kind, and that is all right.
    Absent,
}

/// How often to ask whether a kind that the server did not know has appeared.
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

/// Feeds `ingest` for ever. A healthy watch that ended (the server closes one every few minutes) costs no delay;
/// errors are retried with growing, jittered pauses.
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
