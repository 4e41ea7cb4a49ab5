//! The importer on a real API server, with the real provisioner on a pool of its own and workers in processes of their own.
//! It needs root: the worker gives that up.

#![allow(clippy::unwrap_used, reason = "a test without the usual harness is a test nevertheless")]

mod clones;
mod cluster;
mod imports;
mod lifecycle;
mod server;
mod uploads;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

/// One test.
type Test = (&'static str, fn() -> futures::future::LocalBoxFuture<'static, ()>);

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next() {
        Some(first) if first == disk_images::SUBCOMMAND => return disk_images::main(args),
        Some(first) if first == cluster::IMPORTER => return cluster::importer(args.next().unwrap()),
        _ => {}
    }
    let arguments = Arguments::from_args();
    if !rustix::process::geteuid().is_root() {
        test_support::skip("the import worker needs root");
        return ExitCode::SUCCESS;
    }
    let groups = [imports::TESTS, uploads::TESTS, clones::TESTS, lifecycle::TESTS];
    let trials = groups.into_iter().flatten().map(|&(name, test)| {
        Trial::test(name, move || -> Result<(), Failed> {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            tokio::task::LocalSet::new().block_on(&runtime, test());
            runtime.shutdown_timeout(std::time::Duration::from_secs(5));
            Ok(())
        })
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}
