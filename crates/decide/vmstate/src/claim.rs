//! Who is in charge of a VMI: which node, and which of its launchers there.

use api::labels;
use api::v1::VirtualMachineInstance;
use machinery::meta::label;
use machinery::uid::PodUid;

use crate::{LauncherState, Vmi};

/// Whether the VMI is labelled with `node`.
pub fn is_owned(vmi: &VirtualMachineInstance, node: &str) -> bool {
    label(&vmi.metadata, labels::NODE_NAME) == Some(node)
}

/// Whether the VMI is being migrated to `node`.
fn is_coming(vmi: &VirtualMachineInstance, node: &str) -> bool {
    label(&vmi.metadata, labels::MIGRATION_TARGET_NODE_NAME) == Some(node)
}

/// Whether the virt-handler of `node` is in charge of the VMI.
pub fn is_handed_over(vmi: &VirtualMachineInstance, node: &str) -> bool {
    (is_owned(vmi, node) || is_coming(vmi, node)) && (vmi.is_scheduled() || vmi.is_running())
}

/// The launchers of the VMI on `node`. What is not a UID is left out: it would be used as a path.
fn launchers<'a>(vmi: &'a VirtualMachineInstance, node: &'a str) -> impl Iterator<Item = PodUid> + 'a {
    let pods = vmi.status.iter().flat_map(|status| &status.active_pods);
    pods.filter(move |(_, on)| on.as_str() == node).filter_map(|(uid, _)| PodUid::new(uid).ok())
}

/// The launchers of the VMI on `node`, while the VMI is handed over to it or migrating to it and has not ended.
pub fn claimed_pods(vmi: &VirtualMachineInstance, node: &str) -> Vec<PodUid> {
    if is_handed_over(vmi, node) { launchers(vmi, node).collect() } else { vec![] }
}

/// The other launchers of the VMI on `node` than `own`, whether or not the VMI is handed over.
pub fn rivals<'a>(
    vmi: &'a VirtualMachineInstance,
    node: &'a str,
    own: &'a PodUid,
) -> impl Iterator<Item = PodUid> + 'a {
    launchers(vmi, node).filter(move |uid| uid != own)
}

/// Whether nothing of a launcher is left to manage on `node`. `has_record`: the node holds state of it.
pub fn is_done(vmi: Vmi<'_>, node: &str, has_record: bool) -> bool {
    let wanted = match vmi {
        Vmi::Present(vmi) => is_handed_over(vmi, node),
        Vmi::Absent => false,
        Vmi::Unconfirmed => true,
    };
    !has_record && !wanted
}

/// Of the launchers of one VMI, each with its state if it answers, the one responsible for it. A guest that migrates
/// back to a node may find its earlier launcher still there: the one that has the guest takes precedence.
pub fn answering<'a, T>(launchers: impl Iterator<Item = (Option<&'a LauncherState>, T)>) -> Option<T> {
    let has_guest = |state: &LauncherState| state.domain.as_ref().is_some_and(|domain| !domain.is_down());
    let answering = launchers.filter_map(|(state, launcher)| Some((state?, launcher)));
    answering.max_by_key(|(state, _)| has_guest(state)).map(|(_, launcher)| launcher)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{DomainState, DomainStatus};

    const HERE: &str = "node01";

    /// A VMI in this phase, labelled with the node that owns it and the node it migrates to.
    fn vmi(phase: &str, on: &str, to: &str) -> VirtualMachineInstance {
        serde_json::from_value(json!({
            "metadata": {"labels": {"kubevirt.io/nodeName": on, "kubevirt.io/migrationTargetNodeName": to}},
            "spec": {},
            "status": {
                "phase": phase,
                "activePods": {"pod-1": HERE, "pod-2": "node02", "pod-3": HERE, "../pod": HERE},
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_node_is_in_charge_of_what_it_was_given_or_is_to_get_until_that_ends() {
        for (phase, on, to, owned, handed_over) in [
            ("Scheduled", HERE, "", true, true),
            ("Running", HERE, "", true, true),
            ("Running", HERE, "node02", true, true),
            ("Running", "node02", HERE, false, true),
            ("Running", "node02", "", false, false),
            ("Running", "", "", false, false),
            ("Pending", HERE, "", true, false),
            ("Scheduling", HERE, "", true, false),
            ("Failed", HERE, "", true, false),
            ("Succeeded", "node02", HERE, false, false),
        ] {
            let (name, vmi) = (format!("{phase} on {on:?} to {to:?}"), vmi(phase, on, to));
            assert_eq!(is_owned(&vmi, HERE), owned, "{name}");
            assert_eq!(is_handed_over(&vmi, HERE), handed_over, "{name}");
            let claimed = claimed_pods(&vmi, HERE);
            let claimed: Vec<&str> = claimed.iter().map(PodUid::as_str).collect();
            assert_eq!(claimed, if handed_over { ["pod-1", "pod-3"].as_slice() } else { &[] }, "{name}");
        }
    }

    #[test]
    fn only_other_launchers_on_the_same_node_are_rivals() {
        let vmi = vmi("Failed", "node02", "");
        for (node, own, expected) in [
            (HERE, "pod-1", ["pod-3"].as_slice()),
            (HERE, "late", &["pod-1", "pod-3"]),
            ("node02", "pod-2", &[]),
            ("node03", "pod-1", &[]),
        ] {
            let own = PodUid::new(own).unwrap();
            let found: Vec<String> = rivals(&vmi, node, &own).map(String::from).collect();
            assert_eq!(found, expected, "{own} on {node}");
        }
    }

    #[test]
    fn a_launcher_is_done_with_once_its_record_and_its_vmi_are_gone() {
        let (here, ended) = (vmi("Running", HERE, ""), vmi("Failed", HERE, ""));
        for (name, vmi, has_record, done) in [
            ("it runs here", Vmi::Present(&here), false, false),
            ("it has ended", Vmi::Present(&ended), false, true),
            ("it has ended, its record remains", Vmi::Present(&ended), true, false),
            ("it is gone", Vmi::Absent, false, true),
            ("it is gone, its record remains", Vmi::Absent, true, false),
            ("it may be gone", Vmi::Unconfirmed, false, false),
        ] {
            assert_eq!(is_done(vmi, HERE, has_record), done, "{name}");
        }
    }

    #[test]
    fn of_several_launchers_the_one_with_the_guest_answers() {
        use DomainStatus::{Running, Shutoff};
        let state = |status: Option<DomainStatus>| {
            let domain = status.map(|status| DomainState { status, ..Default::default() });
            LauncherState { domain, ..Default::default() }
        };
        let (runs, ended, empty) = (state(Some(Running)), state(Some(Shutoff)), state(None));
        for (name, states, expected) in [
            ("the second has it", [Some(&ended), Some(&runs)], Some(1)),
            ("the first has it", [Some(&runs), Some(&ended)], Some(0)),
            ("the other has none yet", [Some(&runs), Some(&empty)], Some(0)),
            ("the first is silent", [None, Some(&ended)], Some(1)),
            ("both are silent", [None, None], None),
        ] {
            assert_eq!(answering(states.into_iter().zip(0..)), expected, "{name}");
        }
    }
}
