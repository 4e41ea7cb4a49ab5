//! Counts virtual machines, or would.

use api::v1::VirtualMachine;
use informer::Key;
use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference};
use machinery::rights::{Right, Verb};
use plan::effect::{Effect, Never};
use serde_json::json;
use virt_controller::controller::{Controller, Expected, Flag, Queue, Workers};
use virt_controller::reconcile::{Control, Next, reconciler};
use virt_controller::{Context, Error};

pub(super) static CONTROLLER: Controller = Controller {
    name: "virt-controller-counting",
    queue: Queue::Plain,
    workers: Workers::Flag(Flag {
        name: "counting-controller-threads",
        default: 2,
        help: "Concurrent counts of VirtualMachines",
    }),
    watches: |on| on.objects(|stores| &stores.vms),
    component: "counting-controller",
    expects: Expected::NOTHING,
    tracks: &[],
    reads: &[],
    writes: &[Right::on::<ConfigMap>(&[Verb::Create])],
    start: |ctx| reconciler(Counting { ctx }, decide),
};

fn decide(_: &usize) -> Vec<Effect> {
    vec![]
}

struct Counting {
    ctx: Context,
}

impl Control for Counting {
    type World = usize;
    type Look = Never;
    type Own = Never;

    fn ctx(&self) -> &Context {
        &self.ctx
    }

    fn observe(&self, _: &Key) -> Option<usize> {
        Some(self.ctx.stores.vms.len())
    }

    fn about(_: &usize) -> Option<ObjectReference> {
        None
    }

    async fn own(&self, _: &Key, _: &usize, own: Never) -> Result<Next<Effect>, Error> {
        match own {}
    }
}

pub(super) fn vm(name: &str) -> VirtualMachine {
    let object = json!({"metadata": {"name": name, "namespace": "default", "uid": "u"},
                        "spec": {"template": {"spec": {"domain": {"devices": {}}}}}});
    serde_json::from_value(object).unwrap()
}
