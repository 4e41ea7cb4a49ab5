//! etcd and kube-apiserver, started together; on demand the programs that act on what is in them.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use kube::{Client, Config};
use serde_json::json;

use crate::keeper::Process;
use crate::pki::{FRONT_PROXY, Pki};
use crate::workdir::Workdir;

/// How long a busy machine may take. A free one is ready in a few seconds.
const PATIENCE: Duration = Duration::from_secs(90);

/// How often ports are drawn: between drawing and listening another process may take one.
const DRAWS: usize = 3;

/// Controllers of Kubernetes that would take fake nodes for dead ones: nobody renews the leases of these.
const CONTROLLERS_OF_NODES: &str = "-node-lifecycle-controller,-taint-eviction-controller";

/// What of each request is written to the audit log: who asked for what, and what service accounts write.
const AUDIT_POLICY: &str = r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
  "rules": [
    {"level": "Request", "userGroups": ["system:serviceaccounts"], "verbs": ["create", "update", "patch"]},
    {"level": "Metadata"}]}"#;

const AUDIT_LOG: &str = "audit.log";
const CONTROLLER_KUBECONFIG: &str = "controller.kubeconfig";

/// An API server with its store. By itself there is nothing that acts on what is in it: no controllers, no scheduler, no
/// nodes. Its user is an administrator.
pub struct ControlPlane {
    // In this order they go: the directory last.
    scheduler: Option<Process>,
    controller_manager: Option<Process>,
    apiserver: Process,
    etcd: Process,
    /// The port etcd serves clients on.
    clients: u16,
    config: Config,
    kubeconfig: PathBuf,
    controller_kubeconfig: PathBuf,
    programs: PathBuf,
    pki: Pki,
    /// The port requests are answered on.
    secure: u16,
    workdir: Workdir,
}

impl ControlPlane {
    /// Starts etcd and kube-apiserver from a folder of programs, and waits until requests are answered.
    pub async fn start(programs: &Path) -> Result<ControlPlane> {
        Self::start_either(programs, false).await
    }

    /// The same, with a server that keeps an [`audit_log`](Self::audit_log).
    pub async fn start_audited(programs: &Path) -> Result<ControlPlane> {
        Self::start_either(programs, true).await
    }

    async fn start_either(programs: &Path, audited: bool) -> Result<ControlPlane> {
        // Kubernetes' client asks for a provider of cryptography; a caller may have set one.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let mut draw = 1;
        loop {
            match Self::start_on(free_ports()?, programs, audited).await {
                Err(err) if draw < DRAWS && format!("{err:#}").contains("address already in use") => draw += 1,
                result => return result,
            }
        }
    }

    async fn start_on([clients, peers, secure]: [u16; 3], programs: &Path, audited: bool) -> Result<ControlPlane> {
        let workdir = Workdir::new()?;
        let folder = workdir.path();
        let pki = Pki::new(folder)?;
        let etcd = Process::start("etcd", etcd(programs, folder, clients, peers), folder)?;
        let mut apiserver = apiserver(programs, folder, &pki, clients, secure);
        if audited {
            let policy = folder.join("audit-policy.json");
            fs::write(&policy, AUDIT_POLICY).with_context(|| format!("cannot write {}", policy.display()))?;
            apiserver.args([flag("audit-policy-file", &policy), flag("audit-log-path", &folder.join(AUDIT_LOG))]);
        }
        let apiserver = Process::start("kube-apiserver", apiserver, folder)?;
        let [kubeconfig, controller_kubeconfig] =
            [("kubeconfig", &pki.admin), (CONTROLLER_KUBECONFIG, &pki.controller)]
                .map(|(name, user)| (folder.join(name), pki.kubeconfig(secure, user)))
                .map(|(path, text)| {
                    fs::write(&path, text.to_string()).with_context(|| format!("cannot write {}", path.display()))?;
                    anyhow::Ok(path)
                });
        let (kubeconfig, controller_kubeconfig) = (kubeconfig?, controller_kubeconfig?);
        let config = pki.client_config(secure).await?;
        let (scheduler, controller_manager, programs) = (None, None, programs.to_owned());
        let started = ControlPlane {
            scheduler,
            controller_manager,
            apiserver,
            etcd,
            clients,
            config,
            kubeconfig,
            controller_kubeconfig,
            programs,
            pki,
            secure,
            workdir,
        };
        started.wait_until_ready().await?;
        Ok(started)
    }

    /// Adds kube-scheduler, which begins with Pods that wait for a node as soon as it is up.
    pub fn with_scheduler(mut self) -> Result<ControlPlane> {
        let command = self.client_program("kube-scheduler");
        self.scheduler = Some(Process::start("kube-scheduler", command, self.workdir.path())?);
        Ok(self)
    }

    /// Adds kube-controller-manager: garbage collection, the end of namespaces, quotas and whatever else Kubernetes'
    /// controllers do; but for those that watch over the health of nodes.
    pub fn with_controller_manager(mut self) -> Result<ControlPlane> {
        let mut command = self.client_program("kube-controller-manager");
        command.arg(format!("--controllers=*,{CONTROLLERS_OF_NODES}"));
        command.arg(flag("service-account-private-key-file", &self.pki.tokens.key));
        self.controller_manager = Some(Process::start("kube-controller-manager", command, self.workdir.path())?);
        Ok(self)
    }

    /// A program of Kubernetes that is an administrator of the server, alone in its role, and serves nothing itself.
    fn client_program(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        command.env_clear().arg(flag("kubeconfig", &self.kubeconfig));
        command.args(["--leader-elect=false", "--secure-port=0", "--profiling=false"]);
        // The server does not make clients wait, so they need not make themselves wait.
        command.args(["--kube-api-qps=1000", "--kube-api-burst=2000"]);
        command
    }

    /// An error with the end of the log if one of the processes is no longer there.
    pub fn check(&self) -> Result<()> {
        let optional = [&self.scheduler, &self.controller_manager].into_iter().flatten();
        [&self.etcd, &self.apiserver].into_iter().chain(optional).try_for_each(Process::check)
    }

    async fn wait_until_ready(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let client = self.client()?;
        loop {
            self.check()?;
            // The namespace is made after the server calls itself ready.
            let (ready, default) = (get(&client, "/readyz").await, get(&client, "/api/v1/namespaces/default").await);
            match ready.and(default) {
                Ok(()) => return Ok(()),
                Err(err) if Instant::now() > deadline => {
                    let logs = [&self.apiserver, &self.etcd].map(|process| process.tail()).concat();
                    bail!("kube-apiserver is not ready after {} s: {err}{logs}", PATIENCE.as_secs());
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// A new client for the calling runtime.
    pub fn client(&self) -> Result<Client> {
        Client::try_from(self.config.clone()).context("cannot make a client of kube-apiserver")
    }

    /// How a client of a user reaches the server who may do what roles say.
    pub async fn config_of(&self, user: &str, group: &str) -> Result<Config> {
        self.pki.client_config_of(self.secure, &self.pki.user(user, group)?).await
    }

    /// The file by which any Kubernetes client reaches the server.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The same for the user [`CONTROLLER`](crate::CONTROLLER), whose requests can be told from those of tests.
    pub fn controller_kubeconfig(&self) -> &Path {
        &self.controller_kubeconfig
    }

    /// What every client asked of an audited server so far: a line of JSON for each request, once it is answered.
    pub fn audit_log(&self) -> PathBuf {
        self.workdir.path().join(AUDIT_LOG)
    }

    /// A place for what a test keeps; it goes with the control plane.
    pub fn folder(&self) -> &Path {
        self.workdir.path()
    }

    /// kubectl, pointed at the server. It keeps what it caches in the directory of the control plane.
    pub fn kubectl(&self) -> Command {
        let mut kubectl = Command::new(self.programs.join("kubectl"));
        kubectl.env("KUBECONFIG", &self.kubeconfig).env("HOME", self.workdir.path());
        kubectl
    }

    /// Puts an object into the store behind the server's back: one that an older release let in and this one would refuse.
    pub fn put_into_etcd(&self, key: &str, object: &serde_json::Value) -> Result<()> {
        let encode = |text: &str| BASE64_STANDARD.encode(text);
        let answer = self.ask_etcd("put", &json!({ "key": encode(key), "value": encode(&object.to_string()) }))?;
        match answer.lines().next() {
            Some(status) if status.contains(" 200 ") => Ok(()),
            _ => bail!("etcd does not take {key}: {answer}{}", self.etcd.tail()),
        }
    }

    /// Makes the store forget all versions of all objects but the last, and the server with it, which is started anew.
    /// Connections break; the server is as it was otherwise, but keeps no audit log any more.
    pub async fn forget_old_versions(&mut self) -> Result<()> {
        let answer = self.ask_etcd("range", &json!({ "key": BASE64_STANDARD.encode("x"), "limit": 1 }))?;
        let revision = answer.split("\"revision\":\"").nth(1).and_then(|rest| rest.split('"').next());
        let revision = revision.with_context(|| format!("etcd does not tell its revision: {answer}"))?;
        let answer = self.ask_etcd("compaction", &json!({ "revision": revision }))?;
        ensure!(answer.contains(" 200 "), "etcd does not forget: {answer}{}", self.etcd.tail());
        let folder = self.workdir.path();
        let command = apiserver(&self.programs, folder, &self.pki, self.clients, self.secure);
        self.apiserver.end();
        self.apiserver = Process::start("kube-apiserver", command, folder)?;
        self.wait_until_ready().await
    }

    /// What etcd's gateway answers, head and body.
    fn ask_etcd(&self, what: &str, question: &serde_json::Value) -> Result<String> {
        let body = question.to_string();
        let head = format!("POST /v3/kv/{what} HTTP/1.0\r\nContent-Length: {}\r\n\r\n", body.len());
        let mut answer = String::new();
        TcpStream::connect((Ipv4Addr::LOCALHOST, self.clients))
            .and_then(|mut etcd| {
                etcd.write_all(format!("{head}{body}").as_bytes())?;
                etcd.read_to_string(&mut answer)
            })
            .context("cannot speak to etcd")?;
        Ok(answer)
    }
}

async fn get(client: &Client, path: &str) -> Result<()> {
    let request = http::Request::get(path).body(Vec::new()).context("cannot make a request")?;
    // What goes unanswered for so long is asked anew.
    let answer = tokio::time::timeout(Duration::from_secs(5), client.request_text(request)).await;
    answer.with_context(|| format!("{path} is not answered"))?.map(drop).with_context(|| format!("{path} is refused"))
}

/// Ports nobody listens on, drawn together so that they differ.
fn free_ports<const COUNT: usize>() -> Result<[u16; COUNT]> {
    let mut listeners = Vec::new();
    let mut ports = [0; COUNT];
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot find a free port on loopback")?;
        *port = listener.local_addr().context("cannot tell which port is free")?.port();
        listeners.push(listener);
    }
    Ok(ports)
}

fn etcd(programs: &Path, folder: &Path, clients: u16, peers: u16) -> Command {
    let (clients, peers) = (format!("http://127.0.0.1:{clients}"), format!("http://127.0.0.1:{peers}"));
    let mut command = Command::new(programs.join("etcd"));
    command.env_clear();
    command.arg("--name=test").arg(flag("data-dir", &folder.join("etcd")));
    command.args([
        format!("--listen-client-urls={clients}"),
        format!("--advertise-client-urls={clients}"),
        format!("--listen-peer-urls={peers}"),
        format!("--initial-advertise-peer-urls={peers}"),
        format!("--initial-cluster=test={peers}"),
    ]);
    // The data need not survive the machine, and a lone member need not wait for others before it leads.
    command.args(["--unsafe-no-fsync", "--heartbeat-interval=50", "--election-timeout=250", "--log-level=warn"]);
    command
}

fn apiserver(programs: &Path, folder: &Path, pki: &Pki, etcd: u16, secure: u16) -> Command {
    let mut command = Command::new(programs.join("kube-apiserver"));
    command.env_clear();
    command.args([format!("--etcd-servers=http://127.0.0.1:{etcd}"), format!("--secure-port={secure}")]);
    command.args([
        flag("cert-dir", folder),
        flag("tls-cert-file", &pki.server.public),
        flag("tls-private-key-file", &pki.server.key),
        flag("client-ca-file", &pki.ca),
        flag("service-account-key-file", &pki.tokens.public),
        flag("service-account-signing-key-file", &pki.tokens.key),
        flag("requestheader-client-ca-file", &pki.front_ca),
        flag("proxy-client-cert-file", &pki.front_proxy.public),
        flag("proxy-client-key-file", &pki.front_proxy.key),
    ]);
    command.args([
        &format!("--requestheader-allowed-names={FRONT_PROXY}"),
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
    ]);
    command.args([
        "--bind-address=127.0.0.1",
        // The address is published in the endpoints of a service, where loopback is not allowed; no Pod needs them.
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",
        "--service-cluster-ip-range=10.96.0.0/24",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--authorization-mode=RBAC",
        // It would wait for accounts and tokens that a controller makes.
        "--disable-admission-plugins=ServiceAccount",
        // OpenShift has it; Kubernetes leaves it to the administrator.
        "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
        "--allow-privileged",
        // Tests are one client that asks as much as it can.
        "--enable-priority-and-fairness=false",
        "--max-requests-inflight=0",
        "--max-mutating-requests-inflight=0",
        "--profiling=false",
    ]);
    command
}

fn flag(name: &str, path: &Path) -> std::ffi::OsString {
    let mut flag = std::ffi::OsString::from(format!("--{name}="));
    flag.push(path);
    flag
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn drawn_ports_differ() {
        // Whether they stay free is up to the machine; a start on one that did not draws again.
        let ports: HashSet<u16> = free_ports::<8>().unwrap().into_iter().collect();
        assert_eq!(ports.len(), 8);
        assert!(!ports.contains(&0));
    }
}
