//! `get`: objects as tables, YAML, JSON or names.

use std::process::ExitCode;

use futures::TryStreamExt as _;
use http::header::{ACCEPT, HeaderValue};
use kube::api::{GetParams, ListParams, WatchEvent, WatchParams};
use kube::core::Request;
use machinery::age;
use serde_json::{Value, json};
use terminal::output::print;
use virtctl::connect::{ConnectArgs, Session};

use super::errors::server_error;
use super::manifest::to_yaml;
use super::resources::{Catalogue, ResourceType};
use super::table::{self, Layout, Printer, Table};
use super::targets::{self, Target};

/// Page size of a long list.
const PAGE: u32 = 500;

/// Show objects
///
/// Kinds are named as in kubectl: vm, vmi, pods, nodes, …; separate several by commas. `all` selects the usual ones.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    connect: ConnectArgs,
    /// What to show: KIND, KIND NAME… or KIND/NAME…
    #[arg(required = true, value_name = "KIND [NAME]")]
    targets: Vec<String>,
    /// List objects of all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    /// Watch for changes after listing
    #[arg(short, long)]
    watch: bool,
    /// Label selector, for example app=demo
    #[arg(short = 'l', long)]
    selector: Option<String>,
    /// Field selector, for example status.phase=Running
    #[arg(long)]
    field_selector: Option<String>,
    /// Show labels in the last column
    #[arg(long)]
    show_labels: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// A table
    #[default]
    Table,
    /// A table with more columns
    Wide,
    /// Manifests in YAML
    Yaml,
    /// Manifests in JSON
    Json,
    /// KIND/NAME, one per line
    Name,
}

impl Output {
    fn is_table(self) -> bool {
        matches!(self, Output::Table | Output::Wide)
    }
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let session = args.connect.connect().await?;
    let catalogue = Catalogue::load(&session).await?;
    let targets = targets::resolve(&catalogue, &args.targets)?;
    let get = Get { session, args };
    match targets.as_slice() {
        [target] if get.args.watch && target.names.len() <= 1 => get.watch(target).await,
        _ if get.args.watch => anyhow::bail!("--watch follows one kind or one object; name only one"),
        _ => get.show(&targets).await,
    }
}

struct Get {
    session: Session,
    args: Args,
}

/// The requested objects, as far as they exist.
#[derive(Default)]
struct Found {
    /// Responses of the server: tables, or objects and lists.
    answers: Vec<(ResourceType, Value)>,
    missing: Vec<anyhow::Error>,
}

impl Get {
    async fn show(&self, targets: &[Target]) -> anyhow::Result<ExitCode> {
        let found = self.fetch(targets).await?;
        if self.args.output.is_table() {
            self.print_tables(&found)?;
        } else {
            let single = matches!(targets, [target] if target.names.len() == 1);
            self.print_objects(&found, single)?;
        }
        for error in &found.missing {
            eprintln!("error: {error:#}");
        }
        Ok(if found.missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    async fn fetch(&self, targets: &[Target]) -> anyhow::Result<Found> {
        let mut found = Found::default();
        for Target { resource, names } in targets {
            for name in names {
                match self.get(resource, name).await {
                    Ok(answer) => found.answers.push((resource.clone(), answer)),
                    Err(kube::Error::Api(status)) if status.code == 404 => {
                        found.missing.push(server_error(kube::Error::Api(status), &self.session.server));
                    }
                    Err(error) => return Err(server_error(error, &self.session.server)),
                }
            }
            if names.is_empty() {
                let pages = self.list(resource, None).await?;
                found.answers.extend(pages.into_iter().map(|page| (resource.clone(), page)));
            }
        }
        Ok(found)
    }

    async fn get(&self, resource: &ResourceType, name: &str) -> Result<Value, kube::Error> {
        let path = resource.path(Some(&self.session.namespace), None);
        let request = Request::new(path).get(name, &GetParams::default()).map_err(kube::Error::BuildRequest)?;
        self.session.client.request(self.ask_for_table(request)).await
    }

    /// All pages of a list.
    async fn list(&self, resource: &ResourceType, fields: Option<&str>) -> anyhow::Result<Vec<Value>> {
        let mut params = ListParams::default().limit(PAGE);
        params.label_selector.clone_from(&self.args.selector);
        params.field_selector = fields.map(str::to_owned).or_else(|| self.args.field_selector.clone());
        let mut pages = Vec::new();
        loop {
            let request = Request::new(resource.path(self.namespace(), None)).list(&params)?;
            let page: Value = self
                .session
                .client
                .request(self.ask_for_table(request))
                .await
                .map_err(|error| server_error(error, &self.session.server))?;
            let next = page.pointer("/metadata/continue").and_then(Value::as_str).unwrap_or_default().to_owned();
            pages.push(page);
            if next.is_empty() {
                return Ok(pages);
            }
            params = params.continue_token(&next);
        }
    }

    fn namespace(&self) -> Option<&str> {
        (!self.args.all_namespaces).then_some(&self.session.namespace)
    }

    fn ask_for_table(&self, mut request: http::Request<Vec<u8>>) -> http::Request<Vec<u8>> {
        if self.args.output.is_table() {
            request.headers_mut().insert(ACCEPT, HeaderValue::from_static(table::ACCEPT));
        }
        request
    }

    fn print_tables(&self, found: &Found) -> anyhow::Result<()> {
        let kinds: Vec<&ResourceType> = distinct(found.answers.iter().map(|(resource, _)| resource));
        let mut printed = 0;
        for resource in &kinds {
            let prefix = (kinds.len() > 1).then(|| format!("{}/", resource.singular_with_group()));
            let mut printer = Printer::default();
            let answers = found.answers.iter().filter(|(kind, _)| kind == *resource).map(|(_, answer)| answer);
            let table = merge(answers.map(as_table));
            if table.rows.is_empty() {
                continue;
            }
            if printed > 0 {
                print("\n")?;
            }
            printed += 1;
            print_lines(&printer.lines(&table, self.layout(resource, prefix.as_deref())))?;
        }
        if printed == 0 && found.missing.is_empty() {
            let everywhere = self.args.all_namespaces || kinds.iter().all(|resource| !resource.namespaced);
            let place = if everywhere { String::new() } else { format!(" in {} namespace", self.session.namespace) };
            eprintln!("No resources found{place}.");
        }
        Ok(())
    }

    fn layout<'a>(&self, resource: &ResourceType, prefix: Option<&'a str>) -> Layout<'a> {
        Layout {
            wide: self.args.output == Output::Wide,
            namespace: self.args.all_namespaces && resource.namespaced,
            labels: self.args.show_labels,
            prefix,
        }
    }

    fn print_objects(&self, found: &Found, single: bool) -> anyhow::Result<()> {
        let mut objects: Vec<Value> = Vec::new();
        for (resource, answer) in &found.answers {
            objects.extend(items(resource, answer));
        }
        objects.iter_mut().for_each(hide_managed_fields);
        match (self.args.output, objects.as_slice()) {
            (Output::Name, _) => print_lines(&names(&found.answers)),
            (_, [object]) if single => self.print_value(object),
            (_, []) if single => Ok(()),
            (_, objects) => {
                self.print_value(&json!({"apiVersion": "v1", "kind": "List", "items": objects, "metadata": {}}))
            }
        }
    }

    fn print_value(&self, value: &Value) -> anyhow::Result<()> {
        let text = if self.args.output == Output::Json {
            serde_json::to_string_pretty(value)? + "\n"
        } else {
            to_yaml(value)?
        };
        Ok(print(&text)?)
    }

    /// Shows the current objects, then every change until interrupted. A watch that ends is resumed.
    async fn watch(&self, target: &Target) -> anyhow::Result<ExitCode> {
        let Target { resource, names } = target;
        let fields = names.first().map(|name| format!("metadata.name={name}"));
        let mut printer = Printer::default();
        let mut version = None;
        loop {
            let from = match version.take() {
                Some(version) => version,
                None => {
                    let pages = self.list(resource, fields.as_deref()).await?;
                    pages.iter().try_for_each(|page| self.print_event(resource, page, &mut printer))?;
                    let last = pages.last().and_then(|page| page.pointer("/metadata/resourceVersion"));
                    last.and_then(Value::as_str).unwrap_or("0").to_owned()
                }
            };
            version = self.follow(resource, fields.as_deref(), from, &mut printer).await?;
        }
    }

    /// Runs one watch; returns the version to resume from, or `None` if it has expired.
    async fn follow(
        &self,
        resource: &ResourceType,
        fields: Option<&str>,
        from: String,
        printer: &mut Printer,
    ) -> anyhow::Result<Option<String>> {
        let params = WatchParams {
            label_selector: self.args.selector.clone(),
            field_selector: fields.map(str::to_owned).or_else(|| self.args.field_selector.clone()),
            bookmarks: false,
            ..WatchParams::default()
        };
        let request = Request::new(resource.path(self.namespace(), None)).watch(&params, &from)?;
        let failed = |error| server_error(error, &self.session.server);
        let events = self.session.client.request_events::<Value>(self.ask_for_table(request)).await.map_err(failed)?;
        let mut events = std::pin::pin!(events);
        let mut last = from;
        while let Some(event) = events.try_next().await.map_err(failed)? {
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object) => {
                    self.print_event(resource, &object, printer)?;
                    if let Some(version) = version_of(&object) {
                        last = version;
                    }
                }
                WatchEvent::Error(status) if status.code == 410 => return Ok(None),
                WatchEvent::Error(status) => return Err(failed(kube::Error::Api(status))),
                WatchEvent::Bookmark(_) => {}
            }
        }
        Ok(Some(last))
    }

    fn print_event(&self, resource: &ResourceType, answer: &Value, printer: &mut Printer) -> anyhow::Result<()> {
        if self.args.output.is_table() {
            return print_lines(&printer.lines(&as_table(answer), self.layout(resource, None)));
        }
        for mut object in items(resource, answer) {
            hide_managed_fields(&mut object);
            if self.args.output == Output::Name {
                print_lines(&[format!("{}/{}", resource.singular_with_group(), name_of(&object))])?;
            } else {
                if self.args.output == Output::Yaml {
                    print("---\n")?;
                }
                self.print_value(&object)?;
            }
        }
        Ok(())
    }
}

/// The resource version after an event.
fn version_of(event: &Value) -> Option<String> {
    let paths = ["/rows/0/object/metadata/resourceVersion", "/metadata/resourceVersion"];
    let found = paths.iter().filter_map(|path| event.pointer(path)?.as_str()).find(|version| !version.is_empty());
    found.map(str::to_owned)
}

/// The objects of a response: itself, or the items of a list, each with its kind, which lists omit.
fn items(resource: &ResourceType, answer: &Value) -> Vec<Value> {
    let Some(items) = answer.get("items").and_then(Value::as_array) else { return vec![answer.clone()] };
    let with_kind = |item: &Value| {
        let mut object = json!({"apiVersion": resource.api_version(), "kind": resource.kind});
        if let (Value::Object(object), Value::Object(item)) = (&mut object, item) {
            object.extend(item.clone());
        }
        object
    };
    items.iter().map(with_kind).collect()
}

/// The table of a response. A server without table support returns objects, of which name and age are shown.
fn as_table(answer: &Value) -> Table {
    if answer.get("kind").and_then(Value::as_str) == Some("Table")
        && let Ok(table) = serde_json::from_value(answer.clone())
    {
        return table;
    }
    let now = jiff::Timestamp::now();
    let one = [answer.clone()];
    let objects = answer.get("items").and_then(Value::as_array).map_or(one.as_slice(), Vec::as_slice);
    let rows = objects.iter().map(|object| {
        let created = object.pointer("/metadata/creationTimestamp").and_then(Value::as_str);
        let age = created.and_then(|time| time.parse().ok()).map(|time| age::since(time, now));
        json!({"cells": [name_of(object), age], "object": {"metadata": object.get("metadata")}})
    });
    let columns = json!([{"name": "Name", "format": "name"}, {"name": "Age"}]);
    let table = json!({"columnDefinitions": columns, "rows": rows.collect::<Vec<_>>()});
    serde_json::from_value(table).unwrap_or_default()
}

fn merge(tables: impl Iterator<Item = Table>) -> Table {
    tables
        .reduce(|mut all, next| {
            all.rows.extend(next.rows);
            all
        })
        .unwrap_or_default()
}

fn names(answers: &[(ResourceType, Value)]) -> Vec<String> {
    let names = answers.iter().flat_map(|(resource, answer)| {
        items(resource, answer)
            .into_iter()
            .map(|object| format!("{}/{}", resource.singular_with_group(), name_of(&object)))
    });
    names.collect()
}

fn distinct<'a>(kinds: impl Iterator<Item = &'a ResourceType>) -> Vec<&'a ResourceType> {
    let mut seen = Vec::new();
    kinds.for_each(|kind| {
        if !seen.contains(&kind) {
            seen.push(kind);
        }
    });
    seen
}

fn name_of(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

/// kubectl hides managed fields too.
fn hide_managed_fields(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}

fn print_lines(lines: &[String]) -> anyhow::Result<()> {
    Ok(print(&lines.iter().map(|line| format!("{line}\n")).collect::<String>())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_tables_still_gives_names() {
        let list = json!({"items": [{"metadata": {"name": "a", "creationTimestamp": "2020-01-01T00:00:00Z"}}, {"metadata": {"name": "b"}}]});
        let lines = Printer::default().lines(&as_table(&list), Layout::default());
        assert_eq!(lines[0], "NAME   AGE");
        assert!(lines[1].starts_with("a      ") && lines[1].contains('y'), "{lines:?}");
        assert_eq!(lines[2], "b      <none>");
    }

    #[test]
    fn events_tell_the_version_to_go_on_from() {
        let table =
            json!({"kind": "Table", "metadata": {}, "rows": [{"object": {"metadata": {"resourceVersion": "7"}}}]});
        assert_eq!(version_of(&table).as_deref(), Some("7"));
        assert_eq!(version_of(&json!({"metadata": {"resourceVersion": "8"}})).as_deref(), Some("8"));
        assert_eq!(version_of(&json!({"metadata": {"resourceVersion": ""}})), None);
    }
}
