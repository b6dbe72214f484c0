//! Tests failing disks: full, read-only, forbidden, broken at any call; and a process killed at any
//! moment.
//!
//! The faults are real: file systems mounted in a namespace of the probe, another user, limits,
//! errors injected by strace, and SIGKILL. If a machine lacks one, the test prints `skipped: …`.
//! The cases from the list of faults: ENOSPC at the n-th write, EDQUOT, EIO on fsync
//! ([`any_failing_system_call_leaves_old_or_new_content`]); EROFS ([`a_read_only_disk_is_an_error`]); EACCES ([`missing_permission_is_an_error`]); short
//! writes ([`a_file_size_limit_keeps_the_old_content`]); a rename to another disk ([`a_full_disk_keeps_the_old_content`], whose
//! folder is one); a power failure ([`content_is_synced_before_the_rename`]); SIGKILL
//! ([`a_kill_at_any_moment_leaves_old_or_new_content`]); no inodes left ([`a_full_disk_keeps_the_old_content`]).

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use sabir_workspace::{Workspace, WritePrecondition};

use crate::changes::snapshot;
use crate::commands::PROBE;
use crate::{Place, skipped};

/// Runs a program and returns its output; `None` if it cannot be started.
fn output(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .ok()?;
    Some(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

fn works(program: &str, args: &[&str]) -> bool {
    Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn place() -> Place {
    let place = Place::quick();
    place.put("a", "old a");
    place.put("b", "old b");
    place
}

/// Runs a shell script with mounts of its own. In it, `$1` is the workspace folder, and `change`
/// makes changes there.
fn with_mounts(place: &Place, script: &str) -> Option<String> {
    let user: &[&str] = &["--user", "--map-root-user", "--mount"];
    let Some(how) = [user, &["--mount"]]
        .into_iter()
        .find(|how| works("unshare", &[how, &["true"][..]].concat()))
    else {
        skipped("no mounts in a namespace on this machine");
        return None;
    };
    let script =
        format!("set -e; cd \"$1\"; change() {{ '{PROBE}' change \"$PWD\" \"$@\"; }}\n{script}");
    let root = place.root.path().to_str().unwrap();
    output(
        "unshare",
        &[how, &["sh", "-c", &script, "sh", root][..]].concat(),
    )
}

#[track_caller]
fn check_mounted(script: &str, expected: &[&str]) {
    let place = place();
    let Some(found) = with_mounts(&place, script) else {
        return;
    };
    let lines: Vec<&str> = found.lines().collect();
    assert_eq!(lines.len(), expected.len(), "{found}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.contains(expected), "{expected:?} is not in {found}");
    }
}

/// The file is on another disk than the workspace folder, so this also shows that no rename crosses
/// disks.
#[test]
fn a_full_disk_keeps_the_old_content() {
    let big =
        "change a=new \"disk/new/x=$(printf %0100000d 1)\" \"disk/old=$(printf %0100000d 1)\"";
    check_mounted(
        &format!(
            "mkdir disk; mount -t tmpfs -o size=96k none disk; echo old > disk/old; {big}; cat a; echo; cat disk/old; ls -A disk;
             change a=new disk/old=new; cat a disk/old"
        ),
        &["No space left on device (os error 28); room has to be made", "old a", "old", "old", "done", "newnew"],
    );
    check_mounted(
        "mkdir disk; mount -t tmpfs -o nr_inodes=4 none disk; echo old > disk/old;
         change disk/old=new disk/new/x=1 disk/new/y=2 a=new; cat a; echo; cat disk/old; ls -A disk",
        &["`disk/new/x`: No space left on device", "old a", "old", "old"],
    );
}

#[test]
fn a_read_only_disk_is_an_error() {
    check_mounted(
        "mkdir disk; mount -t tmpfs none disk; echo old > disk/old; mount -o remount,ro disk
         change a=new disk/old=new; change a=new disk/x=1; change a=new -disk/old; cat a; echo; cat disk/old; ls -A disk",
        &[
            "`disk/old`: Read-only file system (os error 30); ask the user",
            "`disk/x`: Read-only",
            "`disk/old`: Read-only",
            "old a",
            "old",
            "old",
        ],
    );
}

/// A mounted file passes every check, but its name cannot be changed, so the error occurs after the
/// first rename.
#[test]
fn a_fault_between_two_renames_is_undone() {
    let script = "mount --bind b b; change a=new -b; change new/x=1 a=new b=new; change 'a>new/a' -b; umount b";
    let place = place();
    let before = snapshot(place.root.path());
    let Some(found) = with_mounts(&place, script) else {
        return;
    };
    let lines: Vec<&str> = found.lines().collect();
    assert!(
        lines.len() == 3
            && lines
                .iter()
                .all(|line| line.contains("`b`: Device or resource busy")),
        "{found}"
    );
    assert_eq!(snapshot(place.root.path()), before);
}

#[test]
fn a_file_size_limit_keeps_the_old_content() {
    let place = place();
    let before = snapshot(place.root.path());
    let script = format!(
        "trap '' XFSZ; ulimit -f 8; '{PROBE}' change \"$1\" a=new \"b=$(printf %0100000d 1)\""
    );
    let found = output(
        "sh",
        &["-c", &script, "sh", place.root.path().to_str().unwrap()],
    )
    .unwrap();
    assert!(
        found.contains("could not write `b`: File too large"),
        "{found}"
    );
    assert_eq!(snapshot(place.root.path()), before);
}

/// Returns a function that runs the probe as another user; `None` if that is not possible.
fn runner_as_another_user() -> Option<impl Fn(&[&str]) -> String> {
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", PROBE];
    if !works("setpriv", &[&nobody[..3], &["true"]].concat())
        || output("setpriv", &nobody).is_none_or(|o| !o.is_empty())
    {
        skipped("cannot become another user, or the probe is not for others to run");
        return None;
    }
    Some(move |args: &[&str]| output("setpriv", &[&nobody, args].concat()).unwrap())
}

/// The walk to a file ends above it in such a folder, which must not tell hidden files that exist from others.
#[test]
fn hidden_files_stay_hidden_in_a_folder_that_may_not_be_listed() {
    let Some(run) = runner_as_another_user() else {
        return;
    };
    let place = place();
    let mode = |name: &str, mode| {
        std::fs::set_permissions(place.inner(name), PermissionsExt::from_mode(mode)).unwrap()
    };
    place.put(".sabirignore", "secret*\n");
    place.put("closed/secret", "x");
    place.put("closed/shown", "x");
    mode("", 0o755);
    mode(".sabirignore", 0o644);
    mode("closed", 0o711);
    let hidden = [
        "closed/secret",
        "closed/secret/x",
        "closed/secret-none",
        "closed/secret-none/x",
    ];
    let root = place.root.path().to_str().unwrap();
    let found = run(&[&["read", root][..], &hidden].concat());
    assert_eq!(found.lines().count(), hidden.len(), "{found}");
    for line in found.lines() {
        assert!(line.contains("is hidden by .sabirignore"), "{found}");
    }
    let shown = run(&["read", root, "closed/shown"]);
    assert!(shown.contains("Permission denied"), "{shown}");
}

/// Root may do everything, so the probe becomes another user.
#[test]
fn missing_permission_is_an_error() {
    let Some(run) = runner_as_another_user() else {
        return;
    };
    let place = place();
    let mode = |name: &str, mode| {
        std::fs::set_permissions(place.inner(name), PermissionsExt::from_mode(mode)).unwrap()
    };
    for name in ["closed/x", "sticky/x", "unread/x"] {
        place.put(name, "needle");
    }
    mode("", 0o777);
    mode("closed", 0o555);
    mode("closed/x", 0o666);
    mode("sticky", 0o1777);
    mode("sticky/x", 0o666);
    mode("unread", 0o700);
    mode("a", 0o666);
    mode("b", 0o600);
    let root = place.root.path().to_str().unwrap();
    let before = snapshot(place.root.path());
    for (changes, words) in [
        (
            ["a=new", "closed/new=x"],
            "could not write `closed/new`: Permission denied (os error 13); ask the user",
        ),
        (
            ["a=new", "closed/x=new"],
            "could not write `closed/x`: Permission denied",
        ),
        (
            ["a=new", "-closed/x"],
            "could not delete `closed/x`: Permission denied",
        ),
        (["a=new", "b=x"], "could not write `b`: Permission denied"),
        (
            ["a=new", "unread/x=x"],
            "could not resolve `unread/x`: Permission denied",
        ),
        // Only its owner may remove a file from such a folder, which shows after `a` was changed.
        (
            ["a=new", "sticky/x=new"],
            "could not write `sticky/x`: Operation not permitted",
        ),
        (
            ["new/deep=new", "-sticky/x"],
            "could not delete `sticky/x`: Operation not permitted",
        ),
    ] {
        let found = run(&["change", root, changes[0], changes[1]]);
        assert!(found.contains(words), "{changes:?}: {found}");
        assert_eq!(snapshot(place.root.path()), before, "{changes:?}");
    }
    let names = "a\nb\nclosed\nclosed/x\nsticky\nsticky/x\nunread\n";
    assert_eq!(
        run(&["look", root]),
        format!("{names}closed/x:needle\nsticky/x:needle\n3 searched, 1 skipped\n")
    );
}

/// Runs changes under strace with an error in the n-th call; `None` if the call does not occur that
/// often.
fn injected(place: &Place, inject: &[&str], changes: &[&str]) -> Option<String> {
    let trace = place.outside.path().join("trace");
    let mut args = vec!["-f", "-qq", "-o", trace.to_str().unwrap()];
    inject.iter().for_each(|inject| args.extend(["-e", inject]));
    args.extend([PROBE, "change", place.root.path().to_str().unwrap()]);
    let found = output("strace", &[&args, changes].concat()).unwrap();
    std::fs::read_to_string(trace)
        .unwrap()
        .contains("(INJECTED)")
        .then_some(found)
}

fn has_strace() -> bool {
    let works = works("strace", &["-o", "/dev/null", "true"]);
    if !works {
        skipped("no strace that may trace on this machine");
    }
    works
}

/// Each modifying call fails once, at its n-th occurrence, for every n: either everything is new or
/// everything is old, and the answer says which.
#[test]
fn any_failing_system_call_leaves_old_or_new_content() {
    if !has_strace() {
        return;
    }
    let mut failed = 0;
    for (call, error) in [
        ("write", "ENOSPC"),
        ("write", "EDQUOT"),
        ("fsync", "EIO"),
        ("renameat2", "EIO"),
        ("mkdirat", "ENOSPC"),
        ("fchmod", "EPERM"),
        ("/^openat", "EMFILE"),
        ("/^(new)?fstatat", "EIO"),
    ] {
        for number in 1.. {
            let place = place();
            place.put("c", "old c");
            let before = snapshot(place.root.path());
            let inject = format!("inject={call}:error={error}:when={number}");
            let Some(found) = injected(
                &place,
                &[&inject],
                &["a=new a", "new/x=new x", "-b", "c>new/c"],
            ) else {
                break;
            };
            let after = snapshot(place.root.path());
            if after == before {
                assert!(!found.contains("done"), "{inject}: {found}");
                failed += 1;
                continue;
            }
            let content = |name: &str| after.get(name).map(|(_, _, content)| content.as_str());
            let new = [
                content("a"),
                content("new/x"),
                content("b"),
                content("c"),
                content("new/c"),
                content("new"),
            ];
            let all = [
                Some("new a"),
                Some("new x"),
                None,
                None,
                Some("old c"),
                Some("folder"),
            ];
            assert_eq!((new, after.len()), (all, 4), "{inject}: {found}");
        }
    }
    assert!(failed > 20, "{failed}");
}

/// A disk that stops working: files that could not be restored are reported, and not removed.
#[test]
fn files_that_cannot_be_restored_are_reported() {
    if !has_strace() {
        return;
    }
    let place = place();
    let found = injected(
        &place,
        &["inject=renameat2:error=EIO:when=2+"],
        &["a=new a", "b=new b"],
    )
    .unwrap();
    assert!(
        found.contains("could not write `b`: ") && found.contains("could not be restored: `a` ("),
        "{found}"
    );
    let kept = found
        .split("its old content is in `")
        .nth(1)
        .and_then(|rest| rest.split('`').next())
        .unwrap();
    assert_eq!(std::fs::read_to_string(place.inner(kept)).unwrap(), "old a");
    assert_eq!(std::fs::read_to_string(place.inner("b")).unwrap(), "old b");
    // A disk that works again: the leftover gets a name that no later cleanup removes.
    let place = self::place();
    let found = injected(
        &place,
        &["inject=renameat2:error=EIO:when=2..3"],
        &["a=new a", "b=new b"],
    )
    .unwrap();
    assert!(
        found.contains("its old content is in `a.sabir-old` beside it"),
        "{found}"
    );
    assert_eq!(
        std::fs::read_to_string(place.inner("a.sabir-old")).unwrap(),
        "old a"
    );
}

/// A file system that supports neither exchange nor no-replace renames, as some network ones.
#[test]
fn writes_work_without_atomic_exchange() {
    if !has_strace() {
        return;
    }
    let unable = "inject=renameat2:error=EINVAL";
    let place = place();
    let before = snapshot(place.root.path());
    let changes = ["a=new a", "new/x=new x", "-b"];
    // A library uses three of these calls to look at /proc.
    for number in 4.. {
        let inject = format!("inject=renameat:error=EIO:when={number}");
        let found = injected(&place, &[unable, &inject], &changes).unwrap();
        if found.contains("done") {
            assert_eq!(number, 7, "the three renames fail once each");
            break;
        }
        // There, a copy is restored.
        let content = |all: std::collections::BTreeMap<String, (u32, u64, String)>| {
            all.into_iter()
                .map(|(name, (mode, _, content))| (name, mode, content))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            content(snapshot(place.root.path())),
            content(before.clone()),
            "{inject}: {found}"
        );
    }
    let after: Vec<String> = snapshot(place.root.path()).into_keys().collect();
    assert_eq!(after, ["a", "new", "new/x"]);
}

/// The order of the calls decides what a power failure leaves: content, then name, then folder.
#[test]
fn content_is_synced_before_the_rename() {
    if !has_strace() {
        return;
    }
    let place = place();
    let trace = place.outside.path().join("trace");
    let args = [
        "-f",
        "-qq",
        "-o",
        trace.to_str().unwrap(),
        "-e",
        "trace=fsync,renameat2,unlinkat,write",
        PROBE,
        "change",
    ];
    output(
        "strace",
        &[
            &args[..],
            &[place.root.path().to_str().unwrap(), "a=new a", "b=new b"],
        ]
        .concat(),
    )
    .unwrap();
    let trace = std::fs::read_to_string(trace).unwrap();
    let calls = trace
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1)?.split('(').next());
    let calls: Vec<&str> = calls.filter(|call| *call != "+++").collect();
    let expected = [
        "write",
        "fsync",
        "write",
        "fsync",
        "renameat2",
        "renameat2",
        "fsync",
        "unlinkat",
        "unlinkat",
        "write",
    ];
    assert_eq!(calls, expected);
}

#[test]
fn a_kill_at_some_moments_leaves_old_or_new_content() {
    kill_writers(60);
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn a_kill_at_any_moment_leaves_old_or_new_content() {
    // Among this many kills some always hit a change; a few kills may all miss on a busy machine.
    assert!(
        kill_writers(400) > 0,
        "no kill came in the middle of a change"
    );
}

/// Kills a process that changes files this many times, and checks its files. Returns the number of kills that hit a change.
fn kill_writers(rounds: usize) -> usize {
    let place = Place::quick();
    let root = place.root.path();
    let left_over = || -> Vec<PathBuf> {
        let inside = [root.to_path_buf(), root.join("deep")]
            .into_iter()
            .filter_map(|folder| std::fs::read_dir(folder).ok());
        let paths = inside.flatten().map(|entry| entry.unwrap().path());
        paths
            .filter(|path| {
                path.file_name()
                    .unwrap()
                    .to_string_lossy()
                    .starts_with(".sabir-tmp-")
            })
            .collect()
    };
    let mut met = 0;
    let mut seed = 1_u64;
    for _ in 0..rounds {
        let mut storm = Command::new(PROBE)
            .args(["storm", root.to_str().unwrap()])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        std::thread::sleep(Duration::from_micros(2000 + (seed >> 33) % 8000));
        storm.kill().unwrap();
        storm.wait().unwrap();
        for name in ["a", "deep/b", "deep/c", "deep/now and then", "alone"] {
            let Ok(content) = std::fs::read_to_string(root.join(name)) else {
                continue;
            };
            assert!(
                content.ends_with("end"),
                "{name} has {} bytes",
                content.len()
            );
            let numbers = content.strip_suffix("end").unwrap();
            let first = numbers.split_inclusive(' ').next().unwrap();
            assert_eq!(numbers, first.repeat(numbers.len() / first.len()), "{name}");
        }
        met += usize::from(!left_over().is_empty());
    }
    let fresh = Workspace::open(root).unwrap();
    for name in ["a", "deep/b"] {
        fresh
            .write_file(
                &fresh.parse_path(name).unwrap(),
                b"last",
                WritePrecondition::Any,
            )
            .unwrap();
    }
    assert_eq!(left_over(), Vec::<PathBuf>::new());
    met
}
