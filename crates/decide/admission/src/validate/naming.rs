//! Host name, DNS and the service account.

use std::net::IpAddr;

use api::v1::VirtualMachineInstanceSpec;
use k8s_openapi::api::core::v1::PodDNSConfig;
use machinery::field::{FieldError, FieldPath};
use machinery::names::{check_dns1123_label, check_dns1123_subdomain};

use super::names;

const DNS_POLICIES: [&str; 4] = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
const MAX_NAME_SERVERS: usize = 3;
const MAX_SEARCHES: usize = 6;
const MAX_SEARCH_CHARS: usize = 256;

pub(super) fn check(field: &FieldPath, spec: &VirtualMachineInstanceSpec) -> Vec<FieldError> {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let mut errors = Vec::new();
    if let Some(hostname) = given(&spec.hostname) {
        errors.extend(names(&field.child("hostname"), &hostname, check_dns1123_label(&hostname)));
    }
    if let Some(subdomain) = given(&spec.subdomain) {
        errors.extend(names(&field.child("subdomain"), &subdomain, check_dns1123_subdomain(&subdomain)));
    }
    if let Some(account) = given(&spec.service_account_name) {
        errors.extend(names(&field.child("serviceAccountName"), &account, check_dns1123_subdomain(&account)));
    }
    let policy = given(&spec.dns_policy).unwrap_or_default();
    if !policy.is_empty() && !DNS_POLICIES.contains(&policy.as_str()) {
        errors.push(FieldError::not_supported(field.child("dnsPolicy"), policy.as_str(), &DNS_POLICIES));
    }
    errors.extend(dns_config(&field.child("dnsConfig"), &policy, spec.dns_config.as_ref()));
    errors
}

fn dns_config(field: &FieldPath, policy: &str, config: Option<&PodDNSConfig>) -> Vec<FieldError> {
    let servers = config.and_then(|config| config.nameservers.as_deref()).unwrap_or_default();
    let searches = config.and_then(|config| config.searches.as_deref()).unwrap_or_default();
    let options = config.and_then(|config| config.options.as_deref()).unwrap_or_default();
    let mut errors = Vec::new();
    if policy == "None" && servers.is_empty() {
        let detail = "with dnsPolicy None at least one name server has to be given";
        let missing = if config.is_none() { field.clone() } else { field.child("nameservers") };
        errors.push(FieldError::required(missing, detail));
    }
    if servers.len() > MAX_NAME_SERVERS {
        let detail = format!("must not have more than {MAX_NAME_SERVERS} entries");
        errors.push(FieldError::invalid(field.child("nameservers"), servers, detail));
    }
    for (index, server) in servers.iter().enumerate().filter(|(_, server)| server.parse::<IpAddr>().is_err()) {
        let field = field.child("nameservers").index(index);
        errors.push(FieldError::invalid(field, server.as_str(), "must be an IP address"));
    }
    let length = searches.iter().map(String::len).sum::<usize>() + searches.len().saturating_sub(1);
    if searches.len() > MAX_SEARCHES || length > MAX_SEARCH_CHARS {
        let detail = format!("must not have more than {MAX_SEARCHES} entries and {MAX_SEARCH_CHARS} characters");
        errors.push(FieldError::invalid(field.child("searches"), searches, detail));
    }
    for (index, search) in searches.iter().enumerate() {
        errors.extend(names(&field.child("searches").index(index), search, check_dns1123_subdomain(search)));
    }
    for (index, _) in options.iter().enumerate().filter(|(_, o)| o.name.as_deref().unwrap_or_default().is_empty()) {
        let field = field.child("options").index(index).child("name");
        errors.push(FieldError::invalid(field, "", "must not be empty"));
    }
    errors
}
