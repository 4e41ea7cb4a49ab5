//! What a preference demands.

use instancetype::check_requirements;
use machinery::field::FieldPath;
use serde_json::{Value, json};

use crate::{instancetype, preference, vmi};

fn check(preferred: Value, sized: Option<Value>, spec: Value) -> Option<String> {
    let instancetype = sized.map(instancetype);
    let field = FieldPath::new("spec");
    let error = check_requirements(&field, instancetype.as_ref(), &preference(preferred), &vmi(&spec))?;
    Some(format!("{} {}", error.cause.as_str(), error.field))
}

#[test]
fn an_instance_type_must_have_the_cpus() {
    let required = |guest: u32| json!({ "requirements": { "cpu": { "guest": guest } } });
    let sized = json!({ "cpu": { "guest": 4 } });
    assert_eq!(check(required(4), Some(sized.clone()), json!({})), None);
    let refused = check(required(5), Some(sized), json!({}));
    assert_eq!(refused.as_deref(), Some("FieldValueNotFound spec.instancetype"));
}

#[test]
fn without_an_instance_type_the_preferred_dimension_counts() {
    let cpu = "spec.template.spec.domain.cpu";
    let topology = |name: &str| json!({ "preferredCPUTopology": name });
    let spread = |across: &str| json!({ "preferredCPUTopology": "spread", "spreadOptions": { "across": across } });
    // The preference's CPU part, CPUs that just suffice for 8, CPUs that do not, and the fields named.
    let cases = [
        (json!({}), [8, 1, 1], [7, 4, 4], vec!["sockets"]),
        (topology("sockets"), [8, 1, 1], [7, 4, 4], vec!["sockets"]),
        (topology("preferSockets"), [8, 1, 1], [7, 4, 4], vec!["sockets"]),
        (topology("cores"), [1, 8, 1], [4, 7, 4], vec!["cores"]),
        (topology("threads"), [1, 1, 8], [4, 4, 7], vec!["threads"]),
        (topology("any"), [2, 2, 2], [7, 1, 1], vec!["cores", "sockets", "threads"]),
        (topology("spread"), [2, 4, 1], [2, 3, 8], vec!["sockets", "cores"]),
        (spread("SocketsCores"), [4, 2, 1], [7, 1, 2], vec!["sockets", "cores"]),
        (spread("CoresThreads"), [1, 4, 2], [8, 3, 2], vec!["cores", "threads"]),
        (spread("SocketsCoresThreads"), [2, 2, 2], [7, 1, 1], vec!["sockets", "cores", "threads"]),
    ];
    for (part, enough, too_few, named) in cases {
        let preferred = json!({ "cpu": part, "requirements": { "cpu": { "guest": 8 } } });
        let of = |[sockets, cores, threads]: [u32; 3]| {
            let cpu = json!({ "sockets": sockets, "cores": cores, "threads": threads });
            check(preferred.clone(), None, json!({ "domain": { "cpu": cpu } }))
        };
        assert_eq!(of(enough), None, "{part}");
        let fields: Vec<String> = named.iter().map(|name| format!("{cpu}.{name}")).collect();
        assert_eq!(of(too_few), Some(format!("FieldValueNotFound {}", fields.join(", "))), "{part}");
    }
    let none = check(json!({ "requirements": { "cpu": { "guest": 1 } } }), None, json!({}));
    assert_eq!(none, Some(format!("FieldValueNotFound {cpu}")));
}

#[test]
fn the_guest_must_have_the_memory() {
    let required = |guest: &str| json!({ "requirements": { "memory": { "guest": guest } } });
    let with = |guest: &str| json!({ "domain": { "memory": { "guest": guest } } });
    assert_eq!(check(required("1Gi"), None, with("1024Mi")), None);
    let refused = Some("FieldValueNotFound spec.template.spec.domain.memory".to_owned());
    assert_eq!(check(required("1Gi"), None, with("1023Mi")), refused);
    assert_eq!(check(required("1Gi"), None, json!({})), refused);
    let sized = Some(json!({ "memory": { "guest": "2Gi" } }));
    assert_eq!(check(required("2Gi"), sized.clone(), json!({})), None);
    assert_eq!(check(required("2Gi"), sized.clone(), with("2Gi")), None);
    let refused = Some("FieldValueNotFound spec.instancetype".to_owned());
    assert_eq!(check(required("3Gi"), sized, json!({})), refused);
}

#[test]
fn the_architecture_must_be_the_required_one() {
    let required = json!({ "requirements": { "architecture": "arm64" } });
    assert_eq!(check(required.clone(), None, json!({ "architecture": "arm64" })), None);
    let refused = check(required, None, json!({ "architecture": "amd64" }));
    assert_eq!(refused.as_deref(), Some("FieldValueNotFound spec.template.spec.architecture"));
}

#[test]
fn amounts_are_told() {
    let preferred = preference(json!({ "requirements": { "cpu": { "guest": 3 } } }));
    let field = FieldPath::new("spec");
    let error = check_requirements(&field, Some(&instancetype(json!({}))), &preferred, &vmi(&json!({})));
    let message = error.expect("two are not three").message;
    assert_eq!(message, "the instance type provides 2 vCPUs, and the preference requires 3");
}

#[test]
fn a_preference_without_requirements_takes_anything() {
    assert_eq!(check(json!({}), None, json!({})), None);
    assert_eq!(check(json!({ "requirements": {} }), None, json!({})), None);
}
