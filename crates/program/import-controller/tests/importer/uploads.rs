//! Uploads through the proxy, with curl as its client.

use std::process::Command;

use api::cdi::{CDI, CDIConfig, StorageProfile};
use futures::FutureExt as _;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use serde_json::{Value, json};
use test_support::eventually_within;

use crate::Test;
use crate::cluster::{Cluster, MIB, PATIENCE, disk_image, run, running};

pub(crate) const TESTS: &[Test] = &[
    ("an_image_is_uploaded_for_a_token", || upload().boxed_local()),
    ("an_upload_that_breaks_off_or_is_bad_can_be_tried_again", || again().boxed_local()),
    ("forms_and_archives_are_taken_and_so_are_plain_claims", || kinds().boxed_local()),
    ("our_virtctl_uploads_and_trusts_the_clusters_authority", || virtctl().boxed_local()),
    ("clients_find_an_importer_that_is_installed", || installed().boxed_local()),
];

async fn token(cluster: &Cluster, claim: &str) -> String {
    let body = json!({"apiVersion": "upload.cdi.kubevirt.io/v1beta1", "kind": "UploadTokenRequest",
                      "metadata": {"name": "t"}, "spec": {"pvcName": claim}});
    let request = http::Request::post("/apis/upload.cdi.kubevirt.io/v1beta1/namespaces/default/uploadtokenrequests")
        .header("content-type", "application/json")
        .body(body.to_string().into_bytes());
    let answer: Value = cluster.admin.request(request.unwrap()).await.unwrap();
    answer["status"]["token"].as_str().unwrap().to_owned()
}

/// What the proxy answers: the code and the text.
async fn curl(cluster: &Cluster, path: &str, token: Option<&str>, more: &[&str]) -> (u16, String) {
    let ca = cluster.path("ca.pem");
    std::fs::write(&ca, cluster.server.authority.pem()).unwrap();
    let mut command = Command::new("curl");
    command.args(["-sS", "--noproxy", "*", "-w", "\n%{http_code}", "--cacert"]).arg(&ca).args(more);
    if let Some(token) = token {
        command.args(["-H", &format!("Authorization: Bearer {token}")]);
    }
    command.arg(format!("{}{path}", cluster.url));
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (text, code) = text.rsplit_once('\n').unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    (code.parse().unwrap(), text.to_owned())
}

async fn upload() {
    let cluster = Cluster::start().await;
    let content = disk_image(&cluster.path("disk.raw"), 8 * MIB);
    let at = |name: &str| cluster.path(name).to_str().unwrap().to_owned();
    run("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &at("disk.raw"), &at("disk.qcow2")]);
    let file = at("disk.qcow2");
    cluster.data_volume("disk", json!({"upload": {}}), json!({})).await;
    cluster.phase("disk", "UploadReady").await;
    let good = token(&cluster, "disk").await;
    // Who has no token, or one for something else, is told nothing.
    for (path, token, code) in [
        ("/v1beta1/upload", None, 400),
        ("/v1beta1/upload", Some("a.b.c"), 401),
        ("/v1beta1/elsewhere", Some(good.as_str()), 404),
    ] {
        assert_eq!(curl(&cluster, path, token, &["--data-binary", "x"]).await.0, code, "{path} {token:?}");
    }
    let gone = token(&cluster, "gone").await;
    let (code, text) = curl(&cluster, "/v1beta1/upload", Some(&gone), &["--data-binary", "x"]).await;
    assert_eq!(code, 503);
    assert!(text.contains("doesn't exist"), "{text}");
    // As virtctl does.
    assert_eq!(curl(&cluster, "/v1beta1/upload-async", Some(&good), &["-I"]).await.0, 200);
    assert_eq!(curl(&cluster, "/v1beta1/upload", Some(&good), &["-I"]).await.0, 404, "only that one is asynchronous");
    let taken = curl(&cluster, "/v1beta1/upload-async", Some(&good), &["-T", &file, "-X", "POST"]).await;
    assert_eq!(taken, (200, String::new()));
    let status = cluster.phase("disk", "Succeeded").await;
    assert_eq!(running(&status).1, "Upload Complete");
    assert!(std::fs::read(cluster.disk("disk").await).unwrap().starts_with(&content));
    let (code, text) = curl(&cluster, "/v1beta1/upload", Some(&good), &["--data-binary", "x"]).await;
    assert_eq!(code, 503);
    assert!(text.contains("already finished uploading"), "{text}");
}

async fn again() {
    let cluster = Cluster::start().await;
    let content = disk_image(&cluster.path("disk.raw"), 8 * MIB);
    let file = cluster.path("disk.raw").to_str().unwrap().to_owned();
    cluster.data_volume("disk", json!({"upload": {}}), json!({})).await;
    cluster.phase("disk", "UploadReady").await;
    let token = token(&cluster, "disk").await;
    // Slowly, and then the client is gone.
    let cut =
        curl(&cluster, "/v1beta1/upload", Some(&token), &["-T", &file, "-X", "POST", "--limit-rate", "1M", "-m", "2"])
            .await;
    assert!([0, 100].contains(&cut.0), "no answer came: {cut:?}");
    cluster.wait("disk", "the failure counts", |status| status.restart_count == Some(1)).await;
    assert_eq!(cluster.phase("disk", "UploadReady").await.restart_count, Some(1));
    // Too large for the claim.
    let large = cluster.path("large.qcow2");
    run("qemu-img", &["create", "-q", "-f", "qcow2", large.to_str().unwrap(), "1G"]);
    let (code, text) =
        curl(&cluster, "/v1beta1/upload", Some(&token), &["-T", large.to_str().unwrap(), "-X", "POST"]).await;
    assert_eq!(code, 400, "{text}");
    assert!(text.contains("effective image size is larger than the reported available storage"), "{text}");
    cluster.wait("disk", "the failure counts", |status| status.restart_count == Some(2)).await;
    // Two at a time: one is told to come again.
    let slow = ["-T", &file, "-X", "POST", "--limit-rate", "4M"];
    let (first, second) = tokio::join!(curl(&cluster, "/v1beta1/upload", Some(&token), &slow), async {
        tokio::time::sleep(std::time::Duration::from_millis(700)).await;
        curl(&cluster, "/v1beta1/upload", Some(&token), &["--data-binary", "x"]).await
    });
    assert_eq!(first, (200, String::new()));
    assert_eq!(second.0, 503, "{}", second.1);
    cluster.phase("disk", "Succeeded").await;
    assert!(std::fs::read(cluster.disk("disk").await).unwrap().starts_with(&content));
}

async fn kinds() {
    let cluster = Cluster::start().await;
    let content = disk_image(&cluster.path("disk.raw"), 4 * MIB);
    let at = |name: &str| cluster.path(name).to_str().unwrap().to_owned();
    cluster.data_volume("form", json!({"upload": {}}), json!({})).await;
    cluster.phase("form", "UploadReady").await;
    let form = token(&cluster, "form").await;
    let part = format!("file=@{}", at("disk.raw"));
    let sent = curl(&cluster, "/v1beta1/upload-form", Some(&form), &["-F", "note=hello", "-F", &part]).await;
    assert_eq!(sent, (200, String::new()));
    cluster.phase("form", "Succeeded").await;
    assert!(std::fs::read(cluster.disk("form").await).unwrap().starts_with(&content));

    // A claim of nobody, as `virtctl image-upload pvc` makes it, in the class that waits.
    let annotations = json!({"cdi.kubevirt.io/storage.upload.target": "", "cdi.kubevirt.io/storage.contentType": "archive",
                             "cdi.kubevirt.io/storage.bind.immediate.requested": ""});
    let claim = json!({"metadata": {"namespace": "default", "name": "tree", "annotations": annotations}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "64Mi"}}}});
    cluster.create::<PersistentVolumeClaim>(claim).await;
    let noted = async |key: &str, value: &str| {
        let what = format!("{key} is {value}");
        eventually_within(PATIENCE, &what, async || {
            let claim = cluster.claims().get("tree").await.unwrap();
            claim.metadata.annotations.unwrap_or_default().get(key).map(String::as_str) == Some(value)
        })
        .await;
    };
    noted("cdi.kubevirt.io/storage.pod.ready", "true").await;
    std::fs::create_dir(cluster.path("tree")).unwrap();
    std::fs::write(cluster.path("tree/hello"), "world").unwrap();
    run("tar", &["-C", &at(""), "-cf", &at("tree.tar"), "tree"]);
    let tree = token(&cluster, "tree").await;
    let sent = curl(&cluster, "/v1beta1/upload-archive", Some(&tree), &["-T", &at("tree.tar"), "-X", "POST"]).await;
    assert_eq!(sent, (200, String::new()));
    noted("cdi.kubevirt.io/storage.pod.phase", "Succeeded").await;
    let root = cluster.disk("tree").await;
    assert_eq!(std::fs::read_to_string(root.with_file_name("tree").join("hello")).unwrap(), "world");
}

async fn installed() {
    let cluster = Cluster::start().await;
    let configs: Api<CDIConfig> = Api::all(cluster.admin.clone());
    let url = eventually_within(PATIENCE, "the settings name the proxy", async || {
        configs.get_opt("config").await.unwrap()?.status?.upload_proxy_url
    })
    .await;
    assert_eq!(url, cluster.url);
    let installations: Api<CDI> = Api::all(cluster.admin.clone());
    eventually_within(PATIENCE, "it is deployed", async || {
        installations.get_opt("cdi").await.unwrap()?.status?.phase.filter(|phase| phase == "Deployed")
    })
    .await;
    let profiles: Api<StorageProfile> = Api::all(cluster.admin.clone());
    let sets = eventually_within(PATIENCE, "the class has a profile", async || {
        profiles.get_opt("local").await.unwrap()?.status.map(|status| status.claim_property_sets)
    })
    .await;
    assert_eq!(sets[0].access_modes, ["ReadWriteMany"]);
}

async fn virtctl() {
    use clap::Parser as _;
    let cluster = Cluster::start().await;
    let content = disk_image(&cluster.path("disk.raw"), 4 * MIB);
    let image = format!("--image-path={}", cluster.path("disk.raw").display());
    let kubeconfig = cluster.server.write_kubeconfig("admin.json", "kubernetes-admin", &[test_support::pki::MASTERS]);
    let call = async |words: &[&str]| {
        let config = format!("--kubeconfig={}", kubeconfig.display());
        let words = ["virtctl", config.as_str(), "image-upload"].into_iter().chain(words.iter().copied());
        let cli = virtctl::Cli::try_parse_from(words).unwrap();
        virtctl::run(cli).await.map(drop).map_err(|error| format!("{error:#}"))
    };
    let waits = call(&["dv", "waits", "--size=64Mi", &image]).await.unwrap_err();
    assert!(waits.contains("WaitForFirstConsumer") && waits.contains("force-bind"), "{waits}");
    call(&["dv", "disk", "--size=64Mi", "--force-bind", "--datasource", &image]).await.unwrap();
    cluster.phase("disk", "Succeeded").await;
    assert!(std::fs::read(cluster.disk("disk").await).unwrap().starts_with(&content));
    call(&["pvc", "plain", "--size=64Mi", "--storage-class=local-immediate", &image]).await.unwrap();
    assert!(std::fs::read(cluster.disk("plain").await).unwrap().starts_with(&content));
    let again = call(&["dv", "disk", &image]).await.unwrap_err();
    assert!(again.contains("already successfully"), "{again}");
    let nothing = call(&["dv", "gone", "--no-create", &image]).await.unwrap_err();
    assert!(nothing.contains("not found"), "{nothing}");
    let sources: Api<api::cdi::DataSource> = Api::namespaced(cluster.admin.clone(), "default");
    assert_eq!(sources.get("disk").await.unwrap().spec.source.pvc.unwrap().name, "disk");
}
