use std::time::Duration;

use http::{Request, Response};
use kube::client::{Body, ClientBuilder};
use tokio::time::Instant;

use crate::Clock;
use crate::client::{Meter, Rate, RateLimit, RequestCounter};
use crate::metrics::Exposition;

fn client(limit: &RateLimit, counter: &RequestCounter) -> kube::Client {
    let answers = tower::service_fn(|request: Request<Body>| async move {
        let code = if request.uri().path() == "/gone" { 404 } else { 200 };
        Ok::<_, tower::BoxError>(Response::builder().status(code).body(Body::from(b"{}".to_vec()))?)
    });
    let meter = Meter { limit: limit.clone(), counter: counter.clone(), host: Some("10.0.0.1:6443".into()) };
    ClientBuilder::new(answers, "default").with_layer(&meter).build()
}

async fn ask(client: &kube::Client, path: &str) {
    let request = Request::get(path).body(Body::empty()).unwrap();
    client.send(request).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn requests_beyond_the_burst_wait_for_their_turn_and_the_rate_can_change() {
    let limit = RateLimit::new(Rate { per_second: 10.0, burst: 5.0 }, Clock::system());
    let client = client(&limit, &RequestCounter::default());
    let start = Instant::now();
    for _ in 0..25 {
        ask(&client, "/").await;
    }
    assert_eq!(start.elapsed().as_secs(), 2, "five at once, twenty at ten a second");
    limit.set(Rate { per_second: 1000.0, burst: 100.0 });
    let start = Instant::now();
    for _ in 0..100 {
        ask(&client, "/").await;
    }
    assert!(start.elapsed() < Duration::from_millis(10), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn requests_are_counted_by_method_and_answer() {
    let counter = RequestCounter::default();
    let client = client(&RateLimit::new(Rate::CONTROLLER, Clock::system()), &counter);
    for path in ["/", "/", "/gone"] {
        ask(&client, path).await;
    }
    assert_eq!(counter.total(), 3);
    let mut out = Exposition::default();
    counter.write(&mut out);
    let text = out.into_text();
    for line in [
        "rest_client_requests_total{code=\"200\",host=\"10.0.0.1:6443\",method=\"GET\"} 2",
        "rest_client_requests_total{code=\"404\",host=\"10.0.0.1:6443\",method=\"GET\"} 1",
    ] {
        assert!(text.lines().any(|other| other == line), "no line {line:?} in\n{text}");
    }
}
