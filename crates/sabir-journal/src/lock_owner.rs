//! Finds the process that holds the lock of a journal.
//!
//! The kernel's list of locks is the source, because a file with a process id could be stale.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

/// Returns the id of the process that has locked the file; `None` if none has, or the system does not tell.
pub(crate) fn find_lock_owner(file: &File) -> Option<u32> {
    let found = file.metadata().ok()?;
    parse_lock_owner(
        &std::fs::read_to_string("/proc/locks").ok()?,
        found.dev(),
        found.ino(),
    )
}

/// Parses the text of `/proc/locks`. A line is `1: FLOCK  ADVISORY  WRITE 26764 fe:00:11083986 0 EOF` (see proc_locks(5)),
/// with the device in hexadecimal.
fn parse_lock_owner(locks: &str, device: u64, inode: u64) -> Option<u32> {
    // The encoding of a Linux `dev_t` in 64 bits (makedev(3)), from the lowest bit: minor bits 0 to
    // 7, major bits 0 to 11, minor bits 8 to 31, major bits 12 to 31.
    let major = (device >> 8 & 0xfff) | (device >> 32 & !0xfff);
    let minor = (device & 0xff) | (device >> 12 & 0xffff_ff00);
    let place = format!("{major:02x}:{minor:02x}:{inode}");
    locks.lines().find_map(|line| {
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        match words.as_slice() {
            // A process in another PID namespace has no id here; the kernel lists it as 0.
            // The standard library locks with flock(2), which this list calls FLOCK.
            [_, "FLOCK", _, "WRITE", process, at, ..] if *at == place => {
                process.parse().ok().filter(|id| *id > 0)
            }
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::parse_lock_owner;

    #[test]
    fn lock_owners_are_parsed_from_proc_locks() {
        let locks = "1: FLOCK  ADVISORY  WRITE 26764 fe:00:110 0 EOF\n1: -> FLOCK  ADVISORY  WRITE 9 fe:00:112 0 EOF\n\
                     2: POSIX  ADVISORY  WRITE 7 fe:00:111 0 EOF\n3: FLOCK  ADVISORY  READ 8 fe:00:111 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 12 103:100003:111 0 EOF\n5: FLOCK  ADVISORY  WRITE 0 fe:00:113 0 EOF\nx\n";
        for (device, inode, expected) in [
            (0xfe00, 110, Some(26764)),
            (0xfe00, 111, None),
            (0xfe00, 112, None),
            (0xfe00, 113, None),
        ] {
            assert_eq!(
                parse_lock_owner(locks, device, inode),
                expected,
                "{device:x} {inode}"
            );
        }
        let (major, minor) = (0x103_u64, 0x10_0003_u64);
        let device = (major & 0xfff) << 8 | (minor & 0xff) | (minor & !0xff) << 12;
        assert_eq!(parse_lock_owner(locks, device, 111), Some(12));
    }
}
