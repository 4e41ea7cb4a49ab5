//! `container-disk --no-op`: does nothing, in the image of a container disk, so that the Pod's status shows the image's
//! digest.
//!
//! `container-disk --copy-path PATH`: waits until it is killed, so that the volumes of its Pod stay on the node. KubeVirt's
//! program listens on `PATH.sock` meanwhile, for virt-handler to find it; ours finds the volumes without it.
//!
//! A program of its own because it runs in foreign images with hardly any memory and processor time, and without
//! capabilities: it is small, static and depends on nothing.

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs with this command line, including the program's name.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<String> = args.into_iter().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect();
    match order(&args) {
        Ok(Order::Nothing) => ExitCode::SUCCESS,
        Ok(Order::Wait) => loop {
            std::thread::park(); // may wake up for no reason
        },
        Err(why) => {
            eprintln!("container-disk: {why}");
            ExitCode::from(2)
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Order {
    Nothing,
    Wait,
}

/// KubeVirt's program can also keep an image mounted for virt-handler. Here the kubelet mounts images.
fn order(args: &[String]) -> Result<Order, String> {
    match args {
        [only] if only == "--no-op" => Ok(Order::Nothing),
        [flag, _] if flag == "--copy-path" => Ok(Order::Wait),
        [] => Err("missing argument: --no-op or --copy-path PATH".to_owned()),
        other => Err(format!(
            "unknown argument {:?}; only --no-op and --copy-path PATH are supported: container disks need the feature gate \
             ImageVolume",
            other.join(" ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doing_nothing_and_waiting_are_known() {
        let order = |args: &[&str]| order(&args.iter().map(|&arg| arg.to_owned()).collect::<Vec<_>>());
        assert_eq!(order(&["--no-op"]), Ok(Order::Nothing));
        assert_eq!(order(&["--copy-path", "/path/hp"]), Ok(Order::Wait));
        assert!(order(&[]).is_err() && order(&["--copy-path"]).is_err());
        assert!(order(&["--image", "/x"]).is_err_and(|why| why.contains("ImageVolume")));
    }
}
