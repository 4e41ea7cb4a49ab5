//! The smallest object that still shows a difference.

use anyhow::Result;
use serde_json::Value;

use crate::clusters::CLUSTERS;
use crate::compare::{Difference, compare};
use crate::differences::{self, Evidence};
use crate::generate::{Case, keeps_schema};
use crate::judge::Judge;
use crate::ours;
use crate::verdict::Verdict;

/// The part that is the version before, as a whole.
const OLD: &str = "old";

/// Takes parts away as long as the difference stays.
pub fn shrink(judge: &mut Judge, case: &Case, key: &str) -> Result<Case> {
    let mut smallest = case.clone();
    // A plain cluster first: it is the larger half of what a reader has to know.
    let plain = Case { cluster: &CLUSTERS[0], ..smallest.clone() };
    let theirs = judge.ask(std::slice::from_ref(&plain))?;
    if theirs.iter().any(|theirs| shows(&plain, &ours::judge(&plain), theirs, key)) {
        smallest = plain;
    }
    loop {
        let mut pointers = Vec::new();
        parts(&smallest.object, String::new(), &mut pointers);
        if smallest.old.is_some() {
            pointers.push(OLD.to_owned());
        }
        let shown = showing(judge, &smallest, pointers.iter().map(std::slice::from_ref), key)?;
        let mut spare: Vec<String> =
            pointers.into_iter().zip(shown).filter(|(_, shows)| *shows).map(|(pointer, _)| pointer).collect();
        if spare.is_empty() {
            return Ok(smallest);
        }
        // What can go alone can often go together; if not, half of it may, and one part can for certain.
        while spare.len() > 1 && !showing(judge, &smallest, [spare.as_slice()].into_iter(), key)?[0] {
            spare.truncate(spare.len().div_ceil(2));
        }
        smallest = match without(&smallest, &spare) {
            Some(smaller) => smaller,
            None => return Ok(smallest),
        };
    }
}

/// Whether each of these sets of parts can go and leave the difference.
fn showing<'p>(
    judge: &mut Judge,
    case: &Case,
    sets: impl Iterator<Item = &'p [String]>,
    key: &str,
) -> Result<Vec<bool>> {
    let lacking: Vec<Option<Case>> = sets.map(|parts| without(case, parts)).collect();
    let asked: Vec<Case> = lacking.iter().flatten().cloned().collect();
    let theirs = judge.ask(&asked)?;
    let ours = ours::judge_all(&asked);
    let verdicts = asked.iter().zip(ours.iter().zip(&theirs));
    let mut shows = verdicts.map(|(case, (ours, theirs))| shows(case, ours, theirs, key));
    Ok(lacking.iter().map(|case| case.is_some() && shows.next() == Some(true)).collect())
}

fn shows(case: &Case, ours: &Verdict, theirs: &Verdict, key: &str) -> bool {
    let explained = |difference: &Difference| differences::row(&Evidence { case, ours, theirs, difference }).is_some();
    compare(case.kind(), ours, theirs).iter().any(|difference| difference.key == key && !explained(difference))
}

/// The case without these parts, if the object's schema still holds. What goes from the object goes from the version
/// before too, as far as that has it: most of it is the same in both.
fn without(case: &Case, parts: &[String]) -> Option<Case> {
    let mut smaller = case.clone();
    // From the end: what is removed from a list moves only what comes after it.
    for pointer in parts.iter().rev() {
        if pointer == OLD {
            smaller.old = None;
            continue;
        }
        remove(&mut smaller.object, pointer);
        if let Some(old) = &mut smaller.old {
            remove(old, pointer);
        }
    }
    let old_holds = smaller.old.as_ref().is_none_or(|old| keeps_schema(case.kind(), old));
    (old_holds && keeps_schema(case.kind(), &smaller.object)).then_some(smaller)
}

pub(crate) fn remove(object: &mut Value, pointer: &str) {
    let Some((parent, name)) = pointer.rsplit_once('/') else { return };
    match object.pointer_mut(parent) {
        Some(Value::Object(fields)) => _ = fields.remove(&name.replace("~1", "/").replace("~0", "~")),
        Some(Value::Array(items)) => {
            if let Some(index) = name.parse().ok().filter(|index: &usize| *index < items.len()) {
                items.remove(index);
            }
        }
        _ => {}
    }
}

/// Everything in an object that might be spared.
pub(crate) fn parts(value: &Value, pointer: String, pointers: &mut Vec<String>) {
    const KEPT: [&str; 5] = ["/apiVersion", "/kind", "/metadata", "/metadata/name", "/metadata/namespace"];
    if !pointer.is_empty() && !KEPT.contains(&pointer.as_str()) {
        pointers.push(pointer.clone());
    }
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                parts(field, format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1")), pointers);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                parts(item, format!("{pointer}/{index}"), pointers);
            }
        }
        _ => {}
    }
}
