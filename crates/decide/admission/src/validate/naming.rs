//! Host name, DNS and the service account.

use std::net::IpAddr;

use api::v1::{VirtualMachineInstanceSpec, Volume, VolumeSource};
use k8s_openapi::api::core::v1::PodDNSConfig;
use machinery::field::{Cause, Path};
use machinery::names::{check_dns1123_label, check_dns1123_subdomain};

use super::findings::{Findings, given, text};

const DNS_POLICIES: [&str; 4] = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
const MAX_NAME_SERVERS: usize = 3;
const MAX_SEARCHES: usize = 6;
const MAX_SEARCH_CHARS: usize = 256;

/// The guest's host name.
pub(super) fn host(found: &mut Findings, field: &Path<'_>, spec: &VirtualMachineInstanceSpec) {
    if let Some(hostname) = given(&spec.hostname) {
        found.name(&field.child("hostname"), hostname, &check_dns1123_label(hostname));
    }
    if let Some(subdomain) = given(&spec.subdomain) {
        found.name(&field.child("subdomain"), subdomain, &check_dns1123_subdomain(subdomain));
    }
}

/// The guest's DNS configuration.
pub(super) fn dns(found: &mut Findings, field: &Path<'_>, spec: &VirtualMachineInstanceSpec) {
    let policy = text(&spec.dns_policy);
    if !policy.is_empty() && !DNS_POLICIES.contains(&policy) {
        found.not_supported(&field.child("dnsPolicy"), policy, &DNS_POLICIES);
    }
    let field = field.child("dnsConfig");
    match &spec.dns_config {
        None if policy == "None" => found.required(&field, "has to be given with dnsPolicy None"),
        None => {}
        Some(config) if policy == "None" && config.nameservers.as_deref().unwrap_or_default().is_empty() => {
            let detail = "with dnsPolicy None at least one name server has to be given";
            found.required(&field.child("nameservers"), detail);
        }
        Some(config) => dns_config(found, &field, config),
    }
}

fn dns_config(found: &mut Findings, field: &Path<'_>, config: &PodDNSConfig) {
    let servers_field = field.child("nameservers");
    let servers = config.nameservers.as_deref().unwrap_or_default();
    if servers.len() > MAX_NAME_SERVERS {
        found.invalid(&servers_field, servers, format_args!("must not have more than {MAX_NAME_SERVERS} entries"));
    }
    for (index, server) in servers.iter().enumerate().filter(|(_, server)| server.parse::<IpAddr>().is_err()) {
        found.invalid(&servers_field.index(index), server.as_str(), "must be an IP address");
    }
    let searches_field = field.child("searches");
    let searches = config.searches.as_deref().unwrap_or_default();
    let length = searches.iter().map(String::len).sum::<usize>() + searches.len().saturating_sub(1);
    if searches.len() > MAX_SEARCHES || length > MAX_SEARCH_CHARS {
        let detail = format_args!("must not have more than {MAX_SEARCHES} entries and {MAX_SEARCH_CHARS} characters");
        found.invalid(&searches_field, searches, detail);
    }
    for (index, search) in searches.iter().enumerate() {
        found.name(&searches_field.index(index), search, &check_dns1123_subdomain(search));
    }
    let options = config.options.as_deref().unwrap_or_default();
    let options_field = field.child("options");
    for (index, _) in options.iter().enumerate().filter(|(_, option)| text(&option.name).is_empty()) {
        found.invalid(&options_field.index(index).child("name"), "", "must not be empty");
    }
}

/// The service account of the guest's Pod, at most one.
pub(super) fn service_account(found: &mut Findings, field: &Path<'_>, spec: &VirtualMachineInstanceSpec) {
    let Some(account) = given(&spec.service_account_name) else { return };
    let at = field.child("serviceAccountName");
    found.name(&at, account, &check_dns1123_subdomain(account));
    let sources = spec.volumes.iter().flat_map(Volume::sources).filter_map(VolumeSource::service_account);
    if let Some(other) = sources.filter_map(|source| given(&source.service_account_name)).find(|name| *name != account)
    {
        let message = format!("the Pod can have one service account, and a volume names {other:?}");
        found.refuse(Cause::Invalid, &at, message);
    }
}
