//! A run over many cases, and what is told about it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::Value;

use super::compare::{compare, shape};
use super::shrink::shrink;
use super::{Case, Kind, differences, generate, normal, ours};
use crate::compare::Difference;
use crate::judge::Judge;

/// How many cases are under way at once.
const BATCH: u64 = 250;

/// How long to look for small instances.
const SPELLING: Duration = Duration::from_secs(120);

/// Cases that differ in the same way.
pub struct Group {
    count: usize,
    /// The smallest of them so far.
    case: Case,
    difference: Difference,
}

/// What a run found.
#[derive(Default)]
pub struct Report {
    /// How many Pods of each kind both sides rendered.
    pub pods: BTreeMap<Kind, usize>,
    /// Why KubeVirt has no Pod, and how often.
    pub refused: BTreeMap<String, usize>,
    /// What there was in KubeVirt's Pods: every field's path, and the words in it.
    pub seen: BTreeSet<String>,
    /// The rows of the list that were used.
    pub rows: BTreeSet<usize>,
    /// The differences without a row, by key.
    pub groups: BTreeMap<String, Group>,
}

impl Report {
    /// Sends cases through both sides.
    pub fn run(judge: &mut Judge, seed: u64, count: u64) -> Result<Report> {
        let mut report = Report::default();
        for start in (0..count).step_by(BATCH as usize) {
            let cases: Vec<Case> = (start..count.min(start + BATCH)).map(|index| generate::case(seed, index)).collect();
            for (case, theirs) in cases.iter().zip(judge.pods(&cases)?) {
                let ours = ours::render(case);
                match &theirs {
                    Ok(pod) => note_fields(&normal::pod(pod.clone()), case.kind.name(), &mut report.seen),
                    Err(error) => *report.refused.entry(shape(error)).or_default() += 1,
                }
                if ours.is_ok() && theirs.is_ok() {
                    *report.pods.entry(case.kind).or_default() += 1;
                }
                for difference in compare(case, &ours, &theirs) {
                    report.note(case, difference);
                }
            }
        }
        Ok(report)
    }

    fn note(&mut self, case: &Case, difference: Difference) {
        if let Some(row) = differences::row(case, &difference) {
            self.rows.insert(row);
            return;
        }
        let size = |case: &Case| case.vmi.to_string().len();
        match self.groups.get_mut(&difference.key) {
            Some(group) => {
                group.count += 1;
                if size(case) < size(&group.case) {
                    (group.case, group.difference) = (case.clone(), difference);
                }
            }
            None => {
                let key = difference.key.clone();
                self.groups.insert(key, Group { count: 1, case: case.clone(), difference });
            }
        }
    }

    /// The differences, the most frequent first, each with a small instance that shows it. At most `limit` of them are
    /// spelled out, and none after `SPELLING`.
    pub fn text(&self, judge: &mut Judge, limit: usize) -> Result<String> {
        let mut groups: Vec<&Group> = self.groups.values().collect();
        groups.sort_by_key(|group| std::cmp::Reverse(group.count));
        let mut text = String::new();
        let started = Instant::now();
        for (index, group) in groups.iter().enumerate() {
            let _ = writeln!(text, "{:5} × {}", group.count, group.difference.key);
            let (mut case, mut shown) = (group.case.clone(), group.difference.clone());
            if index < limit && started.elapsed() < SPELLING {
                case = shrink(judge, &case, &group.difference.key)?;
                let theirs = judge.pods(std::slice::from_ref(&case))?;
                let found = theirs.iter().flat_map(|theirs| compare(&case, &ours::render(&case), theirs));
                shown = found.into_iter().find(|found| found.key == shown.key).unwrap_or(shown);
                let _ = writeln!(text, "    instance: {}", case.vmi);
            }
            let _ = writeln!(text, "    ours:     {}\n    KubeVirt: {}", shown.ours, shown.theirs);
            let _ = writeln!(text, "    path:     {}\n    cluster:  {}\n", shown.path, case.cluster.name);
        }
        Ok(text)
    }
}

/// Notes the path of every field, names without their numbers.
fn note_fields(value: &Value, path: &str, seen: &mut BTreeSet<String>) {
    seen.insert(shape(path));
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                note_fields(field, &format!("{path}.{name}"), seen);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| note_fields(item, &format!("{path}[]"), seen)),
        _ => {}
    }
}
