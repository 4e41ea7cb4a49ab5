//! Resource limits of a container and its OOM score.

use std::collections::BTreeMap;

use hostfs::cgroup::Limits;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Wire;
use launcher_contract::devices::{self, Device};
use machinery::quantity::Quantity;
use podstate::{Blocked, limit, qos_class, request};

use super::misconfigured;

/// Enough for any guest, but limits a fork bomb.
const MOST_PROCESSES: u64 = 8192;

fn parse(quantity: &Wire) -> Result<Quantity, Blocked> {
    Quantity::try_from(quantity).map_err(|e| misconfigured(e.to_string()))
}

pub(super) fn bytes(quantity: &Wire) -> Result<u64, Blocked> {
    Ok(u64::try_from(parse(quantity)?.value()).unwrap_or(0))
}

fn milli(quantity: &Wire) -> Result<u64, Blocked> {
    Ok(u64::try_from(parse(quantity)?.milli_value()).unwrap_or(0))
}

pub(super) fn limits(container: &Container) -> Result<Limits, Blocked> {
    Ok(Limits {
        // Without a request the container gets the minimum share.
        cpu_request_milli: Some(request(container, "cpu").map(milli).transpose()?.unwrap_or(0)),
        cpu_milli: limit(container, "cpu").map(milli).transpose()?,
        memory_bytes: limit(container, "memory").map(bytes).transpose()?,
        pids: Some(MOST_PROCESSES),
    })
}

/// Device files below `/dev` that the container's resources grant.
pub(super) fn devices(container: &Container) -> Vec<String> {
    let granted = |device: &&Device| request(container, &device.resource()).is_some_and(|q| q.0 != "0");
    devices::ALL.iter().filter(granted).map(|device| device.node.to_owned()).collect()
}

/// `limits.cpu` and the like for environment variables, in units of the divisor, rounded up.
pub(super) fn field(container: &Container, name: &str, divisor: Option<&Wire>) -> Result<String, Blocked> {
    let value = match name.split_once('.') {
        Some(("limits", resource)) => limit(container, resource),
        Some(("requests", resource)) => request(container, resource),
        _ => return Err(misconfigured(format!("{name} is not a resource field"))),
    };
    let value = value.map(milli).transpose()?.unwrap_or(0);
    let divisor = divisor.map(milli).transpose()?.filter(|d| *d > 0).unwrap_or(1000);
    Ok(value.div_ceil(divisor).to_string())
}

/// The kernel kills high scores first: containers without requests before those that requested much and stay within it.
pub(super) fn oom_score_adj(spec: &PodSpec, container: &Container, capacity: u64) -> Result<i32, Blocked> {
    Ok(match qos_class(spec) {
        "Guaranteed" => -997,
        "BestEffort" => 1000,
        _ => {
            let asked = request(container, "memory").map(bytes).transpose()?.unwrap_or(0);
            let share = asked.saturating_mul(1000) / capacity.max(1);
            i32::try_from(1000_u64.saturating_sub(share)).unwrap_or(1000).clamp(3, 999)
        }
    })
}

/// Quantities in their API form.
pub(crate) fn amounts<const N: usize>(values: [(&str, Quantity); N]) -> BTreeMap<String, Wire> {
    values.into_iter().map(|(name, quantity)| (name.to_owned(), quantity.into())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn spec(containers: Value) -> PodSpec {
        serde_json::from_value(json!({ "containers": containers })).unwrap()
    }

    #[test]
    fn limits_devices_and_scores_come_from_the_resources() {
        let spec = spec(json!([{"name": "a", "resources": {
            "requests": {"cpu": "100m", "memory": "256Mi"},
            "limits": {"memory": "512Mi", "devices.kubevirt.io/tun": "1", "devices.kubevirt.io/kvm": "0"}}}]));
        let container = &spec.containers[0];
        let limits = limits(container).unwrap();
        assert_eq!(limits.cpu_request_milli, Some(100));
        assert_eq!(limits.cpu_milli, None);
        assert_eq!(limits.memory_bytes, Some(512 << 20));
        assert_eq!(devices(container), ["net/tun"]);
        assert_eq!(oom_score_adj(&spec, container, 1 << 30).unwrap(), 750);
        assert_eq!(field(container, "limits.memory", Some(&Wire("1Mi".into()))).unwrap(), "512");
        assert_eq!(field(container, "requests.cpu", None).unwrap(), "1");
    }
}
