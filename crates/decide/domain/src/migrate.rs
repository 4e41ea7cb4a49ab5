//! Changes to the XML of a domain that migrates.
//!
//! They edit libvirt's own text. Written from our types, it would lose what these do not have.

use std::path::Path;

use launcher_contract::migration::Destination;
use launcher_contract::paths;

use crate::facts::Location;
use crate::xml::QEMU_NAMESPACE;

/// The character device behind the second monitor.
const DEVICE: &str = "recovery";

/// Rewrites a domain's definition for another VMI.
#[derive(Debug, Clone)]
pub struct Readdress {
    /// The domain's name at the target.
    pub domain_name: String,
    name: (String, String),
    identity: [(String, String); 2],
}

impl Readdress {
    /// For a source VMI with this domain name and UID. Namespaces contain no underscores, so the first one ends the
    /// namespace.
    pub fn new(domain_name: &str, uid: &str, to: &Destination) -> Readdress {
        let (namespace, name) = domain_name.split_once('_').unwrap_or(("", domain_name));
        let new = format!("{}_{}", to.namespace, to.name);
        let in_path = |namespace: &str, name: &str| format!("{}/", paths::cloud_init_directory("", namespace, name));
        Readdress {
            name: (format!("<name>{domain_name}</name>"), format!("<name>{new}</name>")),
            identity: [(uid.to_owned(), to.uid.clone()), (in_path(namespace, name), in_path(&to.namespace, &to.name))],
            domain_name: new,
        }
    }

    /// The domain XML to run at the target. It keeps its name: libvirt compares it with the source's, then renames it.
    pub fn live(&self, xml: &str) -> String {
        self.identity.iter().fold(xml.to_owned(), |xml, (old, new)| xml.replace(old, new))
    }

    /// The persistent domain XML at the target, which libvirt does not rename.
    pub fn kept(&self, xml: &str) -> String {
        self.live(xml).replace(&self.name.0, &self.name.1)
    }
}

/// Lets a disk use another file or device at the target. With `bytes`, it shows no more than so much of a device.
pub fn relocated(xml: &str, disk: &str, to: &Location, bytes: Option<u64>) -> String {
    let alias = format!("<alias name='ua-{disk}'/>");
    let element = || {
        let at = xml.find(&alias)?;
        let begin = xml[..at].rfind("<disk ")?;
        let end = at + xml[at..].find("</disk>")?;
        let source = begin + xml[begin..at].find("<source ")?;
        let tag = source + xml[source..end].find('>')? + 1;
        let closed = xml[..tag].ends_with("/>");
        let rest = if closed { tag } else { tag + xml[tag..end].find("</source>")? + "</source>".len() };
        Some((begin, source, rest))
    };
    let Some((begin, source, rest)) = element() else { return xml.to_owned() };
    let (kind, attribute) = match to {
        Location::File(_) => ("file", "file"),
        Location::Device(_) => ("block", "dev"),
    };
    let head = xml[begin..source].replacen("type='file'", "type=''", 1).replacen("type='block'", "type=''", 1);
    let head = head.replacen("type=''", &format!("type='{kind}'"), 1);
    let slice = bytes.map(|bytes| format!("<slices><slice type='storage' offset='0' size='{bytes}'/></slices>"));
    let (before, after, slice) = (&xml[..begin], &xml[rest..], slice.unwrap_or_default());
    format!("{before}{head}<source {attribute}='{}'>{slice}</source>{after}", to.path())
}

/// Adds a second monitor to a domain, with which the launcher makes QEMU listen again after post-copy broke. One that came
/// by post-copy before already has it.
pub fn with_recovery_monitor(xml: &str, socket: &Path) -> String {
    let chardev = format!("socket,id={DEVICE},path={},server=on,wait=off", socket.display());
    let monitor = format!("chardev={DEVICE},mode=control");
    let words = ["-chardev", &chardev, "-mon", &monitor];
    if xml.contains(&format!("'{chardev}'")) {
        return xml.to_owned();
    }
    let Some((inside, "")) = xml.trim_end().rsplit_once("</domain>") else { return xml.to_owned() };
    let words: String = words.iter().map(|word| format!("<qemu:arg value='{word}'/>")).collect();
    // The namespace is declared locally, so it does not matter whether the root element declares it too.
    format!("{inside}<qemu:commandline xmlns:qemu='{QEMU_NAMESPACE}'>{words}</qemu:commandline></domain>\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOCKET: &str = "/s/monitor.sock";

    #[test]
    fn a_disk_moves_to_another_claim_and_its_neighbours_stay() {
        let disk = |name: &str, kind: &str, source: &str| {
            format!(
                "<disk type='{kind}' device='disk'><driver name='qemu' type='raw'/>{source}<target dev='vda' bus='virtio'/>\
                 <alias name='ua-{name}'/></disk>"
            )
        };
        let file = |path: &str| format!("<source file='{path}' index='2'><seclabel/></source>");
        let xml = |middle: String| {
            format!("<devices>{}{middle}{}</devices>", disk("a", "file", &file("/a")), disk("c", "block", &file("/c")))
        };
        let before = xml(disk("b", "file", &file("/b")));
        let on_file = relocated(&before, "b", &Location::File("/new".into()), None);
        assert_eq!(on_file, xml(disk("b", "file", "<source file='/new'></source>")));
        let on_device = relocated(&before, "b", &Location::Device("/dev/b".into()), Some(512));
        let slices = "<slices><slice type='storage' offset='0' size='512'/></slices>";
        assert_eq!(on_device, xml(disk("b", "block", &format!("<source dev='/dev/b'>{slices}</source>"))));
        let back = relocated(&on_device, "b", &Location::File("/new".into()), None);
        assert_eq!(back, on_file);
        let plain = xml(disk("b", "block", "<source dev='/dev/b'/>"));
        assert_eq!(relocated(&plain, "b", &Location::File("/new".into()), None), on_file);
        assert_eq!(relocated(&before, "nobody", &Location::File("/new".into()), None), before);
    }

    #[test]
    fn a_domain_gets_the_monitor_once() {
        let once =
            with_recovery_monitor("<domain type='qemu' id='1'>\n  <name>a</name>\n</domain>\n", Path::new(SOCKET));
        let expected = "<domain type='qemu' id='1'>\n  <name>a</name>\n<qemu:commandline \
            xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'><qemu:arg value='-chardev'/>\
            <qemu:arg value='socket,id=recovery,path=/s/monitor.sock,server=on,wait=off'/>\
            <qemu:arg value='-mon'/><qemu:arg value='chardev=recovery,mode=control'/></qemu:commandline></domain>\n";
        assert_eq!(once, expected);
        assert_eq!(with_recovery_monitor(&once, Path::new(SOCKET)), once);
    }

    #[test]
    fn a_domain_for_another_instance_bears_that_ones_names() {
        let to = Destination { namespace: "b".into(), name: "there".into(), uid: "u-2".into() };
        let readdress = Readdress::new("a_here", "u-1", &to);
        let xml = |namespace: &str, name: &str, uid: &str| {
            let (iso, sockets) =
                (paths::cloud_init_directory("/e", namespace, name), paths::console_directory("/p", uid));
            format!(
                "<domain><name>{namespace}_{name}</name><uuid>x</uuid><uid>{uid}</uid><source file='{iso}/noCloud.iso'/>\
                 <source path='{sockets}/virt-serial0'/></domain>"
            )
        };
        let (here, there) = (xml("a", "here", "u-1"), xml("b", "there", "u-2"));
        assert_eq!((readdress.kept(&here), readdress.domain_name.as_str()), (there.clone(), "b_there"));
        assert_eq!(readdress.live(&here), there.replace("b_there", "a_here"), "libvirt renames it");
    }
}
