//! Every call against a real daemon and a real QEMU (paused or without an operating system: no guest is needed).

mod support;

use std::time::Duration;

use libvirt_io::{
    AgentState, CloseReason, Connection, Domain, ErrorCode, Event, Events, Keepalive, Lifecycle, Reason, State, flags,
};
use support::Daemon;

const KEEPALIVE: Keepalive = Keepalive { interval: Duration::from_secs(2), count: 2 };
const LIMIT: Duration = Duration::from_secs(60);

const DOMAIN: &str = "<domain type='qemu'><name>default_probe</name><memory unit='MiB'>32</memory><vcpu>1</vcpu>
<os><type arch='x86_64' machine='q35'>hvm</type></os><features><acpi/></features>
<on_poweroff>destroy</on_poweroff><on_reboot>restart</on_reboot><on_crash>destroy</on_crash>
<devices><emulator>/usr/bin/qemu-system-x86_64</emulator><controller type='usb' model='none'/>
<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>
<memballoon model='none'/></devices></domain>";

async fn connect(daemon: &Daemon) -> Connection {
    let socket = daemon.socket();
    let open = Connection::connect(&socket, "qemu:///session", KEEPALIVE);
    tokio::time::timeout(LIMIT, open).await.expect("in time").expect("the daemon accepts us")
}

async fn wait_for_lifecycle(events: &mut Events, expected: Lifecycle) {
    let wait = async {
        loop {
            match events.recv().await.expect("the connection lives") {
                Event::Lifecycle { event, .. } if event == expected => return,
                Event::AgentLifecycle { state, .. } => assert_eq!(state, AgentState::Disconnected, "there is no guest"),
                _ => {}
            }
        }
    };
    tokio::time::timeout(LIMIT, wait).await.unwrap_or_else(|_| panic!("no {expected:?} event"));
}

async fn start(connection: &Connection, flags: u32) -> Domain {
    let domain = connection.define_xml(DOMAIN, flags::DEFINE_VALIDATE).await.expect("define");
    connection.create(&domain, flags).await.expect("create")
}

#[tokio::test]
async fn a_domain_lives_its_whole_life_through_the_protocol() {
    let Some(daemon) = Daemon::start() else { return };
    let connection = connect(&daemon).await;
    let mut events = connection.events();

    assert!(connection.lib_version().await.unwrap() >= (9, 0, 0));
    assert!(connection.domain_capabilities("x86_64", "q35").await.unwrap().contains("<domainCapabilities>"));
    assert!(connection.list_all_domains().await.unwrap().is_empty());
    assert!(connection.lookup_by_name("default_probe").await.unwrap().is_none());

    let domain = start(&connection, flags::START_PAUSED).await;
    wait_for_lifecycle(&mut events, Lifecycle::Defined).await;
    wait_for_lifecycle(&mut events, Lifecycle::Started).await;
    assert!(domain.id.is_some());
    assert_eq!(connection.list_all_domains().await.unwrap(), std::slice::from_ref(&domain));
    assert_eq!(connection.lookup_by_name("default_probe").await.unwrap().unwrap().uuid, domain.uuid);
    assert_eq!(connection.state(&domain).await.unwrap(), (State::Paused, Reason::User));

    connection.resume(&domain).await.unwrap();
    wait_for_lifecycle(&mut events, Lifecycle::Resumed).await;
    assert_eq!(connection.state(&domain).await.unwrap(), (State::Running, Reason::Unpaused));
    let info = connection.info(&domain).await.unwrap();
    assert_eq!((info.max_memory_kib, info.vcpus), (32 << 10, 1));
    let xml = connection.xml_desc(&domain, 0).await.unwrap();
    assert!(xml.contains("<name>default_probe</name>") && xml.contains("virtio-serial"), "{xml}");
    let inactive = connection.xml_desc(&domain, flags::XML_INACTIVE).await.unwrap();
    assert!(inactive.starts_with("<domain type='qemu'>"), "{inactive}");

    // There is no operating system to listen; the calls themselves are accepted.
    connection.shutdown(&domain, flags::SHUTDOWN_ACPI_POWER_BTN).await.unwrap();
    connection.reset(&domain).await.unwrap();
    let agent = connection.agent_command(&domain, r#"{"execute":"guest-ping"}"#, 1).await.unwrap_err();
    assert_eq!(agent.code(), Some(ErrorCode::AgentUnresponsive), "{agent:?}");
    let reboot = connection.reboot(&domain, flags::REBOOT_GUEST_AGENT).await.unwrap_err();
    assert_eq!(reboot.code(), Some(ErrorCode::AgentUnresponsive), "{reboot:?}");

    connection.suspend(&domain).await.unwrap();
    wait_for_lifecycle(&mut events, Lifecycle::Suspended).await;
    connection.destroy(&domain, flags::DESTROY_GRACEFUL).await.unwrap();
    wait_for_lifecycle(&mut events, Lifecycle::Stopped).await;
    assert_eq!(connection.state(&domain).await.unwrap(), (State::Shutoff, Reason::Destroyed));
    let undefine = flags::UNDEFINE_KEEP_NVRAM | flags::UNDEFINE_CHECKPOINTS_METADATA;
    connection.undefine(&domain, undefine).await.unwrap();
    wait_for_lifecycle(&mut events, Lifecycle::Undefined).await;
    let gone = connection.state(&domain).await.unwrap_err();
    assert_eq!(gone.code(), Some(ErrorCode::NoDomain), "{gone:?}");
}

#[tokio::test]
async fn a_disk_grows_and_memory_is_dumped() {
    let Some(daemon) = Daemon::start() else { return };
    let connection = connect(&daemon).await;
    let (disk, dump) = (daemon.path().join("run/disk.img"), daemon.path().join("run/memory.dump"));
    std::fs::File::create(&disk).and_then(|file| file.set_len(1 << 20)).unwrap();
    std::os::unix::fs::chown(&disk, Some(107), Some(107)).unwrap();
    let device = format!(
        "<devices><disk type='file'><driver name='qemu' type='raw'/><source file='{}'/><target dev='vda' bus='virtio'/></disk>",
        disk.display()
    );
    let xml = DOMAIN.replace("<devices>", &device);
    let domain = connection.define_xml(&xml, flags::DEFINE_VALIDATE).await.unwrap();
    let domain = connection.create(&domain, flags::START_PAUSED).await.unwrap();

    let info = connection.block_info(&domain, "vda").await.unwrap();
    assert_eq!((info.capacity, info.physical, info.allocation), (1 << 20, 1 << 20, 0));
    connection.block_resize(&domain, "vda", 3 << 20).await.unwrap();
    assert_eq!(connection.block_info(&domain, "vda").await.unwrap().capacity, 3 << 20);
    assert_eq!(std::fs::metadata(&disk).unwrap().len(), 3 << 20);
    assert!(connection.block_info(&domain, "vdz").await.is_err());
    assert_eq!(connection.disk_errors(&domain).await.unwrap(), []);

    connection.dump_memory(&domain, dump.to_str().unwrap()).await.unwrap();
    assert!(std::fs::read(&dump).unwrap().starts_with(b"\x7fELF"));
    assert_eq!(connection.state(&domain).await.unwrap(), (State::Paused, Reason::User));
    connection.destroy(&domain, 0).await.unwrap();
}

#[tokio::test]
async fn disks_come_and_go_and_a_medium_changes() {
    let Some(daemon) = Daemon::start() else { return };
    let connection = connect(&daemon).await;
    let mut events = connection.events();
    let file = |name: &str| {
        let path = daemon.path().join("run").join(name);
        std::fs::File::create(&path).and_then(|file| file.set_len(1 << 20)).unwrap();
        std::os::unix::fs::chown(&path, Some(107), Some(107)).unwrap();
        path.display().to_string()
    };
    let (data, medium) = (file("data.img"), file("medium.iso"));
    let drive = |source: &str| {
        format!(
            "<disk type='file' device='cdrom'><driver name='qemu' type='raw'/>{source}\
             <target dev='sda' bus='sata'/><readonly/></disk>"
        )
    };
    let devices = format!("<devices>{}<controller type='scsi' index='0' model='virtio-scsi'/>", drive(""));
    let domain = connection.define_xml(&DOMAIN.replace("<devices>", &devices), flags::DEFINE_VALIDATE).await.unwrap();
    let domain = connection.create(&domain, flags::START_PAUSED).await.unwrap();

    let disk = format!(
        "<disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='{data}'/>\
         <target dev='sdb' bus='scsi'/><serial>Data</serial><alias name='ua-data'/>\
         <address type='drive' controller='0' bus='0' target='0' unit='4'/></disk>"
    );
    let live = flags::DEVICE_MODIFY_LIVE;
    connection.attach_device(&domain, &disk, live).await.unwrap();
    let xml = connection.xml_desc(&domain, 0).await.unwrap();
    assert!(xml.contains(&data) && xml.contains("<serial>Data</serial>"), "{xml}");
    assert!(connection.attach_device(&domain, &disk, live).await.is_err(), "it is there already");
    connection.detach_device(&domain, &disk, live).await.unwrap();
    let removed = async {
        loop {
            if let Event::DeviceRemoved { alias, .. } = events.recv().await.expect("the connection lives") {
                return alias;
            }
        }
    };
    assert_eq!(tokio::time::timeout(LIMIT, removed).await.expect("an event"), "ua-data");
    assert!(!connection.xml_desc(&domain, 0).await.unwrap().contains(&data));

    connection.update_device(&domain, &drive(&format!("<source file='{medium}'/>")), live).await.unwrap();
    assert!(connection.xml_desc(&domain, 0).await.unwrap().contains(&medium));
    connection.update_device(&domain, &drive(""), live).await.unwrap();
    assert!(!connection.xml_desc(&domain, 0).await.unwrap().contains(&medium), "it was ejected");
    connection.destroy(&domain, 0).await.unwrap();
}

#[tokio::test]
async fn wrong_xml_is_refused_with_libvirts_words() {
    let Some(daemon) = Daemon::start() else { return };
    let connection = connect(&daemon).await;
    let error = connection.define_xml("<domain type='qemu'><nonsense/></domain>", 0).await.unwrap_err();
    assert!(matches!(error.code(), Some(ErrorCode::XmlError | ErrorCode::Other(_))), "{error:?}");
    assert!(std::error::Error::source(&error).is_some_and(|cause| !cause.to_string().is_empty()));
}

#[tokio::test]
async fn a_stopped_daemon_is_noticed_and_a_killed_one_ends_the_connection() {
    let Some(daemon) = Daemon::start() else { return };
    let connection = connect(&daemon).await;
    daemon.signal("-STOP");
    let reason = tokio::time::timeout(LIMIT, connection.closed()).await.expect("the silence is noticed");
    assert!(matches!(reason, CloseReason::KeepaliveTimeout { .. }), "{reason:?}");
    daemon.signal("-CONT");

    let connection = connect(&daemon).await;
    daemon.signal("-KILL");
    let reason = tokio::time::timeout(LIMIT, connection.closed()).await.expect("the end is noticed");
    assert!(matches!(reason, CloseReason::Peer | CloseReason::Io(_)), "{reason:?}");
    assert!(connection.lib_version().await.unwrap_err().is_closed());
}

#[tokio::test]
async fn a_connection_outlives_many_keepalive_intervals() {
    let Some(daemon) = Daemon::start() else { return };
    let brisk = Keepalive { interval: Duration::from_millis(300), count: 5 };
    let connection = Connection::connect(&daemon.socket(), "qemu:///session", brisk).await.unwrap();
    let closed = tokio::time::timeout(Duration::from_secs(4), connection.closed()).await;
    assert!(closed.is_err(), "closed: {closed:?}");
    connection.lib_version().await.unwrap();
}
