//! Whether KubeVirt and we make the same of the same objects.
//!
//! For hunting: `DIFFERENTIAL_COUNT` and `DIFFERENTIAL_SEED` choose the cases, and `DIFFERENTIAL_REPORT=FOLDER` writes all
//! differences, each with its smallest object, to `diff-vmi.txt` and `diff-vm.txt` in the folder.

#![allow(clippy::unwrap_used, reason = "the helpers of a test may panic like the test itself")]

use std::path::Path;
use std::time::Instant;

use differential::differences::ROWS;
use differential::fields;
use differential::judge::Judge;
use differential::misnomers::MISNOMERS;
use differential::newer::NEWER;
use differential::report::Report;

const SEED: u64 = 20_260_101;
const COUNT: u64 = 5_000;
/// How many differences are spelled out.
const SHOWN: usize = 5;

/// The judge, or nothing where it cannot be had. In CI it has to be had.
fn judge() -> Option<Judge> {
    let folder =
        peers::build_or_skip("kubevirt", "no comparison with KubeVirt").unwrap_or_else(|reason| panic!("{reason}"));
    folder.map(|folder| Judge::start(&folder.join("judge")).unwrap())
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

#[test]
fn fields_left_out_are_exactly_those_the_judges_release_does_not_have() {
    let Some(mut judge) = judge() else { return };
    let mut unknown = fields::unknown_to(&mut judge).unwrap();
    let mut listed: Vec<String> = NEWER.iter().map(|path| (*path).to_owned()).collect();
    unknown.sort();
    listed.sort();
    assert_eq!(unknown, listed, "left: what KubeVirt's schema refuses; right: what src/newer.rs lists");
}

#[test]
fn kubevirt_and_we_default_and_refuse_alike() {
    let Some(mut judge) = judge() else { return };
    let started = Instant::now();
    let (seed, count) = (number("DIFFERENTIAL_SEED", SEED), number("DIFFERENTIAL_COUNT", COUNT));
    let report = Report::run(&mut judge, seed, count).unwrap();
    eprintln!(
        "{count} objects in {} s; KubeVirt accepts {}, fails at {} and gives {} different causes; {} kinds of difference",
        started.elapsed().as_secs(),
        report.accepted,
        report.panics,
        report.causes.len(),
        report.groups.len()
    );
    if let Some(folder) = std::env::var_os("DIFFERENTIAL_REPORT") {
        for (kind, file) in [("VirtualMachineInstance", "diff-vmi.txt"), ("VirtualMachine", "diff-vm.txt")] {
            let text = report.text(&mut judge, kind, usize::MAX).unwrap();
            std::fs::write(Path::new(&folder).join(file), text).unwrap();
        }
        return;
    }
    let texts = ["VirtualMachineInstance", "VirtualMachine"].map(|kind| report.text(&mut judge, kind, SHOWN).unwrap());
    assert!(report.groups.is_empty(), "differences that no row of src/differences.rs explains:\n{}", texts.concat());
    if (seed, count) == (SEED, COUNT) {
        // Objects that are all alike, or all refused for one reason, would compare nothing.
        assert!(report.accepted > 1_500, "KubeVirt accepts only {} objects", report.accepted);
        assert!(report.causes.len() > 350, "KubeVirt gives only {} different causes", report.causes.len());
        assert!(report.panics < 100, "KubeVirt fails at {} objects", report.panics);
        let unmet = MISNOMERS.iter().enumerate().filter(|(index, _)| !report.misnomers.contains(index));
        let unmet: Vec<&str> = unmet.map(|(_, misnomer)| misnomer.theirs).collect();
        assert!(unmet.is_empty(), "names in src/misnomers.rs that KubeVirt does not use: {unmet:#?}");
        let unused = ROWS.iter().enumerate().filter(|(index, _)| !report.rows.contains(index));
        let unused: Vec<_> = unused.map(|(_, row)| row.keys).collect();
        assert!(unused.is_empty(), "rows of src/differences.rs that nothing needs any more: {unused:#?}");
    }
}
