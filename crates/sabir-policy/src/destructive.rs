//! Destructive commands: effects that cannot be undone, which ask even if all commands are approved.
//!
//! Deleting named folders of the workspace can be undone from checkpoints. Deleting a repository's `.git` folder, a pattern, or
//! anything from a folder that is not certain asks nevertheless.

use super::word::ShellWord;

/// Returns the reason why a command is destructive, or `None` if it is not known to be. `certain` is true if the folder that it
/// runs in is known.
pub(crate) fn destructive_reason(words: &[ShellWord], certain: bool) -> Option<String> {
    let name = words.first().and_then(program_name)?;
    if super::programs::find_program(name).is_some() {
        return None;
    }
    // Programs such as `sudo` and `env` run a command from their arguments. Every position is tried, because a false match costs
    // only a question.
    (0..words.len()).find_map(|at| {
        words
            .get(at..)
            .and_then(|words| command_reason(words, certain))
    })
}

fn program_name(word: &ShellWord) -> Option<&str> {
    word.known_text()?.rsplit('/').next()
}

/// Judges the words as one command, without looking for another command in its arguments.
fn command_reason(words: &[ShellWord], certain: bool) -> Option<String> {
    let (first, rest) = words.split_first()?;
    let name = program_name(first)?;
    let known: Vec<&str> = rest.iter().filter_map(ShellWord::known_text).collect();
    let has = |options: &[&str]| known.iter().any(|word| options.contains(word));
    let letter = |letter: char| {
        known
            .iter()
            .any(|word| word.starts_with('-') && !word.starts_with("--") && word.contains(letter))
    };
    let destructive = match name {
        "rm" => {
            let recursive =
                letter('r') || letter('R') || has(&["--recursive", "--no-preserve-root"]);
            rest.iter().any(is_broad)
                || recursive
                    && (!certain
                        || rest.iter().any(is_repository_path)
                        || !rest.iter().any(is_operand))
        }
        "sudo" | "doas" | "su" => true,
        "shred" | "srm" | "wipefs" | "mkswap" | "fdisk" | "sfdisk" | "parted" | "sgdisk"
        | "blkdiscard" | "cryptsetup" => true,
        // dd writes to a file or a disk only with `of=`.
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
        "npm" | "pnpm" | "yarn" | "cargo" | "gem" | "twine" | "poetry" => {
            has(&["publish", "unpublish", "yank"])
        }
        "gh" | "glab" => has(&["delete", "merge", "close"]),
        "dropdb" => true,
        _ => name.starts_with("mkfs"),
    };
    destructive.then(|| format!("{name} may do what cannot be taken back"))
}

/// Reports whether a word may name more than one file of the workspace.
fn is_broad(word: &ShellWord) -> bool {
    word.known_text().is_none_or(|text| text.contains("{}"))
        || is_outside(word)
        || matches!(word.text.trim_end_matches('/'), "" | "." | "..")
}

fn is_operand(word: &ShellWord) -> bool {
    word.known_text().is_some_and(|text| !text.starts_with('-'))
}

/// Reports whether a word names a `.git` folder or something in it.
fn is_repository_path(word: &ShellWord) -> bool {
    word.text
        .split('/')
        .any(|part| part.eq_ignore_ascii_case(".git"))
}

fn is_outside(word: &ShellWord) -> bool {
    word.text.starts_with(['/', '~'])
        || word.raw.starts_with('~')
        || word.text.split('/').any(|part| part == "..")
}

fn is_destructive_git(words: &[&str]) -> bool {
    let has = |options: &[&str]| words.iter().any(|word| options.contains(word));
    let forced = words.iter().any(|word| {
        word.starts_with("--force")
            || word.starts_with('+')
            || word.starts_with('-') && !word.starts_with("--") && word.contains('f')
    });
    // `git push -f`, `+branch` and `:branch` overwrite or delete on the remote.
    if has(&["push"]) {
        let deletes = words.iter().any(|word| {
            word.starts_with(':') || matches!(*word, "--delete" | "-d" | "--mirror" | "--prune")
        });
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
