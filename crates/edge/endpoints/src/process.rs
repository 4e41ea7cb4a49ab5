use informer::metrics::Exposition;

/// Memory and CPU usage of this process, if the kernel reports it.
pub fn write_process(out: &mut Exposition) {
    let resident = || -> Option<u64> {
        let pages: u64 = std::fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse().ok()?;
        Some(pages * 4096)
    };
    if let Some(bytes) = resident() {
        out.family("process_resident_memory_bytes", "gauge", "Resident memory size in bytes");
        out.sample("process_resident_memory_bytes", &[], bytes);
    }
    let ticks = || -> Option<u64> {
        let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
        // The name in parentheses may contain anything; user and system time are the 12th and 13th field after it.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
        Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
    };
    if let Some(ticks) = ticks() {
        out.family("process_cpu_seconds_total", "counter", "User and system CPU time in seconds");
        out.sample("process_cpu_seconds_total", &[], ticks as f64 / 100.0);
    }
}
