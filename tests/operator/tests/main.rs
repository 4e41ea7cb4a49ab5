//! virt-operator on a control plane of its own. The last tests take the installation apart.

mod installation;
mod scenarios;

use std::collections::BTreeSet;
use std::process::ExitCode;

use api::rights::{Grant, Scope};
use control_plane::rights::{Account, Explained};
use ferrovirt_cli::installation::programs;
use install::names;
use installation::{Installation, settings};
use operate::Id;

/// virt-api's binding, by a role in kube-system.
const ELSEWHERE: Explained = &[
    ("get rolebindings.rbac.authorization.k8s.io", "whether it is there"),
    ("create rolebindings.rbac.authorization.k8s.io", "making it"),
    ("patch rolebindings.rbac.authorization.k8s.io", "making and mending it"),
    ("delete rolebindings.rbac.authorization.k8s.io", "the end of the installation"),
];

/// Rights that the scenarios need not show in use.
const BY_CHANCE: Explained = &[
    ("get nodes", "only labelled nodes are cleaned when the installation goes"),
    ("patch nodes", "the same"),
    ("create events", "warnings only"),
    ("patch events", "the second event of a kind about an object"),
    ("create leases.coordination.k8s.io in the installation's namespace", "only the first leader makes the lease"),
    ("create priorityclasses.scheduling.k8s.io", "the administrator applies the only one"),
    ("patch priorityclasses.scheduling.k8s.io", "the same"),
    ("delete priorityclasses.scheduling.k8s.io", "the same"),
    ("list virtualmachineinstancereplicasets.kubevirt.io", "asked when the KubeVirt object goes, before others are"),
    ("list virtualmachineinstances.kubevirt.io", "the same"),
    ("list virtualmachines.kubevirt.io", "the same"),
];

/// What virt-operator asks for itself, and what it does with the kinds that it manages. It holds more, to grant it.
fn declared() -> BTreeSet<Grant> {
    let mut all = install::operator_program().grants();
    let objects = install::managed(&settings(), &programs()).into_iter().map(|manifest| Id::of(&manifest.object));
    let ids: BTreeSet<Id> = objects.collect();
    let kinds = ids.iter().filter(|id| id.namespace != names::KUBE_SYSTEM);
    let kinds = kinds.filter_map(|id| Some((virt_operator::of_kind(&id.group, &id.kind)?, id.namespace.is_empty())));
    // These are made of certificates, not of settings.
    let certificates = ["Secret", "ConfigMap"].into_iter().filter_map(|kind| virt_operator::of_kind("", kind));
    for (kind, of_cluster) in kinds.chain(certificates.map(|kind| (kind, false))) {
        let scope = if of_cluster { Scope::Cluster } else { Scope::Installation };
        all.extend(["list", "watch", "create", "patch", "delete"].map(|verb| Grant {
            scope,
            group: kind.group.to_owned(),
            resource: kind.plural.to_owned(),
            verb: verb.to_owned(),
        }));
    }
    all
}

fn main() -> ExitCode {
    let untested = "virt-operator does not meet a real kube-apiserver";
    control_plane::installed::run(untested, Installation::start, scenarios::all(), |on, all| {
        let account = Account::of(&install::operator_program(), names::NAMESPACE);
        let account = Account { declared: declared(), elsewhere: ELSEWHERE, by_chance: BY_CHANCE, ..account };
        account.check(&on.plane.audit_log(), all)
    })
}
