//! VMIs in `tests/vmis`, their domains as snapshots, and libvirt's own schema as judge of every one of them.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::disallowed_fields,
    reason = "this test reads golden files, asks xmllint and spoils instances"
)]

use std::path::Path;
use std::process::Command;

use api::v1::VirtualMachineInstance;
use domain::{DiskFacts, Error, HostFacts, ImageFormat, Observed, Storage, convert};

const SCHEMA: &str = "/usr/share/libvirt/schemas/domain.rng";

fn vmi(name: &str) -> VirtualMachineInstance {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vmis").join(format!("{name}.yaml"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn emulated(vmi: &VirtualMachineInstance) -> HostFacts {
    HostFacts { kvm_usable: false, ..HostFacts::example(vmi) }
}

/// Converts, compares with the snapshot, and validates.
fn check(name: &str, facts: impl FnOnce(&VirtualMachineInstance) -> HostFacts) -> String {
    let vmi = vmi(name);
    let xml = convert(&vmi, &facts(&vmi)).expect("converts").to_xml().expect("is XML");
    insta::assert_snapshot!(name, xml);
    validate(name, &xml);
    xml
}

/// A machine with libvirt's schemas and no xmllint fails: the goldens would only claim to be valid. Without the schemas
/// there is nothing to validate against.
fn validate(name: &str, xml: &str) {
    if !Path::new(SCHEMA).exists() {
        return test_support::skip(&format!("{name} is not validated: {SCHEMA} is missing; install libvirt"));
    }
    let file = std::env::temp_dir().join(format!("domain-{name}-{}.xml", std::process::id()));
    std::fs::write(&file, xml).expect("a temporary file");
    let lint = Command::new("xmllint").args(["--noout", "--relaxng", SCHEMA]).arg(&file).output();
    std::fs::remove_file(&file).expect("the temporary file is still there");
    let lint = lint.expect("xmllint (libxml2-utils) is needed to validate domains; install it");
    assert!(lint.status.success(), "{name} is not valid:\n{}", String::from_utf8_lossy(&lint.stderr));
}

#[test]
fn kernel_boot_with_an_empty_disk_cloud_init_and_a_network() {
    let xml = check("kernel-boot", emulated);
    assert!(xml.contains("<domain type=\"qemu\">"));
}

#[test]
fn each_attached_network_has_its_card() {
    let xml = check("two-networks", HostFacts::example);
    assert_eq!(xml.matches("<interface type=\"ethernet\">").count(), 3);
}

#[test]
fn container_disk_on_kvm() {
    let xml = check("container-disk", HostFacts::example);
    assert!(xml.contains("<domain type=\"kvm\">"));
}

#[test]
fn more_cpus_than_numbers_hold_are_refused() {
    let mut vmi = vmi("minimal");
    let cpu = vmi.spec.domain.cpu.get_or_insert_default();
    (cpu.sockets, cpu.cores, cpu.threads) = (Some(u32::MAX), Some(u32::MAX), Some(u32::MAX));
    let refused = convert(&vmi, &HostFacts::example(&vmi)).expect_err("too many");
    assert!(refused.to_string().contains("CPUs are more than"), "{refused}");
}

#[test]
fn nothing_but_memory() {
    check("minimal", HostFacts::example);
}

#[test]
fn every_knob_turned() {
    check("all-knobs", HostFacts::example);
}

#[test]
fn room_to_grow_in_cpus_and_plain_memory() {
    let xml = check("hotplug", HostFacts::example);
    assert!(xml.contains("<memory unit=\"b\">1073741824</memory>"), "no more than the guest asks for now");
}

#[test]
fn large_guest_without_consoles_and_balloon() {
    check("bare", |vmi| HostFacts { mem_balloon_stats_period: 0, ..HostFacts::example(vmi) });
}

#[test]
fn optical_drives_on_sata_and_scsi() {
    check("cdrom", HostFacts::example);
}

#[test]
fn a_file_system_without_direct_io_and_a_raw_image() {
    check("raw-buffered", |vmi| {
        let mut facts = HostFacts::example(vmi);
        for known in facts.disks.values_mut() {
            known.direct_io = false;
            if let Some(backing) = &mut known.backing {
                backing.format = ImageFormat::Raw;
            }
        }
        facts.serial_console_log_disabled = false;
        facts.free_page_reporting_disabled = true;
        facts
    });
}

#[test]
fn claims_as_files_and_devices_and_what_lies_over_them() {
    let xml = check("claims", |vmi| {
        let mut facts = HostFacts::example(vmi);
        let storage = |facts: &mut HostFacts, name: &str| facts.disks.get_mut(name).unwrap().storage.take().unwrap();
        let thick = Storage { preallocated: true, allocated: true, ..storage(&mut facts, "thick") };
        facts.disks.get_mut("thick").unwrap().storage = Some(thick);
        let media = Storage { readonly: true, ..storage(&mut facts, "media") };
        facts.disks.get_mut("media").unwrap().storage = Some(media);
        facts.disks.remove("later");
        facts
    });
    assert!(!xml.contains("ua-later"), "it is plugged in when it is there");
    let seen = Observed::parse(&xml).unwrap();
    let sources: Vec<_> = seen.disks.iter().map(|disk| (disk.source.as_str(), disk.uncached)).collect();
    assert_eq!(sources[..2], [("/var/run/kubevirt-private/vmi-disks/root/disk.img", true), ("/dev/device", true)]);
    assert!(!seen.disks[4].uncached);
}

/// A guest can write the header of any format to its disk: nothing may ever look at it.
#[test]
fn data_that_outlives_its_guest_is_raw_and_chains_are_written_out() {
    let vmi = vmi("claims");
    let domain = convert(&vmi, &HostFacts::example(&vmi)).unwrap();
    for disk in &domain.devices.disk {
        match &disk.backing_store {
            None => assert_eq!(disk.driver.type_, "raw", "{}", disk.alias.name),
            Some(base) => {
                assert_eq!(base.format.as_ref().map(|format| format.type_), Some("raw"));
                assert!(base.backing_store.is_some(), "the chain ends");
            }
        }
    }
}

#[test]
fn one_disk_is_plugged_under_a_name_that_the_guest_does_not_have() {
    let vmi = vmi("claims");
    let mut facts = HostFacts::example(&vmi);
    let target = |facts: &HostFacts| domain::disk(&vmi, facts, "later").unwrap().target.dev;
    assert_eq!(target(&facts), "sdd", "after those before it");
    facts.targets = [("node", "sda"), ("media", "sdd"), ("other", "sdc")].map(|(a, b)| (a.into(), b.into())).into();
    assert_eq!(target(&facts), "sde");
    facts.targets.insert("later".into(), "sdz".into());
    assert_eq!(target(&facts), "sdz", "it keeps its own");
    let disk = domain::disk(&vmi, &facts, "later").unwrap();
    let xml = disk.to_xml().unwrap();
    assert!(xml.starts_with("<disk type=\"file\"") && xml.contains("hotplug-disks/later.img"), "{xml}");
    assert!(domain::disk(&vmi, &facts, "nobody").is_err());
}

#[test]
fn device_names_never_repeat() {
    let mut vmi = vmi("claims");
    for status in &mut vmi.status.as_mut().unwrap().volume_status {
        status.target = "vdb".into();
    }
    let domain = convert(&vmi, &HostFacts::example(&vmi)).unwrap();
    let names: std::collections::BTreeSet<_> = domain.devices.disk.iter().map(|disk| disk.target.dev.clone()).collect();
    assert_eq!(names.len(), domain.devices.disk.len(), "{names:?}");
    for disk in &domain.devices.disk {
        let prefix = if disk.target.bus == "virtio" { "vd" } else { "sd" };
        assert!(disk.target.dev.starts_with(prefix), "{} on {}", disk.target.dev, disk.target.bus);
    }
}

#[test]
fn what_storage_cannot_do_is_refused_with_the_field() {
    type Change = fn(&mut VirtualMachineInstance, &mut HostFacts);
    let cases: [(&str, Change); 5] = [
        ("spec.domain.devices.disks[2].cache", |vmi, _| {
            vmi.spec.domain.devices.disks[2].cache = Some("writeback".into());
        }),
        ("spec.domain.devices.disks[2].cache", |_, facts| facts.disks.get_mut("cluster").unwrap().direct_io = false),
        ("spec.domain.devices.disks[3].shareable", |vmi, _| vmi.spec.domain.devices.disks[3].shareable = Some(true)),
        ("spec.domain.devices.disks[4].disk.bus", |_, facts| {
            facts.disks.get_mut("node").unwrap().storage.as_mut().unwrap().readonly = true;
        }),
        ("spec.volumes[root]", |vmi, _| {
            vmi.spec.volumes[0].data_volume = None;
            vmi.spec.volumes[0].secret = Some(Default::default());
        }),
    ];
    for (expected, change) in cases {
        let mut vmi = vmi("claims");
        let mut facts = HostFacts::example(&vmi);
        change(&mut vmi, &mut facts);
        let error = convert(&vmi, &facts).expect_err(expected);
        assert_eq!(field(&error), expected, "{error}");
    }
}

#[test]
fn a_mac_address_has_one_form_however_it_was_written() {
    let mut vmi = vmi("kernel-boot");
    for (written, expected) in [
        (Some("02:42:ac:11:00:02"), "02:42:ac:11:00:02"),
        (Some("02-42-AC-11-00-02"), "02:42:ac:11:00:02"),
        (Some(""), "02:00:00:00:01:00"),
        (None, "02:00:00:00:01:00"),
    ] {
        vmi.spec.domain.devices.interfaces[0].mac_address = None;
        let facts = HostFacts::example(&vmi);
        vmi.spec.domain.devices.interfaces[0].mac_address = written.map(str::to_owned);
        let xml = convert(&vmi, &facts).unwrap().to_xml().unwrap();
        assert!(xml.contains(&format!("<mac address=\"{expected}\"/>")), "{written:?}: {xml}");
    }
}

#[test]
fn conversion_is_a_function_of_its_input() {
    let vmi = vmi("minimal");
    let convert = || convert(&vmi, &HostFacts::example(&vmi)).unwrap();
    assert_eq!(convert(), convert());
}

#[test]
fn a_domains_own_xml_is_read_back() {
    let vmi = vmi("kernel-boot");
    let xml = convert(&vmi, &emulated(&vmi)).unwrap().to_xml().unwrap();
    let seen = Observed::parse(&xml).unwrap();
    assert_eq!((seen.type_.as_str(), seen.machine.as_str(), seen.acpi), ("qemu", "q35", true));
    let disks: Vec<_> = seen.disks.iter().map(|disk| (disk.name.as_str(), disk.target.as_str())).collect();
    assert_eq!(disks, [("scratch", "vda"), ("cloudinit", "vdb")]);
    assert_eq!(seen.interfaces[0].name, "default");
    assert_eq!((seen.interfaces[0].tap.as_str(), seen.interfaces[0].link_up), ("tap0", true));
    assert!(!seen.agent_connected);
}

#[test]
fn a_connected_agent_and_a_link_that_is_down_are_seen() {
    let seen = Observed::parse(
        "<domain type='kvm' id='1'><os><type machine='pc-q35-7.2'>hvm</type></os><devices>
         <interface type='ethernet'><mac address='02:00:00:00:00:01'/><link state='down'/><driver queues='4'/></interface>
         <disk type='file'><source file='/x'/><target dev='sda'/><alias name='sata0-0-0'/></disk>
         <interface type='ethernet'><alias name='ua-b'/></interface>
         <channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0' state='connected'/></channel>
         </devices></domain>",
    )
    .unwrap();
    assert!(seen.agent_connected && !seen.acpi);
    assert_eq!((seen.interfaces.len(), seen.interfaces[0].queues, seen.interfaces[0].link_up), (2, 4, false));
    assert_eq!(seen.disks[0].name, "sata0-0-0");
    assert!(Observed::parse("<domain").is_err());
    assert!(Observed::parse("").is_err());
}

fn refused(change: impl FnOnce(&mut VirtualMachineInstance, &mut HostFacts)) -> Error {
    let mut vmi = vmi("kernel-boot");
    let mut facts = emulated(&vmi);
    change(&mut vmi, &mut facts);
    let domain = convert(&vmi, &facts);
    domain.and_then(|domain| domain.to_xml()).expect_err("must be refused")
}

fn field(error: &Error) -> &str {
    match error {
        Error::Unsupported { field, .. } | Error::Invalid { field, .. } => field,
        other => panic!("no field in {other:?}"),
    }
}

#[test]
fn what_cannot_be_honoured_is_refused_with_its_field() {
    type Change = fn(&mut VirtualMachineInstance, &mut HostFacts);
    let cases: [(&str, Change); 13] = [
        ("spec.domain.devices.tpm", |vmi, _| vmi.spec.domain.devices.tpm = Some(Default::default())),
        ("spec.domain.devices.watchdog", |vmi, _| vmi.spec.domain.devices.watchdog = Some(Default::default())),
        ("spec.architecture", |vmi, _| vmi.spec.architecture = Some("arm64".into())),
        ("spec.domain.rebootPolicy", |vmi, _| vmi.spec.domain.reboot_policy = Some("Sometimes".into())),
        ("spec.domain.memory.guest", |vmi, _| vmi.spec.domain.memory = None),
        ("spec.domain.devices.disks[0].disk.bus", |vmi, _| {
            vmi.spec.domain.devices.disks[0].disk.as_mut().unwrap().bus = Some("usb".into());
        }),
        ("spec.domain.devices.disks[0].serial", |vmi, _| {
            vmi.spec.domain.devices.disks[0].serial = Some("a,b=c".into());
        }),
        ("spec.domain.devices.disks[1].lun", |vmi, _| {
            vmi.spec.domain.devices.disks[1].lun = Some(Default::default());
        }),
        ("spec.domain.devices.disks[0].name", |vmi, _| vmi.spec.domain.devices.disks[0].name = "nobody".into()),
        ("spec.domain.devices.interfaces[0]", |vmi, _| vmi.spec.domain.devices.interfaces[0].masquerade = None),
        ("spec.domain.devices.interfaces[0].name", |vmi, _| vmi.spec.networks.clear()),
        ("spec.domain.cpu.model", |vmi, _| {
            vmi.spec.domain.cpu.get_or_insert_default().model = Some("host-passthrough".into());
        }),
        ("spec.domain.devices.disks[0].cache", |vmi, facts| {
            vmi.spec.domain.devices.disks[0].cache = Some("none".into());
            facts.disks.insert("scratch".into(), DiskFacts::default());
        }),
    ];
    for (expected, change) in cases {
        let error = refused(change);
        assert_eq!(field(&error), expected, "{error}");
    }
}

#[test]
fn a_kernel_path_cannot_climb_out_of_its_image() {
    let error = refused(|vmi, _| {
        let firmware = vmi.spec.domain.firmware.as_mut().unwrap();
        let container = firmware.kernel_boot.as_mut().unwrap().container.as_mut().unwrap();
        container.kernel_path = Some("/boot/../../etc/passwd".into());
    });
    assert_eq!(field(&error), "spec.domain.firmware.kernelBoot.container.kernelPath");
}

#[test]
fn without_kvm_and_without_leave_to_emulate_there_is_no_domain() {
    assert_eq!(refused(|_, facts| facts.allow_emulation = false), Error::KvmMissing);
}

#[test]
fn a_missing_fact_is_told_apart_from_a_wrong_spec() {
    assert!(matches!(refused(|_, facts| facts.interfaces.clear()), Error::MissingFact { .. }));
    assert!(matches!(refused(|_, facts| facts.disks.clear()), Error::MissingFact { .. }));
}

#[test]
fn control_characters_do_not_reach_libvirt() {
    let error = refused(|vmi, _| {
        let firmware = vmi.spec.domain.firmware.as_mut().unwrap();
        firmware.kernel_boot.as_mut().unwrap().kernel_args = Some("quiet\u{1}".into());
    });
    assert!(matches!(error, Error::Xml(_)), "{error}");
}

#[test]
fn markup_in_values_stays_text() {
    let mut vmi = vmi("kernel-boot");
    let firmware = vmi.spec.domain.firmware.as_mut().unwrap();
    firmware.kernel_boot.as_mut().unwrap().kernel_args = Some("a=\"</cmdline><evil/>&amp;\" b='c'".into());
    firmware.serial = Some("</entry><evil/>".into());
    let xml = convert(&vmi, &emulated(&vmi)).unwrap().to_xml().unwrap();
    assert!(!xml.contains("<evil"), "{xml}");
    validate("markup", &xml);
}

proptest::proptest! {
    #[test]
    fn any_text_in_a_value_comes_out_as_it_went_in_or_is_refused(args in "\\PC{0,40}|[\\x00-\\x7f]{0,40}") {
        let mut vmi = vmi("kernel-boot");
        let firmware = vmi.spec.domain.firmware.as_mut().unwrap();
        firmware.kernel_boot.as_mut().unwrap().kernel_args = Some(args.clone());
        if let Ok(xml) = convert(&vmi, &emulated(&vmi)).unwrap().to_xml() {
            let seen = Observed::parse(&xml).expect("still a document");
            proptest::prop_assert_eq!(seen.disks.len(), 2);
        }
    }

    #[test]
    fn any_document_is_read_without_a_panic(text in "(<[/]?(domain|os|type|devices|disk|interface)( type='x')?[/]?>){0,12}") {
        let _ = Observed::parse(&text);
    }
}
