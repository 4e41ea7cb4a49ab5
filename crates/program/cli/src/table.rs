//! The server's tables, printed in kubectl's layout.

use serde::Deserialize;
use serde_json::Value;

/// Accept header of a request for a table.
pub(crate) const ACCEPT: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Table {
    pub(crate) metadata: ListMeta,
    pub(crate) column_definitions: Vec<Column>,
    pub(crate) rows: Vec<Row>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ListMeta {
    pub(crate) resource_version: String,
    #[serde(rename = "continue")]
    pub(crate) next: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) format: String,
    /// Columns above 0 are for `-o wide`.
    pub(crate) priority: i32,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Row {
    pub(crate) cells: Vec<Value>,
    /// The object's metadata.
    pub(crate) object: Value,
}

/// How to show a table.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Layout<'a> {
    pub(crate) wide: bool,
    pub(crate) namespace: bool,
    pub(crate) labels: bool,
    /// Prefix of each name, for tables of several kinds: `virtualmachine.kubevirt.io/`.
    pub(crate) prefix: Option<&'a str>,
}

/// Formats tables as lines. Later rows (of a watch) keep the column widths of earlier ones.
#[derive(Default)]
pub(crate) struct Printer {
    columns: Vec<Column>,
    widths: Vec<usize>,
}

/// Gap between two columns.
const GAP: usize = 3;

impl Printer {
    /// The lines of a table: the header, unless it was printed before, and one line per row.
    pub(crate) fn lines(&mut self, table: &Table, layout: Layout<'_>) -> Vec<String> {
        let mut grid = Vec::new();
        // In a watch only the first event carries the columns.
        if !table.column_definitions.is_empty() && self.columns.is_empty() {
            self.columns.clone_from(&table.column_definitions);
            grid.push(self.header(layout));
        }
        grid.extend(table.rows.iter().map(|row| self.row(row, layout)));
        grid.iter().for_each(|cells| self.widen(cells));
        grid.iter().map(|cells| self.line(cells)).collect()
    }

    fn shown(&self, layout: Layout<'_>) -> impl Iterator<Item = (usize, &Column)> {
        self.columns.iter().enumerate().filter(move |(_, column)| layout.wide || column.priority == 0)
    }

    fn header(&self, layout: Layout<'_>) -> Vec<String> {
        let mut cells: Vec<String> = layout.namespace.then(|| "NAMESPACE".to_owned()).into_iter().collect();
        cells.extend(self.shown(layout).map(|(_, column)| column.name.to_uppercase()));
        cells.extend(layout.labels.then(|| "LABELS".to_owned()));
        cells
    }

    fn row(&self, row: &Row, layout: Layout<'_>) -> Vec<String> {
        let metadata = row.object.get("metadata");
        let namespace = metadata.and_then(|metadata| metadata.get("namespace")).and_then(Value::as_str);
        let mut cells: Vec<String> =
            layout.namespace.then(|| namespace.unwrap_or_default().to_owned()).into_iter().collect();
        for (index, column) in self.shown(layout) {
            let text = cell(row.cells.get(index).unwrap_or(&Value::Null));
            let prefix = layout.prefix.filter(|_| column.format == "name").unwrap_or_default();
            cells.push(format!("{prefix}{text}"));
        }
        cells.extend(layout.labels.then(|| labels(metadata.and_then(|metadata| metadata.get("labels")))));
        cells
    }

    fn widen(&mut self, cells: &[String]) {
        self.widths.resize(self.widths.len().max(cells.len()), 0);
        for (width, cell) in self.widths.iter_mut().zip(cells) {
            *width = (*width).max(cell.chars().count());
        }
    }

    fn line(&self, cells: &[String]) -> String {
        let mut line = String::new();
        for (index, (cell, width)) in cells.iter().zip(&self.widths).enumerate() {
            if index + 1 == cells.len() {
                line.push_str(cell);
            } else {
                let width = width + GAP;
                line.push_str(&format!("{cell:width$}"));
            }
        }
        line
    }
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "<none>".to_owned(),
        // One line per row, even for multi-line values.
        Value::String(text) => text.lines().next().unwrap_or_default().to_owned(),
        other => other.to_string(),
    }
}

/// `a=b,c=d`, or `<none>`.
pub(crate) fn labels(labels: Option<&Value>) -> String {
    let pairs: Vec<String> = labels
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    if pairs.is_empty() { "<none>".to_owned() } else { pairs.join(",") }
}

/// Aligns rows under a header, with kubectl's gap.
pub(crate) fn align(header: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    let mut printer = Printer::default();
    let header: Vec<String> = header.iter().map(|&name| name.to_owned()).collect();
    printer.widen(&header);
    rows.iter().for_each(|row| printer.widen(row));
    std::iter::once(&header).chain(rows).map(|row| printer.line(row)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn table() -> Table {
        serde_json::from_value(json!({
            "columnDefinitions": [
                {"name": "Name", "format": "name", "priority": 0}, {"name": "Age", "priority": 0},
                {"name": "Ready", "priority": 0}, {"name": "Node", "priority": 1}],
            "rows": [
                {"cells": ["demo", "3s", true, "n1"], "object": {"metadata": {"namespace": "default", "labels": {"b": "2", "a": "1"}}}},
                {"cells": ["a-longer-name", "10m", null, "n2\nsecond line"], "object": {"metadata": {"namespace": "kube-system"}}}]
        }))
        .unwrap()
    }

    fn show(layout: Layout<'_>) -> String {
        Printer::default().lines(&table(), layout).join("\n")
    }

    #[test]
    fn columns_are_aligned_and_wide_ones_hidden() {
        assert_eq!(
            show(Layout::default()),
            "NAME            AGE   READY\ndemo            3s    true\na-longer-name   10m   <none>"
        );
    }

    #[test]
    fn wide_namespace_labels_and_prefix_are_added() {
        assert_eq!(
            show(Layout { wide: true, namespace: true, labels: true, prefix: Some("vm/") }),
            "NAMESPACE     NAME               AGE   READY    NODE   LABELS\n\
             default       vm/demo            3s    true     n1     a=1,b=2\n\
             kube-system   vm/a-longer-name   10m   <none>   n2     <none>"
        );
    }

    #[test]
    fn rows_of_a_watch_keep_the_header_and_the_widths() {
        let mut printer = Printer::default();
        printer.lines(&table(), Layout::default());
        let mut event = table();
        event.rows.truncate(1);
        assert_eq!(printer.lines(&event, Layout::default()), ["demo            3s    true"]);
        event.column_definitions.clear();
        assert_eq!(printer.lines(&event, Layout::default()), ["demo            3s    true"]);
    }
}
