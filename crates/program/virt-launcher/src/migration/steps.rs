//! Executes what [`transfer::Source`] decides: each command is one call, each response one event.
//!
//! Nothing here knows which side may run the guest.

use std::time::Duration;

use domain::{Paths, Readdress};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use launcher_contract::migration::{MigrationOptions, Progress};
use libvirt_io::{Begun, Connection, Cookie, Domain, JobStats, Keepalive, Params, Value, flags};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use transfer::{Command, Event, Failure, How, Outcome, Pass, PostCopy, Report, Setup};

use super::Sockets;
use super::mark;
use super::plan::{Current, Plan};
use crate::error::{Error, chain};
use crate::session::{self, Session, URI};
use crate::state::StateStore;

/// A connection without traffic for this long is dead.
const KEEPALIVE: Keepalive = Keepalive { interval: Duration::from_secs(2), count: 4 };

pub(super) struct Driver {
    pub(super) session: Session,
    pub(super) state: StateStore,
    pub(super) domain_name: String,
    pub(super) sockets: Sockets,
    pub(super) options: MigrationOptions,
    /// Set if the guest moves to another VMI.
    pub(super) readdress: Option<Readdress>,
    pub(super) abort: CancellationToken,
    pub(super) settled: watch::Receiver<Option<bool>>,
}

/// State passed from one call to the next.
#[derive(Default)]
struct Papers {
    source: Option<(Connection, Domain)>,
    /// A QEMU prepared at the target exits when this connection closes.
    target: Option<Connection>,
    begun: Option<Begun>,
    params: Params,
    cookie: Cookie,
}

/// A migration in progress.
struct Run<'a> {
    driver: &'a Driver,
    plan: Plan,
    papers: Mutex<Papers>,
}

impl Driver {
    /// Returns how the migration ended and, of a guest that has moved, QEMU's final statistics.
    pub(super) async fn run(&self) -> (Outcome, Option<Progress>) {
        mark::wipe().await;
        let plan = match self.plan().await {
            Ok(plan) => plan,
            Err(error) => return (Outcome::Stayed(chain(&error)), None),
        };
        let run = Run { driver: self, plan, papers: Mutex::default() };
        match run.play().await {
            Outcome::Moved => (Outcome::Moved, self.final_figures().await),
            stayed => (stayed, None),
        }
    }

    async fn plan(&self) -> Result<Plan, Error> {
        let (connection, domain) = self.source().await?;
        let xml = connection.xml_desc(&domain, 0).await.map_err(libvirt("read the domain"))?;
        let observed = domain::Observed::parse(&xml).map_err(Error::Convert)?;
        let seen = self.state.get().domain.ok_or(Error::NoDomain)?;
        let mut options = self.options.clone();
        // Asked only if it matters: libvirt probes every installed emulator before it answers, which takes half a
        // second.
        if options.parallel_connections > 1 {
            // Before 8.0 QEMU identified connections by the order of their arrival, which no network guarantees.
            let (major, _, _) = connection.hypervisor_version().await.map_err(libvirt("ask for QEMU's version"))?;
            options.parallel_connections = if major >= 8 { options.parallel_connections } else { 0 };
        }
        let current = Current {
            name: self.name_at_target(),
            status: seen.status,
            memory_bytes: seen.memory_bytes,
            observed: &observed,
        };
        Ok(Plan::new(&options, &current, &self.sockets))
    }

    fn name_at_target(&self) -> &str {
        self.readdress.as_ref().map_or(&self.domain_name, |readdress| &readdress.domain_name)
    }

    async fn source(&self) -> Result<(Connection, Domain), Error> {
        let connection = self.session.connection().await?;
        let lookup = connection.lookup_by_name(&self.domain_name).await;
        let domain = lookup.map_err(libvirt("look up the domain"))?.ok_or(Error::NoDomain)?;
        Ok((connection, domain))
    }

    async fn target(&self) -> Result<Connection, libvirt_io::Error> {
        Connection::connect(&self.sockets.libvirt(), URI, KEEPALIVE).await
    }

    async fn final_figures(&self) -> Option<Progress> {
        let (source, domain) = self.source().await.ok()?;
        let flags = flags::JOB_STATS_COMPLETED | flags::JOB_STATS_KEEP_COMPLETED;
        source.job_stats(&domain, flags).await.ok()?.map(|stats| progress(&stats))
    }

    /// The domain with the disks of volumes that have other claims at the target where these are.
    fn relocated(&self, xml: String) -> String {
        let disks = self.state.get().domain.map(|domain| domain.disks).unwrap_or_default();
        self.options.moved_volumes.iter().fold(xml, |xml, moved| {
            let to = Paths::default().claim(&moved.volume, moved.block, moved.plugged);
            let size = disks.iter().find(|disk| disk.alias == moved.volume).map(|disk| disk.capacity);
            // An image is made as large as the disk. A device may be larger.
            domain::relocated(&xml, &moved.volume, &to, size.filter(|size| moved.block && *size > 0))
        })
    }

    fn show(&self, report: Report) {
        self.state.update(|state| {
            let Some(migration) = &mut state.migration else { return };
            match report {
                Report::Phase(phase) => migration.phase = phase,
                Report::Mode(mode) => migration.mode = mode,
                Report::Progress(progress) => migration.progress = progress,
            }
        });
    }
}

impl Run<'_> {
    async fn play(&self) -> Outcome {
        let begun = Instant::now();
        let Driver { options, abort, settled, .. } = self.driver;
        let mut settled = settled.clone();
        let mut aborted = false;
        let setup = Setup {
            options: options.clone(),
            bytes: self.plan.bytes,
            paused: self.plan.paused,
            post_copy: post_copy_here(),
        };
        let mut machine = transfer::Source::new(setup);
        let mut commands = machine.start(Duration::ZERO);
        let mut calls = FuturesUnordered::new();
        loop {
            for command in commands {
                match command {
                    Command::End(outcome) => return outcome,
                    Command::Report(report) => self.driver.show(report),
                    Command::Warn(text) => tracing::warn!("{text}"),
                    command => calls.push(self.carry_out(command)),
                }
            }
            let wake = machine.wakes_at().map(|at| begun + at);
            let event = tokio::select! {
                Some(event) = calls.next(), if !calls.is_empty() => event,
                () = abort.cancelled(), if !aborted => {
                    aborted = true;
                    Some(Event::AbortAsked)
                }
                Ok(()) = settled.changed() => settled.borrow_and_update().map(Event::Settled),
                () = until(wake) => Some(Event::Tick),
            };
            commands = event.map(|event| machine.on(event, begun.elapsed())).unwrap_or_default();
        }
    }

    async fn carry_out(&self, command: Command) -> Option<Event> {
        tracing::debug!(?command, "next step of the migration");
        Some(match command {
            Command::Reach => Event::Reached(self.reach().await),
            Command::Begin(pass) => Event::Begun(self.begin(pass).await),
            Command::Prepare(pass) => Event::Prepared(self.prepare(pass).await),
            Command::SetDowntime(ms) => Event::Allowed(self.set_downtime(ms).await),
            Command::Perform(pass) => Event::Performed(self.perform(pass).await),
            Command::Sample => Event::Sampled(self.sample().await),
            Command::StartPostCopy => Event::Switched(self.start_post_copy().await),
            Command::Suspend => Event::Switched(self.suspend().await),
            Command::AbortJob => {
                self.abort_job().await;
                return None;
            }
            Command::Finish { pass, cancelled } => Event::Finished(self.finish(pass, cancelled).await),
            Command::AskTarget => Event::There(self.ask().await.map_err(said("ask the target"))),
            Command::DestroyThere => {
                Event::DestroyedThere(self.destroy_there().await.map_err(said("stop the guest at the target")))
            }
            Command::LeaveMark => {
                mark::leave().await;
                Event::Marked
            }
            Command::Confirm { pass, cancelled } => Event::Confirmed(self.confirm(pass, cancelled).await),
            Command::Look => Event::Here(self.look().await),
            Command::Resume => Event::Done(self.resume().await.map_err(|error| unable(&error))),
            Command::Destroy => Event::Done(self.destroy().await.map_err(|error| unable(&error))),
            Command::Report(_) | Command::Warn(_) | Command::End(_) => return None,
        })
    }

    fn papers(&self) -> MutexGuard<'_, Papers> {
        self.papers.lock()
    }

    fn flags(&self, pass: Pass) -> u32 {
        let flags = if pass.post_copy { self.plan.flags } else { self.plan.flags & !flags::MIGRATE_POSTCOPY };
        if pass.resumes { flags | flags::MIGRATE_POSTCOPY_RESUME } else { flags }
    }

    /// The connection and domain with which the migration started.
    fn source(&self) -> Result<(Connection, Domain), Failure> {
        self.papers().source.clone().ok_or_else(|| unable(&Error::NoDomain))
    }

    fn target(&self) -> Result<Connection, Failure> {
        self.papers().target.clone().ok_or_else(|| unable(&Error::LibvirtDown))
    }

    async fn reach(&self) -> Result<(), Failure> {
        let target = self.driver.target().await.map_err(said("reach the target's libvirt"))?;
        self.papers().target = Some(target);
        Ok(())
    }

    async fn begin(&self, pass: Pass) -> Result<(), Failure> {
        let (source, domain) = self.driver.source().await.map_err(|error| unable(&error))?;
        let begun = source.migrate_begin(&domain, &self.plan.params, self.flags(pass)).await;
        let begun = begun.map_err(said("begin the migration"))?;
        let mut papers = self.papers();
        (papers.source, papers.begun) = (Some((source, domain)), Some(begun));
        (papers.params, papers.cookie) = (self.plan.params.clone(), Cookie::new());
        Ok(())
    }

    async fn prepare(&self, pass: Pass) -> Result<(), Failure> {
        let target = self.target()?;
        let (xml, cookie) = match &self.papers().begun {
            Some(begun) => (begun.xml.clone(), begun.cookie.clone()),
            None => return Err(unable(&Error::NoDomain)),
        };
        let xml = self.driver.relocated(xml);
        let readdress = self.driver.readdress.as_ref();
        let live = readdress.map_or(xml.clone(), |readdress| readdress.live(&xml));
        let live = match pass.post_copy {
            false => live,
            true => domain::with_recovery_monitor(&live, &self.driver.sockets.recovery_monitor()),
        };
        let with_xml = self.plan.params.clone().replaced("destination_xml", Value::String(live));
        let prepared = target.migrate_prepare(&with_xml, &cookie, Plan::at_target(self.flags(pass))).await;
        let prepared = prepared.map_err(said("prepare the target"))?;
        let mut params = self.plan.params.clone();
        if let Some(uri) = prepared.uri {
            params = params.replaced("migrate_uri", Value::String(uri));
        }
        if let Some(readdress) = readdress {
            params = params.with("persistent_xml", Value::String(readdress.kept(&xml)));
        } else if !self.driver.options.moved_volumes.is_empty() {
            params = params.with("persistent_xml", Value::String(xml));
        }
        let mut papers = self.papers();
        (papers.params, papers.cookie) = (params, prepared.cookie);
        Ok(())
    }

    async fn set_downtime(&self, ms: u64) -> Result<(), Failure> {
        let (source, domain) = self.source()?;
        source.migrate_set_max_downtime(&domain, ms).await.map_err(said("set the downtime"))
    }

    async fn perform(&self, pass: Pass) -> Result<(), Failure> {
        let (source, domain) = self.source()?;
        let (params, cookie) = self.take_params();
        let cookie = source.migrate_perform(&domain, &params, &cookie, self.flags(pass)).await.map_err(answered)?;
        self.papers().cookie = cookie;
        Ok(())
    }

    fn take_params(&self) -> (Params, Cookie) {
        let mut papers = self.papers();
        (papers.params.clone(), std::mem::take(&mut papers.cookie))
    }

    async fn sample(&self) -> Option<Progress> {
        let (source, domain) = self.source().ok()?;
        source.job_stats(&domain, 0).await.ok()?.map(|stats| progress(&stats))
    }

    async fn start_post_copy(&self) -> Result<(), Failure> {
        let (source, domain) = self.source()?;
        source.migrate_start_post_copy(&domain).await.map_err(said("switch to post-copy"))
    }

    async fn suspend(&self) -> Result<(), Failure> {
        let (source, domain) = self.source()?;
        source.suspend(&domain).await.map_err(said("pause the guest"))
    }

    async fn abort_job(&self) {
        let Ok((source, domain)) = self.source() else { return };
        if let Err(error) = source.abort_job(&domain).await {
            tracing::debug!(error = chain(&error), "libvirt does not end the transfer yet");
        }
    }

    async fn finish(&self, pass: Pass, cancelled: bool) -> Result<(), Failure> {
        let target = self.target()?;
        let (params, cookie) = self.take_params();
        let cookie = if cancelled { Cookie::new() } else { cookie };
        let finished = target.migrate_finish(&params, &cookie, Plan::at_target(self.flags(pass)), cancelled).await;
        self.papers().cookie = finished.map_err(answered)?.1;
        Ok(())
    }

    async fn confirm(&self, pass: Pass, cancelled: bool) -> Result<(), Failure> {
        let (source, domain) = self.source()?;
        let (params, cookie) = match cancelled {
            true => (self.plan.params.clone(), Cookie::new()),
            false => self.take_params(),
        };
        source.migrate_confirm(&domain, &params, &cookie, self.flags(pass), cancelled).await.map_err(answered)
    }

    async fn ask(&self) -> Result<Option<transfer::Domain>, libvirt_io::Error> {
        let target = self.driver.target().await?;
        let Some(domain) = target.lookup_by_name(self.driver.name_at_target()).await? else { return Ok(None) };
        target.state(&domain).await.map(|(state, reason)| Some(session::domain(state, reason)))
    }

    async fn destroy_there(&self) -> Result<(), libvirt_io::Error> {
        let target = self.driver.target().await?;
        match target.lookup_by_name(self.driver.name_at_target()).await? {
            Some(domain) => target.destroy(&domain, 0).await,
            None => Ok(()),
        }
    }

    async fn look(&self) -> Result<Option<transfer::Domain>, Failure> {
        let (source, domain) = match self.driver.source().await {
            Err(Error::NoDomain) => return Ok(None),
            other => other.map_err(|error| unable(&error))?,
        };
        let (state, reason) = source.state(&domain).await.map_err(said("read the guest's state"))?;
        Ok(Some(session::domain(state, reason)))
    }

    async fn resume(&self) -> Result<(), Error> {
        let (source, domain) = self.driver.source().await?;
        source.resume(&domain).await.map_err(libvirt("resume the guest"))
    }

    async fn destroy(&self) -> Result<(), Error> {
        let (source, domain) = self.driver.source().await?;
        source.destroy(&domain, 0).await.map_err(libvirt("end the guest"))
    }
}

/// Whether the kernel allows userfaultfd to unprivileged processes such as QEMU.
fn post_copy_here() -> PostCopy {
    let allowed = std::fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd");
    if allowed.is_ok_and(|allowed| allowed.trim() == "1") { PostCopy::Possible } else { PostCopy::Impossible }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn libvirt(action: &'static str) -> impl FnOnce(libvirt_io::Error) -> Error {
    move |source| Error::Libvirt { action, source }
}

/// A call that could not be made.
fn unable(error: &Error) -> Failure {
    Failure { how: How::Lost, text: chain(error) }
}

/// A libvirt error whose message is sufficient.
fn answered(error: libvirt_io::Error) -> Failure {
    Failure { how: how(&error), text: chain(&error) }
}

fn said(action: &'static str) -> impl FnOnce(libvirt_io::Error) -> Failure {
    move |error| Failure { how: how(&error), text: chain(&libvirt(action)(error)) }
}

fn how(error: &libvirt_io::Error) -> How {
    match error {
        // libvirt passes on QEMU's message; there is no error code for it.
        libvirt_io::Error::Remote { source, .. }
            if source.message.to_lowercase().contains("postcopy is not supported") =>
        {
            How::NoPostCopy
        }
        libvirt_io::Error::Remote { .. } => How::Refused,
        _ => How::Lost,
    }
}

fn progress(stats: &JobStats) -> Progress {
    let page = stats.number("memory_page_size").max(1);
    Progress {
        data_total: stats.number("data_total"),
        data_processed: stats.number("data_processed"),
        data_remaining: stats.number("data_remaining"),
        dirty_rate: stats.number("memory_dirty_rate").saturating_mul(page),
        bandwidth: stats.number("memory_bps"),
        iterations: stats.number("memory_iteration"),
        downtime_ms: stats.number("downtime"),
        throttle_percent: stats.number("auto_converge_throttle"),
        elapsed_ms: stats.number("time_elapsed"),
    }
}
