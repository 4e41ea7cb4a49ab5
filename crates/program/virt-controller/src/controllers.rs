//! All controllers of the process with their queues, without anything that runs them.
//!
//! [`run`](crate::run) puts workers behind the queues. A simulation takes keys from them itself, polls
//! [`Running::reconcile`] as it likes, and drops everything to crash.

use std::sync::Arc;

use api::config::ClusterConfig;
use informer::{Clock, Key, Requeue, WorkQueue};
use plan::vmi::Settings as InstanceSettings;

use crate::api::{Api, Notes};
use crate::config::LiveConfig;
use crate::context::{Context, Shared};
use crate::controller::{Controller, Reconcile};
use crate::memory::Memory;
use crate::moves::OneAtATime;
use crate::stores::Stores;
use crate::writer::{WriteCounter, Writer};
use crate::{Error, budget, evacuation, migration, node, synchronization, topology, vm, vmi, workload};

/// Every controller there is.
pub static ALL: &[&Controller] = &[
    &vm::CONTROLLER,
    &vmi::CONTROLLER,
    &node::CONTROLLER,
    &migration::CONTROLLER,
    &synchronization::CONTROLLER,
    &evacuation::CONTROLLER,
    &budget::CONTROLLER,
    &workload::CONTROLLER,
];

/// What is decided when the process starts.
#[derive(Clone, Default)]
pub struct Settings {
    /// What this installation starts from; the KubeVirt object is laid over it.
    pub base: ClusterConfig,
    /// How launchers are started, and what their Pods follow, beyond what the KubeVirt object configures.
    pub instances: InstanceSettings,
    /// Start nothing: the cluster is being emptied.
    pub hold_starts: bool,
    /// Counts writes to the API by virtual machine.
    pub writes: Arc<WriteCounter>,
}

/// A controller with its queue.
pub struct Running {
    pub declared: &'static Controller,
    /// The keys that wait for it.
    pub queue: WorkQueue<Key>,
    passes: Box<dyn Reconcile>,
}

impl Running {
    fn start(declared: &'static Controller, shared: &Arc<Shared>) -> Self {
        let queue = declared.make_queue(shared.clock.clone());
        let memory = Memory::new(declared, &shared.clock);
        let ctx = Context { shared: shared.clone(), queue: queue.clone(), memory, declared };
        declared.watch(&ctx);
        Self { declared, queue, passes: (declared.start)(ctx) }
    }

    /// One pass over one key. The caller must hold the key: two passes over one must not overlap.
    pub async fn reconcile(&self, key: &Key) -> Result<Requeue, Error> {
        self.passes.reconcile(key).await
    }
}

pub struct Controllers {
    config: LiveConfig,
    running: Vec<Arc<Running>>,
    topology: topology::Updater,
}

impl Controllers {
    /// Makes the controllers of a list and lets changes in the caches wake them.
    pub fn new(
        list: &[&'static Controller],
        stores: Stores,
        api: Arc<dyn Api>,
        notes: Arc<dyn Notes>,
        clock: Clock,
        settings: Settings,
    ) -> Self {
        let config = LiveConfig::new(settings.base);
        config.follow(&stores.kubevirts);
        let shared = Arc::new(Shared {
            stores,
            writer: Writer::new(api, settings.writes),
            notes,
            clock,
            config: config.clone(),
            instances: Arc::new(settings.instances),
            hold_starts: settings.hold_starts,
            one_at_a_time: OneAtATime::default(),
        });
        let running = list.iter().map(|declared| Arc::new(Running::start(declared, &shared))).collect();
        Self { config, running, topology: topology::Updater::new(shared) }
    }

    /// In the order of the list.
    pub fn running(&self) -> &[Arc<Running>] {
        &self.running
    }

    /// The controller with this short name.
    pub fn named(&self, short_name: &str) -> Option<&Running> {
        self.running.iter().map(AsRef::as_ref).find(|running| running.declared.short_name() == short_name)
    }

    /// The cluster configuration as it is now.
    pub fn config(&self) -> &LiveConfig {
        &self.config
    }

    /// Brings every node's labels about time stamp counters up to date, once.
    pub async fn update_topology(&self) {
        self.topology.update().await;
    }
}
