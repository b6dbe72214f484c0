//! Kinds of everyday commands that run or change something, each narrow enough to be approved once.
//!
//! A kind groups commands with similar effects and has a grammar like the programs that only read. `kind=cargo` approves building
//! and testing with options that change what is built or printed, but none that change which program runs or where output is
//! written: `cargo publish`, `cargo install` and `cargo --config …` do not belong to it.

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
        // Paths are checked as if the command ran in the workspace folder. A deeper folder would permit more `..`, so this is the
        // stricter choice.
        let context = PathContext {
            folder: &FolderScope::root(),
            root: "",
        };
        let mut arguments = self
            .grammar
            .names
            .iter()
            .filter_map(|name| strip_name(name, command));
        arguments.any(|rest| self.grammar.check_arguments(rest, context).is_ok())
    }

    /// Reports whether a command begins with a name of this kind, whatever its arguments are.
    pub(crate) fn begins_like(&self, command: &[ShellWord]) -> bool {
        self.grammar
            .names
            .iter()
            .any(|name| strip_name(name, command).is_some())
    }
}

/// Strips the words of a name from a command and returns the arguments.
fn strip_name<'a>(name: &str, command: &'a [ShellWord]) -> Option<&'a [ShellWord]> {
    name.split(' ').try_fold(command, |command, part| {
        let (first, rest) = command.split_first()?;
        (first.known_text() == Some(part)).then_some(rest)
    })
}

const CARGO: &str = "-p= -q -v -vv -r -j= -F= --package= --workspace --all --exclude= --lib --bins --bin= --examples --example= --tests --test= \
    --benches --bench= --all-targets --doc --release --profile= --features= --all-features --no-default-features --locked --offline \
    --frozen --no-run --no-fail-fast --keep-going --quiet --verbose --color= --message-format= --jobs= --target= --nocapture \
    --test-threads= --exact --ignored --include-ignored --skip= --show-output --no-deps --document-private-items --timings --future-incompat-report \
    -D= -W= -A= -E= --check --no-capture --open";
const SCRIPT: &str = "--silent -s --if-present --workspaces --watch=false --coverage --ci --runInBand -t= --testNamePattern= --reporter=";
const TEST: &str = "-v -vv -q -x -s -k= -m= -n= -l --verbose --quiet --lf --ff --last-failed --failed-first --exitfirst --maxfail= --tb= --durations= \
    --collect-only --co --no-header --color= --cov --cov=? --no-cov --disable-warnings -W= -ra -rA -rf -rs --runInBand --coverage --silent \
    --testNamePattern= -t= --ci --bail --bail=? --reporter= --run --watch=false --findRelatedTests --passWithNoTests";
const LINT: &str = "--check --quiet -q -v --verbose --max-warnings= --ext= --format= --output-format= --color --no-color --diff --select= --ignore= \
    --strict --ignore-missing-imports --show-error-codes --noEmit --pretty --statistics --line-length= --cache --no-cache --skipLibCheck";
const GO: &str = "-v -x -race -short -count= -run= -bench= -cover -failfast -timeout= -tags= -parallel= -benchmem -json -p=";
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
        ),
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
                "gofmt",
                "shellcheck",
            ],
            LINT,
            Paths,
        ),
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
        grammar: ProgramGrammar::new(&["cmake --build"], "-j= --parallel= --target= --config= -v", Paths),
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
        Some(word) => Err(format!("{} is no plain name", word.raw).into()),
        None => Ok(()),
    }
}

/// Rejects assignments such as `make CC=…`, which choose the programs that make runs.
fn only_targets(seen: &ParsedArguments<'_>) -> Result<(), AskReason> {
    match seen
        .operands
        .iter()
        .find(|word| word.known_text().is_none_or(|text| text.contains('=')))
    {
        Some(word) => Err(format!("{} may change what make runs", word.raw).into()),
        None => Ok(()),
    }
}
