//! The kinds of `kubevirt.io`. Their rules are in the `admission` crate; here is how they are named and shown.

use api::v1::{KubeVirt, VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceMigration};
use serde_json::Value;

use super::{Definition, Plain, Strategy, round_trip};
use crate::table::{Cell, Column, NAME};

/// As a CRD has it: a date column, not the built-in age.
const AGE: Column = Column { name: "Age", kind: "date", wide: false, cell: Cell::Path(".metadata.creationTimestamp") };
const PHASE: Column = Column::text("Phase", ".status.phase");
const READY: Column = Column::text("Ready", ".status.conditions[?(@.type=='Ready')].status");

const VM_COLUMNS: &[Column] = &[NAME, AGE, Column::text("Status", ".status.printableStatus"), READY];

const VMI_COLUMNS: &[Column] = &[
    NAME,
    AGE,
    PHASE,
    Column::text("IP", ".status.interfaces[0].ipAddress"),
    Column::text("NodeName", ".status.nodeName"),
    READY,
    Column::text("Live-Migratable", ".status.conditions[?(@.type=='LiveMigratable')].status").wide(),
    Column::text("Paused", ".status.conditions[?(@.type=='Paused')].status").wide(),
];

const fn definition(
    kind: &'static str,
    plural: &'static str,
    singular: &'static str,
    short_names: &'static [&'static str],
    status: bool,
    round_trip: fn(&Value) -> Result<Value, serde_json::Error>,
) -> Definition {
    Definition {
        group: api::v1::GROUP,
        version: api::v1::VERSION,
        kind,
        plural,
        singular,
        short_names,
        categories: &["all"],
        namespaced: true,
        status,
        generation: true,
        unconditional_update: false,
        round_trip,
    }
}

pub(super) fn all() -> Vec<Box<dyn Strategy>> {
    let kind = |definition, columns| Box::new(Plain { definition, columns, warning: None }) as Box<dyn Strategy>;
    vec![
        kind(
            definition(
                "VirtualMachine",
                "virtualmachines",
                "virtualmachine",
                &["vm", "vms"],
                true,
                round_trip::<VirtualMachine>,
            ),
            VM_COLUMNS,
        ),
        kind(
            // No status subresource: controllers write labels and status of a VMI in one update.
            definition(
                "VirtualMachineInstance",
                "virtualmachineinstances",
                "virtualmachineinstance",
                &["vmi", "vmis"],
                false,
                round_trip::<VirtualMachineInstance>,
            ),
            VMI_COLUMNS,
        ),
        kind(
            definition(
                "VirtualMachineInstanceMigration",
                "virtualmachineinstancemigrations",
                "virtualmachineinstancemigration",
                &["vmim", "vmims"],
                true,
                round_trip::<VirtualMachineInstanceMigration>,
            ),
            const { &[NAME, PHASE, Column::text("VMI", ".spec.vmiName")] },
        ),
        kind(
            definition("KubeVirt", "kubevirts", "kubevirt", &["kv", "kvs"], true, round_trip::<KubeVirt>),
            const { &[NAME, AGE, PHASE] },
        ),
    ]
}
