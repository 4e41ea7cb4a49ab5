//! A rate-limited API client that counts its requests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response};
use kube::client::{Body, ClientBuilder};
use kube::{Client, Config};
use parking_lot::{Mutex, MutexGuard};
use tower::{Layer, Service};

use crate::Clock;
use crate::limiter::Bucket;
use crate::metrics::Exposition;

/// A rate limit: requests per second, and the burst allowed after a pause.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    pub per_second: f64,
    pub burst: f64,
}

impl Rate {
    /// Default limit of the controllers.
    pub const CONTROLLER: Self = Self { per_second: 200.0, burst: 400.0 };
    /// Default limit of their events, in addition.
    pub const EVENTS: Self = Self { per_second: 50.0, burst: 200.0 };
    /// Default limit of a virt-handler, of which there is one per node.
    pub const HANDLER: Self = Self { per_second: 50.0, burst: 100.0 };
}

/// The rate limit of one client, adjustable at run time. Requests wait in FIFO order.
#[derive(Clone)]
pub struct RateLimit {
    clock: Clock,
    state: Arc<Mutex<(Rate, Bucket)>>,
}

impl RateLimit {
    pub fn new(rate: Rate, clock: Clock) -> Self {
        Self { clock, state: Arc::new(Mutex::new((rate, Bucket::new(rate.per_second, rate.burst)))) }
    }

    fn lock(&self) -> MutexGuard<'_, (Rate, Bucket)> {
        self.state.lock()
    }

    /// Changes the rate. Requests that are already waiting keep their turn.
    pub fn set(&self, rate: Rate) {
        let mut state = self.lock();
        if state.0 != rate {
            *state = (rate, Bucket::new(rate.per_second, rate.burst));
        }
    }

    /// Takes a token and returns how long to wait for it.
    pub fn reserve(&self) -> Duration {
        self.lock().1.reserve(self.clock.elapsed())
    }
}

/// Requests by status code, host and method.
type Counts = BTreeMap<(String, String, String), u64>;

/// Counts requests by method and response.
#[derive(Clone, Default)]
pub struct RequestCounter {
    counts: Arc<Mutex<Counts>>,
}

impl RequestCounter {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock()
    }

    fn count(&self, code: String, host: &str, method: &str) {
        *self.lock().entry((code, host.to_owned(), method.to_owned())).or_default() += 1;
    }

    pub fn total(&self) -> u64 {
        self.lock().values().sum()
    }

    pub fn write(&self, out: &mut Exposition) {
        let name = "rest_client_requests_total";
        out.family(name, "counter", "Requests to the API server by code, host and method");
        for ((code, host, method), count) in self.lock().iter() {
            out.sample(name, &[("code", code), ("host", host), ("method", method)], count);
        }
    }
}

/// Creates a client for the server in `config`. All requests are limited and counted: reads, writes, the start of
/// watches, events.
pub fn client(config: Config, limit: RateLimit, counter: RequestCounter) -> Result<Client, kube::Error> {
    let layer = Meter { limit, counter, host: config.cluster_url.authority().map(ToString::to_string) };
    Ok(ClientBuilder::try_from(config)?.with_layer(&layer).build())
}

/// Applies the limit and the counter to a client's requests.
pub(crate) struct Meter {
    pub(crate) limit: RateLimit,
    pub(crate) counter: RequestCounter,
    pub(crate) host: Option<String>,
}

impl<S> Layer<S> for Meter {
    type Service = Metered<S>;

    fn layer(&self, inner: S) -> Metered<S> {
        let host = self.host.clone().unwrap_or_default().into();
        Metered { inner, limit: self.limit.clone(), counter: self.counter.clone(), host }
    }
}

pub(crate) struct Metered<S> {
    inner: S,
    limit: RateLimit,
    counter: RequestCounter,
    host: Arc<str>,
}

impl<S, B> Service<Request<Body>> for Metered<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Send,
    B: Send,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<B>, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (counter, host, method) = (self.counter.clone(), self.host.clone(), request.method().clone());
        let (clock, wait) = (self.limit.clock.clone(), self.limit.reserve());
        // The request is not sent before the future is first polled.
        let answer = self.inner.call(request);
        async move {
            if !wait.is_zero() {
                clock.sleep(wait).await;
            }
            let answer = answer.await;
            let code =
                answer.as_ref().map_or_else(|_| "<error>".to_owned(), |answer| answer.status().as_str().to_owned());
            counter.count(code, &host, method.as_str());
            answer
        }
        .boxed()
    }
}
