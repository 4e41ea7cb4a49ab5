//! The SELinux label of a launcher, as its VMI's status shows it. Pods that share files with the guest, a migration's
//! target among them, get the same level.

/// The value where SELinux is off.
pub const OFF: &str = "none";

/// The label for `status.selinuxContext`, from the kernel's list of file systems and the attribute `current` of the
/// launcher's process; `None` if the attribute is not a label.
///
/// Another security module may own the attribute, and a kernel with SELinux may have it switched off: the kernel lists
/// SELinux' file system only where it is on, whether it is mounted here or not.
pub fn context(filesystems: &str, current: &str) -> Option<String> {
    let is_on = filesystems.lines().any(|line| line.split_whitespace().last() == Some("selinuxfs"));
    if !is_on {
        return Some(OFF.to_owned());
    }
    let label = current.trim_end_matches(['\0', '\n']);
    is_label(label).then(|| label.to_owned())
}

/// Whether this is `user:role:type:level`; the level may have colons itself.
fn is_label(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ',' | ':');
    text.len() <= 255 && text.chars().all(plain) && text.splitn(4, ':').filter(|part| !part.is_empty()).count() == 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_label_is_that_of_the_process_where_selinux_is_on() {
        let (off, on) = ("nodev\tsysfs\n\text4\n", "nodev\tsysfs\nnodev\tselinuxfs\n\text4\n");
        let label = "system_u:system_r:container_t:s0:c12,c345";
        let cases = [
            (off, "cri-containerd.apparmor.d (enforce)\n", Some("none")),
            (off, "", Some("none")),
            (on, "system_u:system_r:container_t:s0:c12,c345\0", Some(label)),
            (on, "system_u:system_r:spc_t:s0", Some("system_u:system_r:spc_t:s0")),
            (on, "u:r:t:s0-s15:c0.c1023\n", Some("u:r:t:s0-s15:c0.c1023")),
            (on, "kernel\0", None),
            (on, "", None),
            (on, "a:b:c:", None),
            (on, "a:b:c:s0 x", None),
        ];
        for (filesystems, current, expected) in cases {
            assert_eq!(context(filesystems, current).as_deref(), expected, "{current:?}");
        }
    }
}
