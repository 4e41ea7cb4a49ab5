//! `container-disk --no-op`: does nothing, in the image of a container disk, so that the Pod's status shows the image's
//! digest.
//!
//! A program of its own because it runs in foreign images with hardly any memory and processor time, and without
//! capabilities: it is small, static and depends on nothing.

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect();
    match refusal(&args) {
        None => ExitCode::SUCCESS,
        Some(why) => {
            eprintln!("container-disk: {why}");
            ExitCode::from(2)
        }
    }
}

/// KubeVirt's program can also keep an image mounted for virt-handler. Here the kubelet mounts images.
fn refusal(args: &[String]) -> Option<String> {
    match args {
        [only] if only == "--no-op" => None,
        [] => Some("missing argument --no-op".to_owned()),
        other => Some(format!(
            "unknown argument {:?}; only --no-op is supported: container disks need the feature gate ImageVolume",
            other.join(" ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::refusal;

    #[test]
    fn only_doing_nothing_is_known() {
        let refused = |args: &[&str]| refusal(&args.iter().map(|&arg| arg.to_owned()).collect::<Vec<_>>());
        assert_eq!(refused(&["--no-op"]), None);
        assert!(refused(&[]).is_some());
        assert!(refused(&["--copy-path", "/x"]).is_some_and(|why| why.contains("ImageVolume")));
    }
}
