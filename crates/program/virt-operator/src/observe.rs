//! Collects the input of a pass.

use std::collections::BTreeMap;

use api::v1::{KubeVirt, VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceReplicaSet};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use install::names;
use jiff::Timestamp;
use k8s_openapi::Resource as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use operate::certificates::{DURATION_ANNOTATION, Facts};
use operate::{Id, NotReady, Objects, Operator, World, doubtful_nodes};
use serde_json::Value;

use crate::error::Error;
use crate::kinds::of_kind;
use crate::mirror::Mirror;
use crate::pki;

/// Kinds of workloads that the uninstall strategy protects.
const WORKLOADS: [&str; 3] =
    [VirtualMachineInstance::KIND, VirtualMachine::KIND, VirtualMachineInstanceReplicaSet::KIND];

/// Everything a decision may see.
pub(crate) async fn observe<'a>(client: &Client, mirror: &Mirror, operator: &'a Operator) -> Result<World<'a>, Error> {
    let namespace = &operator.base.namespace;
    let mut live = mirror.objects();
    let (kubevirts, handlers) = (take_kubevirts(&mut live), take_handlers(&mut live));
    lent(client, namespace, &mut live).await?;
    let now = Timestamp::now();
    let not_ready = not_ready(client, &handlers, now).await?;
    let nodes = mirror.nodes();
    let labels = |node: &Value| node["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    let runs_vms = nodes.values().filter(|node| labels(node).get(api::labels::SCHEDULABLE) == Some(&"true".into()));
    let runs_vms = u32::try_from(runs_vms.count()).unwrap_or(u32::MAX);
    let labelled = nodes.iter().filter(|(_, node)| labels(node).keys().any(|label| is_ours(label)));
    let leaving = kubevirts.iter().any(|kubevirt| kubevirt.metadata.deletion_timestamp.is_some());
    Ok(World {
        now,
        operator,
        certificates: certificates(&live, namespace),
        live,
        handlers,
        not_ready,
        nodes: runs_vms,
        labelled_nodes: labelled.map(|(id, _)| id.name.clone()).collect(),
        workloads: if leaving { workloads(client).await? } else { vec![] },
        kubevirts,
    })
}

/// Whether a label or annotation of a node comes from us.
pub fn is_ours(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    domain == "kubevirt.io" || domain.ends_with(".kubevirt.io")
}

fn take_kubevirts(live: &mut Objects) -> Vec<KubeVirt> {
    let taken: Vec<Id> = live.keys().filter(|id| id.kind == KubeVirt::KIND).cloned().collect();
    let objects = taken.iter().filter_map(|id| live.remove(id));
    let read = |object: Value| match serde_json::from_value(object) {
        Ok(kubevirt) => Some(kubevirt),
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "failed to parse a KubeVirt object");
            None
        }
    };
    objects.filter_map(read).collect()
}

fn take_handlers(live: &mut Objects) -> Vec<Pod> {
    let taken: Vec<Id> = live.keys().filter(|id| id.kind == "Pod").cloned().collect();
    let pods = taken.iter().filter_map(|id| live.remove(id));
    let of_handler = pods.filter(|pod| pod["metadata"]["labels"][api::labels::APP] == names::app::HANDLER);
    of_handler.filter_map(|pod| serde_json::from_value(pod).ok()).collect()
}

/// Which of the nodes that may be in the way of virt-handler's roll-out are NotReady. Only labels of nodes are watched.
async fn not_ready(client: &Client, handlers: &[Pod], now: Timestamp) -> Result<NotReady, Error> {
    let (api, mut found) = (Api::<Node>::all(client.clone()), NotReady::new());
    for name in doubtful_nodes(handlers, now) {
        let node = api.get_opt(name).await.map_err(|error| Error::api(format!("read node {name}"), error))?;
        found.extend(node.as_ref().and_then(not_ready_since).map(|since| (name.to_owned(), since)));
    }
    Ok(found)
}

/// Since when a node is NotReady; a node that has never reported is not known to be.
fn not_ready_since(node: &Node) -> Option<Timestamp> {
    let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let ready = conditions.find(|condition| condition.type_ == "Ready")?;
    ready.last_transition_time.as_ref().filter(|_| ready.status != "True").map(|time| time.0)
}

/// virt-api's binding in kube-system, which is not watched for a single object.
async fn lent(client: &Client, namespace: &str, live: &mut Objects) -> Result<(), Error> {
    let Some(kind) = of_kind("rbac.authorization.k8s.io", "RoleBinding") else { return Ok(()) };
    debug_assert_ne!(namespace, names::KUBE_SYSTEM);
    let found = kind.api(client, names::KUBE_SYSTEM).get_opt(names::AUTHENTICATION_READER_BINDING).await;
    let found = found.map_err(|error| Error::api("read virt-api's binding in kube-system", error))?;
    if let Some(object) = found {
        let mut object = serde_json::to_value(object).unwrap_or_default();
        object["apiVersion"] = kind.resource().api_version.into();
        object["kind"] = kind.kind.into();
        live.insert(Id::of(&object), object);
    }
    Ok(())
}

/// The kinds of workloads that have objects. A kind without a CRD has none.
async fn workloads(client: &Client) -> Result<Vec<String>, Error> {
    let mut found = Vec::new();
    for kind in WORKLOADS {
        let Some(resource) = api::resources::of_kind(api::v1::GROUP, kind) else { continue };
        let resource = ApiResource {
            group: resource.group.to_owned(),
            version: resource.storage_version().to_owned(),
            api_version: resource.api_version(),
            kind: kind.to_owned(),
            plural: resource.plural.to_owned(),
        };
        let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        match all.list_metadata(&ListParams::default().limit(1)).await {
            Ok(list) if list.items.is_empty() => {}
            Ok(_) => found.push(kind.to_owned()),
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(Error::api(format!("list objects of kind {kind}"), error)),
        }
    }
    Ok(found)
}

/// The existing certificates.
pub(crate) fn certificates(live: &Objects, namespace: &str) -> Facts {
    let object = |kind: &str, name: &str| {
        let (group, kind) = (String::new(), kind.to_owned());
        live.get(&Id { group, kind, namespace: namespace.to_owned(), name: name.to_owned() })
    };
    let authority = object("Secret", names::secret::CA).and_then(pair);
    let bundle =
        object("ConfigMap", names::config_map::CA).and_then(|map| map["data"][names::config_map::CA_BUNDLE].as_str());
    let mut leaves = BTreeMap::new();
    for certificate in names::CERTIFICATES {
        let leaf = object("Secret", certificate.secret)
            .and_then(pair)
            .and_then(|(pair, duration)| pki::leaf_of(&pair, duration));
        leaves.extend(leaf.map(|leaf| (certificate.secret.to_owned(), leaf)));
    }
    Facts {
        authority: authority.and_then(|(pair, duration)| pki::authority_of(&pair, duration)),
        bundle: bundle.map(pki::bundle_of).unwrap_or_default(),
        leaves,
    }
}

/// The certificate and key of a Secret, with its duration.
pub(crate) fn pair(secret: &Value) -> Option<(pki::Pair, Option<String>)> {
    let text = |key: &str| {
        let bytes = BASE64_STANDARD.decode(secret["data"][key].as_str()?).ok()?;
        String::from_utf8(bytes).ok()
    };
    let duration = secret["metadata"]["annotations"][DURATION_ANNOTATION].as_str().map(str::to_owned);
    Some((pki::Pair { cert: text(names::tls::CERTIFICATE)?, key: text(names::tls::KEY)? }, duration))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_nodes_are_ours_by_their_domain() {
        for (label, expected) in [
            ("kubevirt.io/schedulable", true),
            ("cpu-model.node.kubevirt.io/Haswell", true),
            ("kubernetes.io/hostname", false),
            ("notkubevirt.io/x", false),
            ("kubevirt.io", false),
        ] {
            assert_eq!(is_ours(label), expected, "{label}");
        }
    }
}
