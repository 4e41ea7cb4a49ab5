//! The two libvirt daemons with their QEMUs, and the link between the Pods.

use std::time::Duration;

use launcher_contract::migration::Progress;
use launcher_contract::types::{DomainReason as Reason, DomainStatus as Status};
use transfer::{Command, Domain, Event, Failure, How};

use super::{Happening, Move, SOURCE, TARGET, Trouble};

/// The guest at the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Here {
    Running,
    /// Stopped for the switch-over; all of it is here.
    Standing,
    /// Runs at the target; part of its memory is still here.
    HandedOver,
    /// The same, and nothing is sent any more.
    Broken,
    Down(Reason),
}

/// The guest at the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum There {
    Nothing,
    /// QEMU waits for memory.
    Waiting,
    Running,
    /// Runs, and fetches memory.
    Fetching,
    /// The same, but receives nothing any more.
    Starving,
    Down(Reason),
}

impl Here {
    pub(super) fn domain(self) -> Domain {
        match self {
            Here::Running => (Status::Running, Reason::Booted),
            Here::Standing => (Status::Paused, Reason::PausedMigration),
            Here::HandedOver => (Status::Paused, Reason::PausedPostcopy),
            Here::Broken => (Status::Paused, Reason::PausedPostcopyFailed),
            Here::Down(reason) => (Status::Shutoff, reason),
        }
    }
}

impl There {
    pub(super) fn runs(self) -> bool {
        matches!(self, There::Running | There::Fetching | There::Starving)
    }

    pub(super) fn domain(self) -> Option<Domain> {
        match self {
            There::Nothing => None,
            There::Waiting => Some((Status::Paused, Reason::PausedMigration)),
            There::Running => Some((Status::Running, Reason::Migrated)),
            There::Fetching => Some((Status::Running, Reason::Postcopy)),
            There::Starving => Some((Status::Paused, Reason::PausedPostcopyFailed)),
            There::Down(reason) => Some((Status::Shutoff, reason)),
        }
    }
}

fn refused(why: &str) -> Failure {
    Failure { how: How::Refused, text: why.to_owned() }
}

fn lost() -> Failure {
    Failure { how: How::Lost, text: "the connection is closed".to_owned() }
}

/// The event of a call without a response; `None` if nobody waits for it.
fn unanswered(command: &Command) -> Option<Event> {
    Some(match command {
        Command::Reach => Event::Reached(Err(lost())),
        Command::Begin(_) => Event::Begun(Err(lost())),
        Command::Prepare(_) => Event::Prepared(Err(lost())),
        Command::SetDowntime(_) => Event::Allowed(Err(lost())),
        Command::Perform(_) => Event::Performed(Err(lost())),
        Command::Sample => Event::Sampled(None),
        Command::StartPostCopy | Command::Suspend => Event::Switched(Err(lost())),
        Command::Finish { .. } => Event::Finished(Err(lost())),
        Command::AskTarget => Event::There(Err(lost())),
        Command::DestroyThere => Event::DestroyedThere(Err(lost())),
        Command::LeaveMark => Event::Marked,
        Command::Confirm { .. } => Event::Confirmed(Err(lost())),
        Command::Look => Event::Here(Err(lost())),
        Command::Resume | Command::Destroy => Event::Done(Err(lost())),
        Command::AbortJob | Command::Report(_) | Command::Warn(_) | Command::End(_) => return None,
    })
}

fn is_remote(command: &Command) -> bool {
    matches!(
        command,
        Command::Reach | Command::Prepare(_) | Command::Finish { .. } | Command::AskTarget | Command::DestroyThere
    )
}

impl Move {
    /// Whether the source's launcher reaches the target's libvirt, through both virt-handlers.
    fn is_open(&self) -> bool {
        let [source, target] = &self.sides;
        self.now >= self.link_down_until
            && source.agent
            && target.agent
            && target.launcher
            && source.dialling.is_some()
            && target.listening.is_some()
    }

    /// A call may or may not reach its daemon, and its response the caller.
    pub(super) fn call(&mut self, command: Command) {
        if !self.sides[SOURCE].launcher {
            return;
        }
        let remote = is_remote(&command);
        if (remote && !self.is_open()) || self.chance(if remote { 4 } else { 1 }) {
            if remote {
                self.disconnect();
            }
            return self.no_answer(&command);
        }
        let answer = self.carry_out(&command);
        let Some(event) = answer else { return };
        if self.chance(if remote { 4 } else { 1 }) {
            return self.no_answer(&command);
        }
        self.answer(event);
    }

    fn answer(&mut self, event: Event) {
        let runs = matches!(&event, Event::Finished(Ok(())) | Event::There(Ok(Some((Status::Running, _)))));
        self.told |= runs && self.there.runs();
        self.soon(1, 30, Happening::Hears(event));
    }

    fn no_answer(&mut self, command: &Command) {
        if let Some(event) = unanswered(command) {
            self.soon(100, 8_000, Happening::Hears(event));
        }
    }

    /// A QEMU that waits for memory exits when the connection that prepared it closes.
    fn disconnect(&mut self) {
        if self.there == There::Waiting && !self.finishing {
            self.target_ends(There::Nothing);
        }
    }

    /// QEMU exits at the target; whoever waits for it notices.
    pub(super) fn target_ends(&mut self, left: There) {
        self.there = left;
        if self.here == Here::HandedOver {
            self.break_post_copy();
        }
        if self.performing {
            self.transfer_fails("broken pipe");
        }
        if self.finishing {
            self.soon(1, 50, Happening::Finishes);
        }
    }

    /// `None` if the response comes later, or never.
    fn carry_out(&mut self, command: &Command) -> Option<Event> {
        Some(match command {
            Command::Reach => Event::Reached(Ok(())),
            Command::Begin(_) => match self.here {
                Here::Down(_) => Event::Begun(Err(refused("the domain does not run"))),
                _ => Event::Begun(Ok(())),
            },
            Command::Prepare(_) => match self.there {
                There::Nothing => {
                    self.there = There::Waiting;
                    Event::Prepared(Ok(()))
                }
                _ => Event::Prepared(Err(refused("the domain exists"))),
            },
            Command::SetDowntime(_) => Event::Allowed(Ok(())),
            Command::Perform(pass) => return self.perform(pass.resumes),
            Command::Sample => {
                let data_remaining = if self.busy { 1_000 } else { self.rng.below(1_000) };
                Event::Sampled(Some(Progress { data_remaining, ..Progress::default() }))
            }
            Command::StartPostCopy => Event::Switched(self.start_post_copy()),
            Command::Suspend => {
                if self.here == Here::Running {
                    self.here = Here::Standing;
                    self.busy = false;
                    self.after(Duration::from_secs(2), Happening::Sent(self.transfer));
                }
                Event::Switched(Ok(()))
            }
            Command::AbortJob => {
                if self.performing && self.here != Here::HandedOver {
                    self.transfer_fails("canceled");
                }
                return None;
            }
            Command::Finish { cancelled: false, .. } => return self.finish(),
            Command::Finish { .. } => match self.there {
                There::Fetching | There::Starving => Event::Finished(Err(refused("post-copy has failed"))),
                _ => {
                    self.disconnect();
                    Event::Finished(Ok(()))
                }
            },
            Command::AskTarget => Event::There(Ok(self.there.domain())),
            Command::DestroyThere => {
                self.disconnect();
                Event::DestroyedThere(Ok(()))
            }
            Command::LeaveMark => Event::Marked,
            Command::Confirm { cancelled, .. } => Event::Confirmed(self.confirm(*cancelled)),
            Command::Look => Event::Here(Ok(Some(self.here.domain()))),
            Command::Resume => Event::Done(self.resume()),
            Command::Destroy => {
                self.ends_here("the launcher");
                self.source_qemu_ends(Reason::Destroyed);
                Event::Done(Ok(()))
            }
            Command::Report(_) | Command::Warn(_) | Command::End(_) => return None,
        })
    }

    fn perform(&mut self, resumes: bool) -> Option<Event> {
        self.transfer += 1;
        let open = self.is_open();
        if resumes {
            if !open || self.here != Here::Broken || self.there != There::Starving {
                return Some(Event::Performed(Err(refused("nobody listens"))));
            }
            (self.here, self.there) = (Here::HandedOver, There::Fetching);
            self.after(self.takes / 2, Happening::Sent(self.transfer));
            return Some(Event::Performed(Ok(())));
        }
        if !open || self.there != There::Waiting {
            return Some(Event::Performed(Err(refused("nobody listens"))));
        }
        self.performing = true;
        if !self.busy {
            self.after(self.takes, Happening::Sent(self.transfer));
        }
        None
    }

    fn transfer_fails(&mut self, why: &str) {
        self.performing = false;
        self.transfer += 1;
        self.answer(Event::Performed(Err(refused(why))));
    }

    fn start_post_copy(&mut self) -> Result<(), Failure> {
        if !self.performing || !self.is_open() || self.there != There::Waiting || self.here != Here::Running {
            return Err(refused("not now"));
        }
        (self.here, self.there) = (Here::HandedOver, There::Fetching);
        (self.performing, self.receiving) = (false, true);
        self.transfer += 1;
        self.after(self.takes / 2, Happening::Sent(self.transfer));
        self.soon(1, 100, Happening::Hears(Event::Performed(Ok(()))));
        Ok(())
    }

    /// The last of the memory has arrived.
    pub(super) fn sent(&mut self) {
        if self.here == Here::HandedOver && self.there == There::Fetching {
            self.there = There::Running;
            match self.finishing {
                true => self.soon(1, 50, Happening::Finishes),
                // libvirt notices by itself.
                false => self.receiving = false,
            }
        } else if self.performing && self.is_open() && self.there == There::Waiting {
            self.here = Here::Standing;
            self.performing = false;
            self.answer(Event::Performed(Ok(())));
        } else if self.performing {
            self.transfer_fails("broken pipe");
        }
    }

    /// The target is to run the guest.
    fn finish(&mut self) -> Option<Event> {
        match self.there {
            There::Waiting => {
                (self.there, self.receiving, self.finishing) = (There::Running, true, true);
                if self.chance(8) {
                    self.soon(1, 200, Happening::Goes(Trouble::QemuDies(TARGET)));
                }
                self.soon(5, 300, Happening::Finishes);
            }
            There::Running => {
                self.finishing = true;
                self.soon(1, 50, Happening::Finishes);
            }
            There::Fetching => self.finishing = true,
            There::Nothing | There::Starving | There::Down(_) => {
                return Some(Event::Finished(Err(refused("the guest does not run"))));
            }
        }
        None
    }

    pub(super) fn finished(&mut self) {
        if !std::mem::take(&mut self.finishing) {
            return;
        }
        self.receiving = false;
        self.soon(1, 30, Happening::TargetLooks);
        let lose = self.chance(10);
        if lose || !self.is_open() {
            return self.soon(100, 8_000, Happening::Hears(Event::Finished(Err(lost()))));
        }
        let runs = self.there == There::Running;
        self.answer(Event::Finished(if runs { Ok(()) } else { Err(refused("QEMU died")) }));
    }

    fn confirm(&mut self, cancelled: bool) -> Result<(), Failure> {
        match (cancelled, self.here) {
            (_, Here::Down(_)) => Err(refused("the domain does not run")),
            (true, Here::Standing) => self.resume(),
            (true, Here::HandedOver) => {
                self.break_post_copy();
                Ok(())
            }
            (true, Here::Running | Here::Broken) => Ok(()),
            (false, Here::Broken) => Err(refused("post-copy has failed")),
            (false, _) => {
                self.ends_here("Confirm");
                self.source_qemu_ends(Reason::Migrated);
                Ok(())
            }
        }
    }

    fn resume(&mut self) -> Result<(), Failure> {
        match self.here {
            Here::Standing => {
                self.here = Here::Running;
                Ok(())
            }
            Here::Running => Ok(()),
            _ => Err(refused("the guest is not here")),
        }
    }

    fn break_post_copy(&mut self) {
        self.transfer += 1;
        if self.here == Here::HandedOver {
            self.here = Here::Broken;
        }
        self.starve();
    }

    /// The target receives no memory any more. A pending Finish fails.
    fn starve(&mut self) {
        if self.there == There::Fetching {
            self.there = There::Starving;
            self.finished();
        }
    }

    pub(super) fn link_breaks(&mut self, lasts: Duration) {
        self.link_down_until = self.link_down_until.max(self.now + lasts);
        if self.performing {
            self.transfer_fails("broken pipe");
        }
        if self.here == Here::HandedOver {
            self.break_post_copy();
        }
        self.disconnect();
    }

    pub(super) fn source_qemu_ends(&mut self, reason: Reason) {
        if matches!(self.here, Here::Down(_)) {
            return;
        }
        if self.there != There::Running {
            self.excuse.get_or_insert("QEMU died at the source");
        }
        if self.performing {
            self.transfer_fails("QEMU died");
        }
        self.starve();
        self.transfer += 1;
        self.here = Here::Down(reason);
        self.disconnect();
    }

    /// Whether the guest survives the end of QEMU at the target: all of it is at the source, and nobody was told
    /// otherwise.
    fn outlives_target(&self) -> bool {
        let whole = matches!(self.here, Here::Standing | Here::Running);
        whole && self.sides[SOURCE].launcher && !self.told && !self.is_taken()
    }

    pub(super) fn target_qemu_dies(&mut self) {
        let safe = self.outlives_target() && !self.has_long_run();
        match self.there {
            There::Nothing | There::Down(_) => {}
            There::Waiting => self.target_ends(There::Nothing),
            There::Running | There::Fetching | There::Starving => {
                if !safe {
                    self.excuse = Some("QEMU died at the target");
                }
                self.target_ends(There::Down(Reason::Crashed));
            }
        }
    }

    pub(super) fn launcher_dies(&mut self, side: usize) {
        self.sides[side].launcher = false;
        if side == SOURCE {
            self.source_qemu_ends(Reason::Destroyed);
            self.excuse.get_or_insert("the source's launcher died");
        } else {
            if self.there.runs() && !self.outlives_target() {
                self.excuse = Some("the target's launcher died");
            }
            self.target_ends(There::Nothing);
        }
        self.look_soon(SOURCE);
        self.look_soon(TARGET);
    }
}
