//! The seccomp profile of launchers, installed where the kubelet looks for profiles.

use std::path::{Path, PathBuf};
use std::time::Duration;

use api::config::ClusterConfig;
use launcher_contract::seccomp;
use tokio::sync::watch;

use crate::error::chain;
use crate::plugins::changed;

/// Installs the profile also where the configuration does not refer to it yet; on unless it is disabled.
const GATE: &str = "KubevirtSeccompProfile";
const RETRY: Duration = Duration::from_secs(60);
/// For the container runtime alone.
const MODE: u32 = 0o600;

/// Installs the profile below `dir` whenever the configuration asks for it, for ever.
pub(crate) async fn keep(dir: PathBuf, mut configs: watch::Receiver<ClusterConfig>) {
    loop {
        let wanted = is_wanted(&configs.borrow_and_update());
        let failed = wanted && !installed(dir.clone()).await;
        tokio::select! {
            () = changed(&mut configs) => {}
            () = tokio::time::sleep(RETRY), if failed => {}
        }
    }
}

fn is_wanted(config: &ClusterConfig) -> bool {
    let configured = config.configuration.seccomp_configuration.as_ref();
    let profile =
        configured.and_then(|seccomp| seccomp.virtual_machine_instance_profile.as_ref()?.custom_profile.as_ref());
    config.feature_gate(GATE) || profile.and_then(|profile| profile.localhost_profile.as_deref()) == Some(seccomp::FILE)
}

async fn installed(dir: PathBuf) -> bool {
    let why = match tokio::task::spawn_blocking(move || install(&dir)).await {
        Ok(Ok(())) => return true,
        Ok(Err(error)) => chain(&error),
        Err(error) => error.to_string(),
    };
    tracing::warn!(error = why, "failed to install the launchers' seccomp profile; their Pods will not start");
    false
}

/// Writes the profile, if it differs.
fn install(dir: &Path) -> Result<(), hostfs::Error> {
    let path = dir.join(seccomp::FILE);
    let text = seccomp::profile().to_string();
    if std::fs::read_to_string(&path).is_ok_and(|found| found == text) {
        return Ok(());
    }
    let parent = Path::new(seccomp::FILE).parent().unwrap_or(Path::new(""));
    hostfs::beneath::Root::open(dir)?.mkdir_all(parent, 0o700, 0, 0)?;
    hostfs::atomic::write_mode(&path, text.as_bytes(), MODE)?;
    tracing::info!(path = %path.display(), "installed the seccomp profile of launchers");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use serde_json::{Value, json};
    use test_support::eventually;

    use super::*;

    fn config(configuration: Value) -> ClusterConfig {
        let kubevirt = serde_json::from_value(json!({"spec": {"configuration": configuration}})).unwrap();
        ClusterConfig::from_kubevirt(&kubevirt).unwrap()
    }

    fn using(file: &str) -> Value {
        json!({"seccompConfiguration": {"virtualMachineInstanceProfile": {"customProfile": {"localhostProfile": file}}}})
    }

    #[test]
    fn the_profile_is_wanted_by_default_and_where_it_is_referred_to() {
        assert!(is_wanted(&config(json!({}))), "by default");
        for (profile, expected) in [(Some("kubevirt/kubevirt.json"), true), (Some("mine.json"), false), (None, false)] {
            let mut configuration = profile.map_or(json!({}), using);
            configuration["developerConfiguration"] = json!({"disabledFeatureGates": [GATE]});
            assert_eq!(is_wanted(&config(configuration)), expected, "{profile:?}");
        }
    }

    #[tokio::test]
    async fn it_is_installed_when_the_configuration_asks_and_mended_when_it_differs() {
        if !rustix::process::geteuid().is_root() {
            return test_support::skip("only root can give files to root");
        }
        let dir = tempfile::tempdir().unwrap();
        let (sender, configs) =
            watch::channel(config(json!({"developerConfiguration": {"disabledFeatureGates": [GATE]}})));
        let keeping = tokio::spawn(keep(dir.path().to_owned(), configs));
        let file = dir.path().join(seccomp::FILE);
        sender.send_replace(config(using(seccomp::FILE)));
        eventually("the profile is there", async || file.exists()).await;
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::write(&file, "{}").unwrap();
        sender.send_replace(config(using(seccomp::FILE)));
        let whole = seccomp::profile().to_string();
        eventually("the profile is whole", async || std::fs::read_to_string(&file).unwrap() == whole).await;
        keeping.abort();
    }
}
