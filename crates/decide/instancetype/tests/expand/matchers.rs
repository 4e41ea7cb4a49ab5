//! Which instance type and preference a virtual machine means.

use std::collections::BTreeMap;

use api::instancetype::{VirtualMachineInstancetypeSpec, VirtualMachinePreferenceSpec};
use api::v1::VirtualMachine;
use instancetype::{
    Objects, Scope, Subject, decode_instancetype, decode_preference, find_instancetype, find_preference,
};
use k8s_openapi::api::apps::v1::ControllerRevision;
use serde_json::{Value, json};

/// Objects by kind, namespace and name.
#[derive(Default)]
struct Cluster(BTreeMap<(String, String, String), Value>);

impl Cluster {
    fn of(objects: Vec<Value>) -> Self {
        let text = |object: &Value, at: &str| object.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
        let key = |object: &Value| {
            (text(object, "/kind"), text(object, "/metadata/namespace"), text(object, "/metadata/name"))
        };
        Cluster(objects.into_iter().map(|object| (key(&object), object)).collect())
    }

    fn get(&self, kind: &str, scope: Scope<'_>, name: &str) -> Option<&Value> {
        let (kind, namespace) = match scope {
            Scope::Cluster => (format!("VirtualMachineCluster{kind}"), ""),
            Scope::Namespace(namespace) => (format!("VirtualMachine{kind}"), namespace),
        };
        self.0.get(&(kind, namespace.to_owned(), name.to_owned()))
    }
}

impl Objects for Cluster {
    fn revision(&self, namespace: &str, name: &str) -> Option<ControllerRevision> {
        let revision = self.0.get(&("ControllerRevision".to_owned(), namespace.to_owned(), name.to_owned()))?;
        Some(serde_json::from_value(revision.clone()).expect("a revision"))
    }

    fn instancetype(&self, scope: Scope<'_>, name: &str) -> Option<VirtualMachineInstancetypeSpec> {
        Some(decode_instancetype(self.get("Instancetype", scope, name)?).expect("an instance type"))
    }

    fn preference(&self, scope: Scope<'_>, name: &str) -> Option<VirtualMachinePreferenceSpec> {
        Some(decode_preference(self.get("Preference", scope, name)?).expect("a preference"))
    }
}

/// An instance type that can be told by its number of CPUs.
fn instancetype(kind: &str, namespace: &str, name: &str, cpus: u32) -> Value {
    json!({
        "apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": kind,
        "metadata": { "namespace": namespace, "name": name },
        "spec": { "cpu": { "guest": cpus }, "memory": { "guest": "1Gi" } },
    })
}

fn revision(name: &str, of: &str, data: Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": 0, "data": data,
        "metadata": { "namespace": "ns", "name": name, "labels": { "instancetype.kubevirt.io/object-name": of } },
    })
}

fn vm(matcher: Value, recorded: Option<&str>) -> VirtualMachine {
    let object = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": { "namespace": "ns", "name": "vm" },
        "spec": { "instancetype": matcher, "template": { "spec": { "domain": { "devices": {} } } } },
        "status": { "instancetypeRef": recorded.map(|name| json!({ "controllerRevisionRef": { "name": name } })) },
    });
    serde_json::from_value(object).expect("a virtual machine")
}

/// How many CPUs the instance type has that is found, or why none is.
fn found(objects: &Cluster, matcher: Value, recorded: Option<&str>) -> Result<u32, String> {
    let found = find_instancetype(&vm(matcher, recorded), objects).map_err(|error| error.to_string())?;
    Ok(found.expect("the machine names one").cpu.guest)
}

#[test]
fn kinds_are_written_in_many_ways() {
    let objects = Cluster::of(vec![
        instancetype("VirtualMachineClusterInstancetype", "", "a", 1),
        instancetype("VirtualMachineInstancetype", "ns", "a", 2),
        instancetype("VirtualMachineInstancetype", "elsewhere", "b", 3),
    ]);
    let cases = [
        (json!(null), 1),
        (json!(""), 1),
        (json!("VirtualMachineClusterInstancetype"), 1),
        (json!("virtualmachineclusterinstancetype"), 1),
        (json!("virtualmachineclusterinstancetypes"), 1),
        (json!("VirtualMachineInstancetype"), 2),
        (json!("virtualmachineinstancetype"), 2),
        (json!("VirtualMachineInstancetypes"), 2),
    ];
    for (kind, expected) in cases {
        assert_eq!(found(&objects, json!({ "name": "a", "kind": kind }), None), Ok(expected), "{kind}");
    }
    let unknown = found(&objects, json!({ "name": "a", "kind": "VirtualMachinePreference" }), None);
    assert_eq!(unknown, Err(r#"there is no kind "VirtualMachinePreference" of instance type"#.to_owned()));
    let other = found(&objects, json!({ "name": "b", "kind": "virtualmachineinstancetype" }), None);
    assert_eq!(other, Err(r#"the instance type "b" does not exist"#.to_owned()));
}

#[test]
fn kinds_of_preferences_are_their_own() {
    let cases = [
        ("", Some(Scope::Cluster)),
        ("VirtualMachineClusterPreference", Some(Scope::Cluster)),
        ("virtualmachineclusterpreferences", Some(Scope::Cluster)),
        ("VirtualMachinePreference", Some(Scope::Namespace("ns"))),
        ("virtualmachinepreferences", Some(Scope::Namespace("ns"))),
        ("virtualmachineinstancetype", None),
        ("preference", None),
        ("s", None),
    ];
    for (kind, expected) in cases {
        assert_eq!(Subject::Preference.scope(kind, "ns"), expected, "{kind}");
    }
}

#[test]
fn a_revision_comes_before_the_live_object() {
    let held = |cpus: u32| instancetype("VirtualMachineInstancetype", "ns", "a", cpus);
    let objects = Cluster::of(vec![
        instancetype("VirtualMachineClusterInstancetype", "", "a", 1),
        instancetype("VirtualMachineClusterInstancetype", "", "new", 2),
        revision("named", "a", held(3)),
        revision("recorded", "a", held(4)),
    ]);
    let named = json!({ "name": "a", "revisionName": "named" });
    assert_eq!(found(&objects, json!({ "name": "a" }), None), Ok(1));
    assert_eq!(found(&objects, json!({ "name": "a" }), Some("")), Ok(1));
    assert_eq!(found(&objects, json!({ "name": "a" }), Some("recorded")), Ok(4));
    assert_eq!(found(&objects, named.clone(), None), Ok(3));
    assert_eq!(found(&objects, named, Some("recorded")), Ok(3));
    // What was recorded for another instance type counts no more.
    assert_eq!(found(&objects, json!({ "name": "new" }), Some("recorded")), Ok(2));
    let gone = Err(r#"the revision "gone" of the instance type "a" does not exist"#.to_owned());
    assert_eq!(found(&objects, json!({ "name": "a", "revisionName": "gone" }), None), gone);
    assert_eq!(found(&objects, json!({ "name": "a" }), Some("gone")), gone);
}

#[test]
fn older_versions_are_read_and_other_things_are_not() {
    let of_version = |version: &str| {
        let mut object = instancetype("VirtualMachineInstancetype", "ns", "a", 4);
        object["apiVersion"] = version.into();
        // A quantity may be a number where it is stored.
        object["spec"]["memory"]["guest"] = json!(1_073_741_824);
        let objects = Cluster::of(vec![revision("r", "a", object)]);
        found(&objects, json!({ "name": "a", "revisionName": "r" }), None)
    };
    for version in ["v1alpha1", "v1alpha2", "v1beta1"] {
        assert_eq!(of_version(&format!("instancetype.kubevirt.io/{version}")), Ok(4), "{version}");
    }
    let refused =
        r#"the revision "r" does not hold an instance type: it holds "VirtualMachineInstancetype" of "apps/v1""#;
    assert_eq!(of_version("apps/v1"), Err(refused.to_owned()));

    let preference =
        json!({ "apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": "VirtualMachinePreference", "spec": {} });
    let encoded = json!({ "apiVersion": "instancetype.kubevirt.io/v1alpha1", "spec": "eyJjcHUiOnt9fQ==" });
    let unreadable = json!({
        "apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": "VirtualMachineInstancetype", "spec": { "cpu": 4 },
    });
    for data in [preference, encoded, unreadable, json!(null)] {
        let objects = Cluster::of(vec![revision("r", "a", data.clone())]);
        let error = found(&objects, json!({ "name": "a", "revisionName": "r" }), None).expect_err("refused");
        assert!(error.starts_with(r#"the revision "r" does not hold an instance type: "#), "{data}: {error}");
    }
}

#[test]
fn preferences_are_found_the_same_way() {
    let preference = |kind: &str, namespace: &str, subdomain: &str| {
        json!({
            "apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": kind,
            "metadata": { "namespace": namespace, "name": "p" }, "spec": { "preferredSubdomain": subdomain },
        })
    };
    let objects = Cluster::of(vec![
        preference("VirtualMachineClusterPreference", "", "cluster"),
        preference("VirtualMachinePreference", "ns", "namespace"),
        revision("recorded", "p", preference("VirtualMachineClusterPreference", "", "recorded")),
    ]);
    let found = |matcher: Value, recorded: Option<&str>| {
        let mut vm = vm(json!(null), None);
        vm.spec.preference = serde_json::from_value(matcher).expect("a matcher");
        let status = json!({ "preferenceRef": { "controllerRevisionRef": { "name": recorded } } });
        vm.status = serde_json::from_value(status).expect("a status");
        find_preference(&vm, &objects).expect("it is there").map(|found| found.preferred_subdomain.unwrap_or_default())
    };
    assert_eq!(found(json!(null), None), None);
    assert_eq!(found(json!({ "name": "p" }), None).as_deref(), Some("cluster"));
    assert_eq!(found(json!({ "name": "p", "kind": "VirtualMachinePreference" }), None).as_deref(), Some("namespace"));
    assert_eq!(found(json!({ "name": "p" }), Some("recorded")).as_deref(), Some("recorded"));
}
