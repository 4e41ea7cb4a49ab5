//! Whether guests can run on KVM here, found out once per boot: trying takes seconds where it does not work.

use std::path::Path;

use hostfs::process::ProcessId;
use serde::{Deserialize, Serialize};

/// Beside the other records in the private directory.
const FILE: &str = "kvm.json";

#[derive(Serialize, Deserialize)]
struct Finding {
    boot: u64,
    /// Why it does not work; none if it does.
    unusable: Option<String>,
}

/// `Err` holds a sentence for users. Blocks.
pub(crate) fn usable(private_dir: &Path) -> Result<(), String> {
    // Without the device the answer is cheap, and a module that is loaded later must not be missed.
    let boot = ProcessId::current().map(|process| process.boot).ok().filter(|_| Path::new("/dev/kvm").exists());
    let Some(boot) = boot else { return hostfs::kvm::usable() };
    let file = private_dir.join(FILE);
    if let Ok(Some(finding)) = hostfs::atomic::read_json::<Finding>(&file)
        && finding.boot == boot
    {
        return finding.unusable.map_or(Ok(()), Err);
    }
    let found = hostfs::kvm::usable();
    let finding = Finding { boot, unusable: found.clone().err() };
    if let Err(error) = hostfs::atomic::write_json(&file, &finding) {
        tracing::warn!(error = crate::error::chain(&error), "the finding about KVM is not kept");
    }
    found
}
