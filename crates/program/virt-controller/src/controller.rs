//! A controller as a declarative value.
//!
//! A new controller is a module with such a value plus one line in [`ALL`](crate::ALL). Its work queue and metrics, its
//! workers and their flag, its RBAC rules and its row in `docs/ops/controller.md` are derived from it.

use std::pin::Pin;

use informer::{Change, Clock, Key, Requeue, RetryLimits, Store, WorkQueue};
use k8s_openapi::Resource;
use machinery::rights::Right;
use plan::object::Kind;

use crate::Error;
use crate::context::Context;
use crate::stores::Stores;

/// Prefix of all controller names.
const PREFIX: &str = "virt-controller-";

/// Declaration of a controller.
pub struct Controller {
    /// Name of its work queue in metrics: `virt-controller-` plus what it reconciles.
    pub name: &'static str,
    pub queue: Queue,
    pub workers: Workers,
    /// Registers the watches that enqueue keys.
    pub watches: fn(&mut Watches<'_>),
    /// The component shown as the source of its events.
    pub component: &'static str,
    /// Kinds it creates or deletes under expectations: a key is not acted on until the cache shows the result.
    pub expects: Expected,
    /// Kinds whose last write for a key must show in the cache before the key is reconciled again.
    pub tracks: &'static [Kind],
    /// Its live reads. Rights for the shared caches are in [`Stores::rights`].
    pub reads: &'static [Right],
    /// What it writes.
    pub writes: &'static [Right],
    /// Creates the reconciler, from what observes and acts and the function that decides.
    pub start: fn(Context) -> Box<dyn Reconcile>,
}

/// Queue ordering, and the back-off after a failure.
#[derive(Clone, Copy, Debug)]
pub enum Queue {
    /// FIFO.
    Plain,
    /// Highest priority first.
    Prioritized,
    /// FIFO with its own retry limits.
    Limited(RetryLimits),
}

/// The expectations a controller sets when it acts.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    pub creations: &'static [Kind],
    pub deletions: &'static [Kind],
}

impl Expected {
    pub const NOTHING: Self = Self { creations: &[], deletions: &[] };
}

/// Number of keys reconciled concurrently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workers {
    /// Set by this flag.
    Flag(Flag),
    /// Set by the flag of another controller.
    Like(Flag),
    Fixed(usize),
}

/// A flag of `ferrovirt controller`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flag {
    /// Without the dashes.
    pub name: &'static str,
    pub default: usize,
    /// The text in `--help` and in the documentation.
    pub help: &'static str,
}

/// Reconciles one key. Callers must not reconcile the same key concurrently.
pub trait Reconcile: Send + Sync {
    fn reconcile<'a>(&'a self, key: &'a Key) -> Pin<Box<dyn Future<Output = Result<Requeue, Error>> + Send + 'a>>;
}

impl Controller {
    /// Its name without the common prefix.
    pub fn short_name(&self) -> &'static str {
        self.name.strip_prefix(PREFIX).unwrap_or(self.name)
    }

    /// The flag that sets its number of workers, if it has its own.
    pub fn flag(&self) -> Option<Flag> {
        match self.workers {
            Workers::Flag(flag) => Some(flag),
            Workers::Like(_) | Workers::Fixed(_) => None,
        }
    }

    /// The resources that trigger it, as `kubectl` names them. None if it only requeues itself.
    pub fn watched(&self) -> Vec<String> {
        let mut watches = Watches { ctx: None, resources: Vec::new() };
        (self.watches)(&mut watches);
        watches.resources.sort_unstable();
        watches.resources.dedup();
        watches.resources
    }

    /// The rights it needs besides those for the caches.
    pub fn rights(&self) -> impl Iterator<Item = &'static Right> + use<> {
        self.reads.iter().chain(self.writes)
    }

    pub(crate) fn make_queue(&self, clock: Clock) -> WorkQueue<Key> {
        match self.queue {
            Queue::Plain => WorkQueue::with_limits(self.name, RetryLimits::default(), clock),
            Queue::Prioritized => WorkQueue::prioritized(self.name, RetryLimits::default(), clock),
            Queue::Limited(limits) => WorkQueue::with_limits(self.name, limits, clock),
        }
    }

    pub(crate) fn watch(&self, ctx: &Context) {
        (self.watches)(&mut Watches { ctx: Some(ctx), resources: Vec::new() });
    }
}

/// Collects the watches of a controller. With a context it also subscribes to them.
pub struct Watches<'a> {
    ctx: Option<&'a Context>,
    resources: Vec<String>,
}

impl Watches<'_> {
    /// Enqueues the key of every changed object in the cache.
    pub fn objects<K: Cached>(&mut self, cache: fn(&Stores) -> &Store<K>) {
        self.note::<K>();
        if let Some(ctx) = self.ctx {
            cache(&ctx.stores).feed(&ctx.queue);
        }
    }

    /// Calls `wake` for every change in the cache, to add keys to the queue.
    pub fn changes<K: Cached>(
        &mut self,
        cache: fn(&Stores) -> &Store<K>,
        wake: impl Fn(&Context, &Change<K>) + Send + Sync + 'static,
    ) {
        self.note::<K>();
        if let Some(ctx) = self.ctx {
            let own = ctx.clone();
            cache(&ctx.stores).subscribe(move |change| wake(&own, change));
        }
    }

    /// Enqueues this key once, for a controller that nothing else triggers: each reconcile requeues it.
    pub fn start(&mut self, key: &Key) {
        if let Some(ctx) = self.ctx {
            ctx.queue.add(key.clone());
        }
    }

    /// Calls `wake` when the cluster configuration changes. It gets no context: that owns the configuration, so the
    /// listener would keep its own subject alive.
    pub fn configuration(&mut self, wake: impl Fn(&Stores, &WorkQueue<Key>) + Send + Sync + 'static) {
        self.note::<api::v1::KubeVirt>();
        if let Some(ctx) = self.ctx {
            let (stores, queue) = (ctx.stores.clone(), ctx.queue.clone());
            ctx.config.on_change(move |_| wake(&stores, &queue));
        }
    }

    fn note<K: Resource>(&mut self) {
        let dot = if K::GROUP.is_empty() { "" } else { "." };
        self.resources.push(format!("{}{dot}{}", K::URL_PATH_SEGMENT, K::GROUP));
    }
}

/// A kind that can be cached.
pub trait Cached: kube::Resource<DynamicType = ()> + Resource + Send + Sync + 'static {}

impl<K> Cached for K where K: kube::Resource<DynamicType = ()> + Resource + Send + Sync + 'static {}
