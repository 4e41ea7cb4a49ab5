//! The whole chain with real parts: QEMU, libvirt, netlink, nftables, and real processes killed for real.
//!
//! Scenarios of one group share a cluster and run one after another: the machine is small. Each group takes its cluster
//! away again, also when a scenario failed; the last check is that nothing is left.

mod faults;
mod guests;
mod lifecycle;
mod migrations;
mod refusals;

use std::process::ExitCode;
use std::sync::OnceLock;

use anyhow::Result;
use libtest_mimic::{Arguments, Failed, Trial};
use tokio::runtime::Runtime;

fn main() -> ExitCode {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let mut arguments = Arguments::from_args();
    // Guests under emulation take both cores of a small machine: two at once would time each other out.
    arguments.test_threads = Some(1);
    if !rustix::process::geteuid().is_root() {
        eprintln!("the end-to-end tests are skipped: they need root for namespaces, mounts and cgroups");
        return ExitCode::SUCCESS;
    }
    let mut trials = refusals::trials();
    trials.extend(guests::trials());
    trials.extend(migrations::trials());
    trials.extend(lifecycle::trials());
    trials.extend(faults::trials());
    let conclusion = libtest_mimic::run(&arguments, trials);
    guests::take_away();
    migrations::take_away();
    conclusion.exit_code()
}

/// A trial whose body is asynchronous.
fn trial<F>(name: impl Into<String>, body: impl FnOnce() -> F + Send + 'static) -> Trial
where
    F: Future<Output = Result<()>>,
{
    Trial::test(name, move || {
        runtime().block_on(body()).map_err(|err| {
            // Where it happened, too: the list of failures at the end may be cut off from what led to them.
            println!("{err:#}");
            Failed::from(format!("{err:#}"))
        })
    })
}

/// One runtime for all: clients and children outlive a scenario.
fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Runtime::new().expect("a runtime can be made"))
}
