//! Machine types that QEMU on this node supports. A VMI is only scheduled to nodes labelled with its machine type.

use api::labels::MACHINE_TYPE_PREFIX;

/// Labels for all machine types in what `qemu -machine help` prints: one machine per line, its name first, below a
/// heading.
pub fn labels(help: &str) -> Vec<String> {
    let names = help.lines().skip(1).filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "none");
    names.map(|name| format!("{MACHINE_TYPE_PREFIX}{name}")).collect()
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
        assert_eq!(labels(help), expected);
    }
}
