//! Roles for users, as upstream's importer installs them: parts of Kubernetes' own roles, and one for everybody.

use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinery::rights::rule;

const READ: &str = "get list watch";
const GROUP: &str = api::cdi::GROUP;
const RBAC: &str = "rbac.authorization.k8s.io";
const READER: &str = "cdi.kubevirt.io:config-reader";

/// The roles.
pub fn roles() -> Vec<ClusterRole> {
    let part = |of: &str, rules: Vec<PolicyRule>| {
        let label = (format!("{RBAC}/aggregate-to-{of}"), "true".to_owned());
        role(&format!("cdi.kubevirt.io:{of}"), Some(BTreeMap::from([label])), rules)
    };
    let clone = || rule("create", GROUP, "datavolumes/source");
    let write = || {
        vec![
            rule("*", GROUP, "datavolumes datasources"),
            clone(),
            rule("*", api::cdi::UPLOAD_GROUP, "uploadtokenrequests"),
        ]
    };
    vec![
        part("admin", write()),
        part("edit", write()),
        part("view", vec![rule(READ, GROUP, "cdiconfigs datasources datavolumes storageprofiles"), clone()]),
        role(READER, None, vec![rule(READ, GROUP, "cdiconfigs storageprofiles")]),
    ]
}

/// Their bindings. The others become parts of Kubernetes' roles.
pub fn bindings() -> Vec<ClusterRoleBinding> {
    let everybody = Subject {
        api_group: Some(RBAC.to_owned()),
        kind: "Group".to_owned(),
        name: "system:authenticated".to_owned(),
        namespace: None,
    };
    vec![ClusterRoleBinding {
        metadata: ObjectMeta { name: Some(READER.to_owned()), ..ObjectMeta::default() },
        role_ref: RoleRef { api_group: RBAC.to_owned(), kind: "ClusterRole".to_owned(), name: READER.to_owned() },
        subjects: Some(vec![everybody]),
    }]
}

fn role(name: &str, labels: Option<BTreeMap<String, String>>, rules: Vec<PolicyRule>) -> ClusterRole {
    let metadata = ObjectMeta { name: Some(name.to_owned()), labels, ..ObjectMeta::default() };
    ClusterRole { metadata, rules: Some(rules), aggregation_rule: None }
}
