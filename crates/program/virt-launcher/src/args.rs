//! The command line, as the controller writes it into the launcher's Pod.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use launcher_contract::{flags, paths, variables};

/// Supervises one virtual machine: libvirt, QEMU, its disks and its network services.
#[derive(Debug, Clone, Parser)]
#[command(name = "virt-launcher", version)]
pub(crate) struct Args {
    /// Name of the VirtualMachineInstance
    #[arg(long = flags::NAME)]
    pub(crate) name: String,
    /// UID of the VirtualMachineInstance
    #[arg(long = flags::UID)]
    pub(crate) uid: String,
    /// Namespace of the VirtualMachineInstance
    #[arg(long = flags::NAMESPACE)]
    pub(crate) namespace: String,
    /// Directory shared with virt-handler
    #[arg(long = flags::SHARE_DIRECTORY, default_value = paths::SHARE)]
    pub(crate) kubevirt_share_dir: PathBuf,
    /// Directory of ephemeral disks
    #[arg(long = flags::EPHEMERAL_DISK_DIRECTORY, default_value = paths::EPHEMERAL_DISKS)]
    pub(crate) ephemeral_disk_dir: String,
    /// Directory where container disk images are mounted
    #[arg(long = flags::CONTAINER_DISK_DIRECTORY, default_value = paths::CONTAINER_DISKS)]
    pub(crate) container_disk_dir: String,
    /// Container disks are image volumes of the Pod
    #[arg(long = flags::IMAGE_VOLUME)]
    pub(crate) image_volume: bool,
    /// Grace period for the guest to shut down after the Pod is deleted
    #[arg(long = flags::GRACE_PERIOD_SECONDS, default_value_t = 30)]
    pub(crate) grace_period_seconds: u64,
    /// How long to wait for virt-handler to define the domain
    #[arg(long = flags::QEMU_TIMEOUT, default_value = "3m", value_parser = go_duration)]
    pub(crate) qemu_timeout: Duration,
    /// Use software emulation if KVM is not available
    #[arg(long = flags::ALLOW_EMULATION)]
    pub(crate) allow_emulation: bool,
    /// Memory limit of qemu-img, in bytes
    #[arg(long = flags::DISK_MEMORY_LIMIT, default_value_t = 2000 << 20)]
    pub(crate) disk_memory_limit: u64,
    /// Fail at once, so that tests can watch how a crash is handled
    #[arg(long = flags::SIMULATE_CRASH)]
    pub(crate) simulate_crash: bool,
    #[command(flatten)]
    pub(crate) without_effect: WithoutEffect,
    /// Name of the Pod
    #[arg(long, env = variables::POD_NAME, default_value = "")]
    pub(crate) pod_name: String,
}

/// What feature gates of the cluster, or fields that admission refuses, put on the command line. This build does nothing
/// about them, and a gate that somebody opens must not keep guests from starting.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct WithoutEffect {
    #[arg(long = flags::VGPU_DEDICATED_HOOK, hide = true)]
    vgpu_dedicated_hook: bool,
    #[arg(long = flags::VM_STATS_COLLECTOR, hide = true)]
    vm_stats_collector: bool,
    #[arg(long = flags::FIRMWARE_AUTO_SELECTION, hide = true)]
    firmware_auto_selection: bool,
    #[arg(long = flags::ALLOW_CROSS_ARCH_EMULATION, hide = true)]
    allow_cross_arch_emulation: bool,
    #[arg(long = flags::HYPERVISOR, hide = true)]
    hypervisor: Option<String>,
    #[arg(long = flags::HOOK_SIDECARS, hide = true)]
    hook_sidecars: Option<u32>,
    #[arg(long = flags::OVMF_PATH, hide = true)]
    ovmf_path: Option<String>,
    #[arg(long = flags::LIBVIRT_LOG_FILTERS, hide = true)]
    libvirt_log_filters: Option<String>,
    #[arg(long = flags::KEEP_AFTER_FAILURE, hide = true)]
    keep_after_failure: bool,
}

/// A duration as Go prints and reads it: `4m30s`.
fn go_duration(text: &str) -> Result<Duration, String> {
    let read: machinery::duration::Duration = text.parse().map_err(|error| format!("{error}"))?;
    read.to_std().ok_or_else(|| format!("{text:?} is negative"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_writes_them() {
        for (text, seconds) in [("240s", 240), ("3m", 180), ("4m30s", 270), ("1h0m5s", 3605)] {
            assert_eq!(go_duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "5", "s", "-5s", "5 m", "99999999999999999999s", "18446744073709551615h"] {
            assert!(go_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn every_flag_of_the_contract_is_understood() {
        use clap::CommandFactory as _;
        let command = Args::command();
        let known: Vec<_> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
        for flag in flags::ALL {
            assert!(known.contains(flag), "--{flag}");
        }
    }

    #[test]
    fn the_controllers_command_line_is_understood() {
        let line = "virt-launcher --qemu-timeout 312s --name vm --uid u --namespace default --kubevirt-share-dir /var/run/kubevirt \
                    --ephemeral-disk-dir /e --container-disk-dir /c --grace-period-seconds 45 --image-volume --allow-emulation";
        let args = Args::try_parse_from(line.split_whitespace()).unwrap();
        assert_eq!((args.qemu_timeout.as_secs(), args.grace_period_seconds), (312, 45));
        assert!(args.allow_emulation && args.image_volume);
    }

    /// What the launcher makes of the Pod that is rendered for an instance with this annotation.
    fn rendered(annotation: &str, value: &str, configuration: serde_json::Value) -> Result<Args, clap::Error> {
        let vmi = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "vm", "namespace": "default", "uid": "u", "annotations": {annotation: value}},
            "spec": {"domain": {"devices": {}, "resources": {"requests": {"memory": "64Mi"}}}},
        }));
        let configuration = serde_json::from_value(configuration).unwrap();
        let config = api::config::ClusterConfig { configuration, ..Default::default() };
        let pod = render::launcher_pod(&vmi.unwrap(), &config, &render::Context::default());
        let pod = pod.unwrap_or_else(|error| panic!("{annotation}={value:?}: {error}"));
        let line = pod.spec.unwrap().containers.remove(0).args.unwrap();
        Args::try_parse_from(std::iter::once("virt-launcher".to_owned()).chain(line))
    }

    #[test]
    fn the_launcher_takes_whatever_a_cluster_that_admits_the_instance_can_render() {
        let gates: Vec<&str> = api::gates::names().collect();
        let configuration = serde_json::json!({
            "developerConfiguration": {"featureGates": gates, "useEmulation": true},
            "hypervisors": [{"name": "hyperv-direct"}],
        });
        let args = rendered("kubevirt.io/func-test-virt-launcher-fail-fast", "", configuration);
        assert!(args.unwrap().simulate_crash);
    }

    #[test]
    fn an_annotation_that_admission_takes_as_off_is_off_in_the_launcher() {
        let key = api::annotations::KEEP_LAUNCHER_ALIVE_AFTER_FAILURE;
        let similar = format!("{key}-x");
        let keys = admission::unsupported::ANNOTATIONS.iter().map(|(key, _)| *key).chain([similar.as_str()]);
        for (key, value) in keys.flat_map(|key| ["", "false"].map(|value| (key, value))) {
            let args =
                rendered(key, value, serde_json::json!({})).unwrap_or_else(|error| panic!("{key}={value:?}: {error}"));
            let WithoutEffect { keep_after_failure, libvirt_log_filters, hook_sidecars, .. } = args.without_effect;
            let effects = (keep_after_failure, libvirt_log_filters, hook_sidecars);
            assert_eq!(effects, (false, None, None), "{key}={value:?}");
        }
        let args = rendered(key, "true", serde_json::json!({})).unwrap();
        assert!(args.without_effect.keep_after_failure, "any other value is on");
        assert!(!rendered(&similar, "true", serde_json::json!({})).unwrap().without_effect.keep_after_failure);
    }
}
