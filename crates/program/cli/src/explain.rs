//! `explain`: the fields of our kinds, from the built-in schemas, without a cluster.

use std::fmt::Write as _;
use std::process::ExitCode;

use api::resources::{RESOURCES, Resource, Version};
use api::schema;
use serde_json::{Map, Value};
use terminal::output::print;

use super::nearest::nearest;
use super::resources::is_called;

/// Descriptions are wrapped at this width.
const WIDTH: usize = 76;
/// Maximum number of enum values shown in the list of fields.
const SHOWN_VALUES: usize = 4;

/// Show the fields of a kind with their types and descriptions
///
/// KIND is a name as in kubectl: vm, vmi, virtualmachinepools, vmpools.pool.kubevirt.io, …; append fields with dots, for
/// example vm.spec.template.spec.domain.devices.disks. Works without a cluster.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// KIND or KIND.FIELD
    #[arg(value_name = "KIND[.FIELD…]")]
    path: String,
    /// Show all fields recursively, without descriptions
    #[arg(long)]
    recursive: bool,
    /// API group and version, for example pool.kubevirt.io/v1alpha1
    #[arg(long, value_name = "GROUP/VERSION")]
    api_version: Option<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    print(&explain(&args.path, args.recursive, args.api_version.as_deref())?)?;
    Ok(ExitCode::SUCCESS)
}

fn explain(path: &str, recursive: bool, api_version: Option<&str>) -> anyhow::Result<String> {
    let (resource, fields) = find(path)?;
    let version = version(resource, api_version)?;
    let root = schema::published(resource.kind, "").unwrap_or_default();
    let mut text =
        format!("GROUP:      {}\nKIND:       {}\nVERSION:    {}\n\n", resource.group, resource.kind, version.name);
    let mut place = Node::new(&root);
    for (index, field) in fields.iter().enumerate() {
        let walked =
            || std::iter::once(resource.kind).chain(fields[..index].iter().copied()).collect::<Vec<_>>().join(".");
        let properties = place.properties();
        let Some(next) = properties.get(*field) else {
            return Err(unknown_field(field, &walked(), properties.keys().map(String::as_str)));
        };
        place = Node::new(next);
        if index + 1 == fields.len() {
            let values = Some(place.values()).filter(|values| !values.is_empty());
            text += &format!("FIELD: {field} <{}>\n{}\n", place.type_name(), values.as_deref().unwrap_or("\n"));
        }
    }
    let descriptions = place.descriptions();
    let (description, end) =
        if descriptions.is_empty() { ("<empty>".to_owned(), "") } else { (descriptions.join("\n"), "\n") };
    let _ = write!(text, "DESCRIPTION:\n{}\n{end}", indent(&wrap(&description, WIDTH), 4));
    let list = place.field_list(1, recursive);
    if !list.is_empty() {
        let _ = write!(text, "FIELDS:\n{list}");
    }
    Ok(text + "\n")
}

/// The kind at the start of a path, and the fields that follow. A group name contains dots itself.
fn find(path: &str) -> anyhow::Result<(&'static Resource, Vec<&str>)> {
    let parts: Vec<&str> = path.split('.').collect();
    anyhow::ensure!(parts.iter().all(|part| !part.is_empty()), "{path:?} is not KIND or KIND.FIELD, with single dots");
    for length in (1..=parts.len()).rev() {
        let name = parts[..length].join(".");
        let called = |resource: &&Resource| {
            let names = [resource.plural, resource.singular, resource.kind].into_iter();
            is_called(&name, resource.group, names.chain(resource.short_names.iter().copied()))
        };
        if let Some(resource) = RESOURCES.iter().find(called) {
            return Ok((resource, parts[length..].to_vec()));
        }
    }
    let names = RESOURCES.iter().flat_map(|resource| {
        [resource.singular, resource.plural].into_iter().chain(resource.short_names.iter().copied())
    });
    let near = nearest(parts[0], names);
    let hint = if near.is_empty() {
        let kinds: Vec<&str> = RESOURCES.iter().map(|resource| resource.singular).collect();
        format!("the kinds are {}", kinds.join(", "))
    } else {
        format!("did you mean {}?", near.join(", "))
    };
    anyhow::bail!("unknown kind {:?}; {hint}", parts[0])
}

fn version(resource: &'static Resource, asked: Option<&str>) -> anyhow::Result<&'static Version> {
    let Some(asked) = asked else {
        return resource.preferred_version().ok_or_else(|| anyhow::anyhow!("{} has no version", resource.kind));
    };
    let found = asked.split_once('/').filter(|(group, _)| *group == resource.group);
    let served = || {
        let all = resource.versions.iter().map(|version| format!("{}/{}", resource.group, version.name));
        all.collect::<Vec<_>>().join(", ")
    };
    found
        .and_then(|(_, version)| resource.version(version))
        .ok_or_else(|| anyhow::anyhow!("{} is not served in {asked}; its versions are {}", resource.kind, served()))
}

fn unknown_field<'a>(field: &str, place: &str, fields: impl Iterator<Item = &'a str> + Clone) -> anyhow::Error {
    let near = nearest(field, fields.clone());
    let all: Vec<&str> = fields.collect();
    let hint = match (near.as_slice(), all.as_slice()) {
        ([], []) => "it has no fields that are known".to_owned(),
        ([], all) => format!("its fields are {}", all.join(", ")),
        (near, _) => format!("did you mean {}?", near.join(", ")),
    };
    anyhow::anyhow!("{place} has no field {field:?}; {hint}")
}

/// A schema, resolved through references, lists and maps.
struct Node {
    schema: Value,
}

impl Node {
    fn new(schema: &Value) -> Self {
        Self { schema: schema.clone() }
    }

    /// The referenced schema: that of object metadata.
    fn referred(&self) -> Option<Node> {
        let reference = self.schema["allOf"][0]["$ref"].as_str()?;
        (reference == schema::METADATA).then(|| Node { schema: schema::metadata() })
    }

    /// The items of a list or the entries of a map.
    fn inner(&self) -> Option<Node> {
        let inner = [&self.schema["items"], &self.schema["additionalProperties"]];
        inner.into_iter().find(|inner| inner.is_object()).map(Node::new)
    }

    /// The fields of this schema or of its items.
    fn properties(&self) -> Map<String, Value> {
        match (self.schema["properties"].as_object(), self.referred().or_else(|| self.inner())) {
            (Some(own), _) if !own.is_empty() => own.clone(),
            (_, Some(other)) => other.properties(),
            _ => Map::new(),
        }
    }

    fn required(&self) -> Vec<String> {
        match (self.schema["required"].as_array(), self.referred().or_else(|| self.inner())) {
            (Some(own), _) => own.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            (None, Some(other)) => other.required(),
            (None, None) => Vec::new(),
        }
    }

    /// `string`, `[]Object`, `map[string]string`.
    fn type_name(&self) -> String {
        if let Some(inner) = self.inner() {
            let name = inner.type_name();
            return if self.schema["items"].is_object() { format!("[]{name}") } else { format!("map[string]{name}") };
        }
        if self.referred().is_some() {
            return schema::METADATA.rsplit('.').next().unwrap_or_default().to_owned();
        }
        match self.schema["type"].as_str() {
            None | Some("object") => "Object".to_owned(),
            Some(name) => name.to_owned(),
        }
    }

    /// The values of an enum, one per line; empty if it is none.
    fn values(&self) -> String {
        let lines = self.choices().map(|value| format!("    {value}\n")).collect::<String>();
        if lines.is_empty() { lines } else { format!("ENUM:\n{lines}") }
    }

    fn choices(&self) -> impl Iterator<Item = String> {
        let values = self.schema["enum"].as_array().cloned().unwrap_or_default();
        values.into_iter().map(|value| match value {
            Value::String(text) if text.is_empty() => "\"\"".to_owned(),
            Value::String(text) => text,
            other => other.to_string(),
        })
    }

    /// The descriptions of the schema and of its items.
    fn descriptions(&self) -> Vec<String> {
        let own = self.schema["description"].as_str().map(str::to_owned);
        let other = self.referred().or_else(|| self.inner()).map(|inner| inner.descriptions());
        own.into_iter().chain(other.into_iter().flatten()).collect()
    }

    fn field_list(&self, level: usize, recursive: bool) -> String {
        let required = self.required();
        let pad = " ".repeat(level * 2);
        let mut text = String::new();
        let mut properties: Vec<(String, Value)> = self.properties().into_iter().collect();
        properties.sort_by(|one, other| one.0.cmp(&other.0));
        for (name, schema) in properties {
            let node = Node { schema };
            let mark = if required.contains(&name) { " -required-" } else { "" };
            let _ = writeln!(text, "{pad}{name}\t<{}>{mark}", node.type_name());
            let values: Vec<String> = node.choices().collect();
            if !values.is_empty() {
                let more = if values.len() > SHOWN_VALUES { ", ...." } else { "" };
                let shown = values[..values.len().min(SHOWN_VALUES)].join(", ");
                let _ = writeln!(text, "{pad}enum: {shown}{more}");
            }
            if recursive {
                text += &node.field_list(level + 1, true);
            } else {
                let description = node.schema["description"].as_str().unwrap_or("<no description>");
                let _ = writeln!(text, "{}\n", indent(&wrap(description, WIDTH + 2 - pad.len()), pad.len() + 2));
            }
        }
        text
    }
}

fn indent(lines: &str, by: usize) -> String {
    lines.lines().map(|line| format!("{:by$}{line}", "")).collect::<Vec<_>>().join("\n")
}

/// Breaks lines between words.
fn wrap(text: &str, width: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for paragraph in text.lines() {
        let mut line = String::new();
        for word in paragraph.split_whitespace() {
            if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
                lines.push(std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line += word;
        }
        lines.push(line);
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(path: &str, recursive: bool) -> String {
        explain(path, recursive, None).unwrap()
    }

    #[test]
    fn a_field_is_explained_with_its_type_its_values_and_its_fields() {
        let want = "\
GROUP:      clone.kubevirt.io
KIND:       VirtualMachineClone
VERSION:    v1beta1

FIELD: volumeNamePolicy <string>
ENUM:
    RandomizeNames
    PrefixTargetName

DESCRIPTION:
    <empty>

";
        assert_eq!(show("vmclone.spec.volumeNamePolicy", false), want);
        let want = "\
GROUP:      kubevirt.io
KIND:       VirtualMachine
VERSION:    v1

FIELD: preference <Object>


DESCRIPTION:
    <empty>
FIELDS:
  inferFromVolume\t<string>
    <no description>

  inferFromVolumeFailurePolicy\t<string>
    <no description>

  kind\t<string>
    <no description>

  name\t<string>
    <no description>

  revisionName\t<string>
    <no description>


";
        assert_eq!(show("vm.spec.preference", false), want);
    }

    #[test]
    fn fields_of_fields_follow_without_descriptions() {
        let want = "\
GROUP:      kubevirt.io
KIND:       VirtualMachineInstanceReplicaSet
VERSION:    v1

FIELD: conditions <[]Object>


DESCRIPTION:
    <empty>
FIELDS:
  lastProbeTime\t<string>
  lastTransitionTime\t<string>
  message\t<string>
  reason\t<string>
  status\t<string> -required-
  type\t<string> -required-

";
        assert_eq!(show("vmirs.status.conditions", true), want);
        let whole = show("kubevirt", true);
        assert!(
            whole.contains("\n      developerConfiguration\t<Object>\n        clusterProfiler\t<boolean>\n"),
            "{whole}"
        );
        assert!(whole.contains("\n  metadata\t<ObjectMeta>\n    annotations\t<map[string]string>\n"), "{whole}");
    }

    #[test]
    fn a_kind_is_found_by_every_name_and_every_kind_is_explained() {
        for name in [
            "vmpool",
            "vmpools",
            "VirtualMachinePool",
            "virtualmachinepools.pool.kubevirt.io",
            "vmpools.pool.kubevirt.io",
        ] {
            let path = format!("{name}.spec.replicas");
            let (resource, fields) = find(&path).unwrap();
            assert_eq!((resource.kind, fields), ("VirtualMachinePool", vec!["spec", "replicas"]), "{name}");
        }
        for resource in RESOURCES {
            let text = show(resource.plural, false);
            assert!(text.contains("FIELDS:\n  apiVersion\t<string>\n"), "{text}");
            for version in resource.versions {
                let asked = format!("{}/{}", resource.group, version.name);
                let text = explain(resource.kind, true, Some(&asked)).unwrap();
                assert!(text.contains(&format!("VERSION:    {}\n", version.name)), "{text}");
            }
        }
    }

    #[test]
    fn mistakes_are_answered_with_what_was_meant() {
        let table = [
            ("vm.spec.runStrtegy", r#"VirtualMachine.spec has no field "runStrtegy"; did you mean runStrategy?"#),
            ("vm.spec.colour", r#"VirtualMachine.spec has no field "colour"; its fields are dataVolumeTemplates, "#),
            ("vm.spec.running.x", r#"VirtualMachine.spec.running has no field "x"; it has no fields that are known"#),
            ("vmm", r#"unknown kind "vmm"; did you mean vm"#),
            ("deployment", r#"unknown kind "deployment"; the kinds are virtualmachine, "#),
            ("vm..spec", "is not KIND or KIND.FIELD"),
        ];
        for (path, want) in table {
            let error = explain(path, false, None).unwrap_err().to_string();
            assert!(error.contains(want), "{path}: {error}");
        }
        let error = explain("vmpool", false, Some("pool.kubevirt.io/v2")).unwrap_err().to_string();
        let want = "VirtualMachinePool is not served in pool.kubevirt.io/v2; its versions are \
                    pool.kubevirt.io/v1alpha1, pool.kubevirt.io/v1beta1";
        assert_eq!(error, want);
    }

    #[test]
    fn long_descriptions_are_broken_between_words() {
        assert_eq!(wrap("one two three\nfour", 7), "one two\nthree\nfour");
        assert_eq!(indent("a\nb", 2), "  a\n  b");
    }
}
