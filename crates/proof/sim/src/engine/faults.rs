//! Faults of processes, watches and requests.

use std::time::Duration;

use informer::Key;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::Resource;
use machinery::status;
use virt_controller::api::Part;

use super::{Event, Sim};
use crate::hub::{Request, lock};
use crate::kinds::Kind;
use crate::profile::NODE_REMOVED_AFTER;
use crate::script::{Fault, vm_name};
use crate::server::{Server, Writer};

impl Sim {
    /// A fault begins.
    pub(super) fn fault(&mut self, number: usize) {
        let fault = self.script.faults[number];
        self.timeline.line(self.now, "fault", &fault.to_string());
        match fault {
            Fault::Outage { kind, lasts, .. } => self.break_watch(kind, lasts),
            Fault::Crash { .. } => self.crash(),
            Fault::NewLeader { in_flight, .. } => self.change_leader(in_flight),
            Fault::Upgrade { .. } => {
                self.image += 1;
                self.begin_upgrade();
                self.crash();
            }
            Fault::Updates { evict, .. } => self.choose_updates(evict),
            Fault::NodeOutage { node, lasts, .. } => {
                self.silence_node(node);
                self.schedule(lasts, Event::NodeBack { node });
            }
            Fault::NodeLoss { node, .. } => {
                self.silence_node(node);
                self.schedule(NODE_REMOVED_AFTER, Event::NodeRemoved { node });
            }
            Fault::NoTargets { lasts, quota, .. } => {
                self.refuse_targets(quota);
                self.schedule(lasts, Event::TargetsAllowed);
            }
            Fault::Lag { .. }
            | Fault::Refuse { .. }
            | Fault::LoseAnswer { .. }
            | Fault::Interfere { .. }
            | Fault::CrashAt { .. }
            | Fault::SlowKey { .. }
            | Fault::Pod { .. }
            | Fault::Guest { .. }
            | Fault::Volume { .. }
            | Fault::Claim { .. }
            | Fault::Mount { .. }
            | Fault::Eject { .. }
            | Fault::Journey { .. }
            | Fault::Job { .. } => {}
        }
    }

    /// Additional delay of events of this kind.
    pub(super) fn lag(&self, kind: Kind) -> Duration {
        let lags = self.script.faults.iter().filter_map(|fault| match fault {
            Fault::Lag { kind: of, from, until, by } if *of == kind && (*from..*until).contains(&self.now) => Some(*by),
            _ => None,
        });
        lags.max().unwrap_or_default()
    }

    /// One-way latency between a controller and the server for this key.
    pub(super) fn latency(&mut self, key: &Key) -> Duration {
        let slow = self.script.faults.iter().filter_map(|fault| match fault {
            Fault::SlowKey { vm, from, until, latency }
                if vm_name(*vm) == key.name && (*from..*until).contains(&self.now) =>
            {
                Some(*latency)
            }
            _ => None,
        });
        slow.max().unwrap_or_default() + self.some_ms(1, 25)
    }

    /// Faults that are triggered by a request number, until the calm phase.
    fn faults_of_requests(&self) -> &[Fault] {
        if self.now < self.script.calm { &self.script.faults } else { &[] }
    }

    pub(super) fn refusal(&self, number: u64) -> Option<Box<Status>> {
        self.faults_of_requests().iter().find_map(|fault| match fault {
            Fault::Refuse { from, count, code } if (*from..from + count).contains(&number) => {
                Some(Box::new(match code {
                    429 => status::too_many_requests("too many requests, try again later", 1),
                    503 => status::service_unavailable("etcd has no leader"),
                    _ => status::internal("etcdserver: request timed out"),
                }))
            }
            _ => None,
        })
    }

    pub(super) fn loses_answer(&self, number: u64) -> bool {
        self.faults_of_requests().contains(&Fault::LoseAnswer { request: number })
    }

    pub(super) fn crashes_at(&self, number: u64, after: bool) -> bool {
        self.faults_of_requests().contains(&Fault::CrashAt { request: number, after })
    }

    /// Somebody else writes the same object first.
    pub(super) fn interfere(&mut self, number: u64, request: Option<&Request>) {
        if !self.faults_of_requests().contains(&Fault::Interfere { request: number }) {
            return;
        }
        let Some(request) = request.filter(|request| request.is_guarded()) else { return };
        let server = &mut lock(&self.hub).server;
        match request.kind {
            Some(Kind::Vm) => touch::<api::v1::VirtualMachine>(server, &request.key, number),
            Some(Kind::Vmi) => touch::<api::v1::VirtualMachineInstance>(server, &request.key, number),
            Some(Kind::Pod) => touch::<Pod>(server, &request.key, number),
            _ => {}
        }
    }
}

fn touch<K: Resource<DynamicType = ()> + Clone + 'static>(server: &mut Server, key: &Key, number: u64) {
    let Some(object) = server.lookup::<K>(key) else { return };
    let mut object = (*object).clone();
    object.meta_mut().annotations.get_or_insert_default().insert("example.com/touched".to_owned(), number.to_string());
    server.update(Writer::Stranger, Part::Object, object).expect("written right after it was read");
}
