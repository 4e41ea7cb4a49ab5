//! What the controllers asked of kube-apiserver, going by its audit log, compared with what their role allows.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use api::config::DEFAULT_INSTALL_NAMESPACE;
use api::rights::{Grant, Program, Scope};
use serde_json::Value;

/// Rights that no scenario can show in use, each with the reason.
const UNEXERCISED: &[(&str, &str)] = &[(
    "create datavolumes/source.cdi.kubevirt.io",
    "the importer asks whether we may copy a volume; here are its kinds, and not the importer itself",
)];

/// Fails if the program was denied something, or asked for more than it declares. If `all` scenarios ran, a right that
/// nothing used is an error as well.
pub(crate) fn check(log: &Path, program: &Program, all: bool) -> Result<()> {
    let user = program.user(DEFAULT_INSTALL_NAMESPACE);
    let events = events_of(log, &user)?;
    ensure!(!events.is_empty(), "{user} asked for nothing: the controllers run under another identity");
    let denied: BTreeSet<String> = events.iter().filter_map(denial).collect();
    ensure!(denied.is_empty(), "the role of {} lacks rights:\n{}", program.name, lines(&denied));

    let granted = program.grants();
    let used: BTreeSet<Grant> = events.iter().flat_map(|event| needs(event, &granted)).collect();
    let beyond: BTreeSet<String> = used.difference(&granted).map(Grant::to_string).collect();
    ensure!(beyond.is_empty(), "allowed by some other role, but not declared:\n{}", lines(&beyond));
    if !all {
        return Ok(());
    }
    let unused: BTreeSet<String> = granted.difference(&used).map(Grant::to_string).collect();
    let explained: BTreeSet<String> = UNEXERCISED.iter().map(|(grant, _)| (*grant).to_owned()).collect();
    let idle: BTreeSet<String> = unused.difference(&explained).cloned().collect();
    ensure!(idle.is_empty(), "rights that nothing uses; drop them or add a scenario:\n{}", lines(&idle));
    let stale: BTreeSet<String> = explained.difference(&unused).cloned().collect();
    ensure!(stale.is_empty(), "these are in use, or not declared; UNEXERCISED must not list them:\n{}", lines(&stale));
    Ok(())
}

fn lines(all: &BTreeSet<String>) -> String {
    all.iter().map(|one| format!("  {one}\n")).collect()
}

/// Each request of a user, once for every stage that is logged.
fn events_of(log: &Path, user: &str) -> Result<Vec<Value>> {
    let text = fs::read_to_string(log).with_context(|| format!("cannot read {}", log.display()))?;
    let mut events = vec![];
    for line in text.lines().filter(|line| line.contains(user)) {
        let event: Value = serde_json::from_str(line).context("a line of the audit log is not JSON")?;
        if event["user"]["username"] == user {
            events.push(event);
        }
    }
    Ok(events)
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// What was refused for want of a right. A quota's refusal has the same code, and is none.
fn denial(event: &Value) -> Option<String> {
    let forbidden = text(event, "/annotations/authorization.k8s.io~1decision") == "forbid";
    let message = text(event, "/responseStatus/message");
    // The plugin that guards ownerReferences denies what the authorizer has allowed.
    let unowned = event["responseStatus"]["code"] == 403
        && (message.contains("blockOwnerDeletion") || message.contains("ownerReference"));
    (forbidden || unowned).then(|| format!("{} {}: {message}", text(event, "/verb"), text(event, "/requestURI")))
}

/// The grants that a request made use of, those included that the server asks for while it admits a write.
fn needs(event: &Value, granted: &BTreeSet<Grant>) -> Vec<Grant> {
    let Some(object) = event.get("objectRef") else { return vec![] };
    let (group, verb) = (text(object, "/apiGroup"), text(event, "/verb"));
    let resource = match text(object, "/subresource") {
        "" => text(object, "/resource").to_owned(),
        subresource => format!("{}/{subresource}", text(object, "/resource")),
    };
    let grant = |group: &str, resource: &str, verb: &str| {
        let of = |scope| Grant { scope, group: group.into(), resource: resource.into(), verb: verb.into() };
        let own = of(Scope::Installation);
        let in_installation = text(object, "/namespace") == DEFAULT_INSTALL_NAMESPACE && granted.contains(&own);
        if in_installation { own } else { of(Scope::Cluster) }
    };
    let mut all = vec![grant(group, &resource, verb)];
    for owner in blocked_owners(&event["requestObject"]) {
        let (group, kind) = (owner.0.split_once('/').map_or("", |(group, _)| group), owner.1);
        all.push(grant(group, &format!("{}s/finalizers", kind.to_lowercase()), "update"));
    }
    // Whoever changes owners decides about the object's end.
    if verb == "patch" && event["requestObject"].to_string().contains("ownerReferences") {
        all.push(grant(group, &resource, "delete"));
    }
    all
}

/// `apiVersion` and kind of the owners that a new object keeps from going.
fn blocked_owners(object: &Value) -> impl Iterator<Item = (&str, &str)> {
    let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array).into_iter().flatten();
    let blocking = owners.filter(|owner| owner["blockOwnerDeletion"] == true);
    blocking.map(|owner| (text(owner, "/apiVersion"), text(owner, "/kind")))
}
