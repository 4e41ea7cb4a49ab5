//! What the server makes of our definitions themselves.

use anyhow::{Result, ensure};
use api::resources::{RESOURCES, Resource};
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::cluster::{Cluster, condition};
use crate::trial;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("each_definition_is_established_and_its_schema_is_structural", established),
        trial("each_definition_gets_the_names_it_asks_for", named),
        trial("each_definition_is_held_as_it_was_sent", held),
    ]
}

async fn established(cluster: &Cluster) -> Result<()> {
    each(cluster, |_, definition| {
        let stated = |type_| condition(definition, type_);
        // The condition about the schema is there only if something is wrong with it.
        stated("NonStructuralSchema").is_none() && stated("Established") == Some("True")
    })
}

async fn named(cluster: &Cluster) -> Result<()> {
    each(cluster, |resource, definition| {
        let mut asked = definition["spec"]["names"].clone();
        asked["listKind"] = json!(format!("{}List", resource.kind));
        let stored = json!([resource.storage_version()]);
        condition(definition, "NamesAccepted") == Some("True")
            && definition["status"]["acceptedNames"] == asked
            && definition["status"]["storedVersions"] == stored
    })
}

async fn held(cluster: &Cluster) -> Result<()> {
    for sent in api::crds() {
        let kind = sent["spec"]["names"]["kind"].as_str().unwrap_or_default();
        if let Some(path) = missing(&sent["spec"], &cluster.definitions[kind]["spec"], "spec".to_owned()) {
            anyhow::bail!("{kind}: {path} is not as it was sent");
        }
    }
    Ok(())
}

fn each(cluster: &Cluster, holds: impl Fn(&Resource, &Value) -> bool) -> Result<()> {
    for resource in RESOURCES {
        let definition = &cluster.definitions[resource.kind];
        ensure!(holds(resource, definition), "{}: {:#}", resource.full_name(), definition["status"]);
    }
    Ok(())
}

/// The first place where `held` lacks what `sent` has. The server adds what it takes for granted.
fn missing(sent: &Value, held: &Value, path: String) -> Option<String> {
    match (sent, held) {
        (Value::Object(sent), Value::Object(held)) => sent
            .iter()
            .find_map(|(name, value)| missing(value, held.get(name).unwrap_or(&Value::Null), format!("{path}.{name}"))),
        (Value::Array(sent), Value::Array(held)) if sent.len() == held.len() => {
            let mut pairs = sent.iter().zip(held).enumerate();
            pairs.find_map(|(index, (sent, held))| missing(sent, held, format!("{path}[{index}]")))
        }
        _ => (sent != held).then_some(path),
    }
}
