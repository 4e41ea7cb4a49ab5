//! The launcher's lifecycle from start to exit: sets up libvirt, serves, and does what [`lifecycle::Life`] decides.
//!
//! The exit status says whether the *launcher* did its work, not how the guest ended. That is in the state, which
//! virt-handler reads during the final wait or, if it was away for longer, from the file next to the socket.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use domain::Paths;
use futures::FutureExt;
use futures::future::Fuse;
use launcher_contract::sockets::{self, LAST_STATE};
use launcher_contract::types::LauncherState;
use launcher_contract::{paths, variables};
use lifecycle::{Event, Exit, Life, Limits, Order, Seen, has_ended};
use rustix::process::{Pid, Signal};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;
use uuid::Uuid;

use crate::args::Args;
use crate::children::Children;
use crate::error::chain;
use crate::libvirtd::{self, Dirs, Libvirtd};
use crate::manager::{self, Manager};
use crate::session::Session;
use crate::state::StateStore;
use crate::{agent, disks, server};

/// Startup timeout of libvirt, generous for a busy node.
const LIBVIRT_WITHIN: Duration = Duration::from_secs(60);
/// Time to send the last responses.
const LAST_WORDS: Duration = Duration::from_millis(200);
const KILL_AGAIN: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("--simulate-crash asks for a failure")]
    Simulated,
    #[error("cannot {action}")]
    System { action: &'static str, source: std::io::Error },
    #[error("libvirt did not come up within {} s", LIBVIRT_WITHIN.as_secs())]
    NoLibvirt,
    #[error("virt-handler did not ask for a domain within {} s", .0.as_secs())]
    NoDomain(Duration),
}

fn system(action: &'static str) -> impl FnOnce(std::io::Error) -> Failure {
    move |source| Failure::System { action, source }
}

struct Launcher {
    args: Args,
    state: StateStore,
    manager: Arc<Manager>,
    libvirtd: Libvirtd,
    dirs: Dirs,
    domain_name: String,
}

pub(crate) async fn run(args: Args) -> Result<(), Failure> {
    if args.simulate_crash {
        return Err(Failure::Simulated);
    }
    // First of all: a signal during startup must not kill PID 1.
    let stop = stop_signals().map_err(system("listen to signals"))?;
    let launcher = Launcher::set_up(args).await?;
    launcher.live(stop).await
}

/// Resolves on the first signal that asks the launcher to stop.
fn stop_signals() -> std::io::Result<impl Future<Output = ()>> {
    let mut signals = Vec::new();
    for kind in [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup(), SignalKind::quit()] {
        signals.push(signal(kind)?);
    }
    Ok(async move {
        futures::future::select_all(signals.iter_mut().map(|signal| Box::pin(signal.recv()))).await;
    })
}

impl Launcher {
    async fn set_up(args: Args) -> Result<Launcher, Failure> {
        let children = Children::start().map_err(system("collect ended processes"))?;
        let directories = Paths {
            ephemeral_disks: args.ephemeral_disk_dir.clone(),
            image_volumes: args.container_disk_dir.clone(),
            ..Paths::default()
        };
        let dirs = Dirs {
            config: env_path(variables::XDG_CONFIG_HOME, &directories.private),
            runtime: env_path(variables::XDG_RUNTIME_DIR, paths::RUNTIME),
        };
        let identity = format!("{}/{}", args.uid, args.pod_name);
        let host_uuid = Uuid::new_v5(&Uuid::NAMESPACE_OID, identity.as_bytes());
        libvirtd::configure(&dirs, host_uuid).map_err(system("write libvirt's configuration"))?;
        let libvirtd = Libvirtd::default();
        tokio::spawn(libvirtd.clone().supervise(children.clone(), dirs.clone()));

        let state = StateStore::new();
        let domain_name = format!("{}_{}", args.namespace, args.name);
        let session =
            Session::start(dirs.clone(), libvirtd.clone(), domain_name.clone(), args.uid.clone(), state.clone());
        tokio::time::timeout(LIBVIRT_WITHIN, async { while session.connection().await.is_err() {} })
            .await
            .map_err(|_| Failure::NoLibvirt)?;

        tokio::spawn(warm_up(session.clone()));
        tokio::spawn(disks::watch(session.clone(), state.clone()));
        tokio::spawn(agent::poll(session.clone(), state.clone(), domain_name.clone()));
        let config = manager::Config {
            uid: args.uid.clone(),
            domain_name: domain_name.clone(),
            share_dir: args.kubevirt_share_dir.clone(),
            paths: directories,
            image_volumes: args.image_volume,
            allow_emulation: args.allow_emulation,
            disk_memory_limit: args.disk_memory_limit,
        };
        let manager = Manager::new(config, children, session, state.clone());
        let launcher = Launcher { args, state, manager, libvirtd, dirs, domain_name };
        launcher.serve().map_err(system("open the launcher's socket"))?;
        Ok(launcher)
    }

    fn sockets(&self) -> PathBuf {
        self.args.kubevirt_share_dir.join(sockets::DIRECTORY)
    }

    /// Binds the socket under a temporary name first: virt-handler takes the final name as "ready".
    fn serve(&self) -> std::io::Result<()> {
        let directory = self.sockets();
        std::fs::create_dir_all(&directory)?;
        let (early, ready) = (directory.join(sockets::LAUNCHER_STARTING), directory.join(sockets::LAUNCHER));
        let listener = server::bind(&early)?;
        let info = server::info(&self.args.uid, &self.args.pod_name);
        let router = server::router(self.manager.clone(), self.state.clone(), info);
        tokio::spawn(server::serve(listener, router));
        std::fs::rename(&early, &ready)?;
        tracing::info!(socket = %ready.display(), "ready");
        Ok(())
    }

    async fn live(self, stop: impl Future<Output = ()>) -> Result<(), Failure> {
        let began = Instant::now();
        let grace = Duration::from_secs(self.args.grace_period_seconds);
        let mut life = Life::new(Limits { first: self.args.qemu_timeout, grace });
        let (stop, killed) = (stop.fuse(), Fuse::terminated());
        tokio::pin!(stop, killed);
        let keep_state = self.keep_last_state();
        tokio::pin!(keep_state);
        loop {
            let event = tokio::select! {
                biased; // the file must be written before anything ends the wait
                () = &mut keep_state, if life.is_final() => continue,
                () = self.state.until(has_ended), if life.heeds(Event::Ended) => Event::Ended,
                () = &mut killed, if life.heeds(Event::Killed) => Event::Killed,
                () = self.manager.started(), if life.heeds(Event::Started) => Event::Started,
                () = self.manager.deleted(), if life.heeds(Event::Deleted) => Event::Deleted,
                () = &mut stop, if life.heeds(Event::StopAsked) => Event::StopAsked,
                () = until(began, life.wakes_at()) => Event::Tick,
            };
            for order in life.on(event, Seen::of(&self.state.get()), began.elapsed()) {
                match order {
                    Order::Guard => tracing::info!("the guest runs"),
                    Order::Mark => self.mark(grace),
                    Order::EndGuest { overdue } => {
                        if overdue {
                            tracing::warn!("grace period expired; killing the guest");
                        }
                        killed.set(self.end_guest().fuse());
                    }
                    Order::KeepState => {
                        killed.set(Fuse::terminated());
                        self.log_outcome();
                    }
                    Order::Exit(Exit::Done(why)) => return self.leave(why).await,
                    Order::Exit(Exit::NobodyCame) => return Err(Failure::NoDomain(self.args.qemu_timeout)),
                }
            }
        }
    }

    /// virt-handler shuts the guest down when it sees the mark; the launcher only enforces the grace period.
    fn mark(&self, grace: Duration) {
        tracing::info!(grace_seconds = grace.as_secs(), "received a stop signal; virt-handler shuts the guest down");
        self.state.update(|state| state.marked_for_graceful_shutdown = true);
    }

    fn log_outcome(&self) {
        let (status, reason) = self.state.get().domain.map(|domain| (domain.status, domain.reason)).unwrap_or_default();
        tracing::info!(?status, ?reason, "the guest has ended");
    }

    /// Writes the final state, and every later change of it, for a virt-handler that is away now. Never returns.
    async fn keep_last_state(&self) {
        let file = self.sockets().join(LAST_STATE);
        let mut seq = 0;
        loop {
            let state = self.state.changed(seq, Duration::MAX).await;
            seq = state.seq;
            if let Some(outcome) = outcome(state)
                && let Err(error) = hostfs::atomic::write_json(&file, &outcome)
            {
                tracing::error!(error = chain(&error), "the outcome is lost unless virt-handler reads it in time");
            }
        }
    }

    /// Kills QEMU, through libvirt if it answers, otherwise by PID.
    async fn end_guest(&self) {
        let limit = Instant::now() + 2 * KILL_AGAIN;
        while self.state.get().domain.is_some_and(|domain| !domain.is_down()) {
            match tokio::time::timeout(KILL_AGAIN, self.manager.kill()).await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => tracing::error!(error = chain(&error), "cannot end the guest"),
                Err(_) => tracing::error!("libvirt did not stop the guest"),
            }
            if Instant::now() > limit {
                return self.kill_by_pid();
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    fn kill_by_pid(&self) {
        let file = self.dirs.pid_file(&self.domain_name);
        let pid = std::fs::read_to_string(&file).ok().and_then(|text| text.trim().parse().ok());
        // A daemonized QEMU is our child, so its PID is not reused before it is reaped.
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            let result = rustix::process::kill_process(pid, Signal::KILL);
            tracing::warn!(pid = pid.as_raw_nonzero(), ?result, "killed QEMU");
        }
    }

    async fn leave(&self, why: &str) -> Result<(), Failure> {
        tracing::info!(why, "exiting");
        tokio::time::sleep(LAST_WORDS).await;
        self.libvirtd.terminate();
        Ok(())
    }
}

/// Lets libvirt probe QEMU while virt-handler prepares the network, instead of when the guest starts.
async fn warm_up(session: Session) {
    let Ok(connection) = session.connection().await else { return };
    if let Err(error) = connection.domain_capabilities("x86_64", "q35").await {
        tracing::warn!(error = chain(&error), "cannot ask libvirt what QEMU can do");
    }
}

/// Resolves at this time after `began`.
async fn until(began: Instant, at: Option<Duration>) {
    match at.and_then(|at| began.checked_add(at)) {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// The part of a final state to keep: nothing unless the guest is down, and without guest agent data, which could
/// exceed what virt-handler reads.
fn outcome(state: LauncherState) -> Option<LauncherState> {
    let ended = state.domain.as_ref().is_some_and(|domain| domain.is_down());
    ended.then_some(LauncherState { guest_agent: None, ..state })
}

fn env_path(name: &str, default: &str) -> PathBuf {
    std::env::var_os(name).filter(|value| !value.is_empty()).map_or_else(|| default.into(), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[tokio::test]
    async fn a_simulated_crash_ends_the_launcher_before_it_does_anything() {
        let line = ["virt-launcher", "--name", "vm", "--uid", "u", "--namespace", "default", "--simulate-crash"];
        let outcome = run(Args::try_parse_from(line).unwrap()).await;
        assert!(matches!(outcome, Err(Failure::Simulated)), "{outcome:?}");
    }
}
