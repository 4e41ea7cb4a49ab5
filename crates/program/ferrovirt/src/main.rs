//! The one binary. Everything is in the library, so that the end-to-end tests can drive a cluster with the same parts.

use std::process::ExitCode;

fn main() -> ExitCode {
    ferrovirt::main(std::env::args_os().collect())
}
