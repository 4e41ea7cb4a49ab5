//! The calls, by libvirt's names.

use crate::connection::Connection;
use crate::error::{Error, ErrorCode};
use crate::proc::{self, Procedure};
use crate::types::{BlockInfo, DiskError, Domain, DomainInfo, Reason, State, flags};
use crate::xdr::{Decoder, Encoder};

impl Connection {
    /// The daemon's libvirt version as (major, minor, release).
    pub async fn lib_version(&self) -> Result<(u64, u64, u64), Error> {
        let version = self.call(proc::CONNECT_GET_LIB_VERSION, Encoder::default(), |reply| reply.u64()).await?;
        Ok((version / 1_000_000, version / 1_000 % 1_000, version % 1_000))
    }

    /// The version of QEMU as (major, minor, release).
    pub async fn hypervisor_version(&self) -> Result<(u64, u64, u64), Error> {
        let version = self.call(proc::CONNECT_GET_VERSION, Encoder::default(), |reply| reply.u64()).await?;
        Ok((version / 1_000_000, version / 1_000 % 1_000, version % 1_000))
    }

    /// Capabilities of the hypervisor for `arch`, as XML. The first call makes the daemon probe QEMU, which takes a
    /// while.
    pub async fn domain_capabilities(&self, arch: &str, machine: &str) -> Result<String, Error> {
        let emulator_and_virt_type = None;
        let arguments = Encoder::default()
            .optional_string(emulator_and_virt_type)
            .optional_string(Some(arch))
            .optional_string(Some(machine))
            .optional_string(emulator_and_virt_type)
            .u32(0);
        self.call(proc::CONNECT_GET_DOMAIN_CAPABILITIES, arguments, |reply| reply.string()).await
    }

    pub async fn list_all_domains(&self) -> Result<Vec<Domain>, Error> {
        let arguments = Encoder::default().i32(1).u32(0);
        self.call(proc::CONNECT_LIST_ALL_DOMAINS, arguments, |reply| {
            let domains = reply.list(Decoder::domain)?;
            let _count = reply.u32()?;
            Ok(domains)
        })
        .await
    }

    /// `None` when there is no such domain.
    pub async fn lookup_by_name(&self, name: &str) -> Result<Option<Domain>, Error> {
        match self.call(proc::DOMAIN_LOOKUP_BY_NAME, Encoder::default().string(name), |reply| reply.domain()).await {
            Ok(domain) => Ok(Some(domain)),
            Err(error) if error.code() == Some(ErrorCode::NoDomain) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Defines a persistent domain, or replaces the definition of the one with this name and UUID.
    pub async fn define_xml(&self, xml: &str, flags: u32) -> Result<Domain, Error> {
        self.call(proc::DOMAIN_DEFINE_XML_FLAGS, Encoder::default().string(xml).u32(flags), |reply| reply.domain())
            .await
    }

    /// Starts a defined domain; returns it with its ID.
    pub async fn create(&self, domain: &Domain, flags: u32) -> Result<Domain, Error> {
        let arguments = Encoder::default().domain(domain).u32(flags);
        self.call(proc::DOMAIN_CREATE_WITH_FLAGS, arguments, |reply| reply.domain()).await
    }

    pub async fn state(&self, domain: &Domain) -> Result<(State, Reason), Error> {
        let arguments = Encoder::default().domain(domain).u32(0);
        self.call(proc::DOMAIN_GET_STATE, arguments, |reply| {
            let state = State::from(reply.i32()?);
            Ok((state, Reason::of(state, reply.i32()?)))
        })
        .await
    }

    pub async fn info(&self, domain: &Domain) -> Result<DomainInfo, Error> {
        self.call(proc::DOMAIN_GET_INFO, Encoder::default().domain(domain), |reply| {
            let _state = reply.u32()?;
            Ok(DomainInfo {
                max_memory_kib: reply.u64()?,
                memory_kib: reply.u64()?,
                vcpus: reply.u32()?,
                cpu_time_ns: reply.u64()?,
            })
        })
        .await
    }

    pub async fn xml_desc(&self, domain: &Domain, flags: u32) -> Result<String, Error> {
        let arguments = Encoder::default().domain(domain).u32(flags);
        self.call(proc::DOMAIN_GET_XML_DESC, arguments, |reply| reply.string()).await
    }

    pub async fn suspend(&self, domain: &Domain) -> Result<(), Error> {
        self.act(proc::DOMAIN_SUSPEND, Encoder::default().domain(domain)).await
    }

    pub async fn resume(&self, domain: &Domain) -> Result<(), Error> {
        self.act(proc::DOMAIN_RESUME, Encoder::default().domain(domain)).await
    }

    /// Asks the guest to power off; returns without waiting for it.
    pub async fn shutdown(&self, domain: &Domain, flags: u32) -> Result<(), Error> {
        self.act(proc::DOMAIN_SHUTDOWN_FLAGS, Encoder::default().domain(domain).u32(flags)).await
    }

    /// Asks the guest to reboot.
    pub async fn reboot(&self, domain: &Domain, flags: u32) -> Result<(), Error> {
        self.act(proc::DOMAIN_REBOOT, Encoder::default().domain(domain).u32(flags)).await
    }

    /// Resets the guest, like its reset button.
    pub async fn reset(&self, domain: &Domain) -> Result<(), Error> {
        self.act(proc::DOMAIN_RESET, Encoder::default().domain(domain).u32(0)).await
    }

    /// Kills QEMU.
    pub async fn destroy(&self, domain: &Domain, flags: u32) -> Result<(), Error> {
        self.act(proc::DOMAIN_DESTROY_FLAGS, Encoder::default().domain(domain).u32(flags)).await
    }

    pub async fn undefine(&self, domain: &Domain, flags: u32) -> Result<(), Error> {
        self.act(proc::DOMAIN_UNDEFINE_FLAGS, Encoder::default().domain(domain).u32(flags)).await
    }

    /// Sizes of a disk of a running domain, which is named by its target.
    pub async fn block_info(&self, domain: &Domain, target: &str) -> Result<BlockInfo, Error> {
        let arguments = Encoder::default().domain(domain).string(target).u32(0);
        self.call(proc::DOMAIN_GET_BLOCK_INFO, arguments, |reply| {
            Ok(BlockInfo { allocation: reply.u64()?, capacity: reply.u64()?, physical: reply.u64()? })
        })
        .await
    }

    /// Changes the size of a disk that the guest sees, to `bytes`.
    pub async fn block_resize(&self, domain: &Domain, target: &str, bytes: u64) -> Result<(), Error> {
        let arguments = Encoder::default().domain(domain).string(target).u64(bytes).u32(flags::BLOCK_RESIZE_BYTES);
        self.act(proc::DOMAIN_BLOCK_RESIZE, arguments).await
    }

    /// The disks on which the guest's last request failed, by their targets.
    pub async fn disk_errors(&self, domain: &Domain) -> Result<Vec<(String, DiskError)>, Error> {
        /// More disks than a domain has.
        const MOST: u32 = 256;
        let arguments = Encoder::default().domain(domain).u32(MOST).u32(0);
        self.call(proc::DOMAIN_GET_DISK_ERRORS, arguments, |reply| {
            let errors = reply.list(|entry| Ok((entry.string()?, DiskError::from(entry.i32()?))))?;
            let _count = reply.i32()?;
            Ok(errors)
        })
        .await
    }

    /// Writes the guest's memory to a new file, as an ELF core. Returns when that is done.
    pub async fn dump_memory(&self, domain: &Domain, file: &str) -> Result<(), Error> {
        const RAW: u32 = 0;
        let arguments = Encoder::default().domain(domain).string(file).u32(RAW).u32(flags::DUMP_MEMORY_ONLY);
        self.act(proc::DOMAIN_CORE_DUMP_WITH_FORMAT, arguments).await
    }

    /// Plugs a device into the domain.
    pub async fn attach_device(&self, domain: &Domain, xml: &str, flags: u32) -> Result<(), Error> {
        self.act(proc::DOMAIN_ATTACH_DEVICE_FLAGS, Encoder::default().domain(domain).string(xml).u32(flags)).await
    }

    /// Unplugs a device. The daemon waits some seconds for the guest to release it, and then succeeds all the same: only
    /// the domain's XML or [`Event::DeviceRemoved`](crate::Event::DeviceRemoved) says that it is gone.
    pub async fn detach_device(&self, domain: &Domain, xml: &str, flags: u32) -> Result<(), Error> {
        self.act(proc::DOMAIN_DETACH_DEVICE_FLAGS, Encoder::default().domain(domain).string(xml).u32(flags)).await
    }

    /// Changes a device, for instance the medium in a drive.
    pub async fn update_device(&self, domain: &Domain, xml: &str, flags: u32) -> Result<(), Error> {
        self.act(proc::DOMAIN_UPDATE_DEVICE_FLAGS, Encoder::default().domain(domain).string(xml).u32(flags)).await
    }

    /// Sends one command to the QEMU guest agent and returns its JSON reply. The daemon gives up after
    /// `timeout_seconds`; the reply comes from the guest and must not be trusted.
    pub async fn agent_command(&self, domain: &Domain, command: &str, timeout_seconds: u32) -> Result<String, Error> {
        // Negative timeouts have special meanings, so saturate.
        let timeout = i32::try_from(timeout_seconds).unwrap_or(i32::MAX);
        let arguments = Encoder::default().domain(domain).string(command).i32(timeout).u32(0);
        let reply = self.call(proc::DOMAIN_AGENT_COMMAND, arguments, |reply| reply.optional(Decoder::string)).await?;
        Ok(reply.unwrap_or_default())
    }

    async fn act(&self, procedure: Procedure, arguments: Encoder) -> Result<(), Error> {
        self.call(procedure, arguments, |_| Ok(())).await
    }
}
