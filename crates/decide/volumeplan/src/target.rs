//! Paths that the kubelet names.

use std::path::{Component, Path, PathBuf};

use crate::refusal::{Refusal, Result, quote};

/// As the kernel has it, without the final zero.
const PATH_MAX: usize = 4095;

/// The part of a target path below the kubelet's directory: plain names only.
pub fn beneath(target: &str, kubelet_dir: &Path) -> Result<PathBuf> {
    if target.is_empty() {
        return Err(Refusal::invalid("the request has no target path"));
    }
    let refused = |why: &str| Err(Refusal::invalid(format!("the target path {} {why}", quote(target))));
    if target.len() > PATH_MAX {
        return refused("is too long");
    }
    if target.chars().any(char::is_control) {
        return refused("contains control characters");
    }
    let Ok(inner) = Path::new(target).strip_prefix(kubelet_dir) else {
        return refused(&format!("is not below the kubelet's directory {}", kubelet_dir.display()));
    };
    if inner.as_os_str().is_empty() || !inner.components().all(|part| matches!(part, Component::Normal(_))) {
        return refused("is not a plain path below the kubelet's directory");
    }
    Ok(inner.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_paths_below_the_kubelets_directory_are_targets() {
        let dir = Path::new("/var/lib/kubelet");
        assert_eq!(beneath("/var/lib/kubelet/pods/1/mount", dir), Ok("pods/1/mount".into()));
        assert_eq!(beneath("/var/lib/kubelet//pods/./1", dir), Ok("pods/1".into()));
        let long = format!("/var/lib/kubelet/{}", "x".repeat(PATH_MAX));
        for bad in
            ["", "/", "/etc", "pods/1", "/var/lib/kubelet", "/var/lib/kubelet2/x", "/var/lib/kubelet/../x", &long]
        {
            assert!(beneath(bad, dir).is_err(), "{bad}");
        }
        assert!(beneath("/var/lib/kubelet/a\nb", dir).is_err());
    }
}
