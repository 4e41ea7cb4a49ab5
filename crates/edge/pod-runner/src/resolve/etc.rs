//! The files in `/etc` that a Pod gets from its node: hostname, hosts and resolv.conf.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Pod, PodSpec};

use super::Resolver;

/// DNS configuration of Pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dns {
    /// If empty, lookups fail at once instead of waiting for an unreachable server.
    pub servers: Vec<IpAddr>,
    pub domain: String,
}

impl Default for Dns {
    fn default() -> Self {
        Dns { servers: Vec::new(), domain: "cluster.local".to_owned() }
    }
}

/// The kernel allows 64 bytes, Kubernetes 63.
pub(super) fn hostname(pod: &Pod, spec: &PodSpec) -> String {
    let name = spec.hostname.as_deref().or(pod.metadata.name.as_deref()).unwrap_or("pod");
    let cut: String = name.chars().take(63).collect();
    cut.trim_end_matches(['-', '.']).to_owned()
}

pub(super) fn files(r: &Resolver<'_>) -> BTreeMap<String, String> {
    BTreeMap::from([
        ("hostname".to_owned(), format!("{}\n", r.hostname)),
        ("hosts".to_owned(), hosts(r)),
        ("resolv.conf".to_owned(), resolv_conf(r)),
    ])
}

fn hosts(r: &Resolver<'_>) -> String {
    let mut text = String::from("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n");
    let namespace = r.pod.metadata.namespace.as_deref().unwrap_or("default");
    let full_name = r
        .spec
        .subdomain
        .as_ref()
        .map(|subdomain| format!("{}.{subdomain}.{namespace}.svc.{}\t", r.hostname, r.node.dns.domain));
    text.push_str(&format!("{}\t{}{}\n", r.address, full_name.unwrap_or_default(), r.hostname));
    for alias in r.spec.host_aliases.iter().flatten() {
        let names = alias.hostnames.clone().unwrap_or_default().join("\t");
        text.push_str(&format!("{}\t{names}\n", alias.ip));
    }
    text
}

fn resolv_conf(r: &Resolver<'_>) -> String {
    let own = r.spec.dns_config.clone().unwrap_or_default();
    let cluster = r.spec.dns_policy.as_deref() != Some("None");
    let namespace = r.pod.metadata.namespace.as_deref().unwrap_or("default");
    let domain = &r.node.dns.domain;

    let mut servers: Vec<String> = Vec::new();
    let mut searches: Vec<String> = Vec::new();
    let mut options: Vec<String> = Vec::new();
    if cluster {
        servers.extend(r.node.dns.servers.iter().map(IpAddr::to_string));
        searches.extend([format!("{namespace}.svc.{domain}"), format!("svc.{domain}"), domain.clone()]);
        options.push("ndots:5".to_owned());
    }
    servers.extend(own.nameservers.into_iter().flatten());
    searches.extend(own.searches.into_iter().flatten());
    options.extend(own.options.into_iter().flatten().filter_map(|o| match (o.name, o.value) {
        (Some(name), Some(value)) => Some(format!("{name}:{value}")),
        (name, None) => name,
        (None, _) => None,
    }));

    let mut text = String::new();
    if !searches.is_empty() {
        text.push_str(&format!("search {}\n", searches.join(" ")));
    }
    for server in servers {
        text.push_str(&format!("nameserver {server}\n"));
    }
    if !options.is_empty() {
        text.push_str(&format!("options {}\n", options.join(" ")));
    }
    text
}
