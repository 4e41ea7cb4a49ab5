//! Tests of a program on a control plane of its own: they share one installation and run one after another.

use std::path::Path;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;
use tokio::runtime::Runtime;

/// How long anything may take that comes by itself.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// One test. `I` is the installation.
pub type Scenario<I> = fn(Arc<I>) -> Pin<Box<dyn Future<Output = Result<()>>>>;

/// Starts an installation with Kubernetes' programs and runs the scenarios on it, in their order. Without these programs
/// the scenarios are ignored, and `untested` says what that means.
///
/// After the scenarios `audited` looks at what was asked of the server; it is told whether all of them ran and passed.
pub fn run<I: Send + Sync + 'static>(
    untested: &str,
    start: impl AsyncFnOnce(&Path) -> Result<I>,
    scenarios: Vec<(&'static str, Scenario<I>)>,
    audited: impl FnOnce(&I, bool) -> Result<()> + Send + 'static,
) -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let ignored = |scenarios| libtest_mimic::run(&arguments, trials(None, scenarios)).exit_code();
    if arguments.list {
        return ignored(scenarios);
    }
    let programs = match peers::build_or_skip("kube", untested) {
        Ok(Some(programs)) => programs,
        Ok(None) => return ignored(scenarios),
        Err(reason) => {
            eprintln!("there is no kube-apiserver: {reason}");
            return ExitCode::FAILURE;
        }
    };
    let runtime = Arc::new(Runtime::new().expect("a runtime can be made"));
    let installation = match runtime.block_on(start(&programs)) {
        Ok(installation) => Arc::new(installation),
        Err(error) => {
            eprintln!("the installation cannot be started: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    let trials = trials(Some((runtime.clone(), installation.clone())), scenarios);
    let conclusion = libtest_mimic::run(&arguments, trials);
    let all = conclusion.num_filtered_out == 0 && !conclusion.has_failed();
    let audit = Trial::test("rights_are_declared_and_used", move || {
        audited(&installation, all).map_err(|error| Failed::from(format!("{error:#}")))
    });
    let audit = libtest_mimic::run(&Arguments::default(), vec![audit]);
    if conclusion.has_failed() { conclusion.exit_code() } else { audit.exit_code() }
}

/// Without an installation they are listed, and ignored.
fn trials<I: Send + Sync + 'static>(
    on: Option<(Arc<Runtime>, Arc<I>)>,
    scenarios: Vec<(&'static str, Scenario<I>)>,
) -> Vec<Trial> {
    let trial = |(name, scenario): (&'static str, Scenario<I>)| {
        let on = on.clone();
        let ignored = on.is_none();
        let run = move || match on {
            Some((runtime, on)) => runtime.block_on(scenario(on)).map_err(|error| Failed::from(format!("{error:#}"))),
            None => Err(Failed::from("there is no kube-apiserver")),
        };
        Trial::test(name, run).with_ignored_flag(ignored)
    };
    scenarios.into_iter().map(trial).collect()
}

/// Polls until there is an answer; the last reason why not goes into the error.
pub async fn wait<T>(what: &str, mut poll: impl AsyncFnMut() -> Result<Result<T, String>>) -> Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match poll().await? {
            Ok(found) => return Ok(found),
            Err(why) if Instant::now() > deadline => bail!("{what}: not within {PATIENCE:?}: {why}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// What a server answers.
#[derive(Debug)]
pub struct Answer {
    pub code: u16,
    pub warnings: Vec<String>,
    /// A text if it is not JSON.
    pub body: Value,
}

/// Sends a request. A patch is a merge patch, or an apply if the path names a field manager.
pub async fn ask(client: &Client, method: Method, path: &str, body: Option<&Value>) -> Result<Answer> {
    let kind = match (&method, path.contains("fieldManager=")) {
        (&Method::PATCH, true) => "application/apply-patch+yaml",
        (&Method::PATCH, false) => "application/merge-patch+json",
        _ => "application/json",
    };
    let body = body.map(Value::to_string).unwrap_or_default();
    let request = Request::builder().method(method).uri(path).header("content-type", kind);
    send(client, request.body(Body::from(body.into_bytes())).context("cannot make a request")?).await
}

/// Sends a request of the caller's own making.
pub async fn send(client: &Client, request: Request<Body>) -> Result<Answer> {
    let path = request.uri().path().to_owned();
    let response = client.send(request).await.with_context(|| format!("{path} is not answered"))?;
    let code = response.status().as_u16();
    let warnings = response.headers().get_all("warning").iter();
    let warnings = warnings.filter_map(|value| value.to_str().ok().map(str::to_owned)).collect();
    let bytes = response.into_body().collect_bytes().await.with_context(|| format!("{path} is cut short"))?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok(Answer { code, warnings, body: serde_json::from_str(&text).unwrap_or(Value::String(text)) })
}
