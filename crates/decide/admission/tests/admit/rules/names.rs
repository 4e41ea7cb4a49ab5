//! Host name, DNS and the service account.

use serde_json::json;

use super::{both, check, row, spec, volume};

#[test]
fn names() {
    let account = |name: &str| spec(json!({ "serviceAccountName": name }));
    let token = volume(json!({ "serviceAccount": { "serviceAccountName": "me" } }));
    check([
        row(
            "hostname",
            spec(json!({ "hostname": "a.b" })),
            "Invalid spec.hostname",
            spec(json!({ "hostname": "a-b" })),
        ),
        row(
            "subdomain",
            spec(json!({ "subdomain": "a_b" })),
            "Invalid spec.subdomain",
            spec(json!({ "subdomain": "a.b" })),
        ),
        row("service account", account("Me"), "Invalid spec.serviceAccountName", account("me")),
        row(
            "service account of the Pod and of a volume",
            both(account("you"), token.clone()),
            "Invalid spec.serviceAccountName",
            both(account("me"), token),
        ),
    ]);
}

#[test]
fn dns() {
    let config = |config: serde_json::Value| spec(json!({ "dnsConfig": config }));
    let searches: Vec<String> = (0..7).map(|i| format!("s{i}.example")).collect();
    let long = vec!["a".repeat(60); 5];
    check([
        row(
            "policy",
            spec(json!({ "dnsPolicy": "Sometimes" })),
            "NotSupported spec.dnsPolicy",
            spec(json!({ "dnsPolicy": "Default" })),
        ),
        row(
            "policy None without configuration",
            spec(json!({ "dnsPolicy": "None" })),
            "Required spec.dnsConfig",
            spec(json!({ "dnsPolicy": "None", "dnsConfig": { "nameservers": ["192.0.2.1"] } })),
        ),
        row(
            "policy None without name servers",
            spec(json!({ "dnsPolicy": "None", "dnsConfig": {} })),
            "Required spec.dnsConfig.nameservers",
            spec(json!({ "dnsPolicy": "", "dnsConfig": {} })),
        ),
        row(
            "number of name servers",
            config(json!({ "nameservers": ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"] })),
            "Invalid spec.dnsConfig.nameservers",
            config(json!({ "nameservers": ["192.0.2.1", "192.0.2.2", "2001:db8::1"] })),
        ),
        row(
            "a name server is an address",
            config(json!({ "nameservers": ["dns.example"] })),
            "Invalid spec.dnsConfig.nameservers[0]",
            config(json!({ "nameservers": ["192.0.2.1"] })),
        ),
        row(
            "number of searches",
            config(json!({ "searches": searches })),
            "Invalid spec.dnsConfig.searches",
            config(json!({ "searches": searches[..6] })),
        ),
        row(
            "length of searches",
            config(json!({ "searches": long })),
            "Invalid spec.dnsConfig.searches",
            config(json!({ "searches": long[..4] })),
        ),
        row(
            "a search is a domain",
            config(json!({ "searches": ["a b"] })),
            "Invalid spec.dnsConfig.searches[0]",
            config(json!({ "searches": ["a.b"] })),
        ),
        row(
            "an option has a name",
            config(json!({ "options": [{ "value": "2" }] })),
            "Invalid spec.dnsConfig.options[0].name",
            config(json!({ "options": [{ "name": "ndots", "value": "2" }] })),
        ),
    ]);
}
