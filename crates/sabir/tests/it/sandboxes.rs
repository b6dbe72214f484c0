//! `sabir sandbox`, and the sandbox of tasks' commands.

use crate::world::{World, stderr, stdout};

/// Arguments in front of the command, the command, and its exit code, output and the beginning of what is said of the level.
#[track_caller]
fn check(options: &[&str], words: &[&str], expected: (i32, &str, &str)) {
    let world = World::new();
    let output = world.sabir().arg("sandbox").args(options).arg("--").args(words).output().unwrap();
    let said = (output.status.code().unwrap(), stdout(&output));
    assert_eq!((said.0, said.1.as_str()), (expected.0, expected.1), "{}", stderr(&output));
    assert!(stderr(&output).contains(expected.2), "{}", stderr(&output));
}

#[test]
fn a_command_is_confined() {
    check(&["--level", "1"], &["echo", "a  b"], (0, "a  b\n", "sabir: the sandbox was level 1: Landlock"));
    check(&["--level", "off"], &["exit 3"], (3, "", "sabir: there was no sandbox"));
    check(&["--level", "1"], &["echo x > inside; cat inside; exit 7"], (7, "x\n", "level 1"));
    check(&[], &["kill -TERM $$"], (143, "", "the sandbox was level"));
    check(&["--level", "1"], &["echo x > /usr/new"], (1, "", "`/usr/new` is outside of what it may change"));
    check(&["--level", "3"], &["true"], (2, "", "`3` is no sandbox level: write off, 1, 2 or best"));
    check(&["--write", "/no/such"], &["true"], (2, "", "`/no/such`, which its sandbox is to show, cannot be found"));
}

#[test]
fn secrets_of_the_home_are_hidden() {
    let world = World::new();
    std::fs::create_dir(world.home.path().join(".ssh")).unwrap();
    std::fs::write(world.home.path().join(".ssh/id"), "secret").unwrap();
    for (level, expected) in [("off", 0), ("1", 1), ("best", 1)] {
        let output = world.sabir().args(["sandbox", "--level", level, "--", "cat ~/.ssh/id"]).output().unwrap();
        assert_eq!(output.status.code(), Some(expected), "level {level}: {}", stderr(&output));
    }
}
