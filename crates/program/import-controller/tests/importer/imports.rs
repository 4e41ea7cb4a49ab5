//! Sources of images, good and bad.

use futures::FutureExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

use crate::Test;
use crate::cluster::{Cluster, MIB, disk_image, run, running};
use crate::server::Images;

pub(crate) const TESTS: &[Test] = &[
    ("images_of_all_kinds_become_disks", || formats().boxed_local()),
    ("a_block_claim_is_filled_and_preallocated", || block().boxed_local()),
    ("a_bad_checksum_is_told_and_not_tried_again", || checksum().boxed_local()),
    ("a_missing_image_is_waited_for", || missing().boxed_local()),
    ("a_certificate_has_to_be_known", || certificate().boxed_local()),
    ("an_image_that_does_not_fit_is_told", || too_large().boxed_local()),
    ("what_is_not_supported_is_told_and_what_is_wrong_is_refused", || refusals().boxed_local()),
];

fn same(path: &std::path::Path, content: &[u8]) {
    let found = std::fs::read(path).unwrap();
    assert!(found.len() >= content.len(), "{} has {} bytes", path.display(), found.len());
    assert!(found[..content.len()] == *content, "{} has other content", path.display());
    assert!(found[content.len()..].iter().all(|byte| *byte == 0), "{} has more content", path.display());
}

async fn formats() {
    let cluster = Cluster::start().await;
    let images = Images::default();
    let raw = cluster.path("disk.raw");
    let content = disk_image(&raw, 16 * MIB);
    let at = |name: &str| cluster.path(name).to_str().unwrap().to_owned();
    run("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &at("disk.raw"), &at("disk.qcow2")]);
    run("sh", &["-c", &format!("gzip -c {0} > {0}.gz && xz -1 -c {0} > {0}.xz", at("disk.raw"))]);
    let url = images.serve().await;
    for name in ["disk.raw", "disk.qcow2", "disk.raw.gz", "disk.raw.xz"] {
        images.put(&format!("/{name}"), std::fs::read(cluster.path(name)).unwrap());
    }
    let sources = [("raw", "disk.raw"), ("qcow2", "disk.qcow2"), ("gz", "disk.raw.gz"), ("xz", "disk.raw.xz")];
    for (name, file) in sources {
        let sum = run("sha256sum", &[&at(file)]).split(' ').next().unwrap().to_owned();
        let source = json!({"http": {"url": format!("{url}/{file}"), "checksum": format!("sha256:{sum}")}});
        cluster.data_volume(name, source, json!({})).await;
    }
    cluster.data_volume("blank", json!({"blank": {}}), json!({})).await;
    for (name, _) in sources {
        let status = cluster.phase(name, "Succeeded").await;
        assert_eq!(status.progress.as_deref(), Some("100.0%"));
        assert_eq!(running(&status), ("Completed".to_owned(), "Import Complete".to_owned()));
        assert_eq!(status.claim_name.as_deref(), Some(name));
        same(&cluster.disk(name).await, &content);
        assert!(!cluster.is_held(name).await, "Pods can use it");
    }
    cluster.phase("blank", "Succeeded").await;
    same(&cluster.disk("blank").await, &[]);
}

async fn block() {
    let cluster = Cluster::start().await;
    let images = Images::default();
    let content = disk_image(&cluster.path("disk.raw"), 8 * MIB);
    images.put("/disk", content.clone());
    let url = images.serve().await;
    let source = json!({"http": {"url": format!("{url}/disk")}});
    cluster.data_volume("disk", source, json!({"volumeMode": "Block"})).await;
    cluster.phase("disk", "Succeeded").await;
    same(&cluster.disk("disk").await, &content);
    let claim = cluster.claims().get("disk").await.unwrap();
    assert_eq!(json!(claim.spec)["volumeMode"], "Block");
}

async fn checksum() {
    let cluster = Cluster::start().await;
    let images = Images::default();
    images.put("/disk", disk_image(&cluster.path("disk.raw"), 2 * MIB));
    let url = images.serve().await;
    let source = json!({"http": {"url": format!("{url}/disk"), "checksum": format!("md5:{}", "0".repeat(32))}});
    cluster.data_volume("disk", source, json!({})).await;
    let status = cluster.phase("disk", "Failed").await;
    let (reason, message) = running(&status);
    assert_eq!(reason, "ChecksumError");
    assert!(message.contains("checksum mismatch"), "{message}");
}

async fn missing() {
    let cluster = Cluster::start().await;
    let images = Images::default();
    let url = images.serve().await;
    let source = json!({"http": {"url": format!("{url}/disk")}});
    cluster.data_volume("disk", source, json!({})).await;
    let status = cluster.wait("disk", "it tells why", |status| running(status).0 == "Error").await;
    assert_eq!(status.phase.as_ref().map(|phase| phase.as_str()), Some("ImportInProgress"));
    let (_, message) = running(&status);
    assert!(message.contains("Unable to connect to http data source") && message.contains("404"), "{message}");
    assert!(cluster.is_held("disk").await, "nobody may use what is half filled");
    let content = disk_image(&cluster.path("disk.raw"), 2 * MIB);
    images.put("/disk", content.clone());
    let status = cluster.phase("disk", "Succeeded").await;
    assert_eq!(status.restart_count, Some(1));
    same(&cluster.disk("disk").await, &content);
}

async fn certificate() {
    let cluster = Cluster::start().await;
    let images = Images::default();
    let content = disk_image(&cluster.path("disk.raw"), 2 * MIB);
    images.put("/disk", content.clone());
    let authority = test_support::Authority::new();
    let url = images.serve_tls(&authority.issue("images", &[])).await;
    let source = json!({"http": {"url": format!("{url}/disk")}});
    cluster.data_volume("unknown", source.clone(), json!({})).await;
    let status = cluster.wait("unknown", "it tells why", |status| running(status).0 == "Error").await;
    let (_, message) = running(&status);
    assert!(message.to_lowercase().contains("certificate"), "{message}");
    let ca = json!({"metadata": {"namespace": "default", "name": "images-ca"}, "data": {"ca.pem": authority.pem()}});
    cluster.create::<ConfigMap>(ca).await;
    let mut known = source;
    known["http"]["certConfigMap"] = json!("images-ca");
    cluster.data_volume("known", known, json!({})).await;
    cluster.phase("known", "Succeeded").await;
    same(&cluster.disk("known").await, &content);
}

async fn too_large() {
    let cluster = Cluster::start().await;
    let images = Images::default();
    let path = cluster.path("large.qcow2");
    run("qemu-img", &["create", "-q", "-f", "qcow2", path.to_str().unwrap(), "1G"]);
    images.put("/large", std::fs::read(path).unwrap());
    let url = images.serve().await;
    cluster.data_volume("disk", json!({"http": {"url": format!("{url}/large")}}), json!({})).await;
    let status = cluster.wait("disk", "it tells why", |status| running(status).0 == "Error").await;
    let (_, message) = running(&status);
    assert!(message.contains("larger than"), "{message}");
}

async fn refusals() {
    let cluster = Cluster::start().await;
    cluster.data_volume("bucket", json!({"s3": {"url": "s3://bucket/disk"}}), json!({})).await;
    let status = cluster.phase("bucket", "Failed").await;
    assert_eq!(running(&status).0, "NotSupported");
    assert!(cluster.claims().get_opt("bucket").await.unwrap().is_none(), "no claim is made");
    let wrong: Value = json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "metadata": {"name": "two"},
        "spec": {"source": {"blank": {}, "upload": {}}, "storage": {"resources": {"requests": {"storage": "1Gi"}}}},
    });
    let wrong: api::cdi::DataVolume = serde_json::from_value(wrong).unwrap();
    let refused = cluster.data_volumes().create(&Default::default(), &wrong).await.unwrap_err().to_string();
    assert!(refused.contains("Multiple Data volume sources"), "{refused}");
}
