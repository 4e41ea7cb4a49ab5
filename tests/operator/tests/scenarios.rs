//! What an administrator sees of virt-operator.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use control_plane::Fate;
use control_plane::installed::{Answer, PATIENCE, Scenario, ask, send, wait};
use ferrovirt_cli::installation::programs;
use ferrovirt_cli::uninstall::Removal;
use http::Method;
use install::names;
use operate::Id;
use rcgen::{CertificateParams, DnType, KeyPair, SanType};
use serde_json::{Value, json};

use crate::installation::{Installation, KUBEVIRT, path, settings};

/// In this order; the last ones remove the system.
pub(crate) fn all() -> Vec<(&'static str, Scenario<Installation>)> {
    vec![
        ("an_applied_manifest_is_the_whole_installation", |on| Box::pin(installs(on))),
        ("a_settled_installation_is_not_written_to", |on| Box::pin(settles(on))),
        ("drift_is_repaired", |on| Box::pin(drifts(on))),
        ("a_second_kubevirt_object_is_refused_by_the_webhook", |on| Box::pin(second(on))),
        ("nodes_get_certificates_and_others_do_not", |on| Box::pin(nodes(on))),
        ("certificates_are_rotated_with_overlap", |on| Box::pin(rotates(on))),
        ("an_update_begins_with_one_node", |on| Box::pin(updates(on))),
        ("vms_are_protected_and_the_system_goes_when_they_are_gone", |on| Box::pin(leaves(on))),
        ("an_installation_with_every_pod_dead_is_removed", |on| Box::pin(removed_by_hand(on))),
        ("kubectl_applies_what_is_printed", |on| Box::pin(applied_by_kubectl(on))),
    ]
}

const NAMESPACE: &str = "/api/v1/namespaces/kubevirt";
const APPS: &str = "/apis/apps/v1/namespaces/kubevirt";

fn condition(kubevirt: &Value, type_: &str) -> Option<(bool, String, String)> {
    let all = kubevirt["status"]["conditions"].as_array()?;
    let found = all.iter().find(|one| one["type"] == type_)?;
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    Some((found["status"] == "True", text("reason"), text("message")))
}

/// Waits until everything of the current spec is ready.
async fn ready(on: &Installation) -> Result<Value> {
    wait("everything is ready", async || {
        on.plane.check()?;
        let kubevirt = on.get(KUBEVIRT).await?;
        let current = kubevirt["status"]["observedGeneration"] == kubevirt["metadata"]["generation"];
        let available = condition(&kubevirt, "Available").is_some_and(|(holds, ..)| holds);
        let settled = condition(&kubevirt, "Progressing").is_some_and(|(holds, ..)| !holds)
            && condition(&kubevirt, "Degraded").is_some_and(|(holds, ..)| !holds);
        let ready = kubevirt["status"]["phase"] == "Deployed" && current && available && settled;
        Ok(if ready { Ok(kubevirt) } else { Err(kubevirt["status"].to_string()) })
    })
    .await
}

async fn installs(on: Arc<Installation>) -> Result<()> {
    let kubevirt = ready(&on).await?;
    ensure!(condition(&kubevirt, "Created").is_some_and(|(holds, ..)| holds), "{kubevirt}");
    ensure!(condition(&kubevirt, "Synchronized").is_none(), "{kubevirt}");
    ensure!(kubevirt["status"]["operatorVersion"] == settings().image_tag, "{kubevirt}");
    ensure!(kubevirt["metadata"]["finalizers"] == json!(["kubevirt.io/foregroundDeleteKubeVirt"]), "{kubevirt}");
    for manifest in install::managed(&settings(), &programs()) {
        let id = Id::of(&manifest.object);
        let answer = on.ask(Method::GET, &path(&id)?, None).await?;
        ensure!(answer.code == 200, "{id} is missing");
    }
    let health = probe(on.health).await?;
    ensure!(health.starts_with("HTTP/1.1 200 "), "{health}");
    let size = kubevirt["status"].to_string().len();
    ensure!(size < 4096, "the status has {size} bytes");
    // What Pods mount and what the API server trusts is one CA.
    let bundle = on.get(&format!("{NAMESPACE}/configmaps/kubevirt-ca")).await?;
    let bundle = bundle["data"]["ca-bundle"].as_str().context("a bundle")?.to_owned();
    let service = on.get("/apis/apiregistration.k8s.io/v1/apiservices/v1.subresources.kubevirt.io").await?;
    ensure!(service["spec"]["caBundle"] == BASE64_STANDARD.encode(&bundle), "{service}");
    Ok(())
}

/// What a kubelet's probe is answered. It does not look at the certificate.
async fn probe(address: std::net::SocketAddr) -> Result<String> {
    let url = format!("https://{address}{}", names::health::HEALTHZ);
    let output = tokio::process::Command::new("curl").args(["-sSki", "--max-time", "20", &url]).output().await;
    let output = output.context("cannot run curl")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Resource versions of everything that is managed, and of the KubeVirt object.
async fn versions(on: &Installation) -> Result<Vec<(String, String)>> {
    let mut paths = vec![KUBEVIRT.to_owned()];
    for manifest in install::managed(&settings(), &programs()) {
        paths.push(path(&Id::of(&manifest.object))?);
    }
    let mut versions = Vec::new();
    for path in paths {
        let object = on.get(&path).await?;
        // Kubernetes writes the status of some.
        let version = match object["metadata"]["generation"].as_i64() {
            Some(generation) if !path.ends_with("kubevirts/kubevirt") => generation.to_string(),
            _ => object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned(),
        };
        versions.push((path, version));
    }
    Ok(versions)
}

async fn settles(on: Arc<Installation>) -> Result<()> {
    let before = versions(&on).await?;
    // Something changes that concerns nobody, and has virt-operator look at everything.
    let map = json!({"metadata": {"name": "nudge", "labels": {"app.kubernetes.io/managed-by": "virt-operator"}}});
    let maps = format!("{NAMESPACE}/configmaps");
    let answer = on.ask(Method::POST, &maps, Some(&map)).await?;
    ensure!(answer.code == 201, "{answer:?}");
    tokio::time::sleep(Duration::from_secs(3)).await;
    let after = versions(&on).await?;
    let changed: Vec<_> = before.iter().zip(&after).filter(|(before, after)| before != after).collect();
    ensure!(changed.is_empty(), "{changed:?}");
    on.ask(Method::DELETE, &format!("{maps}/nudge"), None).await?;
    Ok(())
}

async fn drifts(on: Arc<Installation>) -> Result<()> {
    let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/kubevirt-handler";
    let deployment = format!("{APPS}/deployments/virt-controller");
    let budget = "/apis/policy/v1/namespaces/kubevirt/poddisruptionbudgets/virt-api-pdb";
    on.patch(role, &json!({"rules": []})).await?;
    let sidecar = json!({"name": "sidecar", "image": "x"});
    let pod = on.get(&deployment).await?["spec"]["template"]["spec"]["containers"].clone();
    let containers = json!([pod[0], sidecar]);
    on.patch(&deployment, &json!({"spec": {"replicas": 5, "template": {"spec": {"containers": containers}}}})).await?;
    on.ask(Method::DELETE, budget, None).await?;
    wait("drift is repaired", async || {
        let (role, deployment) = (on.get(role).await?, on.get(&deployment).await?);
        let containers = deployment["spec"]["template"]["spec"]["containers"].as_array().map(Vec::len);
        let good = role["rules"].as_array().is_some_and(|rules| !rules.is_empty())
            && deployment["spec"]["replicas"] == 2
            && containers == Some(1)
            && on.ask(Method::GET, budget, None).await?.code == 200;
        Ok(good.then_some(()).ok_or_else(|| format!("{} {}", role["rules"], deployment["spec"])))
    })
    .await?;
    ready(&on).await.map(drop)
}

async fn second(on: Arc<Installation>) -> Result<()> {
    let second =
        json!({"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": {"name": "second"}, "spec": {}});
    let answer = on.ask(Method::POST, "/apis/kubevirt.io/v1/namespaces/kubevirt/kubevirts", Some(&second)).await?;
    let message = answer.body["message"].as_str().unwrap_or_default();
    ensure!(answer.code >= 400 && message.contains("already created"), "{answer:?}");
    let invalid = json!({"spec": {"infra": {"replicas": 0}}});
    let answer = on.ask(Method::PATCH, KUBEVIRT, Some(&invalid)).await?;
    ensure!(
        answer.code == 422 && answer.body["message"].as_str().is_some_and(|it| it.contains("replica")),
        "{answer:?}"
    );
    Ok(())
}

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

fn request(name: &str, node: &str) -> Result<Value> {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, names::common_name::HANDLER);
    params.subject_alt_names = vec![SanType::URI(role_tls::node_uri(node).try_into()?)];
    let pem = params.serialize_request(&KeyPair::generate()?)?.pem()?;
    Ok(json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
        "spec": {"signerName": names::SIGNER, "request": BASE64_STANDARD.encode(pem),
                 "usages": ["digital signature", "client auth", "server auth"]}}))
}

/// Asks as virt-handler on this node.
async fn as_handler(on: &Installation, node: Option<&str>, body: &Value) -> Result<Answer> {
    let mut request =
        http::Request::builder().method(Method::POST).uri(REQUESTS).header("content-type", "application/json");
    request = request.header("Impersonate-User", names::user(names::account::HANDLER, names::NAMESPACE));
    request = request.header("Impersonate-Group", test_support::pki::MASTERS);
    if let Some(node) = node {
        request = request.header("Impersonate-Extra-Authentication.kubernetes.io%2fnode-name", node);
    }
    send(&on.client, request.body(kube::client::Body::from(body.to_string().into_bytes()))?).await
}

async fn nodes(on: Arc<Installation>) -> Result<()> {
    let table = [
        ("own", Some("node-0"), "node-0", true),
        ("foreign", Some("node-1"), "node-0", false),
        ("nobody", None, "node-0", false),
    ];
    for (name, from, about, granted) in table {
        let answer = as_handler(&on, from, &request(name, about)?).await?;
        ensure!(answer.code == 201, "{answer:?}");
        let concluded = wait(&format!("the request {name} is concluded"), async || {
            let request = on.get(&format!("{REQUESTS}/{name}")).await?;
            let issued = request["status"]["certificate"].is_string();
            let denied = request["status"]["conditions"][0]["type"] == "Denied";
            Ok((issued || denied).then_some(request.clone()).ok_or_else(|| request["status"].to_string()))
        })
        .await?;
        ensure!(concluded["status"]["certificate"].is_string() == granted, "{name}: {}", concluded["status"]);
    }
    let issued = on.get(&format!("{REQUESTS}/own")).await?;
    let pem = BASE64_STANDARD.decode(issued["status"]["certificate"].as_str().context("a certificate")?)?;
    let bundle = on.get(&format!("{NAMESPACE}/configmaps/kubevirt-ca")).await?;
    let bundle = bundle["data"]["ca-bundle"].as_str().context("a bundle")?;
    ensure!(String::from_utf8(pem)?.contains("BEGIN CERTIFICATE") && bundle.contains("BEGIN CERTIFICATE"));
    Ok(())
}

async fn bundle(on: &Installation) -> Result<(usize, String)> {
    let map = on.get(&format!("{NAMESPACE}/configmaps/kubevirt-ca")).await?;
    let text = map["data"]["ca-bundle"].as_str().context("a bundle")?.to_owned();
    Ok((text.matches("BEGIN CERTIFICATE").count(), text))
}

async fn rotates(on: Arc<Installation>) -> Result<()> {
    let (_, before) = bundle(&on).await?;
    let secret = format!("{NAMESPACE}/secrets/kubevirt-virt-api-certs");
    let leaf = on.get(&secret).await?["data"]["tls.crt"].clone();
    let short = json!({"selfSigned": {"ca": {"duration": "30s", "renewBefore": "20s"}, "server": {"duration": "20s", "renewBefore": "8s"}}});
    on.patch(KUBEVIRT, &json!({"spec": {"certificateRotateStrategy": short}})).await?;
    wait("a new CA is beside the old one", async || {
        let (count, text) = bundle(&on).await?;
        Ok((count >= 2 && text != before).then_some(()).ok_or(text))
    })
    .await?;
    wait("certificates follow", async || {
        let new = on.get(&secret).await?["data"]["tls.crt"].clone();
        Ok((new != leaf).then_some(()).ok_or_else(|| new.to_string()))
    })
    .await?;
    let old = before.trim().to_owned();
    wait("the old CA goes, and the API server trusts the new ones", async || {
        let (_, text) = bundle(&on).await?;
        let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/virt-operator-validator";
        let trusted = on.get(path).await?["webhooks"][0]["clientConfig"]["caBundle"].clone();
        let good = !text.contains(&old) && trusted == BASE64_STANDARD.encode(&text);
        Ok(good.then_some(()).ok_or(text))
    })
    .await?;
    // Its webhook is served with the new certificate.
    on.patch(KUBEVIRT, &json!({"spec": {"certificateRotateStrategy": null}})).await?;
    ready(&on).await.map(drop)
}

async fn updates(on: Arc<Installation>) -> Result<()> {
    let new = "v9.9.9";
    // New virt-handlers do not come up at first.
    on.nodes.decide(|pod| {
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let is_new =
            containers.into_iter().any(|one| one.image.as_deref().is_some_and(|image| image.ends_with("v9.9.9")));
        if is_new { Fate::NoImage } else { Fate::Run }
    });
    on.patch(KUBEVIRT, &json!({"spec": {"imageTag": new}})).await?;
    wait("the canary is reported", async || {
        let kubevirt = on.get(KUBEVIRT).await?;
        let told = condition(&kubevirt, "Degraded");
        let good = told.is_some_and(|(holds, reason, message)| {
            holds && reason == "DeploymentFailed" && message.contains("did not become ready on the first node")
        });
        Ok(good.then_some(()).ok_or_else(|| kubevirt["status"].to_string()))
    })
    .await?;
    let set = on.get(&format!("{APPS}/daemonsets/virt-handler")).await?;
    ensure!(set["status"]["updatedNumberScheduled"] == 1, "{}", set["status"]);
    let controller = on.get(&format!("{APPS}/deployments/virt-controller")).await?;
    ensure!(!controller["spec"]["template"].to_string().contains(new), "virt-controller waits for virt-handler");
    // The image is there now: Pods are made anew.
    on.nodes.decide(|_| Fate::Run);
    let pods = on.get(&format!("{NAMESPACE}/pods?labelSelector=kubevirt.io%3Dvirt-handler")).await?;
    for pod in pods["items"].as_array().into_iter().flatten().filter(|pod| pod["status"]["phase"] == "Pending") {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        on.ask(Method::DELETE, &format!("{NAMESPACE}/pods/{name}"), None).await?;
    }
    let kubevirt = ready(&on).await?;
    ensure!(kubevirt["status"]["observedKubeVirtVersion"] == new, "{}", kubevirt["status"]);
    for (kind, name) in
        [("deployments", "virt-api"), ("deployments", "virt-controller"), ("daemonsets", "virt-handler")]
    {
        let workload = on.get(&format!("{APPS}/{kind}/{name}")).await?;
        ensure!(workload["spec"]["template"].to_string().contains(new), "{name}: {}", workload["spec"]["template"]);
    }
    // Back is refused.
    on.patch(KUBEVIRT, &json!({"spec": {"imageTag": "v9.9.8"}})).await?;
    wait("the downgrade is refused", async || {
        let kubevirt = on.get(KUBEVIRT).await?;
        let refused = condition(&kubevirt, "Synchronized").is_some_and(|(_, reason, _)| reason == "DowngradeRefused");
        Ok(refused.then_some(()).ok_or_else(|| kubevirt["status"].to_string()))
    })
    .await?;
    on.patch(KUBEVIRT, &json!({"spec": {"imageTag": new}})).await?;
    ready(&on).await.map(drop)
}

fn vm(name: &str) -> Value {
    json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": name, "finalizers": ["kubevirt.io/virtualMachineControllerFinalize"]},
        "spec": {"runStrategy": "Manual", "template": {"spec": {"domain": {"devices": {}}}}}})
}

const VMS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";

fn removal(on: &Installation, patience: u64) -> Removal {
    Removal {
        client: on.client.clone(),
        server: "the test's".to_owned(),
        namespace: names::NAMESPACE.to_owned(),
        deadline: Instant::now() + PATIENCE,
        patience: Duration::from_secs(patience),
        wait: true,
        force: false,
    }
}

async fn leaves(on: Arc<Installation>) -> Result<()> {
    let answer = on.ask(Method::POST, VMS, Some(&vm("precious"))).await?;
    ensure!(answer.code == 201, "{answer:?}");
    let answer = on.ask(Method::DELETE, KUBEVIRT, None).await?;
    let message = answer.body["message"].as_str().unwrap_or_default();
    ensure!(answer.code >= 400 && message.contains("Rejecting the uninstall request"), "{answer:?}");
    let refused = removal(&on, 30).run(false).await.err().context("VMs are not protected")?;
    ensure!(refused.to_string().contains("pass --delete-virtual-machines"), "{refused:#}");

    on.patch(KUBEVIRT, &json!({"spec": {"uninstallStrategy": "RemoveWorkloads"}})).await?;
    let answer = on.ask(Method::DELETE, KUBEVIRT, None).await?;
    ensure!(answer.code == 200, "{answer:?}");
    wait("the VM is to go", async || {
        let answer = on.ask(Method::GET, &format!("{VMS}/precious"), None).await?;
        let leaving = answer.body["metadata"]["deletionTimestamp"].is_string();
        Ok(leaving.then_some(()).ok_or_else(|| format!("{answer:?}")))
    })
    .await?;
    let handler = on.ask(Method::GET, &format!("{APPS}/daemonsets/virt-handler"), None).await?;
    ensure!(handler.code == 200 && handler.body["metadata"]["deletionTimestamp"].is_null(), "{handler:?}");
    // virt-controller's part.
    on.patch(&format!("{VMS}/precious"), &json!({"metadata": {"finalizers": null}})).await?;
    wait("the KubeVirt object is gone", async || {
        let answer = on.ask(Method::GET, KUBEVIRT, None).await?;
        Ok((answer.code == 404).then_some(()).ok_or_else(|| answer.body["status"].to_string()))
    })
    .await?;
    let own: Vec<Id> = install::with_operator(&settings(), &programs()).iter().map(|one| Id::of(&one.object)).collect();
    for manifest in install::managed(&settings(), &programs()) {
        let id = Id::of(&manifest.object);
        let code = on.ask(Method::GET, &path(&id)?, None).await?.code;
        ensure!((code == 200) == own.contains(&id), "{id}: {code}");
    }
    let secrets = on.get(&format!("{NAMESPACE}/secrets")).await?;
    ensure!(secrets["items"].as_array().is_some_and(Vec::is_empty), "{secrets}");
    wait("labels of nodes are gone", async || {
        let node = on.get("/api/v1/nodes/node-0").await?;
        let labels = node["metadata"]["labels"].to_string();
        Ok((!labels.contains("kubevirt.io/")).then_some(()).ok_or(labels))
    })
    .await
}

async fn removed_by_hand(on: Arc<Installation>) -> Result<()> {
    // It comes back with a new KubeVirt object.
    let mut kubevirt = install::with_operator(&settings(), &programs()).into_iter().map(|one| one.object);
    let kubevirt = kubevirt.find(|object| object["kind"] == "KubeVirt").context("a KubeVirt object")?;
    let answer =
        ask(&on.client, Method::POST, "/apis/kubevirt.io/v1/namespaces/kubevirt/kubevirts", Some(&kubevirt)).await?;
    ensure!(answer.code == 201, "{answer:?}");
    ready(&on).await?;
    on.stop().await?;
    on.patch(&format!("{APPS}/deployments/virt-operator"), &json!({"spec": {"replicas": 0}})).await?;
    wait("virt-operator is gone", async || {
        let found = on.get(&format!("{APPS}/deployments/virt-operator")).await?;
        Ok(found["status"]["readyReplicas"].is_null().then_some(()).ok_or_else(|| found["status"].to_string()))
    })
    .await?;
    not_ours_stays(&on).await?;
    // Nobody but its owner removes it, so the namespace stays.
    let note = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "note"}});
    let answer = on.ask(Method::POST, &format!("{NAMESPACE}/configmaps"), Some(&note)).await?;
    ensure!(answer.code == 201, "{answer:?}");
    removal(&on, 1).run(true).await?;
    let answer = on.ask(Method::GET, &format!("{NAMESPACE}/configmaps/note"), None).await?;
    ensure!(answer.code == 200 && answer.body["metadata"]["deletionTimestamp"].is_null(), "{answer:?}");
    on.ask(Method::DELETE, &format!("{NAMESPACE}/configmaps/note"), None).await?;
    removal(&on, 1).run(true).await?;
    for id in operate::by_hand(&settings(), &programs()) {
        let answer = on.ask(Method::GET, &path(&id)?, None).await?;
        ensure!(answer.code == 404, "{id} is left: {}", answer.body);
    }
    Ok(())
}

/// A Deployment of another KubeVirt has the name of ours, but not its label.
async fn not_ours_stays(on: &Installation) -> Result<()> {
    let deployment = format!("{APPS}/deployments/virt-operator");
    let label = |value: Value| json!({"metadata": {"labels": {names::INSTALLATION_LABEL: value}}});
    for (installation, why) in [(json!(null), "is not Ferrovirt's"), (json!("elsewhere"), "pass --namespace elsewhere")]
    {
        on.patch(&deployment, &label(installation)).await?;
        let refused = removal(on, 1).run(true).await.err().context("another KubeVirt is removed")?;
        ensure!(refused.to_string().contains(why), "{refused:#}");
    }
    on.get(KUBEVIRT).await?;
    on.patch(&deployment, &label(json!(names::NAMESPACE))).await.map(drop)
}

#[derive(clap::Parser)]
struct Install {
    #[command(flatten)]
    args: ferrovirt_cli::installation::Args,
}

async fn applied_by_kubectl(on: Arc<Installation>) -> Result<()> {
    let apply = |words: &[&str], flags: &[&str]| -> Result<()> {
        let install = <Install as clap::Parser>::try_parse_from([&["install"], words].concat())?;
        let file = on.plane.folder().join("manifests.yaml");
        std::fs::write(&file, ferrovirt_cli::installation::manifests(&install.args)?)?;
        let mut kubectl = on.plane.kubectl();
        let output = kubectl.args(flags).arg("-f").arg(&file).output().context("cannot run kubectl")?;
        ensure!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    };
    apply(&["--only=operator"], &["apply"])?;
    let wait = ["wait", "crd", "kubevirts.kubevirt.io", "--for=condition=Established", "--timeout=60s"];
    let output = on.plane.kubectl().args(wait).output().context("cannot run kubectl")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    apply(&["--only=kubevirt"], &["apply"])?;
    apply(&[], &["apply"])?;
    // As the document says it, with a CA in place of its example.
    let ca = on.plane.folder().join("ca.pem").display().to_string();
    std::fs::write(&ca, test_support::Authority::new().pem())?;
    let document = std::fs::read_to_string(DOCUMENT).with_context(|| format!("cannot read {DOCUMENT}"))?;
    let mut commands = document.lines().filter_map(|line| line.strip_prefix("ferrovirt install --without-operator "));
    let command = commands.next().context("the document does not install without virt-operator")?;
    let (install, kubectl) = command.split_once(" | kubectl ").context("nobody applies what is printed")?;
    let words = install.split(' ').map(|word| if word == "ca.pem" { ca.as_str() } else { word });
    let flags = kubectl.strip_suffix(" -f -").context("kubectl does not read what is printed")?;
    let words: Vec<&str> = std::iter::once("--without-operator").chain(words).collect();
    apply(&words, &flags.split(' ').collect::<Vec<_>>())
}

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/install.md");
