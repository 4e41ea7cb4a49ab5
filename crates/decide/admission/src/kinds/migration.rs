//! Migrations. This build cannot carry one out, so none can be created; one that is there can be looked at and deleted.

use api::labels;
use api::v1::{VirtualMachineInstanceMigration, VirtualMachineInstanceMigrationPhase as Phase};
use machinery::field::{Cause, FieldError, FieldPath};
use machinery::meta::label;

use crate::decode::{decode, encode, stored};
use crate::{Judged, Operation, Refusal, Request, unsupported};

const KIND: &str = "VirtualMachineInstanceMigration";

pub(crate) fn judge(request: &Request<'_>) -> Result<Judged, Refusal> {
    let migration: VirtualMachineInstanceMigration = decode(KIND, request.object, false)?;
    match (request.operation, request.old.and_then(stored::<VirtualMachineInstanceMigration>)) {
        (Operation::Create, _) => {
            let refused = unsupported::refusal(FieldPath::new("kind"), "moving a running guest to another node is");
            Ok(Judged { unsupported: vec![refused], ..Judged::valid(encode(&migration)) })
        }
        (Operation::Update, old) => Ok(update(&migration, &old.unwrap_or_default())),
        (Operation::Delete, _) => Ok(Judged::valid(encode(&migration))),
    }
}

fn update(migration: &VirtualMachineInstanceMigration, old: &VirtualMachineInstanceMigration) -> Judged {
    let mut errors = Vec::new();
    if migration.spec != old.spec {
        let message = "update of Migration object's spec is restricted";
        errors.push(FieldError::new(Cause::NotSupported, FieldPath::new("spec"), message));
    }
    let phase = old.status.as_ref().and_then(|status| status.phase.as_ref());
    let finished = matches!(phase, Some(Phase::Succeeded | Phase::Failed));
    if !finished && label(&old.metadata, labels::VMI_NAME) != label(&migration.metadata, labels::VMI_NAME) {
        let field = FieldPath::new("metadata.labels").key(labels::VMI_NAME);
        let message = "the label cannot be changed or removed while the migration is under way";
        errors.push(FieldError::new(Cause::NotSupported, field, message));
    }
    Judged::with_causes(encode(migration), errors)
}
