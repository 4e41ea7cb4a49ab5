//! The seccomp profile of launchers: the system calls that libvirt, QEMU and virt-launcher may make.
//!
//! It permits about what container runtimes permit by default, and `userfaultfd`, which post-copy migration needs.
//! Whatever is not listed fails, so calls that a later kernel brings are forbidden, too. Absent are calls to
//!
//! - look into other processes and into the kernel: tracing, BPF, its log
//! - mount, change the root directory, swap, or set quotas
//! - make or enter namespaces
//! - load modules, boot another kernel, set clocks, or reach hardware
//! - use keys of the kernel, open files by handle, or place memory on NUMA nodes
//! - use io_uring, which does not go through these checks
//! - use what the kernel has given up

use serde_json::{Value, json};

/// Where the profile is, below the kubelet's directory of profiles; as in the KubeVirt object.
pub const FILE: &str = "kubevirt/kubevirt.json";

const FILES: &str = "\
    access chdir chmod chown close close_range copy_file_range creat dup dup2 dup3 faccessat faccessat2 \
    fadvise64 fallocate fchdir fchmod fchmodat fchown fchownat fcntl fdatasync fgetxattr flistxattr \
    flock fremovexattr fsetxattr fstat fstatfs fsync ftruncate futimesat getcwd getdents getdents64 \
    getxattr ioctl lchown lgetxattr link linkat listxattr llistxattr lremovexattr lseek lsetxattr lstat \
    mkdir mkdirat mknod mknodat newfstatat open openat openat2 pipe pipe2 pread64 preadv preadv2 \
    pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv removexattr rename renameat \
    renameat2 rmdir sendfile setxattr splice stat statfs statx symlink symlinkat sync sync_file_range \
    syncfs tee truncate umask unlink unlinkat utime utimensat utimes vmsplice write writev";
const WAITING: &str = "\
    epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait \
    epoll_wait_old eventfd eventfd2 inotify_add_watch inotify_init inotify_init1 inotify_rm_watch \
    io_cancel io_destroy io_getevents io_pgetevents io_setup io_submit poll ppoll pselect6 select";
const SOCKETS: &str = "\
    accept accept4 bind connect getpeername getsockname getsockopt listen recvfrom recvmmsg recvmsg \
    sendmmsg sendmsg sendto setsockopt shutdown socket socketpair";
const MEMORY: &str = "\
    brk madvise membarrier memfd_create memfd_secret mincore mlock mlock2 mlockall mmap mprotect mremap \
    msync munlock munlockall munmap pkey_alloc pkey_free pkey_mprotect remap_file_pages userfaultfd";
const PROCESSES: &str = "\
    arch_prctl execve execveat exit exit_group fork futex futex_waitv get_robust_list get_thread_area \
    getpid getppid getrandom getrlimit getrusage gettid landlock_add_rule landlock_create_ruleset \
    landlock_restrict_self prctl prlimit64 restart_syscall rseq seccomp set_robust_list set_thread_area \
    set_tid_address setrlimit sysinfo uname vfork wait4 waitid";
const SIGNALS: &str = "\
    kill pause pidfd_open pidfd_send_signal rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo \
    rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo sigaltstack signalfd signalfd4 tgkill \
    tkill";
const SCHEDULING: &str = "\
    getcpu getpriority ioprio_get ioprio_set sched_get_priority_max sched_get_priority_min \
    sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval \
    sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield setpriority";
const IDENTITIES: &str = "\
    capget capset getegid geteuid getgid getgroups getpgid getpgrp getresgid getresuid getsid getuid \
    setfsgid setfsuid setgid setgroups setpgid setregid setresgid setresuid setreuid setsid setuid";
const TIME: &str = "\
    alarm clock_getres clock_gettime clock_nanosleep getitimer gettimeofday nanosleep setitimer time \
    timer_create timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create \
    timerfd_gettime timerfd_settime times";
const IPC: &str = "\
    mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink msgctl msgget msgrcv msgsnd \
    semctl semget semop semtimedop shmat shmctl shmdt shmget";

/// The flags of `clone` that make namespaces.
const NEW_NAMESPACES: u64 = 0x7e02_0000;
/// `personality` with the default domain, and without changing anything.
const PERSONALITIES: [u64; 2] = [0, 0xffff_ffff];
const EPERM: u32 = 1;
const ENOSYS: u32 = 38;

/// The profile in the format of the OCI runtime specification.
pub fn profile() -> Value {
    let lists = [FILES, WAITING, SOCKETS, MEMORY, PROCESSES, SIGNALS, SCHEDULING, IDENTITIES, TIME, IPC];
    let names: Vec<&str> = lists.iter().flat_map(|list| list.split_whitespace()).collect();
    let mut calls = vec![
        json!({"names": names, "action": "SCMP_ACT_ALLOW"}),
        json!({"names": ["clone"], "action": "SCMP_ACT_ALLOW",
               "args": [{"index": 0, "value": NEW_NAMESPACES, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}]}),
        // Its flags are in memory, where a filter cannot look. The C library then takes clone.
        json!({"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": ENOSYS}),
    ];
    calls.extend(PERSONALITIES.map(|domain| {
        json!({"names": ["personality"], "action": "SCMP_ACT_ALLOW",
               "args": [{"index": 0, "value": domain, "valueTwo": 0, "op": "SCMP_CMP_EQ"}]})
    }));
    json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": EPERM,
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"],
        "syscalls": calls,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_is_listed_once_and_those_that_break_out_are_not() {
        let profile = profile();
        let names: Vec<&str> =
            profile["syscalls"][0]["names"].as_array().unwrap().iter().flat_map(Value::as_str).collect();
        let mut sorted = names.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), names.len());
        for needed in ["userfaultfd", "ioctl", "mmap", "futex", "prlimit64", "rseq", "execve"] {
            assert!(names.contains(&needed), "{needed}");
        }
        let forbidden = [
            "ptrace",
            "bpf",
            "mount",
            "unshare",
            "setns",
            "clone",
            "clone3",
            "init_module",
            "kexec_load",
            "keyctl",
            "open_by_handle_at",
            "io_uring_setup",
            "perf_event_open",
            "reboot",
            "personality",
            "chroot",
        ];
        for call in forbidden {
            assert!(!names.contains(&call), "{call}");
        }
        assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
    }
}
