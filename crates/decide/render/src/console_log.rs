//! The container that copies the guest's serial console into the Pod's log.

use api::config::ClusterConfig;
use api::v1::VirtualMachineInstance;
use k8s_openapi::api::core::v1::{Container, EnvVar};
use launcher_contract::{paths, sockets, variables};

use crate::auxiliary::{self, Kind};
use crate::compute::log_verbosity;
use crate::error::Error;
use crate::pod_volumes::{mount, read_only};
use crate::traits::guaranteed;

/// The container, unless the guest has no serial console or logging is disabled. It starts before `compute` and ends
/// after it, so that no line is lost.
pub(crate) fn container(vmi: &VirtualMachineInstance, config: &ClusterConfig) -> Result<Option<Container>, Error> {
    if !is_wanted(vmi, config) {
        return Ok(None);
    }
    let uid = vmi.metadata.uid.as_deref().unwrap_or_default();
    let log = format!("{}/{}", paths::console_directory(paths::PRIVATE, uid), sockets::SERIAL_LOG);
    let verbosity = log_verbosity(vmi, config)?.to_string();
    Ok(Some(Container {
        name: "guest-console-log".to_owned(),
        image: Some(config.launcher_image.clone()),
        image_pull_policy: Some(config.image_pull_policy().to_owned()),
        command: Some(vec!["/usr/bin/virt-tail".to_owned()]),
        args: Some(vec!["--logfile".to_owned(), log]),
        env: Some(vec![EnvVar { name: variables::LOG_VERBOSITY.to_owned(), value: Some(verbosity), value_from: None }]),
        resources: Some(auxiliary::resources(Kind::GuestConsoleLog, guaranteed(vmi), config)),
        restart_policy: Some("Always".to_owned()),
        security_context: Some(auxiliary::security_context()),
        volume_mounts: Some(vec![read_only(mount(paths::PRIVATE_VOLUME, paths::PRIVATE))]),
        ..Container::default()
    }))
}

fn is_wanted(vmi: &VirtualMachineInstance, config: &ClusterConfig) -> bool {
    let devices = &vmi.spec.domain.devices;
    let has_console = devices.autoattach_serial_console != Some(false);
    has_console && devices.log_serial_console.unwrap_or(!config.serial_console_log_disabled())
}
