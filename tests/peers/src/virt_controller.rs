//! KubeVirt's own virt-controller, to be run beside ours.
//!
//! It needs an API server and etcd, and nothing else of a cluster. What has to be there before it starts:
//!
//! * all our CRDs: it waits without end for the caches of those it watches. Kinds of CDI are left out when their CRDs are;
//! * the namespace `kubevirt`, for its lease `virt-controller`;
//! * one object of kind KubeVirt in that namespace, from which it takes its configuration. Its status may be empty.
//!
//! What it does not get where there is no virt-api: a webhook that fills in VMIs. They have to be created as the webhook
//! would leave them, with all defaults, the finalizer `foregroundDeleteVirtualMachine` and `status.phase: Pending`.
//!
//! What it does then: it leads within a second (`GET https://127.0.0.1:PORT/leader` says `"leader": "true"` once its caches are
//! filled), creates launcher Pods whose names it draws, and moves VMIs to Scheduling, and to Scheduled once a Pod runs and is
//! ready. From there on virt-handler would take over. Its lease is named like ours: the two take turns on one API server, or
//! have one each. An old lease is waited for, 15 seconds, unless the host name in it is the same.
//!
//! Two more things to know. It complains of certificates below `/etc/virt-controller`, which only exports and backups use. And
//! it reloads its certificate at any change in the directory that holds it: a log file there makes it spin.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use rcgen::CertifiedKey;

/// The program's name in the set `kubevirt`: `build_or_skip("kubevirt/virt-controller", …)`.
pub const PROGRAM: &str = "virt-controller";

/// The namespace it works from.
pub const NAMESPACE: &str = "kubevirt";

/// Its command, from the folder that holds the program. It serves health and metrics by TLS on a port of loopback. The
/// certificate for that is made in a directory of its own below `workdir`; logs must not go into that one.
pub fn command(programs: &Path, kubeconfig: &Path, workdir: &Path, port: u16) -> Result<Command, String> {
    let folder = workdir.join("virt-controller-tls");
    let CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])
        .map_err(|err| format!("cannot make a certificate: {err}"))?;
    let (certificate, key) = (folder.join("tls.crt"), folder.join("tls.key"));
    fs::create_dir_all(&folder)
        .and_then(|()| fs::write(&certificate, cert.pem()))
        .and_then(|()| fs::write(&key, signing_key.serialize_pem()))
        .map_err(|err| format!("cannot keep a certificate in {}: {err}", folder.display()))?;

    let mut command = Command::new(programs.join(PROGRAM));
    command.env_clear().env("NAMESPACE", NAMESPACE).stdin(Stdio::null());
    command.arg("--kubeconfig").arg(kubeconfig);
    command.args(["--listen", "127.0.0.1", "--port", &port.to_string()]);
    command.arg("--prom-cert-file").arg(certificate).arg("--prom-key-file").arg(key);
    Ok(command)
}
