//! Grave commands: what cannot be taken back, and is asked about even where all commands are approved.
//!
//! Deleting folders of the workspace by their names can be taken back, since there are checkpoints; a repository's own folder, and
//! what is named by a pattern or from a folder that is not certain, are asked about all the same.

use super::word::ShellWord;

/// Why a command cannot be taken back, if it is one of those that are known to do such things. `certain`: whether it is known
/// in which folder of the workspace it runs.
pub(crate) fn destructive_reason(words: &[ShellWord], certain: bool) -> Option<String> {
    let name = words.first().and_then(program_name)?;
    if super::programs::find_program(name).is_some() {
        return None;
    }
    // Behind `sudo`, `env` and their like a command stands somewhere; a word too many costs a question.
    (0..words.len()).find_map(|at| words.get(at..).and_then(|words| of_command(words, certain)))
}

fn program_name(word: &ShellWord) -> Option<&str> {
    word.known_text()?.rsplit('/').next()
}

fn of_command(words: &[ShellWord], certain: bool) -> Option<String> {
    let (first, rest) = words.split_first()?;
    let name = program_name(first)?;
    let known: Vec<&str> = rest.iter().filter_map(ShellWord::known_text).collect();
    let has = |options: &[&str]| known.iter().any(|word| options.contains(word));
    let letter = |letter: char| {
        known.iter().any(|word| word.starts_with('-') && !word.starts_with("--") && word.contains(letter))
    };
    let grave = match name {
        "rm" => {
            let recursive = letter('r') || letter('R') || has(&["--recursive", "--no-preserve-root"]);
            rest.iter().any(is_broad)
                || recursive && (!certain || rest.iter().any(is_repository_path) || !rest.iter().any(is_operand))
        }
        "sudo" | "doas" | "su" => true,
        "shred" | "srm" | "wipefs" | "mkswap" | "fdisk" | "sfdisk" | "parted" | "sgdisk" | "blkdiscard"
        | "cryptsetup" => true,
        "dd" => known.iter().any(|word| word.starts_with("of=")),
        "find" => has(&["-delete"]),
        "truncate" | "unlink" => rest.iter().any(is_broad),
        "mv" | "chmod" | "chown" | "chgrp" | "ln" => rest.iter().any(is_outside) || letter('R'),
        "shutdown" | "reboot" | "halt" | "poweroff" | "userdel" | "groupdel" | "crontab" => true,
        "kill" | "pkill" | "killall" => has(&["-1", "1"]),
        "git" => is_destructive_git(&known),
        "docker" | "podman" => has(&["prune", "rm", "rmi", "kill"]),
        "kubectl" => has(&["delete", "drain"]),
        "terraform" | "tofu" => has(&["destroy", "apply"]),
        "npm" | "pnpm" | "yarn" | "cargo" | "gem" | "twine" | "poetry" => has(&["publish", "unpublish", "yank"]),
        "gh" | "glab" => has(&["delete", "merge", "close"]),
        "dropdb" => true,
        _ => name.starts_with("mkfs"),
    };
    grave.then(|| format!("{name} may do what cannot be taken back"))
}

/// More than one named file.
fn is_broad(word: &ShellWord) -> bool {
    word.known_text().is_none_or(|text| text.contains("{}"))
        || is_outside(word)
        || matches!(word.text.trim_end_matches('/'), "" | "." | "..")
}

fn is_operand(word: &ShellWord) -> bool {
    word.known_text().is_some_and(|text| !text.starts_with('-'))
}

/// A repository's own folder, or something in it.
fn is_repository_path(word: &ShellWord) -> bool {
    word.text.split('/').any(|part| part.eq_ignore_ascii_case(".git"))
}

fn is_outside(word: &ShellWord) -> bool {
    word.text.starts_with(['/', '~']) || word.raw.starts_with('~') || word.text.split('/').any(|part| part == "..")
}

fn is_destructive_git(words: &[&str]) -> bool {
    let has = |options: &[&str]| words.iter().any(|word| options.contains(word));
    let forced = words.iter().any(|word| {
        word.starts_with("--force")
            || word.starts_with('+')
            || word.starts_with('-') && !word.starts_with("--") && word.contains('f')
    });
    if has(&["push"]) {
        let deletes = words
            .iter()
            .any(|word| word.starts_with(':') || matches!(*word, "--delete" | "-d" | "--mirror" | "--prune"));
        return forced || deletes;
    }
    has(&["reset"]) && has(&["--hard", "--merge", "--keep"])
        || has(&["clean"])
        || has(&["checkout", "switch"]) && (forced || has(&[".", "--discard-changes"]))
        || has(&["restore"])
        || has(&["branch", "tag"]) && has(&["-D", "-d", "--delete"])
        || has(&["stash"]) && has(&["drop", "clear"])
        || has(&["filter-branch", "filter-repo", "gc", "prune", "update-ref"])
        || has(&["reflog"]) && has(&["expire", "delete"])
        || has(&["worktree"]) && has(&["remove"])
        || has(&["rebase"]) && has(&["--exec", "-x"])
}
