//! virt-api before the clients it is written for: kube-apiserver, and kubectl behind it. The last tests take the
//! installation apart.

mod installation;
mod scenarios;

use std::process::ExitCode;

use installation::Installation;

fn main() -> ExitCode {
    let untested = "virt-api is not called by a real kube-apiserver";
    control_plane::installed::run(untested, Installation::start, scenarios::all())
}
