//! `drain`: drains a node by evicting its Pods; guests that can be live-migrated are.

mod overview;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use api::config::ClusterConfig;
use api::v1::{KubeVirt, VirtualMachineInstance};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, EvictParams, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use machinery::meta::controller_of;
use machinery::pod::has_ended;
use plan::eviction::{Subject, Verdict, World, judge, subject};
use serde_json::json;
use tokio::time::Instant;
use virtctl::connect::{ConnectArgs, Session};
use virtctl::migration::{self, Followed};
use waits::Wait;
use waits::migration::{Standing, standing};

use self::overview::{Left, State, line};
use super::errors::server_error;
use terminal::Progress;

/// Polling interval of the node, and retry interval of evictions.
const LOOK: Duration = Duration::from_secs(1);

/// Cordon a node and live-migrate or evict its VMs
///
/// Cordons the node and evicts its Pods, as `kubectl drain` does, and ends when none is left. Shows what is left, how long
/// it will take, and what blocks it. `ferrovirt uncordon` marks the node as schedulable and cancels evacuations that have
/// not started.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    connect: ConnectArgs,
    /// Name of the node
    node: String,
    /// Also shut down VMs whose eviction strategy does not live-migrate them
    #[arg(long)]
    shut_down: bool,
    /// Also delete Pods that no controller would recreate
    #[arg(long)]
    force: bool,
    /// Seconds to wait before giving up; 0 waits forever
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    timeout: u64,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let session = args.connect.connect().await?;
    let drain = Drain { session, node: args.node.clone() };
    let config = drain.config().await?;
    drain.check(&args, &config).await?;
    let mut progress = Progress::default();
    cordon(&drain.session, &args.node, true).await?;
    progress.done(format!("node {} cordoned", args.node));
    let started = Instant::now();
    let mut seen = BTreeSet::new();
    loop {
        let left = drain.round(&mut seen).await?;
        if left.is_empty() {
            break;
        }
        progress.waiting(line(seen.len(), &left, started.elapsed()));
        if args.timeout > 0 && started.elapsed() > Duration::from_secs(args.timeout) {
            progress.done(line(seen.len(), &left, started.elapsed()));
            let names: Vec<&str> = left.iter().map(|one| one.name.as_str()).collect();
            bail!("node {} is not drained after {} s; remaining: {}", args.node, args.timeout, names.join(", "));
        }
        tokio::time::sleep(LOOK).await;
    }
    progress.done(format!("node {} drained: {} Pods moved or evicted", args.node, seen.len()));
    Ok(ExitCode::SUCCESS)
}

/// Sets whether the node is schedulable.
pub(super) async fn cordon(session: &Session, node: &str, cordoned: bool) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(session.client.clone());
    let value = if cordoned { json!(true) } else { json!(null) };
    let patch = Patch::Merge(json!({"spec": {"unschedulable": value}}));
    let written = nodes.patch(node, &PatchParams::default(), &patch).await;
    written.map_err(|error| server_error(error, &session.server)).with_context(|| format!("changing node {node}"))?;
    Ok(())
}

/// The same session with another namespace.
pub(super) fn in_namespace(session: &Session, namespace: &str) -> Session {
    Session { namespace: namespace.to_owned(), ..session.clone() }
}

struct Drain {
    session: Session,
    node: String,
}

impl Drain {
    fn client(&self) -> Client {
        self.session.client.clone()
    }

    fn failed(&self, error: kube::Error) -> anyhow::Error {
        server_error(error, &self.session.server)
    }

    async fn config(&self) -> anyhow::Result<ClusterConfig> {
        let kubevirts: Api<KubeVirt> = Api::all(self.client());
        let found = kubevirts.list(&ListParams::default()).await.map_err(|error| self.failed(error))?;
        ClusterConfig::default().effective(found.items, None).context("the KubeVirt object's configuration")
    }

    /// The Pods on the node, except those that belong to it.
    async fn pods(&self) -> anyhow::Result<Vec<Pod>> {
        let pods: Api<Pod> = Api::all(self.client());
        let here = ListParams::default().fields(&format!("spec.nodeName={}", self.node));
        let found = pods.list(&here).await.map_err(|error| self.failed(error))?;
        let belongs = |pod: &Pod| controller_of(&pod.metadata).is_some_and(|owner| owner.kind == "DaemonSet");
        Ok(found.items.into_iter().filter(|pod| !belongs(pod)).collect())
    }

    /// Refuses to start if it would stop something that the user did not allow to stop.
    async fn check(&self, args: &Args, config: &ClusterConfig) -> anyhow::Result<()> {
        let nodes: Api<Node> = Api::all(self.client());
        nodes.get(&self.node).await.map_err(|error| self.failed(error))?;
        for pod in self.pods().await?.iter().filter(|pod| !has_ended(pod)) {
            let name = full_name(pod);
            if controller_of(&pod.metadata).is_none() && !args.force {
                bail!("Pod {name} has no controller that would recreate it; use --force to delete it");
            }
            let Subject::Launcher { vmi: guest } = subject(pod) else { continue };
            let vmis: Api<VirtualMachineInstance> = Api::namespaced(self.client(), &namespace(pod));
            let vmi = vmis.get_opt(guest).await.map_err(|error| self.failed(error))?;
            let world = World { pod, launcher: None, vmi: vmi.as_ref(), annotations: None, config };
            if judge(&world) == Verdict::Allow && !args.shut_down {
                let strategy = vmi.as_ref().map_or("None", |vmi| plan::eviction::strategy(vmi, config)).to_owned();
                bail!(
                    "VMI {}/{guest} would be shut down, not live-migrated: its eviction strategy is {strategy}; set it \
                     to LiveMigrate, or pass --shut-down",
                    namespace(pod)
                );
            }
        }
        Ok(())
    }

    /// Requests the eviction of every Pod once, and returns what is left. `seen` collects the names of all Pods seen.
    async fn round(&self, seen: &mut BTreeSet<String>) -> anyhow::Result<Vec<Left>> {
        let mut left = vec![];
        for pod in self.pods().await? {
            let guest = match subject(&pod) {
                Subject::Launcher { vmi } => Some(vmi.to_owned()),
                Subject::Free | Subject::Attachment { .. } => None,
            };
            let refusal = self.evict(&pod).await?;
            let name = match &guest {
                Some(guest) => format!("{}/{guest}", namespace(&pod)),
                // A launcher whose guest has left is not waited for.
                None if has_ended(&pod) => continue,
                None => full_name(&pod),
            };
            seen.insert(name.clone());
            let state = match (refusal, guest) {
                (None, _) => State::Ending,
                (Some(refusal), None) => State::Waiting(plain(refusal)),
                (Some(refusal), Some(guest)) => self.guest(&namespace(&pod), &guest, refusal).await?,
            };
            left.push(Left { name, state });
        }
        Ok(left)
    }

    /// The server's message if the Pod cannot be evicted now.
    async fn evict(&self, pod: &Pod) -> anyhow::Result<Option<String>> {
        if pod.metadata.deletion_timestamp.is_some() {
            return Ok(None);
        }
        let pods: Api<Pod> = Api::namespaced(self.client(), &namespace(pod));
        match pods.evict(&pod.name_any(), &EvictParams::default()).await {
            Ok(_) => Ok(None),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(kube::Error::Api(status)) if status.code == 429 => Ok(Some(own_words(&status.message).to_owned())),
            Err(error) => Err(self.failed(error)).with_context(|| format!("evicting Pod {}", full_name(pod))),
        }
    }

    /// What a guest that is to be migrated is doing.
    async fn guest(&self, namespace: &str, guest: &str, refusal: String) -> anyhow::Result<State> {
        let session = in_namespace(&self.session, namespace);
        let under_way = migration::of_instance(&session, guest).await?.into_iter().find(|one| !one.is_final());
        let Some(name) = under_way.and_then(|migration| migration.metadata.name) else {
            return Ok(match self.has_left(&session, guest).await? {
                true => State::Ending,
                false => State::Waiting(plain(refusal)),
            });
        };
        let Some(seen) = Followed::look(&session, &name).await? else { return Ok(State::Waiting(plain(refusal))) };
        Ok(match standing(&seen.migration, seen.vmi.as_ref(), seen.target.as_ref()) {
            Standing::Moving { .. } => State::Moving(seen.progress(&session).await),
            Standing::Waiting(wait) => State::Waiting(wait),
            Standing::Succeeded { .. } => State::Ending,
            Standing::Failed { why } => {
                State::Waiting(plain(format!("its migration failed and will be retried: {why}")))
            }
        })
    }

    /// Whether the guest is on another node by now; what is left of it here ends by itself.
    async fn has_left(&self, session: &Session, guest: &str) -> anyhow::Result<bool> {
        let vmis: Api<VirtualMachineInstance> = Api::namespaced(self.client(), &session.namespace);
        let vmi = vmis.get_opt(guest).await.map_err(|error| self.failed(error))?;
        let node = vmi.and_then(|vmi| vmi.status).and_then(|status| status.node_name);
        Ok(node.is_some_and(|node| node != self.node))
    }
}

fn plain(what: String) -> Wait {
    Wait { what, since: None, unblock: None }
}

/// A webhook's reason, without the webhook's name.
fn own_words(message: &str) -> &str {
    message.split_once(" denied the request: ").map_or(message, |(_, why)| why)
}

fn namespace(pod: &Pod) -> String {
    pod.namespace().unwrap_or_default()
}

fn full_name(pod: &Pod) -> String {
    format!("{}/{}", namespace(pod), pod.name_any())
}
