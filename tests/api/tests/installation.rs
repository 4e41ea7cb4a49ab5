//! A control plane with everything of an installation but its Pods; virt-api runs in this process instead.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use control_plane::ControlPlane;
use control_plane::installed::{Answer, ask, wait};
use http::Method;
use install::{Programs, Settings, Step, names};
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::discovery::ApiResource;
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose};
use role_tls::{Certificate, IdentityFiles};
use serde_json::{Value, json};
use test_support::pki::{Authority, MASTERS, Pair, named};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use virt_api::server::{self, Config};

use crate::scenarios::instance;

pub(crate) struct Installation {
    pub(crate) plane: ControlPlane,
    /// An administrator's.
    pub(crate) client: Client,
    pub(crate) authority: Authority,
    pub(crate) address: SocketAddr,
    shutdown: CancellationToken,
    /// The files of the serving certificate.
    serving: (PathBuf, PathBuf),
    _folder: tempfile::TempDir,
}

impl Installation {
    pub(crate) async fn start(programs: &Path) -> Result<Installation> {
        let plane = ControlPlane::start_audited(programs).await?;
        let client = plane.client()?;
        let authority = Authority::new();
        let folder = tempfile::tempdir().context("cannot make a folder")?;
        let path = |name: &str| folder.path().join(name);
        let serving = (path("tls.crt"), path("tls.key"));
        write(&serving, &service_certificate(&authority))?;
        let handler = IdentityFiles { ca: path("ca"), cert: path("client.crt"), key: path("client.key") };
        std::fs::write(&handler.ca, authority.pem()).context("cannot write the CA")?;
        let pair = authority.issue(names::common_name::HANDLER_CLIENT, &[]);
        write(&(handler.cert.clone(), handler.key.clone()), &pair)?;

        let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot listen")?;
        let address = listener.local_addr().context("cannot read the port")?;
        apply(&client, &authority, address).await?;

        // As the account that the installation gives its rights to.
        let account = names::user(names::account::API, names::NAMESPACE);
        let own = plane.config_of(&account, "system:serviceaccounts").await?;
        let own = || Client::try_from(own.clone()).context("cannot make virt-api's client");
        let config = Config {
            client: own()?,
            reviews: own()?,
            namespace: names::NAMESPACE.to_owned(),
            certificate: Certificate::Files { cert: serving.0.clone(), key: serving.1.clone() },
            handler,
            node_check: role_tls::NodeCheck::Required,
            version: virt_api::Version::of_this_build(),
            on_configuration: None,
        };
        let shutdown = CancellationToken::new();
        tokio::spawn({
            let shutdown = shutdown.clone();
            async move {
                if let Err(error) = server::run(config, listener, shutdown).await {
                    eprintln!("virt-api ended: {:#}", anyhow::Error::from(error));
                }
            }
        });
        let installation = Installation { plane, client, authority, address, shutdown, serving, _folder: folder };
        installation.wait_until_reviewed().await?;
        installation.wait_until_aggregated().await?;
        Ok(installation)
    }

    /// Asks as an administrator.
    pub(crate) async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Answer> {
        ask(&self.client, method, path, body).await
    }

    /// A client of a user who may do what roles say.
    pub(crate) async fn user(&self, name: &str, group: &str) -> Result<Client> {
        Client::try_from(self.plane.config_of(name, group).await?).context("cannot make a client")
    }

    /// One of our own programs, which may do anything.
    pub(crate) async fn own(&self, account: &str) -> Result<Client> {
        self.user(&names::user(account, names::NAMESPACE), MASTERS).await
    }

    /// Puts another serving certificate of the same CA into place.
    pub(crate) fn renew(&self) -> Result<()> {
        write(&self.serving, &service_certificate(&self.authority))
    }

    pub(crate) fn stop(&self) {
        self.shutdown.cancel();
    }

    /// kube-apiserver learns of webhooks a moment after they are registered.
    async fn wait_until_reviewed(&self) -> Result<()> {
        let invalid = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "probe"},
            "spec": {"running": true, "runStrategy": "Always", "template": {"spec": {"domain": {"devices": {}}}}}});
        wait("a webhook refuses an invalid VM", async || {
            let answer = self.ask(Method::POST, &format!("{VMS}?dryRun=All"), Some(&invalid)).await?;
            Ok((answer.code == 422).then_some(()).ok_or_else(|| format!("{answer:?}")))
        })
        .await?;
        // It reads presets, whose definition may be younger.
        let vmi = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": {"name": "probe"}, "spec": instance()});
        wait("a webhook completes a VMI", async || {
            let answer = self.ask(Method::POST, &format!("{VMIS}?dryRun=All"), Some(&vmi)).await?;
            Ok((answer.code == 201).then_some(()).ok_or_else(|| format!("{answer:?}")))
        })
        .await
    }

    async fn wait_until_aggregated(&self) -> Result<()> {
        for version in names::SUBRESOURCES_VERSIONS {
            let path = format!("/apis/apiregistration.k8s.io/v1/apiservices/{version}.{}", names::SUBRESOURCES_GROUP);
            wait("the aggregated API is available", async || {
                let answer = self.ask(Method::GET, &path, None).await?;
                let conditions = answer.body["status"]["conditions"].as_array().cloned().unwrap_or_default();
                let good = conditions.iter().any(|it| it["type"] == "Available" && it["status"] == "True");
                Ok(good.then_some(()).ok_or_else(|| answer.body["status"].to_string()))
            })
            .await?;
        }
        Ok(())
    }
}

impl Drop for Installation {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

/// VMIs of the namespace `default`.
pub(crate) const VMIS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";
/// VMs of the namespace `default`.
pub(crate) const VMS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";

fn write((cert, key): &(PathBuf, PathBuf), pair: &Pair) -> Result<()> {
    std::fs::write(cert, &pair.cert).and_then(|()| std::fs::write(key, &pair.key)).context("cannot write a certificate")
}

/// For the name by which kube-apiserver knows the Service.
fn service_certificate(authority: &Authority) -> Pair {
    let mut params = named(names::service::API, &[]);
    let name = format!("{}.{}.svc", names::service::API, names::NAMESPACE);
    let alternatives = CertificateParams::new(vec![name]).expect("a host name");
    params.subject_alt_names = alternatives.subject_alt_names;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    authority.sign(params)
}

/// Applies the objects of an installation without an operator and without its Pods. The Service of virt-api leads to
/// this process: no address of a Pod may be on the loopback, but a Service may name another host.
async fn apply(client: &Client, authority: &Authority, address: SocketAddr) -> Result<()> {
    let settings = Settings { ca_bundle: Some(authority.pem().to_owned()), ..Settings::default() };
    let programs = Programs {
        api: virt_api::program_on_kubernetes(),
        controller: virt_controller::program(virt_controller::ALL),
        handler: virt_handler::program(),
    };
    for manifest in install::without_operator(&settings, &programs) {
        if matches!(manifest.step, Step::Operator | Step::Api | Step::Controller | Step::Handler) {
            continue;
        }
        let mut object = manifest.object;
        redirect(&mut object, address.port());
        put(client, &object).await?;
    }
    Ok(())
}

fn redirect(object: &mut Value, port: u16) {
    match object["kind"].as_str() {
        Some("Service") if object["metadata"]["name"] == names::service::API => {
            object["spec"] = json!({"type": "ExternalName", "externalName": "localhost"});
        }
        Some("APIService") => object["spec"]["service"]["port"] = port.into(),
        Some("MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration") => {
            for webhook in object["webhooks"].as_array_mut().into_iter().flatten() {
                webhook["clientConfig"]["service"]["port"] = port.into();
            }
        }
        _ => {}
    }
}

/// Server-side apply; a kind that was just defined is served a moment later.
async fn put(client: &Client, object: &Value) -> Result<()> {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind, name) = (text("/apiVersion"), text("/kind"), text("/metadata/name"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ensure!(!name.is_empty(), "an object has no name: {object}");
    let gvk = kube::core::GroupVersionKind::gvk(group, version, kind);
    let resource = ApiResource::from_gvk(&gvk);
    let api: Api<DynamicObject> = match text("/metadata/namespace") {
        "" => Api::all_with(client.clone(), &resource),
        namespace => Api::namespaced_with(client.clone(), namespace, &resource),
    };
    let params = PatchParams::apply("test").force();
    wait(&format!("{kind} {name} is applied"), async || match api.patch(name, &params, &Patch::Apply(object)).await {
        Ok(_) => Ok(Ok(())),
        Err(kube::Error::Api(status)) if status.code == 404 || status.code >= 500 => Ok(Err(status.message.clone())),
        Err(error) => Err(error).with_context(|| format!("{kind} {name} is refused")),
    })
    .await
}
