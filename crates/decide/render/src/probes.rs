//! Probes of the guest, run by the kubelet inside the launcher's container.

use api::v1::{ProbeHandler, VirtualMachineInstance};
use k8s_openapi::api::core::v1::{ExecAction, Probe};

const PROGRAM: &str = "virt-probe";
/// libvirt and QEMU must be up before there is anything to probe.
const STARTUP_SECONDS: i32 = 10;
/// The overhead of asking the guest, on top of the guest's own response time.
const DETOUR_SECONDS: i32 = 1;

/// The Pod's probe for one of the VMI's. Commands run in the guest, through the guest agent.
pub(crate) fn probe(vmi: &VirtualMachineInstance, probe: &api::v1::Probe) -> Probe {
    let at_least = |value: Option<i32>, default: i32| value.filter(|&value| value >= 1).unwrap_or(default);
    let timeout = at_least(probe.timeout_seconds, 1);
    let exec = |action, detour| (Probe { exec: Some(action), ..Probe::default() }, detour);
    let (handler, detour) = match probe.handler() {
        ProbeHandler::GuestAgentPing => exec(in_guest(vmi, timeout, &["--guestAgentPing".to_owned()]), DETOUR_SECONDS),
        ProbeHandler::Exec(given) => {
            let action = wrapped(vmi, timeout, given);
            let detour = if action == *given { 0 } else { DETOUR_SECONDS };
            exec(action, detour)
        }
        ProbeHandler::HttpGet(action) => (Probe { http_get: Some(action.clone()), ..Probe::default() }, 0),
        ProbeHandler::TcpSocket(action) => (Probe { tcp_socket: Some(action.clone()), ..Probe::default() }, 0),
        ProbeHandler::Unset => (Probe::default(), 0),
    };
    Probe {
        initial_delay_seconds: Some(probe.initial_delay_seconds.unwrap_or(0).saturating_add(STARTUP_SECONDS)),
        timeout_seconds: Some(timeout.saturating_add(detour)),
        period_seconds: Some(at_least(probe.period_seconds, 10)),
        success_threshold: Some(at_least(probe.success_threshold, 1)),
        failure_threshold: Some(at_least(probe.failure_threshold, 3)),
        ..handler
    }
}

/// Wraps a command to run in the guest; one that is already wrapped is unchanged.
fn wrapped(vmi: &VirtualMachineInstance, timeout: i32, action: &ExecAction) -> ExecAction {
    match action.command.as_deref().unwrap_or_default() {
        [] => action.clone(),
        [program, ..] if program == PROGRAM => action.clone(),
        [program, args @ ..] => {
            let command = ["--command".to_owned(), program.clone(), "--".to_owned()];
            in_guest(vmi, timeout, &[&command[..], args].concat())
        }
    }
}

fn in_guest(vmi: &VirtualMachineInstance, timeout: i32, rest: &[String]) -> ExecAction {
    let domain = vmi.domain_name();
    let timeout = timeout.to_string();
    let head = [PROGRAM, "--domainName", &domain, "--timeoutSeconds", &timeout];
    let command = head.into_iter().map(str::to_owned).chain(rest.iter().cloned());
    ExecAction { command: Some(command.collect()) }
}
