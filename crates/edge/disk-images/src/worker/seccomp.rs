//! A filter of system calls: those that have been ways out of sandboxes, and that nothing here needs, fail.

use std::io;

/// Nothing here has a use for these.
const NEVER: &[libc::c_long] = &[
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kcmp,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_personality,
    libc::SYS_pivot_root,
    libc::SYS_process_madvise,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setns,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
];
const NETWORK: &[libc::c_long] = &[libc::SYS_socket, libc::SYS_connect, libc::SYS_bind, libc::SYS_listen];
const EXEC: &[libc::c_long] = &[libc::SYS_execve, libc::SYS_execveat];

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;
/// The calls of the x32 ABI have this bit.
const X32: u32 = 0x4000_0000;

/// Where the number of the call and the architecture are in what the filter looks at.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;

const LOAD: u16 = 0x20;
const IF_EQUAL: u16 = 0x15;
const IF_GREATER_OR_EQUAL: u16 = 0x35;
const RETURN: u16 = 0x06;
const KILL: u32 = 0x8000_0000;
const ALLOW: u32 = 0x7fff_0000;
const REFUSE: u32 = 0x0005_0000 | libc::EPERM as u32;

pub(super) fn install(network: bool, exec: bool) -> io::Result<()> {
    let refused = NEVER.iter().chain(if network { &[] } else { NETWORK }).chain(if exec { &[] } else { EXEC });
    let filter = program(&refused.copied().collect::<Vec<_>>());
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the kernel copies the program, which lives until then, and does not write to it.
    match unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn program(refused: &[libc::c_long]) -> Vec<libc::sock_filter> {
    let step = |code, k| libc::sock_filter { code, jt: 0, jf: 0, k };
    let jump = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
    let mut all = vec![
        step(LOAD, ARCH),
        jump(IF_EQUAL, ARCHITECTURE, 1, 0),
        step(RETURN, KILL),
        step(LOAD, NUMBER),
        jump(IF_GREATER_OR_EQUAL, X32, 0, 1),
        step(RETURN, REFUSE),
    ];
    for call in refused {
        all.push(jump(IF_EQUAL, *call as u32, 0, 1));
        all.push(step(RETURN, REFUSE));
    }
    all.push(step(RETURN, ALLOW));
    all
}
