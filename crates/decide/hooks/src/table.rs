//! The webhooks by name: one row for each that KubeVirt registers, and a few that exist only in this build.

use review::Operation::{Create, Delete, Update};
use review::{Operation, Phase, Review, Rule};

const CORE: &str = "kubevirt.io";
const SNAPSHOT: &str = "snapshot.kubevirt.io";
const EXPORT: &str = "export.kubevirt.io";
const CLONE: &str = "clone.kubevirt.io";
const POOL: &str = "pool.kubevirt.io";
const BACKUP: &str = "backup.kubevirt.io";
const INSTANCETYPE: &str = "instancetype.kubevirt.io";
const MIGRATIONS: &str = "migrations.kubevirt.io";
const PLUGIN: &str = "plugin.kubevirt.io";

const NEW: &[Operation] = &[Create];
const CHANGED: &[Operation] = &[Update];
const WRITTEN: &[Operation] = &[Create, Update];

/// The webhook for evictions of launcher Pods.
pub(crate) const LAUNCHER_EVICTION: &str = "virt-launcher-eviction-interceptor.kubevirt.io";
/// The webhook for evictions of attachment Pods.
pub(crate) const ATTACHMENT_EVICTION: &str = "hotplug-pod-eviction-interceptor.kubevirt.io";
/// The webhook for status writes.
const STATUS: &str = "kubevirt-crd-status-validator.kubevirt.io";

const fn mutating(
    name: &'static str,
    group: &'static str,
    resource: &'static str,
    operations: &'static [Operation],
) -> Rule {
    Rule { name, phase: Phase::Mutating, group, resource, subresource: "", operations }
}

const fn validating(
    name: &'static str,
    group: &'static str,
    resource: &'static str,
    operations: &'static [Operation],
) -> Rule {
    Rule { name, phase: Phase::Validating, group, resource, subresource: "", operations }
}

/// KubeVirt validates the status of three kinds; here every status is checked against its schema.
const fn status(group: &'static str, resource: &'static str) -> Rule {
    Rule { name: STATUS, phase: Phase::Validating, group, resource, subresource: "status", operations: WRITTEN }
}

const fn eviction(name: &'static str) -> Rule {
    Rule { name, phase: Phase::Validating, group: "", resource: "pods", subresource: "eviction", operations: NEW }
}

/// Every reviewed write, with its webhook.
pub const RULES: &[Rule] = &[
    mutating("virtualmachines-mutator.kubevirt.io", CORE, "virtualmachines", WRITTEN),
    mutating("virtualmachineinstances-mutator.kubevirt.io", CORE, "virtualmachineinstances", WRITTEN),
    mutating("migrations-mutator.kubevirt.io", CORE, "virtualmachineinstancemigrations", NEW),
    mutating("virtualmachineclones-mutator.kubevirt.io", CLONE, "virtualmachineclones", NEW),
    eviction(LAUNCHER_EVICTION),
    eviction(ATTACHMENT_EVICTION),
    validating("virtualmachineinstances-create-validator.kubevirt.io", CORE, "virtualmachineinstances", NEW),
    validating("virtualmachineinstances-update-validator.kubevirt.io", CORE, "virtualmachineinstances", CHANGED),
    validating("virtualmachine-validator.kubevirt.io", CORE, "virtualmachines", WRITTEN),
    validating("virtualmachinereplicaset-validator.kubevirt.io", CORE, "virtualmachineinstancereplicasets", WRITTEN),
    validating("virtualmachinepool-validator.kubevirt.io", POOL, "virtualmachinepools", WRITTEN),
    validating("virtualmachinepreset-validator.kubevirt.io", CORE, "virtualmachineinstancepresets", WRITTEN),
    validating("migration-create-validator.kubevirt.io", CORE, "virtualmachineinstancemigrations", NEW),
    validating("migration-update-validator.kubevirt.io", CORE, "virtualmachineinstancemigrations", CHANGED),
    validating("virtualmachinesnapshot-validator.snapshot.kubevirt.io", SNAPSHOT, "virtualmachinesnapshots", WRITTEN),
    validating(
        "virtualmachinesnapshotcontent-validator.snapshot.kubevirt.io", // ours: KubeVirt has no webhook for contents
        SNAPSHOT,
        "virtualmachinesnapshotcontents",
        WRITTEN,
    ),
    validating("virtualmachinerestore-validator.snapshot.kubevirt.io", SNAPSHOT, "virtualmachinerestores", WRITTEN),
    validating("virtualmachinebackup-validator.backup.kubevirt.io", BACKUP, "virtualmachinebackups", WRITTEN),
    validating(
        "virtualmachinebackuptracker-validator.backup.kubevirt.io",
        BACKUP,
        "virtualmachinebackuptrackers",
        WRITTEN,
    ),
    validating("virtualmachineexport-validator.export.kubevirt.io", EXPORT, "virtualmachineexports", WRITTEN),
    validating(
        "virtualmachineinstancetype-validator.instancetype.kubevirt.io",
        INSTANCETYPE,
        "virtualmachineinstancetypes",
        WRITTEN,
    ),
    validating(
        "virtualmachineclusterinstancetype-validator.instancetype.kubevirt.io",
        INSTANCETYPE,
        "virtualmachineclusterinstancetypes",
        WRITTEN,
    ),
    validating(
        "virtualmachinepreference-validator.instancetype.kubevirt.io",
        INSTANCETYPE,
        "virtualmachinepreferences",
        WRITTEN,
    ),
    validating(
        "virtualmachineclusterpreference-validator.instancetype.kubevirt.io",
        INSTANCETYPE,
        "virtualmachineclusterpreferences",
        WRITTEN,
    ),
    validating("migration-policy-validator.kubevirt.io", MIGRATIONS, "migrationpolicies", WRITTEN),
    validating("vm-clone-validator.kubevirt.io", CLONE, "virtualmachineclones", WRITTEN),
    validating("plugin-validator.plugin.kubevirt.io", PLUGIN, "plugins", WRITTEN),
    validating("kubevirt-validator.kubevirt.io", CORE, "kubevirts", &[Delete]),
    validating("kubevirt-update-validator.kubevirt.io", CORE, "kubevirts", CHANGED),
    validating("kubevirt-create-validator.kubevirt.io", CORE, "kubevirts", NEW),
    status(CORE, "virtualmachines"),
    status(CORE, "virtualmachineinstances"),
    status(CORE, "virtualmachineinstancereplicasets"),
    status(CORE, "virtualmachineinstancemigrations"),
    status(CORE, "virtualmachineinstancepresets"),
    status(CORE, "kubevirts"),
    status(SNAPSHOT, "virtualmachinesnapshots"),
    status(SNAPSHOT, "virtualmachinesnapshotcontents"),
    status(SNAPSHOT, "virtualmachinerestores"),
    status(BACKUP, "virtualmachinebackups"),
    status(BACKUP, "virtualmachinebackuptrackers"),
    status(EXPORT, "virtualmachineexports"),
    status(INSTANCETYPE, "virtualmachineinstancetypes"),
    status(INSTANCETYPE, "virtualmachineclusterinstancetypes"),
    status(INSTANCETYPE, "virtualmachinepreferences"),
    status(INSTANCETYPE, "virtualmachineclusterpreferences"),
    status(MIGRATIONS, "migrationpolicies"),
    status(CLONE, "virtualmachineclones"),
    status(POOL, "virtualmachinepools"),
    status(PLUGIN, "plugins"),
];

/// Where virt-api answers for a webhook on Kubernetes. KubeVirt's paths are between its own programs; derived ones need
/// no second table.
pub fn path(rule: &Rule) -> String {
    format!("{PATHS}{}", rule.name)
}

/// What the paths of all webhooks begin with.
pub const PATHS: &str = "/webhooks/";

/// The name of the webhook of this phase that handles a write.
pub(crate) fn name(review: &Review<'_>, phase: Phase) -> Option<&'static str> {
    RULES.iter().find(|rule| rule.phase == phase && rule.matches(review)).map(|rule| rule.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_write_of_our_kinds_has_one_validator_and_no_rule_is_about_anything_else() {
        for resource in api::resources::RESOURCES {
            let of = |operation, subresource| {
                let about = |rule: &&Rule| {
                    rule.phase == Phase::Validating
                        && rule.is_about(resource.group, resource.plural)
                        && rule.covers(operation, subresource)
                };
                RULES.iter().filter(about).count()
            };
            assert_eq!((of(Create, ""), of(Update, "")), (1, 1), "{}", resource.plural);
            if resource.status {
                assert_eq!(of(Update, "status"), 1, "{}", resource.plural);
            }
        }
        for rule in RULES.iter().filter(|rule| rule.resource != "pods") {
            let mut ours = api::resources::RESOURCES.iter();
            assert!(ours.any(|resource| rule.is_about(resource.group, resource.plural)), "{}", rule.resource);
        }
    }

    #[test]
    fn a_name_stands_for_one_webhook() {
        let mut seen = HashSet::new();
        for rule in RULES.iter().filter(|rule| rule.name != STATUS) {
            assert!(seen.insert(rule.name), "{} is there twice", rule.name);
        }
    }
}
