//! Tries what docs/policy.md, docs/sandbox.md and docs/approval.md claim. Each row quotes the page, so that a sentence that
//! changes has to be tried again.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::world::{World, code, skipped, stderr, stdout};

/// A claim about a verdict: a quotation, the options of `sabir policy explain`, a line, and the verdict.
struct Verdict(
    &'static str,
    &'static [&'static str],
    &'static str,
    &'static str,
);

/// The verdicts of docs/policy.md.
const VERDICTS: &[Verdict] = &[
    Verdict(
        "Reading inside the workspace is allowed",
        &[],
        "cat a.txt",
        "allow",
    ),
    Verdict(
        "files that usually hold secrets (`.env`, keys, `.netrc`",
        &[],
        "cat .netrc",
        "ask",
    ),
    Verdict(
        "Deny wins over ask, ask over allow",
        &["--allow", "ls", "--ask", "ls"],
        "ls",
        "ask",
    ),
    Verdict(
        "Deny wins over ask, ask over allow",
        &["--ask", "ls", "--deny", "ls"],
        "ls",
        "deny",
    ),
    Verdict(
        "any rule over the built-in knowledge of programs",
        &["--allow", "cargo test **"],
        "cargo test -p x",
        "allow",
    ),
    Verdict(
        "never as text",
        &["--allow", "cargo test **"],
        "c'argo' test",
        "allow",
    ),
    Verdict(
        "`*` is one word",
        &["--allow", "cargo test *"],
        "cargo test a b",
        "ask",
    ),
    Verdict(
        "`**` at the end any number",
        &["--allow", "cargo test **"],
        "cargo test a b",
        "allow",
    ),
    Verdict(
        "`*` inside a word any characters but `/`",
        &["--allow", "cargo run x*"],
        "cargo run xa/b",
        "ask",
    ),
    Verdict(
        "Redirections, assignments and `$(…)` are checked separately",
        &["--allow", "cargo test **"],
        "cargo test > x",
        "ask",
    ),
    Verdict(
        "Redirections, assignments and `$(…)` are checked separately",
        &["--allow", "cargo test **"],
        "RUSTC=x cargo test",
        "ask",
    ),
    Verdict(
        "Redirections, assignments and `$(…)` are checked separately",
        &["--allow", "cargo test **"],
        "cargo test $(evil)",
        "ask",
    ),
    Verdict(
        "An allow rule matches only words that are certain",
        &["--allow", "cargo test *"],
        "cargo test $x",
        "ask",
    ),
    Verdict(
        "an ask or deny rule also matches uncertain words",
        &["--deny", "cat x*"],
        "cat $(ls)",
        "deny",
    ),
    Verdict(
        "the command after `env`, `sudo` or `bash -c`",
        &["--deny", "git push"],
        "sudo git push",
        "deny",
    ),
    Verdict(
        "the command after `env`, `sudo` or `bash -c`",
        &["--deny", "git push"],
        "bash -c 'git push'",
        "deny",
    ),
    Verdict(
        "the command after `env`, `sudo` or `bash -c`",
        &["--deny", "git push"],
        "env A=1 git push",
        "deny",
    ),
    Verdict(
        "`deny = [\"git push\"]` also matches `git push origin main`",
        &["--deny", "git push"],
        "git push origin main",
        "deny",
    ),
    Verdict(
        "An allow rule matches exactly these words",
        &["--allow", "cargo test"],
        "cargo test x",
        "ask",
    ),
    Verdict(
        "No kind covers a protected path (`cp x .git/hooks/pre-commit`)",
        &["--approve", "kind=copies"],
        "cp x .git/hooks/pre-commit",
        "ask",
    ),
    Verdict(
        "(`deploy`, `install`, `docker-push`)",
        &["--approve", "kind=make"],
        "make docker-push",
        "ask",
    ),
    Verdict(
        "a folder covers everything in it, with or without a trailing `/`",
        &["--deny", "path=secrets"],
        "cat secrets/a/b",
        "deny",
    ),
    Verdict(
        "directly or by a pattern that may match\n  (`cat svc/.e*`)",
        &["--deny", "path=svc/.env"],
        "cat svc/.e*",
        "deny",
    ),
    Verdict(
        "an option's value or a redirection",
        &["--deny", "path=secrets"],
        "cat < secrets/a",
        "deny",
    ),
    Verdict(
        "an option's value or a redirection",
        &["--deny", "path=secrets"],
        "grep --file=secrets/a x",
        "deny",
    ),
    Verdict(
        "programs that read whole folders that may contain it (`grep -r x .`, `find . -exec cat {} +`)",
        &["--ask", "path=secrets/"],
        "find . -exec cat {} +",
        "ask",
    ),
    Verdict(
        "If the sandbox hides denied paths from commands, such commands run without asking",
        &["--deny", "path=secrets/"],
        "grep -r x .",
        "allow",
    ),
    Verdict(
        "`rm -r` of a `.git`, of a pattern or elsewhere",
        &["--approve", "all"],
        "rm -r *",
        "ask",
    ),
    Verdict(
        "`git push --force`",
        &["--approve", "all"],
        "git push --force",
        "ask",
    ),
    Verdict(
        "`git reset\n  --hard`",
        &["--approve", "all"],
        "git reset --hard",
        "ask",
    ),
    Verdict(
        "`dd of=…`, `docker system prune`, `npm unpublish`",
        &["--approve", "all"],
        "npm unpublish x",
        "ask",
    ),
    Verdict(
        "`bash -lc`, `eval`, `env -S`, `ssh`\n  or a here document",
        &["--approve", "all"],
        "env -S 'rm -rf ..'",
        "ask",
    ),
    Verdict(
        "`bash -lc`, `eval`, `env -S`, `ssh`\n  or a here document",
        &["--approve", "all"],
        "ssh host 'rm -rf ~'",
        "ask",
    ),
    Verdict(
        "`tee ~/.ssh/…`, `tar -C /`,\n  `> ~/.bashrc`",
        &["--approve", "all"],
        "echo x > ~/.bashrc",
        "ask",
    ),
    Verdict(
        "protected paths as the target of a copy, a move or a redirection",
        &["--approve", "all"],
        "mv a.txt .envrc",
        "ask",
    ),
    Verdict(
        "programs whose name is not known beforehand (`$x -rf a`, `$(…)`)",
        &["--approve", "all"],
        "$x -rf a",
        "ask",
    ),
    Verdict(
        "shells that run their piped input (`curl … | sh`)",
        &["--approve", "all"],
        "curl -s x | sh",
        "ask",
    ),
    Verdict(
        "lines that cannot be parsed",
        &["--approve", "all"],
        "echo 'open",
        "ask",
    ),
    Verdict(
        "Only `command=LINE` and rules without a `*` cover those",
        &["--approve", "command=git reset --hard"],
        "git reset --hard",
        "allow",
    ),
    Verdict(
        "`.env.example` and the like are not in it",
        &[],
        "cat .env.example",
        "allow",
    ),
    Verdict(
        "Programs that show only names, sizes and counts never lead to one",
        &[],
        "ls -la .e*; wc -l .env*",
        "allow",
    ),
    Verdict(
        "`git log --stat` and the like print no contents and never ask",
        &[],
        "git log --stat",
        "allow",
    ),
    Verdict(
        "`git cat-file --batch` always asks",
        &[],
        "git cat-file --batch",
        "ask",
    ),
    Verdict(
        "Sabir does not ask about public certificates such as `cacert.pem`",
        &[],
        "cat cacert.pem",
        "allow",
    ),
    Verdict(
        "or with `-print0` and `-0`",
        &[],
        "find . -name '*.txt' -print0 | xargs -0 cat",
        "allow",
    ),
    Verdict(
        "It also asks about commands that print secrets (`docker inspect`, `kubectl get secret`)",
        &[],
        "docker inspect x",
        "ask",
    ),
    Verdict(
        "It also asks about commands that print secrets (`docker inspect`, `kubectl get secret`)",
        &[],
        "kubectl get secret x -o yaml",
        "ask",
    ),
    Verdict(
        "(`cargo test`, `bundle list`, `uv pip list`, `make -n`)",
        &[],
        "make -n",
        "ask",
    ),
    Verdict(
        "`cargo tree`, `npm ls`, `pip list`, `docker ps`, `kubectl\nget`, `gh pr view`",
        &[],
        "docker ps",
        "allow",
    ),
    Verdict(
        "options and arguments that point elsewhere (`make -f /tmp/x`, `cargo --config …`)",
        &[],
        "make -f /tmp/x",
        "ask",
    ),
    Verdict(
        "It always asks about lines that continue after a backslash, functions, arithmetic with names, and arrays",
        &[],
        "ls \\\n-l",
        "ask",
    ),
    Verdict(
        "It always asks about lines that continue after a backslash, functions, arithmetic with names, and arrays",
        &[],
        "f() { ls; }; f",
        "ask",
    ),
    Verdict(
        "It always asks about lines that continue after a backslash, functions, arithmetic with names, and arrays",
        &[],
        "echo $((x + 1))",
        "ask",
    ),
    Verdict(
        "It always asks about lines that continue after a backslash, functions, arithmetic with names, and arrays",
        &[],
        "a=(1 2); echo ${a[0]}",
        "ask",
    ),
    Verdict(
        "braces in words of plain characters (`src/*.{c,h}`, `{1..5}`)",
        &[],
        "ls src/*.{c,h}",
        "allow",
    ),
    Verdict(
        "braces in words of plain characters (`src/*.{c,h}`, `{1..5}`)",
        &[],
        "echo {1..5}",
        "allow",
    ),
];

/// Options that are refused, with a quotation of docs/policy.md.
const REFUSED: &[(&str, &str)] = &[
    (
        "with `?`, `[`, `]`, `{`, `}` or `\\`, with a leading `!` or with `~user` is refused",
        "path=secrets/?",
    ),
    (
        "with `?`, `[`, `]`, `{`, `}` or `\\`, with a leading `!` or with `~user` is refused",
        "path=!a",
    ),
    (
        "with `?`, `[`, `]`, `{`, `}` or `\\`, with a leading `!` or with `~user` is refused",
        "path=~root/x",
    ),
    (
        "a whole name, without `*`, port or address",
        "host=*.example.org",
    ),
    (
        "a whole name, without `*`, port or address",
        "host=example.org:80",
    ),
    ("The program must be named", "* push"),
    ("an allow rule must name the server", "mcp=*/get"),
    ("The kinds are `cargo`, `npm scripts`", "kind=anything"),
];

/// Claims of docs/sandbox.md: a quotation, the level, a line, and a text that it prints; `!` in front for one that it does not.
const CONFINED: &[(&str, &str, &str, &str)] = &[
    (
        "Caches of compilers and package managers\n(`XDG_CACHE_HOME`, `GOCACHE`, `npm_config_cache`, `PIP_CACHE_DIR`) are inside it",
        "2",
        "case $GOCACHE$PIP_CACHE_DIR in $TMPDIR/*$TMPDIR/*) echo inside;; esac",
        "inside",
    ),
    (
        "There are no core dumps, and a file may have at most 64 GiB",
        "2",
        "ulimit -c; ulimit -f",
        "0\n67108864",
    ),
    (
        "There are no core dumps, and a file may have at most 64 GiB",
        "1",
        "ulimit -c; ulimit -f",
        "0\n67108864",
    ),
    (
        "none, even as root",
        "2",
        "grep CapEff /proc/self/status",
        "0000000000000000",
    ),
    (
        "none, even as root",
        "1",
        "grep CapEff /proc/self/status",
        "0000000000000000",
    ),
    (
        "cannot be seen",
        "2",
        "ls -d /proc/[0-9]* | wc -l | grep -qx '[0-9]' && echo few",
        "few",
    ),
    (
        "`git config NAME VALUE`, `git remote add` and `git push -u` fail in the sandbox",
        "2",
        "git config a.b c || echo refused",
        "refused",
    ),
    (
        "`git config NAME VALUE`, `git remote add` and `git push -u` fail in the sandbox",
        "2",
        "git remote add o /x || echo refused",
        "refused",
    ),
    (
        "Use `git -c NAME=VALUE` for a single command",
        "2",
        "git -c user.name=b -c user.email=b commit -q --allow-empty -m z && git log -1 --format=%an",
        "b",
    ),
    (
        "there is a file `.git/commondir` with the content `.`",
        "2",
        "cat .git/commondir",
        ".",
    ),
    (
        "existing ones are read-only",
        "2",
        "echo x >> .gitattributes || echo refused",
        "refused",
    ),
    (
        "cannot be created",
        "2",
        "mkdir .vscode || echo x > AGENTS.md || echo refused",
        "refused",
    ),
    (
        "for tests that talk to a server on the same command line",
        "2",
        "python3 -c 'import socket; s = socket.create_server((\"127.0.0.1\", 0)); socket.create_connection(s.getsockname()); print(\"talks\")'",
        "talks",
    ),
    (
        "pairs only",
        "1",
        "python3 -c 'import socket; socket.socketpair(); print(\"pair\")'",
        "pair",
    ),
    (
        "pairs only",
        "1",
        "python3 -c 'import socket; socket.socket(socket.AF_UNIX); print(\"own\")'",
        "!own",
    ),
    (
        "In a folder that is not a repository, `git init` and `cargo init` work",
        "2",
        "mkdir n && cd n && git init -q && git status --short && echo works",
        "works",
    ),
    (
        "`/tmp`, `/var/tmp` and `/dev/shm` are private",
        "2",
        "ls /tmp /var/tmp /dev/shm | grep -v : | grep .; touch /tmp/a /var/tmp/a /dev/shm/a && echo private",
        "private",
    ),
    (
        "can be changed if you could change them | cannot be changed",
        "2",
        "chmod 644 /etc/hostname || touch -d yesterday /etc/hostname || echo refused",
        "refused",
    ),
    (
        "a private loopback, for tests that talk to a server",
        "2",
        "grep -c : /proc/net/dev",
        "1",
    ),
    (
        "| network | none |",
        "1",
        "python3 -c 'import socket; socket.socket(); print(\"own\")'",
        "!own",
    ),
    (
        "its own; those of other programs cannot be reached",
        "2",
        "python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.bind(\"/tmp/s\"); s.listen(); socket.socket(socket.AF_UNIX).connect(\"/tmp/s\"); print(\"talks\")'",
        "talks",
    ),
    (
        "a command cannot create a hard link to a file that it could not write",
        "2",
        "ln /etc/hostname linked || echo refused",
        "refused",
    ),
    (
        "a command cannot create a hard link to a file that it could not write",
        "1",
        "ln /etc/hostname linked || echo refused",
        "refused",
    ),
    (
        "`.git/hooks`, `AGENTS.md`, `.vscode` and other protected names of the folder | are restored when the command has ended",
        "1",
        "mkdir .vscode && echo x > .vscode/tasks.json && echo made",
        "made",
    ),
];

/// Claims that named tests hold.
const HELD: &[(&str, &str, &str)] = &[
    (
        "approval.md",
        "Input typed before a question appears does not answer it",
        "approval.rs::keys_before_a_question_do_not_answer_it",
    ),
    (
        "approval.md",
        "`ask_timeout = \"5m\"` in `config.toml` denies the call if nobody answers in time",
        "approval.rs::no_answer_in_time_denies",
    ),
    (
        "approval.md",
        "Each line of output from a model or a program has a margin",
        "attacks/margins.rs::no_foreign_text_reaches_the_first_column_of_a_terminal",
    ),
    (
        "approval.md",
        "A quoted completion does not end the task unless you confirm it",
        "attacks/echo.rs::a_quoted_completion_completes_nothing",
    ),
    (
        "approval.md",
        "Calls that need no approval, such as reading in the workspace, run",
        "attacks/echo.rs::quoted_calls_that_only_read_are_not_asked_about",
    ),
    (
        "approval.md",
        "`ask` is the default, `on` treats such calls like native ones, and `off` leaves them as text",
        "attacks/echo.rs::recovery_can_be_set",
    ),
    (
        "approval.md",
        "The question about `git push` names the destination host",
        "attacks/pushes.rs::a_push_names_its_host",
    ),
    (
        "sandbox.md",
        "is treated as a fork bomb and ended",
        "attacks/walls.rs::a_fork_bomb_ends",
    ),
    (
        "sandbox.md",
        "the `.git` of that repository is renamed; so is an index that can no longer be read reliably",
        "attacks/walls.rs::git_runs_nothing_that_a_command_left",
    ),
    (
        "sandbox.md",
        "A refusal names the setting that would allow it",
        "attacks/registries.rs::other_hosts_are_refused",
    ),
    (
        "policy.md",
        "`git show`, `git log -p`,\n`git diff HEAD` and `git stash show` if any commit, stash or unreachable object does",
        "attacks/secrets.rs::no_command_shows_a_secret_of_an_old_commit",
    ),
    (
        "policy.md",
        "They run without asking, also behind `timeout`, `nice`, `time` or `env X=1`",
        "attacks/builds.rs::a_trusted_build_runs_unasked_and_stays_inside",
    ),
    (
        "approval.md",
        "`y` and `a` are refused until everything was shown",
        "approval.rs::a_call_cannot_be_approved_before_all_of_it_was_shown",
    ),
    (
        "approval.md",
        "A paste of several lines answers one question",
        "approval.rs::a_paste_answers_one_question",
    ),
    (
        "approval.md",
        "Invisible characters and unusual blanks are shown by name, as in `<U+202E>`",
        "approval.rs::hidden_characters_are_shown",
    ),
    (
        "approval.md",
        "the call does not run; the model is told what changed",
        "approval.rs::a_call_changed_since_its_approval_does_not_run",
    ),
    (
        "approval.md",
        "files that programs\nsuch as `make`, `npm`, `cargo`, `pytest` and `git` read by default",
        "approval.rs::files_that_a_program_runs_implicitly_are_preconditions",
    ),
    (
        "approval.md",
        "Whole lines that were typed earlier are messages",
        "approval.rs::piped_lines_after_the_first_are_messages",
    ),
    (
        "sandbox.md",
        "can reach those ports of this machine's loopback that are on its command line",
        "loopback.rs::an_approved_command_reaches_the_port_that_it_names",
    ),
    (
        "sandbox.md",
        "If a connection is refused in the sandbox, the model gets an explanation with these alternatives",
        "loopback.rs::a_port_that_is_not_on_the_line_is_refused_with_a_hint",
    ),
    (
        "sandbox.md",
        "the question says that the command\ncannot reach the ports",
        "loopback.rs::the_question_says_that_the_loopback_is_off",
    ),
    (
        "sandbox.md",
        "what they change there stays in the temporary folder",
        "sandboxes.rs::caches_of_the_home_are_read_and_never_written",
    ),
    (
        "sandbox.md",
        "If the new repository makes git run programs, it becomes `withheld-.git`",
        "attacks/walls.rs::a_new_repository_runs_nothing",
    ),
    (
        "sandbox.md",
        "If a requested level is not available, no command runs, and the error says what is missing",
        "sandboxes.rs::an_unavailable_level_runs_nothing_and_explains_why",
    ),
];

/// A claim about a verdict in a folder with one more entry, and no sandbox: a quotation of docs/policy.md, the entry (`a -> b` for
/// a link, `a/` for a folder), the options, a line, and the verdict.
const WITH_ENTRY: &[(&str, &str, &[&str], &str, &str)] = &[
    (
        "`--shell zsh` or `--shell sh`",
        "x",
        &["--shell", "sh"],
        "[[ -f a.txt ]]",
        "ask",
    ),
    (
        "`--mode NAME`\nwithin a mode",
        "x",
        &["--mode", "ask"],
        "ls",
        "deny",
    ),
    ("Writing is asked about", "x", &[], "touch a.txt", "ask"),
    (
        "The path is relative to the workspace, absolute, or begins with `~/`",
        "x",
        &["--deny", "path=~/.aws/"],
        "cat ~/.aws/x",
        "deny",
    ),
    (
        "The path is relative to the workspace, absolute, or begins with `~/`",
        "x",
        &["--deny", "path=/srv/x"],
        "cat /srv/x/y",
        "deny",
    ),
    (
        "writing outside the workspace and the temporary folders",
        "x",
        &["--approve", "all"],
        "echo x > /tmp/x",
        "allow",
    ),
    (
        "Sabir asks before such a file is read, even if the command does not name it but reaches it by a pattern (`cat .e*`)",
        ".env",
        &[],
        "cat .e*",
        "ask",
    ),
    (
        "through a folder (`grep -r KEY .`)",
        ".env",
        &[],
        "grep -r KEY .",
        "ask",
    ),
    (
        "through a folder (`grep -r KEY .`)",
        "x",
        &[],
        "grep -r KEY .",
        "allow",
    ),
    (
        "through a pipe (`find . | xargs cat`)",
        ".env",
        &[],
        "find . | xargs cat",
        "ask",
    ),
    (
        "`rg` skips hidden and ignored files, so a `.env` file does not lead to a question",
        ".env",
        &[],
        "rg KEY",
        "allow",
    ),
    (
        "unless `--hidden`, `-u` or a glob includes it",
        ".env",
        &[],
        "rg --hidden KEY",
        "ask",
    ),
    (
        "unless `--hidden`, `-u` or a glob includes it",
        ".env",
        &[],
        "rg -g .env KEY",
        "ask",
    ),
    (
        "and commands that do not name it; a command that names it still asks",
        ".env",
        &["--allow", "path=.env"],
        "cat .env",
        "ask",
    ),
    (
        "it runs without asking only if no name in the workspace can be split",
        "x",
        &[],
        "find . | xargs cat",
        "allow",
    ),
    (
        "it runs without asking only if no name in the workspace can be split",
        "a b",
        &[],
        "find . | xargs cat",
        "ask",
    ),
    (
        "The same applies to `while read`",
        "a b",
        &[],
        "find . -type f | while read f; do cat \"$f\"; done",
        "ask",
    ),
    (
        "Sabir asks if a file in the repository decides which program runs",
        "rust-toolchain.toml",
        &[],
        "cargo --version",
        "ask",
    ),
    (
        "Sabir asks if a file in the repository decides which program runs",
        ".mvn/",
        &[],
        "mvn --version",
        "ask",
    ),
    (
        "asks about a link that leads out of the workspace",
        "l -> /etc/passwd",
        &[],
        "cat l",
        "ask",
    ),
    (
        "also by a pattern",
        "l -> /etc/passwd",
        &[],
        "cat l*",
        "ask",
    ),
    (
        "as soon as any link in the workspace leads out of it",
        "l -> /etc/passwd",
        &[],
        "grep -R x .",
        "ask",
    ),
    (
        "system-wide installations (`/usr`, `/opt`)",
        "l -> /usr/bin",
        &[],
        "grep -R x .",
        "allow",
    ),
    (
        "backquotes\nwithout a backslash in them",
        "x",
        &[],
        "echo `echo \\`ls\\``",
        "ask",
    ),
    ("that do not form an option", "x", &[], "ls -{a,l}", "ask"),
];

fn page(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(name);
    fs::read_to_string(path).unwrap()
}

#[track_caller]
fn check_quotation(page: &str, text: &str, quotation: &str) {
    let joined = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        joined(text).contains(&joined(quotation)),
        "{page} does not say: {quotation}"
    );
}

/// A repository with plain files; a name in it holds no secrets.
fn repository(world: &World) {
    for (name, text) in [("a.txt", "alpha\n"), (".gitattributes", "\n")] {
        world.write(name, text);
    }
    let script =
        "git init -q -b main . && git add -A && git -c user.name=x -c user.email=x commit -qm x";
    let done = Command::new("sh")
        .args(["-ec", script])
        .current_dir(world.work.path())
        .output();
    assert!(done.unwrap().status.success());
}

#[test]
fn the_page_on_rules_tells_the_truth() {
    let world = World::new();
    repository(&world);
    let text = page("policy.md");
    let mut wrong = Vec::new();
    for Verdict(quotation, flags, line, expected) in VERDICTS {
        check_quotation("policy.md", &text, quotation);
        let explain = ["policy", "explain", "--output", "json"];
        let output = world
            .sabir()
            .args(explain)
            .args(*flags)
            .args(["--", line])
            .output()
            .unwrap();
        let found: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap_or_default();
        if found["verdict"] != *expected || code(&output) != 0 {
            wrong.push(format!(
                "{quotation}: {flags:?} {line}: {found} {}",
                stderr(&output)
            ));
        }
    }
    for (quotation, rule) in REFUSED {
        check_quotation("policy.md", &text, quotation);
        let output = world
            .sabir()
            .args(["policy", "explain", "--allow", rule, "--", "ls"])
            .output()
            .unwrap();
        if code(&output) != 2 {
            wrong.push(format!("{rule} is accepted"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_page_on_rules_tells_the_truth_about_files() {
    let text = page("policy.md");
    let mut wrong = Vec::new();
    for (quotation, entry, flags, line, expected) in WITH_ENTRY {
        check_quotation("policy.md", &text, quotation);
        let world = World::new();
        world.configure("sandbox = \"off\"\n");
        repository(&world);
        let path = |name: &str| world.work.path().join(name);
        match (entry.split_once(" -> "), entry.strip_suffix('/')) {
            (Some((name, target)), _) => std::os::unix::fs::symlink(target, path(name)).unwrap(),
            (None, Some(folder)) => fs::create_dir(path(folder)).unwrap(),
            (None, None) => fs::write(path(entry), "KEY=x\n").unwrap(),
        }
        let explain = ["policy", "explain", "--output", "json"];
        let output = world
            .sabir()
            .args(explain)
            .args(*flags)
            .args(["--", line])
            .output()
            .unwrap();
        let found: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap_or_default();
        if found["verdict"] != *expected {
            wrong.push(format!(
                "{quotation}: {entry}: {flags:?} {line}: {found} {}",
                stderr(&output)
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_page_on_the_sandbox_tells_the_truth() {
    let world = World::new();
    repository(&world);
    let text = page("sandbox.md");
    let mut wrong = Vec::new();
    for (quotation, level, line, expected) in CONFINED {
        check_quotation("sandbox.md", &text, quotation);
        let output = world
            .sabir()
            .args(["sandbox", "--level", level, "--", line])
            .output()
            .unwrap();
        if stderr(&output).contains("is not available") {
            skipped(&format!("no level {level}: {quotation}"));
            continue;
        }
        let printed = stdout(&output);
        let is_true = match expected.strip_prefix('!') {
            Some(absent) => !printed.contains(absent),
            None => printed.contains(expected),
        };
        if !is_true {
            wrong.push(format!(
                "{quotation}: level {level}: {line}: {printed}{}",
                stderr(&output)
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_tests_of_other_claims_exist() {
    for (name, quotation, test) in HELD {
        check_quotation(name, &page(name), quotation);
        let (file, function) = test.split_once("::").unwrap();
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("tests/it")
            .join(file);
        let source = fs::read_to_string(&path).unwrap();
        assert!(source.contains(&format!("fn {function}")), "{test}");
    }
}
