//! The command line against a real API server: the program as a child process, the server in this one.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use test_server::TestServer;
use test_support::pki::MASTERS;

/// A server on a port of its own, with the administrator's kubeconfig.
struct Cluster {
    server: TestServer,
}

impl Cluster {
    async fn start() -> Self {
        let server = TestServer::start(vec![std::sync::Arc::<virt_api::Admission>::default()], &[]).await;
        server.write_kubeconfig("kubeconfig", "kubernetes-admin", &[MASTERS]);
        Cluster { server }
    }

    /// Runs `ferrovirt` with these words.
    async fn run(&self, words: &[&str]) -> Ran {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ferrovirt"));
        command.args(words).env("KUBECONFIG", self.server.dir().join("kubeconfig")).env("FERROVIRT_LOG", "off");
        Ran(tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap())
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.server.dir().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

struct Ran(Output);

impl Ran {
    fn out(&self) -> String {
        String::from_utf8(self.0.stdout.clone()).unwrap()
    }

    fn err(&self) -> String {
        String::from_utf8(self.0.stderr.clone()).unwrap()
    }

    /// The output of a command that succeeded.
    #[track_caller]
    fn ok(&self) -> String {
        assert!(self.0.status.success(), "{}\n{}", self.out(), self.err());
        self.out()
    }

    /// The complaint of a command that failed.
    #[track_caller]
    fn failed(&self) -> String {
        assert_eq!(self.0.status.code(), Some(1), "{}\n{}", self.out(), self.err());
        self.err()
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

const MANIFEST: &str = "\
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata:
  name: demo
  labels: {app: demo, old: gone}
spec:
  runStrategy: Halted
  template:
    spec:
      domain:
        devices: {autoattachPodInterface: false}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: notes
data:
  text: |
    two
    lines
";

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_applied_shown_changed_and_deleted() {
    let cluster = Cluster::start().await;
    let file = cluster.file("m.yaml", MANIFEST);
    let apply = ["apply", "-f", text(&file)];
    let vm = "virtualmachine.kubevirt.io/demo";

    let created = cluster.run(&apply).await.ok();
    assert_eq!(created, format!("{vm} created\nconfigmap/notes created\n"));
    let again = cluster.run(&apply).await.ok();
    assert_eq!(again, format!("{vm} unchanged\nconfigmap/notes unchanged\n"));

    cluster.file("m.yaml", &MANIFEST.replace(", old: gone", "").replace("two", "three"));
    let changed = cluster.run(&apply).await.ok();
    assert_eq!(changed, format!("{vm} configured\nconfigmap/notes configured\n"));
    let yaml = cluster.run(&["get", "vm", "demo", "-o", "yaml"]).await.ok();
    assert!(yaml.contains("app: demo") && !yaml.contains("old: gone\n"), "{yaml}");
    let notes = cluster.run(&["get", "cm/notes", "-o", "yaml"]).await.ok();
    assert!(notes.contains("text: |\n    three\n    lines\n"), "{notes}");

    let table = cluster.run(&["get", "vm", "--show-labels"]).await.ok();
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!((lines[0][0], lines[1][0]), ("NAME", "demo"), "{table}");
    assert_eq!((lines[0].last(), lines[1].last()), (Some(&"LABELS"), Some(&"app=demo")), "{table}");
    assert!(cluster.run(&["get", "vm", "-A"]).await.ok().starts_with("NAMESPACE"));
    assert_eq!(cluster.run(&["get", "vm", "-l", "app=demo", "-o", "name"]).await.ok(), format!("{vm}\n"));
    let none = cluster.run(&["get", "vm", "-l", "app=other"]).await;
    assert_eq!((none.ok().as_str(), none.err().trim()), ("", "No resources found in default namespace."));

    let described = cluster.run(&["describe", "vm", "demo"]).await.ok();
    assert!(described.contains("Kind:         VirtualMachine (kubevirt.io/v1)"), "{described}");
    assert!(described.contains("virtctl start demo"), "it says what it waits for: {described}");

    let deleted = cluster.run(&["delete", "-f", text(&file)]).await.ok();
    assert_eq!(deleted, "virtualmachine.kubevirt.io \"demo\" deleted\nconfigmap \"notes\" deleted\n");
    let missing = cluster.run(&["get", "vm", "demo"]).await.failed();
    assert!(missing.contains("\"demo\" not found"), "{missing}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_that_takes_long_says_what_it_waits_for() {
    let cluster = Cluster::start().await;
    let held = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: held\n  finalizers: [example.com/slow]\n";
    let file = cluster.file("held.yaml", held);
    cluster.run(&["apply", "-f", text(&file)]).await.ok();
    let gave_up = cluster.run(&["delete", "configmap", "held", "--timeout", "2"]).await.failed();
    let sentence = "ConfigMap held waits for its finalizers to be removed: example.com/slow";
    assert!(gave_up.contains(&format!("{sentence} …")), "told while waiting: {gave_up}");
    assert!(gave_up.contains(&format!("error: timed out: {sentence}")), "{gave_up}");
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_are_told_with_their_place_and_do_not_stop_the_rest() {
    let cluster = Cluster::start().await;
    let wrong = "apiVersion: v1\nkind: Nothing\nmetadata: {name: a}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n";
    let file = cluster.file("wrong.yaml", wrong);
    let ran = cluster.run(&["apply", "-f", text(&file)]).await;
    assert_eq!(ran.out(), "configmap/b created\n");
    let complaint = format!("error: {}, document 1 (line 1): the server has no kind Nothing in v1\n", file.display());
    assert_eq!(ran.failed(), complaint);
    assert!(cluster.run(&["get", "nothing"]).await.failed().contains("the server has no kind \"nothing\""));
    assert!(cluster.run(&["delete", "vm"]).await.failed().contains("--selector or --all"));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_is_known_by_all_its_names() {
    let cluster = Cluster::start().await;
    let mut names = Vec::new();
    for resource in api::resources::RESOURCES {
        let own = [resource.plural, resource.singular, resource.kind].into_iter();
        for name in own.chain(resource.short_names.iter().copied()) {
            names.extend([name.to_owned(), format!("{name}.{}", resource.group)]);
        }
    }
    let shown = cluster.run(&["get", &names.join(",")]).await;
    assert_eq!((shown.ok().as_str(), shown.err().trim()), ("", "No resources found in default namespace."));
    let types = "\
apiVersion: instancetype.kubevirt.io/v1beta1
kind: VirtualMachineClusterInstancetype
metadata: {name: small}
spec: {cpu: {guest: 1}, memory: {guest: 1Gi}}
---
apiVersion: kubevirt.io/v1alpha3
kind: VirtualMachineInstancePreset
metadata: {name: old}
spec: {selector: {}, domain: {devices: {}}}
";
    let file = cluster.file("types.yaml", types);
    let created = cluster.run(&["apply", "-f", text(&file)]).await.ok();
    let small = "virtualmachineclusterinstancetype.instancetype.kubevirt.io/small";
    assert_eq!(created, format!("{small} created\nvirtualmachineinstancepreset.kubevirt.io/old created\n"));
    assert_eq!(cluster.run(&["get", "vmcf.instancetype.kubevirt.io", "-o", "name"]).await.ok(), format!("{small}\n"));
    let described = cluster.run(&["describe", "vmipreset", "old"]).await.ok();
    assert!(described.contains("Kind:         VirtualMachineInstancePreset (kubevirt.io/v1)"), "{described}");
    cluster.run(&["delete", "-f", text(&file)]).await.ok();
    let unknown = cluster.run(&["get", "vmcff"]).await.failed();
    assert!(unknown.contains("the server has no kind \"vmcff\"; did you mean vmcf, vmcfs"), "{unknown}");
}

/// Lines without the spaces at their ends.
fn trimmed(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn kinds_are_explained_as_kubectl_does() {
    let cluster = Cluster::start().await;
    let kubectl = async |words: &[&str]| {
        let mut command = Command::new("kubectl");
        command
            .args(words)
            .env("KUBECONFIG", cluster.server.dir().join("kubeconfig"))
            .env("HOME", cluster.server.dir());
        tokio::task::spawn_blocking(move || command.output()).await.unwrap()
    };
    if kubectl(&["version", "--client"]).await.is_err() {
        return test_support::skip("there is no kubectl in PATH");
    }
    let questions: &[&[&str]] = &[
        &["vm"],
        &["vm.metadata"],
        &["vm.metadata.ownerReferences"],
        &["vm.spec.template.spec.domain.devices.disks"],
        &["vmi.spec.domain.memory.guest"],
        &["vmi.spec.networks"],
        &["vmclone.spec"],
        &["kubevirt.spec.configuration"],
        &["vmsnapshot.spec.failureDeadline"],
        &["migrationpolicies"],
        &["vmpool.spec", "--recursive"],
        &["vmpool", "--api-version=pool.kubevirt.io/v1alpha1"],
        &["virtualmachineinstancepresets"],
    ];
    for question in questions {
        let words: Vec<&str> = std::iter::once("explain").chain(question.iter().copied()).collect();
        let theirs = Ran(kubectl(&words).await.unwrap());
        let ours = cluster.run(&words).await;
        assert_eq!(trimmed(&ours.ok()), trimmed(&theirs.ok()), "{question:?}");
    }
    let error = cluster.run(&["explain", "vm.spec.template.spec.domain.devices.dsks"]).await.failed();
    assert!(error.contains("has no field \"dsks\"; did you mean disks"), "{error}");
}

const NODE_WITH_POD: &str = "\
apiVersion: v1
kind: Node
metadata: {name: n1}
---
apiVersion: v1
kind: Pod
metadata: {name: lonely}
spec:
  nodeName: n1
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: 'x:1'}]
";

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_emptied_only_of_what_the_user_gave_up() {
    let cluster = Cluster::start().await;
    let file = cluster.file("n.yaml", NODE_WITH_POD);
    cluster.run(&["apply", "-f", text(&file)]).await.ok();
    let cordoned =
        async || cluster.run(&["get", "node", "n1", "-o", "yaml"]).await.ok().contains("unschedulable: true");
    let refused = cluster.run(&["drain", "n1"]).await.failed();
    assert!(
        refused.contains("Pod default/lonely has no controller that would recreate it; use --force to delete it"),
        "{refused}"
    );
    assert!(!cordoned().await, "nothing is begun that cannot be finished");
    let drained = cluster.run(&["drain", "n1", "--force"]).await;
    drained.ok();
    assert!(drained.err().contains("node n1 drained: 1 Pods moved or evicted"), "{}", drained.err());
    assert!(cordoned().await);
    let told = cluster.run(&["uncordon", "n1"]).await.ok();
    assert!(told.starts_with("node n1 uncordoned; 0 evacuations canceled"), "{told}");
    assert!(!cordoned().await);
    assert!(cluster.run(&["drain", "n9"]).await.failed().contains("nodes \"n9\" not found"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_stands_still_is_explained() {
    let cluster = Cluster::start().await;
    let file = cluster.file("m.yaml", MANIFEST);
    cluster.run(&["apply", "-f", text(&file)]).await.ok();
    let told = cluster.run(&["virtctl", "explain", "vm", "demo"]).await.ok();
    assert!(
        told.contains("nothing pending: VirtualMachine demo is stopped; start it with `virtctl start demo`"),
        "{told}"
    );
    let missing = cluster.run(&["virtctl", "explain", "migration", "none"]).await.failed();
    assert!(missing.contains("there is no VirtualMachineInstanceMigration none in namespace default"), "{missing}");
    let idle = cluster.run(&["virtctl", "migrate-cancel", "demo"]).await.failed();
    assert!(idle.contains("found no migration of demo to cancel"), "{idle}");
}

#[test]
fn validation_needs_no_cluster_and_tells_by_its_exit_code() {
    let machine = |fields: &str| {
        format!("apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {{name: demo}}\nspec: {fields}\n")
    };
    let network = "networks: [{name: default, pod: {}}]";
    let bound = |binding: &str| {
        machine(&format!(
            "{{domain: {{memory: {{guest: 64Mi}}, devices: {{interfaces: [{{name: default, {binding}: {{}}}}]}}}}, {network}}}"
        ))
    };
    let cases = [
        (bound("masquerade"), 0, "kind: VirtualMachineInstance"),
        (machine("{domain: {devices: {disks: [{name: a, disk: {}}]}}}"), 1, "spec.domain.devices.disks[0].name: "),
        (machine("{domain: 1"), 2, "m.yaml, document 1, line "),
        (bound("bridge"), 3, "spec.domain.devices.interfaces[0].bridge: "),
    ];
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("m.yaml");
    for (manifest, code, said) in cases {
        std::fs::write(&file, &manifest).unwrap();
        let ran = Command::new(env!("CARGO_BIN_EXE_ferrovirt")).args(["validate", "-f", text(&file)]).output().unwrap();
        let ran = Ran(ran);
        let told = format!("{}{}", ran.out(), ran.err());
        assert_eq!(ran.0.status.code(), Some(code), "{manifest}\n{told}");
        assert!(told.contains(said), "{manifest}\n{told}");
    }
}
