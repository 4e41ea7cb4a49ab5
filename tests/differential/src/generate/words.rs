//! The words that fill the fields, by path.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::Value;

/// What may stand in a field.
pub(crate) struct Words {
    /// Values that are fine by themselves.
    pub(crate) good: Vec<Value>,
    /// Values that break a rule or sit on its border.
    pub(crate) bad: Vec<Value>,
}

static TABLE: LazyLock<HashMap<&'static str, Words>> =
    LazyLock::new(|| include_str!("words.txt").lines().filter_map(row).collect());

fn row(line: &'static str) -> Option<(&'static str, Words)> {
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let (good, bad) = line.split_once('|').unwrap_or((line, ""));
    let mut good = good.split_whitespace();
    let path = good.next()?;
    let values = |words: &mut dyn Iterator<Item = &str>| words.map(value).collect();
    Some((path, Words { good: values(&mut good), bad: values(&mut bad.split_whitespace()) }))
}

fn value(word: &str) -> Value {
    // Long texts are written by their length.
    if let Some(length) = word.strip_prefix("letters:").and_then(|length| length.parse().ok()) {
        return Value::from("x".repeat(length));
    }
    serde_json::from_str(word).unwrap_or_else(|_| Value::from(word))
}

/// The words for a field. The path may be long; what matches most of its end wins.
pub(crate) fn words(path: &str) -> Option<&'static Words> {
    let starts = std::iter::once(0).chain(path.match_indices('.').map(|(dot, _)| dot + 1));
    let mut ends = starts.map(|start| &path[start..]);
    ends.find_map(|end| TABLE.get(end))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::words;

    #[test]
    fn the_longest_row_that_matches_the_end_of_a_path_wins() {
        assert_eq!(words("domain.devices.disks[].cdrom.bus").unwrap().good[0], json!("sata"));
        assert_eq!(words("domain.devices.disks[].disk.bus").unwrap().good[0], json!("virtio"));
        assert_eq!(words("domain.cpu.cores").unwrap().bad[0], json!(0));
        assert!(words("domain.chassis.asset").is_none());
    }
}
