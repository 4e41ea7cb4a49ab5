//! The real controllers on two servers: ours, and Kubernetes' own with its scheduler and controllers.
//!
//! Every scenario is run on both, in a namespace of its own; the scenarios of one server share it, and one run of the
//! controllers. What ends controllers on purpose has a server to itself.
//!
//! The controllers have no more rights than they declare. When the scenarios are over, kube-apiserver's audit log shows
//! what they asked for: a right that nobody used is an error like one that is missing.

#![allow(clippy::unwrap_used, reason = "the helpers of a test may panic like the test itself")]

mod agent;
mod cluster;
mod env;
mod faults;
mod scenarios;

use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use anyhow::Result;
use api::config::DEFAULT_INSTALL_NAMESPACE;
use control_plane::rights::{Account, Explained};
use libtest_mimic::{Arguments, Failed, Trial};
use tokio::runtime::Runtime;

use cluster::{Cluster, Kind, Server};

/// One runtime for all: connections outlive a test.
fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Runtime::new().expect("a runtime can be made"))
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init();
    let mut skipped = false;
    if !arguments.list {
        match peers::build_or_skip("kube", "no controller runs against a real kube-apiserver") {
            Ok(Some(programs)) => cluster::use_programs(programs),
            Ok(None) => skipped = true,
            Err(reason) => {
                eprintln!("there is no kube-apiserver to run against: {reason}");
                return ExitCode::FAILURE;
            }
        }
    }
    let mut trials = faults::trials();
    for kind in Kind::ALL {
        let ignored = skipped && *kind == Kind::Kube;
        trials.extend(scenarios::trials(*kind).into_iter().map(|trial| trial.with_ignored_flag(ignored)));
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    let all = conclusion.num_filtered_out == 0 && !conclusion.has_failed();
    let rights = Cluster::started(Kind::Kube).map(|cluster| audit_of(cluster, all));
    let audited = rights.map(|trial| libtest_mimic::run(&Arguments::default(), vec![trial]));
    Cluster::end_all();
    audited.filter(|audited| !conclusion.has_failed() && audited.has_failed()).unwrap_or(conclusion).exit_code()
}

/// Rights that no scenario can show in use, each with the reason.
const UNEXERCISED: Explained = &[(
    "create datavolumes/source.cdi.kubevirt.io",
    "the importer asks whether we may copy a volume; here are its kinds, and not the importer itself",
)];

/// What kube-apiserver has to say about the scenarios when they are over.
fn audit_of(cluster: Arc<Cluster>, all: bool) -> Trial {
    Trial::test("kube::the_controllers_use_every_right_and_ask_for_no_other", move || {
        cluster.stop_controllers();
        let Server::Kube(server) = &cluster.server else { return Ok(()) };
        let program = virt_controller::program(virt_controller::ALL);
        let account = Account { unexercised: UNEXERCISED, ..Account::of(&program, DEFAULT_INSTALL_NAMESPACE) };
        account.check(&server.audit_log(), all).map_err(|err| format!("{err:#}").into())
    })
}

/// A test whose body needs the runtime.
fn trial(name: String, body: impl AsyncFnOnce() -> Result<()> + Send + 'static) -> Trial {
    Trial::test(name, move || runtime().block_on(body()).map_err(|err| Failed::from(format!("{err:#}"))))
}
