//! Programs and procedure numbers of libvirt's protocol. Upstream only ever appends numbers; the test against a real
//! daemon calls each of them.

pub(crate) const REMOTE_PROGRAM: u32 = 0x2000_8086;
pub(crate) const QEMU_PROGRAM: u32 = 0x2000_8087;
pub(crate) const KEEPALIVE_PROGRAM: u32 = 0x6b65_6570;
/// All three programs are at version 1.
pub(crate) const VERSION: u32 = 1;

pub(crate) const KEEPALIVE_PING: u32 = 1;
pub(crate) const KEEPALIVE_PONG: u32 = 2;

/// Queried with `CONNECT_SUPPORTS_FEATURE`; the query itself enables keepalive in the daemon.
pub(crate) const FEATURE_PROGRAM_KEEPALIVE: i32 = 10;

/// One procedure: its program and number, and its name in errors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Procedure {
    pub(crate) program: u32,
    pub(crate) number: u32,
    pub(crate) name: &'static str,
}

const fn remote(number: u32, name: &'static str) -> Procedure {
    Procedure { program: REMOTE_PROGRAM, number, name }
}

pub(crate) const CONNECT_OPEN: Procedure = remote(1, "ConnectOpen");
pub(crate) const CONNECT_GET_VERSION: Procedure = remote(4, "ConnectGetVersion");
pub(crate) const CONNECT_SUPPORTS_FEATURE: Procedure = remote(60, "ConnectSupportsFeature");
pub(crate) const AUTH_LIST: Procedure = remote(66, "AuthList");
pub(crate) const CONNECT_GET_LIB_VERSION: Procedure = remote(157, "ConnectGetLibVersion");
pub(crate) const CONNECT_LIST_ALL_DOMAINS: Procedure = remote(273, "ConnectListAllDomains");
pub(crate) const CONNECT_DOMAIN_EVENT_CALLBACK_REGISTER_ANY: Procedure =
    remote(316, "ConnectDomainEventCallbackRegisterAny");
pub(crate) const DOMAIN_GET_XML_DESC: Procedure = remote(14, "DomainGetXMLDesc");
pub(crate) const DOMAIN_GET_INFO: Procedure = remote(16, "DomainGetInfo");
pub(crate) const DOMAIN_LOOKUP_BY_NAME: Procedure = remote(23, "DomainLookupByName");
pub(crate) const DOMAIN_REBOOT: Procedure = remote(27, "DomainReboot");
pub(crate) const DOMAIN_RESUME: Procedure = remote(28, "DomainResume");
pub(crate) const DOMAIN_SUSPEND: Procedure = remote(34, "DomainSuspend");
pub(crate) const DOMAIN_GET_BLOCK_INFO: Procedure = remote(194, "DomainGetBlockInfo");
pub(crate) const DOMAIN_CREATE_WITH_FLAGS: Procedure = remote(196, "DomainCreateWithFlags");
pub(crate) const DOMAIN_GET_STATE: Procedure = remote(212, "DomainGetState");
pub(crate) const DOMAIN_UNDEFINE_FLAGS: Procedure = remote(231, "DomainUndefineFlags");
pub(crate) const DOMAIN_DESTROY_FLAGS: Procedure = remote(234, "DomainDestroyFlags");
pub(crate) const DOMAIN_RESET: Procedure = remote(245, "DomainReset");
pub(crate) const DOMAIN_BLOCK_RESIZE: Procedure = remote(251, "DomainBlockResize");
pub(crate) const DOMAIN_SHUTDOWN_FLAGS: Procedure = remote(258, "DomainShutdownFlags");
pub(crate) const DOMAIN_GET_DISK_ERRORS: Procedure = remote(263, "DomainGetDiskErrors");
pub(crate) const DOMAIN_CORE_DUMP_WITH_FORMAT: Procedure = remote(334, "DomainCoreDumpWithFormat");
pub(crate) const CONNECT_GET_DOMAIN_CAPABILITIES: Procedure = remote(342, "ConnectGetDomainCapabilities");
pub(crate) const DOMAIN_DEFINE_XML_FLAGS: Procedure = remote(350, "DomainDefineXMLFlags");
pub(crate) const DOMAIN_ATTACH_DEVICE_FLAGS: Procedure = remote(160, "DomainAttachDeviceFlags");
pub(crate) const DOMAIN_DETACH_DEVICE_FLAGS: Procedure = remote(161, "DomainDetachDeviceFlags");
pub(crate) const DOMAIN_UPDATE_DEVICE_FLAGS: Procedure = remote(174, "DomainUpdateDeviceFlags");
pub(crate) const DOMAIN_ABORT_JOB: Procedure = remote(164, "DomainAbortJob");
pub(crate) const DOMAIN_MIGRATE_SET_MAX_DOWNTIME: Procedure = remote(166, "DomainMigrateSetMaxDowntime");
pub(crate) const DOMAIN_MIGRATE_SET_MAX_SPEED: Procedure = remote(207, "DomainMigrateSetMaxSpeed");
pub(crate) const DOMAIN_GET_JOB_STATS: Procedure = remote(298, "DomainGetJobStats");
pub(crate) const DOMAIN_MIGRATE_BEGIN3_PARAMS: Procedure = remote(302, "DomainMigrateBegin3Params");
pub(crate) const DOMAIN_MIGRATE_PREPARE3_PARAMS: Procedure = remote(303, "DomainMigratePrepare3Params");
pub(crate) const DOMAIN_MIGRATE_PERFORM3_PARAMS: Procedure = remote(305, "DomainMigratePerform3Params");
pub(crate) const DOMAIN_MIGRATE_FINISH3_PARAMS: Procedure = remote(306, "DomainMigrateFinish3Params");
pub(crate) const DOMAIN_MIGRATE_CONFIRM3_PARAMS: Procedure = remote(307, "DomainMigrateConfirm3Params");
pub(crate) const DOMAIN_SET_TIME: Procedure = remote(338, "DomainSetTime");
pub(crate) const DOMAIN_MIGRATE_START_POST_COPY: Procedure = remote(364, "DomainMigrateStartPostCopy");
pub(crate) const DOMAIN_AGENT_COMMAND: Procedure =
    Procedure { program: QEMU_PROGRAM, number: 3, name: "DomainAgentCommand" };

/// Messages the daemon sends for registered events.
pub(crate) const EVENT_CALLBACK_LIFECYCLE: u32 = 318;
pub(crate) const EVENT_CALLBACK_DEVICE_REMOVED: u32 = 333;
pub(crate) const EVENT_CALLBACK_AGENT_LIFECYCLE: u32 = 348;
pub(crate) const EVENT_CALLBACK_DEVICE_REMOVAL_FAILED: u32 = 367;
/// Event numbers to register for (`VIR_DOMAIN_EVENT_ID_*`).
pub(crate) const EVENT_ID_LIFECYCLE: i32 = 0;
pub(crate) const EVENT_ID_DEVICE_REMOVED: i32 = 15;
pub(crate) const EVENT_ID_AGENT_LIFECYCLE: i32 = 18;
pub(crate) const EVENT_ID_DEVICE_REMOVAL_FAILED: i32 = 22;
