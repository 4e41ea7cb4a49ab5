//! Copies of what is there.

use api::cdi::DataSource;
use futures::FutureExt as _;
use kube::Api;
use serde_json::json;
use test_support::eventually_within;

use crate::Test;
use crate::cluster::{Cluster, MIB, PATIENCE, disk_image};
use crate::server::Images;

pub(crate) const TESTS: &[Test] =
    &[("a_claim_is_cloned_once_it_is_filled_also_by_a_data_source", || clone().boxed_local())];

async fn clone() {
    let cluster = Cluster::start().await;
    let images = Images::default();
    let content = disk_image(&cluster.path("disk.raw"), 4 * MIB);
    let url = images.serve().await;
    // The clone is asked for before its source is there.
    cluster.data_volume("copy", json!({"pvc": {"namespace": "default", "name": "golden"}}), json!({})).await;
    let named = |status: &api::cdi::DataVolumeStatus| {
        status.conditions.iter().any(|c| c.reason.as_deref() == Some("CloneWithoutSource"))
    };
    cluster.wait("copy", "it tells what is missing", named).await;
    let source = json!({"metadata": {"namespace": "default", "name": "os"}, "spec": {"source": {"pvc": {"namespace": "default", "name": "golden"}}}});
    cluster.create::<DataSource>(source).await;
    images.put("/disk", content.clone());
    cluster.data_volume("golden", json!({"http": {"url": format!("{url}/disk")}}), json!({})).await;
    cluster.phase("copy", "Succeeded").await;
    assert!(std::fs::read(cluster.disk("copy").await).unwrap().starts_with(&content));
    let sources: Api<DataSource> = Api::namespaced(cluster.admin.clone(), "default");
    eventually_within(PATIENCE, "the DataSource is ready", async || {
        let status = sources.get("os").await.unwrap().status?;
        status.conditions.into_iter().find(|condition| condition.status.as_str() == "True")
    })
    .await;
    let spec =
        json!({"sourceRef": {"kind": "DataSource", "name": "os"}, "storage": {"storageClassName": "local-immediate"}});
    cluster
        .create::<api::cdi::DataVolume>(json!({"metadata": {"namespace": "default", "name": "third"}, "spec": spec}))
        .await;
    cluster.phase("third", "Succeeded").await;
    assert!(std::fs::read(cluster.disk("third").await).unwrap().starts_with(&content));
}
