//! Durable creates per second through the API, beside bare synced appends on the same disk.

use std::io::Write as _;
use std::time::Instant;

use anyhow::{Context as _, Result};
use drive::Embedded;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};
use serde_json::json;

const CREATES: usize = 2000;
/// Clients that wait for their answers at the same time: the writer commits them together.
const CONCURRENT: usize = 32;
const SYNCS: usize = 500;

pub(crate) async fn measure(cluster: &Embedded) -> Result<()> {
    let floor = appends(cluster)?;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client().await?);
    for (label, concurrent, count) in [("one client", 1, CREATES / 4), ("32 clients", CONCURRENT, CREATES)] {
        let rate = creates(&maps, label, concurrent, count).await?;
        println!("API creates, {label:20}{rate:7.0} /s   synced appends {floor:.0} /s   ratio {:.2}", rate / floor);
    }
    Ok(())
}

async fn creates(maps: &Api<ConfigMap>, label: &str, concurrent: usize, count: usize) -> Result<f64> {
    let tag = label.replace(' ', "-");
    let started = Instant::now();
    futures::stream::iter(0..count)
        .map(|index| {
            let object = json!({"metadata": {"name": format!("{tag}-{index}")}, "data": {"key": "x".repeat(512)}});
            async move {
                let object: ConfigMap = serde_json::from_value(object).context("the ConfigMap")?;
                maps.create(&PostParams::default(), &object).await.context("cannot create a ConfigMap")
            }
        })
        .buffer_unordered(concurrent)
        .try_for_each(|_| async { Ok(()) })
        .await?;
    Ok(count as f64 / started.elapsed().as_secs_f64())
}

/// What the disk gives to a program that only appends and syncs.
fn appends(cluster: &Embedded) -> Result<f64> {
    let mut file = tempfile::tempfile_in(cluster.layout().root()).context("cannot make a file")?;
    let started = Instant::now();
    for _ in 0..SYNCS {
        file.write_all(&[7; 1024]).and_then(|()| file.sync_data()).context("cannot write and sync")?;
    }
    Ok(SYNCS as f64 / started.elapsed().as_secs_f64())
}
