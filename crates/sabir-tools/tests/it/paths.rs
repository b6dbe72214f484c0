//! Tests hostile paths and links, each with the number of its case: the access that the policy checks,
//! and the effect of the call.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::UnixListener;

use rustix::fs::{Mode, OFlags};
use sabir_policy::Access;
use serde_json::{Value, json};

use crate::Place;

/// The kind of access that the policy checks.
#[derive(Debug, PartialEq, Clone, Copy)]
enum FoundAccess {
    /// Inside the workspace, with no further facts.
    Inside,
    /// Outside, where it is never read.
    Outside,
    /// A protected place, which only the user can approve.
    Protected,
    /// Refused without a question.
    Refused,
}

#[track_caller]
fn check(
    place: &Place,
    case: &str,
    (tool, arguments): (&str, Value),
    expected: FoundAccess,
    words: &str,
) {
    let found = match place.access(tool, arguments.clone()) {
        Access::Read { outside: true, .. } => FoundAccess::Outside,
        Access::Write {
            protected: Some(_), ..
        } => FoundAccess::Protected,
        Access::Read { .. } | Access::Write { .. } => FoundAccess::Inside,
        Access::Invalid { .. } => FoundAccess::Refused,
        other => panic!("{case}: {other:?}"),
    };
    assert_eq!(found, expected, "{case}");
    if expected == FoundAccess::Protected {
        return;
    }
    let (output, _) = place.run(tool, arguments);
    assert!(output.content.contains(words), "{case}: {}", output.content);
    assert_eq!(
        output.failed,
        !words.starts_with("Wrote") && !words.contains(" | "),
        "{case}: {}",
        output.content
    );
}

fn read(path: &str) -> (&'static str, Value) {
    ("read_file", json!({"path": path}))
}

fn write(path: &str) -> (&'static str, Value) {
    ("write_to_file", json!({"path": path, "content": "new\n"}))
}

fn patch(text: &str) -> (&'static str, Value) {
    (
        "apply_patch",
        json!({"patch": format!("*** Begin Patch\n{text}\n*** End Patch")}),
    )
}

#[test]
fn paths_that_lead_out() {
    let place = Place::with(&[("a.txt", "one\n")]);
    let outside = "is outside the workspace";
    check(
        &place,
        "PTH-001",
        read("../../etc/passwd"),
        FoundAccess::Outside,
        "(it means \"../../etc/passwd\")",
    );
    check(
        &place,
        "PTH-002",
        read("/etc/passwd"),
        FoundAccess::Outside,
        outside,
    );
    check(
        &place,
        "PTH-004",
        write("src/../../w-evil/x"),
        FoundAccess::Refused,
        "(it means \"../w-evil/x\")",
    );
    check(
        &place,
        "PTH-014",
        read("/proc/self/environ"),
        FoundAccess::Outside,
        outside,
    );
    check(
        &place,
        "PTH-016",
        read("/proc/self/cwd/../etc/passwd"),
        FoundAccess::Outside,
        outside,
    );
    check(
        &place,
        "PTH-017",
        read("/dev/zero"),
        FoundAccess::Outside,
        outside,
    );
    let root = place.root.path().canonicalize().unwrap();
    let beside = format!("{}-evil/x", root.display());
    check(
        &place,
        "beside",
        write(&beside),
        FoundAccess::Refused,
        outside,
    );
    check(
        &place,
        "PTH-034",
        read(root.join("a.txt").to_str().unwrap()),
        FoundAccess::Inside,
        "1 | one",
    );
}

#[test]
fn special_looking_names_are_not_expanded() {
    let place = Place::with(&[("a.txt", "one\n")]);
    let missing = "does not exist";
    check(
        &place,
        "PTH-005",
        read("~/.ssh/id_rsa"),
        FoundAccess::Inside,
        missing,
    );
    check(
        &place,
        "PTH-007",
        read("file:///etc/passwd"),
        FoundAccess::Refused,
        "is a URL, not a path",
    );
    check(
        &place,
        "PTH-008",
        read("%2e%2e/%2e%2e/etc/passwd"),
        FoundAccess::Inside,
        missing,
    );
    check(
        &place,
        "PTH-010",
        read("a\0../../etc/passwd"),
        FoundAccess::Refused,
        "holds a NUL byte",
    );
    check(
        &place,
        "PTH-011",
        write(""),
        FoundAccess::Refused,
        "the path is empty",
    );
    check(
        &place,
        "PTH-013",
        write(&format!("x/{}", "y".repeat(5000))),
        FoundAccess::Refused,
        "is too long",
    );
    check(
        &place,
        "PTH-026",
        read("\\\\attacker\\share\\x"),
        FoundAccess::Inside,
        missing,
    );
    check(
        &place,
        "PTH-028",
        read("C:evil.txt"),
        FoundAccess::Inside,
        missing,
    );
    // The two spellings of one letter are two names; neither overwrites the other.
    place.put("caf\u{e9}", "composed\n");
    check(
        &place,
        "UNI-007",
        write("cafe\u{301}"),
        FoundAccess::Inside,
        "Wrote 1 line to the new file",
    );
    assert_eq!(
        (place.get("caf\u{e9}"), place.get("cafe\u{301}")),
        ("composed\n".to_owned(), "new\n".to_owned())
    );
    check(
        &place,
        "PTH-026",
        write("\\\\attacker\\share\\x"),
        FoundAccess::Inside,
        "Wrote 1 line to the new file",
    );
    assert!(place.inner("\\\\attacker\\share\\x").is_file());
}

#[test]
fn protected_names() {
    let place = Place::with(&[("real/.git", "gitdir: /repo/.git/worktrees/w\n")]);
    check(
        &place,
        "PTH-022",
        write(".Sabir/Config.toml"),
        FoundAccess::Protected,
        "",
    );
    check(
        &place,
        "PTH-023",
        write(".git\u{200c}/config"),
        FoundAccess::Protected,
        "",
    );
    check(
        &place,
        "PTH-025",
        write(".git./config"),
        FoundAccess::Protected,
        "",
    );
    check(
        &place,
        "PTH-025",
        write(".git::$INDEX_ALLOCATION/config"),
        FoundAccess::Protected,
        "",
    );
    check(
        &place,
        "LNK-016",
        write("real/.git"),
        FoundAccess::Protected,
        "",
    );
    check(
        &place,
        "LNK-017",
        write(".git/modules/sm/hooks/post-checkout"),
        FoundAccess::Protected,
        "",
    );
    symlink(".git", place.inner("notes")).unwrap();
    fs::create_dir(place.inner(".git")).unwrap();
    check(
        &place,
        "by a link",
        write("notes/hooks/pre-commit"),
        FoundAccess::Protected,
        "",
    );
}

#[test]
fn things_that_are_no_files() {
    let place = Place::new();
    let _listener = UnixListener::bind(place.inner("socket")).unwrap();
    assert!(
        std::process::Command::new("mkfifo")
            .arg(place.inner("fifo"))
            .status()
            .unwrap()
            .success()
    );
    let other = "not a regular file";
    check(
        &place,
        "PTH-019",
        read("socket"),
        FoundAccess::Inside,
        other,
    );
    check(&place, "a FIFO", read("fifo"), FoundAccess::Inside, other);
    check(&place, "a FIFO", write("fifo"), FoundAccess::Inside, other);
    symlink("/dev/zero", place.inner("zero")).unwrap();
    check(
        &place,
        "PTH-017",
        read("zero"),
        FoundAccess::Outside,
        "leaves the workspace",
    );
    // A device needs the right to make one, which root has.
    let made = std::process::Command::new("mknod")
        .arg(place.inner("device"))
        .args(["c", "1", "5"])
        .output()
        .unwrap();
    if made.status.success() {
        check(
            &place,
            "PTH-017",
            read("device"),
            FoundAccess::Inside,
            other,
        );
        check(
            &place,
            "PTH-017",
            write("device"),
            FoundAccess::Inside,
            other,
        );
    }
    place.put("big", "head\n".repeat(10_000));
    File::options()
        .write(true)
        .open(place.inner("big"))
        .unwrap()
        .set_len(5 << 30)
        .unwrap();
    let (output, _) = place.run("read_file", read("big").1);
    assert!(
        output.content.len() < 70_000,
        "PTH-020: {} bytes",
        output.content.len()
    );
}

#[test]
fn links() {
    let place = Place::new();
    let outside = place.outside.path().to_owned();
    fs::write(outside.join("secret"), "secret\n").unwrap();
    let link = |name: &str, target: &std::path::Path| symlink(target, place.inner(name)).unwrap();
    link("l", &outside.join("secret"));
    link("d", &outside);
    link("dang", &outside.join("notyet"));
    link("x", "x".as_ref());
    link(".sabir", &outside);
    let leaves = "leaves the workspace";
    check(&place, "LNK-001", read("l"), FoundAccess::Outside, leaves);
    check(
        &place,
        "LNK-002",
        write("d/new.txt"),
        FoundAccess::Refused,
        leaves,
    );
    check(
        &place,
        "LNK-004",
        write("dang"),
        FoundAccess::Refused,
        leaves,
    );
    check(
        &place,
        "LNK-005",
        read("x"),
        FoundAccess::Refused,
        "in a circle",
    );
    check(
        &place,
        "LNK-007",
        write(".sabir/config.toml"),
        FoundAccess::Refused,
        leaves,
    );
    check(
        &place,
        "LNK-008",
        write(".sabir/worktrees/w"),
        FoundAccess::Refused,
        leaves,
    );
    let before = fs::metadata(outside.join("secret")).unwrap();
    fs::hard_link(outside.join("secret"), place.inner("h")).unwrap();
    check(&place, "LNK-010", write("h"), FoundAccess::Protected, "");
    // Allowed, it replaces the name and leaves the other file alone.
    let (tool, arguments) = write("h");
    let (output, _) = place.run(tool, arguments);
    let words = "Wrote 1 line to `h`, in place of its 1 line";
    assert!(output.content.contains(words), "{}", output.content);
    let after = fs::metadata(outside.join("secret")).unwrap();
    assert_eq!(
        (before.ino(), before.mtime_nsec(), 1),
        (after.ino(), after.mtime_nsec(), after.nlink()),
        "LNK-010"
    );
    assert_eq!(
        fs::read_to_string(outside.join("secret")).unwrap(),
        "secret\n"
    );
    assert_eq!(
        fs::read_dir(&outside).unwrap().count(),
        1,
        "nothing was made outside"
    );
}

#[test]
fn searches_stay_inside() {
    let place = Place::with(&[
        ("a.txt", "--pre=./evil.sh\n"),
        ("evil.sh", "#!/bin/sh\ntouch PWNED\n"),
    ]);
    place.put("long", "a".repeat(1 << 20) + "b");
    fs::create_dir(place.inner("cycle")).unwrap();
    symlink("..", place.inner("cycle/up")).unwrap();
    let search = |arguments: Value| place.run("search_files", arguments).0.content;
    let found = search(json!({"regex": ".", "file_pattern": "../../**/*"}));
    assert!(
        found.starts_with("No file in `.` matches"),
        "PTH-035: {found}"
    );
    let found = search(json!({"regex": "(a+)+$", "path": "long"}));
    assert!(found.starts_with("No line matches"), "PTH-037: {found}");
    let found = search(json!({"regex": "--pre=./evil.sh"}));
    assert!(
        found.contains("1: --pre=./evil.sh") && !place.inner("PWNED").exists(),
        "PTH-038: {found}"
    );
    place.done(
        "list_files",
        json!({"path": ".", "recursive": true}),
        "a.txt\ncycle/\ncycle/up (link)\nevil.sh\nlong",
    );
}

#[test]
fn patches_stay_inside() {
    let place = Place::with(&[("a.txt", "one\n")]);
    let refused = |case: &str, (tool, arguments): (&str, Value), words: &str| {
        let (output, _) = place.run(tool, arguments);
        assert!(
            output.failed && output.content.contains(words),
            "{case}: {}",
            output.content
        );
    };
    let two = "*** Update File: a.txt\n@@\n-one\n+two\n*** Add File: ../../outside\n+x";
    check(
        &place,
        "PTH-040",
        patch(two),
        FoundAccess::Refused,
        "is outside the workspace",
    );
    let moved = "*** Update File: a.txt\n*** Move to: /etc/x\n@@\n-one\n+two";
    check(
        &place,
        "PTH-041",
        patch(moved),
        FoundAccess::Refused,
        "is outside the workspace",
    );
    refused(
        "PTH-040",
        patch("--- a/a.txt\n+++ b/../../outside\n@@ -1 +1 @@\n-one\n+two"),
        "was not applied",
    );
    refused(
        "PTH-041",
        patch("*** Update File: a.txt\nold mode 100644\nnew mode 120000"),
        "was not applied",
    );
    assert_eq!(place.get("a.txt"), "one\n");
    assert!(!place.inner("a.txt").is_symlink());
}

#[test]
fn a_very_deep_tree() {
    let place = Place::with(&[("a.txt", "one\n")]);
    let mut folder = File::open(place.root.path()).unwrap();
    // More levels than a process has handles, and a longer path than Linux takes.
    for _ in 0..2_000 {
        rustix::fs::mkdirat(&folder, "deep", Mode::from_raw_mode(0o755)).unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        folder = File::from(rustix::fs::openat(&folder, "deep", flags, Mode::empty()).unwrap());
    }
    let listed = place
        .run("list_files", json!({"path": ".", "recursive": true}))
        .0;
    assert!(
        !listed.failed && listed.content.starts_with("a.txt\ndeep/\ndeep/deep/"),
        "RES-017"
    );
    let found = place.run("search_files", json!({"regex": "one"})).0;
    assert!(
        !found.failed && found.content.contains("1: one"),
        "RES-017: {}",
        found.content
    );
    // What removes the folder afterwards would hold one handle for each level.
    assert!(
        std::process::Command::new("rm")
            .arg("-rf")
            .arg(place.inner("deep"))
            .status()
            .unwrap()
            .success()
    );
}
