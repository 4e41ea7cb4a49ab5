//! Devices other than disks and interfaces: controllers, consoles, graphics, balloon, RNG.

use api::v1::VirtualMachineInstance;
use launcher_contract::sockets;

use super::{disks, interfaces, virtio_model};
use crate::error::Error;
use crate::facts::HostFacts;
use crate::xml::{
    Channel, ChannelTarget, Console, ConsoleTarget, Controller, Devices, GUEST_AGENT_CHANNEL, Graphics, Listen, Log,
    MemBalloon, Panic, Rng, RngBackend, Serial, SerialTarget, SocketSource, Stats, Video, VideoModel,
};

/// Guests with more memory than this are expected to need many devices.
const LARGE: u64 = 2 << 30;
/// The total number of root ports and the minimum of free ones, for small and for large guests.
const PORTS: [(u32, u32); 2] = [(8, 3), (16, 6)];
const PORTS_MAX: u32 = 31;

pub(super) fn devices(vmi: &VirtualMachineInstance, facts: &HostFacts, memory: u64) -> Result<Devices, Error> {
    let given = &vmi.spec.domain.devices;
    let directory = facts.paths.sockets(vmi);
    let serial = (given.autoattach_serial_console != Some(false)).then(|| serial(vmi, facts, &directory));
    let graphics = given.autoattach_graphics_device != Some(false);
    let mut devices = Devices {
        disk: disks::disks(vmi, facts)?,
        controller: Vec::new(),
        interface: interfaces::interfaces(vmi, facts)?,
        console: serial.as_ref().map(|serial| Console {
            type_: "unix",
            source: serial.source.clone(),
            target: ConsoleTarget { type_: "serial", port: 0 },
        }),
        serial,
        channel: vec![Channel { type_: "unix", target: ChannelTarget { type_: "virtio", name: GUEST_AGENT_CHANNEL } }],
        graphics: graphics.then(|| Graphics {
            type_: "vnc",
            listen: Listen { type_: "socket", socket: format!("{directory}/{}", sockets::VNC) },
        }),
        video: graphics.then(|| video(vmi)).transpose()?,
        memballoon: Some(balloon(vmi, facts)),
        rng: given
            .rng
            .as_ref()
            .map(|_| Rng { model: virtio_model(vmi), backend: RngBackend { model: "random", path: "/dev/urandom" } }),
        panic: given
            .panic_devices
            .iter()
            .filter_map(|device| device.model.clone())
            .map(|model| Panic { model })
            .collect(),
    };
    devices.controller = controllers(vmi, &devices, memory);
    Ok(devices)
}

fn serial(vmi: &VirtualMachineInstance, facts: &HostFacts, directory: &str) -> Serial {
    let path = format!("{directory}/{}", sockets::SERIAL);
    let logged = vmi.spec.domain.devices.log_serial_console.unwrap_or(!facts.serial_console_log_disabled);
    Serial {
        type_: "unix",
        log: logged.then(|| Log { file: format!("{directory}/{}", sockets::SERIAL_LOG), append: "on" }),
        source: SocketSource { mode: "bind", path },
        target: SerialTarget { port: 0 },
    }
}

fn video(vmi: &VirtualMachineInstance) -> Result<Video, Error> {
    let given = vmi.spec.domain.devices.video.as_ref().and_then(|video| video.type_.as_deref());
    let type_ = match given.unwrap_or_default() {
        "" | "vga" => "vga",
        "virtio" => "virtio",
        "bochs" => "bochs",
        "cirrus" => "cirrus",
        other => {
            let detail = format!("{other:?} is none of vga, virtio, bochs, cirrus");
            return Err(Error::invalid("spec.domain.devices.video.type", detail));
        }
    };
    Ok(Video { model: VideoModel { type_, vram: 16_384, heads: 1 } })
}

fn balloon(vmi: &VirtualMachineInstance, facts: &HostFacts) -> MemBalloon {
    if vmi.spec.domain.devices.autoattach_mem_balloon == Some(false) {
        return MemBalloon { model: "none", free_page_reporting: None, stats: None };
    }
    let annotations = vmi.metadata.annotations.as_ref();
    let declined = annotations.and_then(|all| all.get("kubevirt.io/free-page-reporting-disabled"));
    let reporting = !facts.free_page_reporting_disabled && declined.is_none_or(|value| value != "true");
    let period = facts.mem_balloon_stats_period;
    MemBalloon {
        model: virtio_model(vmi),
        free_page_reporting: Some(if reporting { "on" } else { "off" }),
        stats: (period != 0).then_some(Stats { period }),
    }
}

fn controllers(vmi: &VirtualMachineInstance, devices: &Devices, memory: u64) -> Vec<Controller> {
    let model = virtio_model(vmi);
    let hotplug = vmi.spec.domain.devices.disable_hotplug != Some(true);
    let mut controllers = vec![Controller { type_: "usb", index: 0, model: "none" }];
    if hotplug || devices.disk.iter().any(|disk| disk.target.bus == "scsi") {
        controllers.push(Controller { type_: "scsi", index: 0, model });
    }
    controllers.push(Controller { type_: "virtio-serial", index: 0, model });
    if hotplug {
        let root = Controller { type_: "pci", index: 0, model: "pcie-root" };
        let ports = root_ports(devices, controllers.len() as u32 - 1, memory);
        let port = |index| Controller { type_: "pci", index, model: "pcie-root-port" };
        controllers.extend(std::iter::once(root).chain((1..=ports).map(port)));
    }
    controllers
}

/// One port per PCI Express device plus spare ones. Spare ports keep the addresses of a guest's devices stable
/// regardless of later hotplug.
fn root_ports(devices: &Devices, virtio_controllers: u32, memory: u64) -> u32 {
    let disks = devices.disk.iter().filter(|disk| disk.target.bus == "virtio").count();
    let balloon = devices.memballoon.as_ref().is_some_and(|balloon| balloon.model != "none");
    let single = u32::from(balloon) + u32::from(devices.rng.is_some());
    let used = virtio_controllers + single + (disks + devices.interface.len()) as u32;
    let (total, free) = PORTS[usize::from(memory > LARGE)];
    total.max(used + free).min(PORTS_MAX)
}
