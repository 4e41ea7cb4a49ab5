//! Asks the API the same questions all the time, to tell afterwards how long it did not answer.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use http::Request;
use kube::Client;
use tokio::task::JoinHandle;

/// Pause between two requests of a kind.
const PAUSE: Duration = Duration::from_millis(100);
/// A request that is not answered by then was not answered.
const PATIENCE: Duration = Duration::from_secs(4);

/// A request that is made again and again.
#[derive(Clone, Debug)]
pub struct Question {
    pub what: &'static str,
    pub method: http::Method,
    pub path: String,
    pub body: Vec<u8>,
    /// An answer with this code is one, too: the one who was asked had to be reached to give it.
    pub refusal: Option<u16>,
}

impl Question {
    /// A GET of this path.
    pub fn get(what: &'static str, path: impl Into<String>) -> Self {
        Self { what, method: http::Method::GET, path: path.into(), body: Vec::new(), refusal: None }
    }

    /// A POST of this JSON to this path.
    pub fn post(what: &'static str, path: impl Into<String>, body: &serde_json::Value) -> Self {
        let body = body.to_string().into_bytes();
        Self { what, method: http::Method::POST, path: path.into(), body, refusal: None }
    }

    pub fn or_refused_with(self, code: u16) -> Self {
        Self { refusal: Some(code), ..self }
    }

    /// Asks once.
    pub async fn ask(&self, client: &Client) -> Result<(), String> {
        let request = Request::builder().method(&self.method).uri(&self.path);
        let request = request.header("content-type", "application/json").body(self.body.clone());
        let request = request.map_err(|err| err.to_string())?;
        match tokio::time::timeout(PATIENCE, client.request_text(request)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(kube::Error::Api(status))) if self.refusal == Some(status.code) => Ok(()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
        }
    }
}

/// Asks until it is told to stop.
#[derive(Debug)]
pub struct Lookout {
    tasks: Vec<JoinHandle<Record>>,
    stop: Arc<AtomicBool>,
}

/// How one kind of request fared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub what: &'static str,
    pub asked: usize,
    pub failed: usize,
    /// The longest time from one answer to the next.
    pub longest: Duration,
    /// When the longest one began, from the first request on, and the last failure in it.
    pub when: Duration,
    pub why: Option<String>,
}

impl Lookout {
    pub fn start(client: &Client, questions: Vec<Question>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let follow = |question: Question| tokio::spawn(follow(client.clone(), question, stop.clone()));
        Self { tasks: questions.into_iter().map(follow).collect(), stop: stop.clone() }
    }

    pub async fn finish(mut self) -> Result<Vec<Record>> {
        self.stop.store(true, Ordering::Relaxed);
        let mut records = Vec::new();
        for task in std::mem::take(&mut self.tasks) {
            records.push(task.await.context("a lookout panicked")?);
        }
        Ok(records)
    }
}

impl Drop for Lookout {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

async fn follow(client: Client, question: Question, stop: Arc<AtomicBool>) -> Record {
    let mut record = Record::new(question.what);
    let started = Instant::now();
    let (mut last, mut why) = (Duration::ZERO, None);
    while !stop.load(Ordering::Relaxed) {
        match question.ask(&client).await {
            Ok(()) => {
                record.answered(last, started.elapsed(), why.take());
                last = started.elapsed();
            }
            Err(error) => {
                record.failed += 1;
                why = Some(error);
            }
        }
        record.asked += 1;
        tokio::time::sleep(PAUSE).await;
    }
    record.answered(last, started.elapsed(), why);
    record
}

impl Record {
    fn new(what: &'static str) -> Self {
        Self { what, asked: 0, failed: 0, longest: Duration::ZERO, when: Duration::ZERO, why: None }
    }

    /// Between two answers lay these times, and perhaps failures.
    fn answered(&mut self, last: Duration, now: Duration, why: Option<String>) {
        let silence = now.saturating_sub(last);
        if silence > self.longest {
            (self.longest, self.when, self.why) = (silence, last, why);
        }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, asked, failed, longest, when, why } = self;
        let (longest, when) = (longest.as_secs_f64(), when.as_secs_f64());
        write!(
            f,
            "{what}: {failed} of {asked} requests failed; the longest time without an answer was {longest:.1} s"
        )?;
        write!(f, ", {when:.1} s after the first one")?;
        match why {
            Some(why) => write!(f, " ({why})"),
            None => Ok(()),
        }
    }
}
