//! Guests by the programs that people have, what only an installation on Kubernetes does, and nodes that are lost for a while.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use drive::{Guest, LIMIT, poll};
use e2e::cluster::{Cluster, Component};
use e2e::manifest::Manifest;
use libtest_mimic::Trial;

use crate::guests::{cluster, the_only_qemu};
use crate::{kubernetes, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("guest_is_reached_by_kubevirts_virtctl_over_forwarded_ports_and_vnc", reached_by_virtctl),
        kubernetes("guest_writes_its_console_to_the_log_of_its_pod", console_in_log),
        kubernetes("guest_lives_through_the_end_of_each_program_of_the_installation", programs_killed),
        kubernetes("guest_lives_through_restarts_of_the_kubelet_and_of_containerd", node_programs_killed),
        kubernetes("guest_on_a_node_that_is_lost_and_comes_back_goes_on", node_lost_and_back),
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
    let mut guest = Guest::spawn(&cluster, Manifest::vm("cut-off", "Always").on_node("n1").json()).await?;
    guest.wait_to_boot().await?;
    let qemu = the_only_qemu("cut-off")?;
    cluster.cut("n1")?;
    tokio::time::sleep(LOST_FOR).await;
    cluster.join("n1")?;
    if let Cluster::Kubernetes(kubernetes) = &*cluster {
        kubernetes.cluster().wait_ready(1)?;
    }
    // The node hears of its return when TCP sends again, which takes longer the longer it was away.
    poll("the console's return", LIMIT, || async {
        let mut again = Guest::attach(&cluster, "cut-off").await.map_err(|err| err.to_string())?;
        answers(&mut again).await
    })
    .await?;
    guest.reattach(&cluster)?;
    ensure!(the_only_qemu("cut-off")? == qemu, "the guest was started anew");
    guest.delete().await
}
