//! The object that configures the installation.

use api::config::{ClusterConfig, ConfigError};
use api::v1::{KubeVirt, KubeVirtConfiguration};
use machinery::field::{Cause, FieldError, FieldPath};
use serde_json::Value;

use crate::decode::{decode, encode, stored};
use crate::{Judged, Refusal, Request, accounts};

const KIND: &str = "KubeVirt";

pub(crate) fn judge(request: &Request<'_>, config: &ClusterConfig) -> Result<Judged, Refusal> {
    let kubevirt: KubeVirt = decode(KIND, request.object, accounts::is_own(request.user, config))?;
    let judged = request.old.and_then(stored::<KubeVirt>).is_some_and(|old| old.spec == kubevirt.spec);
    let errors = if judged { Vec::new() } else { rules(&kubevirt) };
    Ok(Judged::with_causes(encode(&kubevirt), errors))
}

fn rules(kubevirt: &KubeVirt) -> Vec<FieldError> {
    let spec = FieldPath::new("spec");
    let mut errors = Vec::new();
    // A configuration nobody can use would leave the last good one in force without a word.
    match ClusterConfig::from_kubevirt(kubevirt) {
        Ok(_) => {}
        Err(ConfigError::Invalid { field, value, remedy }) => {
            errors.push(FieldError::invalid(FieldPath::new(field), value, remedy));
        }
        Err(error @ ConfigError::Undecodable(_)) => {
            errors.push(FieldError::new(Cause::Invalid, spec.child("configuration"), error.to_string()));
        }
    }
    if let Some(configuration) = &kubevirt.spec.configuration {
        errors.extend(gates(&spec.child("configuration"), configuration));
        errors.extend(seccomp(&spec.child("configuration"), configuration));
    }
    if kubevirt.spec.infra.as_ref().is_some_and(|infra| infra.replicas == Some(0)) {
        let field = spec.child("infra").child("replicas");
        errors.push(FieldError::invalid(field, 0, "infra replica count can't be 0"));
    }
    let patches = kubevirt.spec.customize_components.iter().flat_map(|customize| &customize.patches);
    for (index, _) in patches.enumerate().filter(|(_, p)| serde_json::from_str::<Value>(&p.patch).is_err()) {
        let field = spec.child("customizeComponents").child("patches").index(index).child("patch");
        errors.push(FieldError::new(Cause::NotSupported, field, "the patch is not valid JSON"));
    }
    errors
}

fn gates(field: &FieldPath, configuration: &KubeVirtConfiguration) -> Vec<FieldError> {
    let Some(developer) = &configuration.developer_configuration else { return Vec::new() };
    let field = field.child("developerConfiguration").child("featureGates");
    let both = developer.feature_gates.iter().filter(|gate| developer.disabled_feature_gates.contains(gate));
    both.map(|gate| FieldError::forbidden(field.clone(), &format!("{gate} is enabled and disabled at once"))).collect()
}

fn seccomp(field: &FieldPath, configuration: &KubeVirtConfiguration) -> Option<FieldError> {
    let profile = configuration.seccomp_configuration.as_ref()?.virtual_machine_instance_profile.as_ref()?;
    let field = field.child("seccompConfiguration").child("virtualMachineInstanceProfile").child("customProfile");
    let Some(custom) = &profile.custom_profile else {
        return Some(FieldError::invalid(field, "", "a profile has to be named"));
    };
    let both = custom.localhost_profile.is_some() && custom.runtime_default_profile == Some(true);
    let detail = "localhostProfile and runtimeDefaultProfile exclude each other";
    both.then(|| FieldError::invalid(field, "", detail))
}
