//! Suggestions for unknown words.

/// Maximum number of suggestions.
const OFFERED: usize = 3;

/// The candidates most similar to the word, best first; empty if none is similar.
pub(crate) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let word = word.to_lowercase();
    // A third of the letters may differ, and two in a short word.
    let limit = (word.chars().count() / 3).max(2);
    let mut near: Vec<(usize, &str)> = candidates
        .into_iter()
        .filter_map(|candidate| {
            let other = candidate.to_lowercase();
            let within = word.len() > 2 && (other.contains(&word) || word.contains(&other));
            let distance = distance(&word, &other);
            // A prefix counts as similar too.
            (distance <= limit || within).then_some((distance.min(limit + 1), candidate))
        })
        .collect();
    near.sort();
    near.dedup();
    near.into_iter().take(OFFERED).map(|(_, candidate)| candidate).collect()
}

/// The Levenshtein distance between two words.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (index, letter) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, other) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_single_letters() {
        for (from, to, expected) in [("", "", 0), ("disk", "disks", 1), ("dsk", "disk", 1), ("kitten", "sitting", 3)] {
            assert_eq!(distance(from, to), expected, "{from} {to}");
            assert_eq!(distance(to, from), expected, "{to} {from}");
        }
    }

    #[test]
    fn what_looks_alike_is_offered_and_nothing_else() {
        let fields = ["runStrategy", "running", "template", "dataVolumeTemplates", "instancetype", "preference"];
        assert_eq!(nearest("runStrtegy", fields), ["runStrategy"]);
        assert_eq!(nearest("TEMPLATE", fields), ["template", "dataVolumeTemplates"]);
        assert_eq!(nearest("run", fields), ["runStrategy", "running"]);
        assert_eq!(nearest("colour", fields), Vec::<&str>::new());
    }
}
