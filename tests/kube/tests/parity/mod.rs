//! The embedded API server beside kube-apiserver: one script of requests, and the answers agree.
//!
//! `script.txt` has the requests and what kube-apiserver answers. Both servers are driven in step. Codes and reasons must
//! be those of the script; bodies and sequences of events must be the same but for names, times and versions that each
//! server draws, and for what `differences.rs` lists. `FERROVIRT_RECORD=1` writes kube-apiserver's answers into the
//! script.

mod answer;
mod differences;
mod script;
mod servers;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Failed, Trial};

use self::answer::{Answer, Difference};
use self::differences::DIFFERENCES;
use self::script::{Request, Script};
use self::servers::{Client, Embedded, Server};
use crate::cluster;

/// How long controllers may take to do what a request waits for.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn trials() -> Vec<Trial> {
    let run = || cluster::runtime().block_on(the_servers_agree());
    let run = move || run().map_err(|err: anyhow::Error| Failed::from(format!("{err:#}")));
    vec![Trial::test("the_embedded_server_answers_a_recorded_script_as_kube_apiserver_does", run)]
}

async fn the_servers_agree() -> Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/parity/script.txt");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut script = Script::parse(&text)?;
    ensure!(script.requests().count() >= 120, "the script has become short");
    let (plane, embedded) = tokio::try_join!(servers::kube(), Embedded::start())?;
    let (mut theirs, mut ours) = (Client::new(plane), Client::new(embedded));
    let (mut faults, mut hits) = (Vec::new(), vec![0; DIFFERENCES.len()]);
    let record = std::env::var_os("FERROVIRT_RECORD").is_some();
    for request in script.requests_mut() {
        let (expected, found) = tokio::try_join!(ask(&mut theirs, request), ask(&mut ours, request))
            .with_context(|| format!("- {}", request.title))?;
        if record {
            request.expected = expected.verdict();
        } else if request.expected != expected.verdict() {
            faults.push(format!("- {}: kube-apiserver answers {}", request.title, expected.verdict()));
        }
        for difference in answer::compare(&expected, &found) {
            match DIFFERENCES.iter().position(|known| known.covers(&request.title, &difference)) {
                Some(row) => hits[row] += 1,
                None => faults.push(told(request, &difference)),
            }
        }
    }
    if record {
        std::fs::write(&path, script.to_string()).with_context(|| format!("cannot write {}", path.display()))?;
    }
    for (known, _) in DIFFERENCES.iter().zip(&hits).filter(|(_, hits)| **hits == 0) {
        faults.push(format!("no answer differs like this any more: {known:?}"));
    }
    ours.server.stop().await;
    ensure!(faults.is_empty(), "{} disagreements:\n{}", faults.len(), faults.join("\n"));
    Ok(())
}

fn told(request: &Request, difference: &Difference) -> String {
    let Difference { place, theirs, ours } = difference;
    format!("- {}\n    {place}\n      kube-apiserver: {theirs}\n      embedded:       {ours}", request.title)
}

/// Sends a request, again and again if it waits for something.
async fn ask(client: &mut Client<impl Server>, request: &Request) -> Result<Answer> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = client.ask(request).await?;
        match request.until {
            Some(code) if answer.code != code && Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            _ => return Ok(answer),
        }
    }
}
