//! Which requests need the consent of the cluster's authorizer, and what it is asked.

/// A request in the words of an authorizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    pub namespace: String,
    pub verb: &'static str,
    pub group: String,
    pub version: String,
    pub resource: String,
    /// Empty for `expand-vm-spec`, which is a resource itself.
    pub subresource: String,
    /// Empty for `expand-vm-spec`.
    pub name: String,
}

/// What a request needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// Nothing: discovery, health and version say nothing about anybody's machines.
    Open,
    /// An authenticated user who may do this.
    Review(Attributes),
    /// There is no such request.
    Unknown(&'static str),
}

/// Paths that anybody may read, below a version of the group. An empty one is the version itself.
const OPEN_BELOW_VERSION: &[&str] = &["", "/version", "/guestfs", "/healthz"];
/// Paths that anybody may read, from the root.
const OPEN: &[&str] = &["/", "/apis", "/healthz", "/openapi/v2", "/openapi/v3"];

/// Judges a request by its method and path.
pub fn access(group: &str, versions: &[&str], method: &str, path: &str) -> Access {
    if OPEN.contains(&path) || is_discovery(group, versions, path) {
        return Access::Open;
    }
    let parts: Vec<&str> = path.split('/').collect();
    let (version, namespace, resource, rest) = match parts.as_slice() {
        ["", "apis", group_, version, "namespaces", namespace, resource, rest @ ..]
            if *group_ == group && versions.contains(version) =>
        {
            (*version, *namespace, *resource, rest)
        }
        _ => return Access::Unknown("unknown api endpoint"),
    };
    let (name, subresource) = match (resource, rest) {
        ("expand-vm-spec", []) => ("", String::new()),
        // The port and the protocol are not part of what is granted.
        ("virtualmachines" | "virtualmachineinstances", [name, "portforward", ..]) => (*name, "portforward".to_owned()),
        ("virtualmachines" | "virtualmachineinstances", [name, first, more @ ..]) => {
            let parts: Vec<&str> = std::iter::once(*first).chain(more.iter().copied()).collect();
            (*name, parts.join("/"))
        }
        _ => return Access::Unknown("unknown api endpoint"),
    };
    if namespace.is_empty() || (name.is_empty() && resource != "expand-vm-spec") {
        return Access::Unknown("unknown api endpoint");
    }
    let Some(verb) = verb(method, name) else { return Access::Unknown("unsupported HTTP method") };
    let owned = str::to_owned;
    Access::Review(Attributes {
        namespace: owned(namespace),
        verb,
        group: owned(group),
        version: owned(version),
        resource: owned(resource),
        subresource,
        name: owned(name),
    })
}

fn is_discovery(group: &str, versions: &[&str], path: &str) -> bool {
    for prefix in ["", "/openapi/v3"] {
        let Some(rest) = path.strip_prefix(prefix).and_then(|path| path.strip_prefix("/apis/")?.strip_prefix(group))
        else {
            continue;
        };
        // `v1` is also the beginning of `v1alpha3`.
        let ends = |below: &&str| below.is_empty() || below.starts_with('/');
        let below = |version: &&str| rest.strip_prefix('/')?.strip_prefix(*version).filter(ends);
        match versions.iter().find_map(below) {
            None if rest.is_empty() && prefix.is_empty() => return true,
            Some(below) if OPEN_BELOW_VERSION.contains(&below) => return prefix.is_empty() || below.is_empty(),
            _ => {}
        }
    }
    false
}

fn verb(method: &str, name: &str) -> Option<&'static str> {
    Some(match (method, name.is_empty()) {
        ("GET" | "HEAD", false) => "get",
        ("GET" | "HEAD", true) => "list",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", false) => "delete",
        ("DELETE", true) => "deletecollection",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: &str = "subresources.kubevirt.io";

    fn of(method: &str, path: &str) -> Access {
        access(GROUP, &["v1", "v1alpha3"], method, path)
    }

    #[test]
    fn discovery_health_and_version_are_open() {
        for path in [
            "/",
            "/apis",
            "/healthz",
            "/openapi/v2",
            "/openapi/v3",
            "/openapi/v3/apis/subresources.kubevirt.io/v1",
            "/apis/subresources.kubevirt.io",
            "/apis/subresources.kubevirt.io/v1",
            "/apis/subresources.kubevirt.io/v1alpha3/version",
            "/apis/subresources.kubevirt.io/v1/healthz",
        ] {
            assert_eq!(of("GET", path), Access::Open, "{path}");
        }
    }

    #[test]
    fn everything_else_is_asked_for_or_unknown() {
        let base = format!("/apis/{GROUP}/v1/namespaces/shop");
        for (method, path, expected) in [
            ("PUT", "virtualmachines/vm/start", Some(("update", "virtualmachines", "start", "vm"))),
            ("GET", "virtualmachineinstances/vm/console", Some(("get", "virtualmachineinstances", "console", "vm"))),
            (
                "GET",
                "virtualmachineinstances/vm/portforward/22/tcp",
                Some(("get", "virtualmachineinstances", "portforward", "vm")),
            ),
            ("PUT", "virtualmachines/vm/evacuate/cancel", Some(("update", "virtualmachines", "evacuate/cancel", "vm"))),
            ("PUT", "expand-vm-spec", Some(("update", "expand-vm-spec", "", ""))),
            ("BREW", "virtualmachines/vm/start", None),
            ("GET", "virtualmachines/vm", None),
            ("GET", "virtualmachines//start", None),
            ("GET", "pods/vm/exec", None),
        ] {
            let got = match of(method, &format!("{base}/{path}")) {
                Access::Review(asked) => Some((asked.verb, asked.resource, asked.subresource, asked.name)),
                Access::Unknown(_) => None,
                Access::Open => panic!("{path} is open"),
            };
            let owned =
                expected.map(|(verb, kind, sub, name)| (verb, kind.to_owned(), sub.to_owned(), name.to_owned()));
            assert_eq!(got, owned, "{method} {path}");
        }
        for path in [
            "/apis/subresources.kubevirt.io/v2/version",
            "/openapi/v3/apis/subresources.kubevirt.io/v1/version",
            "/metrics",
        ] {
            assert!(matches!(of("GET", path), Access::Unknown(_)), "{path}");
        }
    }
}
