use api::config::ClusterConfig;
use launcher_contract::seccomp::FILE;

/// Installs the profile also where the configuration does not refer to it yet; on unless it is disabled.
const GATE: &str = "KubevirtSeccompProfile";

/// Whether nodes have the launchers' seccomp profile.
pub fn has_seccomp_profile(config: &ClusterConfig) -> bool {
    let configured = config.configuration.seccomp_configuration.as_ref();
    let profile =
        configured.and_then(|seccomp| seccomp.virtual_machine_instance_profile.as_ref()?.custom_profile.as_ref());
    config.feature_gate(GATE) || profile.and_then(|profile| profile.localhost_profile.as_deref()) == Some(FILE)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn nodes_have_the_profile_by_default_and_where_it_is_referred_to() {
        let has = |configuration: Value| {
            let kubevirt = serde_json::from_value(json!({"spec": {"configuration": configuration}})).unwrap();
            has_seccomp_profile(&ClusterConfig::from_kubevirt(&kubevirt).unwrap())
        };
        let using = |file: &str| {
            json!({"seccompConfiguration":
                {"virtualMachineInstanceProfile": {"customProfile": {"localhostProfile": file}}}})
        };
        assert!(has(json!({})), "by default");
        for (profile, expected) in [(Some(FILE), true), (Some("mine.json"), false), (None, false)] {
            let mut configuration = profile.map_or(json!({}), using);
            configuration["developerConfiguration"] = json!({"disabledFeatureGates": [GATE]});
            assert_eq!(has(configuration), expected, "{profile:?}");
        }
    }
}
