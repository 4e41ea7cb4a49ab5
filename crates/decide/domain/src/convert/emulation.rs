//! Workarounds for guests under TCG that libvirt has no setting for.

use crate::xml::Commandline;

/// libvirt rounds memory to whole mebibytes.
const GRANULE: u64 = 1 << 20;
/// Less than the 64 pages in one word of QEMU's bitmap, and a multiple of the unit in which firmware counts memory.
const ODD: u64 = 64 << 10;
const RAM: &str = "emulated.ram";

/// Memory whose size is not a multiple of 64 pages, in place of libvirt's.
///
/// When a migration reads the dirty bitmap, QEMU handles 64 pages at a time where it can. Before 9.0 that path did not
/// notify TCG, which keeps writing to a page that is already dirty without marking it again, until the guest switches
/// its page tables. Such a guest arrives with stale pages, often an idle kernel's stack, and panics. The path for
/// single pages is correct, and QEMU uses it if the size is odd. It takes longer: some microseconds for each dirty
/// page, during which the guest may have to wait; 60 for a guest that writes to 100 MiB without a pause.
pub(super) fn commandline(domain_type: &str, memory: u64) -> Option<Commandline> {
    // A guest may request any amount; QEMU rejects what is too much.
    let size = memory.div_ceil(GRANULE).saturating_mul(GRANULE).saturating_add(ODD);
    (domain_type == "qemu").then(|| {
        Commandline::new([
            "-object".to_owned(),
            format!("memory-backend-ram,id={RAM},size={size}"),
            "-machine".to_owned(),
            format!("memory-backend={RAM}"),
            "-m".to_owned(),
            format!("size={}k", size >> 10),
        ])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emulated_guest_has_no_whole_number_of_64_pages_and_no_less_than_it_asked_for() {
        const WORD: u64 = 64 * 4096;
        for memory in [1 << 20, (1 << 20) + 1, 192 << 20, 3_000_000_000, 1 << 40] {
            let arguments = commandline("qemu", memory).unwrap().arg;
            let size = arguments.last().unwrap().value.strip_prefix("size=").unwrap().strip_suffix('k').unwrap();
            let size = size.parse::<u64>().unwrap() << 10;
            assert!(size % WORD != 0 && size >= memory && size < memory + (2 << 20), "{memory}: {size}");
            assert!(arguments.iter().any(|argument| argument.value.ends_with(&format!(",size={size}"))));
        }
        assert_eq!(commandline("kvm", 1 << 30), None);
        assert!(commandline("qemu", u64::MAX).is_some(), "an absurd amount is QEMU's to refuse");
    }
}
