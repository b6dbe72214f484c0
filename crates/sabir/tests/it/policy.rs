//! Tests `policy`: verdicts with their reasons, in a real folder.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn sabir(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sabir"))
        .args(arguments)
        .current_dir(folder)
        .env("HOME", folder.join("home"))
        .env("XDG_CONFIG_HOME", folder.join("home/config"))
        .env("XDG_DATA_HOME", folder.join("home/data"))
        .env_remove("SABIR_SHELL")
        .output()
        .unwrap()
}

#[track_caller]
fn check(folder: &Path, flags: &[&str], line: &str, expected: &str) -> Value {
    let arguments: Vec<&str> = ["policy", "explain", "--output", "json"]
        .iter()
        .chain(flags)
        .copied()
        .chain(["--", line])
        .collect();
    let output = sabir(folder, &arguments);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["verdict"], expected, "{line}: {value}");
    value
}

fn git(folder: &Path, arguments: &[&str]) {
    assert!(
        Command::new("git")
            .args(arguments)
            .current_dir(folder)
            .output()
            .unwrap()
            .status
            .success(),
        "{arguments:?}"
    );
}

#[test]
fn policy_explain_lists_the_parts_of_a_line() {
    let folder = tempfile::tempdir_in(sabir_testkit::find_temp_base()).unwrap();
    let folder = folder.path();
    let value = check(folder, &[], "ls && touch x", "ask");
    assert_eq!(value["segments"][0]["verdict"], "allow");
    assert_eq!(value["segments"][1]["command"], "touch x");
    assert_eq!(value["segments"][1]["verdict"], "ask");
    assert_eq!(value["proposals"][0], "kind=new files");
    check(folder, &["--allow", "touch *"], "ls && touch x", "allow");
    check(folder, &["--deny", "ls **"], "ls", "deny");
    check(folder, &["--ask", "ls **", "--approve", "all"], "ls", "ask");
    check(folder, &["--approve", "kind=new files"], "touch x", "allow");
    // An approved line is allowed, and so are its parts; each still says what was approved.
    let line = ["--approve", "command=curl http://example.org && touch x"];
    let value = check(folder, &line, "curl http://example.org && touch x", "allow");
    assert_eq!(value["reason"], "this command line is approved");
    for segment in value["segments"].as_array().unwrap() {
        assert_eq!(segment["verdict"], "allow", "{value}");
        let reason = segment["reason"].as_str().unwrap();
        let begins = "this command line is approved; otherwise it asks: ";
        assert!(reason.starts_with(begins), "{value}");
    }
    check(folder, &["--shell", "zsh"], "=ls", "ask");
    assert_eq!(
        sabir(
            folder,
            &["policy", "explain", "--shell", "fish", "--", "ls"]
        )
        .status
        .code(),
        Some(2)
    );
    assert_eq!(
        sabir(folder, &["policy", "explain", "--allow", "*", "--", "ls"])
            .status
            .code(),
        Some(2)
    );
    fs::create_dir_all(folder.join("home/config/sabir")).unwrap();
    fs::write(
        folder.join("home/config/sabir/config.toml"),
        "allow = [\"touch **\"]\ndeny = [\"ls **\"]\n",
    )
    .unwrap();
    check(folder, &[], "touch x y", "allow");
    check(folder, &["--allow", "ls **"], "ls", "deny");
}

#[test]
fn git_is_checked_by_the_programs_of_the_repository() {
    let place = tempfile::tempdir_in(sabir_testkit::find_temp_base()).unwrap();
    let folder = place.path();
    check(folder, &[], "git --version", "allow");
    git(folder, &["init", "-q", "-b", "main"]);
    fs::create_dir(folder.join("sub")).unwrap();
    check(folder, &[], "git status", "allow");
    check(folder, &[], "cd sub && git status", "allow");
    check(folder, &[], "cd missing && git status", "ask");
    git(folder, &["config", "core.fsmonitor", "./evil.sh"]);
    let value = check(folder, &[], "git status", "ask");
    assert!(
        value["reason"].as_str().unwrap().contains("core.fsmonitor"),
        "{value}"
    );
    check(folder, &[], "cd sub && git status", "ask");
    git(folder, &["config", "--unset", "core.fsmonitor"]);
    check(folder, &[], "git status", "allow");
    let hook = folder.join(".git/hooks/post-index-change");
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    fs::write(&hook, "#!/bin/sh\n").unwrap();
    check(folder, &[], "git status", "ask");
    fs::remove_file(&hook).unwrap();
    // A repository in the repository, whose configuration `git status` follows.
    let inner = folder.join("inner");
    fs::create_dir(&inner).unwrap();
    git(&inner, &["init", "-q", "-b", "main"]);
    git(
        &inner,
        &[
            "-c",
            "user.name=n",
            "-c",
            "user.email=e",
            "commit",
            "-q",
            "--allow-empty",
            "-m",
            "x",
        ],
    );
    git(folder, &["add", "inner"]);
    check(folder, &[], "git status", "allow");
    git(&inner, &["config", "filter.x.clean", "./evil.sh"]);
    check(folder, &[], "git status", "ask");
}

#[test]
fn simulate_needs_a_task() {
    let folder = tempfile::tempdir_in(sabir_testkit::find_temp_base()).unwrap();
    let output = sabir(folder.path(), &["policy", "simulate", "nothing"]);
    assert_eq!(output.status.code(), Some(2));
}
