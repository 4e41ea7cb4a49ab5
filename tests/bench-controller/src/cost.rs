//! What a process has used, by `/proc`.

use std::time::Duration;

use anyhow::{Context as _, Result};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) cpu: Duration,
    /// Resident bytes.
    pub(crate) memory: u64,
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
        let resident = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .and_then(|rest| rest.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()));
        Ok(Cost { cpu, memory: resident.context("there is no VmRSS in /proc/PID/status")? << 10 })
    }
}
