//! All controllers of the process and their work queues, but not the workers.
//!
//! [`run`](crate::run) starts workers on the queues. A simulation takes keys itself, polls [`Running::reconcile`] as it
//! likes, and drops everything to simulate a crash.

use std::sync::Arc;

use api::config::ClusterConfig;
use informer::{Clock, Key, Requeue, WorkQueue};
use plan::topology::Pace;
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

/// All controllers.
pub static ALL: &[&Controller] = &[
    &vm::CONTROLLER,
    &vmi::CONTROLLER,
    &node::CONTROLLER,
    &migration::CONTROLLER,
    &synchronization::CONTROLLER,
    &evacuation::CONTROLLER,
    &budget::CONTROLLER,
    &workload::CONTROLLER,
    &topology::CONTROLLER,
];

/// Settings fixed at startup.
#[derive(Clone, Default)]
pub struct Settings {
    /// Defaults of this installation; the KubeVirt object overrides them.
    pub base: ClusterConfig,
    /// How launchers are started and their Pods configured, beyond what the KubeVirt object specifies.
    pub instances: InstanceSettings,
    /// Start no VMs: the cluster is being drained.
    pub hold_starts: bool,
    /// How often the nodes' TSC frequency labels are updated.
    pub node_topology: Pace,
    /// Counts API writes per VM.
    pub writes: Arc<WriteCounter>,
}

/// A controller and its work queue.
pub struct Running {
    pub declared: &'static Controller,
    /// Pending keys.
    pub queue: WorkQueue<Key>,
    passes: Box<dyn Reconcile>,
}

impl Running {
    fn start(declared: &'static Controller, shared: &Arc<Shared>, writer: Writer) -> Self {
        let queue = declared.make_queue(shared.clock.clone());
        let memory = Memory::new(declared, &shared.clock);
        let ctx = Context { shared: shared.clone(), queue: queue.clone(), memory, writer, declared };
        declared.watch(&ctx);
        Self { declared, queue, passes: (declared.start)(ctx) }
    }

    /// Reconciles one key. Callers must not reconcile the same key concurrently.
    pub async fn reconcile(&self, key: &Key) -> Result<Requeue, Error> {
        self.passes.reconcile(key).await
    }
}

pub struct Controllers {
    config: LiveConfig,
    running: Vec<Arc<Running>>,
}

impl Controllers {
    /// Creates the controllers and subscribes their queues to the caches.
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
            notes,
            clock,
            config: config.clone(),
            instances: Arc::new(settings.instances),
            hold_starts: settings.hold_starts,
            node_topology: settings.node_topology,
            one_at_a_time: OneAtATime::default(),
        });
        let start = |declared: &&'static Controller| {
            let writer = Writer::new(api.clone(), settings.writes.clone(), declared.name, declared.rights());
            Arc::new(Running::start(declared, &shared, writer))
        };
        let running = list.iter().map(start).collect();
        Self { config, running }
    }

    /// The controllers, in the order they were listed.
    pub fn running(&self) -> &[Arc<Running>] {
        &self.running
    }

    /// The controller with this short name.
    pub fn named(&self, short_name: &str) -> Option<&Running> {
        self.running.iter().map(AsRef::as_ref).find(|running| running.declared.short_name() == short_name)
    }

    /// The current cluster configuration.
    pub fn config(&self) -> &LiveConfig {
        &self.config
    }
}
