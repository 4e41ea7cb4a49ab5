//! Records of a Pod's containers, and the observed state of the Pod on its machine.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// `status/<container>.json`: the record of one container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerRecord {
    pub restarts: u32,
    pub stage: Stage,
    /// How the previous run ended.
    pub previous: Option<Exit>,
}

impl ContainerRecord {
    /// The record of a container whose end was not observed.
    pub fn lost(mut self, now: Timestamp) -> ContainerRecord {
        if let Stage::Running { started_at, .. } = self.stage {
            self.stage = Stage::Exited(Exit {
                code: 137,
                signal: None,
                reason: ExitReason::ContainerStatusUnknown,
                message: "the process that watched the container went away, and the container with it".to_owned(),
                started_at: Some(started_at),
                finished_at: now,
            });
        }
        self
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    Running {
        process: Process,
        started_at: Timestamp,
    },
    Exited(Exit),
    /// Ended, and starts again at `until`.
    BackingOff {
        exit: Exit,
        until: Timestamp,
    },
}

impl Stage {
    /// How the last run ended, if it has.
    pub fn exit(&self) -> Option<&Exit> {
        match self {
            Stage::Running { .. } => None,
            Stage::Exited(exit) | Stage::BackingOff { exit, .. } => Some(exit),
        }
    }
}

/// A process by pid, start time and boot ID, as stored in records on disk: no decision here depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub pid: i32,
    pub start_time: u64,
    pub boot: u64,
}

/// How one run of a container ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// 128 + the signal number if a signal ended it.
    pub code: i32,
    pub signal: Option<i32>,
    pub reason: ExitReason,
    pub message: String,
    /// `None` if the program could not even be started.
    pub started_at: Option<Timestamp>,
    pub finished_at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitReason {
    Completed,
    Error,
    OOMKilled,
    /// The container could not be set up or its program not executed.
    StartError,
    /// Its shim disappeared without a report.
    ContainerStatusUnknown,
}

impl ExitReason {
    pub fn as_str(self) -> &'static str {
        match self {
            ExitReason::Completed => "Completed",
            ExitReason::Error => "Error",
            ExitReason::OOMKilled => "OOMKilled",
            ExitReason::StartError => "StartError",
            ExitReason::ContainerStatusUnknown => "ContainerStatusUnknown",
        }
    }
}

/// A Pod's `restartPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RestartPolicy {
    Never,
    OnFailure,
    Always,
}

/// What is known of a Pod from its directory and the process table.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    pub accepted_at: Timestamp,
    pub address: Option<Ipv4Addr>,
    pub shim: ShimState,
    pub containers: BTreeMap<String, ContainerRecord>,
    pub stopping_since: Option<Timestamp>,
    pub released: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShimState {
    NotStarted,
    Alive,
    /// It ran, and no longer does.
    Gone,
}
