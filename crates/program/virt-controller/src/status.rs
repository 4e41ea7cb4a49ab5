//! Health, leadership and metrics of a running controller.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use informer::client::RequestCounter;
use informer::metrics::{Exposition, QueueMetrics, write_queues};
use informer::{Key, WorkQueue};
use kube::Client;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::controllers::Controllers;

/// How long a health check of the API server is cached.
const HEALTH_HOLDS: Duration = Duration::from_secs(5);
/// An API server that takes longer counts as unreachable.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);

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
    health: tokio::sync::Mutex<Option<(Instant, Result<Value, String>)>>,
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
        let mut health = self.health.lock().await;
        let fresh = health.as_ref().is_some_and(|(at, _)| at.elapsed() < HEALTH_HOLDS);
        if !fresh {
            *health = Some((Instant::now(), ask(client).await));
        }
        match health.as_ref().map(|(_, answer)| answer) {
            Some(Ok(version)) => (true, json!({"apiserver": {"connectivity": "ok", "version": version}})),
            Some(Err(error)) => (false, json!({"apiserver": {"connectivity": "failed", "error": error}})),
            None => (false, Value::Null),
        }
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

async fn ask(client: &Client) -> Result<Value, String> {
    match timeout(HEALTH_TIMEOUT, client.apiserver_version()).await {
        Ok(Ok(version)) => serde_json::to_value(version).map_err(|error| error.to_string()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {HEALTH_TIMEOUT:?}")),
    }
}

/// Memory and CPU usage of this process, if the kernel reports it.
fn write_process(out: &mut Exposition) {
    let resident = || -> Option<u64> {
        let pages: u64 = std::fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse().ok()?;
        Some(pages * 4096)
    };
    if let Some(bytes) = resident() {
        out.family("process_resident_memory_bytes", "gauge", "Resident memory size in bytes");
        out.sample("process_resident_memory_bytes", &[], bytes);
    }
    let ticks = || -> Option<u64> {
        let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
        // The name in parentheses may contain anything; user and system time are the 12th and 13th field after it.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
        Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
    };
    if let Some(ticks) = ticks() {
        out.family("process_cpu_seconds_total", "counter", "User and system CPU time in seconds");
        out.sample("process_cpu_seconds_total", &[], ticks as f64 / 100.0);
    }
}
