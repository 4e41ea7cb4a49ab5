//! The object that configures the installation.

use admission::{Operation, World};
use serde_json::{Value, json};

use super::{On, PASSES, merged};

/// An installation that passes; `over` is merged over it.
pub(super) fn kubevirt(over: Value) -> Value {
    let base = json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "KubeVirt",
        "metadata": { "name": "kubevirt", "namespace": "kubevirt" },
        "spec": { "configuration": {} },
    });
    merged(base, &over)
}

fn on() -> On {
    On::new("kubevirts")
}

fn spec(spec: Value) -> Value {
    json!({ "spec": spec })
}

fn configuration(configuration: Value) -> Value {
    spec(json!({ "configuration": configuration }))
}

fn gates(enabled: &[&str], disabled: &[&str]) -> Value {
    let gates = json!({ "featureGates": enabled, "disabledFeatureGates": disabled });
    configuration(json!({ "developerConfiguration": gates }))
}

#[test]
fn components() {
    let patch = |patch: &str| {
        let patch = json!({ "resourceName": "r", "resourceType": "Deployment", "type": "merge", "patch": patch });
        spec(json!({ "customizeComponents": { "patches": [patch] } }))
    };
    on().check(
        kubevirt,
        [
            (
                "patches are JSON",
                patch("{"),
                "FieldValueNotSupported spec.customizeComponents.patches[0].patch",
                patch("{}"),
            ),
            (
                "something runs",
                spec(json!({ "infra": { "replicas": 0 } })),
                "FieldValueInvalid spec.infra.replicas",
                spec(json!({ "infra": { "replicas": 1 } })),
            ),
            (
                "the overhead is at least what it is",
                configuration(json!({ "additionalGuestMemoryOverheadRatio": "0.9" })),
                "FieldValueNotSupported spec.configuration.additionalGuestMemoryOverheadRatio",
                configuration(json!({ "additionalGuestMemoryOverheadRatio": "1.0" })),
            ),
            (
                "the overhead is a number",
                configuration(json!({ "additionalGuestMemoryOverheadRatio": "lots" })),
                "FieldValueNotSupported spec.configuration.additionalGuestMemoryOverheadRatio",
                configuration(json!({ "additionalGuestMemoryOverheadRatio": "1.5" })),
            ),
            (
                "a configuration that can be used",
                configuration(json!({ "network": { "defaultNetworkInterface": "carrier pigeon" } })),
                "FieldValueInvalid spec.configuration.network.defaultNetworkInterface",
                configuration(json!({ "network": { "defaultNetworkInterface": "masquerade" } })),
            ),
        ],
    );
}

#[test]
fn certificates() {
    let signed = |strategy: Value| spec(json!({ "certificateRotateStrategy": { "selfSigned": strategy } }));
    on().check(
        kubevirt,
        [
            (
                "old and new fields",
                signed(json!({ "caRotateInterval": "168h", "server": {} })),
                "FieldValueNotSupported spec.certificateRotateStrategy.selfSigned",
                signed(json!({ "caRotateInterval": "168h", "certRotateInterval": "24h", "caOverlapInterval": "24h" })),
            ),
            (
                "the CA is renewed while it lasts",
                signed(json!({ "ca": { "duration": "48h", "renewBefore": "49h" } })),
                "FieldValueInvalid spec.certificateRotateStrategy.selfSigned.ca.renewBefore",
                signed(json!({ "ca": { "duration": "48h", "renewBefore": "48h" } })),
            ),
            (
                "its default lasts a week",
                signed(json!({ "ca": { "renewBefore": "168h1s" } })),
                "FieldValueInvalid spec.certificateRotateStrategy.selfSigned.ca.renewBefore",
                signed(json!({ "ca": { "renewBefore": "168h" } })),
            ),
            (
                "the overlap counts as well",
                signed(json!({ "caRotateInterval": "48h", "caOverlapInterval": "49h" })),
                "FieldValueInvalid spec.certificateRotateStrategy.selfSigned.ca.renewBefore",
                signed(json!({ "caRotateInterval": "48h", "caOverlapInterval": "47h" })),
            ),
            (
                "a certificate is renewed while it lasts",
                signed(json!({ "server": { "duration": "1h", "renewBefore": "1h1m" } })),
                "FieldValueInvalid spec.certificateRotateStrategy.selfSigned.server.renewBefore",
                signed(json!({ "server": { "duration": "1h", "renewBefore": "59m" } })),
            ),
            (
                "its default lasts a day",
                signed(json!({ "server": { "renewBefore": "25h" } })),
                "FieldValueInvalid spec.certificateRotateStrategy.selfSigned.server.renewBefore",
                signed(json!({ "server": { "renewBefore": "24h" } })),
            ),
            (
                "no certificate outlives its CA",
                signed(json!({ "ca": { "duration": "20h" } })),
                "FieldValueInvalid spec.certificateRotateStrategy.selfSigned.server.duration",
                signed(json!({ "ca": { "duration": "24h" } })),
            ),
            (
                "durations are durations",
                signed(json!({ "ca": { "duration": "1 week" } })),
                "FieldValueInvalid spec.certificateRotateStrategy.selfSigned.ca.duration",
                signed(json!({ "ca": { "duration": "168h0m0s" } })),
            ),
        ],
    );
}

#[test]
fn settings_behind_gates() {
    let with = |setting: Value, gates: Value| merged(configuration(setting), &gates);
    let downtime = json!({ "migrations": { "maxDowntimeMs": 500 } });
    let templates = json!({ "virtTemplateDeployment": { "enabled": true } });
    let manual = json!({ "roleAggregationStrategy": "Manual" });
    on().check(
        kubevirt,
        [
            (
                "templates",
                with(templates.clone(), gates(&[], &["Template"])),
                "FieldValueInvalid spec.configuration.virtTemplateDeployment.enabled",
                with(templates.clone(), gates(&[], &[])),
            ),
            (
                "templates that are not installed",
                with(templates, gates(&[], &["Template"])),
                "FieldValueInvalid spec.configuration.virtTemplateDeployment.enabled",
                with(json!({ "virtTemplateDeployment": { "enabled": false } }), gates(&[], &["Template"])),
            ),
            (
                "roles",
                with(manual.clone(), gates(&[], &["OptOutRoleAggregation"])),
                "FieldValueInvalid spec.configuration.roleAggregationStrategy",
                with(manual, gates(&[], &[])),
            ),
            (
                "roles as they were",
                with(json!({ "roleAggregationStrategy": "Manual" }), gates(&[], &["OptOutRoleAggregation"])),
                "FieldValueInvalid spec.configuration.roleAggregationStrategy",
                with(
                    json!({ "roleAggregationStrategy": "AggregateToDefault" }),
                    gates(&[], &["OptOutRoleAggregation"]),
                ),
            ),
            (
                "a permitted downtime",
                with(downtime.clone(), gates(&[], &[])),
                "FieldValueInvalid spec.configuration.migrations.maxDowntimeMs",
                with(downtime.clone(), gates(&["MigrationStallDetection"], &[])),
            ),
            (
                "a permitted downtime that is tuned",
                with(downtime.clone(), gates(&["Plugins"], &[])),
                "FieldValueInvalid spec.configuration.migrations.maxDowntimeMs",
                with(downtime.clone(), gates(&["MigrationDowntimeTuning"], &[])),
            ),
        ],
    );
    let old = kubevirt(configuration(downtime));
    let kept = merged(old.clone(), &configuration(json!({ "cpuModel": "host-model" })));
    assert_eq!(on().update(&old, &kept), PASSES, "a downtime that stays needs no gate");
    let gone = merged(old.clone(), &configuration(json!({ "migrations": null })));
    assert_eq!(on().update(&old, &gone), ["FieldValueInvalid spec.configuration.migrations.maxDowntimeMs"]);
}

#[test]
fn tls() {
    let tls = |version: Value, ciphers: &[&str]| {
        configuration(json!({ "tlsConfiguration": { "minTLSVersion": version, "ciphers": ciphers } }))
    };
    let known = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256";
    on().check(
        kubevirt,
        [
            (
                "no ciphers for TLS 1.3",
                tls(json!("VersionTLS13"), &[known]),
                "FieldValueNotSupported spec.configuration.tlsConfiguration.ciphers",
                tls(json!("VersionTLS13"), &[]),
            ),
            (
                "nor for the default",
                tls(Value::Null, &[known]),
                "FieldValueNotSupported spec.configuration.tlsConfiguration.ciphers",
                tls(Value::Null, &[]),
            ),
            (
                "known ciphers, of which the first that is not is told",
                tls(json!("VersionTLS12"), &[known, "ROT13", "ROT26"]),
                "FieldValueNotSupported spec.configuration.tlsConfiguration.ciphers#1",
                tls(json!("VersionTLS12"), &[known, "TLS_RSA_WITH_RC4_128_SHA"]),
            ),
        ],
    );
    let old = kubevirt(tls(json!("VersionTLS12"), &["ROT13"]));
    let other = merged(old.clone(), &configuration(json!({ "cpuModel": "host-model" })));
    assert_eq!(on().update(&old, &other), PASSES, "only a change is judged");
}

#[test]
fn seccomp() {
    let profile =
        |profile: Value| configuration(json!({ "seccompConfiguration": { "virtualMachineInstanceProfile": profile } }));
    let custom = |custom: Value| profile(json!({ "customProfile": custom }));
    let field = "spec.configuration.seccompConfiguration.virtualMachineInstanceProfile.customProfile";
    on().check(
        kubevirt,
        [
            (
                "a profile is named",
                profile(json!({})),
                &format!("FieldValueInvalid {field}"),
                custom(json!({ "runtimeDefaultProfile": true })),
            ),
            (
                "by one name",
                custom(json!({ "runtimeDefaultProfile": true, "localhostProfile": "p" })),
                &format!("FieldValueInvalid {field}.localhostProfile; FieldValueInvalid {field}.runtimeDefaultProfile"),
                custom(json!({ "runtimeDefaultProfile": false, "localhostProfile": "p" })),
            ),
        ],
    );
    let old = kubevirt(profile(json!({})));
    let other = merged(old.clone(), &configuration(json!({ "cpuModel": "host-model" })));
    assert_eq!(on().update(&old, &other), PASSES, "only a change is judged");
}

#[test]
fn placement() {
    let infra = |placement: Value| spec(json!({ "infra": { "nodePlacement": placement } }));
    let workloads = |placement: Value| spec(json!({ "workloads": { "nodePlacement": placement } }));
    let toleration = |toleration: Value| infra(json!({ "tolerations": [toleration] }));
    let on_nodes = |operator: &str| {
        let term = json!({ "matchExpressions": [{ "key": "disk", "operator": operator }] });
        let required = json!({ "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [term] } });
        workloads(json!({ "affinity": { "nodeAffinity": required } }))
    };
    let operator = "FieldValueInvalid spec.workloads.nodePlacement.affinity.nodeAffinity\
                    .requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].operator";
    on().check(
        kubevirt,
        [
            (
                "a selector's key is a label's",
                infra(json!({ "nodeSelector": { "no label": "" } })),
                "FieldValueInvalid spec.infra.nodePlacement.nodeSelector[no label]",
                infra(json!({ "nodeSelector": { "a/label": "" } })),
            ),
            (
                "a selector's value is a label's",
                workloads(json!({ "nodeSelector": { "disk": "very fast" } })),
                "FieldValueInvalid spec.workloads.nodePlacement.nodeSelector[disk]",
                workloads(json!({ "nodeSelector": { "disk": "fast" } })),
            ),
            ("affinity", on_nodes("Near"), operator, on_nodes("Exists")),
            (
                "a toleration of everything says so",
                toleration(json!({ "operator": "Equal" })),
                "FieldValueInvalid spec.infra.nodePlacement.tolerations[0].operator",
                toleration(json!({ "operator": "Exists" })),
            ),
            (
                "a toleration's operator",
                toleration(json!({ "key": "a", "operator": "Near" })),
                "FieldValueInvalid spec.infra.nodePlacement.tolerations[0].operator",
                toleration(json!({ "key": "a", "operator": "Equal" })),
            ),
            (
                "a toleration of any value has none",
                toleration(json!({ "key": "a", "operator": "Exists", "value": "b" })),
                "FieldValueInvalid spec.infra.nodePlacement.tolerations[0].value",
                toleration(json!({ "key": "a", "operator": "Equal", "value": "b" })),
            ),
            (
                "a toleration's key",
                toleration(json!({ "key": "no key" })),
                "FieldValueInvalid spec.infra.nodePlacement.tolerations[0].key",
                toleration(json!({ "key": "a.key" })),
            ),
            (
                "a toleration's value",
                toleration(json!({ "key": "a", "value": "no value" })),
                "FieldValueInvalid spec.infra.nodePlacement.tolerations[0].value",
                toleration(json!({ "key": "a", "value": "value" })),
            ),
            (
                "a toleration's effect",
                toleration(json!({ "key": "a", "effect": "Shrug" })),
                "FieldValueInvalid spec.infra.nodePlacement.tolerations[0].effect",
                toleration(json!({ "key": "a", "effect": "NoSchedule" })),
            ),
            (
                "a toleration for a while is of eviction",
                toleration(json!({ "key": "a", "effect": "NoSchedule", "tolerationSeconds": 5 })),
                "FieldValueInvalid spec.infra.nodePlacement.tolerations[0].effect",
                toleration(json!({ "key": "a", "effect": "NoExecute", "tolerationSeconds": 5 })),
            ),
        ],
    );
    let old = kubevirt(infra(json!({ "nodeSelector": { "no label": "" } })));
    let other = merged(old.clone(), &configuration(json!({ "cpuModel": "host-model" })));
    assert_eq!(on().update(&old, &other), PASSES, "only a change is judged");
}

#[test]
fn gates_that_are_asked_for_and_refused() {
    let both = kubevirt(gates(&["Plugins", "VSOCK"], &["VSOCK", "Plugins"]));
    let field = "FieldValueForbidden spec.configuration.developerConfiguration.featureGates";
    assert_eq!(on().create(&both), [field, field]);
    assert_eq!(on().create(&kubevirt(gates(&["Plugins"], &["VSOCK"]))), PASSES);
    let other = merged(both.clone(), &configuration(json!({ "cpuModel": "host-model" })));
    assert_eq!(on().update(&both, &other), PASSES, "only a change is judged");
    let reordered = merged(both.clone(), &gates(&["VSOCK", "Plugins"], &["VSOCK", "Plugins"]));
    assert_eq!(on().update(&both, &reordered), [field, field]);
    let gone = merged(both.clone(), &configuration(json!({ "developerConfiguration": null })));
    assert_eq!(on().update(&both, &gone), PASSES);
}

/// Warnings about the configuration itself, leaving out what this build does not act on.
fn warnings(old: Option<&Value>, object: &Value) -> Vec<String> {
    let operation = if old.is_some() { Operation::Update } else { Operation::Create };
    let warnings = on().judge(operation, old, object).expect("it can be read").warnings;
    warnings.into_iter().filter(|warning| !warning.contains("has no effect")).collect()
}

#[test]
fn an_administrator_is_told_about_gates_that_decide_nothing() {
    let named = |gate: &str| warnings(None, &kubevirt(gates(&[gate], &[])));
    assert_eq!(named("Plugins"), PASSES, "alpha");
    assert_eq!(named("Snapshot"), PASSES, "beta");
    assert_eq!(named("Flight"), PASSES, "unknown");
    for gate in ["LiveMigration", "HotplugVolumes", "Macvtap"] {
        assert!(named(gate)[0].starts_with(&format!("feature gate {gate} is deprecated")), "{:?}", named(gate));
    }
    let old = kubevirt(gates(&["LiveMigration"], &[]));
    let other = merged(old.clone(), &configuration(json!({ "cpuModel": "host-model" })));
    assert_eq!(warnings(Some(&old), &other), PASSES, "once");
}

#[test]
fn an_administrator_is_told_about_deprecated_settings() {
    let devices = |devices: Value| kubevirt(configuration(json!({ "mediatedDevicesConfiguration": devices })));
    let path = "spec.configuration.mediatedDevicesConfiguration";
    assert_eq!(warnings(None, &devices(json!({ "mediatedDeviceTypes": ["t"] }))), PASSES);
    let said = format!("{path}.mediatedDevicesTypes is deprecated, use mediatedDeviceTypes");
    assert_eq!(warnings(None, &devices(json!({ "mediatedDevicesTypes": ["t"] }))), [said]);
    let selector = json!({ "a": "b" });
    let node = |field: &str| json!({ "nodeSelector": selector, field: ["t"] });
    let nodes = json!({ "nodeMediatedDeviceTypes": [node("mediatedDeviceTypes"), node("mediatedDevicesTypes")] });
    let said = format!("{path}.nodeMediatedDeviceTypes[1].mediatedDevicesTypes is deprecated, use mediatedDeviceTypes");
    assert_eq!(warnings(None, &devices(nodes)), [said]);
    let ppc = kubevirt(configuration(json!({ "architectureConfiguration": { "ppc64le": {} } })));
    let said = "spec.configuration.architectureConfiguration.ppc64le is deprecated and no longer supported.";
    assert_eq!(warnings(None, &ppc), [said]);
}

#[test]
fn updates_of_guests() {
    let strategy = |strategy: Value| spec(json!({ "workloadUpdateStrategy": strategy }));
    on().check(
        kubevirt,
        [
            (
                "the time between batches is one",
                strategy(json!({ "batchEvictionInterval": "soon" })),
                "FieldValueInvalid spec.workloadUpdateStrategy.batchEvictionInterval",
                strategy(json!({ "batchEvictionInterval": "1m30s" })),
            ),
            (
                "time goes on",
                strategy(json!({ "batchEvictionInterval": "-1m" })),
                "FieldValueInvalid spec.workloadUpdateStrategy.batchEvictionInterval",
                strategy(json!({ "batchEvictionInterval": "0s" })),
            ),
            (
                "a batch has a size",
                strategy(json!({ "batchEvictionSize": -1 })),
                "FieldValueInvalid spec.workloadUpdateStrategy.batchEvictionSize",
                strategy(json!({ "batchEvictionSize": 0 })),
            ),
        ],
    );
    let told = |methods: Value| warnings(None, &kubevirt(strategy(json!({ "workloadUpdateMethods": methods }))));
    assert_eq!(told(json!(["LiveMigrate", "Evict"])), PASSES);
    let said = r#"spec.workloadUpdateStrategy.workloadUpdateMethods[1]: "Pray" is neither LiveMigrate nor Evict"#;
    assert_eq!(told(json!(["Evict", "Pray"])), [said]);
}

#[test]
fn a_cluster_has_one_installation() {
    let second = kubevirt(json!({ "metadata": { "name": "second", "namespace": "elsewhere" } }));
    let refused = ["400 Kubevirt is already created: a cluster has one, change it instead"];
    assert_eq!(on().in_world([kubevirt(json!({}))]).create(&second), refused);
    assert_eq!(on().in_world([]).create(&second), PASSES);
    assert_eq!(on().wants(&second, &World::default()), ["KubeVirt /*"]);
    let changed = kubevirt(configuration(json!({ "cpuModel": "host-model" })));
    assert_eq!(on().in_world([kubevirt(json!({}))]).update(&kubevirt(json!({})), &changed), PASSES);
}

#[test]
fn an_installation_that_is_to_stay_while_something_runs_stays() {
    let installed = |strategy: &str, phase: &str| {
        kubevirt(json!({ "spec": { "uninstallStrategy": strategy }, "status": { "phase": phase } }))
    };
    let careful = installed("BlockUninstallIfWorkloadsExist", "Deployed");
    let set = super::sets::replica_set(json!({}));
    let refused = |what: &str| {
        vec![format!(
            "400 Rejecting the uninstall request, since there are still {what} present: delete them, or set \
             spec.uninstallStrategy to RemoveWorkloads"
        )]
    };
    let with = |objects: &[Value]| on().in_world(objects.to_vec()).delete(&careful);
    assert_eq!(with(&[]), PASSES);
    let (vmi, vm) = (crate::vmi(json!({})), crate::vm(json!({})));
    assert_eq!(with(&[set.clone(), vm.clone(), vmi.clone()]), refused("Virtual Machine Instances"));
    assert_eq!(with(&[set.clone(), vm]), refused("Virtual Machines"));
    assert_eq!(with(&[set]), refused("Virtual Machine Instance Replica Sets"));
    for (strategy, phase) in
        [("RemoveWorkloads", "Deployed"), ("", "Deployed"), ("BlockUninstallIfWorkloadsExist", "Deploying")]
    {
        assert_eq!(on().in_world([vmi.clone()]).delete(&installed(strategy, phase)), PASSES, "{strategy} {phase}");
    }
}

#[test]
fn a_deletion_asks_what_runs_only_where_that_matters() {
    let ask = |object: &Value| {
        let on = on();
        admission::wanted(&on.request(Operation::Delete, Some(object), object), &World::default()).len()
    };
    assert_eq!(ask(&kubevirt(json!({}))), 0);
    let blocking = json!({ "uninstallStrategy": "BlockUninstallIfWorkloadsExist" });
    assert_eq!(ask(&kubevirt(json!({ "spec": blocking, "status": { "phase": "Deployed" } }))), 3);
}
