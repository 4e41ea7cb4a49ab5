//! Semantic versions, to tell an update from a downgrade.

use std::cmp::Ordering;

#[derive(Debug, PartialEq, Eq)]
struct Version<'a> {
    numbers: [u64; 3],
    /// Empty for a release.
    pre: Vec<&'a str>,
}

fn read(text: &str) -> Option<Version<'_>> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let text = text.split_once('+').map_or(text, |(version, _)| version);
    let (numbers, pre) = text.split_once('-').unwrap_or((text, ""));
    let mut parts = numbers.split('.').map(|part| part.parse().ok());
    let numbers = [parts.next()??, parts.next()??, parts.next()??];
    let pre = pre.split('.').filter(|part| !part.is_empty()).collect();
    parts.next().is_none().then_some(Version { numbers, pre })
}

impl Version<'_> {
    fn compare(&self, other: &Version<'_>) -> Ordering {
        self.numbers.cmp(&other.numbers).then_with(|| match (self.pre.is_empty(), other.pre.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => compare_pre(&self.pre, &other.pre),
        })
    }
}

fn compare_pre(one: &[&str], other: &[&str]) -> Ordering {
    for (one, other) in one.iter().zip(other) {
        let order = match (one.parse::<u64>(), other.parse::<u64>()) {
            (Ok(one), Ok(other)) => one.cmp(&other),
            (Ok(_), Err(_)) => Ordering::Less,
            (Err(_), Ok(_)) => Ordering::Greater,
            (Err(_), Err(_)) => one.cmp(other),
        };
        if order != Ordering::Equal {
            return order;
        }
    }
    one.len().cmp(&other.len())
}

/// How two versions compare; nothing if one of them is not a semantic version.
fn compare(one: &str, other: &str) -> Option<Ordering> {
    Some(read(one)?.compare(&read(other)?))
}

/// Whether going from one version to another is a downgrade. What cannot be read is none.
pub(crate) fn is_downgrade(from: &str, to: &str) -> bool {
    compare(to, from) == Some(Ordering::Less)
}

/// Whether going from one version to another is an update: to a newer one, or to one that cannot be read.
pub(crate) fn is_update(from: &str, to: &str) -> bool {
    from != to && matches!(compare(to, from), Some(Ordering::Greater) | None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_and_what_is_none_counts_as_an_update() {
        let table = [
            // from, to, downgrade, update
            ("v0.1.0", "v0.2.0", false, true),
            ("v0.2.0", "v0.1.9", true, false),
            ("v0.2.0", "v0.2.0", false, false),
            ("v1.0.0", "v1.0.0-rc.1", true, false),
            ("v1.0.0-rc.2", "v1.0.0-rc.10", false, true),
            ("v1.0.0-alpha", "v1.0.0-1", true, false),
            ("0.9.0", "v0.10.0", false, true),
            ("v1.0.0+a", "v1.0.0+b", false, false),
            ("v1.0.0", "devel", false, true),
            ("devel", "v1.0.0", false, true),
            ("devel", "devel", false, false),
            ("v1.0", "v0.9", false, true),
        ];
        for (from, to, downgrade, update) in table {
            assert_eq!((is_downgrade(from, to), is_update(from, to)), (downgrade, update), "{from} to {to}");
        }
    }
}
