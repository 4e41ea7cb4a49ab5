//! Our definitions before the judge they are written for: a real kube-apiserver, and kubectl.
//!
//! All tests share one control plane, which goes away with the last of them.

mod cluster;
mod definitions;
mod install;
mod kubectl;
mod nodes;
mod parity;
mod pods;
mod rights;
mod schema;

use std::process::ExitCode;

use anyhow::Result;
use libtest_mimic::{Arguments, Failed, Trial};

use cluster::Cluster;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut skipped = false;
    if !arguments.list {
        match peers::build_or_skip("kube", "nothing is judged by a real kube-apiserver") {
            Ok(Some(programs)) => cluster::use_programs(programs),
            Ok(None) => skipped = true,
            Err(reason) => {
                eprintln!("there is no kube-apiserver to judge us: {reason}");
                return ExitCode::FAILURE;
            }
        }
    }
    let trials = [
        definitions::trials(),
        install::trials(),
        kubectl::trials(),
        nodes::trials(),
        parity::trials(),
        pods::trials(),
        rights::trials(),
        schema::trials(),
    ]
    .into_iter()
    .flatten();
    let trials = trials.map(|trial| trial.with_ignored_flag(skipped)).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    cluster::take_away();
    conclusion.exit_code()
}

/// A test that talks to the cluster all share.
fn trial(name: &'static str, body: impl AsyncFnOnce(&Cluster) -> Result<()> + Send + 'static) -> Trial {
    let run = move || {
        let cluster = cluster::cluster()?;
        cluster::runtime().block_on(body(&cluster))
    };
    Trial::test(name, move || run().map_err(|err: anyhow::Error| Failed::from(format!("{err:#}"))))
}
