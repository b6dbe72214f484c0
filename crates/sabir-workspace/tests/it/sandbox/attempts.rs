//! Tests one table of attempts on files, privileges, the kernel and other processes.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::{Scene, worlds};

/// The verdict of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Allowed,
    Denied,
    /// Denied with `EPERM`, by the filter.
    Refused,
    /// Not stopped, as the documentation says.
    Uncovered,
}

use Verdict::{Allowed, Denied, Refused, Uncovered};

/// Selects the attempts that are also made without a sandbox, where they must be allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plain {
    Works,
    /// It would change the machine, needs root, or is malformed on purpose, so that nothing happens
    /// if it is allowed.
    No,
}

use Plain::{No, Works};

type Row = (&'static str, &'static str, Verdict, Verdict, Plain);

/// The number of the case, the attempt, level 1, level 2. `OUT`, `WS` and `HOME` are replaced by the
/// folders, `AGENT` by a process outside.
const FILES: &[Row] = &[
    ("SBX-001", "write WS/new", Allowed, Allowed, Works),
    ("SBX-001", "append WS/inside", Allowed, Allowed, Works),
    ("SBX-001", "truncate WS/inside", Allowed, Allowed, Works),
    ("SBX-001", "mkdir WS/folder", Allowed, Allowed, Works),
    (
        "SBX-001",
        "rename WS/inside WS/renamed",
        Allowed,
        Allowed,
        Works,
    ),
    ("SBX-001", "chmod WS/inside", Allowed, Allowed, Works),
    ("SBX-001", "utime WS/inside", Allowed, Allowed, Works),
    ("SBX-001", "setxattr WS/inside", Allowed, Allowed, Works),
    ("SBX-001", "mkfifo WS/fifo", Allowed, Allowed, Works),
    ("SBX-002", "write OUT/new", Denied, Denied, Works),
    ("SBX-002", "write OUT/file", Denied, Denied, Works),
    ("SBX-002", "append OUT/file", Denied, Denied, Works),
    ("SBX-002", "open-write OUT/file", Denied, Denied, Works),
    ("SBX-002", "unlink OUT/file", Denied, Denied, Works),
    ("SBX-002", "symlink OUT/sym", Denied, Denied, Works),
    ("SBX-002", "mkfifo OUT/fifo", Denied, Denied, Works),
    ("SBX-002", "rmdir OUT/empty", Denied, Denied, Works),
    ("SBX-004", "truncate OUT/file", Denied, Denied, Works),
    ("SBX-005", "write WS/link/new", Denied, Denied, Works),
    ("SBX-005", "write WS/link/file", Denied, Denied, Works),
    ("SBX-007", "link OUT/file WS/hard", Denied, Denied, Works),
    (
        "SBX-008",
        "rename WS/inside OUT/moved",
        Denied,
        Denied,
        Works,
    ),
    ("SBX-008", "rename OUT/file WS/moved", Denied, Denied, Works),
    ("SBX-010", "mkdir OUT/folder", Denied, Denied, Works),
    ("SBX-011", "chmod OUT/file", Uncovered, Denied, Works),
    ("SBX-011", "fchmod OUT/file", Uncovered, Denied, Works),
    ("SBX-011", "chmod WS/link/file", Uncovered, Denied, Works),
    ("SBX-011", "chown OUT/file", Uncovered, Denied, Works),
    ("SBX-013", "utime OUT/file", Uncovered, Denied, Works),
    ("SBX-013", "futimens OUT/file", Uncovered, Denied, Works),
    ("SBX-014", "setxattr OUT/file", Uncovered, Denied, Works),
    ("SBX-014", "chattr OUT/file", Refused, Refused, No),
    ("SBX-016", "read HOME/.ssh/id", Denied, Denied, Works),
    (
        "SBX-016",
        "read WS/link/../home/.ssh/id",
        Denied,
        Denied,
        Works,
    ),
    ("SBX-016", "read /etc/shadow", Denied, Denied, No),
    (
        "SBX-022",
        "open-write /proc/sys/kernel/core_pattern",
        Denied,
        Denied,
        No,
    ),
    (
        "SBX-022",
        "open-write /proc/sys/vm/overcommit_memory",
        Denied,
        Denied,
        No,
    ),
    (
        "SBX-022",
        "open-write /proc/sysrq-trigger",
        Denied,
        Denied,
        No,
    ),
    (
        "SBX-022",
        "open-write /sys/kernel/mm/transparent_hugepage/enabled",
        Denied,
        Denied,
        No,
    ),
    ("SBX-023", "read DISK", Denied, Denied, No),
    ("SBX-023", "open-write DISK", Denied, Denied, No),
    ("SBX-023", "read /dev/mem", Denied, Denied, No),
    ("SBX-023", "read /dev/kmsg", Denied, Denied, No),
    ("SBX-023", "mknod WS/device", Denied, Denied, No),
    ("own", "write /dev/null", Allowed, Allowed, Works),
    ("own", "read /dev/urandom", Allowed, Allowed, Works),
    ("own", "read /etc/passwd", Allowed, Allowed, Works),
    ("own", "list /", Allowed, Allowed, Works),
    ("own", "write /dev/shm/sabir-probe", Denied, Allowed, No),
    ("own", "write /etc/sabir-probe", Denied, Denied, No),
    ("own", "write /usr/sabir-probe", Denied, Denied, No),
    ("own", "read /proc/AGENT/environ", Denied, Denied, Works),
    ("own", "read /proc/AGENT/mem", Denied, Denied, No),
    ("own", "list /proc/AGENT/root", Denied, Denied, No),
];

const KERNEL: &[Row] = &[
    ("SBX-017", "mount", Refused, Refused, No),
    ("SBX-017", "unmount /proc", Refused, Refused, No),
    ("SBX-017", "remount /", Refused, Refused, No),
    ("SBX-019", "unshare", Refused, Refused, Works),
    ("SBX-020", "ptrace 1", Refused, Refused, No),
    ("SBX-020", "ptrace AGENT", Refused, Refused, No),
    ("SBX-020", "process-vm AGENT", Refused, Refused, No),
    ("SBX-020", "kill AGENT", Denied, Denied, Works),
    ("SBX-020", "prlimit AGENT", Refused, Refused, Works),
    ("SBX-029", "io_uring", Refused, Refused, Works),
    ("SBX-034", "tiocsti", Refused, Refused, No),
    ("SBX-034", "tiocsti-high", Refused, Refused, No),
    ("SBX-035", "privileges", Denied, Denied, Works),
    ("SBX-040", "bpf", Refused, Refused, No),
    ("SBX-040", "perf", Refused, Refused, No),
    ("SBX-040", "keyctl", Refused, Refused, Works),
    ("SBX-040", "userfaultfd", Refused, Refused, Works),
    ("SBX-040", "kexec", Refused, Refused, No),
    ("SBX-041", "clone-user", Refused, Refused, Works),
    ("own", "clone3", Denied, Denied, No),
    ("own", "setns", Refused, Refused, No),
    ("own", "chroot /", Refused, Refused, No),
    ("own", "by-handle", Refused, Refused, No),
    ("own", "shmget", Refused, Allowed, No),
    ("own", "foreign", Denied, Denied, No),
    ("own", "pair", Allowed, Allowed, Works),
    ("own", "pair-datagram", Refused, Allowed, Works),
];

/// Returns the first disk of the machine; if there is none, the name of one, whose absence also
/// denies.
fn disk() -> String {
    let entries = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let names = entries.map(|entry| format!("/dev/{}", entry.file_name().display()));
    names
        .into_iter()
        .find(|name| fs::exists(name).unwrap())
        .unwrap_or("/dev/sda".to_owned())
}

fn check(rows: &[Row]) {
    let mut wrong = Vec::new();
    for &(level, who) in worlds() {
        for &(case, attempt, one, two, plain) in rows {
            let expected = if level == "1" { one } else { two };
            let mut levels = vec![(level, expected)];
            match level {
                // Not the first command of its agent: its namespaces were made ahead.
                "2" => levels.push(("second-2", expected)),
                _ if plain == Works => levels.push(("off", Allowed)),
                _ => {}
            }
            for (level, expected) in levels {
                let found = observe(&Scene::new(who), level, attempt);
                let right = match expected {
                    Allowed | Uncovered => found.starts_with("allowed"),
                    Refused => found.starts_with("denied: Operation not permitted"),
                    Denied => found.starts_with("denied") || found.starts_with("killed"),
                };
                if !right {
                    wrong.push(format!(
                        "{case} {attempt}, level {level} as {who:?}: expected {expected:?}, found {found}"
                    ));
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of the probes:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Makes the attempt and examines its effects: a denied one must have changed nothing outside.
fn observe(scene: &Scene, level: &str, attempt: &str) -> String {
    fs::create_dir(scene.at("out/empty")).unwrap();
    scene.give(&scene.at("out/empty"));
    let mut agent = scene
        .process(&["try", "exec", "sleep", "100"])
        .spawn()
        .unwrap();
    let disk = disk();
    let number = agent.id().to_string();
    // A placeholder is a whole component of a path, because the random folder name may contain the
    // same letters.
    let part = |part: &str| match part {
        "OUT" => scene.name("out"),
        "WS" => scene.name("ws"),
        "HOME" => scene.name("home"),
        "DISK" => disk.clone(),
        "AGENT" => number.clone(),
        other => other.to_owned(),
    };
    let place = |word: &str| word.split('/').map(part).collect::<Vec<_>>().join("/");
    let before = outside(scene);
    let words: Vec<String> = attempt.split(' ').map(place).collect();
    let told = scene.attempt(level, "denied", &words);
    let after = outside(scene);
    agent.kill().unwrap();
    agent.wait().unwrap();
    let said = told.output.trim().to_owned();
    match () {
        () if told.end.starts_with("Signaled") => format!("killed: {told}"),
        () if said.starts_with("denied") && before != after => {
            format!("a lie: {said}, and {before:?} became {after:?}")
        }
        () if said.is_empty() => format!("nothing: {told}"),
        // Everything that the attempt needs exists; an attempt that does not find it would prove
        // nothing.
        () if said.contains("No such file")
            && words.iter().any(|word| word.starts_with(&scene.name(""))) =>
        {
            format!("not found: {words:?}, {told}")
        }
        () => said,
    }
}

/// Describes the folder outside: names, contents, modes, times.
fn outside(scene: &Scene) -> Vec<String> {
    let mut seen: Vec<String> = fs::read_dir(scene.at("out"))
        .unwrap()
        .flatten()
        .map(|entry| {
            let found = fs::symlink_metadata(entry.path()).unwrap();
            // Reading a pipe would block.
            let text = if found.is_file() {
                fs::read(entry.path()).unwrap()
            } else {
                Vec::new()
            };
            format!(
                "{:?} {:o} {} {} {text:?}",
                entry.file_name(),
                found.permissions().mode(),
                found.mtime(),
                found.nlink()
            )
        })
        .collect();
    seen.sort();
    seen
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn forbidden_file_accesses_are_denied() {
    check(FILES);
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn forbidden_kernel_interfaces_are_denied() {
    check(KERNEL);
}

#[test]
fn a_program_that_sets_its_user_gains_nothing() {
    for &(level, who) in worlds() {
        let scene = Scene::new(who);
        let copy = scene.at("out/root");
        fs::copy(&scene.helper, &copy).unwrap();
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o4755)).unwrap();
        let copy = copy.display();
        // As root the result depends on the level: without a user namespace the id stays 0, but
        // without any privilege.
        let expected = if (level, who) == ("1", super::Who::Me) {
            "allowed"
        } else {
            "denied: not root"
        };
        let found = scene.run(level, &format!("{copy} try euid-0; {copy} try privileges"));
        assert_eq!(
            found.output.trim(),
            format!("{expected}\ndenied: no privileges"),
            "level {level} as {who:?}"
        );
    }
}
