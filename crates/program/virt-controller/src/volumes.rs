//! The cached claims behind a VMI's volumes.

use api::v1::VirtualMachineInstance;
use informer::Key;
use machinery::meta::controller_of;
use plan::claims::{Claims, claim_under};

use crate::stores::Stores;

/// The claims that the VMI references, and the DataVolumes behind them.
pub(crate) fn claims_of(stores: &Stores, vmi: &VirtualMachineInstance) -> Claims {
    let namespace = vmi.metadata.namespace.clone().unwrap_or_default();
    let own = vmi.spec.volumes.iter().filter_map(claim_under);
    let utility = vmi.spec.utility_volumes.iter().map(|volume| volume.claim_name.as_str());
    let mut found = Claims::default();
    for name in own.chain(utility) {
        let mut data_volume = name.to_owned();
        if let Some(claim) = stores.claims.get(&Key::new(&namespace, name)) {
            if let Some(owner) = controller_of(&claim.metadata).filter(|owner| owner.kind == "DataVolume") {
                data_volume = owner.name.clone();
            }
            found.claims.insert(name.to_owned(), claim);
        }
        if let Some(dv) = stores.data_volumes.get(&Key::new(&namespace, &data_volume)) {
            found.data_volumes.insert(data_volume, dv);
        }
    }
    found
}
