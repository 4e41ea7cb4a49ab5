//! A first installation, and what keeps it as it is.

use api::v1::{ComponentConfig, CustomizeComponents, CustomizeComponentsPatch, KubeVirtPhase, MigrationConfiguration};
use serde_json::{Value, json};

use super::cluster::Cluster;
use crate::{Effect, decide, failed};

#[test]
fn virt_api_answers_before_webhooks_are_there_and_webhooks_before_kinds() {
    let mut cluster = Cluster::new();
    cluster.run(|_| {});
    assert_eq!(cluster.phase(), Some(KubeVirtPhase::Deploying));
    let waiting = "Waiting for virt-api to be rolled out.".to_owned();
    assert_eq!(cluster.told(), ([false, true, false], "DeploymentInProgress".to_owned(), waiting));
    assert!(!cluster.has("ValidatingWebhookConfiguration", "virt-api-validator"));
    assert!(!cluster.has("CustomResourceDefinition", "virtualmachines.kubevirt.io"));
    assert!(!cluster.has("Deployment", "virt-controller"));

    cluster.run(|cluster| cluster.roll_out("virt-api"));
    assert!(cluster.has("ValidatingWebhookConfiguration", "virt-api-validator"));
    assert!(cluster.has("APIService", "v1.subresources.kubevirt.io"));
    assert!(cluster.has("CustomResourceDefinition", "virtualmachines.kubevirt.io"));
    assert_eq!(cluster.told().2, "Waiting for virt-handler to be rolled out.");

    cluster.run(|cluster| cluster.roll_out_everything());
    assert_eq!(cluster.phase(), Some(KubeVirtPhase::Deployed));
    assert_eq!(cluster.told().0, [true, false, false]);
    let order = [
        "renew ca",
        "apply ConfigMap",
        "renew kubevirt-virt-api-certs",
        "apply ClusterRole",
        "apply Deployment kubevirt/virt-api",
        "apply ValidatingWebhookConfiguration virt-api-validator",
        "apply CustomResourceDefinition",
        "apply Deployment kubevirt/virt-controller",
        "apply DaemonSet kubevirt/virt-handler",
    ];
    assert!(order.map(|what| cluster.first(what)).is_sorted(), "{:#?}", cluster.log);
}

#[test]
fn a_settled_installation_is_not_written_to() {
    let cluster = Cluster::deployed();
    let decision = decide(&cluster.world());
    assert_eq!(decision.effects, []);
    assert!(decision.again.is_some(), "certificates come due");
}

#[test]
fn drift_is_repaired_in_any_object() {
    let mut cluster = Cluster::deployed();
    cluster.object("Deployment", "virt-api")["spec"]["replicas"] = json!(0);
    cluster.object("ClusterRole", "kubevirt-handler")["rules"] = json!([]);
    cluster.object("ValidatingWebhookConfiguration", "virt-api-validator")["webhooks"] = json!([]);
    cluster.live.retain(|id, _| id.name != "virt-controller" && id.name != "virtualmachines.kubevirt.io");
    cluster.run(|cluster| cluster.roll_out_everything());
    for repaired in [
        "apply Deployment kubevirt/virt-api",
        "apply ClusterRole kubevirt-handler",
        "apply ValidatingWebhookConfiguration virt-api-validator",
        "apply Deployment kubevirt/virt-controller",
        "apply CustomResourceDefinition virtualmachines.kubevirt.io",
    ] {
        cluster.first(repaired);
    }
    assert_eq!(cluster.log.len(), 5, "{:#?}", cluster.log);
}

#[test]
fn what_is_no_longer_ready_is_told_and_the_rest_is_still_kept() {
    let mut cluster = Cluster::deployed();
    cluster.object("Deployment", "virt-api")["status"]["readyReplicas"] = json!(0);
    cluster.object("ClusterRole", "kubevirt-handler")["rules"] = json!([]);
    cluster.run(|_| {});
    cluster.first("apply ClusterRole kubevirt-handler");
    let message = "Pods not ready: virt-api.".to_owned();
    assert_eq!(cluster.told(), ([false, false, true], "ComponentsNotReady".to_owned(), message));
    assert_eq!(cluster.phase(), Some(KubeVirtPhase::Deployed));
}

#[test]
fn settings_of_the_kubevirt_object_are_honoured() {
    let mut cluster = Cluster::new();
    let spec = &mut cluster.kubevirt().spec;
    spec.image_registry = Some("registry.example/vms".to_owned());
    spec.image_tag = Some("v0.2.5".to_owned());
    spec.image_pull_policy = Some("Always".to_owned());
    spec.image_pull_secrets = serde_json::from_value(json!([{"name": "pull"}])).unwrap();
    spec.product_name = Some("vms".to_owned());
    spec.infra = Some(ComponentConfig {
        replicas: Some(1),
        node_placement: serde_json::from_value(json!({"nodeSelector": {"infra": "yes"}})).unwrap(),
    });
    spec.workloads = Some(ComponentConfig {
        replicas: None,
        node_placement: serde_json::from_value(json!({"nodeSelector": {"vms": "yes"}})).unwrap(),
    });
    spec.customize_components = Some(CustomizeComponents {
        patches: vec![CustomizeComponentsPatch {
            patch: r#"{"metadata":{"annotations":{"team":"x"}}}"#.to_owned(),
            resource_name: "virt-controller".to_owned(),
            resource_type: "Deployment".to_owned(),
            type_: "merge".to_owned(),
        }],
        flags: None,
    });
    cluster.run(|cluster| cluster.roll_out_everything());
    let api = cluster.object("Deployment", "virt-api").clone();
    let pod = &api["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["image"], "registry.example/vms/ferrovirt:v0.2.5");
    assert_eq!(pod["containers"][0]["imagePullPolicy"], "Always");
    assert_eq!(pod["imagePullSecrets"], json!([{"name": "pull"}]));
    assert_eq!(pod["nodeSelector"]["infra"], "yes");
    assert_eq!(api["spec"]["replicas"], 1);
    assert_eq!(api["metadata"]["labels"]["app.kubernetes.io/part-of"], "vms");
    assert!(!cluster.has("PodDisruptionBudget", "virt-api-pdb"));
    assert_eq!(cluster.object("DaemonSet", "virt-handler")["spec"]["template"]["spec"]["nodeSelector"]["vms"], "yes");
    assert_eq!(cluster.object("Deployment", "virt-controller")["metadata"]["annotations"]["team"], "x");
    let status = cluster.kubevirt().status.clone().unwrap();
    assert_eq!(status.observed_kube_virt_version.as_deref(), Some("v0.2.5"));
    assert_eq!(status.observed_kube_virt_registry.as_deref(), Some("registry.example/vms"));
}

#[test]
fn virt_handler_joins_the_network_for_migrations() {
    let mut cluster = Cluster::deployed();
    let networks = |cluster: &mut Cluster| {
        let template = &cluster.object("DaemonSet", "virt-handler")["spec"]["template"];
        template["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"].clone()
    };
    assert_eq!(networks(&mut cluster), Value::Null);
    for (network, joined) in
        [("fast", json!("kubevirt/fast@migration0")), ("net/fast", json!("net/fast@migration0")), ("", Value::Null)]
    {
        let migrations =
            MigrationConfiguration { network: Some(network.to_owned()), ..MigrationConfiguration::default() };
        let configuration = cluster.kubevirt().spec.configuration.get_or_insert_default();
        configuration.migrations = Some(migrations);
        cluster.run(|cluster| cluster.roll_out_everything());
        assert_eq!(networks(&mut cluster), joined, "{network:?}");
    }
}

#[test]
fn a_patch_that_does_not_apply_is_told_and_nothing_is_changed() {
    let mut cluster = Cluster::deployed();
    cluster.kubevirt().spec.customize_components = Some(CustomizeComponents {
        patches: vec![CustomizeComponentsPatch {
            patch: r#"[{"op":"remove","path":"/spec/nothing"}]"#.to_owned(),
            resource_name: "virt-api".to_owned(),
            resource_type: "Deployment".to_owned(),
            type_: "json".to_owned(),
        }],
        flags: None,
    });
    cluster.run(|_| {});
    let (_, reason, message) = cluster.told();
    assert_eq!(reason, "DeploymentFailed");
    assert!(
        message.starts_with("spec.customizeComponents.patches[0] does not apply to Deployment virt-api"),
        "{message}"
    );
    assert_eq!(cluster.log, Vec::<String>::new());
}

#[test]
fn an_object_that_no_longer_belongs_to_it_is_deleted() {
    let mut cluster = Cluster::deployed();
    assert!(cluster.has("PodDisruptionBudget", "virt-api-pdb"));
    cluster.kubevirt().spec.infra = Some(ComponentConfig { replicas: Some(1), node_placement: None });
    cluster.run(|cluster| cluster.roll_out_everything());
    assert!(!cluster.has("PodDisruptionBudget", "virt-api-pdb"));
    assert!(cluster.has("PodDisruptionBudget", "virt-operator-pdb"), "it is the administrator's");
}

#[test]
fn a_second_installation_is_refused() {
    let mut cluster = Cluster::deployed();
    let mut second = cluster.kubevirts[0].clone();
    second.metadata.name = Some("second".to_owned());
    second.status = None;
    cluster.kubevirts.push(second);
    cluster.run(|_| {});
    let status = cluster.kubevirts[1].status.clone().unwrap();
    let told = &status.conditions[0];
    assert_eq!((told.type_.as_str(), told.reason(), status.phase), ("Synchronized", "ExistingDeployment", None));
    assert_eq!(cluster.kubevirts[1].metadata.finalizers, cluster.kubevirts[0].metadata.finalizers);
    assert_eq!(cluster.log, Vec::<String>::new());
}

#[test]
fn a_renewed_ca_reaches_the_registrations_at_once() {
    let mut cluster = Cluster::deployed();
    cluster.now = cluster.certificates.authority.as_ref().unwrap().not_after - std::time::Duration::from_secs(3600);
    cluster.run(|_| {});
    assert_eq!(cluster.certificates.bundle.len(), 2);
    let order = ["renew ca", "apply ConfigMap kubevirt/kubevirt-ca", "apply ValidatingWebhookConfiguration"];
    assert!(order.map(|what| cluster.first(what)).is_sorted(), "{:#?}", cluster.log);
    assert!(!cluster.log.iter().any(|line| line.contains("Deployment")), "nothing is rolled out: {:#?}", cluster.log);
}

#[test]
fn what_could_not_be_carried_out_is_told_once() {
    let mut cluster = Cluster::deployed();
    let Some(Effect::Status { status, .. }) = failed(&cluster.world(), "virt-api is refused: forbidden") else {
        panic!("nothing is told")
    };
    cluster.kubevirt().status = Some(*status);
    assert_eq!(cluster.told().1, "DeploymentFailed");
    assert_eq!(failed(&cluster.world(), "virt-api is refused: forbidden"), None);
    cluster.run(|_| {});
    assert_eq!(cluster.told().0, [true, false, false]);
}
