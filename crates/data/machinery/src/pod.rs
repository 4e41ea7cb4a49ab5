//! Pods.

use k8s_openapi::api::core::v1::Pod;

/// Whether all containers of the Pod have ended and none will start again: it runs nothing and uses nothing of its node.
pub fn has_ended(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).is_some_and(is_final)
}

/// Whether a Pod in this phase has ended.
pub fn is_final(phase: &str) -> bool {
    matches!(phase, "Succeeded" | "Failed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::PodStatus;

    #[test]
    fn a_pod_has_ended_in_its_last_phases() {
        let in_phase = |phase: Option<&str>| Pod {
            status: Some(PodStatus { phase: phase.map(str::to_owned), ..PodStatus::default() }),
            ..Pod::default()
        };
        for (phase, ended) in [
            (None, false),
            (Some("Pending"), false),
            (Some("Running"), false),
            (Some("Unknown"), false),
            (Some("Succeeded"), true),
            (Some("Failed"), true),
        ] {
            assert_eq!(has_ended(&in_phase(phase)), ended, "{phase:?}");
        }
        assert!(!has_ended(&Pod::default()));
    }
}
