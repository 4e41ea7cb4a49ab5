//! The printed manifests, with the rights that the programs really declare.

#![allow(clippy::unwrap_used, reason = "the helpers of a test may panic like the test itself")]

use std::path::Path;

use ::manifests::{Document, to_yaml};
use clap::{Args as _, Parser as _};
use ferrovirt_cli::installation::{Args, findings, manifests, programs};
use ferrovirt_cli::{api_server, controller, handler};
use install::check::Level;
use install::names::{account, app, common_name};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use test_server::TestServer;

#[derive(clap::Parser)]
struct Install {
    #[command(flatten)]
    args: Args,
}

fn args(words: &[&str]) -> Args {
    Install::try_parse_from([&["install"], words].concat()).map_err(|error| error.to_string()).unwrap().args
}

fn documents(text: &str) -> Vec<Document> {
    ::manifests::parse("printed", text).unwrap()
}

/// What is printed. Definitions are left out but for their names: they have goldens of their own.
fn printed(words: &[&str]) -> String {
    let mut documents = documents(&manifests(&args(words)).unwrap());
    for document in documents.iter_mut().filter(|document| document.kind() == "CustomResourceDefinition") {
        document.object["spec"] = "left out".into();
    }
    documents.iter().map(|document| format!("---\n{}", to_yaml(&document.object).unwrap())).collect()
}

/// Compares with a file; `UPDATE_GOLDENS=1` writes it instead.
fn check_golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens").join(name);
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = golden.lines().zip(text.lines()).position(|(expected, found)| expected != found);
    assert!(
        golden == text,
        "{name} differs from line {:?} on; UPDATE_GOLDENS=1 writes it anew",
        differs.map(|line| line + 1)
    );
}

#[test]
fn the_manifests_of_an_operator() {
    check_golden("operator.yaml", &printed(&[]));
}

#[test]
fn the_manifests_of_everything() {
    let words = [
        "--without-operator",
        "--namespace=vms",
        "--image-prefix=registry.example/vms",
        "--image-tag=v9",
        "--image-pull-secret=pull",
        "--replicas=3",
        "--infra-node-selector=kubernetes.io/os=linux",
        "--workloads-node-selector=vms=yes",
    ];
    check_golden("without-operator.yaml", &printed(&words));
}

#[test]
fn programs_have_the_accounts_that_pods_run_with() {
    let names = programs().all().map(|program| program.name);
    assert_eq!(names, [account::API, account::CONTROLLER, account::HANDLER]);
}

#[test]
fn peers_know_each_other_by_the_common_names_of_certificates() {
    assert_eq!(common_name::HANDLER, role_tls::NODE_AGENT);
    assert_eq!(common_name::HANDLER_CLIENT, role_tls::NODE_AGENT_CLIENT);
}

#[test]
fn what_cannot_be_a_name_is_refused() {
    let refused = |words: &[&str]| Install::try_parse_from([&["install"], words].concat()).is_err();
    assert!(refused(&["--image-pull-secret=a b"]));
    assert!(refused(&["--kubelet-root=relative"]));
    assert!(refused(&["--infra-node-selector=novalue"]));
    assert!(refused(&["--ca-bundle=ca.pem"]), "virt-operator has its own CA");
    assert!(refused(&["--replicas=0"]));
    let namespace = manifests(&args(&["--namespace=it's"])).unwrap_err();
    assert!(namespace.to_string().contains("is not the name of a namespace"), "{namespace}");
}

#[test]
fn the_ca_comes_from_a_file_that_holds_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.pem");
    let with = |text: &str| {
        std::fs::write(&path, text).unwrap();
        manifests(&args(&["--without-operator", &format!("--ca-bundle={}", path.display())]))
    };
    assert!(with("nothing").unwrap_err().to_string().contains("no PEM certificate"));
    let printed = with("-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n").unwrap();
    let services = documents(&printed).into_iter().filter(|document| document.kind() == "APIService");
    assert!(services.count() == 2 && printed.matches("caBundle: LS0tLS1CRUdJTi").count() > 2);
}

#[test]
fn a_program_takes_the_arguments_that_its_pod_has() {
    let printed = documents(&manifests(&args(&["--without-operator", "--image-pull-secret=pull"])).unwrap());
    let arguments = |name: &str| -> Vec<String> {
        let mut workloads = printed.iter().filter(|document| matches!(document.kind(), "Deployment" | "DaemonSet"));
        let object = &workloads.find(|document| document.name() == name).unwrap().object;
        let words = object["spec"]["template"]["spec"]["containers"][0]["args"].clone();
        let words: Vec<String> = serde_json::from_value(words).unwrap();
        words.iter().map(|word| word.replace("$(NODE_NAME)", "n1").replace("$(MY_POD_IP)", "10.0.0.1")).collect()
    };
    let programs = [
        (app::API, "api", api_server::Args::augment_args(clap::Command::new("api"))),
        (app::CONTROLLER, "controller", controller::Args::augment_args(clap::Command::new("controller"))),
        (app::HANDLER, "handler", handler::Args::augment_args(clap::Command::new("handler"))),
    ];
    for (name, subcommand, command) in programs {
        let words = arguments(name);
        assert_eq!(words[0], subcommand);
        let read = command.try_get_matches_from(&words).map_err(|error| error.to_string()).unwrap();
        assert_eq!(read.get_one::<u16>("port"), Some(&8443), "{name}");
    }
}

#[tokio::test]
async fn a_check_reads_versions_nodes_and_what_is_installed_and_creates_nothing() {
    let server = TestServer::start(vec![], &[]).await;
    let node = serde_json::json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n1", "labels": {"node-role.kubernetes.io/control-plane": ""}},
        "status": {"nodeInfo": {
            "architecture": "amd64", "bootID": "", "containerRuntimeVersion": "containerd://1.7.1", "kernelVersion": "",
            "kubeProxyVersion": "", "kubeletVersion": "v1.36.0", "machineID": "", "operatingSystem": "linux",
            "osImage": "", "systemUUID": "",
        }},
    });
    let nodes: Api<Node> = Api::all(server.admin().await);
    nodes.create(&PostParams::default(), &serde_json::from_value(node.clone()).unwrap()).await.unwrap();
    nodes.patch_status("n1", &PatchParams::default(), &Patch::Merge(&node)).await.unwrap();
    let binding = serde_json::json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "kubevirt-operator"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "kubevirt-operator"},
    });
    let bindings: Api<ClusterRoleBinding> = Api::all(server.admin().await);
    bindings.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();
    let kubeconfig = server.write_kubeconfig("admin", "kubernetes-admin", &["system:masters"]);
    let told = findings(&args(&["--check", &format!("--kubeconfig={}", kubeconfig.display())])).await.unwrap();
    assert!(told[0].message.starts_with("the API server"), "{told:?}");
    let node = told.last().unwrap();
    assert_eq!(node.level, Level::Wrong, "{told:?}");
    assert!(node.message.contains("node n1 has containerd 1.7.1"), "{told:?}");
    let of_another = "ClusterRoleBinding kubevirt-operator is not Ferrovirt's";
    assert!(told.iter().any(|found| found.level == Level::Wrong && found.message.contains(of_another)), "{told:?}");
    let pods = Api::<Pod>::all(server.admin().await).list(&ListParams::default()).await.unwrap();
    assert!(pods.items.is_empty(), "a dry run has created a Pod: {pods:?}");
    server.stop().await;
}
