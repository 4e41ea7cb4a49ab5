//! Machine types that QEMU on this node supports. A VMI is only scheduled to nodes labelled with its machine type.

use std::process::{Command, Stdio};

use api::labels;

/// Labels for all machine types. If QEMU does not answer there are none, and VMIs that name a machine type go
/// elsewhere.
pub(crate) fn labels() -> Vec<String> {
    let qemu = format!("qemu-system-{}", std::env::consts::ARCH);
    let answer = Command::new(&qemu).args(["-machine", "help"]).stdin(Stdio::null()).stderr(Stdio::null()).output();
    match answer {
        Ok(output) if output.status.success() => labels_in(&String::from_utf8_lossy(&output.stdout)),
        Ok(output) => {
            tracing::warn!(qemu, status = %output.status, "QEMU reports no machine types");
            vec![]
        }
        Err(error) => {
            tracing::warn!(qemu, %error, "failed to query QEMU's machine types");
            vec![]
        }
    }
}

/// Parses one machine per line, its name first, below a heading.
fn labels_in(help: &str) -> Vec<String> {
    let names = help.lines().skip(1).filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "none");
    names.map(|name| format!("{}{name}", labels::MACHINE_TYPE_PREFIX)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_machine_but_none_has_a_label() {
        let help = "Supported machines are:\n\
                    q35                  Standard PC (Q35 + ICH9, 2009) (alias of pc-q35-7.2)\n\
                    pc-q35-7.2           Standard PC (Q35 + ICH9, 2009)\n\
                    none                 empty machine\n";
        let expected = ["machine-type.node.kubevirt.io/q35", "machine-type.node.kubevirt.io/pc-q35-7.2"];
        assert_eq!(labels_in(help), expected);
    }
}
