//! Helpers about guests, shared by several commands.

use std::path::Path;

use anyhow::{Context, Result};
use api::v1::VirtualMachineInstance;
use kube::api::{Api, ListParams};

use crate::cluster::layout::Layout;

/// Image references of the test guest, each with its directory below the guest's build directory.
pub(crate) const TEST_IMAGES: &[(&str, &str)] =
    &[("ferrovirt.io/guest-kernel:latest", "kernel"), ("ferrovirt.io/guest-disk:latest", "containerdisk")];

/// Imports the test guest's images into the cluster's image store.
pub fn import(layout: &Layout, dir: &Path) -> Result<()> {
    for (reference, below) in TEST_IMAGES {
        let from = dir.join(below);
        pod_runner::images::import(&layout.images(), reference, &from)
            .with_context(|| format!("cannot import {} as {reference}; `make guest` builds it", from.display()))?;
    }
    Ok(())
}

/// Number of running guests; `None` if the API server does not answer.
pub(crate) async fn running(client: &kube::Client) -> Option<usize> {
    let vmis: Api<VirtualMachineInstance> = Api::all(client.clone());
    let list = vmis.list(&ListParams::default()).await.ok()?;
    Some(list.items.iter().filter(|vmi| vmi.is_running()).count())
}
