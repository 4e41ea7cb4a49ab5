//! A run over many cases, and what is told about it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::compare::{self, Difference, compare};
use crate::differences::{self, Evidence};
use crate::generate::{self, Case};
use crate::judge::Judge;
use crate::misnomers;
use crate::ours;
use crate::shrink::shrink;

/// How many cases are under way at once.
const BATCH: u64 = 250;

/// How long to look for small objects.
const SPELLING: Duration = Duration::from_secs(90);

/// Objects that differ in the same way.
pub struct Group {
    /// How many there are.
    pub count: usize,
    /// The smallest of them so far.
    pub case: Case,
    /// How it differs.
    pub difference: Difference,
}

/// What a run found.
#[derive(Default)]
pub struct Report {
    /// How many objects KubeVirt accepted.
    pub accepted: usize,
    /// How many objects KubeVirt failed to judge.
    pub panics: usize,
    /// The causes KubeVirt gave, by type and path without indexes.
    pub causes: BTreeSet<String>,
    /// The misnomers that were met.
    pub misnomers: BTreeSet<usize>,
    /// The rows of the list that were used.
    pub rows: BTreeSet<usize>,
    /// The differences without a row, by kind of the object and key.
    pub groups: BTreeMap<(String, String), Group>,
}

impl Report {
    /// Sends cases through both sides.
    pub fn run(judge: &mut Judge, seed: u64, count: u64) -> Result<Report> {
        let mut report = Report::default();
        for start in (0..count).step_by(BATCH as usize) {
            let cases: Vec<Case> = (start..count.min(start + BATCH)).map(|index| generate::case(seed, index)).collect();
            let (theirs, ours) = std::thread::scope(|scope| {
                let theirs = scope.spawn(|| judge.ask(&cases));
                (theirs.join().expect("asking does not panic"), ours::judge_all(&cases))
            });
            for ((case, ours), theirs) in cases.into_iter().zip(ours).zip(theirs?) {
                report.panics += usize::from(theirs.panicked);
                report.accepted += usize::from(theirs.accepted());
                for cause in &theirs.causes {
                    report.causes.insert(format!("{} {}", cause.type_, compare::pattern(&cause.field)));
                    report.misnomers.extend(misnomers::corrected(cause, "").map(|(misnomer, _)| misnomer));
                }
                for difference in compare(case.kind(), &ours, &theirs) {
                    report.note(&Evidence { case: &case, ours: &ours, theirs: &theirs, difference: &difference });
                }
            }
        }
        Ok(report)
    }

    fn note(&mut self, evidence: &Evidence<'_>) {
        if let Some(row) = differences::row(evidence) {
            self.rows.insert(row);
            return;
        }
        let Evidence { case, difference, .. } = evidence;
        let key = (case.kind().to_owned(), difference.key.clone());
        let found = || Group { count: 1, case: (*case).clone(), difference: (*difference).clone() };
        match self.groups.get_mut(&key) {
            Some(group) if case.size() < group.case.size() => *group = Group { count: group.count + 1, ..found() },
            Some(group) => group.count += 1,
            None => _ = self.groups.insert(key, found()),
        }
    }

    /// The differences of objects of one kind, the most frequent first, each with the smallest object that shows it. At
    /// most `limit` of them are spelled out, and none after `SPELLING`.
    pub fn text(&self, judge: &mut Judge, kind: &str, limit: usize) -> Result<String> {
        let mut groups: Vec<&Group> =
            self.groups.iter().filter(|((of, _), _)| of == kind).map(|(_, group)| group).collect();
        groups.sort_by_key(|group| std::cmp::Reverse(group.count));
        let mut text = String::new();
        let started = Instant::now();
        for (index, group) in groups.iter().enumerate() {
            let _ = writeln!(text, "{:5} × {}", group.count, group.difference.key);
            if index < limit && started.elapsed() < SPELLING {
                let case = shrink(judge, &group.case, &group.difference.key)?;
                let shown = self.shown(judge, &case, &group.difference)?;
                let _ = writeln!(text, "    ours:     {}\n    KubeVirt: {}", shown.ours, shown.theirs);
                let _ = writeln!(text, "    cluster:  {}\n    object:   {}", case.cluster.name, case.object);
                if let Some(old) = &case.old {
                    let _ = writeln!(text, "    before:   {old}");
                }
                text.push('\n');
            }
        }
        Ok(text)
    }

    /// The difference as the small object shows it.
    fn shown(&self, judge: &mut Judge, case: &Case, difference: &Difference) -> Result<Difference> {
        let theirs = judge.ask(std::slice::from_ref(case))?;
        let found = theirs.iter().flat_map(|theirs| compare(case.kind(), &ours::judge(case), theirs));
        Ok(found.into_iter().find(|found| found.key == difference.key).unwrap_or_else(|| difference.clone()))
    }
}
