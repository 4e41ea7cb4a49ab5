//! What virt-handler may write, stricter than RBAC: only objects on its own node.
//!
//! All virt-handlers have one service account. Their tokens name the node of the Pod they were issued for, which the API
//! server passes to the policies with each request.

use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MatchResources, NamedRuleWithOperations, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding, ValidatingAdmissionPolicyBindingSpec, ValidatingAdmissionPolicySpec, Validation,
    Variable,
};
use serde_json::Value;

use crate::object::{of_cluster, typed};
use crate::{Settings, names};

/// The node of the requesting virt-handler; empty if its token names none.
const NODE: &str = "request.userInfo.?extra[?'authentication.kubernetes.io/node-name'].orValue([''])[0]";

/// A ValidatingAdmissionPolicy.
struct Policy {
    name: &'static str,
    group: &'static str,
    versions: &'static [&'static str],
    resources: &'static [&'static str],
    variables: &'static [(&'static str, &'static str)],
    /// Expressions that must hold, with the message if they do not.
    validations: &'static [(&'static str, &'static str)],
}

const POLICIES: &[Policy] = &[
    Policy {
        name: "kubevirt-node-restriction-policy",
        group: "",
        versions: &["v1"],
        resources: &["nodes", "nodes/status"],
        variables: &[
            ("labels", "object.metadata.?labels.orValue({})"),
            ("oldLabels", "oldObject.metadata.?labels.orValue({})"),
            ("annotations", "object.metadata.?annotations.orValue({})"),
            ("oldAnnotations", "oldObject.metadata.?annotations.orValue({})"),
            (
                "changedLabels",
                "variables.labels.filter(k, !(k in variables.oldLabels) || variables.labels[k] != variables.oldLabels[k]) + \
                 variables.oldLabels.filter(k, !(k in variables.labels))",
            ),
            (
                "changedAnnotations",
                "variables.annotations.filter(k, !(k in variables.oldAnnotations) || \
                 variables.annotations[k] != variables.oldAnnotations[k]) + \
                 variables.oldAnnotations.filter(k, !(k in variables.annotations))",
            ),
        ],
        validations: &[
            ("request.operation == 'UPDATE'", "virt-handler must not create or delete nodes"),
            (
                "request.operation != 'UPDATE' || object.metadata.name == variables.node",
                "virt-handler may change only its own node",
            ),
            (
                "request.operation != 'UPDATE' || object.spec == oldObject.spec",
                "virt-handler must not change the spec of a node",
            ),
            (
                "request.operation != 'UPDATE' || \
                 (object.metadata.?finalizers == oldObject.metadata.?finalizers && \
                 object.metadata.?ownerReferences == oldObject.metadata.?ownerReferences)",
                "virt-handler must not change finalizers or owner references of a node",
            ),
            (
                "request.operation != 'UPDATE' || \
                 variables.changedLabels.all(k, k.contains('kubevirt.io/') || k == 'cpumanager')",
                "virt-handler may change only labels of kubevirt.io and cpumanager",
            ),
            (
                "request.operation != 'UPDATE' || variables.changedAnnotations.all(k, k.contains('kubevirt.io/'))",
                "virt-handler may change only annotations of kubevirt.io",
            ),
        ],
    },
    Policy {
        name: "kubevirt-instance-restriction-policy",
        group: api::v1::GROUP,
        versions: &["v1", "v1alpha3"],
        resources: &["virtualmachineinstances"],
        variables: &[
            ("oldLabels", "oldObject.metadata.?labels.orValue({})"),
            ("labels", "object.metadata.?labels.orValue({})"),
            ("oldAnnotations", "oldObject.metadata.?annotations.orValue({})"),
            ("annotations", "object.metadata.?annotations.orValue({})"),
            (
                "over",
                "oldObject.?status.?migrationState.?completed.orValue(false) || \
                 oldObject.?status.?migrationState.?failed.orValue(false)",
            ),
            ("target", "variables.oldLabels[?'kubevirt.io/migrationTargetNodeName'].orValue('')"),
            // The node that runs the guest, and while a migration is under way its source and its target. The source writes
            // until the target has taken the VMI over or has failed, both of which set `endTimestamp`. If it fails, or has sent
            // its guest to another VMI, the VMI is still its own by label and status.
            (
                "nodes",
                "[variables.oldLabels[?'kubevirt.io/nodeName'].orValue(''), \
                 string(oldObject.?status.?nodeName.orValue('')), \
                 variables.over ? '' : variables.target, \
                 variables.over ? '' : string(oldObject.?status.?migrationState.?targetNode.orValue('')), \
                 oldObject.?status.?migrationState.?endTimestamp.hasValue() ? '' : \
                 string(oldObject.?status.?migrationState.?sourceNode.orValue(''))]",
            ),
            // The one write of a target after its migration has failed: when its QEMU has ended it takes the label off, and with
            // it the note that the source is gone. Nobody else does that.
            (
                "releases",
                "variables.over && variables.target == variables.node && object.?status == oldObject.?status && \
                 object.metadata.?finalizers == oldObject.metadata.?finalizers && \
                 object.metadata.?ownerReferences == oldObject.metadata.?ownerReferences && \
                 variables.labels.all(k, variables.oldLabels[?k] == variables.labels[?k]) && \
                 variables.annotations.all(k, variables.oldAnnotations[?k] == variables.annotations[?k]) && \
                 variables.oldLabels.filter(k, !(k in variables.labels)) == ['kubevirt.io/migrationTargetNodeName'] && \
                 variables.oldAnnotations.all(k, k in variables.annotations || k == 'ferrovirt.io/migration-source-gone')",
            ),
        ],
        validations: &[
            ("request.operation == 'UPDATE'", "virt-handler must not create or delete VirtualMachineInstances"),
            (
                "request.operation != 'UPDATE' || \
                 (variables.node != '' && (variables.node in variables.nodes || variables.releases))",
                "this VirtualMachineInstance is not on virt-handler's own node",
            ),
            (
                "request.operation != 'UPDATE' || object.spec == oldObject.spec",
                "virt-handler must not change the spec of a VirtualMachineInstance",
            ),
        ],
    },
    Policy {
        name: "kubevirt-pod-restriction-policy",
        group: "",
        versions: &["v1"],
        resources: &["pods", "pods/status"],
        variables: &[],
        validations: &[
            ("request.operation != 'CREATE'", "virt-handler must not create Pods"),
            (
                "request.operation == 'CREATE' || \
                 (variables.node != '' && oldObject.?spec.?nodeName.orValue('') == variables.node)",
                "this Pod is not on virt-handler's own node",
            ),
        ],
    },
];

/// The policies, then their bindings.
pub(crate) fn policies(settings: &Settings) -> Vec<Value> {
    let policies = POLICIES.iter().map(|policy| typed(&restriction(policy, settings), settings));
    policies.chain(POLICIES.iter().map(|policy| typed(&binding(policy), settings))).collect()
}

fn restriction(policy: &Policy, settings: &Settings) -> ValidatingAdmissionPolicy {
    let handler = names::user(names::account::HANDLER, &settings.namespace);
    let spec = ValidatingAdmissionPolicySpec {
        failure_policy: Some("Fail".to_owned()),
        match_conditions: Some(vec![MatchCondition {
            name: "virt-handler".to_owned(),
            expression: format!("request.userInfo.username == '{handler}'"),
        }]),
        match_constraints: Some(MatchResources {
            match_policy: Some("Equivalent".to_owned()),
            resource_rules: Some(vec![rule(policy)]),
            ..MatchResources::default()
        }),
        variables: Some(variables(policy)),
        validations: Some(policy.validations.iter().map(validation).collect()),
        ..ValidatingAdmissionPolicySpec::default()
    };
    ValidatingAdmissionPolicy { metadata: of_cluster(policy.name), spec: Some(spec), status: None }
}

fn rule(policy: &Policy) -> NamedRuleWithOperations {
    let owned = |list: &[&str]| Some(list.iter().map(|&text| text.to_owned()).collect());
    NamedRuleWithOperations {
        api_groups: owned(&[policy.group]),
        api_versions: owned(policy.versions),
        operations: owned(&["CREATE", "UPDATE", "DELETE"]),
        resources: owned(policy.resources),
        ..NamedRuleWithOperations::default()
    }
}

fn variables(policy: &Policy) -> Vec<Variable> {
    let variable =
        |&(name, expression): &(&str, &str)| Variable { name: name.to_owned(), expression: expression.to_owned() };
    [("node", NODE)].iter().chain(policy.variables).map(variable).collect()
}

fn validation(&(expression, message): &(&str, &str)) -> Validation {
    Validation {
        expression: expression.to_owned(),
        message: Some(message.to_owned()),
        reason: Some("Forbidden".to_owned()),
        ..Validation::default()
    }
}

fn binding(policy: &Policy) -> ValidatingAdmissionPolicyBinding {
    let spec = ValidatingAdmissionPolicyBindingSpec {
        policy_name: Some(policy.name.to_owned()),
        validation_actions: Some(vec!["Deny".to_owned()]),
        ..ValidatingAdmissionPolicyBindingSpec::default()
    };
    let name = policy.name.replace("-policy", "-binding");
    ValidatingAdmissionPolicyBinding { metadata: of_cluster(&name), spec: Some(spec) }
}
