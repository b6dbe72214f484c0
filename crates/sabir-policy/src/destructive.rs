//! Destructive commands: effects that cannot be undone, which ask even if all commands are approved.
//!
//! Deleting named folders of the workspace can be undone from checkpoints. Deleting a repository's `.git` folder, a pattern, or
//! anything from a folder that is not certain asks nevertheless, and so does writing outside of the workspace, where there are
//! no checkpoints.
//!
//! The rules are a table with an example for each row. A test checks the examples, so that a row which can never match (its
//! program is checked elsewhere, or its words never occur) is found.

use super::path_scope::FolderScope;
use super::word::{ShellWord, WordForm};

/// The folder that a command runs in, and the workspace around it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CommandLocation<'a> {
    pub(crate) folder: &'a FolderScope,
    /// The absolute path of the workspace; empty if it is not known.
    pub(crate) root: &'a str,
}

/// The words of one command, prepared for the rules.
struct CommandWords<'a> {
    /// The words behind the program.
    rest: &'a [ShellWord],
    /// The certain ones among them.
    known: Vec<&'a str>,
    location: CommandLocation<'a>,
}

/// A rule for some programs.
struct DestructiveRule {
    programs: &'static [&'static str],
    is_destructive: fn(&CommandWords<'_>) -> bool,
    /// A line that the rule is about.
    #[cfg_attr(not(test), expect(dead_code, reason = "only tests read the examples"))]
    examples: &'static [&'static str],
}

/// The rules; a program may have several.
const RULES: &[DestructiveRule] = &[
    DestructiveRule {
        programs: &["rm"],
        is_destructive: removes_broadly,
        examples: &["rm -rf /", "rm *", "rm -r .git", "rm ../x", "rm -rf ~"],
    },
    DestructiveRule {
        programs: &["sudo", "doas", "su", "pkexec", "run0"],
        is_destructive: |_| true,
        examples: &["sudo ls", "doas ls", "su -c ls", "pkexec ls", "run0 ls"],
    },
    DestructiveRule {
        programs: &[
            "shred",
            "srm",
            "wipefs",
            "mkswap",
            "fdisk",
            "sfdisk",
            "parted",
            "sgdisk",
            "blkdiscard",
            "cryptsetup",
            "dropdb",
            "shutdown",
            "reboot",
            "halt",
            "poweroff",
            "userdel",
            "groupdel",
            "crontab",
        ],
        is_destructive: |_| true,
        examples: &[
            "shred a",
            "wipefs /dev/sda",
            "dropdb x",
            "reboot",
            "crontab -r",
        ],
    },
    // dd writes to a file or a disk only with `of=`.
    DestructiveRule {
        programs: &["dd"],
        is_destructive: |words| {
            words
                .rest
                .iter()
                .any(|word| word.text.starts_with("of=") || word.raw.contains("of="))
        },
        examples: &["dd if=a of=/dev/sda", "dd of=~/x"],
    },
    DestructiveRule {
        programs: &["find"],
        is_destructive: |words| words.has(&["-delete"]),
        examples: &["find . -name x -delete"],
    },
    DestructiveRule {
        programs: &["fd", "fdfind"],
        is_destructive: |words| {
            words.has(&["-x", "-X", "--exec", "--exec-batch"])
                && words.has(&["rm", "shred", "unlink"])
        },
        examples: &["fd x -x rm"],
    },
    DestructiveRule {
        programs: &["truncate", "unlink"],
        is_destructive: |words| words.rest.iter().any(is_broad),
        examples: &["truncate -s 0 /etc/hosts", "unlink ../x"],
    },
    DestructiveRule {
        programs: &["mv", "chmod", "chown", "chgrp", "ln"],
        is_destructive: |words| words.rest.iter().any(is_outside) || words.has_letter('R'),
        examples: &[
            "mv a /etc/x",
            "chmod -R 777 .",
            "chown u ~/x",
            "ln -s /etc x",
        ],
    },
    DestructiveRule {
        programs: &["kill", "pkill", "killall"],
        is_destructive: |words| words.has(&["-1", "1"]),
        examples: &["kill -9 -1", "kill 1"],
    },
    DestructiveRule {
        programs: &["git"],
        is_destructive: |words| is_destructive_git(&words.known) || writes_git_elsewhere(words),
        examples: &[
            "git push --force",
            "git reset --hard",
            "git clean -fdx",
            "git checkout .",
            "git branch -D x",
            "git stash drop",
            "git reflog expire --all",
            "git worktree remove x",
            "git config --global user.name x",
            "git clone https://h/x ~/x",
        ],
    },
    DestructiveRule {
        programs: &["docker", "podman", "nerdctl"],
        is_destructive: |words| {
            words.has(&["prune", "rm", "rmi", "kill", "remove"])
                || words.has(&["down"]) && words.has(&["-v", "--volumes", "--rmi"])
        },
        examples: &[
            "docker system prune",
            "docker rm x",
            "podman rmi x",
            "docker volume rm x",
            "docker compose down -v",
        ],
    },
    DestructiveRule {
        programs: &["kubectl", "oc", "helm"],
        is_destructive: |words| words.has(&["delete", "drain", "uninstall"]),
        examples: &[
            "kubectl delete pod x",
            "kubectl drain n",
            "helm uninstall x",
        ],
    },
    DestructiveRule {
        programs: &["terraform", "tofu", "pulumi", "cdk"],
        is_destructive: |words| words.has(&["destroy", "apply", "up", "deploy"]),
        examples: &["terraform destroy", "tofu apply", "pulumi up", "cdk deploy"],
    },
    DestructiveRule {
        programs: &[
            "npm", "pnpm", "yarn", "bun", "cargo", "gem", "twine", "poetry", "uv", "hatch", "mvn",
            "dotnet", "flit",
        ],
        is_destructive: |words| {
            words.has(&[
                "publish",
                "unpublish",
                "yank",
                "deprecate",
                "push",
                "upload",
                "deploy",
            ])
        },
        examples: &[
            "npm unpublish x",
            "cargo publish",
            "cargo yank x",
            "gem push x",
            "uv publish",
            "twine upload dist/x",
        ],
    },
    DestructiveRule {
        programs: &["gh", "glab"],
        is_destructive: |words| words.has(&["delete", "merge", "close"]),
        examples: &["gh repo delete x", "gh pr merge 1", "glab issue close 1"],
    },
    DestructiveRule {
        programs: &["aws", "gcloud", "az"],
        is_destructive: |words| {
            words.has(&["rm", "rb", "delete"])
                || words
                    .known
                    .iter()
                    .any(|word| word.starts_with("delete-") || word.starts_with("terminate-"))
        },
        examples: &[
            "aws s3 rm s3://x",
            "aws ec2 terminate-instances",
            "gcloud projects delete x",
            "az group delete",
        ],
    },
    // Programs that write to the path in their arguments.
    DestructiveRule {
        programs: &[
            "tee", "touch", "mkdir", "rmdir", "install", "sponge", "patch",
        ],
        is_destructive: |words| words.rest.iter().any(|word| words.targets_outside(word)),
        examples: &[
            "tee ~/.ssh/authorized_keys",
            "touch /x",
            "mkdir ~/x",
            "install a /usr/bin/a",
        ],
    },
    DestructiveRule {
        programs: &["cp", "rsync", "scp"],
        is_destructive: |words| {
            words.value_outside(&["-t", "--target-directory"])
                || words
                    .rest
                    .last()
                    .is_some_and(|last| words.targets_outside(last))
        },
        examples: &[
            "cp a ~/.bashrc",
            "cp -t /usr/bin a",
            "rsync -a . /x",
            "cp a ../x",
        ],
    },
    DestructiveRule {
        programs: &["tar", "bsdtar", "cpio"],
        is_destructive: |words| {
            words.has(&["-P", "--absolute-names"])
                || words.rest.iter().any(|word| words.targets_outside(word))
        },
        examples: &[
            "tar -C / -xf a.tar",
            "tar -xf a.tar -C ~",
            "tar -xPf a.tar -P",
            "tar --directory=/etc -xf a",
        ],
    },
    DestructiveRule {
        programs: &["unzip", "7z", "unrar"],
        is_destructive: |words| {
            words.value_outside(&["-d"])
                || words.rest.iter().any(|word| word.text.starts_with("-o/"))
        },
        examples: &["unzip a.zip -d /", "7z x a -o/usr"],
    },
    DestructiveRule {
        programs: &["curl", "wget"],
        is_destructive: |words| {
            words.value_outside(&[
                "-o",
                "-O",
                "-P",
                "--output",
                "--output-dir",
                "--output-document",
                "--directory-prefix",
            ])
        },
        examples: &[
            "curl -o ~/.bashrc https://h",
            "wget -O /etc/x https://h",
            "wget -P ~ https://h",
            "curl --output=/x https://h",
        ],
    },
    DestructiveRule {
        programs: &["sed", "gsed", "perl", "ruby"],
        is_destructive: |words| {
            (words.has_letter('i')
                || words
                    .known
                    .iter()
                    .any(|word| word.starts_with("--in-place")))
                && words.rest.iter().any(|word| {
                    word.raw.starts_with(['/', '~', '.', '$']) && words.targets_outside(word)
                })
        },
        examples: &["sed -i s/a/b/ ~/.bashrc", "perl -pi -e s/a/b/ /etc/hosts"],
    },
];

/// Returns the reason why a command is destructive, or `None` if it is not known to be.
///
/// Programs such as `sudo` and `env` run a command from their arguments, so every position is tried: a false match costs only a
/// question. A program that is known to only read prints its arguments, so only its name counts.
pub(crate) fn destructive_reason(
    words: &[ShellWord],
    location: CommandLocation<'_>,
) -> Option<String> {
    let name = words.first().and_then(program_name)?;
    let reads = super::programs::find_program(name).is_some_and(|row| !row.is_version_only());
    let starts = if reads { 1 } else { words.len() };
    // The first position that is destructive is enough: what is shown is the program there.
    (0..starts).find_map(|at| {
        words
            .get(at..)
            .and_then(|words| command_reason(words, location))
    })
}

/// Returns the name of a program without its folder, if it is certain.
fn program_name(word: &ShellWord) -> Option<&str> {
    word.known_text()?.rsplit('/').next()
}

/// Checks the words as one command, without looking for another command in its arguments.
fn command_reason(words: &[ShellWord], location: CommandLocation<'_>) -> Option<String> {
    let (first, rest) = words.split_first()?;
    let name = program_name(first)?;
    let words = CommandWords {
        rest,
        known: rest.iter().filter_map(ShellWord::known_text).collect(),
        location,
    };
    let destructive = name.starts_with("mkfs")
        || RULES
            .iter()
            .any(|rule| rule.programs.contains(&name) && (rule.is_destructive)(&words));
    destructive.then(|| format!("{name} may do what cannot be taken back"))
}

impl CommandWords<'_> {
    /// Reports whether one of these words is among the certain ones, at any position.
    fn has(&self, options: &[&str]) -> bool {
        self.known.iter().any(|word| options.contains(word))
    }

    /// Reports whether a cluster of short options holds a letter.
    fn has_letter(&self, letter: char) -> bool {
        self.known
            .iter()
            .any(|word| word.starts_with('-') && !word.starts_with("--") && word.contains(letter))
    }

    /// Reports whether a word may name a file outside of the workspace ([`is_outside_target`]).
    fn targets_outside(&self, word: &ShellWord) -> bool {
        is_outside_target(word, self.location)
    }

    /// Reports whether the value of one of these options, attached or the next word, lies outside of the workspace.
    fn value_outside(&self, options: &[&str]) -> bool {
        let next = self.rest.windows(2).any(|pair| match pair {
            [option, value] => {
                option
                    .known_text()
                    .is_some_and(|text| options.contains(&text))
                    && self.targets_outside(value)
            }
            _ => false,
        });
        // `-o/x` and `--output=/x`.
        let attached = self.rest.iter().any(|word| {
            let starts =
                |option: &&&str| word.text.len() > option.len() && word.text.starts_with(**option);
            options.iter().any(|option| starts(&option)) && self.targets_outside(word)
        });
        next || attached
    }
}

/// Reports whether `rm` may remove more than named files and folders of the workspace.
fn removes_broadly(words: &CommandWords<'_>) -> bool {
    let recursive = words.has_letter('r')
        || words.has_letter('R')
        || words.has(&["--recursive", "--no-preserve-root"]);
    words.rest.iter().any(is_broad)
        || recursive
            && (words.location.folder.path().is_none()
                || words.rest.iter().any(is_repository_path)
                || !words.rest.iter().any(is_operand))
}

/// Reports whether a word may name more than one file of the workspace.
fn is_broad(word: &ShellWord) -> bool {
    word.known_text().is_none_or(|text| text.contains("{}"))
        || is_outside(word)
        || matches!(word.text.trim_end_matches('/'), "" | "." | "..")
}

/// Reports whether a word is certain and no option.
fn is_operand(word: &ShellWord) -> bool {
    word.known_text().is_some_and(|text| !text.starts_with('-'))
}

/// Reports whether a word names a `.git` folder or something in it.
fn is_repository_path(word: &ShellWord) -> bool {
    word.text
        .split('/')
        .any(|part| part.eq_ignore_ascii_case(".git"))
}

/// Reports whether a path leaves the workspace by its text alone. Absolute paths inside count as outside, which costs a question for
/// the few commands that use this.
fn is_outside(word: &ShellWord) -> bool {
    word.text.starts_with(['/', '~'])
        || word.raw.starts_with('~')
        || word.text.split('/').any(|part| part == "..")
}

/// Reports whether a file that a command writes may lie outside of the workspace. Temporary folders do not count: they are
/// private in the sandbox, and hold nothing that is missed.
pub(crate) fn is_outside_target(word: &ShellWord, location: CommandLocation<'_>) -> bool {
    /// Folders for temporary files.
    const TEMPORARY: [&str; 3] = ["/tmp/", "/var/tmp/", "/dev/shm/"];
    /// Devices that keep nothing.
    const DEVICES: [&str; 5] = [
        "/dev/null",
        "/dev/stdout",
        "/dev/stderr",
        "/dev/tty",
        "/dev/zero",
    ];
    // The value of an option counts, attached by `=` or directly (`-C/`).
    let text = match word.text.split_once('=') {
        Some((option, value)) if option.starts_with('-') => value,
        _ if word.text.starts_with("--") => return false,
        _ if word.text.starts_with('-') => match word.text.find(['/', '~']) {
            Some(at) => word.text.get(at..).unwrap_or_default(),
            None => return false,
        },
        _ => word.text.as_str(),
    };
    // The home folder, whose path is not known, and any other unknown beginning.
    let unknown_start = text.is_empty() && !matches!(word.form, WordForm::Literal);
    let inside_field = matches!(word.form, WordForm::Field(known) if known.inside);
    let temporary = TEMPORARY.iter().any(|folder| text.starts_with(folder))
        && !text.split('/').any(|part| part == "..")
        || matches!(text, "/tmp" | "/var/tmp")
        || DEVICES.contains(&text);
    // A URL is not a path, although it holds slashes.
    let remote = text.contains("://");
    !temporary
        && !remote
        && (unknown_start && !inside_field
            || text.starts_with('~')
            || matches!(word.form, WordForm::Odd(_))
            || !text.is_empty() && location.folder.join(text, location.root).is_err())
}

/// Reports whether git writes outside of the workspace: the user's configuration, or a clone elsewhere.
fn writes_git_elsewhere(words: &CommandWords<'_>) -> bool {
    const READS: [&str; 8] = [
        "--get",
        "--get-all",
        "--get-regexp",
        "--list",
        "-l",
        "get",
        "list",
        "--get-urlmatch",
    ];
    // `~/.gitconfig` is read by every repository of the user, and can name programs.
    let sets_global =
        words.has(&["config"]) && words.has(&["--global", "--system"]) && !words.has(&READS);
    // A clone elsewhere is a folder that no checkpoint covers.
    let leaves = words.has(&["worktree"])
        && words.rest.iter().any(|word| words.targets_outside(word))
        || words.has(&["clone", "init"])
            && words
                .rest
                .last()
                .is_some_and(|last| words.targets_outside(last));
    sets_global || leaves
}

/// Reports whether git loses commits or changes that are not committed, here or on a remote. The words are compared at any
/// position, because options of git itself may precede the subcommand.
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

/// Looks for a destructive command in program code, such as that behind `python -c`. The texts in quotes are tried as commands.
pub(crate) fn destructive_code_reason(code: &str, location: CommandLocation<'_>) -> Option<String> {
    code.split(['\'', '"', '`', ';', '(', ')', '\n'])
        .find_map(|piece| {
            let words: Vec<ShellWord> = piece.split_whitespace().map(ShellWord::literal).collect();
            destructive_reason(words.get(..).filter(|words| words.len() > 1)?, location)
        })
}

#[cfg(test)]
mod tests {
    use super::super::{Access, CommandFacts, ExtraPermissions, PolicyRules, Verdict};
    use super::RULES;

    #[test]
    fn no_row_is_dead() {
        let mut rules = PolicyRules::default();
        rules.add_approval("all").unwrap();
        let facts = CommandFacts {
            clean_path: true,
            root: "/w/proj".to_owned(),
            ..CommandFacts::default()
        };
        for rule in RULES {
            for example in rule.examples {
                let program = example.split(' ').next().unwrap();
                assert!(rule.programs.contains(&program), "{example}");
                let decision = rules.decide(&Access::Command {
                    command: (*example).to_owned(),
                    facts: facts.clone(),
                    beyond: ExtraPermissions::Nothing,
                });
                assert_eq!(
                    decision.verdict,
                    Verdict::Ask,
                    "{example}: {}",
                    decision.reason
                );
                assert!(
                    decision.reason.contains("cannot be taken back"),
                    "{example}: {}",
                    decision.reason
                );
            }
        }
    }
}
