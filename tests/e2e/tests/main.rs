//! The whole chain with real parts: QEMU, libvirt, netlink, nftables, and real processes killed for real.
//!
//! Scenarios of one group share a cluster and run one after another. Each group takes its cluster away again, also when a
//! scenario failed; the last check is that nothing is left. `cargo xtask test` runs two lanes of groups at a time.

mod faults;
mod guests;
mod lifecycle;
mod migrations;
mod refusals;
mod waiting;

use std::process::ExitCode;
use std::sync::OnceLock;

use anyhow::Result;
use libtest_mimic::{Arguments, Failed, Trial};
use tokio::runtime::Runtime;

/// A lane's scenarios.
type Lane = (&'static str, fn() -> Vec<Trial>);

/// Lanes can run side by side, each in a process of its own with `FERROVIRT_E2E_LANE`: they share neither a cluster nor
/// the name of a guest nor a setting of the machine. The last one must run alone, since it looks at the whole machine.
const LANES: [Lane; 4] = [
    ("moves", migrations::trials),
    ("guests", || {
        [refusals::trials(), guests::trials(), waiting::trials(), faults::trials()].into_iter().flatten().collect()
    }),
    ("struck", migrations::struck),
    ("alone", lifecycle::trials),
];

fn main() -> ExitCode {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let mut arguments = Arguments::from_args();
    // Scenarios of a group share its cluster, so a second thread would only wait for the first.
    arguments.test_threads = Some(1);
    if !rustix::process::geteuid().is_root() {
        eprintln!("the end-to-end tests are skipped: they need root for namespaces, mounts and cgroups");
        return ExitCode::SUCCESS;
    }
    let lane = std::env::var("FERROVIRT_E2E_LANE").ok();
    let wanted = |name: &str| lane.as_deref().is_none_or(|lane| lane == name);
    let lanes = LANES.iter().filter(|(name, _)| wanted(name));
    let trials: Vec<Trial> = lanes.flat_map(|(_, trials)| trials()).collect();
    if trials.is_empty() {
        let names = LANES.map(|(name, _)| name).join(", ");
        eprintln!("FERROVIRT_E2E_LANE is {lane:?}, and the lanes are {names}");
        return ExitCode::FAILURE;
    }
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
    let name = name.into();
    Trial::test(name.clone(), move || {
        let begun = std::time::Instant::now();
        let result = runtime().block_on(body());
        println!("{name} took {:.1} s", begun.elapsed().as_secs_f64());
        result.map_err(|err| {
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
