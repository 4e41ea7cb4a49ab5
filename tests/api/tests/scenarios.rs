//! What users see through kube-apiserver.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use control_plane::installed::{Scenario, ask, wait};
use http::Method;
use install::names;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::{Value, json};
use test_support::pki::{Authority, Pair};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::installation::{Installation, VMIS, VMS};

/// In this order; the last one stops virt-api.
pub(crate) fn all() -> Vec<(&'static str, Scenario<Installation>)> {
    vec![
        ("objects_are_defaulted_and_judged", |on| Box::pin(defaulted(on))),
        ("a_status_that_does_not_fit_is_refused", |on| Box::pin(status(on))),
        ("the_aggregated_api_is_discovered_and_described", |on| Box::pin(discovered(on))),
        ("users_do_what_their_roles_say", |on| Box::pin(authorized(on))),
        ("nobody_speaks_for_users_but_the_front_proxy", |on| Box::pin(strangers(on))),
        ("an_eviction_moves_the_guest_instead", |on| Box::pin(eviction(on))),
        ("a_memory_dump_needs_a_claim_with_room_for_it", |on| Box::pin(dumped(on))),
        ("a_renewed_certificate_is_shown_at_the_next_handshake", |on| Box::pin(renewed(on))),
        ("objects_are_deleted_without_virt_api", |on| Box::pin(deleted(on))),
    ]
}

const SUBRESOURCES: &str = "/apis/subresources.kubevirt.io/v1";

/// The spec of an instance that this build supports.
pub(crate) fn instance() -> Value {
    json!({
        "domain": {
            "devices": {"interfaces": [{"name": "default", "masquerade": {}}]},
            "resources": {"requests": {"memory": "64Mi"}},
        },
        "networks": [{"name": "default", "pod": {}}],
    })
}

fn vm(name: &str) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": name},
        "spec": {"runStrategy": "Manual", "template": {"spec": instance()}},
    })
}

async fn defaulted(on: Arc<Installation>) -> Result<()> {
    let answer = on.ask(Method::POST, VMS, Some(&vm("judged"))).await?;
    ensure!(answer.code == 201, "{answer:?}");
    let machine = &answer.body["spec"]["template"]["spec"]["domain"]["machine"]["type"];
    ensure!(machine == "q35", "the mutating webhook completes the template: {}", answer.body);

    let mut invalid = vm("invalid");
    invalid["spec"]["template"]["spec"]["domain"]["resources"]["requests"]["memory"] = "-1Mi".into();
    let answer = on.ask(Method::POST, VMS, Some(&invalid)).await?;
    ensure!(answer.code == 422 && answer.body["reason"] == "Invalid", "{answer:?}");
    let message = answer.body["message"].as_str().unwrap_or_default();
    ensure!(message.starts_with("admission webhook \"virtualmachine-validator.kubevirt.io\" denied"), "{message}");

    let mut old = vm("old");
    old["spec"]["running"] = false.into();
    old["spec"].as_object_mut().context("a spec")?.remove("runStrategy");
    let answer = on.ask(Method::POST, &format!("{VMS}?dryRun=All"), Some(&old)).await?;
    ensure!(answer.code == 201, "{answer:?}");
    ensure!(answer.warnings.iter().filter(|it| it.contains("running")).count() == 1, "warned once: {answer:?}");
    Ok(())
}

async fn status(on: Arc<Installation>) -> Result<()> {
    let path = format!("{VMS}/judged/status");
    let stored = on.ask(Method::GET, &path, None).await?;
    ensure!(stored.code == 200, "{stored:?}");
    let mut stored = stored.body;
    stored["status"] = json!({"printableStatus": "Stopped", "volumeSnapshotStatuses": [{"name": 7}]});
    let answer = on.ask(Method::PUT, &path, Some(&stored)).await?;
    ensure!(answer.code == 422 || answer.code == 400, "{answer:?}");
    stored["status"] = json!({"printableStatus": "Stopped"});
    let answer = on.ask(Method::PUT, &path, Some(&stored)).await?;
    ensure!(answer.code == 200, "{answer:?}");
    Ok(())
}

async fn discovered(on: Arc<Installation>) -> Result<()> {
    let answer = on.ask(Method::GET, SUBRESOURCES, None).await?;
    let names: Vec<&str> =
        answer.body["resources"].as_array().into_iter().flatten().filter_map(|it| it["name"].as_str()).collect();
    ensure!(names.contains(&"virtualmachines/start"), "{answer:?}");
    let answer = on.ask(Method::GET, &format!("{SUBRESOURCES}/version"), None).await?;
    ensure!(answer.body["gitVersion"].as_str().is_some_and(|it| it.starts_with('v')), "{answer:?}");
    let start = format!("{SUBRESOURCES}/namespaces/{{namespace}}/virtualmachines/{{name}}/start");
    for path in ["/openapi/v2".to_owned(), format!("/openapi/v3{SUBRESOURCES}")] {
        wait(&format!("{path} describes our operations"), async || {
            let answer = on.ask(Method::GET, &path, None).await?;
            let described = answer.body["paths"].get(&start).is_some();
            Ok(described.then_some(()).ok_or_else(|| format!("code {}", answer.code)))
        })
        .await?;
    }
    Ok(())
}

async fn authorized(on: Arc<Installation>) -> Result<()> {
    let start = format!("{SUBRESOURCES}/namespaces/default/virtualmachines/judged/start");
    let nobody = on.user("nobody", "people").await?;
    let answer = ask(&nobody, Method::PUT, &start, Some(&json!({}))).await?;
    ensure!(answer.code == 403, "kube-apiserver itself refuses: {answer:?}");

    let grant = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "jane"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "kubevirt.io:edit"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    let answer = on.ask(Method::POST, bindings, Some(&grant)).await?;
    ensure!(answer.code == 201, "{answer:?}");
    let jane = on.user("jane", "people").await?;
    wait("jane may start", async || {
        let answer = ask(&jane, Method::PUT, &start, Some(&json!({}))).await?;
        Ok((answer.code == 202).then_some(()).ok_or_else(|| format!("{answer:?}")))
    })
    .await?;
    let stored = on.ask(Method::GET, &format!("{VMS}/judged"), None).await?.body;
    ensure!(stored["status"]["stateChangeRequests"][0]["action"] == "Start", "{stored}");
    let migrate = format!("{SUBRESOURCES}/namespaces/default/virtualmachines/judged/migrate");
    let answer = ask(&jane, Method::PUT, &migrate, Some(&json!({}))).await?;
    ensure!(answer.code == 403, "no default role lets users migrate: {answer:?}");
    Ok(())
}

/// A connection to virt-api itself, by somebody with this certificate.
async fn connect(on: &Installation, certificate: Option<Pair>) -> Result<TlsStream<TcpStream>> {
    let mut roots = rustls::RootCertStore::empty();
    for ca in certificates(on.authority.pem())? {
        roots.add(ca)?;
    }
    let builder = rustls::ClientConfig::builder().with_root_certificates(roots);
    let config = match certificate {
        Some(pair) => builder.with_client_auth_cert(certificates(&pair.cert)?, key(&pair.key)?)?,
        None => builder.with_no_client_auth(),
    };
    let name = format!("{}.{}.svc", names::service::API, names::NAMESPACE);
    let stream = TcpStream::connect(on.address).await?;
    Ok(TlsConnector::from(Arc::new(config)).connect(ServerName::try_from(name)?, stream).await?)
}

/// The answer to a request that claims to be an administrator's.
async fn claim(on: &Installation, certificate: Option<Pair>, path: &str) -> Result<String> {
    let mut stream = connect(on, certificate).await?;
    let request = format!(
        "PUT {path} HTTP/1.1\r\nhost: virt-api\r\nx-remote-user: admin\r\nx-remote-group: system:masters\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().context("cannot read a certificate")
}

fn key(pem: &str) -> Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_slice(pem.as_bytes()).context("cannot read a key")
}

async fn strangers(on: Arc<Installation>) -> Result<()> {
    let stop = format!("{SUBRESOURCES}/namespaces/default/virtualmachines/judged/stop");
    let answer = claim(&on, None, &stop).await?;
    ensure!(answer.starts_with("HTTP/1.1 401 ") && answer.ends_with("not authenticated"), "{answer}");
    // A certificate of another authority, even with the proxy's name.
    let forged = Authority::new().issue("front-proxy", &[]);
    let answer = claim(&on, Some(forged), &stop).await;
    ensure!(answer.as_ref().map_or(true, |answer| answer.is_empty()), "let in: {answer:?}");
    Ok(())
}

async fn eviction(on: Arc<Installation>) -> Result<()> {
    let controller = on.own(names::account::CONTROLLER).await?;
    let mut vmi = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "moves"},
        "spec": instance(),
    });
    vmi["spec"]["evictionStrategy"] = "LiveMigrate".into();
    let answer = ask(&controller, Method::POST, VMIS, Some(&vmi)).await?;
    ensure!(answer.code == 201, "{answer:?}");
    let mut vmi = answer.body;
    vmi["status"] = json!({"phase": "Running", "nodeName": "n1",
        "conditions": [{"type": "LiveMigratable", "status": "True"}]});
    let answer = ask(&controller, Method::PUT, &format!("{VMIS}/moves"), Some(&vmi)).await?;
    ensure!(answer.code == 200 && answer.body["status"]["phase"] == "Running", "{answer:?}");
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "virt-launcher-moves", "labels": {"kubevirt.io": "virt-launcher"},
                     "annotations": {"kubevirt.io/domain": "moves"},
                     "ownerReferences": [{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
                                          "name": "moves", "uid": answer.body["metadata"]["uid"], "controller": true}]},
        "spec": {"nodeName": "n1", "containers": [{"name": "compute", "image": "none"}]},
    });
    let answer = on.ask(Method::POST, pods, Some(&pod)).await?;
    ensure!(answer.code == 201, "{answer:?}");
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "virt-launcher-moves"}});
    let path = format!("{pods}/virt-launcher-moves/eviction");
    let answer = on.ask(Method::POST, &path, Some(&eviction)).await?;
    ensure!(answer.code == 429, "{answer:?}");
    let message = answer.body["message"].as_str().unwrap_or_default();
    ensure!(message.contains("Eviction triggered evacuation of VMI"), "{message}");
    let stored = on.ask(Method::GET, &format!("{VMIS}/moves"), None).await?.body;
    ensure!(stored["status"]["evacuationNodeName"] == "n1", "{stored}");
    Ok(())
}

/// Of the guest that [`eviction`] leaves running.
async fn dumped(on: Arc<Installation>) -> Result<()> {
    let answer = on.ask(Method::POST, VMS, Some(&vm("moves"))).await?;
    ensure!(answer.code == 201, "{answer:?}");
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "dump"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
    });
    let answer = on.ask(Method::POST, "/api/v1/namespaces/default/persistentvolumeclaims", Some(&claim)).await?;
    ensure!(answer.code == 201, "{answer:?}");
    let path = format!("{SUBRESOURCES}/namespaces/default/virtualmachines/moves/memorydump");
    let answer = on.ask(Method::PUT, &path, Some(&json!({"claimName": "dump"}))).await?;
    let message = answer.body["message"].as_str().unwrap_or_default();
    // CDI is not installed, so its default applies: 5.5 % for the file system, the rest for 64 MiB of guest and 100 MiB.
    let told = message.contains("claim dump has 1048576 bytes; a memory dump needs 181975095");
    ensure!(answer.code == 409 && told, "{answer:?}");
    Ok(())
}

async fn renewed(on: Arc<Installation>) -> Result<()> {
    let shown = async || {
        let stream = connect(&on, None).await?;
        let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first()).cloned();
        shown.context("no certificate is shown")
    };
    let before = shown().await?;
    on.renew()?;
    ensure!(shown().await? != before, "the old certificate is shown");
    let answer = on.ask(Method::POST, &format!("{VMS}?dryRun=All"), Some(&vm("after"))).await?;
    ensure!(answer.code == 201, "webhooks go on: {answer:?}");
    Ok(())
}

async fn deleted(on: Arc<Installation>) -> Result<()> {
    on.stop();
    wait("virt-api has stopped", async || {
        let answer = on.ask(Method::POST, &format!("{VMS}?dryRun=All"), Some(&vm("nobody-looks"))).await?;
        Ok((answer.code == 500).then_some(()).ok_or_else(|| format!("{answer:?}")))
    })
    .await?;
    let answer = on.ask(Method::DELETE, &format!("{VMS}/judged"), None).await?;
    ensure!(answer.code == 200, "{answer:?}");
    wait("the VM is gone, but for what its controller holds", async || {
        let answer = on.ask(Method::GET, &format!("{VMS}/judged"), None).await?;
        let gone = answer.code == 404 || answer.body["metadata"]["deletionTimestamp"].is_string();
        Ok(gone.then_some(()).ok_or_else(|| format!("{answer:?}")))
    })
    .await
}
