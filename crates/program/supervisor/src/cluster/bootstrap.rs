//! Initial objects of an embedded cluster, and waiting for it to become ready.

use std::borrow::Borrow;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use api::config::{ClusterConfig, DEFAULT_INSTALL_NAMESPACE, in_force};
use api::rights;
use api::v1::{KubeVirt, KubeVirtStatus};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt as _, reflector, watcher};
use plan::installation::{self, Program};
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::identity;
use terminal::Progress;

/// The deployed version.
const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));

/// Nodes are processes on this machine: if they take longer, something is wrong.
const NODES_TIMEOUT: Duration = Duration::from_secs(120);

/// What every embedded cluster starts with because KubeVirt's programs and users expect it.
pub fn system() -> embedded::System {
    let critical = PriorityClass {
        metadata: ObjectMeta { name: Some("kubevirt-cluster-critical".to_owned()), ..ObjectMeta::default() },
        value: 1_000_000_000,
        description: Some("This priority class should be used for core kubevirt components only.".to_owned()),
        ..PriorityClass::default()
    };
    embedded::System {
        namespace: api::config::DEFAULT_INSTALL_NAMESPACE.to_owned(),
        priority_classes: vec![critical],
        roles: [api::users::roles(), imports::users::roles()].concat(),
        bindings: [api::users::bindings(), imports::users::bindings()].concat(),
    }
}

/// All programs that access the API server of an embedded cluster in their own name, except its built-in scheduler.
pub fn programs() -> Vec<rights::Program> {
    vec![
        virt_controller::program(virt_controller::ALL),
        virt_api::program(),
        virt_handler::program(),
        pod_runner::program(),
        volume_controller::program(),
        import_controller::program(),
    ]
}

/// Creates the KubeVirt object if it is missing. Its configuration belongs to the user; only the emulation setting is
/// kept in line with the machine.
pub async fn kubevirt(client: &kube::Client, kvm_usable: bool) -> Result<()> {
    let kubevirts: Api<KubeVirt> = Api::namespaced(client.clone(), DEFAULT_INSTALL_NAMESPACE);
    let emulation = json!({"spec": {"configuration": {"developerConfiguration": {"useEmulation": !kvm_usable}}}});
    match kubevirts.get_opt("kubevirt").await.context("cannot read the KubeVirt object")? {
        Some(existing) => {
            keep_annotation(&kubevirts, &existing).await?;
            // An invalid configuration is up to the user to fix; meanwhile admission uses the last valid one.
            let emulates = ClusterConfig::from_kubevirt(&existing).map(|config| config.use_emulation());
            if emulates.is_ok_and(|emulates| emulates == kvm_usable) {
                kubevirts
                    .patch("kubevirt", &PatchParams::default(), &Patch::Merge(emulation))
                    .await
                    .context("cannot adjust the KubeVirt object to this machine")?;
            }
        }
        None => {
            let object: KubeVirt =
                serde_json::from_value(initial(kvm_usable)).context("the built-in KubeVirt object")?;
            kubevirts.create(&PostParams::default(), &object).await.context("cannot create the KubeVirt object")?;
        }
    }
    write_status(&kubevirts, installation::starting).await
}

/// Reports that the whole cluster runs this version. Until then no guest is migrated to a newer launcher.
pub async fn settled(client: &kube::Client) -> Result<()> {
    let kubevirts: Api<KubeVirt> = Api::namespaced(client.clone(), DEFAULT_INSTALL_NAMESPACE);
    write_status(&kubevirts, installation::deployed).await
}

async fn write_status(
    kubevirts: &Api<KubeVirt>,
    stage: fn(&KubeVirt, Program<'_>, &Time) -> KubeVirtStatus,
) -> Result<()> {
    let current = kubevirts.get("kubevirt").await.context("cannot read the KubeVirt object")?;
    let program = Program { version: VERSION, id: identity::program() };
    let mut status = stage(&current, program, &Time(jiff::Timestamp::now()));
    status.default_architecture = Some("amd64".to_owned());
    patch_status(kubevirts, "kubevirt", json!(status)).await
}

async fn patch_status(kubevirts: &Api<KubeVirt>, name: &str, status: serde_json::Value) -> Result<()> {
    let patch = Patch::Merge(json!({ "status": status }));
    let written = kubevirts.patch_status(name, &PatchParams::default(), &patch).await;
    written.context("cannot write the KubeVirt object's status").map(drop)
}

/// Updates the observed generation after a configuration change.
async fn observe(kubevirts: &Api<KubeVirt>, changed: &KubeVirt) -> Result<()> {
    let observed = changed.status.as_ref().and_then(|status| status.observed_generation);
    match changed.metadata.generation {
        Some(generation) if observed != Some(generation) => {
            let name = changed.metadata.name.as_deref().unwrap_or_default();
            patch_status(kubevirts, name, json!({"observedGeneration": generation})).await
        }
        _ => Ok(()),
    }
}

/// Adds the annotation to objects from before digest resolution existed: an embedded cluster has no image to run the
/// resolving containers from.
async fn keep_annotation(kubevirts: &Api<KubeVirt>, existing: &KubeVirt) -> Result<()> {
    let key = api::annotations::SKIP_DIGEST_RESOLUTION;
    if existing.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(key)) {
        return Ok(());
    }
    let skip = json!({"metadata": {"annotations": {key: "true"}}});
    let patched = kubevirts.patch("kubevirt", &PatchParams::default(), &Patch::Merge(skip)).await;
    patched.context("cannot adjust the KubeVirt object to this shape").map(drop)
}

fn initial(kvm_usable: bool) -> serde_json::Value {
    json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "KubeVirt",
        "metadata": {
            "name": "kubevirt",
            "namespace": DEFAULT_INSTALL_NAMESPACE,
            "annotations": {api::annotations::SKIP_DIGEST_RESOLUTION: "true"},
        },
        "spec": {"configuration": {
            "developerConfiguration": {"useEmulation": !kvm_usable},
            "network": {"defaultNetworkInterface": "masquerade"},
            "virtualMachineOptions": {"disableSerialConsoleLog": {}},
        }},
    })
}

/// The defaults of this cluster.
fn base() -> ClusterConfig {
    ClusterConfig { launcher_image: identity::launcher_image(), ..ClusterConfig::default() }
}

/// Keeps admission in line with the KubeVirt object. The first configuration is in effect when this returns. Observed
/// generations are recorded as `admin`.
pub async fn follow_configuration(
    client: kube::Client,
    admin: kube::Client,
    admission: Arc<virt_api::Admission>,
    shutdown: CancellationToken,
    tasks: &mut JoinSet<(&'static str, Result<()>)>,
) -> Result<()> {
    let kubevirts: Api<KubeVirt> = Api::namespaced(client, DEFAULT_INSTALL_NAMESPACE);
    let current = kubevirts.list(&ListParams::default()).await.context("cannot read the KubeVirt object")?;
    follow(&admission, current.items);
    let noted: Api<KubeVirt> = Api::namespaced(admin, DEFAULT_INSTALL_NAMESPACE);
    tasks.spawn(async move {
        let (all, writer) = reflector::store();
        let changes = watcher(kubevirts, watcher::Config::default()).default_backoff().reflect(writer);
        futures::pin_mut!(changes);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return ("the configuration watch", Ok(())),
                change = futures::StreamExt::next(&mut changes) => match change {
                    Some(Ok(Event::Init | Event::InitApply(_))) => {} // the list is not complete yet
                    Some(Ok(Event::InitDone | Event::Apply(_) | Event::Delete(_))) => {
                        follow(&admission, all.state());
                        let Some(kubevirt) = in_force(all.state(), None) else { continue };
                        if let Err(err) = observe(&noted, &kubevirt).await {
                            tracing::warn!(error = format!("{err:#}"), "observedGeneration is behind until the next change");
                        }
                    }
                    Some(Err(err)) => tracing::debug!(error = %err, "the watch of the KubeVirt object is retried"),
                    None => return ("the configuration watch", Ok(())),
                },
            }
        }
    });
    Ok(())
}

/// Takes the configuration of the object in force. An invalid one leaves the last valid one in effect.
fn follow<K: Borrow<KubeVirt>>(admission: &virt_api::Admission, all: Vec<K>) {
    match base().effective(all, None) {
        Ok(config) => admission.configure(config),
        Err(err) => {
            let error = &err as &dyn std::error::Error;
            tracing::error!(error, "ignoring the invalid cluster configuration")
        }
    }
}

/// Resets what an earlier run of the nodes reported, so that waiting for readiness waits for this run.
pub async fn forget_nodes(client: &kube::Client) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let closed = json!({"metadata": {"labels": {api::labels::SCHEDULABLE: "false"}}});
    for node in nodes.list(&ListParams::default()).await.context("cannot list the nodes")? {
        let name = node.metadata.name.unwrap_or_default();
        nodes
            .patch(&name, &PatchParams::default(), &Patch::Merge(&closed))
            .await
            .with_context(|| format!("cannot cordon node {name}"))?;
    }
    Ok(())
}

/// Waits until each node is ready and its virt-handler accepts VMs.
pub async fn nodes_ready(client: kube::Client, names: Vec<String>, progress: &mut Progress) -> Result<()> {
    let nodes: Api<Node> = Api::all(client);
    let deadline = tokio::time::Instant::now() + NODES_TIMEOUT;
    for name in &names {
        loop {
            let node = nodes.get_opt(name).await.with_context(|| format!("cannot read node {name}"))?;
            match missing(node.as_ref()) {
                None => break,
                Some(what) if tokio::time::Instant::now() > deadline => bail!("node {name} is not ready: {what}"),
                Some(what) => progress.waiting(format!("node {name}: {what}")),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        progress.done(format!("node {name} ready"));
    }
    Ok(())
}

fn missing(node: Option<&Node>) -> Option<&'static str> {
    let Some(node) = node else { return Some("its process has not registered yet") };
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    if !conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True") {
        return Some("its Pod runner is not ready yet");
    }
    let schedulable = node.metadata.labels.as_ref().and_then(|labels| labels.get(api::labels::SCHEDULABLE));
    (schedulable.map(String::as_str) != Some("true")).then_some("virt-handler has not marked it schedulable yet")
}

#[cfg(test)]
mod tests {
    use embedded::auth::{Attributes, Decision, Rules, Target, User, authorize};

    use super::*;

    fn rules() -> Rules {
        let programs: Vec<rights::Program> = programs().into_iter().chain([embedded::scheduler::program()]).collect();
        let roles = programs.iter().map(rights::Program::cluster_role).collect();
        let bindings = programs.iter().map(|program| program.cluster_binding(DEFAULT_INSTALL_NAMESPACE)).collect();
        let (own_roles, own_bindings) =
            programs.iter().filter_map(|program| program.role(DEFAULT_INSTALL_NAMESPACE)).unzip();
        Rules::new(roles, bindings, own_roles, own_bindings)
    }

    #[test]
    fn every_identity_of_the_cluster_can_do_its_work_and_not_more() {
        let rules = rules();
        let node = ("system:node:n1", "system:nodes");
        let handler = ("system:serviceaccount:kubevirt:kubevirt-handler", "ferrovirt:node:n1");
        let controller = ("system:serviceaccount:kubevirt:kubevirt-controller", "x");
        let api = ("system:serviceaccount:kubevirt:kubevirt-apiserver", "x");
        let scheduler = ("system:kube-scheduler", "x");
        let volumes = ("system:serviceaccount:kubevirt:volume-controller", "x");
        let importer = ("system:serviceaccount:kubevirt:ferrovirt-importer", "x");
        let stranger = ("eve", "x");
        let (here, there) = ("kubevirt", "default");
        let table = [
            (node, "patch", "", "nodes/status", there, true),
            (node, "delete", "", "pods", there, true),
            (node, "create", "", "pods", there, false),
            (node, "list", "", "secrets", there, false),
            (node, "list", "kubevirt.io", "virtualmachineinstances", there, false),
            (handler, "update", "kubevirt.io", "virtualmachineinstances", there, true),
            (handler, "patch", "", "nodes", there, true),
            (handler, "create", "", "pods", there, false),
            (handler, "get", "", "secrets", there, false),
            (handler, "delete", "kubevirt.io", "virtualmachineinstances", there, false),
            (handler, "update", "pool.kubevirt.io", "virtualmachinepools", there, false),
            (controller, "create", "", "pods", there, true),
            (controller, "update", "kubevirt.io", "virtualmachines/status", there, true),
            (controller, "create", "", "secrets", there, false),
            (controller, "update", "coordination.k8s.io", "leases", here, true),
            (controller, "update", "coordination.k8s.io", "leases", there, false),
            (controller, "list", "migrations.kubevirt.io", "migrationpolicies", there, true),
            (controller, "update", "migrations.kubevirt.io", "migrationpolicies", there, false),
            (controller, "create", "snapshot.kubevirt.io", "virtualmachinesnapshotcontents", there, false),
            (api, "patch", "kubevirt.io", "virtualmachines", there, true),
            (api, "create", "", "pods", there, false),
            (api, "list", "", "pods", here, true),
            (api, "list", "", "pods", there, false),
            (api, "create", "snapshot.kubevirt.io", "virtualmachinesnapshots", there, false),
            (scheduler, "create", "", "pods/binding", there, true),
            (scheduler, "patch", "", "pods/status", there, true),
            (scheduler, "delete", "", "pods", there, false),
            (scheduler, "patch", "", "persistentvolumeclaims", there, true),
            (scheduler, "delete", "", "persistentvolumeclaims", there, false),
            (volumes, "create", "", "persistentvolumes", there, true),
            (volumes, "patch", "", "persistentvolumeclaims/status", there, true),
            (volumes, "delete", "", "persistentvolumeclaims", there, false),
            (volumes, "list", "", "secrets", there, false),
            (volumes, "create", "snapshot.storage.k8s.io", "volumesnapshotcontents", there, true),
            (volumes, "delete", "snapshot.storage.k8s.io", "volumesnapshots", there, false),
            (importer, "create", "", "persistentvolumeclaims", there, true),
            (importer, "delete", "", "persistentvolumeclaims", there, false),
            (importer, "update", "", "persistentvolumeclaims", there, false),
            (importer, "create", "", "persistentvolumes", there, false),
            (importer, "get", "", "secrets", there, true),
            (importer, "list", "", "secrets", there, false),
            (importer, "patch", "cdi.kubevirt.io", "datavolumes/status", there, true),
            (importer, "patch", "cdi.kubevirt.io", "datavolumes", there, false),
            (stranger, "get", "kubevirt.io", "virtualmachines", there, false),
        ];
        for ((name, group), verb, api_group, resource, namespace, allowed) in table {
            let user = User { name: name.into(), groups: vec![group.into(), "system:authenticated".into()] };
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            let target = Target::Resource {
                group: api_group.into(),
                resource: resource.into(),
                subresource: subresource.into(),
                namespace: namespace.into(),
                name: "x".into(),
            };
            let decision = authorize(&Attributes { user, verb: verb.into(), target }, &rules);
            assert_eq!(decision != Decision::Deny, allowed, "{name} {verb} {resource}/{subresource} in {namespace}");
        }
    }
}
