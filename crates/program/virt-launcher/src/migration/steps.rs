//! One migration from Begin to Confirm, with both daemons.
//!
//! ```text
//!   Begin ─► Prepare ─► Perform ──────────► Finish ──────► Confirm: QEMU ends here
//!     │         │          │ fails            │ target says no
//!     └─────────┴──────────┴──────────────────┴──────────► Confirm, cancelled: the guest goes on here
//!                                             │ no answer
//!                                             └─► ask until somebody knows, then one of the two
//! ```

use std::time::Duration;

use launcher_contract::migration::{MigrationMode, MigrationOptions, MigrationPhase, Progress};
use libvirt_io::{Connection, Cookie, Domain, JobStats, Keepalive, Params, Reason, State, Value, flags};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Sockets;
use super::mark;
use super::monitor::{Monitor, Order, PostCopy, Sample};
use super::plan::{Current, Plan, Readdress};
use super::recovery;
use crate::error::{Error, chain};
use crate::session::{Session, URI};
use crate::state::StateStore;

/// How often QEMU's figures are read.
const POLL: Duration = Duration::from_millis(400);
/// How often somebody is asked who did not know or answer.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// A link that carries nothing for this long is dead.
const KEEPALIVE: Keepalive = Keepalive { interval: Duration::from_secs(2), count: 4 };
/// A target that is asked to start the guest, and neither starts it nor gives up, is told to end it.
const START_WITHIN: Duration = Duration::from_secs(30);
/// A target that is told to give up, and hangs, is left to its node agent: the guest is here, and is not there.
const GIVE_UP_WITHIN: Duration = Duration::from_secs(10);
/// A target that cannot be reached yet: a node agent that was restarted opens the way again within this time.
const REACH_WITHIN: Duration = Duration::from_secs(20);
/// A post-copy whose connection broke is given up if it could not go on for this long.
const RECOVER_WITHIN: Duration = Duration::from_secs(300);

/// Why a guest in post-copy is lost.
const TORN: &str = "the guest ended at the target before all of its memory was there";

/// How a migration ended.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The guest is at the target; nothing of it runs here.
    Moved(Option<Progress>),
    /// The guest is here, or has ended here by itself.
    Stayed(String),
}

pub(super) struct Driver {
    pub(super) session: Session,
    pub(super) state: StateStore,
    pub(super) domain_name: String,
    pub(super) sockets: Sockets,
    pub(super) options: MigrationOptions,
    /// Set if the guest becomes another instance's.
    pub(super) readdress: Option<Readdress>,
    pub(super) abort: CancellationToken,
    pub(super) settled: watch::Receiver<Option<bool>>,
}

/// How one pass through the steps ended.
enum Pass {
    Moved,
    Stayed(String),
    /// QEMU may not fetch pages in this Pod or the other one.
    NoPostCopy,
    /// The guest runs at the target, and the rest of its memory is here.
    Broken(String),
}

/// What the target says about the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Runs,
    DoesNotRun,
    NotYet,
    /// It runs there, and needs what is here.
    Fetches,
    /// The same, and it gets nothing any more.
    Starves,
}

/// What is to become of the guest at the source.
#[derive(Debug, Clone, Copy)]
enum Wish {
    GoOn,
    StayPaused,
    End,
}

async fn fulfil(source: &Connection, domain: &Domain, wish: Wish) -> Result<(), libvirt_io::Error> {
    let (state, reason) = source.state(domain).await?;
    match (wish, state) {
        (Wish::GoOn, State::Paused) if matches!(reason, Reason::Migration | Reason::Unknown | Reason::ApiError) => {
            source.resume(domain).await
        }
        (Wish::GoOn | Wish::StayPaused, _) | (Wish::End, State::Shutoff | State::Crashed) => Ok(()),
        (Wish::End, _) => source.destroy(domain, 0).await,
    }
}

impl Driver {
    pub(super) async fn run(&self) -> Outcome {
        match self.try_run().await {
            Ok(Pass::Moved) => Outcome::Moved(self.final_figures().await),
            Ok(Pass::Stayed(why) | Pass::Broken(why)) => Outcome::Stayed(why),
            Ok(Pass::NoPostCopy) => Outcome::Stayed("post-copy is not possible here".to_owned()),
            Err(error) => Outcome::Stayed(chain(&error)),
        }
    }

    async fn try_run(&self) -> Result<Pass, Error> {
        mark::wipe().await;
        let plan = self.plan().await?;
        let mut flags = plan.flags;
        let mut options = self.options.clone();
        loop {
            match self.pass(&plan, &options, flags).await? {
                Pass::NoPostCopy if flags & flags::MIGRATE_POSTCOPY != 0 => {
                    tracing::warn!("QEMU may not use userfaultfd here; the guest is moved without post-copy");
                    flags &= !flags::MIGRATE_POSTCOPY;
                    options.allow_post_copy = false;
                }
                Pass::Broken(why) => return Ok(self.recover(&plan, why).await),
                end => return Ok(end),
            }
        }
    }

    /// What is here belongs to a guest that runs elsewhere: goes on until all of it is there, or nobody needs it any more.
    async fn recover(&self, plan: &Plan, mut why: String) -> Pass {
        let flags = plan.flags | flags::MIGRATE_POSTCOPY_RESUME;
        let mut settled = self.settled.clone();
        let mut broken_at = Instant::now();
        while broken_at.elapsed() < RECOVER_WITHIN {
            tracing::warn!(why, "post-copy broke; going on with it");
            // The node agent is to tell if the target's has told it.
            self.update(|migration| migration.phase = MigrationPhase::Undecided);
            why = match self.resume(plan, flags, &mut broken_at).await {
                Ok(Pass::Broken(why)) => why,
                Ok(end) => return end,
                Err(error) => chain(&error),
            };
            tokio::select! {
                _ = settled.changed() => {}
                () = tokio::time::sleep(ASK_AGAIN) => {}
            }
        }
        let within = RECOVER_WITHIN.as_secs();
        Pass::Stayed(format!(
            "the connection broke during post-copy, and could not be made again within {within} s: {why}"
        ))
    }

    /// One attempt to go on. The target's launcher has its QEMU listen again when it notices the break; until then nobody
    /// answers. libvirt at the target takes no part in it: its monitor may not get through (see [`recovery`]), and it
    /// notices by itself when all has come.
    async fn resume(&self, plan: &Plan, flags: u32, broken_at: &mut Instant) -> Result<Pass, Error> {
        let settled = *self.settled.borrow();
        let word = match settled {
            Some(true) => Word::Runs,
            Some(false) => Word::DoesNotRun,
            None => self.ask(flags, false).await.map_err(libvirt("ask the target"))?,
        };
        if let Some(end) = self.end_of_post_copy(word).await {
            return Ok(end);
        }
        let (source, domain) = self.source().await?;
        if let (state @ (State::Shutoff | State::Crashed), _) =
            source.state(&domain).await.map_err(libvirt("ask QEMU"))?
        {
            return Ok(Pass::Stayed(format!("QEMU ended ({state:?}) before all of the guest's memory was sent")));
        }
        source.migrate_begin(&domain, &plan.params, flags).await.map_err(libvirt("begin to go on"))?;
        let monitor = Monitor::after_switch_over(self.options.clone());
        if let Err(why) = self.perform(monitor, &source, &domain, &plan.params, &[], flags).await {
            self.stay(&source, &domain, plan, flags).await;
            return Ok(Pass::Broken(why));
        }
        tracing::info!("post-copy goes on");
        *broken_at = Instant::now();
        self.update(|migration| migration.phase = MigrationPhase::SwitchingOver);
        let word = self.ask_until_known(flags).await;
        if word == Word::Runs
            && let Err(error) = source.migrate_confirm(&domain, &plan.params, &[], flags, false).await
        {
            tracing::warn!(error = chain(&error), "libvirt does not end the guest that has moved");
        }
        let broken = || Pass::Broken("the connection broke again".to_owned());
        Ok(self.end_of_post_copy(word).await.unwrap_or_else(broken))
    }

    /// The target's word, if it leaves nothing to be sent.
    async fn end_of_post_copy(&self, word: Word) -> Option<Pass> {
        match word {
            Word::Runs => {
                self.end_here().await;
                Some(Pass::Moved)
            }
            Word::DoesNotRun => Some(Pass::Stayed(TORN.to_owned())),
            Word::NotYet | Word::Fetches | Word::Starves => None,
        }
    }

    async fn plan(&self) -> Result<Plan, Error> {
        let (connection, domain) = self.source().await?;
        let xml = connection.xml_desc(&domain, 0).await.map_err(libvirt("read the domain"))?;
        let observed = domain::Observed::parse(&xml).map_err(Error::Convert)?;
        let seen = self.state.get().domain.ok_or(Error::NoDomain)?;
        let mut options = self.options.clone();
        // Asked for only if it matters: libvirt tries out every emulator it finds before it answers, for half a second.
        if options.parallel_connections > 1 {
            // Before 8.0 QEMU told its connections apart by the order of their arrival, which no network keeps.
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

    /// The same, with patience: nothing is under way yet that could be lost.
    async fn reach_target(&self) -> Result<Connection, libvirt_io::Error> {
        let begun = Instant::now();
        loop {
            match self.target().await {
                Err(error) if begun.elapsed() < REACH_WITHIN && !self.abort.is_cancelled() => {
                    tracing::info!(error = chain(&error), "the target's libvirt is not reached yet");
                    tokio::time::sleep(ASK_AGAIN).await;
                }
                end => return end,
            }
        }
    }

    async fn pass(&self, plan: &Plan, options: &MigrationOptions, flags: u32) -> Result<Pass, Error> {
        let target = self.reach_target().await.map_err(libvirt("reach the target's libvirt"))?;
        let (source, domain) = self.source().await?;
        let begun = source.migrate_begin(&domain, &plan.params, flags).await;
        let begun = match begun {
            Err(error) if is_no_post_copy(&error) => return Ok(Pass::NoPostCopy),
            other => other.map_err(libvirt("begin the migration"))?,
        };
        let xml = self.readdress.as_ref().map_or(begun.xml.clone(), |readdress| readdress.live(&begun.xml));
        let xml = match flags & flags::MIGRATE_POSTCOPY {
            0 => xml,
            _ => recovery::with_monitor(&xml, &self.sockets.recovery_monitor()),
        };
        let with_xml = plan.params.clone().replaced("destination_xml", Value::String(xml));
        let prepared = match target.migrate_prepare(&with_xml, &begun.cookie, Plan::at_target(flags)).await {
            Ok(prepared) => prepared,
            Err(error) => {
                // Begin holds the domain until it is confirmed one way or the other.
                self.stay(&source, &domain, plan, flags).await;
                let no_post_copy = is_no_post_copy(&error);
                return if no_post_copy { Ok(Pass::NoPostCopy) } else { Err(libvirt("prepare the target")(error)) };
            }
        };
        let params = match prepared.uri {
            Some(uri) => plan.params.clone().replaced("migrate_uri", Value::String(uri)),
            None => plan.params.clone(),
        };
        let params = match &self.readdress {
            Some(readdress) => params.with("persistent_xml", Value::String(readdress.kept(&begun.xml))),
            None => params,
        };
        let monitor = Monitor::new(options.clone(), plan.bytes, PostCopy::here());
        let performed = self.perform(monitor, &source, &domain, &params, &prepared.cookie, flags).await;
        let cookie = match performed {
            Ok(cookie) => cookie,
            Err(why) => {
                return Ok(self.performed_in_vain(plan, (&source, &target), &domain, &params, flags, why).await);
            }
        };
        self.switch_over(plan, (&source, &target), &domain, &params, &cookie, flags).await
    }

    /// Sends everything, watched by the monitor. An error says why it was not all sent.
    async fn perform(
        &self,
        mut monitor: Monitor,
        source: &Connection,
        domain: &Domain,
        params: &Params,
        cookie: &[u8],
        flags: u32,
    ) -> Result<Cookie, String> {
        let mut downtime = monitor.first_downtime();
        // Before the first byte: a tenth of a second later QEMU judges by it whether to stop the guest.
        if let Some(ms) = downtime
            && source.migrate_set_max_downtime(domain, ms).await.is_ok()
        {
            downtime = None;
        }
        let mut given_up = None;
        let begun = Instant::now();
        let perform = source.migrate_perform(domain, params, cookie, flags);
        tokio::pin!(perform);
        let mut tick = tokio::time::interval(POLL);
        loop {
            // The end does not wait for figures: the guest stands still. A call that is not awaited any more is harmless.
            let stats = async {
                tick.tick().await;
                source.job_stats(domain, 0).await
            };
            let stats = tokio::select! {
                done = &mut perform => {
                    return done.map_err(|error| given_up.unwrap_or_else(|| chain(&error)));
                }
                stats = stats => stats,
            };
            let Ok(Some(stats)) = stats else { continue };
            let sample = self.show(&stats, begun.elapsed());
            if let Some(ms) = downtime
                && source.migrate_set_max_downtime(domain, ms).await.is_ok()
            {
                downtime = None;
            }
            if self.abort.is_cancelled() {
                given_up.get_or_insert_with(|| "Live migration has been aborted".to_owned());
            }
            let order = if given_up.is_some() { None } else { monitor.judge(sample) };
            if let Some(Order::Abort { because }) = &order {
                tracing::warn!(because, "giving the migration up");
                given_up = Some(because.clone());
            }
            if given_up.is_some() {
                // Repeated until it ends: libvirt refuses while QEMU is not yet that far.
                let _ = source.abort_job(domain).await;
            } else if let Some(order) = order {
                self.obey(order, &mut monitor, source, domain, sample.elapsed).await;
            }
        }
    }

    async fn obey(&self, order: Order, monitor: &mut Monitor, source: &Connection, domain: &Domain, elapsed: Duration) {
        tracing::info!(?order, "the migration needs help");
        let (result, mode) = match order {
            Order::PostCopy => (source.migrate_start_post_copy(domain).await, MigrationMode::PostCopy),
            Order::Pause => (source.suspend(domain).await, MigrationMode::Paused),
            Order::MaxDowntime(ms) => {
                let mode = self.state.get().migration.map(|migration| migration.mode).unwrap_or_default();
                (source.migrate_set_max_downtime(domain, ms).await, mode)
            }
            Order::Abort { .. } => return, // the caller's business
        };
        match result {
            Ok(()) => {
                monitor.switched(mode, elapsed);
                self.update(|migration| migration.mode = mode);
                if mode == MigrationMode::PostCopy {
                    mark::leave().await;
                }
            }
            Err(error) => tracing::warn!(error = chain(&error), "that did not help; trying again"),
        }
    }

    /// Not all was sent: the target is told, and the guest goes on here.
    async fn performed_in_vain(
        &self,
        plan: &Plan,
        (source, target): (&Connection, &Connection),
        domain: &Domain,
        params: &Params,
        flags: u32,
        why: String,
    ) -> Pass {
        // A target that does not hear it ends its QEMU with our connection.
        let finish = target.migrate_finish(params, &[], Plan::at_target(flags), true);
        match tokio::time::timeout(GIVE_UP_WITHIN, finish).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                tracing::debug!(error = chain(&error), "the target was told that the guest does not come")
            }
            Err(_) => tracing::warn!("the target does not react to being told that the guest does not come"),
        }
        self.stay(source, domain, plan, flags).await;
        if self.is_post_copy() && self.is_broken().await { Pass::Broken(why) } else { Pass::Stayed(why) }
    }

    /// All is sent. From here on the target's word counts.
    async fn switch_over(
        &self,
        plan: &Plan,
        (source, target): (&Connection, &Connection),
        domain: &Domain,
        params: &Params,
        cookie: &[u8],
        flags: u32,
    ) -> Result<Pass, Error> {
        self.update(|migration| migration.phase = MigrationPhase::SwitchingOver);
        let finished = target.migrate_finish(params, cookie, Plan::at_target(flags), false).await;
        let (cookie, word) = match finished {
            Ok((_, cookie)) => (cookie, Ok(())),
            Err(error) if error.code().is_some() && !self.is_post_copy() => (Vec::new(), Err(chain(&error))),
            Err(error) => {
                tracing::warn!(error = chain(&error), "the target's answer is lost");
                match self.ask_until_known(flags).await {
                    Word::Runs => (Vec::new(), Ok(())),
                    Word::Starves => return Ok(Pass::Broken(chain(&error))),
                    _ if self.is_post_copy() => (Vec::new(), Err(TORN.to_owned())),
                    _ => (Vec::new(), Err(format!("the target did not start the guest: {}", chain(&error)))),
                }
            }
        };
        match word {
            Ok(()) => {
                mark::leave().await;
                let confirmed = source.migrate_confirm(domain, params, &cookie, flags, false).await;
                if let Err(error) = &confirmed {
                    tracing::warn!(error = chain(error), "libvirt does not end the guest that has moved");
                }
                if self.is_post_copy() && confirmed.is_err() && self.is_broken().await {
                    return Ok(Pass::Broken("the connection broke during post-copy".to_owned()));
                }
                self.end_here().await;
                Ok(Pass::Moved)
            }
            Err(why) => {
                self.stay(source, domain, plan, flags).await;
                Ok(Pass::Stayed(why))
            }
        }
    }

    /// Asks the target until it says whether the guest runs there, or until the node agent knows.
    async fn ask_until_known(&self, flags: u32) -> Word {
        let mut settled = self.settled.clone();
        let begun = Instant::now();
        loop {
            if let Some(target_runs) = *settled.borrow_and_update() {
                return if target_runs { Word::Runs } else { Word::DoesNotRun };
            }
            match self.ask(flags, begun.elapsed() > START_WITHIN).await {
                // The target may not have noticed yet that nothing comes any more, or that something comes again.
                Ok(Word::Fetches | Word::Starves) if self.is_broken().await => return Word::Starves,
                Ok(Word::NotYet | Word::Fetches | Word::Starves) => {}
                Ok(word) => return word,
                Err(error) => {
                    self.update(|migration| migration.phase = MigrationPhase::Undecided);
                    tracing::warn!(error = chain(&error), "the target cannot be asked whether the guest runs there");
                }
            }
            tokio::select! {
                _ = settled.changed() => {}
                () = tokio::time::sleep(ASK_AGAIN) => {}
            }
        }
    }

    /// One question. A guest that is there and does not get to run is ended there, if `end_it`.
    async fn ask(&self, flags: u32, end_it: bool) -> Result<Word, libvirt_io::Error> {
        let target = self.target().await?;
        let Some(domain) = target.lookup_by_name(self.name_at_target()).await? else { return Ok(Word::DoesNotRun) };
        let (state, reason) = target.state(&domain).await?;
        let word = word(state, reason, flags & flags::MIGRATE_PAUSED != 0);
        if word == Word::NotYet && end_it {
            target.destroy(&domain, 0).await?;
            return Ok(Word::DoesNotRun);
        }
        Ok(word)
    }

    /// Lets the guest go on here, whatever state libvirt is in. Only called when it does not run at the target.
    async fn stay(&self, source: &Connection, domain: &Domain, plan: &Plan, flags: u32) {
        if let Err(error) = source.migrate_confirm(domain, &plan.params, &[], flags, true).await {
            tracing::debug!(error = chain(&error), "libvirt has nothing left to confirm");
        }
        if self.is_post_copy() {
            return;
        }
        self.insist(if plan.paused { Wish::StayPaused } else { Wish::GoOn }).await;
    }

    /// Ends QEMU here, whatever state libvirt is in. Only called when the guest runs at the target.
    async fn end_here(&self) {
        self.insist(Wish::End).await;
    }

    /// Tries until it is done: a daemon that has died comes back, and its guest must not stay between two states.
    async fn insist(&self, wish: Wish) {
        loop {
            let error = match self.source().await {
                Ok((connection, domain)) => match fulfil(&connection, &domain, wish).await {
                    Ok(()) => return,
                    Err(error) => chain(&error),
                },
                Err(Error::NoDomain) => return,
                Err(error) => chain(&error),
            };
            tracing::warn!(?wish, error, "trying again");
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    fn is_post_copy(&self) -> bool {
        self.state.get().migration.is_some_and(|migration| migration.mode == MigrationMode::PostCopy)
    }

    /// Nothing is sent from here any more.
    async fn is_broken(&self) -> bool {
        let Ok((source, domain)) = self.source().await else { return false };
        let state = source.state(&domain).await;
        matches!(state, Ok((State::Paused, Reason::PostcopyFailed) | (State::Shutoff | State::Crashed, _)))
    }

    async fn final_figures(&self) -> Option<Progress> {
        let (source, domain) = self.source().await.ok()?;
        let flags = flags::JOB_STATS_COMPLETED | flags::JOB_STATS_KEEP_COMPLETED;
        source.job_stats(&domain, flags).await.ok()?.map(|stats| progress(&stats))
    }

    fn show(&self, stats: &JobStats, elapsed: Duration) -> Sample {
        let progress = progress(stats);
        let sample = Sample {
            elapsed,
            remaining: progress.data_remaining,
            iteration: progress.iterations,
            bandwidth: progress.bandwidth,
        };
        self.update(|migration| migration.progress = progress);
        sample
    }

    fn update(&self, change: impl FnOnce(&mut launcher_contract::migration::MigrationState)) {
        self.state.update(|state| {
            if let Some(migration) = &mut state.migration {
                change(migration);
            }
        });
    }
}

fn libvirt(action: &'static str) -> impl FnOnce(libvirt_io::Error) -> Error {
    move |source| Error::Libvirt { action, source }
}

/// libvirt passes QEMU's words on; there is no code for it.
fn is_no_post_copy(error: &libvirt_io::Error) -> bool {
    matches!(error, libvirt_io::Error::Remote { source, .. } if source.message.to_lowercase().contains("postcopy is not supported"))
}

/// What a domain's state at the target means.
fn word(state: State, reason: Reason, moved_paused: bool) -> Word {
    match (state, reason) {
        (State::Running | State::Blocked | State::Paused, Reason::Postcopy) => Word::Fetches,
        (State::Running | State::Blocked | State::Paused, Reason::PostcopyFailed) => Word::Starves,
        (State::Running | State::Blocked | State::PmSuspended | State::Shutdown, _) => Word::Runs,
        // It ran there and has ended: what is here is its past.
        (State::Shutoff | State::Crashed, Reason::Shutdown | Reason::Crashed | Reason::Panicked) => Word::Runs,
        (State::Shutoff | State::Crashed, _) => Word::DoesNotRun,
        (State::Paused, Reason::User) if moved_paused => Word::Runs,
        (State::Paused, Reason::IoError) => Word::Runs,
        (State::Paused | State::NoState | State::Other(_), _) => Word::NotYet,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_goes_on_only_on_the_targets_word() {
        for (state, reason, moved_paused, expected) in [
            (State::Running, Reason::Migrated, false, Word::Runs),
            (State::Running, Reason::Postcopy, false, Word::Fetches),
            (State::Running, Reason::PostcopyFailed, false, Word::Starves),
            (State::Paused, Reason::Migration, false, Word::NotYet),
            (State::Paused, Reason::StartingUp, false, Word::NotYet),
            (State::Paused, Reason::User, false, Word::NotYet),
            (State::Paused, Reason::User, true, Word::Runs),
            (State::Paused, Reason::PostcopyFailed, false, Word::Starves),
            (State::Shutoff, Reason::Failed, false, Word::DoesNotRun),
            (State::Shutoff, Reason::Destroyed, false, Word::DoesNotRun),
            (State::Shutoff, Reason::Shutdown, false, Word::Runs),
            (State::Crashed, Reason::Panicked, false, Word::Runs),
            (State::Other(9), Reason::Unknown, false, Word::NotYet),
        ] {
            assert_eq!(word(state, reason, moved_paused), expected, "{state:?} {reason:?} {moved_paused}");
        }
    }
}
