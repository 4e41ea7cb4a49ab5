//! The user, and virt-api, which turns actions into requests.

use api::config::ClusterConfig;
use api::v1::{
    AddVolumeOptions, BackupStatus, Condition, ConditionStatus, Disk, DiskTarget, HotplugVolumeSource,
    PersistentVolumeClaimVolumeSource, RemoveVolumeOptions, RunStrategy, StateChangeRequestAction, VirtualMachine,
    VirtualMachineInstance, VirtualMachineInstanceMigration, VirtualMachineInstanceMigrationSource,
    VirtualMachineInstanceMigrationTarget, VirtualMachineStateChangeRequest as StateChange,
    VirtualMachineVolumeRequest, Volume,
};
use api::{conditions, labels};
use informer::Key;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim, Pod};
use machinery::meta::{is_deleting, label};
use machinery::status;
use plan::eviction::{self, Subject, Verdict};
use virt_controller::api::{Part, Patch};

use super::utility::plug_utility;
use super::{build, launchers_of};
use crate::engine::{Actor, Sim};
use crate::hub::lock;
use crate::kinds::{Object, key, uid};
use crate::script::{Deed, NAMESPACE, vm_name, vm_namespace, volume_name};
use crate::server::{Answer, Propagation, Server, Writer, about};

const USER: Writer = Writer::User;

fn at(vm: u8) -> Key {
    Key::new(vm_namespace(vm), vm_name(vm))
}

impl Sim {
    pub(crate) fn deed(&mut self, number: usize) {
        let deed = self.script.user[number].1.clone();
        self.timeline.line(self.now, "user", &deed.to_string());
        // An action that is not possible now (no such object, name taken) fails and is dropped.
        self.try_deed(&deed);
    }

    fn try_deed(&mut self, deed: &Deed) -> Option<()> {
        let hub = self.hub.clone();
        let server = &mut lock(&hub).server;
        match deed {
            Deed::CreateVm { vm, strategy, disk } => {
                let keeps = self.script.keeps.contains(vm);
                server.create(USER, build::vm(*vm, strategy, *disk, keeps)).ok()?;
            }
            Deed::CreateVmi { vm } => {
                server.create(USER, build::vmi(*vm, self.script.keeps.contains(vm))).ok()?;
            }
            Deed::CreateClaim { vm } => {
                server.create(USER, build::claim(&format!("{}-claim", vm_name(*vm)))).ok()?;
            }
            Deed::Start { vm } => start(server, &at(*vm))?,
            Deed::Stop { vm } => stop(server, &at(*vm))?,
            Deed::Restart { vm } => restart(server, &at(*vm))?,
            Deed::SetStrategy { vm, strategy } => {
                edit_vm(server, &at(*vm), |vm| vm.spec.run_strategy = Some(strategy.clone()))?;
            }
            Deed::EditTemplate { vm } => edit_vm(server, &at(*vm), |vm| {
                let seconds = &mut vm.spec.template.spec.termination_grace_period_seconds;
                *seconds = Some(seconds.unwrap_or(30) + 1);
            })?,
            Deed::Annotate { vm } => edit_vm(server, &at(*vm), |vm| {
                let notes = vm.metadata.annotations.get_or_insert_default();
                let count = notes.len().to_string();
                notes.insert("example.com/note".to_owned(), count);
            })?,
            Deed::Plug { vm, volume } => plug(server, *vm, *volume, self.claim_to_plug(*vm, *volume))?,
            Deed::Unplug { vm, volume } => unplug(server, *vm, *volume)?,
            Deed::DeleteClaim { vm, volume } => {
                let claim = key(&self.claim_to_plug(*vm, *volume).metadata);
                delete::<PersistentVolumeClaim>(server, &claim, Propagation::Background)?;
            }
            Deed::DeleteVm { vm } => delete::<VirtualMachine>(server, &at(*vm), Propagation::Background)?,
            Deed::OrphanVm { vm } => delete::<VirtualMachine>(server, &at(*vm), Propagation::Orphan)?,
            Deed::DeleteVmi { vm } => delete::<VirtualMachineInstance>(server, &at(*vm), Propagation::Background)?,
            Deed::DeletePod { vm } => {
                let vmi = server.lookup::<VirtualMachineInstance>(&at(*vm))?;
                let pod = launchers_of(server, uid(&vmi.metadata)).next()?;
                let pod = key(&pod.metadata);
                delete::<Pod>(server, &pod, Propagation::Background)?;
            }
            Deed::Migrate { vm } => migrate(server, &at(*vm))?,
            Deed::AbortMigration { vm } => abort_migrations(server, &at(*vm)),
            Deed::Await { vm } => wait_for_guest(server, *vm)?,
            Deed::Send { vm, to } => {
                let receiver = vm_namespace(*to);
                let send = VirtualMachineInstanceMigrationSource {
                    migration_id: exchange(*vm, *to),
                    connect_url: plan::migration::address(receiver),
                };
                ask_to_move(server, &at(*vm), "send", |migration| migration.spec.send_to = Some(send))?;
            }
            Deed::Receive { vm, from } => {
                let receive = VirtualMachineInstanceMigrationTarget { migration_id: exchange(*from, *vm) };
                ask_to_move(server, &at(*vm), "receive", |migration| migration.spec.receive = Some(receive))?;
            }
            Deed::Evict { vm } => {
                let vmi = server.lookup::<VirtualMachineInstance>(&at(*vm))?;
                evict(server, uid(&vmi.metadata), false);
            }
            Deed::TryEvict { vm } => {
                let vmi = server.lookup::<VirtualMachineInstance>(&at(*vm))?;
                evict(server, uid(&vmi.metadata), true);
            }
            Deed::Utility { vm, lasts } => {
                let vmi = plug_utility(server, *vm)?;
                self.act_after(*lasts, Actor::UtilityEnds, &Object::Vmi(vmi));
            }
            Deed::Drain { vm } => {
                let node = server.lookup::<VirtualMachineInstance>(&at(*vm))?.status.as_ref()?.node_name.clone()?;
                let there = |vmi: &VirtualMachineInstance| {
                    vmi.status.as_ref().and_then(|status| status.node_name.as_ref()) == Some(&node)
                };
                let guests = server.tables.vmis.all().filter(|vmi| there(vmi));
                let guests: Vec<String> = guests.map(|vmi| uid(&vmi.metadata).to_owned()).collect();
                guests.iter().for_each(|guest| evict(server, guest, false));
            }
            Deed::CallOff { vm } => call_off(server, &at(*vm))?,
            Deed::Backup { vm } => {
                let vmi = server.lookup::<VirtualMachineInstance>(&at(*vm)).filter(|vmi| vmi.is_running())?;
                let moving = vmi.status.as_ref().and_then(|status| status.migration_state.as_ref());
                if moving.is_some_and(|state| !state.is_over()) {
                    return None; // the node rejects it
                }
                let mut new = (*vmi).clone();
                let tracking = new.status_mut().changed_block_tracking.get_or_insert_default();
                tracking.backup_status = Some(BackupStatus::default());
                server.update(Writer::NodeAgent, Part::Object, new).ok()?;
                let after = self.some_ms(1_000, 40_000);
                self.act_after(after, Actor::BackupEnds, &Object::Vmi(vmi));
            }
            Deed::Resize { vm } => {
                let vmi = server.lookup::<VirtualMachineInstance>(&at(*vm)).filter(|vmi| vmi.is_running())?;
                let (mut new, now) = ((*vmi).clone(), server.time());
                let wanted = Condition::new(conditions::HOT_MEMORY_CHANGE, ConditionStatus::True, "", "", now);
                conditions::set(&mut new.status_mut().conditions, wanted);
                server.update(Writer::NodeAgent, Part::Object, new).ok()?;
            }
            Deed::OldBudget { vm } => {
                let vmi = server.lookup::<VirtualMachineInstance>(&at(*vm))?;
                server.create(USER, build::budget(&vmi)).ok()?;
            }
            Deed::Pause { vm } => self.pause(server, *vm, true)?,
            Deed::Unpause { vm } => self.pause(server, *vm, false)?,
            Deed::ShutDown { vm } | Deed::Crash { vm } => {
                let vmi = server.lookup::<VirtualMachineInstance>(&at(*vm))?;
                let crashed = matches!(deed, Deed::Crash { .. });
                let after = self.some_ms(10, 1_000);
                self.act_after(after, Actor::GuestEnds { crashed }, &Object::Vmi(vmi));
            }
        }
        Some(())
    }

    /// virt-api asks virt-handler, which reports it in a condition.
    fn pause(&mut self, server: &mut Server, vm: u8, paused: bool) -> Option<()> {
        let vmi = server.lookup::<VirtualMachineInstance>(&at(vm)).filter(|vmi| vmi.is_running())?;
        label(&vmi.metadata, labels::NODE_NAME).filter(|node| self.answers(node))?;
        let (mut vmi, now) = ((*vmi).clone(), server.time());
        let list = &mut vmi.status_mut().conditions;
        list.retain(|condition| condition.type_ != conditions::PAUSED);
        if paused {
            list.push(Condition::new(
                conditions::PAUSED,
                ConditionStatus::True,
                "PausedByUser",
                "VMI was paused by user",
                now,
            ));
        }
        server.update(Writer::NodeAgent, Part::Object, vmi).ok()?;
        Some(())
    }
}

fn delete<K>(server: &mut Server, key: &Key, propagation: Propagation) -> Option<()>
where
    K: kube::Resource<DynamicType = ()> + Clone + 'static,
{
    server.delete::<K>(USER, key, None, None, propagation).ok()
}

/// The ID shared by both sides of a migration between VMIs. It is reused by later attempts.
fn exchange(from: u8, to: u8) -> String {
    format!("exchange-{from}-{to}")
}

/// The namespace is created with its first VM.
fn wait_for_guest(server: &mut Server, vm: u8) -> Option<()> {
    let namespace = vm_namespace(vm);
    if server.lookup::<Namespace>(&Key::new("", namespace)).is_none() {
        server.create(USER, build::namespace(namespace)).ok()?;
    }
    if server.lookup::<VirtualMachine>(&at(vm)).is_some() {
        return edit_vm(server, &at(vm), |vm| vm.spec.run_strategy = Some(RunStrategy::WaitAsReceiver));
    }
    server.create(USER, build::receiver(vm)).ok()?;
    Some(())
}

fn migrate(server: &mut Server, key: &Key) -> Option<()> {
    ask_to_move(server, key, "move", |_| {})
}

/// Like admission: requires a migratable VMI without another unfinished migration. Admission reads a cache, so another
/// one may just have been created. VMIs that are not migratable because of their disks can be sent with them.
fn ask_to_move(
    server: &mut Server,
    key: &Key,
    name: &str,
    set: impl FnOnce(&mut VirtualMachineInstanceMigration),
) -> Option<()> {
    let mut migration = VirtualMachineInstanceMigration::default();
    set(&mut migration);
    let vmi = server.lookup::<VirtualMachineInstance>(key).filter(|vmi| !vmi.is_final())?;
    let busy = server.tables.migrations.all().any(|other| {
        let known = other.metadata.creation_timestamp.as_ref() != Some(&server.time());
        known && moves(other, key) && !other.is_final()
    });
    let local = plan::migration::kind(&migration) == plan::migration::Kind::Local;
    let unfit = vmi.condition(conditions::LIVE_MIGRATABLE).is_some_and(|condition| condition.is_false());
    if busy || (local && unfit) {
        return None;
    }
    migration.metadata.namespace = Some(key.namespace.clone());
    migration.metadata.name = Some(format!("{name}-{}-{}", key.name, server.log.len()));
    migration.spec.vmi_name = Some(key.name.clone());
    server.create(USER, migration).ok()?;
    Some(())
}

fn moves(migration: &VirtualMachineInstanceMigration, vmi: &Key) -> bool {
    migration.spec.vmi_name.as_ref() == Some(&vmi.name) && migration.metadata.namespace.as_ref() == Some(&vmi.namespace)
}

fn abort_migrations(server: &mut Server, key: &Key) {
    let unfinished = server.tables.migrations.all().filter(|migration| moves(migration, key) && !migration.is_final());
    let doomed: Vec<Key> = unfinished.map(|migration| Key::of(migration.as_ref())).collect();
    for key in doomed {
        delete::<VirtualMachineInstanceMigration>(server, &key, Propagation::Background);
    }
}

/// Removes the evacuation mark from all guests of the same node. Their migrations are left to the controllers.
fn call_off(server: &mut Server, key: &Key) -> Option<()> {
    let mark = |vmi: &VirtualMachineInstance| vmi.status.as_ref()?.evacuation_node_name.clone();
    let node = mark(&*server.lookup::<VirtualMachineInstance>(key)?)?;
    let marked = server.tables.vmis.all().filter(|vmi| mark(vmi).as_ref() == Some(&node));
    let marked: Vec<VirtualMachineInstance> = marked.map(|vmi| (**vmi).clone()).collect();
    for mut vmi in marked {
        vmi.status_mut().evacuation_node_name = None;
        server.update(USER, Part::Object, vmi).ok()?;
    }
    Some(())
}

/// Evicts all launcher Pods of the guest. Rejected evictions are retried some other time.
fn evict(server: &mut Server, guest: &str, dry_run: bool) {
    let pods: Vec<_> = launchers_of(server, guest).cloned().collect();
    for pod in pods.iter().filter(|pod| matches!(eviction::subject(pod), Subject::Launcher { .. })) {
        let _ = ask_to_leave(server, &key(&pod.metadata), uid(&pod.metadata), dry_run);
    }
}

/// An eviction as handled by the API. In a dry run nobody may write.
pub(crate) fn ask_to_leave(server: &mut Server, at: &Key, uid: &str, dry_run: bool) -> Answer<()> {
    let by = if dry_run { Writer::DryRun } else { Writer::Eviction };
    let config = ClusterConfig::default().effective(server.tables.kubevirts.all().cloned(), None).expect("it is valid");
    let pod = server.lookup::<Pod>(at).ok_or_else(|| about::<Pod>(at, status::not_found))?;
    let vmi = match eviction::subject(&pod) {
        Subject::Launcher { vmi } => Key::new(&at.namespace, vmi),
        _ if dry_run => return Ok(()),
        _ => return server.delete::<Pod>(by, at, Some(uid), None, Propagation::Background),
    };
    let found = server.lookup::<VirtualMachineInstance>(&vmi);
    let world =
        eviction::World { pod: &pod, launcher: None, vmi: found.as_deref(), annotations: None, config: &config };
    let refused = |message: String| Err(Box::new(status::too_many_requests(message, 10)));
    let verdict = eviction::judge(&world);
    match if dry_run { verdict.without_effect() } else { verdict } {
        Verdict::Mark { patch, message } => {
            server.patch::<VirtualMachineInstance>(by, &vmi, Part::Object, &Patch::Json(patch))?;
            refused(message)
        }
        Verdict::Allow if dry_run => Ok(()),
        Verdict::Allow => server.delete::<Pod>(by, at, Some(uid), None, Propagation::Background),
        Verdict::Deny(message) => refused(message),
    }
}

fn edit_vm(server: &mut Server, key: &Key, edit: impl FnOnce(&mut VirtualMachine)) -> Option<()> {
    let mut vm = (*server.lookup::<VirtualMachine>(key)?).clone();
    edit(&mut vm);
    server.update(USER, Part::Object, vm).ok()?;
    Some(())
}

fn request(server: &mut Server, key: &Key, requests: Vec<StateChange>) -> Option<()> {
    let mut vm = (*server.lookup::<VirtualMachine>(key)?).clone();
    vm.status_mut().state_change_requests = requests;
    server.update(USER, Part::Status, vm).ok()?;
    Some(())
}

fn change(action: StateChangeRequestAction, uid: Option<&str>) -> StateChange {
    StateChange { action, uid: uid.map(str::to_owned), ..StateChange::default() }
}

fn start(server: &mut Server, key: &Key) -> Option<()> {
    let vm = server.lookup::<VirtualMachine>(key)?;
    let vmi = server.lookup::<VirtualMachineInstance>(key);
    if vmi.is_some_and(|vmi| !vmi.is_final()) || !requests(&vm).is_empty() {
        return None;
    }
    match vm.run_strategy().ok()? {
        RunStrategy::Manual | RunStrategy::RerunOnFailure => {
            request(server, key, vec![change(StateChangeRequestAction::Start, None)])
        }
        RunStrategy::Halted => edit_vm(server, key, |vm| vm.spec.run_strategy = Some(RunStrategy::Always)),
        _ => None,
    }
}

fn stop(server: &mut Server, key: &Key) -> Option<()> {
    let vm = server.lookup::<VirtualMachine>(key)?;
    match vm.run_strategy().ok()? {
        RunStrategy::Manual | RunStrategy::RerunOnFailure => {
            let vmi = server.lookup::<VirtualMachineInstance>(key).filter(|vmi| !vmi.is_final())?;
            request(server, key, vec![change(StateChangeRequestAction::Stop, vmi.metadata.uid.as_deref())])
        }
        RunStrategy::Always => edit_vm(server, key, |vm| vm.spec.run_strategy = Some(RunStrategy::Halted)),
        _ => None,
    }
}

fn restart(server: &mut Server, key: &Key) -> Option<()> {
    let vm = server.lookup::<VirtualMachine>(key)?;
    let vmi = server.lookup::<VirtualMachineInstance>(key).filter(|vmi| !vmi.is_final())?;
    if vm.run_strategy().ok()? == RunStrategy::Halted || !requests(&vm).is_empty() {
        return None;
    }
    let stop = change(StateChangeRequestAction::Stop, vmi.metadata.uid.as_deref());
    request(server, key, vec![stop, change(StateChangeRequestAction::Start, None)])
}

fn requests(vm: &VirtualMachine) -> &[StateChange] {
    vm.status.as_ref().map_or(&[], |status| &status.state_change_requests)
}

fn extra_disk(name: &str) -> Disk {
    let target = DiskTarget { bus: Some("scsi".to_owned()), ..DiskTarget::default() };
    Disk { name: name.to_owned(), disk: Some(target), ..Disk::default() }
}

/// Hotplugs a claim, which is created if it does not exist: through the VM if there is one, otherwise into the VMI itself.
fn plug(server: &mut Server, vm: u8, volume: u8, claim: PersistentVolumeClaim) -> Option<()> {
    let (key, name) = (at(vm), volume_name(volume));
    let vmi = server.lookup::<VirtualMachineInstance>(&key).filter(|vmi| vmi.is_running())?;
    if is_deleting(&vmi.metadata) || vmi.spec.volumes.iter().any(|volume| volume.name == name) {
        return None;
    }
    let claim_name = claim.metadata.name.clone().unwrap_or_default();
    if server.lookup::<PersistentVolumeClaim>(&Key::new(NAMESPACE, &claim_name)).is_none() {
        server.create(USER, claim).ok()?;
    }
    let claim = PersistentVolumeClaimVolumeSource {
        claim_name,
        hotpluggable: Some(true),
        ..PersistentVolumeClaimVolumeSource::default()
    };
    if server.lookup::<VirtualMachine>(&key).is_some() {
        let source = HotplugVolumeSource { persistent_volume_claim: Some(claim), data_volume: None };
        let options = AddVolumeOptions { disk: extra_disk(&name), name, volume_source: source, dry_run: vec![] };
        return request_volume(
            server,
            &key,
            VirtualMachineVolumeRequest { add_volume_options: Some(options), remove_volume_options: None },
        );
    }
    let mut vmi = (*vmi).clone();
    vmi.spec.domain.devices.disks.push(extra_disk(&name));
    vmi.spec.volumes.push(Volume { name, persistent_volume_claim: Some(claim), ..Volume::default() });
    server.update(USER, Part::Object, vmi).ok()?;
    Some(())
}

fn unplug(server: &mut Server, vm: u8, volume: u8) -> Option<()> {
    let (key, name) = (at(vm), volume_name(volume));
    let vmi = server.lookup::<VirtualMachineInstance>(&key).filter(|vmi| vmi.is_running())?;
    vmi.spec.volumes.iter().find(|volume| volume.name == name)?;
    if server.lookup::<VirtualMachine>(&key).is_some() {
        let options = RemoveVolumeOptions { name, dry_run: vec![] };
        return request_volume(
            server,
            &key,
            VirtualMachineVolumeRequest { add_volume_options: None, remove_volume_options: Some(options) },
        );
    }
    let mut vmi = (*vmi).clone();
    vmi.spec.domain.devices.disks.retain(|disk| disk.name != name);
    vmi.spec.volumes.retain(|volume| volume.name != name);
    server.update(USER, Part::Object, vmi).ok()?;
    Some(())
}

/// Like virt-api: one request per volume name at a time.
fn request_volume(server: &mut Server, key: &Key, request: VirtualMachineVolumeRequest) -> Option<()> {
    let mut vm = (*server.lookup::<VirtualMachine>(key)?).clone();
    let requests = &mut vm.status_mut().volume_requests;
    let name = |request: &VirtualMachineVolumeRequest| {
        let added = request.add_volume_options.as_ref().map(|options| options.name.clone());
        added.or_else(|| request.remove_volume_options.as_ref().map(|options| options.name.clone()))
    };
    if requests.iter().any(|pending| name(pending) == name(&request)) {
        return None;
    }
    requests.push(request);
    server.update(USER, Part::Status, vm).ok()?;
    Some(())
}
