//! Kinds: commands of a working day that run or change something, each so narrow that it can be approved once.
//!
//! A kind is a row like those of programs that only read. `kind=cargo test` approves `cargo test` with options that change
//! what is built or printed, and none that changes what is run or where it is written.

use super::grammar::Operands::{Nothing, Paths, Text};
use super::grammar::{Ground, Operands, Row, Seen};
use super::place::Folder;
use super::word::Word;

/// A kind of command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind(&'static Row, &'static str);

/// The kind of that name.
pub(crate) fn find(name: &str) -> Option<Kind> {
    ROWS.iter().find_map(|row| row.names.iter().find(|known| **known == name).map(|known| Kind(row, known)))
}

/// The kind that a command is of, by name.
pub(crate) fn of(command: &[Word]) -> Option<&'static str> {
    let all = ROWS.iter().flat_map(|row| row.names.iter().map(move |name| Kind(row, name)));
    let mut all = all.filter(|kind| kind.matches(command));
    all.next().map(|kind| kind.1)
}

impl Kind {
    /// Whether a command is of this kind.
    pub(crate) fn matches(self, command: &[Word]) -> bool {
        let count = self.1.split(' ').count();
        let Some((_, rest)) = command.split_at_checked(count).filter(|_| self.begins(command)) else { return false };
        self.0.allows(rest, Ground { folder: &Folder::root(), root: "" }).is_ok()
    }

    /// Whether a command begins with its name.
    pub(crate) fn begins(self, command: &[Word]) -> bool {
        let names: Vec<&str> = self.1.split(' ').collect();
        command.len() >= names.len() && names.iter().zip(command).all(|(name, word)| word.known() == Some(name))
    }
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

const ROWS: &[Row] = &[
    Row::new(
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
            "cargo audit",
            "cargo deny check",
        ],
        CARGO,
        Text,
    ),
    Row::new(
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
    Row::new(
        &["npm ci", "pnpm install", "yarn install"],
        "--frozen-lockfile --silent --no-audit --no-fund --ignore-scripts",
        Nothing,
    ),
    Row::new(
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
    Row::new(
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
    Row::new(&["go test", "go build", "go vet", "go fmt", "go list", "go mod tidy", "go mod verify"], GO, Text),
    Row::new(&["make"], MAKE, Text).also(only_targets),
    Row::new(&["cmake --build"], "-j= --parallel= --target= --config= -v", Paths),
    Row::new(&["git add"], "-A -u -p -v -n -N --all --update --verbose --dry-run --intent-to-add", Paths),
    Row::new(
        &["git commit"],
        "-m= -a -q -v -s -S --message= --all --quiet --verbose --signoff --allow-empty --no-edit --amend --fixup=",
        Paths,
    ),
    Row::new(
        &["git fetch", "git pull"],
        "-q -v -p -t --all --prune --tags --quiet --verbose --ff-only --rebase --no-rebase --dry-run",
        Text,
    ),
    Row::new(&["git switch", "git checkout"], "-c= -b= -q --quiet --create= --track", Text),
    Row::new(
        &["git stash", "git stash push", "git stash pop", "git stash apply"],
        "-u -q -m= --include-untracked --quiet --message= --keep-index",
        Text,
    ),
    Row::new(
        &["git merge", "git rebase", "git cherry-pick"],
        "-q --ff-only --no-ff --no-edit --continue --abort --quiet --stat",
        Text,
    ),
    Row::new(&["git push"], "-u -q -v -n --set-upstream --quiet --verbose --dry-run --tags", Text),
    Row::new(&["mkdir"], "-p -v --parents --verbose", Paths),
    Row::new(&["touch"], "-c -a -m", Paths),
    Row::new(&["cp", "mv"], "-r -R -a -v -n -p -i --recursive --archive --verbose --no-clobber", Operands::Paths),
];

/// `make CC=…` says what is run.
fn only_targets(seen: &Seen<'_>) -> Result<(), String> {
    match seen.operands.iter().find(|word| word.known().is_none_or(|text| text.contains('='))) {
        Some(word) => Err(format!("{} may change what make runs", word.raw)),
        None => Ok(()),
    }
}
