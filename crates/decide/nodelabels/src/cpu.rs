//! Node labels about the CPU that guests see, so that a guest migrates only to a node with the same CPU.
//!
//! A guest with the host CPU model gets what QEMU makes of this node's CPU. Two nodes are compatible if the result is
//! the same: under emulation the same QEMU version, with KVM the same model with the same features. That is stricter
//! than necessary, but never wrong.

use api::labels::{CPU_MODEL_MIGRATION_PREFIX, CPU_VENDOR_PREFIX, HOST_MODEL_CPU_PREFIX};

/// The labels of a node with this `/proc/cpuinfo`, with KVM or with emulation by a QEMU of this version.
pub fn labels(cpuinfo: &str, kvm: bool, qemu: Option<&str>) -> Vec<String> {
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.split(':').next().map(str::trim) == Some(name))?;
        line.split_once(':').map(|(_, value)| value.trim())
    };
    let vendor = match field("vendor_id") {
        Some("GenuineIntel") => Some("Intel"),
        Some("AuthenticAMD") => Some("AMD"),
        _ => None,
    };
    let model = match (kvm, qemu) {
        (false, Some(version)) => Some(format!("qemu-{version}")),
        (false, None) => None,
        (true, _) => {
            let number = |name: &str| field(name).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
            let parts = (vendor, number("cpu family"), number("model"), field("flags"));
            match parts {
                (Some(vendor), Some(family), Some(model), Some(flags)) => {
                    Some(format!("{vendor}-{family}-{model}-{:08x}", fingerprint(flags)))
                }
                _ => None,
            }
        }
    };
    let mut all: Vec<String> = vendor.map(|vendor| format!("{CPU_VENDOR_PREFIX}{vendor}")).into_iter().collect();
    if let Some(model) = model {
        all.extend([HOST_MODEL_CPU_PREFIX, CPU_MODEL_MIGRATION_PREFIX].map(|prefix| format!("{prefix}{model}")));
    }
    all
}

/// FNV-1a over the features in a fixed order.
fn fingerprint(flags: &str) -> u32 {
    let mut names: Vec<_> = flags.split_whitespace().collect();
    names.sort_unstable();
    let bytes = names.into_iter().flat_map(|name| name.bytes().chain([b' ']));
    bytes.fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// The version in what `qemu --version` prints, truncated to fit into a label.
pub fn qemu_version(text: &str) -> Option<String> {
    let version = text.lines().next()?.split(" version ").nth(1)?.split_whitespace().next()?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
    Some(version.chars().filter(|c| plain(*c)).take(40).collect::<String>()).filter(|version| !version.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPUINFO: &str = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\nmodel name\t: Xeon\nflags\t\t: fpu sse avx\n";

    #[test]
    fn emulating_nodes_are_the_same_if_their_qemu_is() {
        let emulating = labels(CPUINFO, false, Some("7.2.22"));
        let expected = [
            "cpu-vendor.node.kubevirt.io/Intel",
            "host-model-cpu.node.kubevirt.io/qemu-7.2.22",
            "cpu-model-migration.node.kubevirt.io/qemu-7.2.22",
        ];
        assert_eq!(emulating, expected);
        assert_eq!(labels("", false, None), Vec::<String>::new());
    }

    #[test]
    fn on_hardware_every_feature_counts_and_their_order_does_not() {
        let of = |cpuinfo: &str| labels(cpuinfo, true, None);
        assert_eq!(of(CPUINFO), of(&CPUINFO.replace("fpu sse avx", "avx fpu sse")));
        assert_ne!(of(CPUINFO), of(&CPUINFO.replace("fpu sse avx", "fpu sse avx avx2")));
        assert!(of(CPUINFO)[1].starts_with("host-model-cpu.node.kubevirt.io/Intel-6-85-"), "{:?}", of(CPUINFO));
        assert_eq!(of("vendor_id\t: GenuineIntel\n"), ["cpu-vendor.node.kubevirt.io/Intel"]);
    }

    #[test]
    fn the_version_is_found_in_what_qemu_prints() {
        let text = "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)\nCopyright\n";
        assert_eq!(qemu_version(text).as_deref(), Some("7.2.22"));
        assert_eq!(qemu_version("nonsense"), None);
    }
}
