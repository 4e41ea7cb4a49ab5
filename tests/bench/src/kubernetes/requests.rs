//! What was asked of the API server, by component.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use control_plane::audit::{Audit, Calls, writes};
use install::names::account;

/// Requests by component.
pub(crate) type Asked = BTreeMap<String, Calls>;

/// Who asked for what, once it is answered.
const POLICY: &str = r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
  "rules": [{"level": "Metadata"}]}"#;

/// The programs that are ours, whose requests are listed one by one.
const OURS: [&str; 4] = [account::OPERATOR, account::API, account::CONTROLLER, account::HANDLER];

/// The API server's audit log in a folder.
pub(crate) struct AuditLog {
    folder: PathBuf,
    audit: Audit,
}

impl AuditLog {
    pub(crate) fn in_folder(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), audit: Audit::new(folder.join("audit.log")) }
    }

    /// What has the API server write it.
    pub(crate) fn flags(&self) -> Result<Vec<String>> {
        let policy = self.folder.join("audit-policy.json");
        fs::write(&policy, POLICY).with_context(|| format!("cannot write {}", policy.display()))?;
        let log = self.folder.join("audit.log");
        Ok(vec![format!("--audit-policy-file={}", policy.display()), format!("--audit-log-path={}", log.display())])
    }

    /// What was asked since the last time.
    pub(crate) fn read(&mut self) -> Result<Asked> {
        let mut asked = Asked::new();
        for (user, calls) in self.audit.read()? {
            let of_component = asked.entry(component(&user)).or_default();
            for (call, count) in calls.into_iter().filter(|((verb, resource), _)| !of_time(verb, resource)) {
                *of_component.entry(call).or_default() += count;
            }
        }
        Ok(asked)
    }
}

/// Whether time alone decides how often it is asked: watches, which end after some minutes, and what probes ask for.
fn of_time(verb: &str, resource: &str) -> bool {
    verb == "watch" || resource.starts_with("/version")
}

/// The component behind a user name.
fn component(user: &str) -> String {
    let parts: Vec<&str> = user.split(':').collect();
    match parts[..] {
        ["system", "serviceaccount", "kube-system", _] => "kube-controller-manager".to_owned(),
        ["system", "serviceaccount", _, account] => account.to_owned(),
        ["system", "node", _] => "kubelets".to_owned(),
        ["system", component] => component.to_owned(),
        _ => user.to_owned(),
    }
}

/// Prints what each component asked per VM, and of ours what it was.
pub(crate) fn print(asked: &Asked, vms: usize) {
    let per_vm = |count: usize| count as f64 / vms as f64;
    let sum = |calls: &Calls, counts: fn(&str, &str) -> bool| -> usize {
        calls.iter().filter(|((verb, resource), _)| counts(verb, resource)).map(|(_, count)| count).sum()
    };
    println!("\n{:<44}{:>9}{:>9}", "requests per VM", "all", "writes");
    let mut ours = (0, 0);
    for (component, calls) in asked {
        let (all, written) = (sum(calls, |_, _| true), sum(calls, stores));
        println!("  {component:<42}{:>9.2}{:>9.2}", per_vm(all), per_vm(written));
        if !OURS.contains(&component.as_str()) {
            continue;
        }
        ours = (ours.0 + all, ours.1 + written);
        for ((verb, resource), count) in calls {
            println!("    {:<40}{:>9.2}", format!("{verb} {resource}"), per_vm(*count));
        }
    }
    println!("{:<44}{:>9.2}{:>9.2}", "ours together", per_vm(ours.0), per_vm(ours.1));
}

/// Whether a request stores something: reviews are answered and forgotten.
fn stores(verb: &str, resource: &str) -> bool {
    writes(verb) && !resource.ends_with("reviews")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_told_apart_by_component() {
        for (user, expected) in [
            ("system:serviceaccount:kubevirt:kubevirt-controller", account::CONTROLLER),
            ("system:serviceaccount:kube-system:replicaset-controller", "kube-controller-manager"),
            ("system:kube-controller-manager", "kube-controller-manager"),
            ("system:node:n1", "kubelets"),
            ("system:apiserver", "apiserver"),
            ("admin", "admin"),
        ] {
            assert_eq!(component(user), expected);
        }
    }

    #[test]
    fn what_time_alone_decides_is_not_counted() {
        assert!(of_time("watch", "pods") && of_time("get", "/version"));
        assert!(!of_time("list", "pods") && !of_time("get", "/apis"));
    }

    #[test]
    fn reviews_are_no_writes() {
        assert!(stores("create", "pods") && stores("patch", "virtualmachines/status"));
        assert!(!stores("create", "subjectaccessreviews") && !stores("list", "pods"));
    }

    #[test]
    fn requests_of_all_nodes_are_counted_together() {
        let folder = tempfile::tempdir().unwrap();
        let event = |user: &str| {
            format!(r#"{{"user":{{"username":"{user}"}},"verb":"get","objectRef":{{"resource":"pods"}}}}"#)
        };
        let lines = format!("{}\n{}\n", event("system:node:n1"), event("system:node:n2"));
        fs::write(folder.path().join("audit.log"), lines).unwrap();
        let asked = AuditLog::in_folder(folder.path()).read().unwrap();
        assert_eq!(asked["kubelets"], Calls::from([(("get".to_owned(), "pods".to_owned()), 2)]));
    }
}
