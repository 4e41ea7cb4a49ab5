//! The registration of our webhooks: one for each name in [`hooks::RULES`].

use std::collections::BTreeMap;

use api::resources;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations, ServiceReference,
    ValidatingWebhook, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use review::{Operation, Phase, Rule};
use serde_json::Value;

use crate::object::{of_cluster, texts, typed};
use crate::{Settings, names};

/// Seconds that the API server waits for an answer.
const TIMEOUT: i32 = 10;
/// Which Secret holds the certificate of the webhooks' server.
const SECRET: &str = "certificates.kubevirt.io/secret";

/// The server of a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Server {
    service: &'static str,
    secret: &'static str,
}

const API: Server = Server { service: names::service::API, secret: names::secret::API };
const OPERATOR: Server = Server { service: names::service::OPERATOR_WEBHOOK, secret: names::secret::OPERATOR };

/// The webhooks of virt-api, and those about the KubeVirt object: virt-operator's if there is one, else virt-api's.
pub(crate) fn configurations(settings: &Settings, operator: bool) -> Vec<Value> {
    let server = if operator { OPERATOR } else { API };
    let (installation, others): (Vec<&Rule>, Vec<&Rule>) = hooks::RULES.iter().partition(|rule| is_installation(rule));
    let (mutating, validating): (Vec<&Rule>, Vec<&Rule>) =
        others.into_iter().partition(|rule| rule.phase == Phase::Mutating);
    vec![
        mutating_configuration("virt-api-mutator", &mutating, settings),
        validating_configuration("virt-api-validator", &validating, API, settings),
        validating_configuration("virt-operator-validator", &installation, server, settings),
    ]
}

/// Rules about the KubeVirt object itself. Its status is written by virt-operator and checked by virt-api.
fn is_installation(rule: &Rule) -> bool {
    rule.resource == "kubevirts" && rule.subresource.is_empty()
}

fn mutating_configuration(name: &str, rules: &[&Rule], settings: &Settings) -> Value {
    let webhooks = by_name(rules).into_iter().map(|rules| mutating(&rules, settings)).collect();
    let configuration = MutatingWebhookConfiguration { metadata: metadata(name, API), webhooks: Some(webhooks) };
    typed(&configuration, settings)
}

fn validating_configuration(name: &str, rules: &[&Rule], server: Server, settings: &Settings) -> Value {
    let webhooks = by_name(rules).into_iter().map(|rules| validating(&rules, server, settings)).collect();
    let configuration = ValidatingWebhookConfiguration { metadata: metadata(name, server), webhooks: Some(webhooks) };
    typed(&configuration, settings)
}

fn metadata(name: &str, server: Server) -> ObjectMeta {
    ObjectMeta { annotations: Some(texts([(SECRET, server.secret)])), ..of_cluster(name) }
}

/// The rules of each webhook. None is empty.
fn by_name<'a>(rules: &[&'a Rule]) -> Vec<Vec<&'a Rule>> {
    let mut webhooks: BTreeMap<&str, Vec<&Rule>> = BTreeMap::new();
    for rule in rules {
        webhooks.entry(rule.name).or_default().push(rule);
    }
    webhooks.into_values().collect()
}

fn mutating(rules: &[&Rule], settings: &Settings) -> MutatingWebhook {
    MutatingWebhook {
        admission_review_versions: vec!["v1".to_owned()],
        client_config: client(rules[0], API, settings),
        failure_policy: Some(failure_policy(rules)),
        match_conditions: Some(conditions(rules, settings)),
        match_policy: Some("Equivalent".to_owned()),
        name: rules[0].name.to_owned(),
        reinvocation_policy: Some("Never".to_owned()),
        rules: Some(rules.iter().map(|rule| operations(rule)).collect()),
        side_effects: side_effects(rules),
        timeout_seconds: Some(TIMEOUT),
        ..MutatingWebhook::default()
    }
}

fn validating(rules: &[&Rule], server: Server, settings: &Settings) -> ValidatingWebhook {
    ValidatingWebhook {
        admission_review_versions: vec!["v1".to_owned()],
        client_config: client(rules[0], server, settings),
        failure_policy: Some(failure_policy(rules)),
        match_conditions: Some(conditions(rules, settings)),
        match_policy: Some("Equivalent".to_owned()),
        name: rules[0].name.to_owned(),
        rules: Some(rules.iter().map(|rule| operations(rule)).collect()),
        side_effects: side_effects(rules),
        timeout_seconds: Some(TIMEOUT),
        ..ValidatingWebhook::default()
    }
}

fn client(rule: &Rule, server: Server, settings: &Settings) -> WebhookClientConfig {
    WebhookClientConfig {
        ca_bundle: settings.ca_bundle.as_ref().map(|bundle| ByteString(bundle.clone().into_bytes())),
        service: Some(ServiceReference {
            name: server.service.to_owned(),
            namespace: settings.namespace.clone(),
            path: Some(hooks::path(rule)),
            port: Some(names::port::SERVICE),
        }),
        url: None,
    }
}

/// Deletion must work while virt-api is down.
fn failure_policy(rules: &[&Rule]) -> String {
    let deletes = rules.iter().any(|rule| rule.operations.contains(&Operation::Delete));
    if deletes { "Ignore" } else { "Fail" }.to_owned()
}

/// Only an eviction writes to another object, and not in a dry run.
fn side_effects(rules: &[&Rule]) -> String {
    let evicts = rules.iter().any(|rule| is_eviction(rule));
    if evicts { "NoneOnDryRun" } else { "None" }.to_owned()
}

fn is_eviction(rule: &Rule) -> bool {
    rule.subresource == "eviction"
}

fn operations(rule: &Rule) -> RuleWithOperations {
    let operation = |operation: &Operation| match operation {
        Operation::Create => "CREATE",
        Operation::Update => "UPDATE",
        Operation::Delete => "DELETE",
    };
    let resource = match rule.subresource {
        "" => rule.resource.to_owned(),
        subresource => format!("{}/{subresource}", rule.resource),
    };
    RuleWithOperations {
        api_groups: Some(vec![rule.group.to_owned()]),
        api_versions: Some(versions(rule)),
        operations: Some(rule.operations.iter().map(|each| operation(each).to_owned()).collect()),
        resources: Some(vec![resource]),
        scope: None,
    }
}

/// All served versions, so that a client's version arrives as it was sent.
fn versions(rule: &Rule) -> Vec<String> {
    match resources::of_plural(rule.group, rule.resource) {
        Some(resource) => resource.versions.iter().map(|version| version.name.to_owned()).collect(),
        None => vec!["v1".to_owned()],
    }
}

/// An update that only removes finalizers from an object that is being deleted: it must work while virt-api is down.
const DELETION_GOES_ON: &str = "request.operation != 'UPDATE' || !has(object.metadata.deletionTimestamp) || \
    object.?spec != oldObject.?spec";

/// Name prefix of Pods whose evictions a webhook reviews. Other Pods can be evicted while virt-api is down.
const EVICTED: &[(&str, &str)] = &[
    ("virt-launcher-eviction-interceptor.kubevirt.io", "virt-launcher-"),
    ("hotplug-pod-eviction-interceptor.kubevirt.io", "hp-volume-"),
];

fn conditions(rules: &[&Rule], settings: &Settings) -> Vec<MatchCondition> {
    let condition = |name: &str, expression: String| MatchCondition { name: name.to_owned(), expression };
    if let Some((_, prefix)) = EVICTED.iter().find(|(name, _)| rules.iter().any(|rule| rule.name == *name)) {
        return vec![condition("ours", format!("request.name.startsWith('{prefix}')"))];
    }
    let mut conditions = Vec::new();
    if rules.iter().any(|rule| rule.operations.contains(&Operation::Update)) {
        conditions.push(condition("deletion-goes-on", DELETION_GOES_ON.to_owned()));
    }
    // virt-operator must be able to update the object while its own webhook is down.
    if rules.iter().any(|rule| rule.resource == "kubevirts") {
        let operator = names::user(names::account::OPERATOR, &settings.namespace);
        conditions.push(condition("not-virt-operator", format!("request.userInfo.username != '{operator}'")));
    }
    conditions
}
