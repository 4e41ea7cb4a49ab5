//! virt-api before the clients it is written for: kube-apiserver, and kubectl behind it. The last tests take the
//! installation apart.

mod installation;
mod scenarios;

use std::process::ExitCode;

use control_plane::rights::{Account, Explained};
use install::names;
use installation::Installation;

/// What virt-api's account has from roles that the installation does not make.
const ELSEWHERE: Explained =
    &[("get configmaps", "Kubernetes' role extension-apiserver-authentication-reader: the CAs of the front proxy")];

/// Rights that the scenarios need not show in use.
const BY_CHANCE: Explained = &[
    // Subresources of guests that run on a node; here is none.
    ("get nodes", "where a node's virt-handler listens"),
    ("list pods in the installation's namespace", "whether a virt-handler runs in a Pod"),
    ("create virtualmachineinstancemigrations.kubevirt.io", "migrate, which no default role allows"),
    // Subresources that no scenario asks for.
    ("patch virtualmachines.kubevirt.io", "subresources that change a VM's spec"),
    // What webhooks look up for objects and fields that no scenario writes.
    ("list kubevirts.kubevirt.io", "a second KubeVirt object is refused by virt-operator's webhook"),
    ("list virtualmachines.kubevirt.io", "webhooks"),
    ("get virtualmachineinstances.kubevirt.io", "webhooks, and subresources of guests that run"),
    ("list virtualmachineinstances.kubevirt.io", "webhooks"),
    ("list virtualmachineinstancemigrations.kubevirt.io", "webhooks"),
    ("list virtualmachineinstancereplicasets.kubevirt.io", "webhooks"),
    ("get virtualmachineinstancetypes.instancetype.kubevirt.io", "webhooks"),
    ("get virtualmachineclusterinstancetypes.instancetype.kubevirt.io", "webhooks"),
    ("get virtualmachinepreferences.instancetype.kubevirt.io", "webhooks"),
    ("get virtualmachineclusterpreferences.instancetype.kubevirt.io", "webhooks"),
    ("get virtualmachinesnapshots.snapshot.kubevirt.io", "webhooks"),
    ("get virtualmachinesnapshotcontents.snapshot.kubevirt.io", "webhooks"),
    ("list virtualmachinerestores.snapshot.kubevirt.io", "webhooks"),
    ("list virtualmachinebackups.backup.kubevirt.io", "webhooks"),
    ("get pods", "webhooks"),
    ("get persistentvolumeclaims", "webhooks"),
    ("get controllerrevisions.apps", "webhooks"),
    ("get datasources.cdi.kubevirt.io", "webhooks"),
    ("get datavolumes.cdi.kubevirt.io", "webhooks"),
    ("get volumesnapshots.snapshot.storage.k8s.io", "webhooks"),
];

fn main() -> ExitCode {
    let untested = "virt-api is not called by a real kube-apiserver";
    control_plane::installed::run(untested, Installation::start, scenarios::all(), |on, all| {
        let account = Account::of(&virt_api::program_on_kubernetes(), names::NAMESPACE);
        Account { elsewhere: ELSEWHERE, by_chance: BY_CHANCE, ..account }.check(&on.plane.audit_log(), all)
    })
}
