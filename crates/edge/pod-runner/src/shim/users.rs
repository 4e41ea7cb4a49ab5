//! `/etc/passwd` and `/etc/group` of a container: the image's own, plus the user that guests run as, which libvirt
//! looks up by number.

use crate::resolve::home;

const QEMU: u32 = 107;

pub(super) fn passwd(image: &str) -> String {
    let line = format!("qemu:x:{QEMU}:{QEMU}:virtual machines:{}:/bin/sh", home(QEMU));
    let root = format!("root:x:0:0:root:{}:/bin/sh", home(0));
    with_entry(&with_default(image, root), "qemu", line)
}

pub(super) fn group(image: &str) -> String {
    with_entry(&with_default(image, "root:x:0:".to_owned()), "qemu", format!("qemu:x:{QEMU}:"))
}

/// Adds root if the image has no such user.
fn with_default(text: &str, root: String) -> String {
    if text.lines().any(|l| l.starts_with("root:")) { text.to_owned() } else { format!("{root}\n{text}") }
}

/// Replaces entries with the same name or number.
fn with_entry(text: &str, name: &str, line: String) -> String {
    let other = |l: &&str| {
        let mut fields = l.split(':');
        fields.next() != Some(name) && fields.nth(1) != Some(&QEMU.to_string())
    };
    let mut out: String = text.lines().filter(other).map(|l| format!("{l}\n")).collect();
    out.push_str(&line);
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_of_guests_takes_its_name_and_number_from_whoever_had_them() {
        let image = "root:x:0:0:root:/root:/bin/bash\nsshd:x:107:65534::/run/sshd:/usr/sbin/nologin\nqemu:x:5:5::/:/bin/sh\nu:x:1:107::/:/bin/sh\n";
        assert_eq!(
            passwd(image),
            "root:x:0:0:root:/root:/bin/bash\nu:x:1:107::/:/bin/sh\nqemu:x:107:107:virtual machines:/home/qemu:/bin/sh\n"
        );
        assert_eq!(group("kvm:x:107:qemu\nroot:x:0:"), "root:x:0:\nqemu:x:107:\n");
    }

    #[test]
    fn an_image_without_users_gets_two() {
        assert_eq!(passwd("").lines().count(), 2);
        assert_eq!(group(""), "root:x:0:\nqemu:x:107:\n");
    }
}
