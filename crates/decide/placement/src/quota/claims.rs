//! What claims use of a quota.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, ResourceQuota};
use machinery::quantity::{Format, Quantity};

use super::Charges;

/// Before it stands the name of a storage class.
const OF_CLASS: &str = ".storageclass.storage.k8s.io/";

/// What a name in a quota counts.
enum Counted {
    Claims,
    Storage,
}

/// The class, if only claims of one class count, and what counts.
fn parse(name: &str) -> Option<(Option<&str>, Counted)> {
    let (class, what) = match name.split_once(OF_CLASS) {
        Some((class, what)) => (Some(class), what),
        None => (None, name),
    };
    match what {
        "persistentvolumeclaims" => Some((class, Counted::Claims)),
        "requests.storage" => Some((class, Counted::Storage)),
        "count/persistentvolumeclaims" if class.is_none() => Some((None, Counted::Claims)),
        _ => None,
    }
}

pub(super) fn is_counted(name: &str) -> bool {
    parse(name).is_some()
}

/// A quota with scopes is about Pods.
pub(super) fn applies(quota: &ResourceQuota) -> bool {
    let spec = quota.spec.as_ref();
    spec.is_some_and(|spec| spec.scopes.iter().flatten().next().is_none() && spec.scope_selector.is_none())
}

pub(super) fn charges(claim: &PersistentVolumeClaim, hard: &Charges) -> Charges {
    let own = claims::class_of(claim).unwrap_or_default();
    let of_claim = |(name, _): (&String, &Quantity)| {
        let (class, what) = parse(name)?;
        class.is_none_or(|class| class == own).then(|| {
            let amount = match what {
                Counted::Claims => Quantity::new(1, Format::DecimalSi),
                Counted::Storage => claims::requested(claim),
            };
            (name.clone(), amount)
        })
    };
    hard.iter().filter_map(of_claim).collect()
}
