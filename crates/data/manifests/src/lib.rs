//! Parses manifests: several YAML or JSON documents, with their origin.
//!
//! Strict where a mistake would otherwise go unnoticed (a duplicate key, a document that is not an object); every error
//! names the file, the document and the line.

use std::fmt;

use serde_json::Value;
use serde_saphyr::options::DuplicateKeyPolicy;

/// Where a document comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The file, or "standard input".
    pub file: String,
    /// Counted from one.
    pub document: usize,
    /// The line the document begins on, counted from one.
    pub line: usize,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, document {} (line {})", self.file, self.document, self.line)
    }
}

/// One object of a manifest.
#[derive(Clone, Debug)]
pub struct Document {
    pub origin: Origin,
    pub object: Value,
}

impl Document {
    pub fn api_version(&self) -> &str {
        self.text("/apiVersion")
    }

    pub fn kind(&self) -> &str {
        self.text("/kind")
    }

    pub fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    pub fn namespace(&self) -> Option<&str> {
        Some(self.text("/metadata/namespace")).filter(|namespace| !namespace.is_empty())
    }

    fn text(&self, pointer: &str) -> &str {
        self.object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }
}

/// Text that is not a manifest.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The text is neither YAML nor JSON.
    #[error("{file}, document {document}, line {line}: {problem}")]
    Syntax { file: String, document: usize, line: usize, problem: String },
    /// A document is not an object.
    #[error("{origin}: {problem}")]
    Object { origin: Origin, problem: String },
}

/// The documents of one file.
pub fn parse_bytes(file: &str, bytes: &[u8]) -> Result<Vec<Document>, ReadError> {
    match std::str::from_utf8(bytes) {
        Ok(text) => parse(file, text),
        Err(error) => {
            let good = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
            Err(ReadError::Syntax {
                file: file.to_owned(),
                document: split(&good).len().max(1),
                line: good.matches('\n').count() + 1,
                problem: "the text is not UTF-8".to_owned(),
            })
        }
    }
}

/// The documents of one text. Items of a `List` are documents of their own.
pub fn parse(file: &str, text: &str) -> Result<Vec<Document>, ReadError> {
    let mut documents = Vec::new();
    for (number, (first_line, chunk)) in split(text).into_iter().enumerate() {
        let origin = Origin { file: file.to_owned(), document: number + 1, line: first_line };
        let value = value(chunk).map_err(|error| ReadError::Syntax {
            file: file.to_owned(),
            document: origin.document,
            line: first_line + error.location().map_or(0, |location| location.line() as usize).saturating_sub(1),
            problem: problem(&error),
        })?;
        if !value.is_null() {
            documents.extend(objects(origin, value)?);
        }
    }
    Ok(documents)
}

/// One document. JSON is nearly a subset of YAML; the rest (a character as two escapes) is parsed as JSON.
fn value(chunk: &str) -> Result<Value, serde_saphyr::Error> {
    let read = serde_saphyr::from_str_with_options(chunk, options());
    match read {
        Err(error) if !matches!(error.without_snippet(), serde_saphyr::Error::DuplicateMappingKey { .. }) => {
            serde_json::from_str(chunk).map_err(|_| error)
        }
        read => read,
    }
}

/// Like kubectl: no duplicate keys, and a file mode such as 0644 is octal.
fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::Error,
        legacy_octal_numbers: true,
        with_snippet: false,
    }
}

/// The parser's message without the position, which we report ourselves: it counts from the document's start.
fn problem(error: &serde_saphyr::Error) -> String {
    let text = error.render_with_formatter(&serde_saphyr::UserMessageFormatter);
    let text = text.lines().next().unwrap_or_default();
    match text.find(" at line ") {
        Some(position) => text[..position].to_owned(),
        None => text.to_owned(),
    }
}

/// Splits a stream into documents, each with the line it begins on.
fn split(text: &str) -> Vec<(usize, &str)> {
    split_at_markers(text).into_iter().flat_map(|(line, chunk)| split_json(line, chunk)).collect()
}

/// Splits a stream at its document markers. A marker cannot occur inside a document, not even in a block scalar.
fn split_at_markers(text: &str) -> Vec<(usize, &str)> {
    let mut chunks = Vec::new();
    let (mut start, mut first_line, mut offset) = (0, 1, 0);
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let marker =
            line.strip_prefix("---").is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace));
        if marker && offset > start {
            chunks.push((first_line, &text[start..offset]));
            (start, first_line) = (offset, index + 1);
        }
        offset += line.len();
    }
    chunks.push((first_line, &text[start..]));
    chunks.retain(|(_, chunk)| chunk.lines().any(has_content));
    chunks
}

/// Splits a stream of JSON values, which need no marker between them. Anything else stays in one piece.
fn split_json(first_line: usize, text: &str) -> Vec<(usize, &str)> {
    let whole = vec![(first_line, text)];
    let (marker, values) = match text.starts_with("---") {
        true => text.split_at(text.find('\n').map_or(text.len(), |end| end + 1)),
        false => ("", text),
    };
    if !values.trim_start().starts_with('{') {
        return whole;
    }
    let mut pieces = Vec::new();
    let (mut start, mut line) = (0, first_line + marker.lines().count());
    let mut stream = serde_json::Deserializer::from_str(values).into_iter::<serde::de::IgnoredAny>();
    while let Some(value) = stream.next() {
        if value.is_err() {
            return whole;
        }
        let piece = &values[start..stream.byte_offset()];
        let before = piece.len() - piece.trim_start().len();
        pieces.push((line + piece[..before].matches('\n').count(), &piece[before..]));
        line += piece.matches('\n').count();
        start = stream.byte_offset();
    }
    pieces
}

fn has_content(line: &str) -> bool {
    let line = line.trim();
    !(line.is_empty() || line.starts_with('#') || line.starts_with('%') || line == "---" || line == "...")
}

/// A document's objects: itself, or the items of a list.
fn objects(origin: Origin, value: Value) -> Result<Vec<Document>, ReadError> {
    let refuse = |problem: &str| Err(ReadError::Object { origin: origin.clone(), problem: problem.to_owned() });
    if !value.is_object() {
        return refuse("is not an object; a manifest is a mapping with apiVersion, kind and metadata");
    }
    let document = Document { origin: origin.clone(), object: value };
    if document.api_version().is_empty() {
        return refuse("apiVersion is not set");
    }
    if document.kind().is_empty() {
        return refuse("kind is not set");
    }
    if document.kind() != "List" {
        return Ok(vec![document]);
    }
    match document.object.get("items") {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(items)) => {
            let each = items.iter().map(|item| objects(origin.clone(), item.clone()));
            Ok(each.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
        }
        Some(_) => refuse("items is not a list"),
    }
}

/// Formats an object as readable YAML.
pub fn to_yaml(value: &impl serde::Serialize) -> Result<String, serde_saphyr::ser::Error> {
    // Long lines are not folded: that would make them hard to search for.
    let options = serde_saphyr::ser_options! { folded_wrap_chars: usize::MAX };
    serde_saphyr::to_string_with_options(value, options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<(String, usize)> {
        let documents = parse("m.yaml", text).unwrap();
        documents.iter().map(|document| (document.kind().to_owned(), document.origin.line)).collect()
    }

    #[test]
    fn documents_know_their_lines() {
        let text =
            "# first\napiVersion: v1\nkind: A\n---\n\n---\n# nothing here\n--- # second\napiVersion: v1\nkind: B\n";
        assert_eq!(kinds(text), [("A".into(), 1), ("B".into(), 8)]);
        assert_eq!(kinds("{\"apiVersion\": \"v1\", \"kind\": \"C\"}"), [("C".into(), 1)]);
        assert_eq!(kinds("---\napiVersion: v1\nkind: A\ndata: |\n  --- not a marker\n"), [("A".into(), 1)]);
        assert_eq!(kinds(""), []);
    }

    #[test]
    fn json_values_follow_each_other_without_markers() {
        let text = "{\"apiVersion\": \"v1\",\n \"kind\": \"A\"}\n\n{\"apiVersion\": \"v1\", \"kind\": \"B\"}\n---\napiVersion: v1\nkind: C\n\
                    ---\n{\"apiVersion\": \"v1\", \"kind\": \"D\"} {\"apiVersion\": \"v1\", \"kind\": \"E\"}";
        assert_eq!(kinds(text), [("A".into(), 1), ("B".into(), 4), ("C".into(), 5), ("D".into(), 9), ("E".into(), 9)]);
    }

    #[test]
    fn values_are_read_as_kubectl_reads_them() {
        let text = "apiVersion: v1\nkind: A\nbase: &base {mode: 0644}\nmerged: {<<: *base, size: 1Gi, on: true}\n\
                    version: \"1.10\"\nbig: 9223372036854775807\n";
        let object = parse("m.yaml", text).unwrap().remove(0).object;
        assert_eq!(object["merged"], serde_json::json!({"mode": 420, "size": "1Gi", "on": true}));
        assert_eq!(object["version"], "1.10");
        assert_eq!(object["big"], i64::MAX);
        let json = "{\"apiVersion\": \"v1\", \"kind\": \"A\", \"text\": \"\\ud83d\\ude00 \\/\",\n\t\"tab\": 1}";
        assert_eq!(parse("m.json", json).unwrap().remove(0).object["text"], "\u{1f600} /");
    }

    #[test]
    fn text_that_is_not_utf8_is_named_with_its_line() {
        let error = parse_bytes("m.yaml", b"apiVersion: v1\nkind: A\n---\nkind: B\nname: \xff\n").unwrap_err();
        assert_eq!(error.to_string(), "m.yaml, document 2, line 5: the text is not UTF-8");
    }

    #[test]
    fn the_items_of_a_list_are_objects() {
        let text = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: A}\n- {apiVersion: v1, kind: B}\n";
        assert_eq!(kinds(text), [("A".into(), 1), ("B".into(), 1)]);
    }

    #[test]
    fn mistakes_are_named_with_file_document_and_line() {
        let good = "apiVersion: v1\nkind: A\n---\n";
        let cases = [
            ("apiVersion: v1\nkind: A\nkind: B\n", "m.yaml, document 2, line 6: duplicate mapping key: kind"),
            ("apiVersion: v1\nkind: [A\n", "m.yaml, document 2, line "),
            (
                "{\"apiVersion\": \"v1\",\n\"kind\": \"A\", \"kind\": \"B\"}\n",
                "m.yaml, document 2, line 5: duplicate mapping key: kind",
            ),
            ("kind: A\n", "m.yaml, document 2 (line 3): apiVersion is not set"),
            ("apiVersion: v1\n", "m.yaml, document 2 (line 3): kind is not set"),
            ("- a\n", "m.yaml, document 2 (line 3): is not an object"),
        ];
        for (bad, want) in cases {
            let error = parse("m.yaml", &format!("{good}{bad}")).unwrap_err().to_string();
            assert!(error.starts_with(want), "{bad:?}: {error}");
        }
    }

    #[test]
    fn yaml_output_keeps_text_blocks_and_types() {
        let value = serde_json::json!({"text": "#!/bin/sh\necho hi\n", "yes": "yes", "number": "12", "long": "word ".repeat(40)});
        let yaml = to_yaml(&value).unwrap();
        assert!(yaml.contains("text: |\n  #!/bin/sh\n  echo hi\n"), "{yaml}");
        let back: Value = serde_saphyr::from_str(&yaml).unwrap();
        assert_eq!(back, value, "{yaml}");
    }
}
