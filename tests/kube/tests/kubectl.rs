//! What kubectl makes of our kinds: tables, explanations, and the examples.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use api::resources::{Column, RESOURCES, Resource};
use libtest_mimic::Trial;
use serde_json::Value;

use crate::cluster::Cluster;
use crate::schema::objects::column_pointer;
use crate::trial;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("kubectl_get_shows_the_columns_of_the_definitions", columns),
        trial("kubectl_explain_knows_every_field", explanations),
        trial("kubectl_accepts_our_examples", examples),
        trial("kubectl_accepts_the_examples_of_kubevirt", kubevirt_examples),
    ]
}

fn run(command: &mut Command) -> Result<String> {
    let output = command.output().context("cannot run kubectl")?;
    let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{command:?} failed ({}):\n{complained}{said}", output.status);
    Ok(said.into_owned())
}

async fn columns(cluster: &Cluster) -> Result<()> {
    let names: Vec<String> = RESOURCES
        .iter()
        .map(|resource| resource.short_names.first().map_or(resource.full_name(), |name| (*name).to_owned()))
        .collect();
    for wide in [false, true] {
        let mut kubectl = cluster.plane.kubectl();
        kubectl.args(["get", &names.join(",")]).args(wide.then_some("-owide"));
        let text = run(&mut kubectl)?;
        // One table for each kind, with an empty line between them; a row begins with the kind and its group.
        let tables: BTreeMap<&str, &str> =
            text.split("\n\n").filter_map(|table| Some((table.lines().nth(1)?.split_once('/')?.0, table))).collect();
        for resource in RESOURCES {
            let name = format!("{}.{}", resource.singular, resource.group);
            let table = tables.get(name.as_str()).with_context(|| format!("no table of {name} in\n{text}"))?;
            check_table(resource, &cluster.objects[resource.kind], table, wide)
                .with_context(|| format!("the table\n{table}"))?;
        }
    }
    Ok(())
}

/// What the server shows of a kind whose definition asks for nothing.
const PLAIN: &[Column] = &[Column { name: "Age", type_: "date", path: ".metadata.creationTimestamp", wide: false }];

fn check_table(resource: &Resource, object: &Value, table: &str, wide: bool) -> Result<()> {
    let columns = if resource.columns.is_empty() { PLAIN } else { resource.columns };
    let columns: Vec<&Column> = columns.iter().filter(|column| wide || !column.wide).collect();
    let mut lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let (titles, cells) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let expected: Vec<String> = columns.iter().map(|column| column.name.to_uppercase()).collect();
    ensure!(
        titles.get(1..) == Some(expected.iter().map(String::as_str).collect::<Vec<_>>().as_slice()),
        "titles are not {expected:?}"
    );
    ensure!(cells.len() == columns.len() + 1, "there are not as many cells as titles");
    for (column, cell) in columns.iter().zip(&cells[1..]) {
        let value = object.pointer(&column_pointer(column.path)).with_context(|| format!("no {}", column.path))?;
        let shown = match (column.type_, value) {
            // As an age: 3s, 25y.
            ("date", _) => {
                cell.ends_with(|unit: char| unit.is_ascii_lowercase())
                    && cell.starts_with(|first: char| first.is_ascii_digit())
            }
            (_, Value::String(text)) => cell == text,
            (_, Value::Bool(flag)) => cell.parse() == Ok(*flag),
            (_, other) => cell.parse().ok() == other.as_i64(),
        };
        ensure!(shown, "{} shows {cell} for {value}", column.name);
    }
    Ok(())
}

async fn explanations(cluster: &Cluster) -> Result<()> {
    for resource in RESOURCES {
        let mut kubectl = cluster.plane.kubectl();
        kubectl.args(["explain", "--recursive", "--api-version", &resource.api_version(), resource.plural]);
        let text = run(&mut kubectl)?;
        for line in [format!("GROUP: {}", resource.group), format!("KIND: {}", resource.kind)] {
            let words: Vec<&str> = line.split(' ').collect();
            ensure!(text.lines().any(|said| said.split_whitespace().eq(words.iter().copied())), "no {line} in\n{text}");
        }
        let mut expected = Vec::new();
        fields(&api::schema::openapi(resource.kind).unwrap_or_default(), "", &mut expected);
        let explained = explained(&text)?;
        if let Some(missing) = expected.iter().find(|field| !explained.contains(field)) {
            bail!("{missing} of {} is not explained in\n{text}", resource.kind);
        }
        let told = |field: &&String| !field.starts_with("metadata.");
        ensure!(
            explained.iter().filter(told).count() == expected.len(),
            "more is explained of {} than it has:\n{text}",
            resource.kind
        );
    }
    Ok(())
}

/// The fields of a schema, each with a mark if it is required.
fn fields(schema: &Value, path: &str, found: &mut Vec<String>) {
    let mut inner = schema;
    // Explanations go through lists and maps without a word.
    while let Some(next) =
        ["items", "additionalProperties"].iter().find_map(|key| inner.get(key)).filter(|s| s.is_object())
    {
        inner = next;
    }
    for (name, field) in inner["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let required = inner["required"].as_array().is_some_and(|all| all.contains(&Value::from(name.as_str())));
        found.push(format!("{path}{}", if required { "!" } else { "" }));
        fields(field, &path, found);
    }
}

/// The fields in kubectl's words: one on a line, indented by its depth, with its type after a tab.
fn explained(text: &str) -> Result<Vec<String>> {
    let (_, list) = text.split_once("FIELDS:\n").context("kubectl explains no fields")?;
    let (mut found, mut path) = (Vec::new(), Vec::new());
    for line in list.lines() {
        let Some((name, type_)) = line.split_once("\t<") else { continue };
        let depth = (name.len() - name.trim_start().len()) / 2;
        path.truncate(depth.saturating_sub(1));
        path.push(name.trim_start());
        found.push(format!("{}{}", path.join("."), if type_.contains("-required-") { "!" } else { "" }));
    }
    Ok(found)
}

const MULTUS: &str = "tests/cluster/manifests/multus.yaml";
const DEFINITIONS: &str = "network-attachment-definitions.k8s.cni.cncf.io";

async fn examples(cluster: &Cluster) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    // One example defines a network. That kind comes with Multus, which clusters with nodes have.
    run(cluster.plane.kubectl().arg("apply").arg("-f").arg(root.join(MULTUS)))?;
    let established = ["wait", "crd", DEFINITIONS, "--for=condition=Established", "--timeout=60s"];
    run(cluster.plane.kubectl().args(established))?;
    accepts(cluster, &root.join("examples"))
}

async fn kubevirt_examples(cluster: &Cluster) -> Result<()> {
    match std::env::var_os("FERROVIRT_SHARED") {
        Some(shared) => accepts(cluster, &Path::new(&shared).join("data/kubevirt-examples")),
        // In CI, too: they are not part of the project.
        None => {
            eprintln!("SKIPPED: KubeVirt's examples are not looked at: FERROVIRT_SHARED is not set");
            Ok(())
        }
    }
}

fn accepts(cluster: &Cluster, folder: &Path) -> Result<()> {
    let doing = || format!("cannot read {}", folder.display());
    let entries: Result<Vec<_>, _> = std::fs::read_dir(folder).with_context(doing)?.collect();
    let files: Vec<PathBuf> = entries
        .with_context(doing)?
        .into_iter()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "yaml"))
        .collect();
    let mut expected = 0;
    for file in &files {
        let text = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        expected += manifests::parse_bytes(&file.to_string_lossy(), &text)?.len();
    }
    ensure!(expected > 0, "no examples in {}", folder.display());
    let mut kubectl = cluster.plane.kubectl();
    kubectl.args(["create", "--dry-run=server", "--validate=strict", "-oname"]);
    files.iter().for_each(|file| _ = kubectl.arg("-f").arg(file));
    let text = run(&mut kubectl)?;
    ensure!(text.lines().count() == expected, "of {expected} objects kubectl names\n{text}");
    Ok(())
}
