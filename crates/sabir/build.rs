//! Links the unoptimized binary of tests to a fixed address on Linux.
//!
//! Its 360,000 relocations took half of the CPU of a start (15.7 ms with them, 8.5 without), and the
//! tests start it thousands of times. Optimized binaries stay position-independent.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
    if is("OPT_LEVEL", "0")
        && is("CARGO_CFG_TARGET_OS", "linux")
        && is("CARGO_CFG_TARGET_ENV", "gnu")
    {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
