//! Kinds of everyday commands that run or change something, each narrow enough to be approved once.
//!
//! A kind groups commands with similar effects and has a grammar like the programs that only read. `kind=cargo` approves building
//! and testing with options that change what is built or printed, but none that change which program runs or where output is
//! written: `cargo publish`, `cargo install` and `cargo --config …` do not belong to it.
//!
//! Kinds answer the question that a prefix rule answers badly. `cargo **` would also allow `cargo publish` and
//! `cargo --config 'build.rustc="./evil"' build`; the text `cargo test -p a` would ask again for `cargo test -p b`. A kind allows the
//! reach of a command: the same subcommands, with the options that neither change what is run nor where output goes.
//!
//! Everything in a kind runs code of the repository or changes it, so a kind is proposed and never allowed by itself. The name is part
//! of the user's configuration (`kind=cargo`); renaming one breaks rules that exist.

use super::ask_reason::AskReason;
use super::grammar::OperandKind::{Nothing, Paths, Text};
use super::grammar::{ParsedArguments, PathContext, ProgramGrammar};
use super::path_scope::FolderScope;
use super::word::ShellWord;

/// A kind of command: its name, and the grammar of the commands that belong to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CommandKind {
    pub(crate) name: &'static str,
    grammar: ProgramGrammar,
}

/// Finds a kind by its name.
pub(crate) fn find_kind(name: &str) -> Option<&'static CommandKind> {
    KINDS.iter().find(|kind| kind.name == name)
}

/// Returns the name of the kind that a command belongs to.
pub(crate) fn kind_of(command: &[ShellWord]) -> Option<&'static str> {
    KINDS
        .iter()
        .find(|kind| kind.is_match(command))
        .map(|kind| kind.name)
}

impl CommandKind {
    /// Describes the commands of this kind, as a phrase for the user.
    pub(crate) fn describe(&self) -> String {
        format!(
            "{}, with options that do not change what is run",
            self.grammar.names.join(", ")
        )
    }

    /// Reports whether a command with all its arguments belongs to this kind.
    pub(crate) fn is_match(&self, command: &[ShellWord]) -> bool {
        // Paths are checked as if the command ran in the workspace folder. A deeper folder would
        // permit more `..`, so this is the stricter choice.
        let context = PathContext {
            folder: &FolderScope::root(),
            root: "",
        };
        // A kind may have names of different lengths, and any of them may be meant.
        let mut arguments = self
            .grammar
            .names
            .iter()
            .filter_map(|name| strip_name(name, command));
        arguments.any(|rest| self.grammar.check_arguments(rest, context).is_ok())
    }

    /// Reports whether a command begins with a name of this kind, with any arguments.
    pub(crate) fn begins_like(&self, command: &[ShellWord]) -> bool {
        self.grammar
            .names
            .iter()
            .any(|name| strip_name(name, command).is_some())
    }
}

/// Strips the words of a name from a command and returns the arguments.
fn strip_name<'a>(name: &str, command: &'a [ShellWord]) -> Option<&'a [ShellWord]> {
    // Nearly all names begin with another program, so that is compared first.
    if !name.starts_with(command.first()?.known_text()?) {
        return None;
    }
    name.split(' ').try_fold(command, |command, part| {
        let (first, rest) = command.split_first()?;
        (first.known_text() == Some(part)).then_some(rest)
    })
}

/// Options of cargo that choose what is built and tested, and how that is printed. Left out are `--config`, `--manifest-path`,
/// `--target-dir` and `-Z`, which change what runs or where it is written.
const CARGO: &str = "-p= -q -v -vv -r -j= -F= --package= --workspace --all --exclude= --lib --bins --bin= --examples --example= --tests --test= \
    --benches --bench= --all-targets --doc --release --profile= --features= --all-features --no-default-features --locked --offline \
    --frozen --no-run --no-fail-fast --keep-going --quiet --verbose --color= --message-format= --jobs= --target= --nocapture \
    --test-threads= --exact --ignored --include-ignored --skip= --show-output --no-deps --document-private-items --timings --future-incompat-report \
    -D= -W= -A= -E= --check --no-capture --open";
/// Options of package scripts. Words behind `--` go to the script, which the repository wrote anyway.
const SCRIPT: &str = "--silent -s --if-present --workspaces --watch=false --coverage --ci --runInBand -t= --testNamePattern= --reporter=";
/// Options of test runners. Left out are those that load plugins or configuration from a path (`-p`, `-c`, `--rootdir`).
const TEST: &str = "-v -vv -q -x -s -k= -m= -n= -l --verbose --quiet --lf --ff --last-failed --failed-first --exitfirst --maxfail= --tb= --durations= \
    --collect-only --co --no-header --color= --cov --cov=? --no-cov --disable-warnings -W= -ra -rA -rf -rs --runInBand --coverage --silent \
    --testNamePattern= -t= --ci --bail --bail=? --reporter= --run --watch=false --findRelatedTests --passWithNoTests";
/// Options of linters and formatters. Left out are those that rewrite files where only a check is meant to run (`--fix`), and those that
/// load code (`--config`, `--plugin`).
const LINT: &str = "--check --quiet -q -v --verbose --max-warnings= --ext= --format= --output-format= --color --no-color --diff --select= --ignore= \
    --strict --ignore-missing-imports --show-error-codes --noEmit --pretty --statistics --line-length= --cache --no-cache --skipLibCheck";
/// Options of go. Left out are `-exec`, `-toolexec`, `-overlay`, `-modfile` and `-o`, which run or write something else.
const GO: &str = "-v -x -race -short -count= -run= -bench= -cover -failfast -timeout= -tags= -parallel= -benchmem -json -p=";
/// Options of make. Left out are `-f`, `-C`, `-I`, `--eval` and assignments, which choose other rules.
const MAKE: &str =
    "-j= -s -k -n -B --silent --keep-going --dry-run --always-make --no-print-directory";

/// All kinds. A command belongs to the first one that matches.
const KINDS: &[CommandKind] = &[
    CommandKind {
        name: "cargo",
        grammar: ProgramGrammar::new(
            &[
                "cargo test",
                "cargo build",
                "cargo check",
                "cargo clippy",
                "cargo fmt",
                "cargo doc",
                "cargo bench",
                "cargo run",
                "cargo nextest run",
                "cargo tree",
                "cargo metadata",
            ],
            CARGO,
            Text,
        ),
    },
    CommandKind {
        name: "npm scripts",
        grammar: ProgramGrammar::new(
            &[
                "npm test",
                "npm run test",
                "npm run build",
                "npm run lint",
                "npm run typecheck",
                "npm run check",
                "npm run format",
                "pnpm test",
                "pnpm build",
                "pnpm lint",
                "yarn test",
                "yarn build",
                "yarn lint",
                "bun test",
                "npm ls",
                "npm outdated",
            ],
            SCRIPT,
            Text,
        ),
    },
    // Installs only what the lock file pins; a plain `npm install` may change it.
    CommandKind {
        name: "npm ci",
        grammar: ProgramGrammar::new(
            &["npm ci", "pnpm install", "yarn install"],
            "--frozen-lockfile --silent --no-audit --no-fund --ignore-scripts",
            Nothing,
        ),
    },
    CommandKind {
        name: "tests",
        grammar: ProgramGrammar::new(
            &[
                "pytest",
                "python -m pytest",
                "python3 -m pytest",
                "npx jest",
                "npx vitest",
                "npx vitest run",
                "uv run pytest",
                "poetry run pytest",
                "python3 -m unittest",
                "python -m unittest",
                "mvn test",
                "gradle test",
                "dotnet test",
                "mix test",
                "bundle exec rspec",
            ],
            TEST,
            Paths,
        )
        .with_check(no_file_of_arguments),
    },
    CommandKind {
        name: "linters",
        grammar: ProgramGrammar::new(
            &[
                "npx tsc",
                "tsc",
                "npx eslint",
                "eslint",
                "npx prettier",
                "prettier",
                "ruff check",
                "ruff format",
                "mypy",
                "black",
                "flake8",
                "pyright",
                "golangci-lint run",
            ],
            LINT,
            Paths,
        )
        .with_check(no_file_of_arguments),
    },
    CommandKind {
        name: "go",
        grammar: ProgramGrammar::new(
            &["go test", "go build", "go vet", "go fmt", "go list", "go mod tidy", "go mod verify"],
            GO,
            Text,
        ),
    },
    CommandKind { name: "make", grammar: ProgramGrammar::new(&["make"], MAKE, Text).with_check(only_targets) },
    CommandKind {
        name: "cmake",
        grammar: ProgramGrammar::new(&["cmake --build"], "-j= --parallel= --target= --config= -v", Paths).with_check(only_local_targets),
    },
    CommandKind {
        name: "git commits",
        grammar: ProgramGrammar::new(
            &["git add", "git commit"],
            "-A -u -p -v -n -N -m= -a -q -s -S --all --update --verbose --dry-run --intent-to-add --message= --quiet --signoff --allow-empty --no-edit --amend --fixup=",
            Paths,
        ),
    },
    CommandKind {
        name: "git fetch",
        grammar: ProgramGrammar::new(
            &["git fetch", "git pull"],
            "-q -v -p -t --all --prune --tags --quiet --verbose --ff-only --rebase --no-rebase --dry-run",
            Text,
        )
        .with_check(named_remote),
    },
    CommandKind {
        name: "git branches",
        grammar: ProgramGrammar::new(&["git switch", "git checkout"], "-c= -b= -q --quiet --create= --track", Text),
    },
    CommandKind {
        name: "git stash",
        grammar: ProgramGrammar::new(
            &["git stash", "git stash push", "git stash pop", "git stash apply"],
            "-u -q -m= --include-untracked --quiet --message= --keep-index",
            Text,
        ),
    },
    CommandKind {
        name: "git merges",
        grammar: ProgramGrammar::new(
            &["git merge", "git rebase", "git cherry-pick"],
            "-q --ff-only --no-ff --no-edit --continue --abort --quiet --stat",
            Text,
        ),
    },
    // Without `--force` and `--delete`, which can destroy the history of others.
    CommandKind {
        name: "git push",
        grammar: ProgramGrammar::new(
            &["git push"],
            "-u -q -v -n --set-upstream --quiet --verbose --dry-run --tags",
            Text,
        )
        .with_check(named_remote),
    },
    CommandKind {
        name: "new files",
        grammar: ProgramGrammar::new(&["mkdir", "touch"], "-p -v -c -a --parents --verbose", Paths),
    },
    CommandKind {
        name: "copies",
        grammar: ProgramGrammar::new(
            &["cp", "mv"],
            "-r -R -a -v -n -p -i --recursive --archive --verbose --no-clobber",
            Paths,
        ),
    },
];

/// Accepts only remotes and references by plain name: an address could be anybody's server, and `ext::` addresses run programs.
fn named_remote(seen: &ParsedArguments<'_>) -> Result<(), AskReason> {
    match seen.operands.iter().find(|word| {
        word.known_text().is_none_or(|text| {
            text.contains("::") || text.contains("//") || text.starts_with(['.', '+', ':'])
        })
    }) {
        Some(word) => Err(format!("{} is not a plain name", word.raw).into()),
        None => Ok(()),
    }
}

/// Rejects `@FILE`, from which pytest, `tsc` and mypy read options that their grammar leaves out.
fn no_file_of_arguments(seen: &ParsedArguments<'_>) -> Result<(), AskReason> {
    let names_arguments =
        |word: &&ShellWord| word.known_text().is_some_and(|text| text.starts_with('@'));
    match seen.operands.iter().find(|word| names_arguments(word)) {
        Some(word) => Err(format!("{} may be a file with options", word.raw).into()),
        None => Ok(()),
    }
}

/// Rejects assignments such as `make CC=…`, which choose the programs that make runs, and targets whose name says that they
/// reach beyond the folder.
fn only_targets(seen: &ParsedArguments<'_>) -> Result<(), AskReason> {
    let assigns = |word: &&ShellWord| {
        word.known_text()
            .is_none_or(|text| text.contains(['=', '$']))
    };
    if let Some(word) = seen.operands.iter().find(|word| assigns(word)) {
        return Err(format!("{} may change what make runs", word.raw).into());
    }
    only_local_targets(seen)
}

/// Rejects targets whose name says that they publish, install or remove something elsewhere: `deploy`, `docker-push`.
fn only_local_targets(seen: &ParsedArguments<'_>) -> Result<(), AskReason> {
    /// The words of such names.
    const FAR: [&str; 22] = [
        "apply",
        "bootstrap",
        "flash",
        "helm",
        "install",
        "kubectl",
        "login",
        "migrate",
        "notify",
        "prod",
        "push",
        "rsync",
        "scp",
        "send",
        "ship",
        "ssh",
        "sync",
        "teardown",
        "terraform",
        "tofu",
        "uninstall",
        "up",
    ];
    /// The parts that make a word one of them wherever they occur in it: `redeploy`, `releases`.
    const FAR_PARTS: [&str; 11] = [
        "deploy",
        "destroy",
        "production",
        "promote",
        "provision",
        "publish",
        "release",
        "rollback",
        "rollout",
        "staging",
        "upload",
    ];
    let is_far = |text: Option<&str>| {
        text.is_none_or(|text| {
            text.split(|c: char| !c.is_ascii_alphanumeric())
                .map(str::to_ascii_lowercase)
                .any(|part| {
                    FAR.contains(&part.as_str()) || FAR_PARTS.iter().any(|far| part.contains(far))
                })
        })
    };
    if let Some(word) = seen.operands.iter().find(|word| is_far(word.known_text())) {
        return Err(format!("the target {} may reach beyond the folder", word.raw).into());
    }
    // `cmake --build build --target install`.
    let mut targets = seen.option_values("--target=");
    if targets.any(|target| is_far(target.known_text())) {
        return Err("its target may reach beyond the folder".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{Access, CommandFacts, ExtraPermissions, PolicyRules, Verdict};
    use super::{KINDS, kind_of};
    use crate::word::ShellWord;

    /// A name that belongs to another kind, or to a command that runs unasked, is never used.
    #[test]
    fn no_name_is_dead() {
        let facts = CommandFacts {
            clean_path: true,
            ..CommandFacts::default()
        };
        for kind in KINDS {
            for name in kind.grammar.names {
                let words: Vec<ShellWord> = name.split(' ').map(ShellWord::literal).collect();
                assert_eq!(kind_of(&words), Some(kind.name), "{name}");
                let decision = PolicyRules::default().decide(&Access::Command {
                    command: (*name).to_owned(),
                    facts: facts.clone(),
                    beyond: ExtraPermissions::Nothing,
                });
                assert_eq!(decision.verdict, Verdict::Ask, "{name}");
                // Without its own arguments `git checkout` and the like may be destructive; none of
                // the names is.
                assert_eq!(
                    decision.proposals,
                    [format!("kind={}", kind.name)],
                    "{name}"
                );
            }
        }
    }
}
