//! Guests by the programs that people have, what only an installation on Kubernetes does, and nodes that are lost for a while.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use api::reasons;
use drive::{BOOT_LIMIT, Guest, LIMIT, poll};
use e2e::cluster::{Cluster, Component};
use e2e::kubernetes::Kubernetes;
use e2e::launchers::Lookout;
use e2e::manifest::Manifest;
use libtest_mimic::Trial;

use crate::guests::{cluster, the_only_qemu};
use crate::migrations::{movable, set_cordon};
use crate::{kubernetes, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("guest_is_reached_by_kubevirts_virtctl_over_forwarded_ports_and_vnc", reached_by_virtctl),
        kubernetes("guest_writes_its_console_to_the_log_of_its_pod", console_in_log),
        kubernetes("guest_lives_through_the_end_of_each_program_of_the_installation", programs_killed),
        kubernetes("guest_lives_through_restarts_of_the_kubelet_and_of_containerd", node_programs_killed),
        kubernetes("guest_on_a_node_that_is_lost_and_comes_back_goes_on", node_lost_and_back),
        kubernetes("guest_on_a_node_that_stays_lost_starts_elsewhere_once_that_is_known", node_stays_lost),
    ]
}

/// A program that ends with this value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill(); // one that has ended already needs none
        let _ = self.0.wait();
    }
}

/// KubeVirt's own virtctl in the background.
fn virtctl(cluster: &Cluster, args: &[&str]) -> Result<Option<Running>> {
    let Some(mut command) = e2e::upstream_virtctl(cluster.kubeconfig(), args)? else { return Ok(None) };
    command.stdin(Stdio::null());
    Ok(Some(Running(command.spawn().context("cannot start virtctl")?)))
}

fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// What a server at this port of the loopback says, after being told something.
fn answer(port: u16, told: &str, length: usize) -> Result<String, String> {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        stream.write_all(told.as_bytes())?;
        let mut said = vec![0; length];
        let count = stream.read(&mut said)?;
        Ok(String::from_utf8_lossy(&said[..count]).into_owned())
    };
    ask().map_err(|err| err.to_string())
}

async fn reached_by_virtctl() -> Result<()> {
    let cluster = cluster().await?;
    let guest = Guest::spawn(&cluster, Manifest::vm("forwarded", "Always").json()).await?;
    guest.wait_to_boot().await?;
    let port = free_port()?;
    let forwarded = format!("{port}:80");
    let Some(forward) = virtctl(&cluster, &["port-forward", "vm/forwarded", &forwarded])? else { return Ok(()) };
    poll("an answer over a forwarded port", LIMIT, || async {
        match answer(port, "GET /cgi-bin/tick HTTP/1.0\r\n\r\n", 200)? {
            said if said.starts_with("HTTP/1.") => Ok(()),
            said => Err(format!("it said {said:?}")),
        }
    })
    .await?;
    drop(forward);
    let port = free_port()?;
    let screen = virtctl(&cluster, &["vnc", "forwarded", "--proxy-only", "--port", &port.to_string()])?;
    poll("the greeting of a VNC server", LIMIT, || async {
        match answer(port, "", 12)? {
            said if said.starts_with("RFB 003.") => Ok(()),
            said => Err(format!("it said {said:?}")),
        }
    })
    .await?;
    drop(screen);
    guest.delete().await
}

async fn console_in_log() -> Result<()> {
    let cluster = cluster().await?;
    let guest = Guest::spawn(&cluster, Manifest::vm("logged", "Always").json()).await?;
    guest.wait_to_boot().await?;
    let Cluster::Kubernetes(kubernetes) = &*cluster else { return Ok(()) };
    poll("the console in the Pod's log", LIMIT, || async {
        let select = ["logs", "-l", "app=logged", "-c", "guest-console-log", "--tail=-1"];
        let text = kubernetes.cluster().kubectl(&select).map_err(|err| format!("{err:#}"))?;
        if text.contains("tick ") { Ok(()) } else { Err(format!("it has {} characters", text.len())) }
    })
    .await?;
    guest.delete().await
}

async fn programs_killed() -> Result<()> {
    let mut cluster = cluster().await?;
    let mut guest = Guest::spawn(&cluster, Manifest::vm("outlives", "Always").on_node("n1").json()).await?;
    guest.wait_to_boot().await?;
    let qemu = the_only_qemu("outlives")?;
    for component in [Component::Handler("n1"), Component::Controller, Component::Operator, Component::Api] {
        cluster.kill(component).await?;
    }
    // Everybody is back when the console is.
    poll("the console's return", LIMIT, || async {
        let mut again = Guest::attach(&cluster, "outlives").await.map_err(|err| err.to_string())?;
        answers(&mut again).await
    })
    .await?;
    guest.reattach(&cluster)?;
    ensure!(the_only_qemu("outlives")? == qemu, "the guest was started anew");
    guest.delete().await
}

/// Several times: what a restarted kubelet makes of the Pods that it finds depends on who is quicker.
async fn node_programs_killed() -> Result<()> {
    let mut cluster = cluster().await?;
    let mut guest = Guest::spawn(&cluster, Manifest::vm("endures", "Always").on_node("n1").json()).await?;
    guest.wait_to_boot().await?;
    let qemu = the_only_qemu("endures")?;
    for round in 1..=3 {
        for component in [Component::Kubelet("n1"), Component::Containerd("n1")] {
            cluster.kill(component).await?;
            tokio::time::sleep(NOTICED).await;
            if let Cluster::Kubernetes(kubernetes) = &*cluster {
                kubernetes.cluster().wait_ready(1)?;
            }
            ensure!(qemu.alive(), "the guest did not live through the end of {component:?}, round {round}");
            guest.reattach(&cluster)?;
            answers(&mut guest).await.map_err(anyhow::Error::msg).with_context(|| format!("after {component:?}"))?;
        }
    }
    ensure!(the_only_qemu("endures")? == qemu, "the guest was started anew");
    guest.delete().await
}

async fn answers(guest: &mut Guest) -> Result<(), String> {
    let answer = guest.run_shell_command("echo still").await.map_err(|err| format!("{err:#}"))?;
    if answer == "still" { Ok(()) } else { Err(format!("it answered {answer:?}")) }
}

/// Longer than a new kubelet needs to look at its Pods.
const NOTICED: Duration = Duration::from_secs(10);

/// Longer than it takes to call the node lost, and shorter than it takes to give its Pods up.
const LOST_FOR: Duration = Duration::from_secs(40);

async fn node_lost_and_back() -> Result<()> {
    let cluster = cluster().await?;
    let kubernetes = cluster.kubernetes()?;
    let mut guest = Guest::spawn(&cluster, Manifest::vm("cut-off", "Always").on_node("n1").json()).await?;
    guest.wait_to_boot().await?;
    let qemu = the_only_qemu("cut-off")?;
    cluster.cut("n1")?;
    let cut = Instant::now();
    let told = told_as_lost(kubernetes, &guest).await;
    tokio::time::sleep(LOST_FOR.saturating_sub(cut.elapsed())).await;
    // Still so: nobody has given it up or started another one.
    let told = told.and(says_lost(&guest).await.map_err(anyhow::Error::msg));
    cluster.join("n1")?;
    told?;
    kubernetes.cluster().wait_ready(1)?;
    // The node hears of its return when TCP sends again, which takes longer the longer it was away.
    poll("the console's return", LIMIT, || async {
        let mut again = Guest::attach(&cluster, "cut-off").await.map_err(|err| err.to_string())?;
        answers(&mut again).await
    })
    .await?;
    guest.reattach(&cluster)?;
    ensure!(the_only_qemu("cut-off")? == qemu, "the guest was started anew");
    poll("the VM to be ready again", LIMIT, || async {
        let vm = guest.vm().await.map_err(|err| format!("{err:#}"))?.ok_or("it is gone")?;
        let ready = vm.condition("Ready");
        if ready.is_some_and(|ready| ready.is_true()) { Ok(()) } else { Err(format!("{ready:?}")) }
    })
    .await?;
    guest.delete().await
}

/// Waits until node n1 counts as lost, and the objects of its guest say what is known of that.
async fn told_as_lost(kubernetes: &Kubernetes, guest: &Guest) -> Result<()> {
    let status = r#"jsonpath={.status.conditions[?(@.type=="Ready")].status}"#;
    poll("condition Ready of n1 to be Unknown", LIMIT, || async {
        let found = kubernetes.cluster().kubectl(&["get", "node", "n1", "-o", status]);
        match found.map_err(|err| format!("{err:#}"))?.as_str() {
            "Unknown" => Ok(()),
            other => Err(format!("it is {other}")),
        }
    })
    .await?;
    poll("the objects to say that the node is lost", LIMIT, || says_lost(guest)).await
}

/// The guest may run or not: it stays where it is, and takes no traffic.
async fn says_lost(guest: &Guest) -> Result<(), String> {
    let instance = guest.instance().await.map_err(|err| format!("{err:#}"))?.ok_or("there is no instance")?;
    let vm = guest.vm().await.map_err(|err| format!("{err:#}"))?.ok_or("there is no VM")?;
    let status = vm.status.as_ref().and_then(|status| status.printable_status.as_ref());
    let status = status.map(ToString::to_string).unwrap_or_default();
    let node = instance.status.as_ref().and_then(|status| status.node_name.as_deref());
    let ready = [instance.condition("Ready"), vm.condition("Ready")];
    let unready = ready.iter().all(|ready| ready.is_some_and(|ready| ready.is_false()));
    if instance.is_running() && node == Some("n1") && status == "Running" && unready {
        return Ok(());
    }
    Err(format!("the VM is {status}, its instance {:?} on {node:?}, Ready is {ready:?}", instance.phase()))
}

const STRANDED: &str = "stranded";
/// As `kubectl taint` takes it: an administrator says that the machine is off.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// Long enough to start a second guest in, if somebody would.
const UNSURE: Duration = Duration::from_secs(20);
/// The Pods of a machine that is off go within 20 s, and a guest starts.
const ELSEWHERE: Duration = Duration::from_secs(180);

async fn node_stays_lost() -> Result<()> {
    let mut cluster = cluster().await?;
    let done = stay_lost(&mut cluster).await;
    // However that ended: others need the node.
    let back = bring_back(&mut cluster).await;
    done.and(back)
}

async fn stay_lost(cluster: &mut Cluster) -> Result<()> {
    set_cordon(cluster, "n2", true).await?;
    let guest = movable(cluster, &Manifest::vm(STRANDED, "Always")).await;
    set_cordon(cluster, "n2", false).await?;
    let mut guest = guest?;
    let first = the_only_qemu(STRANDED)?;
    let lookout = Lookout::over(STRANDED);
    let uid = uid(&guest).await?;

    cluster.kubernetes_mut()?.cluster_mut().node_down(1)?;
    ensure!(!first.alive(), "the guest outlived the power of its node");
    let kubernetes = cluster.kubernetes()?;
    told_as_lost(kubernetes, &guest).await?;
    tokio::time::sleep(UNSURE).await;
    says_lost(&guest).await.map_err(anyhow::Error::msg).context("nobody has said that the machine is off")?;
    ensure!(e2e::processes::qemus_of(STRANDED).is_empty(), "it runs elsewhere, and nobody knows that it has ended");

    let taint = format!("{OUT_OF_SERVICE}=nodeshutdown:NoExecute");
    kubernetes.cluster().kubectl(&["taint", "node", "n1", &taint])?;
    poll("another instance on n2", ELSEWHERE, || async {
        let instance = guest.instance().await.map_err(|err| format!("{err:#}"))?.ok_or("there is none")?;
        let node = instance.status.as_ref().and_then(|status| status.node_name.clone());
        let is_new = instance.metadata.uid.as_ref() != Some(&uid);
        let there = is_new && instance.is_running() && node.as_deref() == Some("n2");
        if there { Ok(()) } else { Err(format!("new: {is_new}, {:?} on {node:?}", instance.phase())) }
    })
    .await?;
    failed_with_its_node(kubernetes, &uid)?;
    guest.reattach(cluster)?;
    answers_after_boot(&mut guest).await?;
    let second = the_only_qemu(STRANDED)?;

    bring_back(cluster).await?;
    ensure!(the_only_qemu(STRANDED)? == second, "the return of the node has changed who runs");
    answers(&mut guest).await.map_err(anyhow::Error::msg)?;
    ensure!(lookout.seen_twice().is_none(), "the guest ran twice: {:?}", lookout.seen_twice());
    guest.delete().await
}

async fn uid(guest: &Guest) -> Result<String> {
    guest.instance().await?.and_then(|instance| instance.metadata.uid).context("the instance has no UID")
}

/// A new guest, whose console was opened too late to see all of its boot.
async fn answers_after_boot(guest: &mut Guest) -> Result<()> {
    guest.console.wait_for("tick ", 0, BOOT_LIMIT).await?;
    answers(guest).await.map_err(anyhow::Error::msg)
}

/// An event says that this instance failed since its Pod or its node was gone.
fn failed_with_its_node(kubernetes: &Kubernetes, uid: &str) -> Result<()> {
    let select = format!("involvedObject.uid={uid}");
    let reasons = "jsonpath={.items[*].reason}";
    let found = kubernetes.cluster().kubectl(&["get", "events", "--field-selector", &select, "-o", reasons])?;
    let why = [reasons::POD_NOT_EXISTS, reasons::NODE_UNRESPONSIVE];
    ensure!(found.split(' ').any(|reason| why.contains(&reason)), "the events of the lost instance are {found}");
    Ok(())
}

/// n1 has power, is in service, and its virt-handler reports.
async fn bring_back(cluster: &mut Cluster) -> Result<()> {
    let kubernetes = cluster.kubernetes_mut()?;
    let heartbeat = |kubernetes: &Kubernetes| {
        let path = r"jsonpath={.metadata.annotations.kubevirt\.io/heartbeat}";
        kubernetes.cluster().kubectl(&["get", "node", "n1", "-o", path])
    };
    let mut before = None;
    if kubernetes.cluster().in_node(1, "true").is_err() {
        before = Some(heartbeat(kubernetes)?);
        kubernetes.cluster_mut().node_up(1)?;
    }
    kubernetes.cluster().wait_ready(1)?;
    let taints = kubernetes.cluster().kubectl(&["get", "node", "n1", "-o", "jsonpath={.spec.taints[*].key}"])?;
    if taints.contains(OUT_OF_SERVICE) {
        kubernetes.cluster().kubectl(&["taint", "node", "n1", &format!("{OUT_OF_SERVICE}-")])?;
    }
    let kubernetes = &*kubernetes;
    poll("a heartbeat of n1", ELSEWHERE, || async {
        let now = heartbeat(kubernetes).map_err(|err| format!("{err:#}"))?;
        if before.as_ref() == Some(&now) { Err(format!("the last one is of {now}")) } else { Ok(()) }
    })
    .await
}
