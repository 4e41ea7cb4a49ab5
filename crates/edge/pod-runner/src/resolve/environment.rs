//! Environment variables and the `$(NAME)` references to them in commands.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, EnvVarSource};
use podstate::Blocked;

use super::resources::{self};
use super::{References, Resolver, misconfigured};

pub(super) fn references(container: &Container, found: &mut References) {
    for from in container.env_from.iter().flatten() {
        found.config_maps.extend(from.config_map_ref.as_ref().map(|r| r.name.clone()));
        found.secrets.extend(from.secret_ref.as_ref().map(|r| r.name.clone()));
    }
    for source in container.env.iter().flatten().filter_map(|e| e.value_from.as_ref()) {
        found.config_maps.extend(source.config_map_key_ref.as_ref().map(|r| r.name.clone()));
        found.secrets.extend(source.secret_key_ref.as_ref().map(|r| r.name.clone()));
    }
}

/// The variables of a container, except those that the runner adds itself.
pub(super) fn variables(r: &Resolver<'_>, container: &Container) -> Result<BTreeMap<String, String>, Blocked> {
    let mut variables = BTreeMap::new();
    for from in container.env_from.iter().flatten() {
        let prefix = from.prefix.as_deref().unwrap_or_default();
        let mut add = |data: BTreeMap<String, String>| {
            variables.extend(data.into_iter().map(|(key, value)| (format!("{prefix}{key}"), value)));
        };
        if let Some(reference) = &from.config_map_ref
            && let Some(map) = r.config_map(&reference.name, reference.optional)?
        {
            add(map.data.clone().unwrap_or_default());
        }
        if let Some(reference) = &from.secret_ref
            && let Some(secret) = r.secret(&reference.name, reference.optional)?
        {
            let text = |(key, value): (&String, &k8s_openapi::ByteString)| {
                (key.clone(), String::from_utf8_lossy(&value.0).into_owned())
            };
            add(secret.data.iter().flatten().map(text).collect());
        }
    }
    for variable in container.env.iter().flatten() {
        let value = match &variable.value_from {
            Some(source) => value_from(r, container, source)?,
            None => Some(expand(variable.value.as_deref().unwrap_or_default(), &variables)),
        };
        variables.extend(value.map(|value| (variable.name.clone(), value)));
    }
    Ok(variables)
}

fn value_from(r: &Resolver<'_>, container: &Container, source: &EnvVarSource) -> Result<Option<String>, Blocked> {
    if let Some(key) = &source.config_map_key_ref {
        let Some(map) = r.config_map(&key.name, key.optional)? else { return Ok(None) };
        let value = map.data.as_ref().and_then(|d| d.get(&key.key)).cloned();
        return present(value, key.optional, "ConfigMap", &key.name, &key.key);
    }
    if let Some(key) = &source.secret_key_ref {
        let Some(secret) = r.secret(&key.name, key.optional)? else { return Ok(None) };
        let value = secret.data.as_ref().and_then(|d| d.get(&key.key));
        let value = value.map(|v| String::from_utf8_lossy(&v.0).into_owned());
        return present(value, key.optional, "Secret", &key.name, &key.key);
    }
    if let Some(field) = &source.field_ref {
        return r.field(&field.field_path).map(Some);
    }
    if let Some(field) = &source.resource_field_ref {
        return resources::field(container, &field.resource, field.divisor.as_ref()).map(Some);
    }
    Err(misconfigured(format!("container {}: a variable has a source that is not supported", container.name)))
}

fn present(
    value: Option<String>,
    optional: Option<bool>,
    kind: &str,
    name: &str,
    key: &str,
) -> Result<Option<String>, Blocked> {
    if value.is_none() && optional != Some(true) {
        return Err(misconfigured(format!("{kind} {name} has no key {key}")));
    }
    Ok(value)
}

impl Resolver<'_> {
    /// A field of the Pod in the downward API.
    pub(super) fn field(&self, path: &str) -> Result<String, Blocked> {
        let meta = &self.pod.metadata;
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        Ok(match path {
            "metadata.name" => text(&meta.name),
            "metadata.namespace" => text(&meta.namespace),
            "metadata.uid" => text(&meta.uid),
            "metadata.labels" => lines(&meta.labels),
            "metadata.annotations" => lines(&meta.annotations),
            "spec.nodeName" => self.node.name.clone(),
            "spec.serviceAccountName" => text(&self.spec.service_account_name),
            "status.podIP" | "status.podIPs" => self.address.to_string(),
            "status.hostIP" | "status.hostIPs" => self.node.address.to_string(),
            other => {
                let keyed = |prefix: &str| other.strip_prefix(prefix).and_then(|rest| rest.strip_suffix("']"));
                let map = if let Some(key) = keyed("metadata.labels['") {
                    meta.labels.as_ref().and_then(|m| m.get(key))
                } else if let Some(key) = keyed("metadata.annotations['") {
                    meta.annotations.as_ref().and_then(|m| m.get(key))
                } else {
                    return Err(misconfigured(format!("the Pod's field {other} cannot be given to a container")));
                };
                map.cloned().unwrap_or_default()
            }
        })
    }
}

/// The format of the downward API: one `key="value"` per line.
fn lines(map: &Option<BTreeMap<String, String>>) -> String {
    map.iter().flatten().map(|(key, value)| format!("{key}={value:?}")).collect::<Vec<_>>().join("\n")
}

/// Expands `$(NAME)`; `$$` is a dollar sign, and unknown names are left as they are.
pub(super) fn expand(text: &str, variables: &BTreeMap<String, String>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let tail = &rest[at + 1..];
        if let Some(after) = tail.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = tail.strip_prefix('(').and_then(|t| t.split_once(')')) {
            match variables.get(name) {
                Some(value) => out.push_str(value),
                None => out.push_str(&rest[at..at + name.len() + 3]),
            }
            rest = after;
        } else {
            out.push('$');
            rest = tail;
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_replaced_and_everything_else_stays() {
        let variables = BTreeMap::from([("A".to_owned(), "1".to_owned()), ("B".to_owned(), "$(A)".to_owned())]);
        for (text, expected) in
            [("$(A)-$(B)", "1-$(A)"), ("$$(A) $", "$(A) $"), ("$(C) $(", "$(C) $("), ("plain", "plain"), ("$A", "$A")]
        {
            assert_eq!(expand(text, &variables), expected, "{text}");
        }
    }
}
