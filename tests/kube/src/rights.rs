//! What a program asked of kube-apiserver, going by its audit log, compared with the rights that it declares.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use machinery::rights::{Grant, Program, Scope};
use serde_json::Value;

/// Rights as [`Grant`] spells them, each with a reason.
pub type Explained = &'static [(&'static str, &'static str)];

/// An account and what may be in the audit log of it.
#[derive(Clone, Debug)]
pub struct Account {
    /// The name of its program.
    pub name: &'static str,
    /// Its name at the API server.
    pub user: String,
    /// The namespace of the installation.
    pub installation: &'static str,
    /// What its program declares.
    pub declared: BTreeSet<Grant>,
    /// What it may do besides, by roles that are not its program's own.
    pub elsewhere: Explained,
    /// Declared rights that no scenario can show in use.
    pub unexercised: Explained,
    /// Declared rights that scenarios need not show in use, whether or not they do.
    pub by_chance: Explained,
}

impl Account {
    /// Of a program that has to use all of its rights, and nothing else.
    pub fn of(program: &Program, installation: &'static str) -> Self {
        Self {
            name: program.name,
            user: program.user(installation),
            installation,
            declared: program.grants(),
            elsewhere: &[],
            unexercised: &[],
            by_chance: &[],
        }
    }

    /// Fails if the program was denied something, or asked for more than it declares. If `all` scenarios ran, a right
    /// that nothing used is an error as well.
    pub fn check(&self, log: &Path, all: bool) -> Result<()> {
        let (mut asked, mut denied, mut used) = (0, BTreeSet::new(), BTreeSet::new());
        for_each_event(log, &self.user, |event| {
            asked += 1;
            denied.extend(denial(event));
            used.extend(self.needs(event));
        })?;
        ensure!(asked > 0, "{} asked for nothing: the program runs under another identity", self.user);
        ensure!(denied.is_empty(), "the role of {} lacks rights:\n{}", self.name, lines(&denied));

        let beyond: BTreeSet<String> = used.difference(&self.declared).map(Grant::to_string).collect();
        let beyond: BTreeSet<String> = beyond.difference(&names(self.elsewhere)).cloned().collect();
        ensure!(beyond.is_empty(), "{}: allowed by another role, but not declared:\n{}", self.name, lines(&beyond));
        if all { self.check_use(&used) } else { Ok(()) }
    }

    fn check_use(&self, used: &BTreeSet<Grant>) -> Result<()> {
        let declared: BTreeSet<String> = self.declared.iter().map(Grant::to_string).collect();
        let unused: BTreeSet<String> = self.declared.difference(used).map(Grant::to_string).collect();
        let (unexercised, by_chance) = (names(self.unexercised), names(self.by_chance));
        let explained: BTreeSet<String> = unexercised.union(&by_chance).cloned().collect();
        let idle: BTreeSet<String> = unused.difference(&explained).cloned().collect();
        let name = self.name;
        ensure!(idle.is_empty(), "{name}: nothing uses these rights; drop them or add a scenario:\n{}", lines(&idle));
        let unknown: BTreeSet<String> = explained.difference(&declared).cloned().collect();
        ensure!(unknown.is_empty(), "{name}: not declared, so not to be explained:\n{}", lines(&unknown));
        let stale: BTreeSet<String> = unexercised.difference(&unused).cloned().collect();
        ensure!(stale.is_empty(), "{name}: `unexercised` lists rights that are in use:\n{}", lines(&stale));
        Ok(())
    }

    /// The grants that a request made use of, those included that the server asks for while it admits a write.
    fn needs(&self, event: &Value) -> Vec<Grant> {
        let Some(object) = event.get("objectRef") else { return vec![] };
        let (group, verb) = (text(object, "/apiGroup"), text(event, "/verb"));
        let resource = match text(object, "/subresource") {
            "" => text(object, "/resource").to_owned(),
            subresource => format!("{}/{subresource}", text(object, "/resource")),
        };
        let grant = |group: &str, resource: &str, verb: &str| {
            let of = |scope| Grant { scope, group: group.into(), resource: resource.into(), verb: verb.into() };
            let own = of(Scope::Installation);
            let in_installation = text(object, "/namespace") == self.installation && self.declared.contains(&own);
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
        // An apply makes what is not there.
        if verb == "patch" && event["responseStatus"]["code"] == 201 {
            all.push(grant(group, &resource, "create"));
        }
        all
    }
}

fn names(explained: Explained) -> BTreeSet<String> {
    explained.iter().map(|(grant, _)| (*grant).to_owned()).collect()
}

fn lines(all: &BTreeSet<String>) -> String {
    all.iter().map(|one| format!("  {one}\n")).collect()
}

/// Shows each request of a user, once for every stage that is logged. With what was written they take too much memory to
/// be kept.
fn for_each_event(log: &Path, user: &str, mut show: impl FnMut(&Value)) -> Result<()> {
    let doing = || format!("cannot read {}", log.display());
    for line in BufReader::new(File::open(log).with_context(doing)?).lines() {
        let line = line.with_context(doing)?;
        if !line.contains(user) {
            continue;
        }
        let event: Value = serde_json::from_str(&line).context("a line of the audit log is not JSON")?;
        if event["user"]["username"] == user {
            show(&event);
        }
    }
    Ok(())
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

/// `apiVersion` and kind of the owners that a new object keeps from going.
fn blocked_owners(object: &Value) -> impl Iterator<Item = (&str, &str)> {
    let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array).into_iter().flatten();
    let blocking = owners.filter(|owner| owner["blockOwnerDeletion"] == true);
    blocking.map(|owner| (text(owner, "/apiVersion"), text(owner, "/kind")))
}

#[cfg(test)]
mod tests {
    use machinery::rights::{Identity, Right, Verb};
    use serde_json::json;

    use super::*;

    const RIGHTS: &[Right] = &[
        Right::named("", "pods", &[Verb::Get, Verb::Create]),
        Right::named("", "pods", &[Verb::List]).in_installation(),
    ];

    fn account() -> Account {
        let program = Program { name: "worker", identity: Identity::Account, rights: RIGHTS.to_vec() };
        Account::of(&program, "here")
    }

    fn event(verb: &str, namespace: &str, code: u16) -> Value {
        json!({"user": {"username": "system:serviceaccount:here:worker"}, "verb": verb,
            "objectRef": {"resource": "pods", "namespace": namespace}, "responseStatus": {"code": code}})
    }

    fn checked(account: &Account, events: &[Value], all: bool) -> Result<(), String> {
        let log = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(log.path(), events.iter().map(|event| format!("{event}\n")).collect::<String>()).unwrap();
        account.check(log.path(), all).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_used_is_declared_and_what_is_declared_is_used() {
        let (get, list) = (event("get", "x", 200), event("list", "here", 200));
        let everything = [get.clone(), list.clone(), event("create", "x", 201)];
        assert_eq!(checked(&account(), &everything, true), Ok(()));
        assert!(checked(&account(), &[], true).unwrap_err().contains("asked for nothing"));
        let idle = checked(&account(), &everything[..2], true).unwrap_err();
        assert!(idle.contains("nothing uses these rights") && idle.contains("create pods"), "{idle}");
        assert_eq!(checked(&account(), &everything[..2], false), Ok(()));
        let beyond = checked(&account(), &[get.clone(), event("list", "elsewhere", 200)], false).unwrap_err();
        assert!(beyond.contains("not declared") && beyond.contains("list pods"), "{beyond}");
    }

    #[test]
    fn exceptions_are_declared_and_those_without_a_use_have_none() {
        let everything = [event("get", "x", 200), event("list", "here", 200), event("create", "x", 201)];
        const CREATE: Explained = &[("create pods", "why")];
        let by_chance = Account { by_chance: CREATE, ..account() };
        assert_eq!(checked(&by_chance, &everything, true), Ok(()));
        assert_eq!(checked(&by_chance, &everything[..2], true), Ok(()));
        let unexercised = Account { unexercised: CREATE, ..account() };
        assert_eq!(checked(&unexercised, &everything[..2], true), Ok(()));
        assert!(checked(&unexercised, &everything, true).unwrap_err().contains("in use"));
        let unknown = Account { by_chance: &[("delete pods", "why")], ..account() };
        assert!(checked(&unknown, &everything, true).unwrap_err().contains("not declared"));
    }

    #[test]
    fn an_apply_that_makes_an_object_needs_the_right_to() {
        let needed =
            |code| account().needs(&event("patch", "x", code)).iter().map(Grant::to_string).collect::<Vec<_>>();
        assert_eq!(needed(201), ["patch pods", "create pods"]);
        assert_eq!(needed(200), ["patch pods"]);
    }
}
