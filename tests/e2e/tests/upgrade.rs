//! An installation on Kubernetes that is made, updated and removed by the commands of the documents, and whose
//! certificates are replaced, while guests run and somebody asks the API all the time.
//!
//! ```text
//! docs/install.md ─► ten guests ─► docs/upgrade.md, Updating ─► the same, by eviction ─► certificates
//!                 ─► docs/upgrade.md, Removing
//! docs/install.md ─► docs/upgrade.md, Removing with kubectl
//! docs/install.md ─► a guest, and all of our Pods die ─► docs/upgrade.md, Removing when every Pod is dead
//! ```

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use api::v1::VirtualMachine;
use drive::{Access, Guest, LIMIT, poll};
use e2e::cluster::Cluster;
use e2e::kubernetes::documents::Document;
use e2e::kubernetes::versions::Version;
use e2e::kubernetes::{Kubernetes, images, versions};
use e2e::manifest::Manifest;
use e2e::outages::{Lookout, Question, Record};
use e2e::{processes, traces};
use futures::future::try_join_all;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use tokio::sync::MappedMutexGuard;

use crate::guests::the_only_qemu;
use crate::kubernetes;
use crate::migrations::{alone, begin, migrations, movable, other, phase, set_cordon, wait_for};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        kubernetes("upgrade_moves_ten_guests_to_new_launchers_and_restarts_none", upgraded),
        kubernetes("upgrade_evicts_guests_that_are_not_moved_in_batches", evicted),
        kubernetes("certificates_are_replaced_under_an_open_console_and_a_migration", rotated),
        kubernetes("removal_document_works_as_it_stands", removed),
        kubernetes("removal_of_the_kubevirt_object_is_refused_while_there_are_vms_and_leaves_virt_operator", deleted),
        kubernetes("removal_with_every_pod_dead_ends_a_running_guest_and_leaves_nothing", abandoned),
    ]
}

const INSTALL: &str = "docs/install.md";
/// Commands above its first heading, and those that `tests/operator` runs.
const INSTALLING: [&str; 2] = ["", "Certificates, without virt-operator"];
const UPGRADE: &str = "docs/upgrade.md";
/// The headings in it that have commands.
const HEADINGS: [&str; 4] = ["Updating", "Removing", WITH_KUBECTL, WITHOUT_PODS];
const WITH_KUBECTL: &str = "Removing with kubectl";
const WITHOUT_PODS: &str = "Removing when every Pod is dead";
/// What the documents say in place of a registry.
const EXAMPLE: &str = "registry.example/ferrovirt";
/// The version in the document.
const EXAMPLE_VERSION: &str = "v0.2.0";

/// How long the API may leave a kind of request unanswered.
const OUTAGE: Duration = Duration::from_secs(5);
/// Migrations at a time: fewer than the nodes would start, which is two each.
const AT_ONCE: usize = 3;
/// Evictions at a time. Guests that can be moved are not evicted, so it is not a limit of theirs.
const BATCH: usize = 1;
const GUESTS: usize = 10;
/// More would only boot each other out of time.
const BOOTS: usize = 4;
/// The least that the test guest boots with.
const TINY: &str = "96Mi";
/// All guests move, one after another if need be, under emulation.
const MOVES: Duration = Duration::from_secs(900);

/// Settings of the installation. Nodes have no `/dev/kvm`. A migration that lasts as long as the test wants must not be
/// given up.
fn settings() -> Value {
    json!({"spec": {
        "configuration": {
            "developerConfiguration": {"useEmulation": true},
            "migrations": {
                "parallelMigrationsPerCluster": AT_ONCE, "progressTimeout": 3600, "completionTimeoutPerGiB": 36000,
            },
        },
        "workloadUpdateStrategy": {
            "workloadUpdateMethods": ["LiveMigrate"], "batchEvictionSize": BATCH, "batchEvictionInterval": "10s",
        },
    }})
}

/// The cluster of these scenarios, with an installation of the first version and no guest.
async fn cluster() -> Result<MappedMutexGuard<'static, Cluster>> {
    let cluster = crate::cluster_by(start).await?;
    for node in ["n1", "n2"] {
        set_cordon(&cluster, node, false).await?;
    }
    let vms: Api<VirtualMachine> = Api::default_namespaced(cluster.client().await?);
    for vm in vms.list(&ListParams::default()).await.context("cannot list VMs")?.items {
        Guest::attach(&cluster, &vm.name_any()).await?.delete().await?;
    }
    Ok(cluster)
}

async fn start() -> Result<Cluster> {
    let program = e2e::program()?;
    let work = move || {
        let Some(kubernetes) = Kubernetes::bare(&program)? else { bail!("there is no cluster to run on") };
        let installed = versions::before(&kubernetes).and_then(|version| install(&kubernetes, &version));
        installed.with_context(|| kubernetes.report())?;
        Ok(Cluster::Kubernetes(Box::new(kubernetes)))
    };
    tokio::task::spawn_blocking(work).await.context("the start of the cluster panicked")?
}

fn install(kubernetes: &Kubernetes, version: &Version) -> Result<()> {
    let document = Document::open(INSTALL, kubernetes)?.with_program("ferrovirt", version.program())?;
    document.knows(&INSTALLING)?;
    document.with(EXAMPLE, &flags(version.tag))?.run_under(kubernetes, INSTALLING[0])?;
    change(kubernetes, &settings())
}

/// What follows `--image-prefix`.
fn flags(tag: &str) -> String {
    format!("{} --image-tag {tag}", images::PREFIX)
}

fn change(kubernetes: &Kubernetes, patch: &Value) -> Result<()> {
    let patch = patch.to_string();
    let words = ["-n", "kubevirt", "patch", "kubevirt", "kubevirt", "--type=merge", "-p", &patch];
    kubernetes.cluster().kubectl(&words).map(drop)
}

fn tiny(name: &str) -> Manifest {
    Manifest::vm(name, "Always").memory(TINY)
}

/// What tells a guest from the same one after a restart.
#[derive(Debug, PartialEq, Eq)]
struct Life {
    instance: String,
    boot: String,
}

async fn life(guest: &mut Guest) -> Result<Life> {
    let instance = guest.instance().await?.and_then(|instance| instance.metadata.uid).context("it has no instance")?;
    Ok(Life { instance, boot: guest.run_shell_command("cat /proc/sys/kernel/random/boot_id").await? })
}

/// Starts half of the guests on each node.
async fn spread(cluster: &Access) -> Result<Vec<Guest>> {
    let names: Vec<String> = (1..=GUESTS).map(|number| format!("u{number}")).collect();
    let mut guests = Vec::new();
    for (names, elsewhere) in names.chunks(GUESTS / 2).zip(["n2", "n1"]) {
        set_cordon(cluster, elsewhere, true).await?;
        let manifests: Vec<Manifest> = names.iter().map(|name| tiny(name)).collect();
        let boots = manifests.iter().map(|manifest| movable(cluster, manifest));
        let started: Result<Vec<Guest>> = futures::stream::iter(boots).buffered(BOOTS).try_collect().await;
        set_cordon(cluster, elsewhere, false).await?;
        guests.extend(started?);
    }
    Ok(guests)
}

/// One question for each way through the API: to the API server alone, past a webhook, and past the aggregated API.
fn questions(guest: &str) -> Vec<Question> {
    let all = "/apis/kubevirt.io/v1/namespaces/default";
    vec![
        Question::get("an instance", format!("{all}/virtualmachineinstances/{guest}")),
        Question::post(
            "a dry run past the webhooks",
            format!("{all}/virtualmachines?dryRun=All"),
            tiny("never-there").json(),
        ),
        Question::get("a subresource", "/apis/subresources.kubevirt.io/v1/version"),
    ]
}

fn check(records: &[Record]) -> Result<()> {
    for record in records {
        println!("{record}");
    }
    match records.iter().find(|record| record.longest > OUTAGE) {
        Some(long) => bail!("the API left a kind of request unanswered for too long: {long}"),
        None => Ok(()),
    }
}

/// Looks how many migrations are on their way at a time, until it is dropped.
struct Lanes {
    most: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
}

impl Lanes {
    async fn watch(cluster: &Access) -> Result<Self> {
        let api = migrations(cluster).await?;
        let watch = Self { most: Arc::default(), stop: Arc::default() };
        let (most, stop) = (watch.most.clone(), watch.stop.clone());
        tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                // What cannot be listed now is listed a moment later.
                if let Ok(all) = api.list(&ListParams::default()).await {
                    let waiting_or_over = ["", "Pending", "Succeeded", "Failed"];
                    let begun = all.iter().filter(|one| !waiting_or_over.contains(&phase(one).as_str())).count();
                    most.fetch_max(begun, Ordering::Relaxed);
                }
                tokio::time::sleep(Duration::from_millis(250)).await;
            }
        });
        Ok(watch)
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Launchers of all guests.
async fn launcher_pods(cluster: &Access) -> Result<Vec<Pod>> {
    let pods: Api<Pod> = Api::default_namespaced(cluster.client().await?);
    let launchers = ListParams::default().labels("kubevirt.io=virt-launcher");
    Ok(pods.list(&launchers).await.context("cannot list Pods")?.items)
}

fn image(pod: &Pod) -> String {
    let compute = pod.spec.iter().flat_map(|spec| &spec.containers).find(|container| container.name == "compute");
    compute.and_then(|compute| compute.image.clone()).unwrap_or_default()
}

/// The images of launchers that run, by the name of their Pod.
async fn launchers(cluster: &Access) -> Result<BTreeMap<String, String>> {
    let all = launcher_pods(cluster).await?;
    Ok(all.iter().filter(|pod| !traces::has_ended(pod)).map(|pod| (pod.name_any(), image(pod))).collect())
}

async fn upgraded() -> Result<()> {
    let cluster = cluster().await?;
    let kubernetes = cluster.kubernetes()?;
    let done = upgrade(&cluster, kubernetes).await;
    done.map_err(|err| err.context(kubernetes.report()))
}

async fn upgrade(cluster: &Access, kubernetes: &Kubernetes) -> Result<()> {
    let mut guests = spread(cluster).await?;
    let mut lives = Vec::new();
    for guest in &mut guests {
        lives.push(life(guest).await?);
    }
    let version = versions::after(kubernetes)?;
    let old = launchers(cluster).await?;
    ensure!(old.len() == GUESTS && old.values().all(|image| *image != version.launcher()), "they run in {old:?}");

    let client = cluster.client().await?;
    let (lookout, lanes) = (Lookout::start(&client, questions("u1")), Lanes::watch(cluster).await?);
    let begun = Instant::now();
    let document = Document::open(UPGRADE, kubernetes)?.with_program("ferrovirt", version.program())?;
    document.with(EXAMPLE, images::PREFIX)?.with(EXAMPLE_VERSION, version.tag)?.run_under(kubernetes, "Updating")?;
    println!("the programs were updated in {:.1} s", begun.elapsed().as_secs_f64());
    poll("all guests in new launchers", MOVES, || async {
        let images = launchers(cluster).await.map_err(|err| format!("{err:#}"))?;
        let new = images.values().filter(|image| **image == version.launcher()).count();
        if new == images.len() && new == GUESTS { Ok(()) } else { Err(format!("{new} of {images:?} are new")) }
    })
    .await?;
    println!("all launchers are new after {:.1} s", begun.elapsed().as_secs_f64());
    let answers = check(&lookout.finish().await?);

    let most = lanes.most.load(Ordering::Relaxed);
    ensure!(
        most <= AT_ONCE,
        "{most} migrations were on their way at a time, and parallelMigrationsPerCluster is {AT_ONCE}"
    );
    ensure!(most > BATCH, "no more migrations were on their way at a time than batchEvictionSize, {BATCH}");
    let made = migrations(cluster).await?.list(&ListParams::default()).await.context("cannot list migrations")?;
    let failed = made.iter().filter(|one| phase(one) == "Failed").count();
    println!("at most {most} migrations at a time; of {} in all, {failed} failed", made.items.len());
    for (guest, before) in guests.iter_mut().zip(lives) {
        guest.reattach(cluster)?;
        let after = life(guest).await?;
        ensure!(after == before, "{} was {before:?} and is {after:?}: it was started again", guest.name);
        alone(guest).await?;
    }
    answers?;
    try_join_all(guests.iter().map(Guest::delete)).await.map(drop)
}

/// Of guests that are evicted.
const EVICTED: [&str; 3] = ["e1", "e2", "e3"];
const EVICTED_AT_ONCE: usize = 2;
const BETWEEN: i64 = 20;

async fn evicted() -> Result<()> {
    let cluster = cluster().await?;
    let kubernetes = cluster.kubernetes()?;
    let done = evict(&cluster, kubernetes).await;
    let back = change(kubernetes, &settings());
    done.and(back).map_err(|err| err.context(kubernetes.report()))
}

async fn evict(cluster: &Access, kubernetes: &Kubernetes) -> Result<()> {
    let strategy = json!({
        "workloadUpdateMethods": ["Evict"],
        "batchEvictionSize": EVICTED_AT_ONCE, "batchEvictionInterval": format!("{BETWEEN}s"),
    });
    change(kubernetes, &json!({"spec": {"workloadUpdateStrategy": strategy}}))?;
    let manifests = EVICTED.map(tiny);
    let guests = try_join_all(manifests.iter().map(|manifest| movable(cluster, manifest))).await?;
    let version = versions::last(kubernetes)?;
    let document = Document::open(UPGRADE, kubernetes)?.with_program("ferrovirt", version.program())?;
    document.with(EXAMPLE, images::PREFIX)?.with(EXAMPLE_VERSION, version.tag)?.run_under(kubernetes, "Updating")?;
    // When each old launcher was asked to end, in seconds.
    let asked = RefCell::new(BTreeMap::new());
    poll("all guests in new launchers", MOVES, || async {
        let pods = launcher_pods(cluster).await.map_err(|err| format!("{err:#}"))?;
        let (new, old): (Vec<&Pod>, Vec<&Pod>) = pods.iter().partition(|pod| image(pod) == version.launcher());
        for pod in old {
            if let Some(at) = asked_to_end(pod) {
                asked.borrow_mut().entry(pod.uid()).or_insert(at);
            }
        }
        let running = new.iter().filter(|pod| !traces::has_ended(pod)).count();
        if running == EVICTED.len() { Ok(()) } else { Err(format!("{running} of {} Pods are new", pods.len())) }
    })
    .await?;
    let mut times: Vec<i64> = asked.into_inner().into_values().collect();
    times.sort_unstable();
    println!("launchers were asked to end at {times:?}");
    ensure!(times.len() == EVICTED.len(), "{} launchers were seen to be evicted", times.len());
    // Times of the API are whole seconds.
    let apart = times[EVICTED_AT_ONCE] - times[0];
    ensure!(apart >= BETWEEN - 1, "more than {EVICTED_AT_ONCE} were evicted within {apart} s");
    let batch = times[EVICTED_AT_ONCE - 1] - times[0];
    ensure!(batch < BETWEEN / 2, "those of one batch were evicted {batch} s after one another");
    for guest in &guests {
        guest.wait_for_phase("Running", LIMIT).await?;
        alone(guest).await?;
    }
    let made = migrations(cluster).await?.list(&ListParams::default()).await.context("cannot list migrations")?;
    let moved =
        made.iter().filter(|one| one.spec.vmi_name.as_deref().is_some_and(|name| EVICTED.contains(&name))).count();
    ensure!(moved == 0, "{moved} migrations were created, and LiveMigrate is no method");
    try_join_all(guests.iter().map(Guest::delete)).await.map(drop)
}

/// When somebody deleted or evicted a Pod: its deletion timestamp is when its time is up.
fn asked_to_end(pod: &Pod) -> Option<i64> {
    let up = pod.metadata.deletion_timestamp.as_ref()?.0.as_second();
    Some(up - pod.metadata.deletion_grace_period_seconds.unwrap_or_default())
}

/// Lifetimes of minutes: an old CA is trusted for four, and a new one signs after two.
fn short_lives() -> Value {
    json!({"ca": {"duration": "8m", "renewBefore": "4m"}, "server": {"duration": "8m", "renewBefore": "2m"}})
}

/// Until everything that the first CA signed is replaced, and nobody trusts it any more.
const ROTATION: Duration = Duration::from_secs(480);

/// Secrets with certificates that the CA signs.
const SIGNED: [&str; 5] = [
    "kubevirt-virt-api-certs",
    "kubevirt-controller-certs",
    "kubevirt-operator-certs",
    "kubevirt-virt-handler-certs",
    "kubevirt-virt-handler-server-certs",
];

/// The certificates of an installation.
#[derive(Clone, Debug)]
struct Certificates {
    ca: String,
    bundle: String,
    /// By the name of their Secret, or of their node.
    others: BTreeMap<String, String>,
}

impl Certificates {
    fn read(kubernetes: &Kubernetes) -> Result<Self> {
        let cluster = kubernetes.cluster();
        let secret = |name: &str| {
            let template = r#"--template={{index .data "tls.crt" | base64decode}}"#;
            cluster.kubectl(&["-n", "kubevirt", "get", "secret", name, template])
        };
        let template = r#"--template={{index .data "ca-bundle"}}"#;
        let bundle = cluster.kubectl(&["-n", "kubevirt", "get", "configmap", "kubevirt-ca", template])?;
        let mut others = BTreeMap::new();
        for name in SIGNED {
            others.insert(name.to_owned(), secret(name)?);
        }
        for node in [1, 2] {
            let mut cat = cluster.in_node(node, "cat")?;
            let output = cat.arg("/var/run/kubevirt-private/certificate/tls.crt").output().context("cannot run cat")?;
            let complaint = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "the certificate of node {node}: {}", complaint.trim());
            others.insert(format!("n{node}"), String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Ok(Self { ca: secret("kubevirt-ca")?, bundle, others })
    }

    /// What of it is still as it was; nothing once all is new and the old CA is not trusted any more.
    fn kept(&self, before: &Self) -> Vec<&str> {
        let same = self.others.iter().filter(|(name, pem)| before.others.get(*name) == Some(pem));
        let trusted = self.bundle.contains(before.ca.trim());
        same.map(|(name, _)| name.as_str()).chain(trusted.then_some("the old CA in the bundle")).collect()
    }
}

async fn rotated() -> Result<()> {
    let cluster = cluster().await?;
    let kubernetes = cluster.kubernetes()?;
    let done = rotate(&cluster, kubernetes).await;
    let back = change(kubernetes, &json!({"spec": {"certificateRotateStrategy": null}}));
    done.and(back).map_err(|err| err.context(kubernetes.report()))
}

async fn rotate(cluster: &Cluster, kubernetes: &Kubernetes) -> Result<()> {
    // It changes its memory more quickly than a narrow link can follow, and more slowly than others can.
    let wanders =
        movable(cluster, &Manifest::vm("wanders", "Always").kernel_args("dirty=48 rate=16 spin=2000")).await?;
    let (source, target) = (wanders.node().await?, other(&wanders.node().await?));
    set_cordon(cluster, target, true).await?;
    let talks = movable(cluster, &tiny("talks")).await;
    set_cordon(cluster, target, false).await?;
    let mut talks = talks?;
    ensure!(talks.run_shell_command("echo before").await? == "before", "the console does not answer");

    let narrow = cluster.narrow(target)?;
    begin(cluster, &wanders, "in-flight", json!({})).await?;
    wait_for(cluster, "in-flight", &["Running"]).await?;
    let before = Certificates::read(kubernetes)?;
    let mut questions = questions("talks");
    // virt-api has virt-handler look for a guest agent, which is not there.
    let agent = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/talks/guestosinfo";
    let to_handler = Question::get("a question to virt-handler", agent);
    println!("virt-handler's answer before: {:?}", to_handler.ask(&cluster.client().await?).await);
    questions.push(to_handler.or_refused_with(409));
    let lookout = Lookout::start(&cluster.client().await?, questions);
    let begun = Instant::now();
    change(kubernetes, &json!({"spec": {"certificateRotateStrategy": {"selfSigned": short_lives()}}}))?;
    poll("new certificates", ROTATION, || async {
        let now = Certificates::read(kubernetes).map_err(|err| format!("{err:#}"))?;
        let kept = now.kept(&before);
        if kept.is_empty() { Ok(()) } else { Err(format!("still as before: {}", kept.join(", "))) }
    })
    .await?;
    println!("all certificates are new after {:.1} s", begun.elapsed().as_secs_f64());

    wait_for(cluster, "in-flight", &["Running"]).await.context("the migration did not last until now")?;
    drop(narrow);
    wait_for(cluster, "in-flight", &["Succeeded"]).await?;
    ensure!(wanders.node().await? != source, "the guest is still on {source}");
    alone(&wanders).await?;
    let answer = talks.run_shell_command("echo after").await.context("the console that was open all the time")?;
    ensure!(answer == "after", "the console that was open all the time answers `{answer}`");
    for guest in ["talks", "wanders"] {
        let mut again = Guest::attach(cluster, guest).await?;
        let answer = again.run_shell_command("echo new").await.with_context(|| format!("a new console of {guest}"))?;
        ensure!(answer == "new", "a new console of {guest} answers `{answer}`");
    }
    check(&lookout.finish().await?)?;
    talks.delete().await?;
    wanders.delete().await
}

async fn removed() -> Result<()> {
    let cluster = cluster().await?;
    let kubernetes = cluster.kubernetes()?;
    let remove = || {
        let document = Document::open(UPGRADE, kubernetes)?;
        document.knows(&HEADINGS)?;
        document.run_under(kubernetes, "Removing")
    };
    remove().map_err(|err| err.context(kubernetes.report()))?;
    poll("the end of the namespace", LIMIT, || async { nothing_installed(kubernetes) }).await
}

/// There is neither a namespace nor a definition of ours.
fn nothing_installed(kubernetes: &Kubernetes) -> Result<(), String> {
    let found = kubernetes.cluster().kubectl(&["get", "namespace,crd", "-o", "name"]);
    let left = found.map_err(|err| format!("{err:#}"))?;
    match left.lines().find(|name| name.contains("kubevirt")) {
        None => Ok(()),
        Some(name) => Err(format!("{name} is there")),
    }
}

/// The scenario before this one has removed the installation; the one after this takes the one that it makes.
async fn deleted() -> Result<()> {
    let cluster = crate::cluster_by(start).await?;
    let kubernetes = cluster.kubernetes()?;
    let done = delete_kubevirt(&cluster, kubernetes).await;
    done.map_err(|err| err.context(kubernetes.report()))
}

async fn delete_kubevirt(cluster: &Access, kubernetes: &Kubernetes) -> Result<()> {
    let version = versions::after(kubernetes)?;
    if nothing_installed(kubernetes).is_ok() {
        install(kubernetes, &version)?;
    }
    let halted = Guest::spawn(cluster, Manifest::vm("halted", "Halted").json()).await?;
    let document = Document::open(UPGRADE, kubernetes)?;
    let refused = document.run_under(kubernetes, WITH_KUBECTL).err().context("an existing VM protects nothing")?;
    ensure!(format!("{refused:#}").contains("Rejecting the uninstall request"), "{refused:#}");
    halted.delete().await?;
    document.run_under(kubernetes, WITH_KUBECTL)?;
    let kubectl = |words: &[&str]| kubernetes.cluster().kubectl(words);
    let left = kubectl(&["-n", "kubevirt", "get", "deployments,daemonsets", "-o", "name"])?;
    ensure!(left.trim() == "deployment.apps/virt-operator", "there is {left}");
    let definitions = kubectl(&["get", "crd", "-o", "name"])?;
    let ours: Vec<&str> = definitions.lines().filter(|name| name.ends_with("kubevirt.io")).collect();
    ensure!(ours == ["customresourcedefinition.apiextensions.k8s.io/kubevirts.kubevirt.io"], "there are {ours:?}");
    install(kubernetes, &version)
}

/// The time that a guest has to shut down in a launcher that is deleted, and to spare.
const SHUT_DOWN: Duration = Duration::from_secs(300);
const FORSAKEN: &str = "forsaken";

/// The scenario before this one has left an installation.
async fn abandoned() -> Result<()> {
    let cluster = crate::cluster_by(start).await?;
    let kubernetes = cluster.kubernetes()?;
    let done = abandon(&cluster, kubernetes).await;
    done.map_err(|err| err.context(kubernetes.report()))
}

async fn abandon(cluster: &Access, kubernetes: &Kubernetes) -> Result<()> {
    if nothing_installed(kubernetes).is_ok() {
        install(kubernetes, &versions::after(kubernetes)?)?;
    }
    let guest = Guest::spawn(cluster, tiny(FORSAKEN).json()).await?;
    guest.wait_to_boot().await?;
    let qemu = the_only_qemu(FORSAKEN)?;
    // Its console is a process of its own, which has nobody to talk to soon.
    drop(guest);
    end_all_pods(kubernetes).await?;
    ensure!(qemu.alive(), "the guest ended with our Pods");

    let refused = kubernetes.command(&["uninstall"]).output().context("cannot run uninstall")?;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    let is_protected = said.contains("VMs still exist") && said.contains(FORSAKEN);
    ensure!(!refused.status.success() && is_protected, "uninstall says {said}");
    ensure!(qemu.alive(), "a removal that was refused has ended the guest");
    ensure!(nothing_installed(kubernetes).is_err(), "a removal that was refused has removed the system");

    Document::open(UPGRADE, kubernetes)?.run_under(kubernetes, WITHOUT_PODS)?;
    poll("an empty cluster", SHUT_DOWN, || async {
        nothing_installed(kubernetes)?;
        // Launchers, too.
        let pods = ["get", "pods", "-A", "-l", "kubevirt.io", "-o", "name"];
        let pods = kubernetes.cluster().kubectl(&pods).map_err(|err| format!("{err:#}"))?;
        let nodes = kubernetes.cluster().kubectl(&["get", "nodes", "-o", "jsonpath={.items[*].metadata.labels}"]);
        let labels = nodes.map_err(|err| format!("{err:#}"))?;
        let qemus = processes::qemus_of(FORSAKEN).len();
        match (pods.trim(), qemus, labels.contains("kubevirt.io/")) {
            ("", 0, false) => Ok(()),
            (pods, qemus, _) => Err(format!("Pods: {pods:?}; QEMUs of the guest: {qemus}; labels of nodes: {labels}")),
        }
    })
    .await
}

/// Ends every Pod of the installation for good: virt-operator first, which would bring the others back.
async fn end_all_pods(kubernetes: &Kubernetes) -> Result<()> {
    let cluster = kubernetes.cluster();
    let scale = ["-n", "kubevirt", "scale", "--replicas=0"];
    cluster.kubectl(&[&scale[..], &["deployment/virt-operator"]].concat())?;
    no_pods(kubernetes, "kubevirt.io=virt-operator").await?;
    cluster.kubectl(&[&scale[..], &["deployment/virt-api", "deployment/virt-controller"]].concat())?;
    let nowhere =
        json!({"spec": {"template": {"spec": {"nodeSelector": {"example.com/nowhere": "true"}}}}}).to_string();
    cluster.kubectl(&["-n", "kubevirt", "patch", "daemonset/virt-handler", "--type=merge", "-p", &nowhere])?;
    no_pods(kubernetes, "kubevirt.io").await
}

/// Waits until no Pod of the installation has these labels.
async fn no_pods(kubernetes: &Kubernetes, labels: &str) -> Result<()> {
    poll(&format!("the end of all Pods with {labels}"), LIMIT, || async {
        let pods = kubernetes.cluster().kubectl(&["-n", "kubevirt", "get", "pods", "-l", labels, "-o", "name"]);
        match pods.map_err(|err| format!("{err:#}"))?.trim() {
            "" => Ok(()),
            left => Err(left.to_owned()),
        }
    })
    .await
}
