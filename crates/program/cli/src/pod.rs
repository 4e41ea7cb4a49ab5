//! What our programs share when they run in a Pod: the cluster they are in, their certificate, their heap.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use api::config::DEFAULT_INSTALL_NAMESPACE;
use informer::client::RequestCounter;
use kube::config::{KubeConfigOptions, Kubeconfig};
use role_tls::Certificate;

/// File with the namespace of a Pod's service account.
const POD_NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// The flags that say which cluster and which installation a program works for.
#[derive(Debug, clap::Args)]
pub(crate) struct Cluster {
    /// Path of the kubeconfig file [default: the Pod's service account, or $KUBECONFIG]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Namespace of the installation [default: the Pod's own, or kubevirt]
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
}

impl Cluster {
    /// How to reach the cluster: by the kubeconfig, or as a Pod of it.
    pub(crate) async fn config(&self) -> Result<kube::Config> {
        let Some(path) = &self.kubeconfig else {
            return kube::Config::infer().await.context("no cluster is configured; pass --kubeconfig");
        };
        let shown = path.display();
        let file = Kubeconfig::read_from(path).with_context(|| format!("cannot read the kubeconfig {shown}"))?;
        let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
        config.with_context(|| format!("the kubeconfig {shown} cannot be used"))
    }

    pub(crate) fn install_namespace(&self) -> String {
        let pod = || std::fs::read_to_string(POD_NAMESPACE).ok().map(|text| text.trim().to_owned());
        let given = self.namespace.clone().or_else(pod).filter(|name| !name.is_empty());
        given.unwrap_or_else(|| DEFAULT_INSTALL_NAMESPACE.to_owned())
    }
}

/// The given files, or those at the default path, or a self-signed certificate for `name`.
pub(crate) fn certificate(
    (cert, usual_cert): (&Path, &str),
    (key, usual_key): (&Path, &str),
    name: &str,
) -> Result<Certificate> {
    if cert.exists() || key.exists() {
        return Ok(Certificate::Files { cert: cert.to_owned(), key: key.to_owned() });
    }
    if cert.as_os_str() == usual_cert && key.as_os_str() == usual_key {
        return Ok(Certificate::SelfSigned { names: vec![name.to_owned(), "localhost".to_owned()] });
    }
    bail!("neither {} nor {} exists; pass a certificate and its key", cert.display(), key.display())
}

/// Configures the allocator to use a single heap and to trim free memory at its end.
///
/// For glibc. The static program has musl's allocator, with which there is nothing to do here or in [`trim`]: it has one
/// heap, and unmaps small groups of blocks as soon as all are free. docs/dev/images.md compares them, and mimalloc.
pub(crate) fn one_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: sets numbers inside the allocator, before there is a second thread.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 256 * 1024);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 128 * 1024);
    }
}

/// How often free memory is returned, if there was work.
const TRIM_PERIOD: Duration = Duration::from_secs(2);

/// After a burst of work the heap has free pages between used ones; the allocator keeps them unless told to trim.
pub(crate) async fn give_memory_back(requests: RequestCounter) {
    let mut before = 0;
    loop {
        tokio::time::sleep(TRIM_PERIOD).await;
        let total = requests.total();
        if total != before {
            before = total;
            trim();
        }
    }
}

/// Returns free pages to the system.
fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: returns free pages to the system; does not touch memory in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// How long the start of a program takes at most: caches are filled, certificates read, connections open.
const START: Duration = Duration::from_secs(30);

/// Once the program has started, gives back the pages of its file that were mapped for that.
///
/// All programs are one file, and the kernel maps fifteen neighbours along with each page that is touched. Pages that are
/// used later come back from the page cache without a read from the disk.
pub(crate) async fn forget_start() {
    tokio::time::sleep(START).await;
    unmap_program();
}

/// Unmaps the pages of the program's file that nobody writes to: code and constants.
fn unmap_program() {
    // SAFETY: the callback is given what it expects, and keeps nothing of it.
    unsafe { libc::dl_iterate_phdr(Some(unmap_segments), std::ptr::null_mut()) };
}

/// Called with the program first; libraries, if there are any, are left alone.
unsafe extern "C" fn unmap_segments(
    object: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    _data: *mut libc::c_void,
) -> libc::c_int {
    const STOP: libc::c_int = 1;
    let page = rustix::param::page_size();
    // SAFETY: the loader describes the program that runs, which stays as long as it does.
    let (base, headers) = unsafe {
        let object = &*object;
        (object.dlpi_addr, std::slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum)))
    };
    // A segment that may be written to has relocated addresses in it, which are not in the file.
    for header in headers.iter().filter(|header| header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W == 0) {
        let (Ok(start), Ok(length)) = (usize::try_from(base + header.p_vaddr), usize::try_from(header.p_memsz)) else {
            continue;
        };
        let aligned = start - start % page;
        // SAFETY: the mapping is one of the file and was never written to, so a page that is touched again is the same.
        // A refusal would change nothing.
        unsafe { libc::madvise(aligned as *mut libc::c_void, start + length - aligned, libc::MADV_DONTNEED) };
    }
    STOP
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Resident bytes of the mappings of this program's file, and a sum over its constants.
    #[test]
    fn pages_of_the_program_are_given_back_and_come_again() {
        let of_file = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("RssFile:")).unwrap();
            line.split_whitespace().next().unwrap().parse::<u64>().unwrap()
        };
        // Something of everything: arguments of all programs, messages, formatting.
        let text = || <Cluster as clap::Args>::augment_args(clap::Command::new("x")).render_long_help().to_string();
        let (shown, before) = (text(), of_file());
        unmap_program();
        let after = of_file();
        assert!(after < before / 2, "{before} KiB before, {after} after");
        assert_eq!(text(), shown);
    }

    #[test]
    fn a_certificate_that_was_named_must_be_there() {
        let usual = ("/nonexistent/usual.crt", "/nonexistent/usual.key");
        let of = |cert: &str| certificate((Path::new(cert), usual.0), (Path::new(usual.1), usual.1), "virt-api");
        assert!(matches!(of(usual.0), Ok(Certificate::SelfSigned { .. })));
        assert!(of("/nonexistent/tls.crt").is_err());
    }
}
