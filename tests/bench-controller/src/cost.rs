//! What a process has used, by `/proc`.

use std::time::Duration;

use anyhow::{Context as _, Result};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) cpu: Duration,
    /// Resident bytes, pages of the program's file included.
    pub(crate) memory: u64,
    /// Resident bytes that are the process's own.
    pub(crate) own: u64,
}

impl Cost {
    pub(crate) fn of(pid: i32) -> Result<Cost> {
        let read = |file: &str| {
            let path = format!("/proc/{pid}/{file}");
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
        };
        let stat = read("stat")?;
        // After the name in brackets, which may have spaces; user and system time are the 14th and 15th of all.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok());
        let used = ticks(11).zip(ticks(12)).context("there is no time in /proc/PID/stat")?;
        let second = rustix::param::clock_ticks_per_second();
        let cpu = Duration::from_secs_f64((used.0 + used.1) as f64 / second as f64);
        let status = read("status")?;
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
            kib.map(|kib| kib << 10).with_context(|| format!("there is no {name} in /proc/PID/status"))
        };
        Ok(Cost { cpu, memory: bytes("VmRSS")?, own: bytes("RssAnon")? })
    }
}
