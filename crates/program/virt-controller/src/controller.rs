//! A controller as a value: everything about it that others derive something from.
//!
//! A new controller is a module with such a value and one line in [`ALL`](crate::ALL). Its queue and the queue's metrics,
//! its workers and their flag, its share of the role and its row in `docs/ops/controller.md` follow from that.

use std::pin::Pin;

use informer::{Change, Clock, Key, Requeue, RetryLimits, Store, WorkQueue};
use k8s_openapi::Resource;
use machinery::rights::{Right, Verb};
use plan::effect::Part;
use plan::object::Kind;

use crate::Error;
use crate::context::Context;
use crate::stores::Stores;

/// What the names of all controllers begin with.
const PREFIX: &str = "virt-controller-";

/// A controller as it is declared.
pub struct Controller {
    /// The name of its queue, as metrics show it: `virt-controller-` and what it works on.
    pub name: &'static str,
    pub queue: Queue,
    pub workers: Workers,
    /// Which changes wake which keys.
    pub watches: fn(&mut Watches<'_>),
    /// The component that users see in its events.
    pub component: &'static str,
    /// Kinds that it creates or deletes and decides about only when the cache shows that.
    pub expects: Expected,
    /// Kinds whose last write, in the name of a key, has to show in the cache before the key is decided about again.
    pub tracks: &'static [Kind],
    /// What it reads live. The caches that it reads are everybody's: see [`Stores::rights`].
    pub reads: &'static [Right],
    /// What it writes.
    pub writes: &'static [Right],
    /// Makes what reconciles its keys.
    pub start: fn(Context) -> Box<dyn Reconcile>,
}

/// In which order keys are worked on, and how soon again after a failure.
#[derive(Clone, Copy, Debug)]
pub enum Queue {
    /// First come, first served.
    Plain,
    /// The most urgent first.
    Prioritized,
    /// First come, first served, with limits of its own.
    Limited(RetryLimits),
}

/// What a controller waits for after it has acted.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    pub creations: &'static [Kind],
    pub deletions: &'static [Kind],
}

impl Expected {
    pub const NOTHING: Self = Self { creations: &[], deletions: &[] };
}

/// How many keys are worked on at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workers {
    /// As many as this flag says.
    Flag(Flag),
    /// As many as a flag of another controller says.
    Like(Flag),
    Fixed(usize),
}

/// A flag of `ferrovirt controller`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flag {
    /// Without the dashes.
    pub name: &'static str,
    pub default: usize,
    /// What `--help` and the documentation say.
    pub help: &'static str,
}

/// Brings one key forward. The caller must hold the key: two passes over one must not overlap.
pub trait Reconcile: Send + Sync {
    fn reconcile<'a>(&'a self, key: &'a Key) -> Pin<Box<dyn Future<Output = Result<Requeue, Error>> + Send + 'a>>;
}

impl Controller {
    /// What it works on, in short.
    pub fn short_name(&self) -> &'static str {
        self.name.strip_prefix(PREFIX).unwrap_or(self.name)
    }

    /// The flag that sets the number of its workers, if that is its own.
    pub fn flag(&self) -> Option<Flag> {
        match self.workers {
            Workers::Flag(flag) => Some(flag),
            Workers::Like(_) | Workers::Fixed(_) => None,
        }
    }

    /// The resources whose changes wake it, as `kubectl` names them.
    pub fn watched(&self) -> Vec<String> {
        let mut watches = Watches { ctx: None, resources: Vec::new() };
        (self.watches)(&mut watches);
        watches.resources.sort_unstable();
        watches.resources.dedup();
        watches.resources
    }

    /// What it needs besides the caches.
    pub fn rights(&self) -> impl Iterator<Item = &'static Right> + use<> {
        self.reads.iter().chain(self.writes)
    }

    /// Whether it declares that it writes such objects so.
    pub(crate) fn declares(&self, verb: Verb, kind: Kind, part: Part) -> bool {
        let subresource = match part {
            Part::Object => "",
            Part::Status => "status",
        };
        self.writes.iter().any(|right| {
            (right.group, right.resource, right.subresource) == (kind.group(), kind.resource(), subresource)
                && right.verbs.contains(&verb)
        })
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

/// Takes down what wakes a controller. With a context it also begins to listen.
pub struct Watches<'a> {
    ctx: Option<&'a Context>,
    resources: Vec<String>,
}

impl Watches<'_> {
    /// Each change of an object of the cache wakes its own key.
    pub fn objects<K: Cached>(&mut self, cache: fn(&Stores) -> &Store<K>) {
        self.note::<K>();
        if let Some(ctx) = self.ctx {
            cache(&ctx.stores).feed(&ctx.queue);
        }
    }

    /// Each change in the cache wakes what `wake` adds to the queue.
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

    /// Another cluster configuration wakes what `wake` adds to the queue. It gets no context: the configuration is part of
    /// that, and would be kept alive by its own listener.
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

/// A kind that there can be a cache of.
pub trait Cached: kube::Resource<DynamicType = ()> + Resource + Send + Sync + 'static {}

impl<K> Cached for K where K: kube::Resource<DynamicType = ()> + Resource + Send + Sync + 'static {}
