//! virt-operator on a control plane of its own. The last tests take the installation apart.

mod installation;
mod scenarios;

use std::process::ExitCode;

use installation::Installation;

fn main() -> ExitCode {
    let untested = "virt-operator does not meet a real kube-apiserver";
    control_plane::installed::run(untested, Installation::start, scenarios::all())
}
