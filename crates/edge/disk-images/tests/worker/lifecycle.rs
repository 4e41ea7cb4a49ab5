//! How a worker ends, and what it may do while it runs.

use std::fs;
use std::time::Duration;

use disk_images::{Event, reasons};
use test_support::until;

use crate::harness::{Claim, MIB, Tests, converted, disk, http, runtime};
use crate::server::{Answer, Server};

pub(crate) const TESTS: Tests = &[
    ("a_killed_worker_leaves_no_process", a_killed_worker_leaves_no_process),
    ("a_worker_ends_with_its_parent", a_worker_ends_with_its_parent),
    ("the_stages_have_no_rights", the_stages_have_no_rights),
    ("an_import_that_was_killed_is_done_again", an_import_that_was_killed_is_done_again),
];

/// A server that never comes to an end.
fn slow() -> Server {
    Server::start(|_| Answer { drips: Some(Duration::from_millis(50)), ..Answer::of(vec![1; 4 << 20]) })
}

/// The processes below this one, with their children.
fn below(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children: Vec<u32> = children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
    children.iter().flat_map(|pid| below(*pid)).chain(children.clone()).collect()
}

fn stage_of(worker: u32) -> u32 {
    until(Duration::from_secs(20), "the stage to start", || {
        let line = |pid: &u32| {
            String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()).into_owned()
        };
        below(worker).into_iter().find(|pid| line(pid).contains("--stage") && status(*pid, "NoNewPrivs") == "1")
    })
}

fn status(pid: u32, field: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_default().trim().to_owned()
}

fn gone(pid: u32) -> bool {
    let state = status(pid, "State");
    state.is_empty() || state.starts_with('Z')
}

fn a_killed_worker_leaves_no_process() {
    let (server, claim) = (slow(), Claim::directory());
    runtime().block_on(async {
        let mut worker = claim.start(&claim.job(http(server.url("/")), 8 * MIB), None).await;
        let (pid, stage) = tokio::task::block_in_place(|| {
            let pid = worker.id().unwrap();
            (pid, stage_of(pid))
        });
        worker.kill().await.unwrap();
        assert!(worker.next_event().await.is_none());
        tokio::task::block_in_place(|| until(Duration::from_secs(10), "all to be gone", || gone(pid) && gone(stage)));
    });
}

fn a_worker_ends_with_its_parent() {
    // The pipe is all that ties them: a parent that is killed closes it.
    let (server, claim) = (slow(), Claim::directory());
    runtime().block_on(async {
        let mut worker = claim.start(&claim.job(http(server.url("/")), 8 * MIB), None).await;
        tokio::task::block_in_place(|| {
            let pid = worker.id().unwrap();
            let stage = stage_of(pid);
            worker.let_go();
            until(Duration::from_secs(10), "all to be gone", || gone(pid) && gone(stage));
        });
    });
}

fn the_stages_have_no_rights() {
    let (server, claim) = (slow(), Claim::directory());
    runtime().block_on(async {
        let mut worker = claim.start(&claim.job(http(server.url("/")), 8 * MIB), None).await;
        tokio::task::block_in_place(|| {
            let stage = stage_of(worker.id().unwrap());
            until(Duration::from_secs(10), "the filter", || status(stage, "Seccomp") == "2");
            for set in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
                assert_eq!(status(stage, set), "0000000000000000", "{set}");
            }
            let uid = status(stage, "Uid");
            assert!(uid.split_whitespace().all(|uid| uid == "65531"), "{uid}");
            assert_eq!(status(stage, "Groups"), "");
            let limits = fs::read_to_string(format!("/proc/{stage}/limits")).unwrap();
            for limit in ["Max address space", "Max cpu time", "Max file size"] {
                let line = limits.lines().find(|line| line.starts_with(limit)).unwrap();
                assert!(!line.contains("unlimited"), "{line}");
            }
            assert_ne!(
                fs::read_link(format!("/proc/{stage}/ns/pid")).unwrap(),
                fs::read_link("/proc/self/ns/pid").unwrap()
            );
        });
        worker.kill().await.unwrap();
    });
}

fn an_import_that_was_killed_is_done_again() {
    let image = converted(&disk(6 * MIB), "qcow2", &[]);
    let server = Server::start(move |_| Answer::of(image.clone()));
    for claim in [Claim::directory(), Claim::file(8 * MIB)] {
        for wait in [0, 20, 60, 120, 200] {
            runtime().block_on(async {
                let mut worker = claim.start(&claim.job(http(server.url("/")), 8 * MIB), None).await;
                tokio::time::sleep(Duration::from_millis(wait)).await;
                worker.kill().await.unwrap();
            });
        }
        claim.import(http(server.url("/")), 8 * MIB).done();
        claim.assert_holds(&disk(6 * MIB), "after all");
    }
    // A worker that is lost is a failure, too.
    let claim = Claim::directory();
    let server = slow();
    runtime().block_on(async {
        let mut worker = claim.start(&claim.job(http(server.url("/")), 8 * MIB), None).await;
        let pid = rustix::process::Pid::from_raw(worker.id().unwrap().cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        let mut last = None;
        while let Some(event) = worker.next_event().await {
            last = Some(event);
        }
        assert!(matches!(last, Some(Event::Failed(failure)) if failure.reason == reasons::LOST));
    });
}
