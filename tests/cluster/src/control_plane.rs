//! etcd, kube-apiserver, kube-controller-manager and kube-scheduler, in the network namespace of the control plane.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use control_plane::Process;

use crate::address::{HUB, SERVICES};
use crate::home::Home;
use crate::network::Hub;
use crate::options::Options;
use crate::pki::{FRONT_PROXY, Pki};

const ETCD: &str = "http://127.0.0.1:2379";
const ETCD_PEERS: &str = "http://127.0.0.1:2380";

/// The running programs. They end with this value.
pub(crate) struct ControlPlane {
    processes: Vec<Process>,
}

impl ControlPlane {
    /// Starts etcd and kube-apiserver, which waits for it.
    pub(crate) fn start(options: &Options, home: &Home, hub: &Hub, pki: &Pki, port: u16) -> Result<ControlPlane> {
        let programs = &options.programs.kube;
        let mut started = ControlPlane { processes: Vec::new() };
        started.add("etcd", etcd(programs, &home.path().join("etcd")), home, hub)?;
        started.add("kube-apiserver", apiserver(programs, pki, port, &options.apiserver_flags), home, hub)?;
        Ok(started)
    }

    /// Starts the rest. These programs end if the API server is not ready for them.
    pub(crate) fn complete(&mut self, options: &Options, home: &Home, hub: &Hub, pki: &Pki) -> Result<()> {
        let programs = &options.programs.kube;
        self.add("kube-controller-manager", controller_manager(programs, pki, options)?, home, hub)?;
        self.add("kube-scheduler", scheduler(programs, pki)?, home, hub)
    }

    fn add(&mut self, name: &'static str, mut command: Command, home: &Home, hub: &Hub) -> Result<()> {
        command.env_clear();
        hub.netns.enter(&mut command)?;
        self.processes.push(Process::start(name, command, &home.log())?);
        Ok(())
    }

    /// An error with the end of the log if a program is no longer there.
    pub(crate) fn check(&self) -> Result<()> {
        self.processes.iter().try_for_each(Process::check)
    }

    pub(crate) fn pids(&self) -> Vec<i32> {
        self.processes.iter().map(Process::pid).collect()
    }
}

fn etcd(programs: &Path, data: &Path) -> Command {
    let mut command = Command::new(programs.join("etcd"));
    command.arg("--name=test").arg(file("data-dir", data));
    command.args([
        format!("--listen-client-urls={ETCD}"),
        format!("--advertise-client-urls={ETCD}"),
        format!("--listen-peer-urls={ETCD_PEERS}"),
        format!("--initial-advertise-peer-urls={ETCD_PEERS}"),
        format!("--initial-cluster=test={ETCD_PEERS}"),
    ]);
    // The data need not survive the machine.
    command.args(["--unsafe-no-fsync", "--log-level=warn"]);
    command
}

fn apiserver(programs: &Path, pki: &Pki, port: u16, further: &[String]) -> Command {
    let mut command = Command::new(programs.join("kube-apiserver"));
    command.args([
        format!("--etcd-servers={ETCD}"),
        format!("--secure-port={port}"),
        format!("--advertise-address={HUB}"),
        format!("--service-cluster-ip-range={SERVICES}"),
    ]);
    command.args([
        file("tls-cert-file", &pki.apiserver.public),
        file("tls-private-key-file", &pki.apiserver.key),
        file("client-ca-file", &pki.ca.public),
        file("kubelet-client-certificate", &pki.kubelet_client.public),
        file("kubelet-client-key", &pki.kubelet_client.key),
        file("kubelet-certificate-authority", &pki.ca.public),
        file("service-account-key-file", &pki.tokens.public),
        file("service-account-signing-key-file", &pki.tokens.key),
        file("requestheader-client-ca-file", &pki.front_proxy_ca.public),
        file("proxy-client-cert-file", &pki.front_proxy.public),
        file("proxy-client-key-file", &pki.front_proxy.key),
    ]);
    command.arg(format!("--requestheader-allowed-names={FRONT_PROXY}"));
    command.args([
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        // Webhooks and aggregated APIs are Pods, which the control plane has routes to. It has none to Services.
        "--enable-aggregator-routing=true",
        "--kubelet-preferred-address-types=InternalIP",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        "--profiling=false",
    ]);
    command.args(further);
    command
}

fn controller_manager(programs: &Path, pki: &Pki, options: &Options) -> Result<Command> {
    let mut command = client(programs, "kube-controller-manager", &pki.user_file("system:kube-controller-manager")?);
    command.args([
        file("service-account-private-key-file", &pki.tokens.key),
        file("root-ca-file", &pki.ca.public),
        file("cluster-signing-cert-file", &pki.ca.public),
        file("cluster-signing-key-file", &pki.ca.key),
    ]);
    command.args([
        "--use-service-account-credentials",
        "--allocate-node-cidrs=false",
        // With the usual 20 requests a second, five seconds pass before the first Pod is made.
        "--kube-api-qps=200",
        "--kube-api-burst=400",
        "--node-monitor-period=2s",
    ]);
    command.arg(format!("--node-monitor-grace-period={}s", options.grace.as_secs()));
    Ok(command)
}

fn scheduler(programs: &Path, pki: &Pki) -> Result<Command> {
    Ok(client(programs, "kube-scheduler", &pki.user_file("system:kube-scheduler")?))
}

/// A program that is alone in its role.
fn client(programs: &Path, name: &str, kubeconfig: &Path) -> Command {
    let mut command = Command::new(programs.join(name));
    for flag in ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"] {
        command.arg(file(flag, kubeconfig));
    }
    command.args(["--bind-address=127.0.0.1", "--leader-elect=false", "--profiling=false"]);
    command
}

fn file(flag: &str, path: &Path) -> OsString {
    let mut text = OsString::from(format!("--{flag}="));
    text.push(path);
    text
}
