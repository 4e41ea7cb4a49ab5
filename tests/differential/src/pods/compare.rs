//! Where two Pods part.

use super::{Case, Rendered, normal};
use crate::compare::{Difference, values};

/// All differences between our Pod and KubeVirt's.
pub fn compare(case: &Case, ours: &Rendered, theirs: &Rendered) -> Vec<Difference> {
    let whole = |key: String, ours: &str, theirs: &str| {
        vec![Difference { key, path: String::new(), ours: ours.to_owned(), theirs: theirs.to_owned() }]
    };
    let (ours, theirs) = match (ours, theirs) {
        (Ok(ours), Ok(theirs)) => (ours, theirs),
        (Err(_), Err(_)) => return Vec::new(),
        (Err(error), Ok(_)) => return whole(format!("{} error ours {}", case.kind, shape(error)), error, "a Pod"),
        (Ok(_), Err(error)) => return whole(format!("{} error theirs {}", case.kind, shape(error)), "a Pod", error),
    };
    let mut differences = Vec::new();
    let mut normal_theirs = normal::pod(theirs.clone());
    match (normal::overhead(ours), normal::overhead(theirs)) {
        (Some(ours), Some(theirs)) => normal::exchange_overhead(case, ours, theirs, &mut normal_theirs),
        (None, None) => {}
        (ours, theirs) => {
            let text = |overhead: Option<i64>| overhead.map_or_else(|| "no overhead".to_owned(), |o| o.to_string());
            differences.extend(whole("overhead".to_owned(), &text(ours), &text(theirs)));
        }
    }
    values(Some(&normal::pod(ours.clone())), Some(&normal_theirs), &mut String::new(), &mut differences);
    for difference in &mut differences {
        difference.key = format!("{} {}", case.kind, shape(&difference.key));
    }
    differences
}

/// A text without the numbers that names end in.
pub(crate) fn shape(text: &str) -> String {
    let mut shape = String::with_capacity(text.len());
    for character in text.chars() {
        match character.is_ascii_digit() && shape.ends_with(['-', '_', '#']) {
            true if shape.ends_with('#') => {}
            true => shape.push('#'),
            false => shape.push(character),
        }
    }
    shape
}
