//! The real `kubectl` against the server, without flags that a user would not think of.
//!
//! Runs the `kubectl` in `PATH`; `FERROVIRT_TEST_KUBECTL` may name others, separated by colons.
#![allow(clippy::unwrap_used)] // a test may fail this way

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use crate::common::{MASTERS, TestServer, eventually};
use api::resources::RESOURCES;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

const LIMIT: Duration = Duration::from_secs(60);

fn binaries() -> Vec<PathBuf> {
    if let Some(list) = std::env::var_os("FERROVIRT_TEST_KUBECTL") {
        return std::env::split_paths(&list).collect();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join("kubectl")).find(|file| file.is_file());
    if found.is_none() {
        test_support::skip("there is no kubectl in PATH");
    }
    found.into_iter().collect()
}

struct Kubectl {
    binary: PathBuf,
    home: tempfile::TempDir,
}

impl Kubectl {
    fn new(binary: &Path, server: &TestServer) -> Self {
        let home = tempfile::tempdir().unwrap();
        let config = server.authority.kubeconfig(&server.url(), Some(&server.authority.issue("admin", &[MASTERS])));
        std::fs::write(home.path().join("config"), config.to_string()).unwrap();
        Self { binary: binary.to_owned(), home }
    }

    fn command(&self, args: &str) -> Command {
        let mut command = Command::new(&self.binary);
        command
            .args(args.split_whitespace())
            .env("HOME", self.home.path())
            .env("KUBECONFIG", self.home.path().join("config"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Success, standard output, standard error.
    async fn run(&self, args: &str, input: &str) -> (bool, String, String) {
        let mut child = self.command(args).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).await.unwrap();
        drop(stdin);
        let output = tokio::time::timeout(LIMIT, child.wait_with_output()).await;
        let output = output.unwrap_or_else(|_| panic!("kubectl {args} does not end")).unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.success(), text(output.stdout), text(output.stderr))
    }

    async fn ok(&self, args: &str) -> String {
        self.feed(args, "").await
    }

    async fn feed(&self, args: &str, input: &str) -> String {
        let (ok, out, err) = self.run(args, input).await;
        assert!(ok, "{:?} {args}: {out}{err}", self.binary);
        out
    }

    async fn refused(&self, args: &str, input: &str) -> String {
        let (ok, out, err) = self.run(args, input).await;
        assert!(!ok, "{:?} {args} should have failed: {out}", self.binary);
        err
    }

    /// The second number of the release.
    async fn minor(&self) -> u32 {
        let version = self.json("version --client").await;
        version["clientVersion"]["minor"].as_str().unwrap().trim_end_matches('+').parse().unwrap()
    }

    async fn json(&self, args: &str) -> Value {
        serde_json::from_str(&self.ok(&format!("{args} -o json")).await).unwrap()
    }
}

/// Runs a scenario for every binary, each on a server of its own.
async fn with_kubectl(scenario: impl AsyncFn(&TestServer, &Kubectl)) {
    for binary in binaries() {
        let server = TestServer::start().await;
        let kubectl = Kubectl::new(&binary, &server);
        scenario(&server, &kubectl).await;
        server.stop().await;
    }
}

const VM: &str = "
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata:
  name: v
spec:
  runStrategy: Halted
  template:
    metadata:
      labels: {app: v}
    spec:
      domain:
        devices:
          disks:
          - name: a
            disk: {bus: virtio}
          - name: b
            disk: {bus: virtio}
      volumes:
      - name: a
        emptyDisk: {capacity: 1Gi}
      - name: b
        emptyDisk: {capacity: 1Gi}
";

const POD: &str = "
apiVersion: v1
kind: Pod
metadata:
  name: p
  labels: {app: p}
spec:
  containers:
  - name: a
    image: busybox:1
    resources: {requests: {cpu: '1'}}
  - name: b
    image: busybox:1
";

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_created_shown_and_deleted() {
    with_kubectl(async |_, kubectl| {
        assert_eq!(kubectl.feed("create -f -", VM).await, "virtualmachine.kubevirt.io/v created\n");
        assert_eq!(kubectl.feed("create -f -", POD).await, "pod/p created\n");
        let shown = kubectl.ok("get vm").await;
        assert!(shown.starts_with("NAME   AGE   STATUS   READY\nv "), "{shown}");
        let shown = kubectl.ok("get vms,pods").await;
        assert!(shown.contains("virtualmachine.kubevirt.io/v") && shown.contains("pod/p"), "{shown}");
        let wide = kubectl.ok("get pod p -o wide").await;
        assert!(wide.contains("NOMINATED NODE") && wide.contains("0/2") && wide.contains("Pending"), "{wide}");
        let yaml = kubectl.ok("get vm v -o yaml").await;
        assert!(yaml.contains("runStrategy: Halted") && yaml.contains("generation: 1"), "{yaml}");
        let all = kubectl.ok("get all").await;
        assert!(all.contains("pod/p") && all.contains("virtualmachine.kubevirt.io/v"), "{all}");
        assert_eq!(kubectl.ok("get vmi").await, "");
        let described = kubectl.ok("describe vm v").await;
        assert!(described.contains("Run Strategy:  Halted"), "{described}");
        let described = kubectl.ok("describe pod p").await;
        assert!(described.contains("Image:") && described.contains("busybox:1"), "{described}");
        let err = kubectl.refused("get vm nobody", "").await;
        assert_eq!(err, "Error from server (NotFound): virtualmachines.kubevirt.io \"nobody\" not found\n");
        let deleted = kubectl.ok("delete vm v").await;
        assert!(deleted.starts_with("virtualmachine.kubevirt.io \"v\" deleted"), "{deleted}");
        kubectl.ok("delete pod p").await;
        kubectl.refused("get pod p", "").await;
        let err = kubectl.refused("get deployments", "").await;
        assert!(err.contains("the server doesn't have a resource type \"deployments\""), "{err}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_merges_three_ways() {
    with_kubectl(async |_, kubectl| {
        // Our kinds by JSON merge patch.
        assert_eq!(kubectl.feed("apply -f -", VM).await, "virtualmachine.kubevirt.io/v created\n");
        assert_eq!(kubectl.feed("apply -f -", VM).await, "virtualmachine.kubevirt.io/v unchanged\n");
        kubectl.ok("label vm v by-hand=yes").await;
        let changed = VM
            .replace("runStrategy: Halted", "runStrategy: Always")
            .replace("      labels: {app: v}", "      labels: {}");
        assert_eq!(kubectl.feed("apply -f -", &changed).await, "virtualmachine.kubevirt.io/v configured\n");
        let vm = kubectl.json("get vm v").await;
        assert_eq!(vm["spec"]["runStrategy"], "Always");
        assert_eq!(vm["metadata"]["labels"]["by-hand"], "yes", "what others set stays");
        assert!(vm["spec"]["template"]["metadata"]["labels"].get("app").is_none(), "{vm}");
        assert_eq!(vm["metadata"]["generation"], 2);
        // Core kinds by strategic merge patch.
        assert_eq!(kubectl.feed("apply -f -", POD).await, "pod/p created\n");
        assert_eq!(kubectl.feed("apply -f -", POD).await, "pod/p unchanged\n");
        let changed = POD.replacen("busybox:1", "busybox:2", 1);
        assert_eq!(kubectl.feed("apply -f -", &changed).await, "pod/p configured\n");
        let pod = kubectl.json("get pod p").await;
        assert_eq!(pod["spec"]["containers"][0]["image"], "busybox:2");
        assert_eq!(pod["spec"]["containers"][1]["image"], "busybox:1");
        let map = |data: Value| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data}).to_string()
        };
        kubectl.feed("apply -f -", &map(json!({"a": "1", "b": "2"}))).await;
        kubectl.feed("apply -f -", &map(json!({"b": "3"}))).await;
        assert_eq!(kubectl.json("get cm m").await["data"], json!({"b": "3"}));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn patches_labels_and_replacements_work() {
    with_kubectl(async |_, kubectl| {
        kubectl.feed("create -f -", VM).await;
        kubectl.feed("create -f -", POD).await;
        kubectl.ok(r#"patch vm v --type=merge -p {"spec":{"runStrategy":"Always"}}"#).await;
        kubectl.ok(r#"patch vm v --type=json -p [{"op":"remove","path":"/spec/template/metadata/labels/app"}]"#).await;
        assert_eq!(kubectl.json("get vm v").await["spec"]["runStrategy"], "Always");
        let err = kubectl.refused(r#"patch vm v -p {"spec":{"runStrategy":"Always"}}"#, "").await;
        assert!(
            err.contains("not supported") || err.contains("UnsupportedMediaType"),
            "strategic patches are not for our kinds: {err}"
        );
        kubectl.ok(r#"patch pod p -p {"spec":{"containers":[{"name":"a","image":"busybox:3"}]}}"#).await;
        let pod = kubectl.json("get pod p").await;
        assert_eq!(pod["spec"]["containers"].as_array().unwrap().len(), 2);
        assert_eq!(pod["spec"]["containers"][0]["image"], "busybox:3");
        kubectl.ok("label pod p tier=front").await;
        kubectl.ok("annotate vm v note=hello").await;
        assert!(kubectl.ok("get pods -l tier=front").await.contains("p "));
        assert!(
            kubectl.ok("get pods --field-selector=status.phase=Pending --show-labels").await.contains("tier=front")
        );
        kubectl.ok("label pod p tier-").await;
        assert_eq!(kubectl.ok("get pods -l tier=front").await, "");
        let yaml = kubectl.ok("get vm v -o yaml").await;
        kubectl.feed("replace -f -", &yaml.replace("note: hello", "note: again")).await;
        assert_eq!(kubectl.json("get vm v").await["metadata"]["annotations"]["note"], "again");
        kubectl.ok("create configmap c --from-literal=a=b").await;
        kubectl.ok("create secret generic s --from-literal=a=b").await;
        kubectl.ok("create serviceaccount sa").await;
        kubectl.ok("create role r --verb=get,list --resource=pods,virtualmachines.kubevirt.io").await;
        kubectl.ok("create rolebinding rb --role=r --serviceaccount=default:sa --user=ada").await;
        kubectl.ok("create clusterrole cr --verb=get --non-resource-url=/metrics").await;
        kubectl.ok("create service clusterip svc --tcp=80:8080").await;
        kubectl.ok("create quota q --hard=pods=3,memory=1Gi").await;
        kubectl.ok("create priorityclass pc --value=7").await;
        assert_eq!(kubectl.json("get svc svc").await["spec"]["ports"][0]["targetPort"], 8080);
        assert_eq!(kubectl.json("get quota q").await["spec"]["hard"], json!({"pods": "3", "memory": "1Gi"}));
        assert_eq!(kubectl.json("get role r").await["rules"].as_array().unwrap().len(), 2);
        assert_eq!(kubectl.json("get pc pc").await["value"], 7);
        assert_eq!(kubectl.ok("get secret s -o jsonpath={.data.a}").await, "Yg==");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mistake_in_a_manifest_is_told_before_anything_is_stored() {
    with_kubectl(async |_, kubectl| {
        let wrong = VM.replace("  runStrategy: Halted", "  runStrategy: Halted\n  runStrtegy: Always");
        // Older ones check only what they find in the schema, and the one they read is empty.
        if kubectl.minor().await >= 27 {
            let err = kubectl.refused("create -f -", &wrong).await;
            assert!(err.contains("unknown field \"spec.runStrtegy\""), "{err}");
            kubectl.refused("get vm v", "").await;
        }
        let (ok, out, _) = kubectl.run("create --validate=false -f -", &wrong).await;
        assert!(ok, "{out}");
        let refused =
            VM.replace("  name: v", "  name: w").replace("- name: b\n        empty", "- name: c\n        empty");
        let err = kubectl.refused("create -f -", &refused).await;
        assert!(err.contains("The request is invalid: "), "{err}");
        assert!(err.contains("spec.template.spec.domain.devices.disks[1].name: "), "{err}");
        let migration = "apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstanceMigration\nmetadata:\n  name: m\n\
                         spec:\n  vmiName: nobody\n";
        let err = kubectl.refused("create -f -", migration).await;
        let told = r#"admission webhook "migration-create-validator.kubevirt.io" denied the request: "#;
        assert!(err.starts_with("Error from server (BadRequest): ") && err.contains(told), "{err}");
        let mistyped = VM.replace("runStrategy: Halted", "runStrategy: 7");
        let err = kubectl.refused("create -f -", &mistyped).await;
        assert!(err.contains("spec.runStrategy: Invalid value"), "{err}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_and_watching_end_when_it_happens() {
    with_kubectl(async |_, kubectl| {
        kubectl.feed("create -f -", POD).await;
        let mut watch = kubectl.command("get pods -w").spawn().unwrap();
        let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
        assert!(lines.next_line().await.unwrap().unwrap().starts_with("NAME"));
        assert!(lines.next_line().await.unwrap().unwrap().contains("Pending"));
        let condition = kubectl.command("wait pod/p --for=condition=Ready --timeout=50s").spawn().unwrap();
        let token = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        // `kubectl patch --subresource` is younger than some releases this runs with.
        let path = "/api/v1/namespaces/default/pods/p/status";
        let pod = kubectl.json("get pod p").await;
        let mut changed = pod.clone();
        changed["status"] = token["status"].clone();
        kubectl.feed(&format!("replace --raw {path} -f -"), &changed.to_string()).await;
        let line = tokio::time::timeout(LIMIT, lines.next_line()).await.unwrap().unwrap().unwrap();
        assert!(line.contains("Running"), "{line}");
        let output = tokio::time::timeout(LIMIT, condition.wait_with_output()).await.unwrap().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "pod/p condition met\n");

        let gone = kubectl.command("wait pod/p --for=delete --timeout=50s").spawn().unwrap();
        kubectl.ok("delete pod p --wait=false").await;
        let output = tokio::time::timeout(LIMIT, gone.wait_with_output()).await.unwrap().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        watch.kill().await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn namespaces_come_and_go() {
    with_kubectl(async |_, kubectl| {
        kubectl.ok("create namespace team").await;
        kubectl.feed("create -n team -f -", POD).await;
        assert!(kubectl.ok("get pods -A").await.contains("team"));
        assert!(kubectl.ok("get ns team").await.contains("Active"));
        kubectl.ok("delete namespace team").await; // waits until it is gone
        kubectl.refused("get ns team", "").await;
        let err = kubectl.refused("create -n team -f -", POD).await;
        assert!(err.contains("namespaces \"team\" not found"), "{err}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rest_of_everyday_use() {
    with_kubectl(async |_, kubectl| {
        let resources = kubectl.ok("api-resources").await;
        assert!(resources.contains("virtualmachineinstances") && resources.contains("vmi,vmis"), "{resources}");
        assert!(kubectl.ok("api-versions").await.contains("kubevirt.io/v1\n"));
        let version = kubectl.json("version").await;
        assert_eq!(version["serverVersion"]["gitVersion"], "v1.34.0+ferrovirt");
        assert_eq!(kubectl.ok("auth can-i create pods").await, "yes\n");
        kubectl.ok("cluster-info").await;
        assert_eq!(kubectl.ok("get --raw /healthz").await, "ok");
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "capacity": {"cpu": "4"}, "allocatable": {"cpu": "4"}},
        });
        kubectl.feed("create -f -", &node.to_string()).await;
        assert!(kubectl.ok("get nodes").await.contains("Ready"));
        assert!(kubectl.ok("describe node n1").await.contains("Non-terminated Pods"));
        kubectl.ok("cordon n1").await;
        assert!(kubectl.ok("get nodes").await.contains("Ready,SchedulingDisabled"));
        kubectl.feed("create -f -", POD).await;
        let uid = kubectl.json("get pod p").await["metadata"]["uid"].clone();
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "type": "Warning", "reason": "Sad",
            "message": "it rains", "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default", "uid": uid},
            "lastTimestamp": jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        });
        kubectl.feed("create -f -", &event.to_string()).await;
        let events = kubectl.ok("get events").await;
        assert!(events.contains("Warning") && events.contains("pod/p") && events.contains("it rains"), "{events}");
        assert!(kubectl.ok("describe pod p").await.contains("it rains"));
        for kind in ["cm", "secrets", "svc", "ep", "sa", "pvc", "pv", "quota", "limits", "leases", "roles", "clusterroles",
                     "rolebindings", "clusterrolebindings", "controllerrevisions", "pdb", "pc", "sc", "vm", "vmi", "vmim", "kv", "ns"] {
            kubectl.ok(&format!("get {kind} -A -o wide")).await;
        }
        let err = kubectl.refused("apply --server-side -f -", POD).await;
        assert!(err.contains("UnsupportedMediaType") || err.contains("media type"), "{err}");
        let err = kubectl.refused("get pods --as=eve", "").await;
        assert!(err.contains("impersonation"), "{err}");
        let many: Vec<Value> = (0..30)
            .map(|index| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{index}")}}))
            .collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": many});
        kubectl.feed("create -f -", &list.to_string()).await;
        let shown = kubectl.ok("get cm --chunk-size=7 --no-headers").await;
        assert_eq!(shown.lines().count(), 30);
        kubectl.ok("delete cm --all").await;
        eventually("all to be gone", || async { kubectl.ok("get cm").await.is_empty().then_some(()) }).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn our_kinds_are_listed_explained_and_tried_out() {
    with_kubectl(async |_, kubectl| {
        let plurals: Vec<&str> = RESOURCES.iter().map(|resource| resource.plural).collect();
        kubectl.ok(&format!("get {} -A -o wide", plurals.join(","))).await;
        let listed = kubectl.ok("get crds").await;
        assert!(RESOURCES.iter().all(|resource| listed.contains(&resource.full_name())), "{listed}");
        let names = RESOURCES.iter().map(|resource| format!("crd/{}", resource.full_name())).collect::<Vec<_>>();
        kubectl.ok(&format!("wait --for=condition=Established {}", names.join(" "))).await;
        // What is only tried out is not stored, whoever tries it.
        for trial in ["client", "server"] {
            let tried = kubectl.feed(&format!("apply --dry-run={trial} -f -"), VM).await;
            assert!(tried.starts_with("virtualmachine.kubevirt.io/v created ("), "{tried}");
            kubectl.feed(&format!("apply --dry-run={trial} -f -"), POD).await;
        }
        kubectl.refused("get vm v", "").await;
        let (_, _, warned) = kubectl.run("get virtualmachines.v1alpha3.kubevirt.io", "").await;
        assert!(warned.contains("Warning: kubevirt.io/v1alpha3 is now deprecated"), "{warned}");
        if kubectl.minor().await < 27 {
            return; // explains by another document
        }
        let disks = kubectl.ok("explain vm.spec.template.spec.domain.devices.disks").await;
        assert!(disks.contains("FIELD: disks <[]Object>") && disks.contains("bootOrder\t<integer>"), "{disks}");
        let named = kubectl.ok("explain vmpool.metadata.name --api-version=pool.kubevirt.io/v1alpha1").await;
        assert!(named.contains("VERSION:    v1alpha1") && named.contains("unique among its kind"), "{named}");
        let err = kubectl.refused("explain vm.spec.nothing", "").await;
        assert!(err.contains("field \"nothing\" does not exist"), "{err}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_cordoned_drained_and_uncordoned() {
    with_kubectl(async |_, kubectl| {
        kubectl.feed("create -f -", r#"{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}"#).await;
        let placed = POD.replace("spec:", "spec:\n  nodeName: n1\n  terminationGracePeriodSeconds: 0");
        kubectl.feed("create -f -", &placed).await;
        kubectl.ok("cordon n1").await;
        assert_eq!(kubectl.json("get node n1").await["spec"]["unschedulable"], true);
        let told = kubectl.ok("drain n1 --force --timeout=30s").await;
        assert!(told.contains("evicting pod default/p") || told.contains("pod/p evicted"), "{told}");
        assert_eq!(kubectl.ok("get pods").await, "");
        kubectl.ok("uncordon n1").await;
        assert_eq!(kubectl.json("get node n1").await["spec"]["unschedulable"], Value::Null);
    })
    .await;
}
