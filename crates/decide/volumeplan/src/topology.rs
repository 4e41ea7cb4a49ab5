//! Where a volume can be used.

use std::collections::BTreeMap;

use crate::record::Reach;
use crate::refusal::{Code, Refusal, Result};
use crate::request::{Capability, kind_of};

/// The label of a node that its pool belongs to.
pub const TOPOLOGY_KEY: &str = "topology.csi.ferrovirt.io/node";

/// Labels of a place.
pub type Segments = BTreeMap<String, String>;

/// Where a new volume has to be usable: anywhere, if nothing is named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requirement {
    pub requisite: Vec<Segments>,
    pub preferred: Vec<Segments>,
}

/// The place of a pool; a shared one is everywhere.
pub fn segments(reach: &Reach) -> Option<Segments> {
    match reach {
        Reach::Local(node) => Some(Segments::from([(TOPOLOGY_KEY.to_owned(), node.as_str().to_owned())])),
        Reach::Shared => None,
    }
}

fn includes(reach: &Reach, place: &Segments) -> bool {
    match reach {
        Reach::Local(node) => place.get(TOPOLOGY_KEY).is_some_and(|name| name == node.as_str()),
        Reach::Shared => true,
    }
}

pub(crate) fn admit(requirement: &Requirement, reach: &Reach) -> Result<()> {
    let places = if requirement.requisite.is_empty() { &requirement.preferred } else { &requirement.requisite };
    match reach {
        Reach::Local(node) if !places.is_empty() && !places.iter().any(|place| includes(reach, place)) => {
            // Kubernetes takes this code as a reason to try another node.
            Err(Refusal::new(
                Code::ResourceExhausted,
                format!("the volume is wanted on another node; this pool is on node {node}"),
            ))
        }
        _ => Ok(()),
    }
}

/// How many bytes new volumes of this kind can have here.
pub fn available(reach: &Reach, capabilities: &[Capability], place: Option<&Segments>, free: u64) -> u64 {
    let possible = capabilities.is_empty() || kind_of(capabilities, reach).is_ok();
    let here = place.is_none_or(|place| place.is_empty() || includes(reach, place));
    if possible && here { free } else { 0 }
}
