//! The kinds besides machines and instances: one row per rule, with what breaks it and the nearest thing that passes.

mod kubevirt;
mod migration;
mod policies;
mod properties;
mod sets;
mod storage;

use admission::{Judged, Operation, Refusal, Review, Shape, User, World, judge, wanted};
use api::config::ClusterConfig;
use serde_json::{Value, json};

use crate::{component, config, now, someone};

/// Writes of one kind, under one configuration and in one world.
#[derive(Clone)]
struct On {
    resource: &'static str,
    version: &'static str,
    config: ClusterConfig,
    world: World,
    user: User,
}

impl On {
    /// An empty cluster with the default gates.
    fn new(resource: &'static str) -> Self {
        let resources = api::resources::RESOURCES.iter();
        let version =
            resources.clone().find(|one| one.plural == resource).expect("a resource of ours").storage_version();
        On { resource, version, config: config(), world: World::of([]), user: someone() }
    }

    fn with_gate(mut self, gate: &str) -> Self {
        self.config.configuration.developer_configuration.get_or_insert_default().feature_gates.push(gate.to_owned());
        self
    }

    fn without_gate(mut self, gate: &str) -> Self {
        let developer = self.config.configuration.developer_configuration.get_or_insert_default();
        developer.disabled_feature_gates.push(gate.to_owned());
        self
    }

    fn in_world(mut self, objects: impl IntoIterator<Item = Value>) -> Self {
        self.world = World::of(objects);
        self
    }

    fn by(mut self, user: User) -> Self {
        self.user = user;
        self
    }

    fn in_version(mut self, version: &'static str) -> Self {
        self.version = version;
        self
    }

    fn request<'a>(&'a self, operation: Operation, old: Option<&'a Value>, object: &'a Value) -> Review<'a> {
        let (resource, version, user) = (self.resource, self.version, &self.user);
        Review { old, ..Review::of(operation, version, resource, user, object, now()) }
    }

    fn judge(&self, operation: Operation, old: Option<&Value>, object: &Value) -> Result<Judged, Refusal> {
        judge(&self.request(operation, old, object), Shape::Kubernetes, &self.config, &self.world)
    }

    fn created(&self, object: &Value) -> Judged {
        self.judge(Operation::Create, None, object).expect("it can be read")
    }

    fn create(&self, object: &Value) -> Vec<String> {
        told(self.judge(Operation::Create, None, object))
    }

    fn update(&self, old: &Value, object: &Value) -> Vec<String> {
        told(self.judge(Operation::Update, Some(old), object))
    }

    fn delete(&self, object: &Value) -> Vec<String> {
        told(self.judge(Operation::Delete, Some(object), object))
    }

    /// What the judgement of a creation wants to see, as `kind namespace/name`.
    fn wants(&self, object: &Value, world: &World) -> Vec<String> {
        let wanted = wanted(&self.request(Operation::Create, None, object), world);
        let spelled =
            wanted.iter().map(|one| format!("{} {}/{}", one.kind, one.namespace, one.name.as_deref().unwrap_or("*")));
        spelled.collect()
    }

    fn check<const N: usize>(&self, base: Make, rows: [Row<'_>; N]) {
        for (rule, broken, errors, fine) in rows {
            assert_eq!(self.create(&base(broken)).join("; "), errors, "{rule}");
            assert_eq!(self.create(&base(fine)), PASSES, "{rule}: the neighbour passes");
        }
    }
}

/// Makes a valid object with something merged over it.
type Make = fn(Value) -> Value;

/// A rule, what breaks it, what is said then, and the nearest thing that passes; both are merged over a valid object.
type Row<'a> = (&'a str, Value, &'a str, Value);

const PASSES: [&str; 0] = [];

/// Causes and fields of what is wrong, or the message of a request that makes no sense; nothing for what is valid.
fn told(judged: Result<Judged, Refusal>) -> Vec<String> {
    let causes = match judged {
        Ok(judged) => judged.causes,
        Err(Refusal::Invalid(causes)) => causes,
        Err(Refusal::BadRequest(message)) => return vec![format!("400 {message}")],
    };
    // What is wrong with the structure is told with the remark that rules were not looked at.
    let about_fields = causes.iter().filter(|cause| cause.field.as_str() != "<nil>");
    about_fields.map(|cause| format!("{} {}", cause.cause.as_str(), cause.field)).collect()
}

/// `base` with `over` merged over it.
fn merged(mut base: Value, over: &Value) -> Value {
    machinery::patch::merge(&mut base, over);
    base
}

/// An object of each kind that passes in an empty cluster with every gate open.
fn examples() -> Vec<(&'static str, Value)> {
    vec![
        ("kubevirts", kubevirt::kubevirt(json!({}))),
        ("migrationpolicies", policies::policy(json!({}))),
        ("plugins", policies::plugin(json!({}))),
        ("virtualmachinebackups", storage::backup(json!({}))),
        ("virtualmachinebackuptrackers", storage::tracker(json!({}))),
        ("virtualmachineclones", storage::clone(json!({}))),
        (
            "virtualmachineclusterinstancetypes",
            policies::instancetype(json!({ "kind": "VirtualMachineClusterInstancetype" })),
        ),
        (
            "virtualmachineclusterpreferences",
            policies::preference(json!({ "kind": "VirtualMachineClusterPreference" })),
        ),
        ("virtualmachineexports", storage::export(json!({}))),
        ("virtualmachineinstancemigrations", migration::migration(json!({}))),
        ("virtualmachineinstancepresets", sets::preset(json!({}))),
        ("virtualmachineinstancereplicasets", sets::replica_set(json!({}))),
        ("virtualmachineinstancetypes", policies::instancetype(json!({}))),
        ("virtualmachinepools", sets::pool(json!({}))),
        ("virtualmachinepreferences", policies::preference(json!({}))),
        ("virtualmachinerestores", storage::restore(json!({}))),
        ("virtualmachinesnapshotcontents", storage::content(json!({}))),
        ("virtualmachinesnapshots", storage::snapshot(json!({}))),
    ]
}

/// A world nobody has looked at, and open gates.
fn anywhere(resource: &'static str) -> On {
    let on = On::new(resource).with_gate("IncrementalBackup").with_gate("Plugins");
    On { world: World::default(), ..on }
}

#[test]
fn there_is_an_example_of_every_other_kind_and_it_is_valid() {
    assert_eq!(examples().len() + 2, api::resources::RESOURCES.len());
    for (resource, object) in examples() {
        assert_eq!(anywhere(resource).create(&object), PASSES, "{resource}");
    }
}

#[test]
fn kinds_nobody_acts_on_cannot_be_created_but_changed_and_deleted() {
    let honoured = [
        "kubevirts",
        "migrationpolicies",
        "virtualmachineclusterinstancetypes",
        "virtualmachineclusterpreferences",
        "virtualmachineinstancemigrations",
        "virtualmachineinstancepresets",
        "virtualmachineinstancetypes",
        "virtualmachinepreferences",
    ];
    for (resource, object) in examples() {
        let on = anywhere(resource);
        let unsupported = on.created(&object).unsupported;
        let fields: Vec<&str> = unsupported.iter().map(|error| error.field.as_str()).collect();
        let expected: &[&str] = if honoured.contains(&resource) { &[] } else { &["kind"] };
        assert_eq!(fields, expected, "{resource}");
        let labelled = merged(object.clone(), &json!({ "metadata": { "labels": { "app": "web" } } }));
        let labelled = if resource == "virtualmachineinstancemigrations" { object.clone() } else { labelled };
        let updated = on.judge(Operation::Update, Some(&object), &labelled).expect("it can be read");
        assert_eq!((updated.causes, updated.unsupported), (vec![], vec![]), "{resource}");
        assert_eq!(on.delete(&object), PASSES, "{resource}");
    }
}

#[test]
fn an_object_comes_back_as_it_was_sent() {
    for (resource, object) in examples() {
        let back = anywhere(resource).created(&object).object;
        let changed = ["virtualmachineinstancemigrations"].contains(&resource);
        assert_eq!(back == object, !changed, "{resource}: {back}");
    }
}

#[test]
fn an_object_comes_back_in_the_version_it_was_sent_in() {
    for version in ["kubevirt.io/v1", "kubevirt.io/v1alpha3"] {
        let preset = sets::preset(json!({ "apiVersion": version }));
        assert_eq!(On::new("virtualmachineinstancepresets").created(&preset).object["apiVersion"], version);
    }
}

#[test]
fn an_object_that_does_not_fit_its_schema_is_refused_with_the_place() {
    for (resource, object) in examples() {
        let odd = merged(object.clone(), &json!({ "spec": { "oddity": 1 } }));
        assert_eq!(anywhere(resource).create(&odd), ["FieldValueInvalid spec.oddity"], "{resource}");
        let odd = merged(object, &json!({ "spec": null }));
        let odd = merged(odd, &json!({ "spec": "odd" }));
        assert_eq!(anywhere(resource).create(&odd), ["FieldValueTypeInvalid spec"], "{resource}");
    }
}

#[test]
fn a_status_is_held_against_its_schema_and_nothing_else() {
    let on = On::new("virtualmachineinstancemigrations");
    let write = |user: &User, object: &Value| {
        let request = Review { subresource: "status", user, ..on.request(Operation::Update, Some(object), object) };
        told(judge(&request, Shape::Kubernetes, &on.config, &on.world))
    };
    let running = migration::migration(json!({ "spec": { "vmiName": null }, "status": { "phase": "Running" } }));
    assert_eq!(write(&someone(), &running), PASSES, "rules about the spec do not matter");
    let odd = migration::migration(json!({ "spec": { "vmiName": 5 }, "status": { "phase": 5, "oddity": 1 } }));
    let errors = ["FieldValueTypeInvalid status.phase", "FieldValueInvalid status.oddity"];
    assert_eq!(write(&someone(), &odd), errors, "only the status is looked at");
    assert_eq!(write(&component("kubevirt-controller"), &odd), errors[..1], "components may be older than a field");
}

#[test]
fn a_rule_that_came_later_does_not_keep_anybody_from_changing_a_label() {
    let old = policies::policy(json!({ "spec": { "completionTimeoutPerGiB": -1 } }));
    let labelled = merged(old.clone(), &json!({ "metadata": { "labels": { "app": "web" } } }));
    let on = On::new("migrationpolicies");
    assert_eq!(on.update(&old, &labelled), PASSES);
    let changed = merged(old.clone(), &json!({ "spec": { "allowPostCopy": true } }));
    assert_eq!(on.update(&old, &changed), ["FieldValueInvalid spec.completionTimeoutPerGiB"]);
}

#[test]
fn a_resource_of_somebody_else_is_none_of_ours() {
    let on = On { resource: "widgets", ..On::new("kubevirts") };
    assert_eq!(on.create(&json!({})), ["400 widgets is not a resource of this API"]);
}

#[test]
fn only_writes_that_depend_on_other_objects_ask_for_some() {
    for (resource, object) in examples() {
        let asks = !anywhere(resource).wants(&object, &World::default()).is_empty();
        let guarded =
            ["kubevirts", "virtualmachinebackups", "virtualmachineinstancemigrations", "virtualmachinerestores"];
        assert_eq!(asks, guarded.contains(&resource), "{resource}");
    }
}
