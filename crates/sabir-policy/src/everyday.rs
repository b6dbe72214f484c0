//! Everyday commands of build tools, package managers and services that only look, although the program can do more.
//!
//! `cargo tree` prints, but cargo itself may be a program that the repository names: `rust-toolchain.toml` can point to a
//! folder of the repository, and `.cargo/config.toml` names the compiler that cargo starts to learn the target. So each row
//! says which files must be absent ([`CommandFacts::absent_files`](super::CommandFacts::absent_files)), and whether the
//! command is harmless only in a sandbox that neither writes nor has the network
//! ([`CommandFacts::confined`](super::CommandFacts::confined)), because it refreshes a lock file or fetches what is missing.
//!
//! Left out on purpose: whatever runs code of the repository (`cargo check`, `npm test`, `bundle list` evaluates the Gemfile,
//! `uv pip list` starts the interpreter in `.venv`, `composer show` loads plugins, `make -n` expands `$(shell …)`), and whatever
//! prints secrets (`docker inspect` shows environments, `kubectl get secret`, `gh auth token`).
//!
//! To add a command, find out what its program does before it reads its arguments: which files of the folder it loads, whether a
//! version manager runs in its place, whether it starts git or a shell. Then list only options that print.

use super::ask_reason::AskReason;
use super::grammar::OperandKind::{Nothing, Paths, Text};
use super::grammar::{OperandKind, OptionValue, ParsedArguments, ProgramGrammar};
use super::word::ShellWord;

/// A command of one or more words that only looks.
pub(crate) struct ReadOnlyCommand {
    /// The whole names (`docker image ls`) with their arguments.
    pub(crate) grammar: ProgramGrammar,
    /// Files that must be absent from the folder of the command and those above it in the workspace.
    pub(crate) absent: &'static [&'static str],
    /// True if it is harmless only where it can neither write nor reach the network.
    pub(crate) needs_confinement: bool,
    /// True if it starts git, whose configuration must not run programs.
    pub(crate) starts_git: bool,
}

/// Files by which a repository chooses the Rust toolchain, and what cargo starts.
const RUST: &[&str] = &[
    "rust-toolchain",
    "rust-toolchain.toml",
    ".cargo/config",
    ".cargo/config.toml",
];
/// Files by which asdf and mise choose a program, also one in the folder (`path:./evil`).
const VERSIONS: &[&str] = &[".tool-versions"];
/// npm up to version 6 runs the `onload-script` of `.npmrc`.
const NPM: &[&str] = &[".npmrc", ".tool-versions"];
/// pnpm loads its hooks before any command.
const PNPM: &[&str] = &[
    ".npmrc",
    ".pnpmfile.cjs",
    ".pnpmfile.mjs",
    "pnpm-workspace.yaml",
    ".tool-versions",
];

/// Returns a row without conditions, for commands that only look.
const fn unconditional(
    names: &'static [&'static str],
    options: &'static str,
    operands: OperandKind,
) -> ReadOnlyCommand {
    ReadOnlyCommand {
        grammar: ProgramGrammar::new(names, options, operands),
        absent: &[],
        needs_confinement: false,
        starts_git: false,
    }
}

impl ReadOnlyCommand {
    /// Requires that none of these files is in the folder or above it.
    const fn unless_present(self, absent: &'static [&'static str]) -> Self {
        Self { absent, ..self }
    }

    /// Requires a sandbox that neither writes nor has the network.
    const fn only_confined(self) -> Self {
        Self {
            needs_confinement: true,
            ..self
        }
    }

    /// Requires a repository whose configuration runs no programs.
    const fn in_clean_repository(self) -> Self {
        Self {
            starts_git: true,
            ..self
        }
    }

    /// Adds a check that the table cannot express.
    const fn with_check(self, check: fn(&ParsedArguments<'_>) -> Result<(), AskReason>) -> Self {
        Self {
            grammar: self.grammar.with_check(check),
            ..self
        }
    }
}

/// Finds the row of a command, and the words behind its name. The longest name wins.
pub(crate) fn find_read_only_command(
    words: &[ShellWord],
) -> Option<(&'static ReadOnlyCommand, &[ShellWord])> {
    let (first, arguments) = words.split_first()?;
    let program = first.known_text()?;
    // `/usr/bin/cargo` is cargo. Only the first word may have a folder: `docker /bin/ps` is another command than `docker ps`.
    let program = program.rsplit('/').next().unwrap_or(program);
    let rows = ROWS
        .iter()
        .flat_map(|row| row.grammar.names.iter().map(move |name| (row, *name)));
    rows.filter_map(|(row, name)| {
        // Nearly all names begin with another program, so that is compared first.
        let parts = name.strip_prefix(program)?;
        let mut words = arguments.iter();
        let mut count = 1;
        if !parts.is_empty() {
            for part in parts.strip_prefix(' ')?.split(' ') {
                if words.next()?.known_text()? != part {
                    return None;
                }
                count += 1;
            }
        }
        Some((count, row, words.as_slice()))
    })
    // `docker compose ps` must not be taken for `docker` with operands.
    .max_by_key(|(count, ..)| *count)
    .map(|(_, row, rest)| (row, rest))
}

/// Returns true if the table has commands of this program.
pub(crate) fn is_read_only_program(name: &str) -> bool {
    let names = ROWS.iter().flat_map(|row| row.grammar.names.iter());
    names
        .map(|row| row.split(' ').next().unwrap_or(row))
        .any(|program| program == name)
}

/// All everyday commands. A name that begins with another one (`docker compose ps`) wins by its length.
#[rustfmt::skip]
const ROWS: &[ReadOnlyCommand] = &[
    // Rust. cargo starts `rustc -vV` for these, and may write Cargo.lock.
    unconditional(&["cargo --version", "cargo -V", "cargo version", "cargo --list", "rustc --version", "rustc -V", "rustc -vV", "rustdoc --version", "rustfmt --version", "cargo fmt --version", "cargo clippy --version"], "", Nothing).unless_present(RUST),
    unconditional(&["cargo tree"], "-p= -i= -e= -d -q -v --package= --invert= --edges= --depth= --prefix= --duplicates --charset= --no-dedupe --workspace --all --features= --all-features --no-default-features --locked --offline --frozen --prune=", Nothing).unless_present(RUST).only_confined(),
    unconditional(&["cargo metadata"], "-q -v --format-version= --no-deps --features= --all-features --no-default-features --locked --offline --frozen", Nothing).unless_present(RUST).only_confined(),
    unconditional(&["cargo pkgid", "cargo locate-project"], "-q --workspace --message-format=", Text).unless_present(RUST).only_confined(),
    unconditional(&["cargo fmt --check", "cargo fmt --all --check", "cargo fmt --all -- --check", "cargo fmt -- --check"], "-q -v --all --check", Nothing).unless_present(RUST).only_confined(),
    unconditional(&["rustfmt --check"], "--edition= -l -q -v", Paths).unless_present(RUST),
    unconditional(&["rustup --version", "rustup toolchain list", "rustup target list", "rustup component list"], "-v -q --installed", Nothing).unless_present(RUST),
    // Go may fetch the toolchain that go.mod asks for.
    unconditional(&["go version"], "", Nothing).unless_present(VERSIONS).only_confined(),
    unconditional(&["go env"], "-json -changed", Text).unless_present(VERSIONS).only_confined(),
    // JavaScript.
    unconditional(&["npm ls", "npm list", "npm ll", "npm explain", "npm why"], "-a -g -l --all --depth= --json --long --parseable --omit= --prod --dev --global", Text).unless_present(NPM),
    unconditional(&["npm root", "npm prefix", "npm config list"], "-g", Nothing).unless_present(NPM),
    unconditional(&["npm config get"], "", Text).unless_present(NPM).with_check(no_key_settings),
    unconditional(&["npx --version", "corepack --version", "tsc --version", "tsc -v", "eslint --version"], "", Nothing).unless_present(NPM),
    unconditional(&["pnpm --version", "pnpm -v", "pnpm ls", "pnpm list"], "-r -g --depth= --json --long --parseable --prod --dev", Text).unless_present(PNPM).only_confined(),
    unconditional(&["yarn --version", "yarn -v"], "", Nothing).unless_present(&[".yarnrc", ".yarnrc.yml", ".tool-versions"]).only_confined(),
    // Python. `python -m pip` would find a `pip.py` in the folder first, so only the script counts.
    unconditional(&["pip list", "pip3 list", "pip freeze", "pip3 freeze", "pip check", "pip3 check", "pip config list", "pip3 config list"], "-v -q -l --format= --not-required --user --local --exclude= --exclude-editable --disable-pip-version-check", Nothing).unless_present(VERSIONS),
    unconditional(&["pip show", "pip3 show"], "-f -v -q --files --verbose --disable-pip-version-check", Text).unless_present(VERSIONS),
    unconditional(&["pipx list", "pyenv versions", "conda list", "conda env list", "conda info", "poetry --version", "pytest --version", "mypy --version", "black --version", "hatch --version"], "--short --json -e", Nothing).unless_present(VERSIONS),
    // Ruby, Java, .NET and others.
    unconditional(&["gem list", "gem env", "gem environment", "gem --version", "gem -v", "rbenv versions"], "-l --local --versions", Text).unless_present(VERSIONS),
    unconditional(&["mvn --version", "mvn -v", "mvn -version"], "", Nothing).unless_present(&[".mvn", ".tool-versions"]),
    unconditional(&["dotnet --version", "dotnet --info", "dotnet --list-sdks", "dotnet --list-runtimes"], "", Nothing).unless_present(&["global.json", ".tool-versions"]),
    unconditional(&["swift --version", "elixir --version", "erl -version", "ghc --version", "zig version", "kotlin -version", "scala -version"], "", Nothing).unless_present(VERSIONS),
    // Containers. The docker client reads only the user's configuration.
    unconditional(&["docker ps", "docker container ls", "docker container ps", "podman ps", "docker images", "docker image ls", "podman images", "docker network ls", "docker volume ls"], "-a -q -f= -n= -l -s --all --quiet --filter= --format= --no-trunc --last= --latest --size --digests", Text),
    unconditional(&["docker version", "docker info", "docker context ls", "docker system df", "docker compose version", "docker compose ls", "docker buildx version", "docker buildx ls"], "-a -q -v -f= --format=", Nothing),
    unconditional(&["docker stats"], "-a --all --format= --no-trunc --no-stream", Text),
    unconditional(&["docker logs", "podman logs"], "-t -n= --tail= --since= --until= --timestamps --details", Text),
    unconditional(&["docker port", "docker top", "docker history", "docker diff"], "-q --no-trunc --format= --human", Text),
    // Compose reads a file of the repository, which may include others from the network.
    unconditional(&["docker compose ps", "docker compose images", "docker compose logs", "docker compose top", "docker-compose ps", "docker-compose logs"], "-a -q --all --quiet --services --format= --tail= -n= --no-color --no-log-prefix --since= -t", Text).only_confined(),
    // Clusters.
    unconditional(&["kubectl get", "kubectl describe"], "-n= -A -o= -l= --namespace= --all-namespaces --output= --selector= --show-labels --sort-by= --no-headers --field-selector=", Text).with_check(names_no_secrets),
    unconditional(&["kubectl logs"], "-n= -c= -l= -p --namespace= --container= --selector= --tail= --since= --previous --timestamps --all-containers", Text),
    unconditional(&["kubectl version", "kubectl config current-context", "kubectl config get-contexts", "kubectl cluster-info", "kubectl api-resources", "kubectl explain", "kubectl top pods", "kubectl top nodes", "helm list", "helm version", "helm status"], "-n= -A -o= --client --namespace= --all-namespaces --output= --short", Text),
    unconditional(&["terraform version", "terraform --version", "tofu version", "aws --version", "gcloud --version", "az --version", "kubectl --version", "helm --version"], "", Nothing),
    // GitHub and GitLab. The repository only chooses the project of the request; the host must be
    // one that the user named.
    unconditional(&["gh --version", "gh version", "glab --version"], "", Nothing),
    unconditional(&["gh auth status"], "", Nothing),
    unconditional(&["gh pr view", "gh pr list", "gh pr status", "gh pr diff", "gh pr checks", "gh issue view", "gh issue list", "gh issue status", "gh run list", "gh run view", "gh repo view", "gh release list", "gh release view", "gh label list", "gh workflow list"], "-q= -L= -s= -a= -A= -l= -B= -H= -S= -c -R= -j= -d --json= --jq= --limit= --state= --assignee= --author= --label= --base= --head= --search= --comments --repo= --log --log-failed --job= --draft --name-only --patch --required --branch= --status= --workflow=", Text).in_clean_repository().with_check(asks_known_host),
    // The system.
    unconditional(&["systemctl status", "systemctl list-units", "systemctl list-unit-files", "systemctl is-active", "systemctl is-enabled", "systemctl list-timers"], "-a -l -n= --all --full --no-pager --user --type= --state= --failed --lines=", Text),
    unconditional(&["journalctl"], "-u= -n= -b=? -p= -k -x -e -r -o= --unit= --lines= --since= --until= --no-pager --user --priority= --output= --reverse", Nothing),
    unconditional(&["crontab -l"], "", Nothing),
    unconditional(&["apt list", "apt-cache search", "apt-cache show", "apt-cache policy", "apt-cache depends", "apt show"], "-a --installed --upgradable --all-versions -n", Text),
    unconditional(&["brew list", "brew --version", "brew --prefix"], "--versions --cask --formula -1", Text),
    unconditional(&["snap list", "flatpak list", "rpm -qa", "rpm -q", "pacman -Q", "apk info"], "-v", Text),
    unconditional(&["nvidia-smi"], "-L -q --query-gpu= --format= --list-gpus", Nothing),
    unconditional(&["npm --version", "bundle --version", "composer --version", "vite --version", "jest --version", "pre-commit --version", "ansible --version"], "", Nothing).unless_present(NPM),
];

/// Rejects names of settings that hold keys; npm itself refuses most of them.
fn no_key_settings(seen: &ParsedArguments<'_>) -> Result<(), AskReason> {
    let plain = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    match seen
        .operands
        .iter()
        .find(|word| !word.known_text().is_some_and(plain))
    {
        Some(word) => Err(format!("{} may be a key", word.raw).into()),
        None => Ok(()),
    }
}

/// Rejects resources that hold secrets: `kubectl get secret`, also in a list (`pods,secrets`), and a file that names them.
fn names_no_secrets(seen: &ParsedArguments<'_>) -> Result<(), AskReason> {
    let plain = |text: &str| {
        let text = text.to_ascii_lowercase();
        !text
            .split([',', '/'])
            .any(|kind| kind.starts_with("secret") || kind.starts_with("sealedsecret"))
    };
    match seen
        .operands
        .iter()
        .find(|word| !word.known_text().is_some_and(plain))
    {
        Some(word) => Err(format!("{} may hold secrets", word.raw).into()),
        None => Ok(()),
    }
}

/// Accepts projects of the host that the user logged in to. An address or a `HOST/OWNER/NAME` could be anybody's server.
fn asks_known_host(seen: &ParsedArguments<'_>) -> Result<(), AskReason> {
    let mut repositories = ["-R=", "--repo="]
        .into_iter()
        .flat_map(|option| seen.option_values(option))
        .map(OptionValue::known_text);
    let owner_and_name = |text: Option<&str>| {
        text.is_some_and(|text| {
            text.matches('/').count() == 1 && !text.contains([':', '.'])
                || text.starts_with("github.com/")
        })
    };
    let operands = |text: Option<&str>| {
        text.is_some_and(|text| !text.contains("//") || text.starts_with("https://github.com/"))
    };
    if !repositories.all(owner_and_name)
        || !seen.operands.iter().all(|word| operands(word.known_text()))
    {
        return Err("it may ask another host".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{
        Access, CommandFacts, ExtraPermissions, PolicyRules, RepositoryState, Verdict,
        required_facts,
    };
    use super::*;

    fn verdict(line: &str, facts: &CommandFacts) -> Verdict {
        PolicyRules::default()
            .decide(&Access::Command {
                command: line.to_owned(),
                facts: facts.clone(),
                beyond: ExtraPermissions::Nothing,
            })
            .verdict
    }

    /// Each name is reached, needs the facts that its row says, and hides no other row.
    #[test]
    fn no_row_is_dead() {
        let mut seen = std::collections::HashSet::new();
        for row in ROWS {
            for name in row.grammar.names {
                assert!(seen.insert(*name), "{name} twice");
                let needed = required_facts(
                    name,
                    &CommandFacts {
                        clean_path: true,
                        ..CommandFacts::default()
                    },
                );
                assert_eq!(
                    needed.absent_files.is_empty(),
                    row.absent.is_empty(),
                    "{name}"
                );
                let blank = CommandFacts {
                    clean_path: true,
                    repositories: vec![(".".to_owned(), RepositoryState::Clean)],
                    ..CommandFacts::default()
                };
                let whole = CommandFacts {
                    confined: true,
                    absent_files: needed.absent_files,
                    ..blank.clone()
                };
                assert_eq!(verdict(name, &whole), Verdict::Allow, "{name}");
                let bare = !row.absent.is_empty() || row.needs_confinement;
                assert_eq!(verdict(name, &blank) == Verdict::Ask, bare, "{name}");
                let evil = verdict(&format!("{name} --exec=evil"), &whole);
                assert_eq!(evil, Verdict::Ask, "{name} with an unknown option");
            }
        }
    }
}
