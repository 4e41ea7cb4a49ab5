//! What the processes of our own Pods take, by `/proc` and their control groups.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};

/// One Pod of the installation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Program {
    /// The value of its label `kubevirt.io`.
    pub(crate) app: String,
    pub(crate) node: String,
    /// Resident bytes, as `ps` shows them.
    pub(crate) resident: u64,
    /// The same, with each page divided by the number of processes that have it: those of all nodes, since one file is
    /// below the images of all.
    pub(crate) shared: u64,
    /// Anonymous memory.
    pub(crate) own: u64,
    /// What the control group is charged with, but for inactive pages of files, as `kubectl top` shows it.
    pub(crate) charged: Option<u64>,
    pub(crate) cpu: Duration,
}

/// All Pods in the namespace of the installation, sorted by program and node.
pub(crate) async fn of_installation(client: &kube::Client) -> Result<Vec<Program>> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), install::names::NAMESPACE);
    let pods = pods.list(&ListParams::default()).await.context("cannot list the Pods of the installation")?;
    let mut programs = pods.items.iter().map(of_pod).collect::<Result<Vec<_>>>()?;
    programs.sort_by(|a, b| (&a.app, &a.node).cmp(&(&b.app, &b.node)));
    Ok(programs)
}

fn of_pod(pod: &Pod) -> Result<Program> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let label = pod.metadata.labels.as_ref().and_then(|labels| labels.get(api::labels::APP));
    let mut program = Program {
        app: label.cloned().unwrap_or_default(),
        node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
        ..Program::default()
    };
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    for status in statuses {
        let id = status.container_id.as_deref().and_then(|id| id.rsplit_once("://"));
        let (_, id) = id.with_context(|| format!("container {} of Pod {name} does not run", status.name))?;
        let processes = in_container(id);
        ensure!(!processes.is_empty(), "no process is in container {} of Pod {name}", status.name);
        for process in &processes {
            program.add(process).with_context(|| format!("cannot measure Pod {name}"))?;
        }
        program.charged = charged(&processes[0]).map(|bytes| bytes + program.charged.unwrap_or_default());
    }
    Ok(program)
}

impl Program {
    fn add(&mut self, process: &Path) -> Result<()> {
        let read = |file: &str| {
            let path = process.join(file);
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let (status, rollup, stat) = (read("status")?, read("smaps_rollup")?, read("stat")?);
        let field = |text: &str, name: &str| kib(text, name).with_context(|| format!("there is no {name}"));
        self.resident += field(&status, "VmRSS:")?;
        self.own += field(&status, "RssAnon:")?;
        self.shared += field(&rollup, "Pss:")?;
        self.cpu += cpu(&stat).context("there is no time in the process's state")?;
        Ok(())
    }
}

/// The `/proc` folders of the processes whose control group bears a container's ID.
fn in_container(id: &str) -> Vec<PathBuf> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    let is_there = |path: &PathBuf| fs::read_to_string(path.join("cgroup")).is_ok_and(|groups| groups.contains(id));
    all.filter(is_there).collect()
}

/// Bytes in a line of `/proc` that counts KiB.
fn kib(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
}

/// User and system time: the 14th and 15th fields, the second of which is a name that may have spaces.
fn cpu(stat: &str) -> Option<Duration> {
    let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let used = ticks(11)? + ticks(12)?;
    Some(Duration::from_secs_f64(used as f64 / rustix::param::clock_ticks_per_second() as f64))
}

/// What a process's control group is charged with, in either version of control groups.
fn charged(process: &Path) -> Option<u64> {
    let groups = fs::read_to_string(process.join("cgroup")).ok()?;
    let root = Path::new("/sys/fs/cgroup");
    let (folder, usage, inactive) = match group(&groups, "memory") {
        Some(path) => (root.join("memory").join(path), "memory.usage_in_bytes", "total_inactive_file "),
        None => (root.join(group(&groups, "")?), "memory.current", "inactive_file "),
    };
    let usage: u64 = fs::read_to_string(folder.join(usage)).ok()?.trim().parse().ok()?;
    let stat = fs::read_to_string(folder.join("memory.stat")).ok()?;
    let inactive = stat.lines().find_map(|line| line.strip_prefix(inactive)?.parse::<u64>().ok())?;
    Some(usage.saturating_sub(inactive))
}

/// The path of a controller's group, without its leading slash; that of version 2 has no controller.
fn group<'a>(groups: &'a str, controller: &str) -> Option<&'a str> {
    groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        controllers.split(',').any(|one| one == controller).then(|| path.trim_start_matches('/'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_the_files_of_a_process() {
        let status = "Name:\tferrovirt\nVmRSS:\t   12 kB\nRssAnon:\t    4 kB\n";
        assert_eq!(
            (kib(status, "VmRSS:"), kib(status, "RssAnon:"), kib(status, "Pss:")),
            (Some(12288), Some(4096), None)
        );
        let stat = "7 (a b) c) S 1 1 1 0 -1 4194304 1 0 0 0 150 50 0 0 20 0 1 0";
        let ticks = rustix::param::clock_ticks_per_second();
        assert_eq!(cpu(stat), Some(Duration::from_secs_f64(200.0 / ticks as f64)));
        assert_eq!(cpu("7 (x) S 1"), None);
    }

    #[test]
    fn the_control_group_of_memory_is_found_in_both_versions() {
        let first = "12:cpu,cpuacct:/c\n9:memory:/kube/pod1/id\n0::/\n";
        assert_eq!(group(first, "memory"), Some("kube/pod1/id"));
        let second = "0::/kube.slice/id.scope\n";
        assert_eq!((group(second, "memory"), group(second, "")), (None, Some("kube.slice/id.scope")));
    }

    #[test]
    fn this_process_has_memory_and_time() {
        let mut program = Program::default();
        program.add(Path::new("/proc/self")).unwrap();
        assert!(program.resident >= program.own && program.own > 0, "{program:?}");
        assert!(program.shared <= program.resident, "{program:?}");
        assert!(charged(Path::new("/proc/self")).is_some_and(|bytes| bytes > 0));
    }
}
