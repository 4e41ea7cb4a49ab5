//! All controllers of the process with their queues, without anything that runs them.
//!
//! [`run`](crate::run) puts workers behind the queues. A simulation takes keys from them itself, polls
//! [`Controllers::reconcile`] as it likes, and drops everything to crash.

use std::sync::Arc;

use api::config::ClusterConfig;
use informer::{Clock, Key, Requeue, RetryLimits, WorkQueue};
use plan::vmi::Settings as InstanceSettings;

use crate::Error;
use crate::api::{Api, Notes};
use crate::config::LiveConfig;
use crate::context::Context;
use crate::moves::OneAtATime;
use crate::reconcile::reconcile;
use crate::stores::Stores;
use crate::writer::{WriteCounter, Writer};
use crate::{budget, evacuation, migration, node, synchronization, topology, vm, vmi, workload};

/// One of the controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reconciler {
    Vm,
    Vmi,
    Node,
    Migration,
    /// Carries the two sides of migrations between instances over to each other.
    Synchronization,
    /// Empties nodes.
    Evacuation,
    /// Removes disruption budgets that earlier versions made.
    DisruptionBudget,
    /// Brings guests to newer launchers.
    WorkloadUpdate,
}

impl Reconciler {
    pub const ALL: &'static [Self] = &[
        Self::Vm,
        Self::Vmi,
        Self::Node,
        Self::Migration,
        Self::Synchronization,
        Self::Evacuation,
        Self::DisruptionBudget,
        Self::WorkloadUpdate,
    ];
}

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

pub struct Controllers<A> {
    config: LiveConfig,
    vm: vm::Controller<A>,
    vm_queue: WorkQueue<Key>,
    vmi: vmi::Controller<A>,
    vmi_queue: WorkQueue<Key>,
    node: node::Controller<A>,
    node_queue: WorkQueue<Key>,
    migration: migration::Controller<A>,
    migration_queue: WorkQueue<Key>,
    synchronization: synchronization::Controller<A>,
    synchronization_queue: WorkQueue<Key>,
    evacuation: evacuation::Controller<A>,
    evacuation_queue: WorkQueue<Key>,
    budget: budget::Controller<A>,
    budget_queue: WorkQueue<Key>,
    workload: workload::Controller<A>,
    workload_queue: WorkQueue<Key>,
    topology: topology::Updater<A>,
}

impl<A: Api> Controllers<A> {
    /// Makes the controllers and lets changes in the caches wake them.
    pub fn new(stores: Stores, api: A, notes: Arc<dyn Notes>, clock: Clock, settings: Settings) -> Self {
        let config = LiveConfig::new(settings.base);
        config.follow(&stores.kubevirts);
        let queue = |name| WorkQueue::with_limits(name, RetryLimits::default(), clock.clone());
        let (vm_queue, vmi_queue) = (queue("virt-controller-vm"), queue("virt-controller-vmi"));
        let node_queue = queue("virt-controller-node");
        let migration_queue =
            WorkQueue::prioritized("virt-controller-migration", RetryLimits::default(), clock.clone());
        let (evacuation_queue, budget_queue) =
            (queue("virt-controller-evacuation"), queue("virt-controller-disruption-budget"));
        let synchronization_queue = queue("virt-controller-synchronization");
        let workload_queue = WorkQueue::with_limits("virt-controller-workload-update", workload::LIMITS, clock.clone());
        let writer = Writer::new(api, settings.writes);
        let ctx = Context {
            stores,
            writer,
            notes,
            clock,
            config: config.clone(),
            instances: Arc::new(settings.instances),
            hold_starts: settings.hold_starts,
            one_at_a_time: OneAtATime::default(),
        };
        let vm = vm::Controller::new(ctx.clone());
        vm.register(&vm_queue);
        let vmi = vmi::Controller::new(ctx.clone());
        vmi.register(&vmi_queue);
        let node = node::Controller::new(ctx.clone());
        node.register(&node_queue);
        let migration = migration::Controller::new(ctx.clone(), migration_queue.clone());
        migration.register();
        let synchronization = synchronization::Controller::new(ctx.clone());
        synchronization.register(&synchronization_queue);
        let evacuation = evacuation::Controller::new(ctx.clone());
        evacuation.register(&evacuation_queue);
        let budget = budget::Controller::new(ctx.clone());
        budget.register(&budget_queue);
        let workload = workload::Controller::new(ctx.clone());
        workload.register(&workload_queue);
        let topology = topology::Updater::new(ctx);
        Self {
            config,
            vm,
            vm_queue,
            vmi,
            vmi_queue,
            node,
            node_queue,
            migration,
            migration_queue,
            synchronization,
            synchronization_queue,
            evacuation,
            evacuation_queue,
            budget,
            budget_queue,
            workload,
            workload_queue,
            topology,
        }
    }

    /// The keys that wait for a controller.
    pub fn queue(&self, of: Reconciler) -> &WorkQueue<Key> {
        match of {
            Reconciler::Vm => &self.vm_queue,
            Reconciler::Vmi => &self.vmi_queue,
            Reconciler::Node => &self.node_queue,
            Reconciler::Migration => &self.migration_queue,
            Reconciler::Synchronization => &self.synchronization_queue,
            Reconciler::Evacuation => &self.evacuation_queue,
            Reconciler::DisruptionBudget => &self.budget_queue,
            Reconciler::WorkloadUpdate => &self.workload_queue,
        }
    }

    /// The cluster configuration as it is now.
    pub fn config(&self) -> &LiveConfig {
        &self.config
    }

    /// One pass of a controller over one key. The caller must hold the key: two passes over one must not overlap.
    pub async fn reconcile(&self, by: Reconciler, key: &Key) -> Result<Requeue, Error> {
        match by {
            Reconciler::Vm => reconcile(&self.vm, key).await,
            Reconciler::Vmi => reconcile(&self.vmi, key).await,
            Reconciler::Node => reconcile(&self.node, key).await,
            Reconciler::Migration => reconcile(&self.migration, key).await,
            Reconciler::Synchronization => reconcile(&self.synchronization, key).await,
            Reconciler::Evacuation => reconcile(&self.evacuation, key).await,
            Reconciler::DisruptionBudget => reconcile(&self.budget, key).await,
            Reconciler::WorkloadUpdate => reconcile(&self.workload, key).await,
        }
    }

    /// Brings every node's labels about time stamp counters up to date, once.
    pub async fn update_topology(&self) {
        self.topology.update().await;
    }
}
