//! Health, leadership and metrics of a running controller.

use std::sync::atomic::{AtomicBool, Ordering};

use endpoints::{ApiHealth, write_process};
use informer::client::RequestCounter;
use informer::metrics::{Exposition, QueueMetrics, write_queues};
use informer::{Key, WorkQueue};
use kube::Client;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::controllers::Controllers;

type CacheSize = Box<dyn Fn() -> Vec<(&'static str, usize)> + Send + Sync>;

/// Updated by [`run`](crate::run), read by the endpoints.
#[derive(Default)]
pub struct Status {
    /// A candidate is ready while it waits for the lease.
    ready: AtomicBool,
    leads: AtomicBool,
    queues: Mutex<Vec<WorkQueue<Key>>>,
    caches: Mutex<Option<CacheSize>>,
    /// Requests made by the controllers' client.
    pub requests: RequestCounter,
    health: ApiHealth,
}

impl Status {
    pub(crate) fn set_ready(&self) {
        self.ready.store(true, Ordering::Relaxed);
    }

    pub(crate) fn set_leads(&self, leads: bool) {
        self.leads.store(leads, Ordering::Relaxed);
    }

    /// Whether this process is the leader and its caches have synced.
    pub fn leads(&self) -> bool {
        self.leads.load(Ordering::Relaxed)
    }

    /// Adds these controllers' queues to the metrics.
    pub fn watch_queues(&self, controllers: &Controllers) {
        let queues = controllers.running().iter().map(|running| running.queue.clone()).collect();
        *self.queues.lock() = queues;
    }

    pub(crate) fn watch_caches(&self, sizes: impl Fn() -> Vec<(&'static str, usize)> + Send + Sync + 'static) {
        *self.caches.lock() = Some(Box::new(sizes));
    }

    /// The response of `/leader`.
    pub(crate) fn leader(&self) -> Value {
        json!({"apiserver": {"leader": self.leads().to_string()}})
    }

    /// The response of `/healthz`, and whether it is healthy.
    pub(crate) async fn health(&self, client: &Client) -> (bool, Value) {
        self.health.check(client).await
    }

    /// The response of `/metrics`.
    pub fn metrics(&self) -> String {
        let mut out = Exposition::default();
        let queues = self.queues.lock();
        let queues: Vec<QueueMetrics> = queues.iter().map(WorkQueue::metrics).collect();
        write_queues(&queues, &mut out);
        self.requests.write(&mut out);
        let flag = |value: &AtomicBool| u8::from(value.load(Ordering::Relaxed));
        let mut gauge = |name: &str, help: &str, value: u64| {
            out.family(name, "gauge", help);
            out.sample(name, &[], value);
        };
        let leading = "1 if this virt-controller leads and its caches are complete";
        gauge("kubevirt_virt_controller_leading_status", leading, flag(&self.leads).into());
        let ready = "1 if this virt-controller can become leader";
        gauge("kubevirt_virt_controller_ready_status", ready, flag(&self.ready).into());
        let caches = self.caches.lock();
        if let Some(sizes) = caches.as_ref() {
            out.family("ferrovirt_cache_objects", "gauge", "Objects in a watch cache, by cache");
            sizes().iter().for_each(|(cache, size)| out.sample("ferrovirt_cache_objects", &[("cache", cache)], size));
        }
        write_process(&mut out);
        out.into_text()
    }
}
