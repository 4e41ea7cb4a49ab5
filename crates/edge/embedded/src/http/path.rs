//! Parses URL paths and methods.

use http::Method;

use crate::auth::{Attributes, Target, User};

/// The aggregated API group, whose requests are forwarded.
pub(crate) const SUBRESOURCES: &str = api::resources::SUBRESOURCES_GROUP;

/// A path below a group version: `[namespaces/<namespace>/]<resource>[/<name>[/<subresource>]]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ResourcePath {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) namespace: String,
    pub(crate) resource: String,
    pub(crate) name: String,
    pub(crate) subresource: String,
}

impl ResourcePath {
    /// `None` for non-resource paths.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let parts: Vec<String> = path.trim_matches('/').split('/').map(decode).collect();
        let mut parts = parts.iter().map(String::as_str);
        let group = match parts.next()? {
            "api" => "",
            "apis" => parts.next()?,
            _ => return None,
        };
        let version = parts.next()?;
        let rest: Vec<&str> = parts.collect();
        let (namespace, rest) = match rest.as_slice() {
            [] => return None,
            // The namespace itself or a subresource of it, not something in it.
            ["namespaces"] | ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => ("", rest.as_slice()),
            ["namespaces", namespace, rest @ ..] => (*namespace, rest),
            rest => ("", rest),
        };
        let (resource, name, subresource) = match rest {
            [resource] => (*resource, "", String::new()),
            [resource, name, subresource @ ..] => (*resource, *name, subresource.join("/")),
            [] => return None,
        };
        if resource.is_empty() {
            return None;
        }
        Some(Self {
            group: group.into(),
            version: version.into(),
            namespace: namespace.into(),
            resource: resource.into(),
            name: name.into(),
            subresource,
        })
    }

    /// The subresource as named in roles: a forwarded port and its protocol are not part of it.
    fn permission(&self) -> String {
        match self.subresource.split_once('/') {
            Some(("portforward", _)) if self.group == SUBRESOURCES => "portforward".into(),
            _ => self.subresource.clone(),
        }
    }
}

/// Percent-decodes a path segment; invalid sequences are kept as they are.
fn decode(segment: &str) -> String {
    if !segment.contains('%') {
        return segment.to_owned();
    }
    let bytes = segment.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while index < bytes.len() {
        let byte = (bytes[index] == b'%').then(|| segment.get(index + 1..index + 3)).flatten();
        match byte.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                decoded.push(byte);
                index += 3;
            }
            None => {
                decoded.push(bytes[index]);
                index += 1;
            }
        }
    }
    String::from_utf8(decoded).unwrap_or_else(|_| segment.to_owned())
}

/// The RBAC verb of the request.
pub(crate) fn verb(method: &Method, path: Option<&ResourcePath>, watch: bool) -> &'static str {
    let Some(path) = path else {
        return match *method {
            Method::POST => "post",
            Method::PUT => "put",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            Method::HEAD => "head",
            Method::OPTIONS => "options",
            _ => "get",
        };
    };
    match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if path.name.is_empty() => "deletecollection",
        Method::DELETE => "delete",
        _ if watch && path.group != SUBRESOURCES => "watch",
        _ if path.name.is_empty() => "list",
        _ => "get",
    }
}

/// The attributes for the authorizer. `selected` is the name that a list or watch is restricted to.
pub(crate) fn attributes(
    user: &User,
    method: &Method,
    url: &str,
    path: Option<&ResourcePath>,
    watch: bool,
    selected: Option<&str>,
) -> Attributes {
    let verb = verb(method, path, watch).to_owned();
    let target = match path {
        None => Target::Path(url.to_owned()),
        Some(path) => Target::Resource {
            group: path.group.clone(),
            resource: path.resource.clone(),
            subresource: path.permission(),
            // A namespace is cluster-scoped, but requests for it are authorised in the namespace of its own name.
            namespace: if path.resource == "namespaces" { path.name.clone() } else { path.namespace.clone() },
            name: selected.unwrap_or(&path.name).to_owned(),
        },
    };
    Attributes { user: user.clone(), verb, target }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_resources() {
        let table = [
            ("/api/v1/pods", Some((" v1  pods  ", ""))),
            ("/api/v1/namespaces", Some((" v1  namespaces  ", ""))),
            ("/api/v1/namespaces/a", Some((" v1  namespaces a ", ""))),
            ("/api/v1/namespaces/a/status", Some((" v1  namespaces a status", ""))),
            ("/api/v1/namespaces/a/finalize", Some((" v1  namespaces a finalize", ""))),
            ("/api/v1/namespaces/a/pods", Some((" v1 a pods  ", ""))),
            ("/api/v1/namespaces/a/pods/b", Some((" v1 a pods b ", ""))),
            ("/api/v1/namespaces/a/pods/b/status", Some((" v1 a pods b status", ""))),
            ("/apis/kubevirt.io/v1/virtualmachines", Some(("kubevirt.io v1  virtualmachines  ", ""))),
            (
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/a%3Ab",
                Some(("rbac.authorization.k8s.io v1  clusterroles a:b ", "")),
            ),
            (
                "/apis/subresources.kubevirt.io/v1/namespaces/a/virtualmachineinstances/b/portforward/22/tcp",
                Some(("subresources.kubevirt.io v1 a virtualmachineinstances b portforward/22/tcp", "portforward")),
            ),
            (
                "/apis/subresources.kubevirt.io/v1/namespaces/a/virtualmachineinstances/b/sev/setupsession",
                Some(("subresources.kubevirt.io v1 a virtualmachineinstances b sev/setupsession", "sev/setupsession")),
            ),
            (
                "/apis/subresources.kubevirt.io/v1/namespaces/a/expand-vm-spec",
                Some(("subresources.kubevirt.io v1 a expand-vm-spec  ", "")),
            ),
            ("/apis/subresources.kubevirt.io/v1/version", Some(("subresources.kubevirt.io v1  version  ", ""))),
            ("/api/v1", None),
            ("/apis/kubevirt.io", None),
            ("/apis/kubevirt.io/v1/", None),
            ("/healthz", None),
            ("/", None),
        ];
        for (path, expected) in table {
            let parsed = ResourcePath::parse(path);
            let shown = parsed.as_ref().map(|path| {
                let parts =
                    [&path.group, &path.version, &path.namespace, &path.resource, &path.name, &path.subresource];
                parts.map(String::as_str).join(" ")
            });
            assert_eq!(shown.as_deref(), expected.map(|(shown, _)| shown), "{path}");
            if let (Some(parsed), Some((_, permission))) = (parsed, expected)
                && parsed.group == SUBRESOURCES
            {
                assert_eq!(parsed.permission(), permission, "{path}");
            }
        }
    }

    #[test]
    fn methods_become_verbs() {
        let one = ResourcePath::parse("/api/v1/namespaces/a/pods/b");
        let all = ResourcePath::parse("/api/v1/namespaces/a/pods");
        let table = [
            (Method::GET, &one, false, "get"),
            (Method::GET, &all, false, "list"),
            (Method::GET, &all, true, "watch"),
            (Method::POST, &all, false, "create"),
            (Method::PUT, &one, false, "update"),
            (Method::PATCH, &one, false, "patch"),
            (Method::DELETE, &one, false, "delete"),
            (Method::DELETE, &all, false, "deletecollection"),
            (Method::GET, &None, false, "get"),
            (Method::POST, &None, false, "post"),
        ];
        for (method, path, watch, expected) in table {
            assert_eq!(verb(&method, path.as_ref(), watch), expected);
        }
    }
}
