//! Kinds: commands of a working day that run or change something, each so narrow that it can be approved once.
//!
//! A kind is some commands of the same reach, with a row like those of programs that only read. `kind=cargo` approves building
//! and testing with options that change what is built or printed, and none that changes what is run or where it is written:
//! `cargo publish`, `cargo install` and `cargo --config …` are not of it.

use super::grammar::Operands::{Nothing, Paths, Text};
use super::grammar::{Ground, Row, Seen};
use super::place::Folder;
use super::word::Word;

/// A kind of command: its name, and what is allowed of each command that the row names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    row: Row,
}

/// The kind of that name.
pub(crate) fn find(name: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.name == name)
}

/// The kind that a command is of, by name.
pub(crate) fn of(command: &[Word]) -> Option<&'static str> {
    KINDS.iter().find(|kind| kind.matches(command)).map(|kind| kind.name)
}

impl Kind {
    /// Its commands, in words.
    pub(crate) fn words(&self) -> String {
        format!("{}, with options that do not change what is run", self.row.names.join(", "))
    }

    /// Whether a command is of this kind.
    pub(crate) fn matches(&self, command: &[Word]) -> bool {
        let ground = Ground { folder: &Folder::root(), root: "" };
        let mut begun = self.row.names.iter().filter_map(|name| behind(name, command));
        begun.any(|rest| self.row.allows(rest, ground).is_ok())
    }

    /// Whether a command begins like one of this kind.
    pub(crate) fn begins(&self, command: &[Word]) -> bool {
        self.row.names.iter().any(|name| behind(name, command).is_some())
    }
}

/// What stands behind the words of a name.
fn behind<'a>(name: &str, command: &'a [Word]) -> Option<&'a [Word]> {
    name.split(' ').try_fold(command, |command, part| {
        let (first, rest) = command.split_first()?;
        (first.known() == Some(part)).then_some(rest)
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
const GO: &str =
    "-v -x -race -short -count= -run= -bench= -cover -failfast -timeout= -tags= -parallel= -benchmem -json -p=";
const MAKE: &str = "-j= -s -k -n -B --silent --keep-going --dry-run --always-make --no-print-directory";

const KINDS: &[Kind] = &[
    Kind {
        name: "cargo",
        row: Row::new(
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
    Kind {
        name: "npm scripts",
        row: Row::new(
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
    Kind {
        name: "npm ci",
        row: Row::new(
            &["npm ci", "pnpm install", "yarn install"],
            "--frozen-lockfile --silent --no-audit --no-fund --ignore-scripts",
            Nothing,
        ),
    },
    Kind {
        name: "tests",
        row: Row::new(
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
    Kind {
        name: "linters",
        row: Row::new(
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
    Kind {
        name: "go",
        row: Row::new(
            &["go test", "go build", "go vet", "go fmt", "go list", "go mod tidy", "go mod verify"],
            GO,
            Text,
        ),
    },
    Kind { name: "make", row: Row::new(&["make"], MAKE, Text).also(only_targets) },
    Kind { name: "cmake", row: Row::new(&["cmake --build"], "-j= --parallel= --target= --config= -v", Paths) },
    Kind {
        name: "git commits",
        row: Row::new(
            &["git add", "git commit"],
            "-A -u -p -v -n -N -m= -a -q -s -S --all --update --verbose --dry-run --intent-to-add --message= --quiet --signoff --allow-empty --no-edit --amend --fixup=",
            Paths,
        ),
    },
    Kind {
        name: "git fetch",
        row: Row::new(
            &["git fetch", "git pull"],
            "-q -v -p -t --all --prune --tags --quiet --verbose --ff-only --rebase --no-rebase --dry-run",
            Text,
        )
        .also(named_remote),
    },
    Kind {
        name: "git branches",
        row: Row::new(&["git switch", "git checkout"], "-c= -b= -q --quiet --create= --track", Text),
    },
    Kind {
        name: "git stash",
        row: Row::new(
            &["git stash", "git stash push", "git stash pop", "git stash apply"],
            "-u -q -m= --include-untracked --quiet --message= --keep-index",
            Text,
        ),
    },
    Kind {
        name: "git merges",
        row: Row::new(
            &["git merge", "git rebase", "git cherry-pick"],
            "-q --ff-only --no-ff --no-edit --continue --abort --quiet --stat",
            Text,
        ),
    },
    Kind {
        name: "git push",
        row: Row::new(&["git push"], "-u -q -v -n --set-upstream --quiet --verbose --dry-run --tags", Text)
            .also(named_remote),
    },
    Kind { name: "new files", row: Row::new(&["mkdir", "touch"], "-p -v -c -a --parents --verbose", Paths) },
    Kind {
        name: "copies",
        row: Row::new(&["cp", "mv"], "-r -R -a -v -n -p -i --recursive --archive --verbose --no-clobber", Paths),
    },
];

/// A remote by its name: an address may be anybody's, and some name programs.
fn named_remote(seen: &Seen<'_>) -> Result<(), String> {
    match seen.operands.iter().find(|word| {
        word.known().is_none_or(|text| text.contains("::") || text.contains("//") || text.starts_with(['.', '+', ':']))
    }) {
        Some(word) => Err(format!("{} is no plain name", word.raw)),
        None => Ok(()),
    }
}

/// `make CC=…` says what is run.
fn only_targets(seen: &Seen<'_>) -> Result<(), String> {
    match seen.operands.iter().find(|word| word.known().is_none_or(|text| text.contains('='))) {
        Some(word) => Err(format!("{} may change what make runs", word.raw)),
        None => Ok(()),
    }
}
