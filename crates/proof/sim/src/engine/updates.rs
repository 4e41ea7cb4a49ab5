//! Upgrades of the installation, and the workload update methods.

use api::v1::KubeVirt;
use serde_json::json;
use virt_controller::api::Part;

use super::{Event, Sim};
use crate::hub::lock;
use crate::server::Writer;

impl Sim {
    /// An administrator enables workload updates: by migration, or by evicting everything that cannot or need not
    /// migrate.
    pub(super) fn choose_updates(&mut self, evict: bool) {
        let methods = if evict { vec!["Evict"] } else { vec!["LiveMigrate", "Evict"] };
        let strategy =
            json!({"workloadUpdateMethods": methods, "batchEvictionSize": 1, "batchEvictionInterval": "20s"});
        let strategy = serde_json::from_value(strategy).expect("a constant strategy");
        self.edit_kubevirt(Part::Object, |kubevirt| kubevirt.spec.workload_update_strategy = Some(strategy));
    }

    /// The observed version differs from the target version until the upgrade is complete.
    pub(super) fn begin_upgrade(&mut self) {
        let version = self.image.to_string();
        self.edit_kubevirt(Part::Status, |kubevirt| {
            kubevirt.status.get_or_insert_default().target_deployment_id = Some(version);
        });
        let after = self.some_ms(1_000, 30_000);
        self.schedule(after, Event::Upgraded);
    }

    pub(super) fn end_upgrade(&mut self) {
        let version = self.image.to_string();
        self.edit_kubevirt(Part::Status, |kubevirt| {
            kubevirt.status.get_or_insert_default().observed_deployment_id = Some(version);
        });
    }

    fn edit_kubevirt(&mut self, part: Part, edit: impl FnOnce(&mut KubeVirt)) {
        let server = &mut lock(&self.hub).server;
        let Some(mut kubevirt) = server.tables.kubevirts.all().next().map(|kubevirt| (**kubevirt).clone()) else {
            return;
        };
        edit(&mut kubevirt);
        server.update(Writer::User, part, kubevirt).expect("written right after it was read");
    }
}
