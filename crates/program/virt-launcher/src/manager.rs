//! The domain manager: executes virt-handler's requests.
//!
//! Observes, lets [`lifecycle::Guest`] decide, and acts. One lock serializes all changes to the domain, except killing the
//! guest, which must work while a start hangs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::v1::VirtualMachineInstance;
use domain::{DiskFacts, HostFacts, InterfaceFacts, Paths};
use jiff::Timestamp;
use launcher_contract::migration::PrepareTargetRequest;
use launcher_contract::types::{Command, DomainStatus, Lease, MemoryDumpRequest, SyncOptions};
use libvirt_io::{Connection, Domain, flags};
use lifecycle::{Act, Answer, Change, Facts, Guest, Receive, Sync};
use serde_json::Value;
use tokio::sync::{Mutex, Notify, Semaphore, watch};
use tokio_util::task::AbortOnDropHandle;

use crate::children::Children;
use crate::disks::{self, Preparer, Role};
use crate::error::{Error, chain};
use crate::migration::{Sockets, Source, Target};
use crate::session::Session;
use crate::state::StateStore;
use crate::{agent, console_log, dhcp, dump, plug, podnet};

/// Maximum number of concurrent guest agent commands from clients, so that a guest that never answers cannot use up the
/// daemon's call limit.
const AGENT_CALLS: usize = 3;

/// How long libvirt may be unavailable right after a start.
const CONFIRM_WITHIN: Duration = Duration::from_secs(60);

/// Configuration of the manager, fixed for the launcher's lifetime.
pub(crate) struct Config {
    pub(crate) uid: String,
    pub(crate) domain_name: String,
    /// Directory shared with virt-handler.
    pub(crate) share_dir: PathBuf,
    pub(crate) paths: Paths,
    pub(crate) image_volumes: bool,
    pub(crate) allow_emulation: bool,
    pub(crate) disk_memory_limit: u64,
}

pub(crate) struct Manager {
    config: Config,
    children: Children,
    session: Session,
    state: StateStore,
    inner: Mutex<Inner>,
    agent_calls: Semaphore,
    pub(crate) source: Source,
    target: Target,
    /// Has started once the state shows it.
    guest: watch::Sender<Guest>,
    deleted: Notify,
}

#[derive(Default)]
struct Inner {
    dhcp: Vec<AbortOnDropHandle<()>>,
    /// Keeps the log of the guest's console short.
    console_log: Option<AbortOnDropHandle<()>>,
}

impl Manager {
    pub(crate) fn new(config: Config, children: Children, session: Session, state: StateStore) -> Arc<Manager> {
        let sockets = Sockets::new(&config.share_dir, &config.uid);
        let source = Source::new(session.clone(), state.clone(), config.domain_name.clone(), sockets.clone());
        Arc::new(Manager {
            source,
            target: Target::new(session.clone(), state.clone(), sockets),
            config,
            children,
            session,
            state,
            inner: Mutex::default(),
            agent_calls: Semaphore::new(AGENT_CALLS),
            guest: watch::Sender::default(),
            deleted: Notify::new(),
        })
    }

    pub(crate) fn guard(&self, uid: &str) -> Result<(), Error> {
        if uid == self.config.uid {
            return Ok(());
        }
        Err(Error::WrongVmi { mine: self.config.uid.clone(), asked: uid.to_owned() })
    }

    /// Resolves when the guest has been started and the state shows it.
    pub(crate) async fn started(&self) {
        // `self` holds the sender, so this cannot fail.
        let _ = self.guest.subscribe().wait_for(|guest| guest.has_started()).await;
    }

    /// Resolves when the domain has been deleted on request.
    pub(crate) async fn deleted(&self) {
        self.deleted.notified().await;
    }

    /// Defines and starts the domain if necessary, resumes it if it is paused but no user paused it, and plugs and unplugs
    /// disks.
    pub(crate) async fn sync(&self, vmi: &VirtualMachineInstance, options: &SyncOptions) -> Result<(), Error> {
        let result = self.try_sync(vmi, options).await;
        // A late sync, or one for another launcher, says nothing about this guest.
        if matches!(result, Err(Error::WrongState(_) | Error::WrongVmi { .. })) {
            return result;
        }
        let last_error = result.as_ref().err().map(|error| chain(error));
        if let Some(error) = &last_error {
            tracing::error!(error, "cannot sync the guest");
        }
        self.state.update(|state| state.last_error = last_error);
        result
    }

    async fn try_sync(&self, vmi: &VirtualMachineInstance, options: &SyncOptions) -> Result<(), Error> {
        self.guard(vmi.metadata.uid.as_deref().unwrap_or_default())?;
        let mut inner = self.inner.lock().await;
        self.session.refresh().await?;
        match self.decide(Guest::sync)? {
            Sync::Start => {
                let connection = self.session.connection().await?;
                self.start(&connection, vmi, options, &mut inner).await
            }
            Sync::Resume => {
                // First of all: the disk that made it stop may be about to leave.
                let plugged = self.plug(vmi, options).await;
                let (connection, domain) = self.domain().await?;
                tracing::info!(reason = ?self.state.get().domain.map(|domain| domain.reason), "resuming the guest");
                connection.resume(&domain).await.map_err(libvirt("resume the guest"))?;
                self.session.refresh().await?;
                plugged
            }
            Sync::Adjust => {
                self.plug(vmi, options).await?;
                if options.expand_disks { self.grow_disks(vmi).await } else { Ok(()) }
            }
            Sync::Nothing(because) => {
                tracing::debug!(because, "nothing to sync");
                Ok(())
            }
        }
    }

    /// Lets the guest have the volumes that are mounted for it, and no others.
    async fn plug(&self, vmi: &VirtualMachineInstance, options: &SyncOptions) -> Result<(), Error> {
        let (connection, domain) = self.domain().await?;
        let live = connection.xml_desc(&domain, 0).await.map_err(libvirt("read the domain's disks"))?;
        let (disks, missing) = self.preparer(options, Role::Start { expand: false }).plugged(vmi);
        let facts = self.facts(options, disks, Vec::new());
        let (changes, errors) = domain::disk_changes(vmi, &facts, &live).map_err(Error::Convert)?;
        if changes.is_empty() && missing.is_empty() && errors.is_empty() {
            return Ok(());
        }
        let refused = missing.iter().map(|error| chain(error)).chain(errors.iter().map(|error| chain(error)));
        let mut outcome = plug::Outcome { refused: refused.collect(), held: Vec::new() };
        let done = plug::carry_out(&connection, &domain, changes, &mut outcome).await;
        self.session.refresh().await?;
        done?;
        outcome.result()
    }

    /// Lets the guest see how much its claims have grown.
    async fn grow_disks(&self, vmi: &VirtualMachineInstance) -> Result<(), Error> {
        let Some(guest) = self.state.get().domain.filter(|guest| guest.status == DomainStatus::Running) else {
            return Ok(());
        };
        for disk in guest.disks.iter().filter(|disk| disk.capacity > 0) {
            let larger = disks::larger(vmi, disk).map_err(Error::Disks)?;
            let Some(bytes) = larger else { continue };
            let (connection, domain) = self.domain().await?;
            tracing::info!(disk = disk.alias, from = disk.capacity, to = bytes, "growing the guest's disk");
            let grown = connection.block_resize(&domain, &disk.target, bytes).await;
            grown.map_err(|source| Error::Grow { disk: disk.alias.clone(), source })?;
            disks::forget_size(&self.state, disk);
        }
        Ok(())
    }

    fn decide<T>(&self, decide: impl FnOnce(Guest, Facts<'_>) -> Result<T, transfer::Refused>) -> Result<T, Error> {
        let state = self.state.get();
        Ok(decide(*self.guest.borrow(), Facts::of(&state, self.source.is_busy()))?)
    }

    fn note(&self, change: Change) {
        self.guest.send_modify(|guest| guest.on(change));
    }

    /// Prepares to receive the guest. Idempotent.
    pub(crate) async fn prepare_target(&self, request: PrepareTargetRequest) -> Result<(), Error> {
        let PrepareTargetRequest { vmi, migration_uid, options } = request;
        self.guard(vmi.metadata.uid.as_deref().unwrap_or_default())?;
        let mut inner = self.inner.lock().await;
        let receive = self.decide(|guest, facts| guest.receive(migration_uid.as_str(), facts))?;
        let facts = self.prepare(&vmi, &options, Role::Target, &mut inner).await?;
        // libvirt uses the source's domain XML; converting the VMI here rejects what this node cannot run, naming the
        // field.
        domain::convert(&vmi, &facts).map_err(Error::Convert)?;
        self.note(Change::Expected { paused: lifecycle::arrives_paused(&vmi) });
        if receive == Receive::Prepare {
            self.target.ready(migration_uid.as_str())?;
            tracing::info!(migration = %migration_uid, "ready for the guest");
            tokio::spawn(self.target.clone().watch(self.guest.clone()));
        }
        Ok(())
    }

    /// Begins a dump of the guest's memory.
    pub(crate) async fn dump_memory(&self, request: MemoryDumpRequest) -> Result<(), Error> {
        let MemoryDumpRequest { vmi_uid, volume, file } = request;
        self.guard(vmi_uid.as_str())?;
        let _inner = self.inner.lock().await;
        if dump::is_known(&self.state, &volume, &file)? {
            return Ok(());
        }
        self.session.refresh().await?;
        self.decide(Guest::dump)?;
        let (connection, domain) = self.domain().await?;
        dump::begin(&self.state, connection, domain, &self.config.paths.plugged, volume, file)
    }

    /// Finishes a migration at the target: sets the guest's clock, which stood still during the transfer.
    pub(crate) async fn finalize_target(&self, migration_uid: &str) -> Result<(), Error> {
        transfer::arrived(self.state.get().migration.as_ref(), migration_uid)?;
        let (connection, domain) = self.domain().await?;
        if self.state.get().domain.is_some_and(|domain| domain.agent_connected) {
            tokio::spawn(async move {
                let now = Timestamp::now();
                let nanoseconds = u32::try_from(now.subsec_nanosecond()).unwrap_or_default();
                // Some agents do not support it, and some guests keep their own time.
                if let Err(error) = connection.set_time(&domain, now.as_second(), nanoseconds, 0).await {
                    tracing::debug!(error = chain(&error), "the guest's clock was not set");
                }
            });
        }
        Ok(())
    }

    async fn start(
        &self,
        connection: &Connection,
        vmi: &VirtualMachineInstance,
        options: &SyncOptions,
        inner: &mut Inner,
    ) -> Result<(), Error> {
        let role = Role::Start { expand: options.expand_disks };
        let facts = self.prepare(vmi, options, role, inner).await?;
        let xml = domain::convert(vmi, &facts).and_then(|domain| domain.to_xml()).map_err(Error::Convert)?;
        let domain = connection.define_xml(&xml, 0).await.map_err(libvirt("define the domain"))?;
        let paused = lifecycle::starts_paused(vmi);
        tracing::info!(%domain, paused, kvm = facts.kvm_usable, "starting the guest");
        let flags = if paused { flags::START_PAUSED } else { 0 };
        let created = connection.create(&domain, flags).await;
        let answer = match &created {
            Ok(_) => Answer::Done,
            Err(error) if error.is_closed() => Answer::Lost,
            Err(_) => Answer::Refused,
        };
        if answer == Answer::Lost {
            self.session.refresh().await?;
        }
        if lifecycle::has_started(answer, self.state.get().domain.as_ref()) {
            return self.confirm_start(paused).await;
        }
        created.map(drop).map_err(libvirt("start the guest"))
    }

    /// Notes that the guest has started once the state shows it: until then the state shows a defined domain that is
    /// down, which would look like a guest that has ended.
    async fn confirm_start(&self, paused: bool) -> Result<(), Error> {
        let seen = tokio::time::timeout(CONFIRM_WITHIN, async {
            while self.session.refresh().await.is_err() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        let seen = seen.await.map_err(|_| Error::LibvirtDown);
        self.note(Change::Started { paused });
        seen
    }

    /// Prepares the guest's disks and network. Idempotent.
    async fn prepare(
        &self,
        vmi: &VirtualMachineInstance,
        options: &SyncOptions,
        role: Role,
        inner: &mut Inner,
    ) -> Result<HostFacts, Error> {
        let paths = &self.config.paths;
        let sockets = paths.sockets(vmi);
        std::fs::create_dir_all(&sockets)
            .map_err(|source| Error::System { action: format!("make {sockets}"), source })?;
        if !options.serial_console_log_disabled && inner.console_log.is_none() {
            let log = PathBuf::from(&sockets).join(launcher_contract::sockets::SERIAL_LOG);
            inner.console_log = Some(AbortOnDropHandle::new(tokio::spawn(console_log::keep_short(log))));
        }
        let interfaces = self.prepare_network(vmi, &options.leases, inner)?;
        let prepared = self.preparer(options, role).prepare(vmi).await.map_err(Error::Disks)?;
        if !prepared.small.is_empty() {
            tracing::warn!(small = prepared.small.join("; "), "volumes are smaller than their claims");
            self.state.update(|state| state.small_volumes.extend(prepared.small));
        }
        Ok(self.facts(options, prepared.facts, interfaces))
    }

    fn preparer<'a>(&'a self, options: &'a SyncOptions, role: Role) -> Preparer<'a> {
        Preparer {
            children: &self.children,
            paths: &self.config.paths,
            image_volumes: self.config.image_volumes,
            memory_limit: self.config.disk_memory_limit,
            role,
            plugged: &options.plugged_volumes,
            tolerated_shortage_percent: options.tolerated_shortage_percent,
            reserved_bytes: options.reserved_bytes,
        }
    }

    fn facts(
        &self,
        options: &SyncOptions,
        disks: BTreeMap<String, DiskFacts>,
        interfaces: Vec<InterfaceFacts>,
    ) -> HostFacts {
        HostFacts {
            kvm_usable: options.kvm_usable && may_use_kvm(),
            allow_emulation: options.allow_emulation || self.config.allow_emulation,
            smbios: options.smbios.clone(),
            mem_balloon_stats_period: options.mem_balloon_stats_period,
            serial_console_log_disabled: options.serial_console_log_disabled,
            free_page_reporting_disabled: options.free_page_reporting_disabled,
            paths: self.config.paths.clone(),
            disks,
            targets: BTreeMap::new(),
            interfaces,
        }
    }

    /// Finds the taps and starts the DHCP servers, once.
    fn prepare_network(
        &self,
        vmi: &VirtualMachineInstance,
        leases: &[Lease],
        inner: &mut Inner,
    ) -> Result<Vec<InterfaceFacts>, Error> {
        let system = |action: &str| {
            let action = action.to_owned();
            move |source| Error::System { action, source }
        };
        let links = netplan::pod_links(vmi).map_err(Error::Network)?;
        let pod = podnet::observe(links)
            .map_err(system("look at the Pod's network"))?
            .map_err(|missing| Error::LinkMissing(missing.to_string()))?;
        let interfaces = netplan::domain_interfaces(vmi, &pod).map_err(Error::Network)?;
        for interface in &interfaces {
            if podnet::link(&interface.tap).map_err(system("look for the tap device"))?.is_none() {
                return Err(Error::LinkMissing(interface.tap.to_string()));
            }
        }
        if inner.dhcp.is_empty() {
            for config in netplan::dhcp::config(vmi, &pod, leases).map_err(Error::Network)? {
                tracing::info!(bridge = %config.bridge, client = %config.client, "serving DHCP");
                let server = dhcp::Server::bind(config).map_err(system("open the DHCP server's port"))?;
                inner.dhcp.push(AbortOnDropHandle::new(tokio::spawn(server.serve())));
            }
        }
        let facts = interfaces.into_iter().map(|interface| InterfaceFacts {
            name: interface.name,
            tap: interface.tap.to_string(),
            mac: interface.mac.to_string(),
            mtu: interface.mtu,
        });
        Ok(facts.collect())
    }

    pub(crate) async fn command(&self, command: Command) -> Result<(), Error> {
        tracing::info!(?command, "asked by virt-handler");
        match command {
            Command::Kill => self.kill().await?,
            Command::Pause | Command::Unpause => {
                // Checked first of all, since libvirt may be busy with the migration.
                lifecycle::not_moving(self.source.is_busy())?;
                let _inner = self.inner.lock().await;
                self.look_and_act(command).await?;
            }
            Command::Delete => {
                let _inner = self.inner.lock().await;
                self.look_and_act(command).await?;
            }
            Command::SoftReboot | Command::Shutdown => self.look_and_act(command).await?,
            Command::Reset => self.decide_and_act(command).await?,
        }
        self.session.refresh().await?;
        if command == Command::Delete {
            self.deleted.notify_one();
        }
        Ok(())
    }

    async fn look_and_act(&self, command: Command) -> Result<(), Error> {
        self.session.refresh().await?;
        self.decide_and_act(command).await
    }

    async fn decide_and_act(&self, command: Command) -> Result<(), Error> {
        let act = self.decide(|guest, facts| guest.command(command, facts))?;
        self.act(act).await
    }

    async fn act(&self, act: Act) -> Result<(), Error> {
        match act {
            Act::Suspend => {
                let (connection, domain) = self.domain().await?;
                connection.suspend(&domain).await.map_err(libvirt("pause the guest"))?;
            }
            Act::Resume => {
                let (connection, domain) = self.domain().await?;
                connection.resume(&domain).await.map_err(libvirt("unpause the guest"))?;
            }
            Act::Reset => {
                let (connection, domain) = self.domain().await?;
                connection.reset(&domain).await.map_err(libvirt("reset the guest"))?;
            }
            Act::Reboot { agent } => self.reboot(agent).await?,
            Act::Shutdown { acpi } => self.shutdown(acpi).await?,
            Act::Destroy { graceful } => self.destroy(graceful).await?,
            Act::Undefine => self.undefine().await?,
            Act::Keep { .. } => {}
            Act::Nothing(because) => tracing::debug!(because, "nothing to do"),
        }
        act.change().into_iter().for_each(|change| self.note(change));
        Ok(())
    }

    async fn reboot(&self, agent: bool) -> Result<(), Error> {
        let (connection, domain) = self.domain().await?;
        let by = if agent { flags::REBOOT_GUEST_AGENT } else { flags::REBOOT_ACPI_POWER_BTN };
        match connection.reboot(&domain, by).await {
            // An agent that reboots its system does not always get to answer.
            Err(error) if error.code() == Some(libvirt_io::ErrorCode::AgentUnresponsive) => Ok(()),
            other => other.map_err(libvirt("reboot the guest")),
        }
    }

    async fn shutdown(&self, acpi: bool) -> Result<(), Error> {
        let (connection, domain) = self.domain().await?;
        let now = Timestamp::now();
        self.state.update(|state| _ = state.shutdown_requested_at.get_or_insert(now));
        let by = if acpi { flags::SHUTDOWN_ACPI_POWER_BTN } else { flags::SHUTDOWN_DEFAULT };
        connection.shutdown(&domain, by).await.map_err(libvirt("shut the guest down"))
    }

    /// Kills QEMU, with SIGTERM first if it still handles signals. Succeeds if there is no domain. What is already known
    /// of the domain decides: QEMU may be unable to answer.
    pub(crate) async fn kill(&self) -> Result<(), Error> {
        self.session.connection().await?;
        self.decide_and_act(Command::Kill).await
    }

    async fn destroy(&self, graceful: bool) -> Result<(), Error> {
        let Some((connection, domain)) = self.find().await? else { return Ok(()) };
        let graceful = if graceful { flags::DESTROY_GRACEFUL } else { 0 };
        if let Err(error) = connection.destroy(&domain, graceful).await
            && !is_over(&error)
        {
            tracing::warn!(error = chain(&error), "QEMU does not exit; killing it");
            match connection.destroy(&domain, 0).await {
                Err(error) if !is_over(&error) => return Err(libvirt("end the guest")(error)),
                _ => {}
            }
        }
        self.session.refresh().await
    }

    async fn undefine(&self) -> Result<(), Error> {
        let Some((connection, domain)) = self.find().await? else { return Ok(()) };
        let flags = flags::UNDEFINE_KEEP_NVRAM | flags::UNDEFINE_CHECKPOINTS_METADATA;
        connection.undefine(&domain, flags).await.map_err(libvirt("delete the domain"))
    }

    /// Runs one guest agent command for a client.
    pub(crate) async fn agent(&self, command: &Value, timeout_seconds: u32) -> Result<Value, Error> {
        let _turn = self.agent_calls.acquire().await.map_err(|_| Error::LibvirtDown)?;
        let (connection, domain) = self.domain().await?;
        agent::execute(&connection, &domain, command, timeout_seconds).await
    }

    /// The domain, and the connection on which it was found.
    async fn find(&self) -> Result<Option<(Connection, Domain)>, Error> {
        let connection = self.session.connection().await?;
        let lookup = connection.lookup_by_name(&self.config.domain_name).await;
        let domain = lookup.map_err(libvirt("look up the domain"))?;
        Ok(domain.map(|domain| (connection, domain)))
    }

    async fn domain(&self) -> Result<(Connection, Domain), Error> {
        self.find().await?.ok_or(Error::NoDomain)
    }
}

fn libvirt(action: &'static str) -> impl FnOnce(libvirt_io::Error) -> Error {
    move |source| Error::Libvirt { action, source }
}

/// Whether the container has the KVM device; virt-handler has already checked that the device works.
fn may_use_kvm() -> bool {
    std::fs::OpenOptions::new().read(true).write(true).open("/dev/kvm").is_ok()
}

/// Whether the guest had already ended.
fn is_over(error: &libvirt_io::Error) -> bool {
    use libvirt_io::ErrorCode;
    matches!(error.code(), Some(ErrorCode::NoDomain | ErrorCode::OperationInvalid))
}
