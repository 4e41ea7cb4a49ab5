//! The actors of all launchers on this node.

use std::collections::HashMap;
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use api::v1::VirtualMachineInstance;
use futures::FutureExt;
use hostfs::beneath::Root;
use informer::{Change, Key, Recorder, Store};
use kube::{Api, Client};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use vmstate::claim;

use crate::agent::Agent;
use crate::config::CurrentConfig;
use crate::launcher::Launcher;
use crate::proxy::Proxies;
use crate::records::{GhostRecord, Records};
use crate::uid::{PodUid, VmiUid};

/// Pause before an actor that panicked is restarted.
const AFTER_PANIC: Duration = Duration::from_secs(1);

/// State shared by all actors of a node.
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) client: Client,
    pub(crate) pods: Arc<Root>,
    pub(crate) records: Records,
    /// VMIs labelled with this node.
    pub(crate) vmis: Store<VirtualMachineInstance>,
    /// VMIs being migrated to this node.
    pub(crate) incoming: Store<VirtualMachineInstance>,
    pub(crate) proxies: Arc<Proxies>,
    /// The address at which other nodes reach this one.
    pub(crate) address: IpAddr,
    pub(crate) config: CurrentConfig,
    pub(crate) recorder: Recorder,
    /// Why KVM is not usable here.
    pub(crate) kvm: Result<(), String>,
    /// Whether launchers get the device nodes of their containers from us, rather than from the Pod runner.
    pub(crate) owns_devices: bool,
    /// Tasks that must finish before virt-handler exits.
    pub(crate) tasks: TaskTracker,
}

/// Handle to a running actor.
struct Running {
    vmi_uid: VmiUid,
    wake: Arc<Notify>,
    /// Set once the ghost record is written and the launcher may be contacted.
    launcher: Arc<OnceLock<Arc<Launcher>>>,
}

/// The actors of this node by Pod UID. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Agents(Arc<Inner>);

struct Inner {
    node: Arc<Node>,
    running: Mutex<HashMap<PodUid, Running>>,
    shutdown: CancellationToken,
}

impl Agents {
    /// Takes over the launchers recorded by an earlier virt-handler, then follows the VMIs.
    pub(crate) fn start(node: Node, shutdown: CancellationToken) -> Self {
        let inner = Inner { node: Arc::new(node), running: Mutex::default(), shutdown };
        let agents = Agents(Arc::new(inner));
        match agents.0.node.records.ghosts() {
            Ok(records) => records.into_iter().for_each(|record| agents.spawn(record, true)),
            Err(error) => tracing::error!(error = crate::error::chain(&error), "failed to read ghost records"),
        }
        for vmis in [&agents.0.node.vmis, &agents.0.node.incoming] {
            let follower = agents.clone();
            vmis.subscribe(move |change| follower.heard_of(change));
        }
        agents
    }

    /// Waits until every actor has stopped. Call after the shutdown.
    pub(crate) async fn stopped(&self) {
        self.0.node.tasks.close();
        self.0.node.tasks.wait().await;
    }

    /// A VMI of this node: from the cache, or by a live read on a cache miss. After a disruption the watch may lag by
    /// some seconds, while a VMI has already arrived.
    pub(crate) async fn vmi(&self, key: &Key) -> Result<Option<Arc<VirtualMachineInstance>>, kube::Error> {
        let node = &self.0.node;
        if let Some(cached) = node.vmis.get(key) {
            return Ok(Some(cached));
        }
        let api = Api::<VirtualMachineInstance>::namespaced(node.client.clone(), &key.namespace);
        let found = api.get_opt(&key.name).await?;
        Ok(found.filter(|vmi| claim::is_owned(vmi, &node.name)).map(Arc::new))
    }

    /// The launcher that is responsible for a VMI.
    pub(crate) fn launcher_of(&self, vmi_uid: &str) -> Option<Arc<Launcher>> {
        let running = self.running();
        let launchers = running.values().filter(|agent| agent.vmi_uid.as_str() == vmi_uid);
        let launchers = launchers.filter_map(|agent| agent.launcher.get());
        let launchers: Vec<_> = launchers.map(|launcher| (launcher.report(), launcher.clone())).collect();
        claim::answering(launchers.iter().map(|(report, launcher)| (report.answer(), launcher.clone())))
    }

    fn running(&self) -> MutexGuard<'_, HashMap<PodUid, Running>> {
        // Only plain map operations run under the lock, so a poisoned map is still consistent.
        self.0.running.lock()
    }

    fn heard_of(&self, change: &Change<VirtualMachineInstance>) {
        let vmi = change.object();
        let Some(vmi_uid) = vmi.metadata.uid.as_deref() else { return };
        for agent in self.running().values().filter(|agent| agent.vmi_uid.as_str() == vmi_uid) {
            agent.wake.notify_one();
        }
        if !matches!(change, Change::Deleted(_)) {
            claimed(vmi, &self.0.node.name).into_iter().for_each(|record| self.spawn(record, false));
        }
    }

    fn spawn(&self, record: GhostRecord, recorded: bool) {
        let (pod_uid, wake, launcher) = (record.pod_uid.clone(), Arc::new(Notify::new()), Arc::new(OnceLock::new()));
        let mut running = self.running();
        if running.contains_key(&pod_uid) {
            return;
        }
        let entry = Running { vmi_uid: record.vmi_uid.clone(), wake: wake.clone(), launcher: launcher.clone() };
        running.insert(pod_uid.clone(), entry);
        drop(running);
        let agents = self.clone();
        let work = async move {
            loop {
                let agent = Agent::new(agents.0.node.clone(), record.clone(), recorded, launcher.clone());
                let ended = AssertUnwindSafe(agent.run(&wake)).catch_unwind().await;
                if ended.is_ok() {
                    break;
                }
                tracing::error!(pod = %pod_uid, "actor of a launcher panicked");
                tokio::time::sleep(AFTER_PANIC).await;
            }
            agents.running().remove(&pod_uid);
        };
        let shutdown = self.0.shutdown.clone();
        self.0.node.tasks.spawn(async move { shutdown.run_until_cancelled(work).await });
    }
}

/// Records of the launchers that the VMI claims on this node.
fn claimed(vmi: &VirtualMachineInstance, node: &str) -> Vec<GhostRecord> {
    claim::claimed_pods(vmi, node).into_iter().filter_map(|pod_uid| GhostRecord::new(vmi, pod_uid)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn vmi() -> VirtualMachineInstance {
        serde_json::from_value(json!({
            "metadata": {
                "namespace": "default", "name": "testvm", "uid": "vmi-1", "labels": {"kubevirt.io/nodeName": "node01"},
            },
            "spec": {"terminationGracePeriodSeconds": 9},
            "status": {"phase": "Running", "activePods": {"pod-1": "node01", "pod-2": "node02"}},
        }))
        .unwrap()
    }

    /// A Pod created for a VMI that is gone belongs to nobody: no actor contacts its launcher.
    #[test]
    fn a_launcher_of_a_dead_vmi_is_not_its_namesakes() {
        let mut late = claimed(&vmi(), "node01").remove(0);
        late.pod_uid = PodUid::new("late").unwrap();
        let mut namesake = vmi();
        namesake.metadata.uid = Some("vmi-2".to_string());
        assert!(late.is_of(&vmi()));
        assert!(!late.is_of(&namesake), "it is not told what the namesake wants");
        let claimed = claimed(&namesake, "node01");
        assert!(claimed.iter().all(|pod| pod.pod_uid != late.pod_uid), "only Pods that the VMI names are looked after");
        assert!(claimed.iter().all(|pod| pod.vmi_uid.as_str() == "vmi-2"));
    }

    #[test]
    fn a_record_says_whose_the_launcher_is_and_how_long_its_guest_may_take() {
        let records = claimed(&vmi(), "node01");
        let [record] = records.as_slice() else { panic!("{records:#?}") };
        assert_eq!((record.pod_uid.as_str(), record.vmi_uid.as_str()), ("pod-1", "vmi-1"));
        assert_eq!((record.vmi_key().to_string().as_str(), record.grace_period_seconds), ("default/testvm", Some(9)));
        let mut nameless = vmi();
        nameless.metadata.uid = None;
        assert_eq!(claimed(&nameless, "node01"), []);
    }
}
