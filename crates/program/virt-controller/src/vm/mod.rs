//! The VirtualMachine controller: observes the stores and acts on the API.

mod observe;
mod triggers;

use api::cdi::DataVolume;
use api::v1::{VirtualMachine, VirtualMachineInstance, VirtualMachinePrintableStatus as Printable};
use informer::Key;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::authorization::v1::{SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolumeClaim};
use kube::Resource;
use machinery::rights::{Right, Verb};
use plan::SyncError;
use plan::object::{Kind, Object};
use plan::vm::{Access, Action, Look, Own, World, access, decide, is_populated_already};

use crate::Error;
use crate::context::Context;
use crate::controller::{Controller, Expected, Flag, Queue, Workers};
use crate::error::Request;
use crate::reconcile::{Control, Next, reconciler};

pub(crate) static CONTROLLER: Controller = Controller {
    name: "virt-controller-vm",
    queue: Queue::Plain,
    workers: Workers::Flag(Flag {
        name: "vm-controller-threads",
        default: 3,
        help: "Concurrent reconciles of VirtualMachines",
    }),
    watches: triggers::watches,
    component: "virtualmachine-controller",
    expects: Expected { creations: &[Kind::Vmi, Kind::DataVolume], deletions: &[Kind::Vmi] },
    tracks: &[Kind::Vm],
    reads: &[
        Right::on::<VirtualMachine>(&[Verb::Get]),
        Right::on::<VirtualMachineInstance>(&[Verb::Get]),
        Right::on::<DataVolume>(&[Verb::Get]),
        Right::on::<ControllerRevision>(&[Verb::Get]),
    ],
    writes: &[
        Right::on::<VirtualMachine>(&[Verb::Patch]),
        Right::on_status::<VirtualMachine>(&[Verb::Update]),
        Right::own_by::<VirtualMachine>(),
        Right::on::<VirtualMachineInstance>(&[Verb::Create, Verb::Patch, Verb::Delete]),
        // Adoption changes owner references, which some clusters allow only with the right to delete the object.
        Right::on::<DataVolume>(&[Verb::Create, Verb::Patch, Verb::Delete]),
        // Cloning requires the right to clone; CDI checks the same for our account.
        Right::on::<DataVolume>(&[Verb::Create]).of("source"),
        Right::on::<ControllerRevision>(&[Verb::Create, Verb::Delete]),
        Right::on::<PersistentVolumeClaim>(&[Verb::Patch]),
        Right::on::<SubjectAccessReview>(&[Verb::Create]),
    ],
    start: |ctx| reconciler(Vms { ctx }, decide),
};

struct Vms {
    ctx: Context,
}

impl Vms {
    async fn create_data_volume(&self, key: &Key, data_volume: DataVolume, claim_exists: bool) -> Result<(), Error> {
        match self.ctx.create(key, &data_volume.into()).await {
            Err(error) if is_populated_already(claim_exists, error.causes()) => {
                tracing::warn!(%key, error = &error as &dyn std::error::Error, "CDI does not adopt the existing claim");
                Ok(())
            }
            created => created.map(drop),
        }
    }

    async fn is_allowed(&self, any_of: &[Vec<SubjectAccessReviewSpec>]) -> Result<bool, Error> {
        let mut answers = vec![];
        loop {
            let spec = match access(any_of, &answers) {
                Access::Ask(spec) => spec.clone(),
                Access::Granted => return Ok(true),
                Access::Denied => return Ok(false),
            };
            let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
            let failed = |error| Error::api("ask who may copy a DataVolume".to_owned(), Request::Plain, error);
            answers.push(self.ctx.writer.is_allowed(&review).await.map_err(failed)?);
        }
    }

    async fn authorize(
        &self,
        name: String,
        any_of: Vec<Vec<SubjectAccessReviewSpec>>,
        then: Vec<Action>,
    ) -> Result<Next<Action>, Error> {
        let first = any_of.iter().flatten().next();
        let user = first.and_then(|spec| spec.user.clone()).unwrap_or_default();
        let attributes = first.and_then(|spec| spec.resource_attributes.clone()).unwrap_or_default();
        if self.is_allowed(&any_of).await? {
            return Ok(Next::Insert(then));
        }
        let (source, namespace) = (attributes.name.unwrap_or_default(), attributes.namespace.unwrap_or_default());
        Err(Error::NotAuthorized { name, user, source_name: source, namespace })
    }
}

impl Control for Vms {
    type World = World;
    type Look = Look;
    type Own = Own;

    fn ctx(&self) -> &Context {
        &self.ctx
    }

    fn observe(&self, key: &Key) -> Option<World> {
        self.world(key)
    }

    fn forget(&self, key: &Key) {
        self.ctx.writer.writes.forget(key);
    }

    fn fail(world: &mut World, error: SyncError) {
        world.failed = Some(error);
    }

    fn about(world: &World) -> Option<ObjectReference> {
        Some(world.vm.object_ref(&()))
    }

    fn wrote(&self, key: &Key, world: &World, object: &Object) {
        let Object::Vm(vm) = object else { return };
        let shown = |vm: &VirtualMachine| vm.status.as_ref().and_then(|status| status.printable_status.clone());
        let (before, after) = (shown(&world.vm), shown(vm));
        if before != after {
            let status = after.as_ref().map_or("", Printable::as_str);
            tracing::info!(%key, status, writes = self.ctx.writer.writes.of(key), "virtual machine");
        }
    }

    async fn own(&self, key: &Key, _: &World, own: Own) -> Result<Next<Action>, Error> {
        match own {
            Own::Authorize { name, any_of, then } => return self.authorize(name, any_of, then).await,
            Own::CreateDataVolume { data_volume, claim_exists } => {
                self.create_data_volume(key, *data_volume, claim_exists).await?;
            }
        }
        Ok(Next::Continue)
    }
}
