//! The short way through everything on a real cluster: what `docs/quickstart-kubernetes.md` tells people to do.

use anyhow::{Context as _, Result};
use e2e::kubernetes::{Kubernetes, quickstart};
use libtest_mimic::Trial;

use crate::kubernetes;

pub(crate) fn trials() -> Vec<Trial> {
    vec![kubernetes("quickstart_document_works_as_it_stands", document)]
}

async fn document() -> Result<()> {
    let work = || {
        let Some(cluster) = Kubernetes::bare(&e2e::program()?)? else { return Ok(()) };
        let ran = quickstart::run(&cluster, false);
        ran.map(drop).map_err(|err| err.context(cluster.report()))
    };
    tokio::task::spawn_blocking(work).await.context("the quickstart panicked")?
}
