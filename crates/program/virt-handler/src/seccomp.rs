//! The seccomp profile of launchers, installed where the kubelet looks for profiles.

use std::path::{Path, PathBuf};
use std::time::Duration;

use api::config::ClusterConfig;
use devices::has_seccomp_profile;
use launcher_contract::seccomp;
use tokio::sync::watch;

use crate::error::chain;
use crate::plugins::changed;

/// How often to look at the file: somebody may delete it, and no launcher with the profile starts without it.
const PERIOD: Duration = Duration::from_secs(60);
/// For the container runtime alone.
const MODE: u32 = 0o600;

/// Keeps the profile below `dir` while the configuration asks for it, for ever.
pub(crate) async fn keep(dir: PathBuf, mut configs: watch::Receiver<ClusterConfig>) {
    loop {
        let wanted = has_seccomp_profile(&configs.borrow_and_update());
        if wanted {
            keep_installed(dir.clone()).await;
        }
        tokio::select! {
            () = changed(&mut configs) => {}
            () = tokio::time::sleep(PERIOD), if wanted => {}
        }
    }
}

async fn keep_installed(dir: PathBuf) {
    let why = match tokio::task::spawn_blocking(move || install(&dir)).await {
        Ok(Ok(())) => return,
        Ok(Err(error)) => chain(&error),
        Err(error) => error.to_string(),
    };
    tracing::warn!(error = why, "failed to install the launchers' seccomp profile; their Pods will not start");
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

    #[tokio::test(start_paused = true)]
    async fn it_is_installed_when_the_configuration_asks_and_mended_when_it_differs_or_is_gone() {
        if !rustix::process::geteuid().is_root() {
            return test_support::skip("only root can give files to root");
        }
        let dir = tempfile::tempdir().unwrap();
        let (sender, configs) = watch::channel(config(
            json!({"developerConfiguration": {"disabledFeatureGates": ["KubevirtSeccompProfile"]}}),
        ));
        let keeping = tokio::spawn(keep(dir.path().to_owned(), configs));
        let file = dir.path().join(seccomp::FILE);
        sender.send_replace(config(using(seccomp::FILE)));
        eventually("the profile is there", async || file.exists()).await;
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::write(&file, "{}").unwrap();
        sender.send_replace(config(using(seccomp::FILE)));
        let whole = seccomp::profile().to_string();
        eventually("the profile is whole", async || std::fs::read_to_string(&file).unwrap() == whole).await;
        std::fs::remove_file(&file).unwrap();
        tokio::time::sleep(PERIOD * 2).await;
        assert_eq!(std::fs::read_to_string(&file).unwrap(), whole, "nothing but time has changed");
        keeping.abort();
    }
}
