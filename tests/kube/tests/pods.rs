//! What a real API server makes of the Pods we render: every golden Pod is taken, and nothing in it is changed or dropped.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::Trial;
use machinery::quantity::Quantity;
use serde_json::{Value, json};

use crate::cluster::{Cluster, NAMESPACE};
use crate::trial;

pub(crate) fn trials() -> Vec<Trial> {
    vec![trial("kube_apiserver_takes_the_pods_we_render_as_they_are", golden_pods)]
}

async fn golden_pods(cluster: &Cluster) -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/decide/render/tests/launcher/golden");
    let pods = golden(&folder)?;
    ensure!(pods.len() >= 40, "only {} golden Pods in {}", pods.len(), folder.display());
    let list = |items: &[&Value]| json!({ "apiVersion": "v1", "kind": "List", "items": items });

    let classes = classes(pods.iter().map(|(_, pod)| pod));
    let classes = list(&classes.iter().collect::<Vec<_>>());
    let mut create = cluster.plane.kubectl();
    fed(create.args(["create", "-f-"]), &classes)?;
    let mut dry_run = cluster.plane.kubectl();
    dry_run.args(["create", "--dry-run=server", "--validate=strict", "-ojson", "-f-"]);
    let stored = fed(&mut dry_run, &list(&pods.iter().map(|(_, pod)| pod).collect::<Vec<_>>()));
    let mut delete = cluster.plane.kubectl();
    fed(delete.args(["delete", "--wait=false", "-f-"]), &classes)?;

    // kubectl prints one object after the other.
    let stored: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(&stored?).into_iter().collect();
    let stored = stored.context("kubectl prints no JSON")?;
    ensure!(stored.len() == pods.len(), "{} Pods were sent and {} came back", pods.len(), stored.len());
    for ((name, sent), stored) in pods.iter().zip(&stored) {
        keeps(sent, stored, "").with_context(|| format!("the Pod of {name} is stored differently"))?;
    }
    Ok(())
}

/// The Pods of a folder, each with its file's name. They are moved to a namespace that exists.
fn golden(folder: &Path) -> Result<Vec<(String, Value)>> {
    let doing = || format!("cannot read {}", folder.display());
    let entries: Result<Vec<_>, _> = std::fs::read_dir(folder).with_context(doing)?.collect();
    let mut files: Vec<PathBuf> = entries.with_context(doing)?.into_iter().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|kind| kind == "yaml"));
    files.sort();
    let mut pods = Vec::new();
    for file in files {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        for manifests::Document { object: mut pod, .. } in manifests::parse_bytes(&name, text.as_bytes())? {
            pod["metadata"]["namespace"] = json!(NAMESPACE);
            pods.push((name.clone(), pod));
        }
    }
    Ok(pods)
}

/// The classes that these Pods name; the server refuses Pods whose classes it does not know.
fn classes<'p>(pods: impl Iterator<Item = &'p Value>) -> Vec<Value> {
    let mut named = BTreeSet::new();
    for pod in pods {
        for field in ["priorityClassName", "runtimeClassName"] {
            named.extend(pod["spec"][field].as_str().map(|name| (field, name)));
        }
    }
    let class = |(field, name)| match field {
        "priorityClassName" => json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": { "name": name }, "value": 1000,
        }),
        _ => json!({
            "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": { "name": name }, "handler": "vm",
        }),
    };
    named.into_iter().map(class).collect()
}

/// Runs kubectl with an object on its input.
fn fed(command: &mut Command, input: &Value) -> Result<String> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("cannot run kubectl")?;
    let stdin = child.stdin.take().context("kubectl has no input")?;
    let text = input.to_string();
    // What kubectl says may fill a pipe before it has read all.
    let writer = std::thread::spawn(move || {
        let mut stdin = stdin;
        stdin.write_all(text.as_bytes())
    });
    let output = child.wait_with_output().context("cannot wait for kubectl")?;
    let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{command:?} failed ({}):\n{complained}", output.status);
    writer.join().expect("writing does not panic").context("kubectl did not read all")?;
    Ok(said.into_owned())
}

/// Whether all that was sent is in what is stored. Defaults may stand beside it; in lists they come last.
fn keeps(sent: &Value, stored: &Value, path: &str) -> Result<()> {
    match (sent, stored) {
        (Value::Object(sent), Value::Object(stored)) => {
            for (name, field) in sent {
                let path = format!("{path}.{name}");
                let nothing = Value::Null;
                keeps(field, stored.get(name).unwrap_or(&nothing), &path)?;
            }
        }
        (Value::Array(sent), Value::Array(stored)) => {
            ensure!(sent.len() <= stored.len(), "{path} had {} items and has {}", sent.len(), stored.len());
            for (index, (sent, stored)) in sent.iter().zip(stored).enumerate() {
                keeps(sent, stored, &format!("{path}[{index}]"))?;
            }
        }
        // Amounts are spelled in one way.
        (Value::String(sent), Value::String(stored)) if is_amount(path) => {
            let amounts = (sent.parse::<Quantity>(), stored.parse::<Quantity>());
            ensure!(matches!(amounts, (Ok(sent), Ok(stored)) if sent == stored), "{path} was {sent} and is {stored}");
        }
        _ if sent == stored => {}
        _ => bail!("{path} was {sent} and is {stored}"),
    }
    Ok(())
}

fn is_amount(path: &str) -> bool {
    [".resources.limits.", ".resources.requests."].iter().any(|amounts| path.contains(amounts))
}
