//! The roles in `docs/ops/controller.md`, from what virt-controller declares.

use api::config::DEFAULT_INSTALL_NAMESPACE;
use k8s_openapi::api::rbac::v1::PolicyRule;

use super::{up_to_date, workspace};

const BEGIN: &str = "<!-- begin rights -->\n";
const END: &str = "<!-- end rights -->\n";

#[test]
fn the_roles_of_the_controller_are_up_to_date() {
    let path = workspace().join("docs/ops/controller.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("the document marks where the roles begin");
    let (_, after) = rest.split_once(END).expect("the document marks where the roles end");
    up_to_date(&path, &format!("{before}{BEGIN}\n```yaml\n{}```\n\n{END}{after}", roles()));
}

/// Both roles as one file of YAML.
fn roles() -> String {
    let program = virt_controller::program(virt_controller::ALL);
    let head = |kind: &str, namespace: &str| {
        let name = program.name;
        format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\nmetadata:\n  name: {name}\n{namespace}rules:\n"
        )
    };
    let cluster = program.cluster_role().rules.unwrap_or_default();
    let (own, _) = program.role(DEFAULT_INSTALL_NAMESPACE).expect("the lease is in the installation's namespace");
    let namespace = format!("  namespace: {DEFAULT_INSTALL_NAMESPACE}\n");
    let own = own.rules.unwrap_or_default();
    format!("{}{}---\n{}{}", head("ClusterRole", ""), list(&cluster), head("Role", &namespace), list(&own))
}

fn list(rules: &[PolicyRule]) -> String {
    let words = |words: &[String]| {
        words.iter().map(|word| if word.is_empty() { "\"\"" } else { word }).collect::<Vec<_>>().join(", ")
    };
    let rule = |rule: &PolicyRule| {
        let (groups, resources) = (rule.api_groups.as_deref(), rule.resources.as_deref());
        let (groups, resources) = (words(groups.unwrap_or_default()), words(resources.unwrap_or_default()));
        format!("- apiGroups: [{groups}]\n  resources: [{resources}]\n  verbs: [{}]\n", words(&rule.verbs))
    };
    rules.iter().map(rule).collect()
}
