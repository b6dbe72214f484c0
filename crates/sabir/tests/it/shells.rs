//! Tests `sabir completions` and `sabir man` with the shells and the manual readers of this machine.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::world::{World, code, skipped, stderr, stdout};

/// Writes the script for a shell to a file, and a folder with `sabir` for the PATH.
fn script(world: &World, shell: &str) -> PathBuf {
    let output = world.sabir().args(["completions", shell]).output().unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let path = world.home.path().join(format!("sabir.{shell}"));
    std::fs::write(&path, &output.stdout).unwrap();
    path
}

/// Returns a command for a program, or `None` if this machine has none.
fn program(world: &World, name: &str) -> Option<Command> {
    let found = Command::new(name)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if found.is_err() {
        skipped(&format!("there is no {name}"));
        return None;
    }
    let mut command = Command::new(name);
    command
        .env("HOME", world.home.path())
        .current_dir(world.work.path())
        .stdin(Stdio::null());
    Some(command)
}

#[test]
fn bash_completes_commands_and_options() {
    let world = World::new();
    let path = script(&world, "bash");
    let complete = |words: &str| {
        let mut command = program(&world, "bash").unwrap();
        // As bash calls the function: the words, the current one and the one before.
        let line = "source \"$0\"; f=$(complete -p sabir | sed 's/.*-F \\([^ ]*\\).*/\\1/'); COMP_WORDS=(\"$@\"); \
            COMP_CWORD=$(($# - 1)); $f sabir \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD-1]}\"; \
            printf '%s\\n' \"${COMPREPLY[@]}\"";
        command
            .args(["--norc", "-c", line])
            .arg(&path)
            .args(words.split(' '));
        let output = command.output().unwrap();
        assert!(stderr(&output).is_empty(), "{words}: {}", stderr(&output));
        stdout(&output)
            .split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(complete("sabir doct"), ["doctor"]);
    assert_eq!(complete("sabir run --max-tu"), ["--max-turns"]);
    assert_eq!(complete("sabir config se"), ["set"]);
    assert_eq!(complete("sabir run --output "), ["text", "json", "events"]);
}

#[test]
fn fish_completes_commands_and_options() {
    let world = World::new();
    let path = script(&world, "fish");
    let Some(_) = program(&world, "fish") else {
        return;
    };
    let complete = |words: &str| {
        let mut command = program(&world, "fish").unwrap();
        command.args([
            "--no-config",
            "-c",
            &format!("source {}; complete -C '{words}'", path.display()),
        ]);
        let output = command.output().unwrap();
        // Each line is a word, a tab and its description.
        let words = stdout(&output);
        let words = words.lines().filter_map(|line| line.split('\t').next());
        words.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(complete("sabir doct"), ["doctor"]);
    assert_eq!(complete("sabir run --max-tu"), ["--max-turns"]);
    assert_eq!(complete("sabir config se"), ["set"]);
}

#[test]
fn zsh_completes_commands_and_options() {
    let world = World::new();
    let path = script(&world, "zsh");
    let Some(mut check) = program(&world, "zsh") else {
        return;
    };
    let output = check.args(["-f", "-n"]).arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    // An interactive zsh on a pseudo-terminal: only there is completion real. `timeout` ends it if
    // it waits for ever.
    for (typed, completed) in [
        ("sabir doct", "sabir doctor"),
        ("sabir run --max-tu", "sabir run --max-turns"),
    ] {
        let lines = format!(
            "zmodload zsh/zpty; zpty shell zsh -f -i; zpty -w shell 'PS1=; autoload -Uz compinit; compinit -u -D; source {}; print re''ady'; \
             zpty -r -m shell seen '*ready*'; zpty -w -n shell $'{typed}\\t'; zpty -r -m shell seen '*{completed}*' && print -r -- completed",
            path.display()
        );
        let mut command = Command::new("timeout");
        command
            .args(["120", "zsh", "-f", "-c", &lines])
            .env("HOME", world.home.path())
            .env("TERM", "dumb")
            .stdin(Stdio::null());
        let output = command.output().unwrap();
        assert_eq!(
            stdout(&output),
            "completed\n",
            "{typed}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn man_pages_are_written_for_every_command() {
    let world = World::new();
    let folder = world.home.path().join("man/man1");
    let output = world.sabir().arg("man").arg(&folder).output().unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let names = crate::world::names(&folder);
    for name in [
        "sabir.1",
        "sabir-run.1",
        "sabir-policy-explain.1",
        "sabir-config-set.1",
        "sabir-completions.1",
    ] {
        assert!(names.iter().any(|known| known == name), "{name}: {names:?}");
    }
    let run = std::fs::read_to_string(folder.join("sabir-run.1")).unwrap();
    assert!(
        run.contains("max\\-turns") && run.contains("End the task after this many turns"),
        "{run}"
    );
    let alone = world.sabir().arg("man").output().unwrap();
    assert!(stdout(&alone).contains(".TH sabir 1"), "{}", stdout(&alone));

    if let Some(mut man) = program(&world, "man") {
        man.args(["--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z"])
            .env("LC_ALL", "C.UTF-8");
        let output = man
            .args(names.iter().map(|name| folder.join(name)))
            .output()
            .unwrap();
        assert!(
            output.status.success() && stderr(&output).is_empty(),
            "{}",
            stderr(&output)
        );
    }
    if program(&world, "mandoc").is_some() {
        let mut mandoc = Command::new("mandoc");
        let output = mandoc
            .args(["-Tlint", "-Werror"])
            .args(names.iter().map(|name| folder.join(name)))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", stdout(&output));
    }
}
