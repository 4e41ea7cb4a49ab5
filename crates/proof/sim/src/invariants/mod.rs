//! The invariants of every history, one file each.
//!
//! An invariant sees every change, every request and every pass, in order, together with the true state of the server
//! and what the pass could know. The first violation ends the history.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use informer::Key;
use virt_controller::Stores;

use crate::actors::Guests;
use crate::engine::PassInfo;
use crate::hub::Request;
use crate::kinds::{Kind, Object};
use crate::server::{Change, Server, Writer};

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub invariant: &'static str,
    pub at: Duration,
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is violated at {:.3}s: {}", self.invariant, self.at.as_secs_f64(), self.message)
    }
}

pub(crate) type Verdict = Result<(), String>;

/// What an invariant can inspect.
pub(crate) struct Scene<'a> {
    pub(crate) server: &'a Server,
    passes: &'a BTreeMap<u64, Arc<PassInfo>>,
    /// The launcher image of the leader.
    pub(crate) image: &'a String,
    /// Where guests really run.
    pub(crate) guests: &'a Guests,
}

impl Scene<'_> {
    /// The pass that made a write, if it was one.
    pub(crate) fn pass(&self, by: Writer) -> Option<&PassInfo> {
        let Writer::Controller { pass, .. } = by else { return None };
        self.passes.get(&pass).map(Arc::as_ref)
    }

    /// The object as cached when the pass began.
    pub(crate) fn cached(&self, pass: &PassInfo, kind: Kind, key: &Key) -> Option<Object> {
        let stream = &self.server.stream(kind)[..pass.seen[kind as usize]];
        let last = stream.iter().rev().map(|&at| &self.server.log[at]).find(|change| change.last.is_at(key))?;
        last.is.clone()
    }

    /// All objects of a kind as cached when the pass began.
    pub(crate) fn all_cached(&self, pass: &PassInfo, kind: Kind) -> Vec<Object> {
        self.server.seen(kind, pass.seen[kind as usize]).into_values().collect()
    }
}

/// Something that must hold.
pub(crate) trait Invariant: Send {
    fn name(&self) -> &'static str;

    /// An object has changed.
    fn change(&mut self, _scene: &Scene<'_>, _change: &Change) -> Verdict {
        Ok(())
    }

    /// A guest has started or switched over.
    fn guests(&mut self, _scene: &Scene<'_>) -> Verdict {
        Ok(())
    }

    /// A controller sends a request.
    fn request(&mut self, _scene: &Scene<'_>, _pass: &PassInfo, _request: &Request) -> Verdict {
        Ok(())
    }

    /// The server has responded: success, or this status code.
    fn answer(
        &mut self,
        _scene: &Scene<'_>,
        _pass: &PassInfo,
        _request: &Request,
        _answer: Result<(), u16>,
    ) -> Verdict {
        Ok(())
    }

    /// A pass has ended, well or with an error.
    fn pass_ends(&mut self, _scene: &Scene<'_>, _pass: &PassInfo, _ok: bool) -> Verdict {
        Ok(())
    }

    /// Everything has settled.
    fn rest(&mut self, _scene: &Scene<'_>, _stores: &Stores) -> Verdict {
        Ok(())
    }
}

macro_rules! invariants {
    ($($module:ident),* $(,)?) => {
        $(mod $module;)*

        fn all() -> Vec<Box<dyn Invariant>> {
            vec![$(Box::new($module::Rule::default()),)*]
        }
    };
}

mod support;

invariants!(
    one_launcher,
    no_early_launcher,
    expectations,
    temp_pods,
    phase_table,
    guarded_patches,
    agents_fields,
    hand_over,
    node_stays,
    active_pods,
    pods_before_finalizers,
    outcome_first,
    going_ends,
    outdated_image,
    vsock_cids,
    ready,
    one_pending_attachment,
    unplug_waits,
    no_gap,
    volume_status,
    disks,
    attachments_beside,
    one_vmi_step,
    strategies,
    stops_have_reasons,
    backoff,
    start_revision,
    restart_required,
    printable,
    generations,
    firmware,
    data_volumes_once,
    vm_finalizer,
    silent_nodes,
    only_the_leader,
    conflicts,
    caches,
    owners,
    absence_is_confirmed,
    waits,
    one_target,
    limits,
    target_placement,
    one_guest,
    between,
    migration_phases,
    handed_off,
    policies,
    migration_backoff,
    migrations_kept,
    priorities,
    quota_waits,
    steady_waits,
    backups_block,
    state_claims,
    recovery_first,
    evictions,
    evacuations,
    workload_updates,
    needed,
    budgets,
);

/// Runs all invariants and records the first violation.
pub(crate) struct Judge {
    all: Vec<Box<dyn Invariant>>,
    passes: BTreeMap<u64, Arc<PassInfo>>,
    pub(crate) violation: Option<Violation>,
    now: Duration,
    pub(crate) image: String,
    pub(crate) guests: Guests,
}

impl Judge {
    pub(crate) fn new() -> Self {
        Self {
            all: all(),
            passes: BTreeMap::new(),
            violation: None,
            now: Duration::ZERO,
            image: String::new(),
            guests: Guests::default(),
        }
    }

    fn ask(&mut self, server: &Server, question: impl Fn(&mut dyn Invariant, &Scene<'_>) -> Verdict) {
        self.now = server.now;
        let scene = Scene { server, passes: &self.passes, image: &self.image, guests: &self.guests };
        for invariant in &mut self.all {
            if self.violation.is_none()
                && let Err(message) = question(invariant.as_mut(), &scene)
            {
                self.violation = Some(Violation { invariant: invariant.name(), at: server.now, message });
            }
        }
    }

    pub(crate) fn change(&mut self, server: &Server, change: &Change) {
        self.ask(server, |invariant, scene| invariant.change(scene, change));
    }

    pub(crate) fn guest_changed(&mut self, server: &Server) {
        self.ask(server, |invariant, scene| invariant.guests(scene));
    }

    pub(crate) fn request(&mut self, server: &Server, pass: &PassInfo, request: &Request) {
        self.ask(server, |invariant, scene| invariant.request(scene, pass, request));
    }

    pub(crate) fn answer(&mut self, server: &Server, pass: &PassInfo, request: &Request, answer: Result<(), u16>) {
        self.ask(server, |invariant, scene| invariant.answer(scene, pass, request, answer));
    }

    pub(crate) fn pass_begins(&mut self, pass: &Arc<PassInfo>) {
        self.passes.insert(pass.id, pass.clone());
    }

    pub(crate) fn pass_ends(&mut self, server: &Server, pass: &PassInfo, ok: bool) {
        self.ask(server, |invariant, scene| invariant.pass_ends(scene, pass, ok));
    }

    pub(crate) fn rest(&mut self, server: &Server, stores: &Stores) {
        self.ask(server, |invariant, scene| invariant.rest(scene, stores));
    }

    pub(crate) fn panicked(&mut self, pass: &PassInfo, message: &str) {
        let message = format!("{:?} {}: {message}", pass.controller, pass.key);
        self.violation.get_or_insert(Violation { invariant: "no_panics", at: self.now, message });
    }
}
