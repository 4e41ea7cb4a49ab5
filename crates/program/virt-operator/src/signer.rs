//! Signs certificates of nodes, which they request by CertificateSigningRequests.

use std::sync::Arc;
use std::time::Duration;

use api::v1::KubeVirt;
use informer::{Informer, Key, Requeue, Store, WorkQueue, run_workers};
use install::names;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Client;
use kube::api::{Api, PostParams};
use operate::certificates::{Rotation, signs_in};
use operate::requests::{Request, Verdict, judge};
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::execute::node_duration;
use crate::mirror::Mirror;
use crate::observe::{certificates, pair};
use crate::pki;

/// Reason of the condition that approves or denies a request.
const REASON: &str = "FerrovirtNode";

struct Signer {
    client: Client,
    mirror: Mirror,
    namespace: String,
    requests: Store<CertificateSigningRequest>,
}

/// Signs and denies node certificate requests until `shutdown`.
pub(crate) async fn run(client: Client, mirror: Mirror, namespace: String, shutdown: CancellationToken) {
    let api: Api<CertificateSigningRequest> = Api::all(client.clone());
    let of_signer = format!("spec.signerName={}", names::SIGNER);
    let requests = Informer::new().fields(&of_signer).start(api, shutdown.clone());
    let queue = WorkQueue::new("certificate-signing-requests");
    requests.feed(&queue);
    if shutdown.run_until_cancelled(requests.synced()).await != Some(true) {
        return;
    }
    let signer = Arc::new(Signer { client, mirror, namespace, requests });
    run_workers(queue, 2, shutdown, move |key: Key| {
        let signer = signer.clone();
        async move { signer.reconcile(&key).await }
    })
    .await;
}

impl Signer {
    async fn reconcile(&self, key: &Key) -> Result<Requeue, Error> {
        let Some(request) = self.requests.get(key) else { return Ok(Requeue::No) };
        let request = (*request).clone();
        match judge(&facts(&request), &self.namespace) {
            Verdict::Ignore => Ok(Requeue::No),
            Verdict::Deny { message } => {
                tracing::warn!(request = %key, message, "denied certificate request");
                self.conclude(request, "Denied", &message).await.map(|_| Requeue::No)
            }
            Verdict::Grant { node, approve } => {
                if let Some(wait) = self.waits() {
                    tracing::info!(request = %key, seconds = wait.as_secs(), "waiting until all Pods trust the new CA");
                    return Ok(Requeue::After(wait));
                }
                let request = match approve {
                    true => {
                        self.conclude(request, "Approved", "virt-handler requested a certificate for its own node")
                            .await?
                    }
                    false => request,
                };
                self.sign(request, &node).await.map(|()| Requeue::No)
            }
        }
    }

    /// How long the CA must wait before it signs.
    fn waits(&self) -> Option<Duration> {
        let spec = self.kubevirt().map(|kubevirt| kubevirt.spec).unwrap_or_default();
        let rotation = Rotation::of(&spec).ok()?;
        let objects = self.mirror.of_kinds(&["Secret", "ConfigMap"]);
        signs_in(&certificates(&objects, &self.namespace), &rotation, Timestamp::now())
    }

    async fn conclude(
        &self,
        mut request: CertificateSigningRequest,
        type_: &str,
        message: &str,
    ) -> Result<CertificateSigningRequest, Error> {
        let now = Some(Time(Timestamp::now()));
        request.status.get_or_insert_default().conditions.get_or_insert_default().push(
            CertificateSigningRequestCondition {
                type_: type_.to_owned(),
                status: "True".to_owned(),
                reason: Some(REASON.to_owned()),
                message: Some(message.to_owned()),
                last_update_time: now.clone(),
                last_transition_time: now,
            },
        );
        let name = request.metadata.name.clone().unwrap_or_default();
        let written = self.api().replace_subresource("approval", &name, &PostParams::default(), &request).await;
        written.map_err(|error| Error::api(format!("conclude CertificateSigningRequest {name}"), error))
    }

    async fn sign(&self, mut request: CertificateSigningRequest, node: &str) -> Result<(), Error> {
        let name = request.metadata.name.clone().unwrap_or_default();
        let secret = self.mirror.secret(&self.namespace, names::secret::CA);
        let (authority, _) = secret.as_ref().and_then(pair).ok_or(Error::NoAuthority)?;
        let pem = String::from_utf8_lossy(&request.spec.request.0).into_owned();
        let duration = node_duration(self.kubevirt().as_ref());
        let signed = pki::sign(&pem, node, duration, &authority, Timestamp::now());
        let signed = signed.map_err(|source| Error::Certificate { name: name.clone(), source })?;
        tracing::info!(request = name, node, "signed certificate request");
        request.status.get_or_insert_default().certificate = Some(ByteString(signed.into_bytes()));
        let written = self.api().replace_status(&name, &PostParams::default(), &request).await;
        written.map(drop).map_err(|error| Error::api(format!("sign CertificateSigningRequest {name}"), error))
    }

    fn api(&self) -> Api<CertificateSigningRequest> {
        Api::all(self.client.clone())
    }

    fn kubevirt(&self) -> Option<KubeVirt> {
        let objects = self.mirror.of_kinds(&["KubeVirt"]);
        let kubevirts = objects.into_values().filter_map(|object| serde_json::from_value::<KubeVirt>(object).ok());
        api::config::in_force(kubevirts, Some(&self.namespace))
    }
}

fn facts(request: &CertificateSigningRequest) -> Request {
    let (spec, status) = (&request.spec, request.status.clone().unwrap_or_default());
    let concluded = |type_: &str| status.conditions.iter().flatten().any(|one| one.type_ == type_);
    Request {
        signer: spec.signer_name.clone(),
        user: spec.username.clone().unwrap_or_default(),
        extra: spec.extra.clone().unwrap_or_default(),
        usages: spec.usages.clone().unwrap_or_default(),
        approved: concluded("Approved"),
        denied: concluded("Denied") || concluded("Failed"),
        issued: status.certificate.as_ref().is_some_and(|certificate| !certificate.0.is_empty()),
        subject: pki::subject_of(&String::from_utf8_lossy(&spec.request.0)),
    }
}
