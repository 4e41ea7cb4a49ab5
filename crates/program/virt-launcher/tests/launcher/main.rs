//! The launcher alone, with everything real around it: namespaces as a container has them, uid 107 as process 1, libvirt,
//! QEMU and a guest. Needs root and the test guest (`FERROVIRT_GUEST_DIR`, or `build/guest` of this workspace).
//!
//! This program is its own launcher: called with `FERROVIRT_TEST_ROLE=launcher` it runs `virt_launcher::main`.

#![allow(clippy::unwrap_used)] // tests, though without the harness by which clippy would know them

mod disks;
mod moves;
mod plugging;
mod support;

use std::time::{Duration, Instant};

use launcher_contract::types::{Command, DomainReason, DomainStatus, DomainType, RefusalCode};
use libtest_mimic::{Arguments, Failed, Trial};
use support::{Launcher, vmi};

type Case = (&'static str, fn(&Launcher));

fn main() -> std::process::ExitCode {
    if std::env::var_os("FERROVIRT_TEST_ROLE").is_some() {
        return virt_launcher::main(std::env::args_os());
    }
    let arguments = Arguments::from_args();
    let cases: [Case; 9] = [
        ("a_guest_boots_has_its_network_and_its_seed_and_powers_off_when_asked", whole_life),
        ("a_container_disk_boots_and_its_image_stays_as_it_was", container_disk),
        ("pausing_is_remembered_and_only_the_user_ends_it", pausing),
        ("a_killed_or_hung_libvirtd_is_replaced_and_the_guest_goes_on", daemon_dies),
        ("a_killed_qemu_is_a_crash", qemu_dies),
        ("a_stopped_pod_marks_the_guest_and_kills_it_after_the_grace_period", pod_stops),
        ("a_stopped_pod_ends_its_guest_even_if_libvirt_hangs", pod_stops_without_libvirt),
        ("what_cannot_be_started_is_refused_with_a_reason", refusals),
        ("a_launcher_that_nobody_uses_gives_up", nobody_comes),
    ];
    let missing = support::missing();
    if let Some(missing) = &missing {
        test_support::skip(missing);
    }
    let mut trials: Vec<_> = cases
        .into_iter()
        .map(|(name, case)| {
            let timeout = if name.contains("nobody") { "4s" } else { "120s" };
            trial(name, missing.is_some(), move || Launcher::start(timeout), Launcher::log, case)
        })
        .collect();
    for (name, case) in moves::CASES {
        trials.push(trial(name, missing.is_some(), moves::Pair::start, moves::Pair::log, case));
    }
    let without_storage = missing.is_some() || disks::missing().is_some();
    for (name, case) in moves::SHARED {
        trials.push(trial(name, without_storage, moves::Pair::start_with_storage, moves::Pair::log, case));
    }
    for (name, case) in plugging::CASES {
        trials.push(trial(name, without_storage, || Launcher::start("120s"), Launcher::log, case));
    }
    for (name, case) in disks::CASES {
        trials.push(trial(name, without_storage, disks::Storage::start, disks::Storage::log, case));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// A test with what it needs, whose log is shown if it fails.
fn trial<T: 'static>(
    name: &str,
    ignored: bool,
    start: impl FnOnce() -> T + Send + 'static,
    log: fn(&T) -> String,
    case: fn(&T),
) -> Trial {
    let run = move || {
        let subject = start();
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| case(&subject)));
        result.map_err(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            let text = text.unwrap_or_else(|| "it panicked".to_owned());
            Failed::from(format!("{text}\n--- log ---\n{}", log(&subject)))
        })
    };
    Trial::test(name, run).with_ignored_flag(ignored)
}

fn whole_life(launcher: &Launcher) {
    let info = launcher.call(|client| async move { client.info().await }).unwrap();
    assert_eq!((info.protocol, info.launcher_uid.as_str()), (1, support::UID));
    assert!(launcher.state().domain.is_none());

    let vmi = vmi("kernel");
    launcher.sync(&vmi).unwrap();
    let state = launcher.wait_state("Running", |state| launcher.is(state, DomainStatus::Running));
    let domain = state.domain.unwrap();
    assert_eq!((domain.name.as_str(), domain.uid.as_str()), ("default_vm", support::UID));
    assert_eq!((domain.domain_type, domain.acpi, domain.memory_bytes), (DomainType::Qemu, true, 256 << 20));
    assert!(domain.os_machine.starts_with("pc-q35-") && domain.started_at.is_some());
    assert_eq!(domain.interfaces[0].tap, "tap0");
    assert_eq!(domain.disks[0].target, "vda");

    // Everything the guest says arrives on the serial socket: seed, address, and that it is up.
    let serial = launcher.serial();
    serial.wait_for("GUEST-NOCLOUD /dev/vdb hostname=vm instance-id=");
    serial.wait_for("printed by user-data");
    serial.wait_for("GUEST-IP eth0 10.0.2.2");
    serial.wait_for("GUEST-UP");
    assert_eq!(launcher.vnc_greeting(), *b"RFB");

    let state = launcher.wait_state("the agent's word", |state| {
        state.guest_agent.as_ref().is_some_and(|agent| !agent.interfaces.is_empty() && agent.os.is_some())
    });
    let agent = state.guest_agent.unwrap();
    assert_eq!(agent.interfaces[0].ips.first().map(String::as_str), Some("10.0.2.2"));
    assert_eq!(agent.hostname.as_deref(), Some("vm"));
    let answer = launcher.call(|client| async move {
        client.agent(&support::vmi_uid(), serde_json::json!({ "execute": "guest-ping" }), 5).await
    });
    assert_eq!(answer.unwrap(), serde_json::json!({}));

    // A second sync changes nothing.
    assert!(launcher.last_state().is_none(), "a guest that runs has no outcome");
    let pid = launcher.qemu();
    launcher.sync(&vmi).unwrap();
    assert_eq!(launcher.qemu(), pid);
    launcher.report_memory();

    launcher.command(Command::Shutdown).unwrap();
    let first = launcher.state().shutdown_requested_at.expect("the time of the request is noted");
    let state = launcher.wait_state("the end", |state| state.domain.as_ref().is_some_and(|d| d.is_down()));
    let domain = state.domain.unwrap();
    assert_eq!((domain.status, domain.reason), (DomainStatus::Shutoff, DomainReason::Shutdown));
    assert_eq!(state.shutdown_requested_at, Some(first));

    let again = launcher.sync(&vmi).unwrap_err();
    assert_eq!(again.refusal(), Some(RefusalCode::WrongState), "a guest that has ended is not started again");
    launcher.command(Command::Delete).unwrap();
    assert_eq!(launcher.wait_exit(), 0);
    let last = launcher.last_state().expect("the outcome is kept").domain.expect("also after the domain is forgotten");
    assert_eq!((last.status, last.reason), (DomainStatus::Shutoff, DomainReason::Shutdown));
}

fn container_disk(launcher: &Launcher) {
    let image = launcher.image_of_container_disk();
    let before = std::fs::metadata(&image).unwrap().modified().unwrap();
    launcher.sync(&vmi("disk")).unwrap();
    launcher.serial().wait_for("GUEST-UP");
    let domain = launcher.state().domain.unwrap();
    assert!(domain.disks[0].source.ends_with("/disk-data/root/disk.qcow2"), "{:?}", domain.disks);
    assert_eq!(std::fs::metadata(&image).unwrap().modified().unwrap(), before);
    launcher.command(Command::SoftReboot).unwrap();
    launcher.serial().wait_for("GUEST-INIT");
    launcher.command(Command::Reset).unwrap();
    launcher.command(Command::Kill).unwrap();
    let domain = launcher.state().domain.unwrap();
    assert_eq!((domain.status, domain.reason), (DomainStatus::Shutoff, DomainReason::Destroyed));
    launcher.command(Command::Kill).expect("killing what is dead is fine");
}

fn pausing(launcher: &Launcher) {
    let vmi = vmi("kernel");
    launcher.sync(&vmi).unwrap();
    launcher.command(Command::Pause).unwrap();
    let reason = |launcher: &Launcher| launcher.state().domain.map(|domain| (domain.status, domain.reason));
    assert_eq!(reason(launcher), Some((DomainStatus::Paused, DomainReason::PausedUser)));
    launcher.command(Command::Pause).unwrap();
    launcher.sync(&vmi).unwrap();
    assert_eq!(reason(launcher), Some((DomainStatus::Paused, DomainReason::PausedUser)), "sync leaves it paused");
    let seq = launcher.state().seq;
    launcher.command(Command::Unpause).unwrap();
    assert_eq!(reason(launcher), Some((DomainStatus::Running, DomainReason::Unpaused)));
    assert_ne!(launcher.state().seq, seq);

    let stranger =
        launcher.call(|client| async move { client.command(Command::Kill, &"somebody-else".parse().unwrap()).await });
    assert_eq!(stranger.unwrap_err().refusal(), Some(RefusalCode::WrongVmi));
    let early = launcher.command(Command::Delete).unwrap_err();
    assert_eq!(early.refusal(), Some(RefusalCode::WrongState), "a running guest is not deleted");
}

fn daemon_dies(launcher: &Launcher) {
    launcher.sync(&vmi("kernel")).unwrap();
    launcher.serial().wait_for("GUEST-UP");
    let qemu = launcher.qemu();

    let first = launcher.libvirtd();
    launcher.signal(first, "-KILL");
    let died = Instant::now();
    let second = launcher.wait("another libvirtd", || launcher.find_libvirtd().filter(|&pid| pid != first));
    eprintln!("libvirtd restarted after {:?}", died.elapsed());
    assert!(died.elapsed() < Duration::from_secs(3));
    // The state never showed anything but a running guest, and commands work as soon as libvirt is back.
    assert!(launcher.is(&launcher.state(), DomainStatus::Running));
    launcher.command(Command::Pause).unwrap();
    launcher.command(Command::Unpause).unwrap();
    assert!(launcher.is(&launcher.state(), DomainStatus::Running));
    assert_eq!(launcher.qemu(), qemu);
    launcher.wait("the agent to be seen again", || launcher.state().domain.filter(|domain| domain.agent_connected));

    // One that neither works nor ends is killed.
    launcher.signal(second, "-STOP");
    launcher.wait("a third libvirtd", || launcher.find_libvirtd().filter(|&pid| pid != second));
    launcher.command(Command::Pause).unwrap();
    assert!(launcher.is(&launcher.state(), DomainStatus::Paused));
    assert_eq!(launcher.qemu(), qemu);

    // A guest that ends while no daemon watches is found ended by the next one.
    let third = launcher.libvirtd();
    launcher.signal(third, "-STOP");
    launcher.signal(qemu, "-KILL");
    launcher.signal(third, "-KILL");
    let state = launcher.wait_state("the end", |state| state.domain.as_ref().is_some_and(|d| d.is_down()));
    assert_eq!(state.domain.unwrap().reason, DomainReason::Crashed);
}

fn qemu_dies(launcher: &Launcher) {
    launcher.sync(&vmi("kernel")).unwrap();
    launcher.wait_state("Running", |state| launcher.is(state, DomainStatus::Running));
    launcher.signal(launcher.qemu(), "-KILL");
    let state = launcher.wait_state("the end", |state| state.domain.as_ref().is_some_and(|d| d.is_down()));
    let domain = state.domain.unwrap();
    assert_eq!((domain.status, domain.reason), (DomainStatus::Shutoff, DomainReason::Crashed));
    // The outcome outlives the daemon that saw it.
    launcher.signal(launcher.libvirtd(), "-KILL");
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(launcher.state().domain.unwrap().reason, DomainReason::Crashed);
    // Without a handler that deletes the domain the launcher ends by itself, and leaves its last word.
    assert_eq!(launcher.zombies(), 0);
    assert_eq!(launcher.wait_exit(), 0);
    let domain = launcher.last_state().unwrap().domain.unwrap();
    assert_eq!((domain.status, domain.reason), (DomainStatus::Shutoff, DomainReason::Crashed));
    assert_eq!(domain.uid, support::UID);
}

fn pod_stops(launcher: &Launcher) {
    let mut vmi = vmi("kernel");
    let firmware = vmi.spec.domain.firmware.as_mut().unwrap();
    let kernel_args = firmware.kernel_boot.as_mut().unwrap().kernel_args.as_mut().unwrap();
    kernel_args.push_str(" ignore-acpi=1");
    launcher.sync(&vmi).unwrap();
    launcher.wait_state("Running", |state| launcher.is(state, DomainStatus::Running));
    assert!(!launcher.state().marked_for_graceful_shutdown);
    launcher.signal(launcher.init(), "-TERM");
    launcher.wait_state("the mark", |state| state.marked_for_graceful_shutdown);
    assert!(launcher.is(&launcher.state(), DomainStatus::Running), "the handler is given the chance");
    launcher.command(Command::Shutdown).unwrap();
    let state = launcher.wait_state("the end", |state| state.domain.as_ref().is_some_and(|d| d.is_down()));
    assert_eq!(state.domain.unwrap().reason, DomainReason::Destroyed);
    launcher.command(Command::Delete).unwrap();
    assert_eq!(launcher.wait_exit(), 0);
}

fn pod_stops_without_libvirt(launcher: &Launcher) {
    launcher.sync(&vmi("kernel")).unwrap();
    let qemu = launcher.qemu();
    launcher.signal(launcher.init(), "-TERM");
    let started = Instant::now();
    while launcher.find_qemu() == Some(qemu) {
        // Every new daemon is stopped as soon as it is seen.
        if let Some(daemon) = launcher.find_libvirtd() {
            launcher.signal(daemon, "-STOP");
        }
        assert!(started.elapsed() < Duration::from_secs(60), "QEMU still runs");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(started.elapsed() >= Duration::from_secs(10), "the grace period was kept");
    assert_eq!(launcher.wait_exit(), 0);
}

fn refusals(launcher: &Launcher) {
    let pause = launcher.command(Command::Pause).unwrap_err();
    assert_eq!(pause.refusal(), Some(RefusalCode::NoDomain));

    let mut foreign = vmi("kernel");
    foreign.metadata.uid = Some("somebody-else".into());
    assert_eq!(launcher.sync(&foreign).unwrap_err().refusal(), Some(RefusalCode::WrongVmi));

    let mut unsupported = vmi("kernel");
    unsupported.spec.domain.devices.tpm = Some(Default::default());
    let error = launcher.sync(&unsupported).unwrap_err();
    assert_eq!(error.refusal(), Some(RefusalCode::Impossible));
    assert!(error.to_string().contains("spec.domain.devices.tpm"), "{error}");
    assert!(launcher.state().last_error.unwrap().contains("spec.domain.devices.tpm"));

    let mut unready = vmi("kernel");
    unready.status_mut().interfaces.push(api::v1::VirtualMachineInstanceNetworkInterface {
        name: Some("default".into()),
        pod_interface_name: Some("eth9".into()),
        ..Default::default()
    });
    assert_eq!(launcher.sync(&unready).unwrap_err().refusal(), Some(RefusalCode::NotReady));

    let mut backed = vmi("disk");
    backed.spec.volumes[0].container_disk_mut().unwrap().path = Some("/bad/backed.qcow2".into());
    let error = launcher.sync(&backed).unwrap_err();
    assert_eq!(error.refusal(), Some(RefusalCode::Impossible));
    assert!(error.to_string().contains("has a backing file"), "{error}");
    backed.spec.volumes[0].container_disk_mut().unwrap().path = Some("/bad/link.img".into());
    assert!(launcher.sync(&backed).is_err(), "a link out of the image is not followed");

    let mut no_kernel = vmi("kernel");
    let firmware = no_kernel.spec.domain.firmware.as_mut().unwrap();
    let container = firmware.kernel_boot.as_mut().unwrap().container.as_mut().unwrap();
    container.kernel_path = Some("/boot/none".into());
    assert_eq!(launcher.sync(&no_kernel).unwrap_err().refusal(), Some(RefusalCode::Libvirt));
    assert!(!launcher.log().contains("printed by user-data"), "user data must not reach the log");

    // After all that the right one still starts, and clears the error.
    launcher.sync(&vmi("kernel")).unwrap();
    assert_eq!(launcher.state().last_error, None);
    launcher.command(Command::Kill).unwrap();
}

fn nobody_comes(launcher: &Launcher) {
    assert_ne!(launcher.wait_exit(), 0);
    assert!(launcher.log().contains("did not ask for a domain within 4 s"));
}
