//! Features that this build does not support.
//!
//! The types contain every field of KubeVirt; the launcher's converter, virt-handler and the controllers implement some
//! of them. A field that nothing implements is rejected with its path and a reason, instead of being stored without
//! effect. The table lists supported and unsupported fields, and a field that is in neither is rejected as well: a new
//! field of the schema needs a decision before it can be used.

pub(crate) mod networks;
mod table;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinery::field::{Cause, FieldError, FieldPath, Path};
use serde_json::Value;

pub use table::{ANNOTATIONS, KINDS, KUBEVIRT_SPEC, MIGRATION_SPEC, Row, VM_SPEC, VMI_SPEC};

/// The support for a kind, a field or an annotation. Releases are those of the changelog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// Supported since a release, with everything below it.
    Since(&'static str),
    /// Supported on Kubernetes since a release. On an embedded cluster it is not; with a description, up to and including
    /// the verb, and why not there with the remedy.
    OnKubernetes(&'static str, &'static str, &'static str),
    /// These values are supported since a release; then the description of all others, up to and including the verb.
    Only(&'static str, &'static [&'static str], &'static str),
    /// Not supported; with a description, up to and including the verb.
    No(&'static str),
}

use Support::{No, OnKubernetes, Only, Since};

use crate::Shape;

static VMI_TREE: LazyLock<Tree> = LazyLock::new(|| Tree::new(VMI_SPEC, is_set));
static VM_TREE: LazyLock<Tree> = LazyLock::new(|| Tree::new(VM_SPEC, is_set));
static MIGRATION_TREE: LazyLock<Tree> = LazyLock::new(|| Tree::new(MIGRATION_SPEC, is_set));
static KUBEVIRT_TREE: LazyLock<Tree> = LazyLock::new(|| Tree::new(KUBEVIRT_SPEC, has_settings));

/// Why objects of a kind cannot be created, if they cannot.
pub(crate) fn kind(kind: &str) -> Option<FieldError> {
    match KINDS.iter().find(|(name, _)| *name == kind) {
        Some((_, Since(_) | OnKubernetes(..) | Only(..))) => None,
        Some((_, No(what))) => Some(refusal(FieldPath::new("kind"), what)),
        None => Some(refusal(FieldPath::new("kind"), "this kind is")),
    }
}

/// Unsupported fields of a VMI's spec at `field`, on nodes of this shape.
pub(crate) fn vmi_spec(field: &FieldPath, spec: &Value, shape: Shape) -> Vec<FieldError> {
    let combined = networks::refusals(field, spec);
    with_rules(VMI_TREE.refusals(field, spec, shape), combined)
}

/// Unsupported fields of a VM's spec at `field`, without its template.
pub(crate) fn vm_spec(field: &FieldPath, spec: &Value) -> Vec<FieldError> {
    VM_TREE.refusals(field, spec, Shape::Kubernetes)
}

/// Unsupported fields of a migration's spec at `field`.
pub(crate) fn migration_spec(field: &FieldPath, spec: &Value) -> Vec<FieldError> {
    MIGRATION_TREE.refusals(field, spec, Shape::Kubernetes)
}

/// Settings of a KubeVirt object's spec at `field` without effect on a cluster of this shape, as warnings.
pub(crate) fn kubevirt_spec(field: &FieldPath, spec: &Value, shape: Shape) -> Vec<String> {
    let errors = KUBEVIRT_TREE.refusals(field, spec, shape);
    errors.iter().map(|error| format!("{error}: the setting has no effect")).collect()
}

/// Unsupported annotations of the metadata at `field`.
pub(crate) fn annotations(field: &FieldPath, metadata: &ObjectMeta) -> Vec<FieldError> {
    let present = metadata.annotations.iter().flatten().filter(|(_, value)| api::annotations::requests(value));
    let refused = present.filter_map(|(key, _)| match ANNOTATIONS.iter().find(|(listed, _)| key == listed)? {
        (_, No(what)) => Some(refusal(field.child("annotations").key(key), what)),
        (_, Since(_) | OnKubernetes(..) | Only(..)) => None,
    });
    refused.collect()
}

/// Combines both kinds of errors, each field once: an invalid value is only reported as invalid.
pub fn with_rules(mut unsupported: Vec<FieldError>, rules: Vec<FieldError>) -> Vec<FieldError> {
    unsupported.retain(|refused| rules.iter().all(|broken| broken.field != refused.field));
    unsupported.extend(rules);
    unsupported
}

/// An error for something that is not a field of its own.
pub(crate) fn refusal(field: FieldPath, what: &str) -> FieldError {
    FieldError::new(Cause::Unsupported, field, format!("{what} not supported by this build"))
}

fn not_embedded(field: FieldPath, what: &str, why: &str) -> FieldError {
    FieldError::new(Cause::Unsupported, field, format!("{what} not supported on an embedded cluster: {why}"))
}

/// What a walk has found on nodes of a shape.
struct Findings {
    shape: Shape,
    errors: Vec<FieldError>,
}

/// Rows as a tree, so that a walk over an object visits each field once and formats a path only for an error.
struct Tree {
    root: Node,
    /// Whether a value requests anything.
    asks: fn(&Value) -> bool,
}

#[derive(Default)]
struct Node {
    /// Set where a row ends.
    support: Option<Support>,
    fields: BTreeMap<&'static str, Node>,
    items: Option<Box<Node>>,
}

impl Tree {
    fn new(rows: &[Row], asks: fn(&Value) -> bool) -> Self {
        let mut root = Node::default();
        for (path, support) in rows {
            root.below(path).support = Some(*support);
        }
        Tree { root, asks }
    }

    fn refusals(&self, field: &FieldPath, value: &Value, shape: Shape) -> Vec<FieldError> {
        let mut found = Findings { shape, errors: Vec::new() };
        self.walk(&self.root, &Path::new(field.as_str()), value, &mut found);
        found.errors
    }

    fn walk(&self, node: &Node, at: &Path<'_>, value: &Value, found: &mut Findings) {
        match (node.support, value) {
            (Some(Since(_)), _) => {}
            (Some(OnKubernetes(_, what, why)), _) => {
                if found.shape == Shape::Embedded && (self.asks)(value) {
                    found.errors.push(not_embedded(at.into(), what, why));
                }
            }
            (Some(Only(_, values, what)), _) => {
                if (self.asks)(value) && !value.as_str().is_some_and(|value| values.contains(&value)) {
                    found.errors.push(refusal(at.into(), what));
                }
            }
            (Some(No(what)), _) => {
                if (self.asks)(value) {
                    found.errors.push(refusal(at.into(), what));
                }
            }
            (None, Value::Object(fields)) => {
                for (name, value) in fields {
                    self.step(node.fields.get(name.as_str()), &at.child(name), value, found);
                }
            }
            (None, Value::Array(items)) => {
                for (index, value) in items.iter().enumerate() {
                    self.step(node.items.as_deref(), &at.index(index), value, found);
                }
            }
            (None, _) => {}
        }
    }

    fn step(&self, node: Option<&Node>, at: &Path<'_>, value: &Value, found: &mut Findings) {
        match node {
            Some(node) => self.walk(node, at, value, found),
            None if (self.asks)(value) => found.errors.push(refusal(at.into(), "this field is")),
            None => {}
        }
    }
}

impl Node {
    /// The node for a path of the table.
    fn below(&mut self, path: &'static str) -> &mut Node {
        path.split('.').fold(self, |node, step| match step.strip_suffix("[]") {
            Some(name) => node.fields.entry(name).or_default().items.get_or_insert_default(),
            None => node.fields.entry(step).or_default(),
        })
    }
}

/// Whether a value requests anything. An empty object does: `tpm: {}` is a TPM. One with `enabled: false` does not.
fn is_set(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Bool(true) => true,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => fields.get("enabled") != Some(&Value::Bool(false)),
    }
}

/// Whether a setting has a value: an empty group of settings does not.
fn has_settings(value: &Value) -> bool {
    match value {
        Value::Object(fields) => is_set(value) && fields.values().any(has_settings),
        _ => is_set(value),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use api::resources::RESOURCES;
    use serde_json::json;

    use super::*;

    fn vmi_spec(field: &FieldPath, spec: &serde_json::Value) -> Vec<FieldError> {
        super::vmi_spec(field, spec, Shape::Kubernetes)
    }

    /// The tables of fields, each with the kind whose spec it speaks of.
    const SPECS: [(&str, &[Row]); 4] = [
        ("VirtualMachineInstance", VMI_SPEC),
        ("VirtualMachine", VM_SPEC),
        ("VirtualMachineInstanceMigration", MIGRATION_SPEC),
        ("KubeVirt", KUBEVIRT_SPEC),
    ];

    /// Every path of a schema that ends in a value, spelled as the tables do.
    fn leaves(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
        if let Some(fields) = schema["properties"].as_object() {
            for (name, schema) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                leaves(schema, &path, found);
            }
        } else if schema["items"].is_object() {
            leaves(&schema["items"], &format!("{path}[]"), found);
        } else {
            found.insert(path.to_owned());
        }
    }

    fn spec_leaves(kind: &str) -> BTreeSet<String> {
        let schema = api::schema::openapi(kind).expect("the kind is ours");
        let mut found = BTreeSet::new();
        leaves(&schema["properties"]["spec"], "", &mut found);
        assert!(found.len() > 5, "the schema of {kind} has fields");
        found
    }

    fn covers(line: &str, path: &str) -> bool {
        path.strip_prefix(line).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    }

    #[test]
    fn every_field_of_the_schema_is_in_the_table() {
        for (kind, table) in SPECS {
            let paths = spec_leaves(kind);
            let missing: Vec<_> =
                paths.iter().filter(|path| !table.iter().any(|(line, _)| covers(line, path))).collect();
            assert_eq!(missing, Vec::<&String>::new(), "{kind}: fields in no row of the table");
        }
    }

    #[test]
    fn every_row_is_a_field_of_the_schema() {
        for (kind, table) in SPECS {
            let paths = spec_leaves(kind);
            let stray: Vec<_> = table.iter().filter(|(line, _)| !paths.iter().any(|path| covers(line, path))).collect();
            assert_eq!(stray, Vec::<&Row>::new(), "{kind}: rows for no field");
        }
    }

    #[test]
    fn no_row_is_hidden_below_another() {
        for (_, table) in SPECS {
            for (line, _) in table {
                let above: Vec<_> = table.iter().filter(|(other, _)| other != line && covers(other, line)).collect();
                assert_eq!(above, Vec::<&Row>::new(), "{line}");
            }
        }
    }

    #[test]
    fn rows_are_in_order_and_occur_once() {
        for table in [KINDS, VMI_SPEC, VM_SPEC, MIGRATION_SPEC, ANNOTATIONS, KUBEVIRT_SPEC] {
            for pair in table.windows(2) {
                assert!(pair[0].0 < pair[1].0, "{} does not come before {}", pair[0].0, pair[1].0);
            }
        }
    }

    #[test]
    fn every_kind_has_its_row() {
        let rows: BTreeSet<&str> = KINDS.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(rows, RESOURCES.iter().map(|resource| resource.kind).collect());
    }

    #[test]
    fn a_kind_is_refused_for_what_it_stands_for() {
        assert_eq!(kind("VirtualMachine"), None);
        let refused = kind("VirtualMachinePool").expect("pools are not supported");
        assert_eq!(refused.to_string(), "kind: a pool of virtual machines is not supported by this build");
        assert_eq!(kind("Teleporter").map(|error| error.cause), Some(Cause::Unsupported));
    }

    #[test]
    fn a_refusal_names_the_field_and_the_thing() {
        let spec = json!({ "domain": { "devices": { "gpus": [{ "name": "a" }] } } });
        let errors = vmi_spec(&FieldPath::new("spec"), &spec);
        let said: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(said, ["spec.domain.devices.gpus: GPUs are not supported by this build"]);
        assert_eq!(errors[0].cause, Cause::Unsupported);
    }

    #[test]
    fn items_of_lists_are_named_by_their_index() {
        let disks = json!([{ "name": "a" }, { "name": "b", "lun": {} }]);
        let errors =
            vmi_spec(&FieldPath::new("spec.template.spec"), &json!({ "domain": { "devices": { "disks": disks } } }));
        assert_eq!(errors[0].field.as_str(), "spec.template.spec.domain.devices.disks[1].lun");
    }

    #[test]
    fn what_is_turned_off_or_empty_asks_for_nothing() {
        let spec = json!({
            "accessCredentials": [],
            "evictionStrategy": null,
            "domain": {
                "cpu": { "dedicatedCpuPlacement": false, "model": "" },
                "devices": { "tpm": { "enabled": false }, "autoattachVSOCK": false, "gpus": null },
                "features": { "hyperv": { "enabled": false } },
            },
        });
        assert_eq!(vmi_spec(&FieldPath::new("spec"), &spec), []);
    }

    #[test]
    fn an_empty_object_asks_for_what_it_stands_for() {
        let spec = json!({ "domain": { "devices": { "tpm": {} } } });
        assert_eq!(vmi_spec(&FieldPath::new("spec"), &spec).len(), 1);
    }

    #[test]
    fn only_the_listed_values_of_a_field_pass() {
        let of =
            |model: &str| vmi_spec(&FieldPath::new("spec"), &json!({ "domain": { "cpu": { "model": model } } })).len();
        assert_eq!((of("host-model"), of("Haswell")), (0, 1));
    }

    #[test]
    fn what_only_kubernetes_supports_is_refused_elsewhere_with_the_remedy() {
        let spec = json!({
            "domain": { "devices": { "interfaces": [{ "name": "a", "bridge": {} }] } },
            "networks": [{ "name": "a", "multus": { "networkName": "n" } }],
        });
        let field = FieldPath::new("spec");
        assert_eq!(super::vmi_spec(&field, &spec, Shape::Kubernetes), []);
        let refused = super::vmi_spec(&field, &spec, Shape::Embedded);
        let fields: Vec<&str> = refused.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(fields, ["spec.domain.devices.interfaces[0].bridge", "spec.networks[0].multus.networkName"]);
        let told = refused[1].to_string();
        let expected = "spec.networks[0].multus.networkName: a network of Multus is not supported on an embedded cluster: \
                        it serves no NetworkAttachmentDefinitions; use masquerade on the Pod network, or \
                        install Ferrovirt on Kubernetes with Multus";
        assert_eq!(told, expected);
        assert!(refused.iter().all(|error| error.cause == Cause::Unsupported));
    }

    #[test]
    fn the_pod_network_is_not_bridged_anywhere_and_said_once() {
        let spec = json!({
            "domain": { "devices": { "interfaces": [{ "name": "a", "bridge": {} }] } },
            "networks": [{ "name": "a", "pod": {} }],
        });
        for shape in [Shape::Kubernetes, Shape::Embedded] {
            let refused = super::vmi_spec(&FieldPath::new("spec"), &spec, shape);
            let told: Vec<String> = refused.iter().map(ToString::to_string).collect();
            let expected = "spec.domain.devices.interfaces[0].bridge: the bridge binding on the Pod network (use masquerade \
                            instead) is not supported by this build";
            assert_eq!(told, [expected], "{shape:?}");
        }
    }

    #[test]
    fn a_field_that_is_in_no_row_is_refused() {
        let spec = json!({ "domain": { "devices": { "teleporter": { "power": 9 } } } });
        let errors = vmi_spec(&FieldPath::new("spec"), &spec);
        assert_eq!(errors[0].to_string(), "spec.domain.devices.teleporter: this field is not supported by this build");
    }

    #[test]
    fn settings_without_effect_are_warned_of() {
        let spec = json!({
            "certificateRotateStrategy": {},
            "configuration": {
                "commonInstancetypesDeployment": { "enabled": false },
                "developerConfiguration": { "featureGates": ["HostDisk"], "useEmulation": true },
                "migrations": { "network": "fast", "allowPostCopy": false },
                "network": { "defaultNetworkInterface": "masquerade", "permitSlirpInterface": true },
                "ksmConfiguration": { "nodeLabelSelector": {} },
            },
        });
        for shape in [Shape::Kubernetes, Shape::Embedded] {
            assert_eq!(
                kubevirt_spec(&FieldPath::new("spec"), &spec, shape),
                ["spec.configuration.network.permitSlirpInterface: the slirp binding is not supported by this build: \
                  the setting has no effect"]
            );
        }
    }

    #[test]
    fn what_virt_operator_does_has_no_effect_on_an_embedded_cluster_only() {
        let spec = json!({
            "certificateRotateStrategy": { "selfSigned": { "ca": { "duration": "1h" } } },
            "customizeComponents": { "patches": [{ "patch": "{}" }] },
            "imageTag": "v1",
            "infra": { "replicas": 2 },
            "uninstallStrategy": "RemoveWorkloads",
            "workloads": { "nodePlacement": { "nodeSelector": { "a": "b" } } },
        });
        let field = FieldPath::new("spec");
        assert_eq!(kubevirt_spec(&field, &spec, Shape::Kubernetes), Vec::<String>::new());
        let told = kubevirt_spec(&field, &spec, Shape::Embedded);
        assert_eq!(told.len(), 6, "{told:?}");
        assert_eq!(
            told[3],
            "spec.infra: placing the components on nodes is not supported on an embedded cluster: it has no virt-operator; \
             install Ferrovirt on Kubernetes: the setting has no effect"
        );
    }

    #[test]
    fn annotations_that_ask_for_nothing_pass() {
        let annotated = |value: &str| ObjectMeta {
            annotations: Some([("sidecar.istio.io/inject".to_owned(), value.to_owned())].into()),
            ..ObjectMeta::default()
        };
        let metadata = FieldPath::new("metadata");
        assert_eq!(annotations(&metadata, &annotated("false")), []);
        let errors = annotations(&metadata, &annotated("true"));
        assert_eq!(errors[0].field.as_str(), "metadata.annotations[sidecar.istio.io/inject]");
    }
}
