//! Checks whether KVM can run a guest here. It is not enough that the device exists, or that it creates a virtual
//! machine: some hosts offer a KVM that interprets guest code one instruction at a time, a thousand times slower than
//! QEMU's own translator. So a child process runs a small loop in 64-bit mode on a virtual CPU, with a time limit.

use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, WaitOptions, pidfd_open, waitpid};

use serde::{Deserialize, Serialize};

use crate::atomic;
use crate::process::{ProcessId, wait_readable};

/// Hardware takes some 20 ms for the loop below; interpretation takes about a minute.
const TIME_LIMIT: Duration = Duration::from_secs(3);
const ITERATIONS: u32 = 10_000_000;
/// If the loop has made less progress than this at the first check, it will not finish in time, however busy the host
/// is.
const FIRST_LOOK: Duration = Duration::from_millis(500);
const HOPELESS: u64 = 200_000;

/// Runs a virtual CPU. The answer does not change while the host is up, so callers should cache it; `Err` holds a
/// message for users.
pub fn usable() -> Result<(), String> {
    if let Err(e) = std::fs::OpenOptions::new().read(true).write(true).open(DEVICE) {
        return Err(format!("{DEVICE} cannot be opened: {e}"));
    }
    let memory = GuestMemory::new().map_err(|e| format!("no memory to try KVM with: {e}"))?;
    // SAFETY: the child of this possibly multi-threaded process only makes system calls: no allocation, no lock, no
    // return.
    let pid = match unsafe { libc::fork() } {
        -1 => return Err(format!("no process to try KVM in: {}", std::io::Error::last_os_error())),
        // SAFETY: as above; `_exit` runs no destructors and no exit handlers. Descriptors are closed because this child
        // would otherwise keep a lock of the caller, and it exits with its parent.
        0 => unsafe {
            libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0);
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::_exit(probe(&memory) as i32)
        },
        pid => Pid::from_raw(pid).expect("fork returns a positive pid to the parent"),
    };
    let finished = watch(pid, &memory).unwrap_or(false);
    if !finished {
        // Our own child that has not been reaped: its PID cannot have been reused.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
    let status = waitpid(Some(pid), WaitOptions::empty());
    if !finished {
        return Err(format!(
            "{DEVICE} is there, but a virtual CPU runs a short loop hundreds of times too slowly: guest code is interpreted or hangs"
        ));
    }
    match status {
        Ok(Some((_, status))) => verdict(status.exit_status()),
        _ => Err("the process that tried KVM could not be waited for".into()),
    }
}

/// Whether the child exits in time. Stops waiting as soon as it is clear that it will not.
fn watch(pid: Pid, memory: &GuestMemory) -> std::io::Result<bool> {
    let child = pidfd_open(pid, PidfdFlags::empty())?;
    if wait_readable(&child, FIRST_LOOK)? {
        return Ok(true);
    }
    Ok(memory.count() >= HOPELESS && wait_readable(&child, TIME_LIMIT - FIRST_LOOK)?)
}

/// The guest's memory, shared with the child to observe the guest's progress.
struct GuestMemory(*mut u8);

impl GuestMemory {
    const SIZE: usize = 0x20_0000;
    /// Offset of the guest's counter.
    const COUNTER: usize = 0x10_0000;

    fn new() -> std::io::Result<GuestMemory> {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address chosen by the kernel cannot affect existing memory.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), Self::SIZE, access, kind, -1, 0) };
        if address == libc::MAP_FAILED { Err(std::io::Error::last_os_error()) } else { Ok(GuestMemory(address.cast())) }
    }

    fn count(&self) -> u64 {
        // SAFETY: inside the mapping, aligned, and only written by the guest; a torn read would only miscount.
        unsafe { self.0.add(Self::COUNTER).cast::<u64>().read_volatile() }
    }
}

impl Drop for GuestMemory {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and nothing refers to it any more.
        unsafe { libc::munmap(self.0.cast(), Self::SIZE) };
    }
}

/// The result and the boot it was obtained in.
#[derive(Serialize, Deserialize)]
struct Finding {
    boot: u64,
    /// Why KVM is not usable; `None` if it is.
    unusable: Option<String>,
}

/// Like [`usable`], but checked once per boot and cached in `file`, since the check takes seconds where KVM does not
/// work. If the result cannot be stored, it is determined again.
pub fn usable_since_boot(file: &Path) -> Result<(), String> {
    // Without the device the check is cheap, and a module that is loaded later must not be missed.
    let boot = ProcessId::current().map(|process| process.boot).ok().filter(|_| Path::new(DEVICE).exists());
    let Some(boot) = boot else { return usable() };
    if let Ok(Some(finding)) = atomic::read_json::<Finding>(file)
        && finding.boot == boot
    {
        return finding.unusable.map_or(Ok(()), Err);
    }
    let found = usable();
    if let Err(error) = atomic::write_json(file, &Finding { boot, unusable: found.clone().err() }) {
        tracing::warn!(%error, "failed to cache the KVM probe result");
    }
    found
}

const DEVICE: &str = "/dev/kvm";

/// How far the probe got, as the exit status of the child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
enum Outcome {
    Works = 0,
    NoDevice = 10,
    NoMachine = 11,
    NoMemory = 12,
    NoCpu = 13,
    NoLongMode = 14,
    RunFailed = 15,
    WrongResult = 16,
    OtherArchitecture = 17,
}

fn verdict(status: Option<i32>) -> Result<(), String> {
    use Outcome::*;
    let outcome = [Works, NoDevice, NoMachine, NoMemory, NoCpu, NoLongMode, RunFailed, WrongResult, OtherArchitecture]
        .into_iter()
        .find(|o| Some(*o as i32) == status);
    let why = match outcome {
        Some(Works) => return Ok(()),
        Some(NoDevice) => "could not be opened or speaks another version of its interface",
        Some(NoMachine) => "cannot make a virtual machine",
        Some(NoMemory) => "cannot give a virtual machine memory",
        Some(NoCpu) => "cannot make a virtual CPU",
        Some(NoLongMode) => "cannot put a virtual CPU into 64-bit mode",
        Some(RunFailed) => "cannot run a virtual CPU",
        Some(WrongResult) => "ran a virtual CPU that computed a wrong result",
        Some(OtherArchitecture) => "can be judged by this build on x86_64 only",
        None => "crashed the process that tried it",
    };
    Err(format!("{DEVICE} is there, but {why}"))
}

#[cfg(not(target_arch = "x86_64"))]
fn probe(_: &GuestMemory) -> Outcome {
    Outcome::OtherArchitecture
}

#[cfg(target_arch = "x86_64")]
use x86_64::probe;

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use super::{GuestMemory, ITERATIONS, Outcome};
    use std::mem::zeroed;
    use std::ptr::null_mut;

    // A request has 32 bits; musl's type is signed.
    const GET_API_VERSION: libc::Ioctl = 0xae00;
    const CREATE_VM: libc::Ioctl = 0xae01;
    const GET_VCPU_MMAP_SIZE: libc::Ioctl = 0xae04;
    const GET_SUPPORTED_CPUID: libc::Ioctl = 0xc008_ae05_u32 as libc::Ioctl;
    const CREATE_VCPU: libc::Ioctl = 0xae41;
    const SET_USER_MEMORY_REGION: libc::Ioctl = 0x4020_ae46;
    const RUN: libc::Ioctl = 0xae80;
    const SET_REGS: libc::Ioctl = 0x4090_ae82;
    const GET_SREGS: libc::Ioctl = 0x8138_ae83_u32 as libc::Ioctl;
    const SET_SREGS: libc::Ioctl = 0x4138_ae84;
    const SET_CPUID2: libc::Ioctl = 0x4008_ae90;
    const EXIT_HLT: u32 = 5;

    const PAGE_TABLES: usize = 0x2000;
    const CODE: usize = 0x1_0000;

    #[repr(C)]
    struct MemoryRegion {
        slot: u32,
        flags: u32,
        guest_phys_addr: u64,
        memory_size: u64,
        userspace_addr: u64,
    }

    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Segment {
        base: u64,
        limit: u32,
        selector: u16,
        kind: u8,
        present: u8,
        dpl: u8,
        db: u8,
        s: u8,
        l: u8,
        g: u8,
        avl: u8,
        unusable: u8,
        padding: u8,
    }

    #[repr(C)]
    struct SystemRegisters {
        /// cs, ds, es, fs, gs, ss, tr, ldt.
        segments: [Segment; 8],
        descriptor_tables: [u64; 4],
        cr0: u64,
        cr2: u64,
        cr3: u64,
        cr4: u64,
        cr8: u64,
        efer: u64,
        apic_base: u64,
        interrupt_bitmap: [u64; 4],
    }

    #[repr(C)]
    struct Registers {
        /// rax, rbx, rcx, rdx, rsi, rdi, rsp, rbp, r8 to r15.
        general: [u64; 16],
        rip: u64,
        rflags: u64,
    }

    #[repr(C)]
    struct Cpuid {
        entries: u32,
        padding: u32,
        data: [[u32; 10]; 128],
    }

    /// Increments a counter in memory and halts:
    /// `mov ecx, ITERATIONS; again: inc qword [GuestMemory::COUNTER]; dec ecx; jnz again; hlt`
    fn guest_code() -> [u8; 18] {
        let n = ITERATIONS.to_le_bytes();
        let c = (GuestMemory::COUNTER as u32).to_le_bytes();
        [
            0xb9, n[0], n[1], n[2], n[3], // mov ecx, imm32
            0x48, 0xff, 0x04, 0x25, c[0], c[1], c[2], c[3], // inc qword [disp32]
            0xff, 0xc9, // dec ecx
            0x75, 0xf4, // jnz -12
            0xf4, // hlt
        ]
    }

    /// Runs in a forked child: only system calls on plain memory.
    pub(super) fn probe(memory: &GuestMemory) -> Outcome {
        match run(memory) {
            Ok(()) => Outcome::Works,
            Err(outcome) => outcome,
        }
    }

    fn run(guest: &GuestMemory) -> Result<(), Outcome> {
        let memory = guest.0;
        // SAFETY: every call passes a live descriptor and, where the request reads or writes memory, a pointer to a
        // structure of the request's layout that outlives the call; mapped memory is used within its bounds.
        unsafe {
            let kvm = check(libc::open(c"/dev/kvm".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC), Outcome::NoDevice)?;
            if libc::ioctl(kvm, GET_API_VERSION, 0) != 12 {
                return Err(Outcome::NoDevice);
            }
            let vm = check(libc::ioctl(kvm, CREATE_VM, 0), Outcome::NoMachine)?;
            let region = MemoryRegion {
                slot: 0,
                flags: 0,
                guest_phys_addr: 0,
                memory_size: GuestMemory::SIZE as u64,
                userspace_addr: memory as u64,
            };
            check(libc::ioctl(vm, SET_USER_MEMORY_REGION, &region), Outcome::NoMemory)?;
            let cpu = check(libc::ioctl(vm, CREATE_VCPU, 0), Outcome::NoCpu)?;
            let size = check(libc::ioctl(kvm, GET_VCPU_MMAP_SIZE, 0), Outcome::NoCpu)? as usize;
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let shared = libc::mmap(null_mut(), size, access, libc::MAP_SHARED, cpu, 0);
            if shared == libc::MAP_FAILED {
                return Err(Outcome::NoCpu);
            }

            enter_long_mode(kvm, cpu, memory)?;
            memory.add(CODE).copy_from_nonoverlapping(guest_code().as_ptr(), guest_code().len());
            check(libc::ioctl(cpu, RUN, 0), Outcome::RunFailed)?;
            // `exit_reason` follows eight bytes of flags in the shared page.
            if shared.cast::<u8>().add(8).cast::<u32>().read_volatile() != EXIT_HLT {
                return Err(Outcome::RunFailed);
            }
        }
        if guest.count() == u64::from(ITERATIONS) { Ok(()) } else { Err(Outcome::WrongResult) }
    }

    /// Maps the first 2 MiB one to one and points the CPU at the code.
    ///
    /// # Safety
    /// The descriptors are a KVM device and one of its virtual CPUs; `memory` is a [`GuestMemory`].
    unsafe fn enter_long_mode(kvm: i32, cpu: i32, memory: *mut u8) -> Result<(), Outcome> {
        const PRESENT_WRITABLE: u64 = 0b11;
        const LARGE_PAGE: u64 = 1 << 7;
        // SAFETY: the caller's promise; all offsets are inside the memory, the structures have KVM's layout, and zero
        // is a valid value for every field of them.
        unsafe {
            let mut cpuid: Cpuid = zeroed();
            cpuid.entries = cpuid.data.len() as u32;
            check(libc::ioctl(kvm, GET_SUPPORTED_CPUID, &mut cpuid), Outcome::NoLongMode)?;
            check(libc::ioctl(cpu, SET_CPUID2, &cpuid), Outcome::NoLongMode)?;

            let tables = memory.add(PAGE_TABLES).cast::<u64>();
            tables.write((PAGE_TABLES as u64 + 0x1000) | PRESENT_WRITABLE);
            tables.add(512).write((PAGE_TABLES as u64 + 0x2000) | PRESENT_WRITABLE);
            tables.add(1024).write(LARGE_PAGE | PRESENT_WRITABLE);

            let mut system: SystemRegisters = zeroed();
            check(libc::ioctl(cpu, GET_SREGS, &mut system), Outcome::NoLongMode)?;
            system.cr3 = PAGE_TABLES as u64;
            system.cr4 = 1 << 5; // PAE
            system.cr0 = 0x8005_0033; // PG, AM, WP, NE, ET, MP, PE
            system.efer = 0x500; // LMA, LME
            let flat = Segment { limit: u32::MAX, present: 1, s: 1, g: 1, ..zeroed() };
            system.segments[0] = Segment { selector: 8, kind: 11, l: 1, ..flat };
            for data in &mut system.segments[1..6] {
                *data = Segment { selector: 16, kind: 3, db: 1, ..flat };
            }
            check(libc::ioctl(cpu, SET_SREGS, &system), Outcome::NoLongMode)?;

            let registers = Registers { general: [0; 16], rip: CODE as u64, rflags: 2 };
            check(libc::ioctl(cpu, SET_REGS, &registers), Outcome::NoLongMode)?;
        }
        Ok(())
    }

    fn check(result: i32, outcome: Outcome) -> Result<i32, Outcome> {
        if result < 0 { Err(outcome) } else { Ok(result) }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn structures_have_the_sizes_that_the_requests_encode() {
            assert_eq!(size_of::<MemoryRegion>(), 0x20);
            assert_eq!(size_of::<Registers>(), 0x90);
            assert_eq!(size_of::<SystemRegisters>(), 0x138);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn the_question_is_answered_in_time_and_a_no_has_a_reason() {
        let start = Instant::now();
        let answer = usable();
        assert!(start.elapsed() < TIME_LIMIT + Duration::from_secs(5));
        if let Err(why) = answer {
            assert!(why.starts_with("/dev/kvm "), "{why}");
        }
    }

    #[test]
    fn every_outcome_but_one_is_a_reason() {
        assert_eq!(verdict(Some(Outcome::Works as i32)), Ok(()));
        assert_eq!(
            verdict(Some(Outcome::NoCpu as i32)),
            Err("/dev/kvm is there, but cannot make a virtual CPU".into())
        );
        assert_eq!(verdict(None), Err("/dev/kvm is there, but crashed the process that tried it".into()));
    }
}
