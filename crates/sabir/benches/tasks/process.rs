//! What a process has used, as the system tells it.

/// Seconds of CPU that it used, with the children that it has waited for.
pub(crate) fn cpu(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name may hold anything; the numbers stand behind its bracket.
    let numbers = stat
        .rsplit_once(')')
        .map(|(_, numbers)| numbers)
        .unwrap_or_default();
    let ticks: u64 = numbers
        .split_whitespace()
        .skip(11)
        .take(4)
        .filter_map(|number| number.parse::<u64>().ok())
        .sum();
    ticks as f64 / 100.0
}

/// Its share of memory (PSS), in kilobytes.
pub(crate) fn memory(process: u32) -> u64 {
    let rollup =
        std::fs::read_to_string(format!("/proc/{process}/smaps_rollup")).unwrap_or_default();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
    line.and_then(|line| line.split_whitespace().next())
        .and_then(|number| number.parse().ok())
        .unwrap_or_default()
}
