//! VirtualMachineInstancePreset.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::{Deserialize, Serialize};

use super::DomainSpec;
use crate::kind::resource;

resource! {
    /// Parts of a domain that instances with matching labels take over when they are created.
    ///
    /// Deprecated in favour of instance types and preferences.
    VirtualMachineInstancePreset, "virtualmachineinstancepresets",
    spec: VirtualMachineInstancePresetSpec
}

/// Which instances a preset is for and what it gives them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineInstancePresetSpec {
    /// Parts of the domain to fill in. A value of the instance's own that differs makes the preset not apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<DomainSpec>,
    /// The labels of the instances it is for.
    pub selector: LabelSelector,
}
