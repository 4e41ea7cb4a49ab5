//! The smallest instance that still shows a difference.

use anyhow::Result;

use super::clusters::CLUSTERS;
use super::compare::compare;
use super::{Case, differences, ours};
use crate::judge::Judge;
use crate::shrink::{parts, remove};

/// Takes parts away as long as the difference stays.
pub(crate) fn shrink(judge: &mut Judge, case: &Case, key: &str) -> Result<Case> {
    let mut smallest = case.clone();
    let plain = Case { cluster: &CLUSTERS[0], ..smallest.clone() };
    if showing(judge, std::slice::from_ref(&plain), key)? == [true] {
        smallest = plain;
    }
    loop {
        let mut pointers = Vec::new();
        parts(&smallest.vmi, String::new(), &mut pointers);
        let lacking: Vec<Case> = pointers.iter().map(|part| without(&smallest, std::slice::from_ref(part))).collect();
        let shown = showing(judge, &lacking, key)?;
        let mut spare: Vec<String> =
            pointers.into_iter().zip(shown).filter(|(_, shows)| *shows).map(|(pointer, _)| pointer).collect();
        if spare.is_empty() {
            return Ok(smallest);
        }
        // What can go alone can often go together; if not, half of it may, and one part can for certain.
        while spare.len() > 1 && showing(judge, &[without(&smallest, &spare)], key)? != [true] {
            spare.truncate(spare.len().div_ceil(2));
        }
        smallest = without(&smallest, &spare);
    }
}

fn without(case: &Case, parts: &[String]) -> Case {
    let mut smaller = case.clone();
    for pointer in parts.iter().rev() {
        remove(&mut smaller.vmi, pointer);
    }
    smaller
}

/// Whether each of these cases shows the difference.
fn showing(judge: &mut Judge, cases: &[Case], key: &str) -> Result<Vec<bool>> {
    let theirs = judge.pods(cases)?;
    let shows = |(case, theirs): (&Case, &super::Rendered)| {
        let mut found = compare(case, &ours::render(case), theirs).into_iter();
        found.any(|difference| difference.key == key && differences::row(case, &difference).is_none())
    };
    Ok(cases.iter().zip(&theirs).map(shows).collect())
}
