//! The worker as it ships, in processes of its own, before servers and images that mean harm. It needs root: it gives that up.

#![allow(clippy::unwrap_used, reason = "a test without the usual harness is a test nevertheless")]

mod formats;
mod harness;
mod hostile;
mod lifecycle;
mod registries;
mod server;
mod sources;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|first| first == disk_images::SUBCOMMAND) {
        return disk_images::main(args);
    }
    let arguments = Arguments::from_args();
    if !rustix::process::geteuid().is_root() {
        test_support::skip("the import worker needs root");
        return ExitCode::SUCCESS;
    }
    let groups = [formats::TESTS, sources::TESTS, hostile::TESTS, registries::TESTS, lifecycle::TESTS];
    let trials = groups.into_iter().flatten().map(|(name, test)| {
        Trial::test(*name, move || -> Result<(), Failed> {
            test();
            Ok(())
        })
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}
