//! `ferrovirt csi` as a process: it serves, stops, and says what is wrong with its flags.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use test_support::until;

const LIMIT: Duration = Duration::from_secs(30);

fn command(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferrovirt"));
    let endpoint = format!("unix://{}", home.join("csi.sock").display());
    command.args(["csi", "--endpoint", &endpoint, "--pool"]).arg(home.join("pool"));
    command.arg("--kubelet-dir").arg(home.join("kubelet")).env_remove("NODE_NAME").stdin(Stdio::null());
    command
}

fn home() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(home.path().join("pool")).unwrap();
    std::fs::create_dir_all(home.path().join("kubelet/plugins_registry")).unwrap();
    home
}

fn terminate(child: Child) -> Output {
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn the_driver_serves_until_it_is_told_to_stop_and_after_a_kill() {
    if !rustix::process::geteuid().is_root() {
        return test_support::skip("ferrovirt csi needs root");
    }
    let home = home();
    let registration = home.path().join("kubelet/plugins_registry/csi.ferrovirt.io-reg.sock");
    let start = || command(home.path()).args(["--node-id", "node-1"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut killed = start();
    until(LIMIT, "the registration", || registration.exists());
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(registration.exists(), "nobody has removed it");
    let child = start();
    until(LIMIT, "the pool", || home.path().join("pool/pool.json").exists());
    std::thread::sleep(Duration::from_millis(500));
    let output = terminate(child);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("Pods keep their volumes"), "{said}");
    assert!(!registration.exists() && !home.path().join("csi.sock").exists(), "{said}");
}

#[test]
fn wrong_flags_of_the_driver_are_explained() {
    let home = home();
    let complaint = |arguments: &[&str]| {
        let output = command(home.path()).args(arguments).output().unwrap();
        assert!(!output.status.success(), "{arguments:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for (arguments, expected) in [
        (&[][..], "--node-id <NAME>"),
        (&["--node-id", "a/b"], "cannot be the value of a label"),
        (&["--node-id", "n", "--driver-name", "A"], "is not a domain name"),
        (&["--node-id", "n", "--no-register", "--kubelet-endpoint", "/x"], "cannot be used with"),
    ] {
        let said = complaint(arguments);
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
    std::fs::remove_dir(home.path().join("pool")).unwrap();
    let said = complaint(&["--node-id", "n"]);
    assert!(said.contains("--pool") && said.contains("not an absolute path of an existing directory"), "{said}");
}
