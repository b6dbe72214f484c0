//! Compares verdicts with real shells: generated lines that are found harmless for bash, zsh or dash are run by that shell, and must
//! change nothing.
//!
//! Bash's lines are also run under `strace`, where no system call may change or reach anything.
//!
//! `SABIR_LINES=100000` makes it a long run; without it a few thousand lines are generated for each.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use sabir_policy::{
    Access, CommandFacts, ExtraPermissions, PolicyRules, RepositoryState, ShellKind,
    SymlinkTraversal, TrackedSecrets, Verdict, decide_access,
};

const PROGRAMS: &[&str] = &[
    "ls",
    "cat",
    "head",
    "tail",
    "wc",
    "grep",
    "sort",
    "uniq",
    "cut",
    "tr",
    "sed",
    "awk",
    "find",
    "diff",
    "echo",
    "printf",
    "test",
    "[",
    "stat",
    "du",
    "file",
    "nl",
    "tac",
    "rev",
    "cmp",
    "comm",
    "paste",
    "join",
    "fold",
    "xxd",
    "od",
    "basename",
    "date",
    "seq",
    "git status",
    "git log",
    "git diff",
    "git branch",
    "git tag",
    "git show",
    "git grep",
    "git config",
    "git stash",
    "git ls-files",
    "git",
    "xargs",
    "env",
    "command",
    "timeout 3",
    "nice",
    "bash -c",
    "time",
    "cd",
    "read",
    "touch",
    "tee",
    "evil",
    "type",
    "pr",
    "iconv",
    "hd",
    "shasum",
    "namei",
    "column",
    "look",
    "basenc",
    "jq",
    "rg",
    "fdfind",
    "tree",
    "sdiff",
    "diff3",
    "objdump",
    "zgrep",
    "whereis",
    "git apply",
    "git cat-file",
    "git -c color.ui=never log",
    "git submodule status",
    "git for-each-ref",
    "cargo",
    "python3",
    "[[",
];
const WORDS: &[&str] = &[
    "a.txt",
    "b.txt",
    "src",
    "*.txt",
    "src/*",
    "*",
    "-",
    "--",
    "-n",
    "-o",
    "-oX",
    "-o X",
    "--output=X",
    "X",
    "-i",
    "-r",
    "-l",
    "-c",
    "-e",
    "-f",
    "-k1",
    "-t,",
    "-d:",
    "-u",
    "-1",
    "--all",
    "--list",
    "-exec",
    "-exec touch X ;",
    "-exec touch X \\;",
    "-exec cat {} +",
    "-delete",
    "-fprint X",
    "-name",
    "'*.txt'",
    "-type f",
    "{}",
    "\\;",
    "1w X",
    "'1w X'",
    "'s/a/b/w X'",
    "'s/a/b/e'",
    "'s/a/b/'",
    "1p",
    "'1,2p'",
    "-i.bak",
    "'{print}'",
    "'{print > \"X\"}'",
    "'BEGIN{system(\"touch X\")}'",
    "'{print $1 | \"touch X\"}'",
    "$x",
    "\"$x\"",
    "${x}",
    "${x:-X}",
    "${x:=X}",
    "${x@P}",
    "$((1+1))",
    "$((x))",
    "$(ls)",
    "$(touch X)",
    "\"$(touch X)\"",
    "`touch X`",
    "\"`touch X`\"",
    "$'X'",
    "$'\\x2do'",
    "$\"X\"",
    "{a,-o}",
    "{-o,X}",
    "~",
    "..",
    "/etc/hostname",
    "-C .",
    "-C src",
    "HEAD",
    "HEAD~1",
    "alpha",
    "--ext-diff",
    "--textconv",
    "-O'touch X'",
    "--no-index",
    "touch X",
    "'touch X'",
    "\"touch X\"",
    "evil",
    "./evil",
    "-v x",
    "-v 'x[$(touch X)]'",
    "]",
    "=",
    "-eq",
    "<(touch X)",
    ">(touch X)",
    "`ls`",
    "\"`ls -a`\"",
    "`ls; touch X`",
    "{a,b}.txt",
    "{a.txt,b.txt}",
    "{1..3}",
    "{X,Y}",
    "--include=*.{txt,rs}",
    "--output={X,Y}",
    "src/{main,x}.rs",
    "~/a.txt",
    "~/X",
    "\"$PWD\"",
    "$PWD/a.txt",
    "$PWD/../X",
    "'1i\\text'",
    "'$a w X'",
    "'1a\\'",
    "'c X'",
    "((1+1))",
    "-R",
    "-L",
    "--check",
    "--stat",
    "--submodule=diff",
    "--format=%G?",
    "'.'",
    "--version",
    "-V",
    "]]",
];
const BEHIND: &[&str] = &[
    "> X",
    ">> X",
    "2>/dev/null",
    "< a.txt",
    ">&2",
    "&> X",
    "<<< alpha",
    "1<> X",
    ">| X",
    ">/dev/null",
    "2>&1",
    ">& X",
    "< /etc/hostname",
    "{fd}> X",
    "> \"$x\"",
    "# > X",
    "<<EOF\nalpha\nEOF",
    "<<'EOF'\n$(touch X)\nEOF",
    "<<EOF\n$(touch X)\nEOF",
    "<<-EOF\n\tEOF\ntouch X",
];
const FRONT: &[&str] = &[
    "x=X",
    "x=a.txt",
    "LC_ALL=C",
    "PATH=.",
    "IFS=X",
    "x=$(touch X)",
    "x=-oX",
    "NO_COLOR=1",
];
const BETWEEN: &[&str] = &[
    "; ",
    " && ",
    " || ",
    " | ",
    " |& ",
    " & ",
    "\n",
    "; x=a.txt; ",
];

/// A pseudo-random generator with the same numbers in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % sides
    }

    fn pick<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.roll(all.len())]
    }

    fn quoted(&mut self, word: &str) -> String {
        if word.contains(['\'', '"', '\\', '$', '`', ' ']) || word.len() < 2 {
            return word.to_owned();
        }
        match self.roll(12) {
            0 => format!("'{word}'"),
            1 => format!("\"{word}\""),
            2 => format!("\\{word}"),
            3 => format!("{}''{}", &word[..1], &word[1..]),
            4 => format!("{}\\\n{}", &word[..1], &word[1..]),
            _ => word.to_owned(),
        }
    }

    fn simple(&mut self) -> String {
        let mut words = Vec::new();
        if self.roll(8) == 0 {
            words.push(self.pick(FRONT).to_owned());
        }
        let program = self.pick(PROGRAMS);
        words.push(self.quoted(program));
        for _ in 0..self.roll(4) {
            let word = self.pick(WORDS);
            words.push(self.quoted(word));
        }
        if program == "[" && self.roll(3) > 0 {
            words.push("]".to_owned());
        }
        if self.roll(5) == 0 {
            words.push(self.pick(BEHIND).to_owned());
        }
        words.join(" ")
    }

    fn line(&mut self, depth: usize) -> String {
        let one = self.simple();
        if depth == 0 {
            return one;
        }
        match self.roll(16) {
            0..=5 => one,
            6 | 7 => format!("{one}{}{}", self.pick(BETWEEN), self.line(depth - 1)),
            8 => format!("({})", self.line(depth - 1)),
            9 => format!(
                "for x in {} {}; do {}; done",
                self.pick(WORDS),
                self.pick(WORDS),
                self.line(depth - 1)
            ),
            10 => format!(
                "if {one}; then {}; else {}; fi",
                self.line(depth - 1),
                self.simple()
            ),
            11 => format!("echo $({})", self.line(depth - 1)),
            13 => format!("{one} `{}`", self.line(depth - 1)),
            14 => format!(
                "for x in {{{},{}}}; do {}; done",
                self.pick(WORDS),
                self.pick(WORDS),
                self.line(depth - 1)
            ),
            12 => format!(
                "{} {}",
                self.pick(&[
                    "command",
                    "env",
                    "timeout 3",
                    "nice -n 1",
                    "xargs",
                    "time",
                    "!",
                    "builtin"
                ]),
                one
            ),
            _ => format!("bash -c '{}'", self.line(depth - 1).replace('\'', "'\\''")),
        }
    }
}

/// A folder with a repository, and programs that give themselves away.
fn lay_out(base: &Path) -> PathBuf {
    let _gone = fs::remove_dir_all(base);
    let (folder, canaries) = (base.join("proj"), base.join("canaries"));
    fs::create_dir_all(folder.join("src")).unwrap();
    fs::create_dir_all(&canaries).unwrap();
    for (name, text) in [
        ("a.txt", "alpha,1\nX\n"),
        ("b.txt", "beta:2\n"),
        ("src/main.rs", "fn main() {}\n"),
        ("-oX", "alpha\n"),
        ("-exec", "x\n"),
    ] {
        fs::write(folder.join(name), text).unwrap();
    }
    let evil = format!(
        "#!/bin/sh\necho ran > '{}'\n",
        folder.join("PWNED").display()
    );
    for path in [
        folder.join("evil"),
        folder.join("ls"),
        folder.join("git"),
        canaries.join("evil"),
        canaries.join("X"),
        canaries.join("alpha"),
    ] {
        fs::write(&path, &evil).unwrap();
        let _mode = Command::new("chmod").arg("+x").arg(&path).status().unwrap();
    }
    let git = "git init -q -b main && git add -A && git -c user.name=n -c user.email=e commit -qm one && git status";
    assert!(run("bash", (&folder, &canaries), git).success());
    folder
}

fn run(shell: &str, (folder, canaries): (&Path, &Path), script: &str) -> std::process::ExitStatus {
    Command::new(shell)
        .args(["-c", script])
        .current_dir(folder)
        .env_clear()
        .env(
            "PATH",
            format!("/usr/local/bin:/usr/bin:/bin:{}", canaries.display()),
        )
        .env("HOME", folder)
        .env("GIT_PAGER", "cat")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap()
}

/// Every file beneath a folder with what is in it; git's index is freshened by looking.
fn snapshot(folder: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.insert(path.clone(), Vec::new());
            snapshot(&path, found);
        } else if !path.ends_with(".git/index") {
            found.insert(path.clone(), fs::read(&path).unwrap_or_default());
        }
    }
}

#[test]
fn bash_changes_nothing_where_nothing_is_asked() {
    compare("bash", ShellKind::Bash);
}

#[test]
fn zsh_changes_nothing_where_nothing_is_asked() {
    compare("zsh", ShellKind::Zsh);
}

/// Dash supports only the syntax of POSIX.
#[test]
fn dash_changes_nothing_where_nothing_is_asked() {
    compare("dash", ShellKind::Plain);
}

fn compare(program: &str, shell: ShellKind) {
    for program in ["git", program] {
        if Command::new(program).args(["-c", "true"]).output().is_err() {
            tell(&format!("skipped: there is no {program}"));
            return;
        }
    }
    let count: usize = std::env::var("SABIR_LINES")
        .ok()
        .and_then(|count| count.parse().ok())
        .unwrap_or(4000);
    let base = std::env::temp_dir().join(format!("sabir-policy-{program}-{}", std::process::id()));
    let folder = lay_out(&base);
    let allowed = allowed(count, shell, &folder);
    let least = count / 100;
    assert!(
        allowed.len() > least,
        "only {} of {count} lines are allowed: the grammar makes too few",
        allowed.len()
    );
    let mut before = BTreeMap::new();
    snapshot(&folder, &mut before);
    for batch in allowed.chunks(200) {
        if changes(program, &base, batch, &before) {
            assert_eq!(lay_out(&base), folder);
            before.clear();
            snapshot(&folder, &mut before);
            let guilty = batch
                .iter()
                .find(|line| changes(program, &base, std::slice::from_ref(line), &before));
            panic!("found harmless for {program}, and changes files: {guilty:?}");
        }
    }
    tell(&format!(
        "{count} lines for {program}, {} allowed and run",
        allowed.len()
    ));
    fs::remove_dir_all(&base).unwrap();
}

/// Prints a line even if the output of tests is captured.
fn tell(words: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{words}");
}

/// Generates `count` lines, and returns those that run without a question.
fn allowed(count: usize, shell: ShellKind, folder: &Path) -> Vec<String> {
    let repositories = [".", "src"]
        .map(|name| (name.to_owned(), RepositoryState::Clean))
        .to_vec();
    let facts = CommandFacts {
        shell,
        clean_path: true,
        root: folder.to_str().unwrap().to_owned(),
        repositories,
        symlink_traversal: SymlinkTraversal::Inside,
        tracked_secrets: TrackedSecrets::Found(Vec::new()),
        history_secrets: TrackedSecrets::Found(Vec::new()),
        ..CommandFacts::default()
    };
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let allowed = |line: &String| {
        let access = Access::Command {
            command: line.clone(),
            facts: facts.clone(),
            beyond: ExtraPermissions::Nothing,
        };
        decide_access(&PolicyRules::default(), &access).verdict == Verdict::Allow
    };
    (0..count).map(|_| dice.line(2)).filter(allowed).collect()
}

/// The seconds that many lines together, and one alone, may take.
const BATCH_SECONDS: u32 = 60;
const LINE_SECONDS: u32 = 10;
/// The exit code of `timeout` for a command that it ended.
const OUT_OF_TIME: i32 = 124;

/// System calls of lines that have an effect, which their verdicts say they have none of. `worker` tells runs at the same time apart.
///
/// `strace` follows all processes. Failed calls have no effect. Files in the temporary folder of the run, which the shell and
/// `sort` use for themselves, are left out, and so is `/dev`.
fn trace_effects(base: &Path, worker: usize, lines: &[String]) -> Vec<String> {
    // One shell for all: starting one for each line would take most of the time.
    let script = lines.iter().map(|line| match waits_forever(line) {
        true => format!("{} &", limited_line(line)),
        false => quote_line(line),
    });
    let script = script.collect::<Vec<_>>().join("\n") + "\nwait";
    if let Some(found) = trace_script(base, worker, &script, BATCH_SECONDS) {
        return found;
    }
    let each = lines.iter().map(|line| limited_line(line));
    let script = each.collect::<Vec<_>>().join("\n");
    let most = u32::try_from(lines.len()).unwrap() * LINE_SECONDS + BATCH_SECONDS;
    trace_script(base, worker, &script, most).expect("each of the lines has ended")
}

/// Returns true for most lines with `tail -f`. They wait beside each other.
fn waits_forever(line: &str) -> bool {
    let plain: String = line.chars().filter(|c| !"'\"\\".contains(*c)).collect();
    plain.contains("tail") && plain.contains('f')
}

fn limited_line(line: &str) -> String {
    let line = quote_word(&quote_line(line));
    format!("timeout {LINE_SECONDS} bash -c {line}")
}

/// Runs a script under `strace`, and returns the system calls with an effect; `None` if it took more than these seconds.
fn trace_script(base: &Path, worker: usize, script: &str, seconds: u32) -> Option<Vec<String>> {
    const TRACED: &str = "trace=open,openat,openat2,creat,unlink,unlinkat,rename,renameat,renameat2,mkdir,mkdirat,rmdir,link,linkat,\
        symlink,symlinkat,chmod,fchmod,fchmodat,chown,lchown,fchown,fchownat,truncate,ftruncate,utimensat,setxattr,fsetxattr,lsetxattr,mknod,\
        mknodat,mount,umount2,connect,bind,sendto,sendmsg,execve,execveat,kill,tgkill,ptrace,reboot,sethostname,settimeofday,clock_settime";
    let folder = base.join("proj");
    let temp = base.join(format!("tmp-{worker}"));
    fs::create_dir_all(&temp).unwrap();
    let log = base.join(format!("strace-{worker}.log"));
    let path = format!(
        "/usr/local/bin:/usr/bin:/bin:{}",
        base.join("canaries").display()
    );
    let status = Command::new("timeout")
        .args([&seconds.to_string(), "strace"])
        // With the filter, calls that are not traced stop nothing.
        .args(["-f", "--seccomp-bpf", "-qq", "-z", "-y", "-s", "300"])
        .args(["-e", TRACED, "-e", "signal=none", "-o"])
        .arg(&log)
        .args(["bash", "-c", script])
        .current_dir(&folder)
        .env_clear()
        .env("PATH", path)
        .env("HOME", &folder)
        .env("TMPDIR", &temp)
        .env("GIT_PAGER", "cat")
        // `git status` writes the index only to be faster the next time.
        .env("GIT_OPTIONAL_LOCKS", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    if status.code() == Some(OUT_OF_TIME) {
        return None;
    }
    let text = String::from_utf8_lossy(&fs::read(&log).unwrap()).into_owned();
    // A shell that has not started has no effect either, which would prove nothing.
    assert!(text.contains("execve("), "nothing was traced: {status}");
    let base = base.to_str().unwrap();
    let temp = temp.to_str().unwrap();
    let calls = text.lines().filter(|call| is_effect(call, base, temp));
    Some(calls.map(str::to_owned).collect())
}

/// Reports whether a traced system call, which succeeded, changes or reaches something.
fn is_effect(call: &str, base: &str, temp: &str) -> bool {
    let call = call.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ');
    let name = call.split('(').next().unwrap_or_default();
    let harmless_place = || {
        [
            "\"/dev/null\"",
            "\"/dev/tty\"",
            "</dev/null>",
            "\"/dev/stdout\"",
            "\"/dev/stderr\"",
            "\"/dev/fd/",
        ]
        .iter()
        .any(|place| call.contains(place))
            || call.contains(&format!("\"{temp}/"))
            || call.contains(&format!("<{temp}/"))
    };
    match name {
        "open" | "openat" | "openat2" => {
            let writes = ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_APPEND"];
            writes.iter().any(|flag| call.contains(flag)) && !harmless_place()
        }
        // Programs of the folder are not those that the line means.
        "execve" | "execveat" => call.contains(&format!("(\"{base}/")) || call.contains("(\"./"),
        "connect" | "bind" => {
            call.contains("AF_INET") || call.contains("AF_UNIX") && !call.contains("nscd")
        }
        "sendto" | "sendmsg" => call.contains("AF_INET"),
        // A timeout ends the command below it.
        "kill" | "tgkill" => {
            // A program ends itself like this when nobody reads what it prints.
            let harmless = [", SIGTERM)", ", SIGCONT)", ", SIGPIPE)", ", 0)"];
            !harmless.iter().any(|signal| call.contains(signal))
        }
        "" | "+++" | "---" => false,
        _ if call.starts_with("+++") || call.starts_with("<...") => false,
        _ => !harmless_place(),
    }
}

fn quote_line(line: &str) -> String {
    format!("( ulimit -t 5; eval {} ) </dev/null", quote_word(line))
}

fn quote_word(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Lines that the harness has to find guilty; otherwise its silence means nothing.
const GUILTY: &[&str] = &[
    "touch X",
    "echo x > X",
    "echo x >> a.txt",
    "evil",
    "X a.txt",
    "./evil",
    "cp a.txt X",
    "mv b.txt X",
    "rm b.txt",
    "mkdir X; rmdir X",
    "ln -s a.txt X",
    "ln a.txt X2",
    "chmod 600 a.txt",
    "touch -d yesterday a.txt",
    "sort -o a.txt a.txt",
    "git tag z",
    "echo x > /dev/tcp/127.0.0.1/9 || exec 3<>/dev/udp/127.0.0.1/9",
    "sed -i s/a/b/ a.txt",
    "find . -name b.txt -delete",
    "find . -name a.txt -exec touch X ';'",
    "echo a | tee X",
    "truncate -s 0 b.txt",
    "(sleep 1 & kill -9 $!)",
];

/// `SABIR_LINES` sets the number of generated lines.
#[test]
fn no_line_that_is_not_asked_about_has_an_effect() {
    trace_lines(400);
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn no_line_of_many_has_an_effect() {
    trace_lines(4_000);
}

/// The number of batches after which a guilty line is among the others.
const CONTROL_EVERY: usize = 20;

fn trace_lines(count: usize) {
    for program in ["git", "bash", "strace"] {
        if Command::new(program).arg("--version").output().is_err() {
            tell(&format!("skipped: there is no {program}"));
            return;
        }
    }
    let count: usize = std::env::var("SABIR_LINES")
        .ok()
        .and_then(|count| count.parse().ok())
        .unwrap_or(count);
    let base =
        std::env::temp_dir().join(format!("sabir-policy-trace-{count}-{}", std::process::id()));
    for line in GUILTY {
        lay_out(&base);
        assert!(
            !trace_effects(&base, 0, &[(*line).to_owned()]).is_empty(),
            "not noticed: {line}"
        );
    }
    let folder = lay_out(&base);
    let harmless = [
        "cat a.txt",
        "git status",
        "ls | sort | uniq -c",
        "git log -p",
        "grep -r alpha .",
    ];
    let found = trace_effects(&base, 0, &harmless.map(str::to_owned));
    assert_eq!(found, Vec::<String>::new());
    let mut lines = allowed(count, ShellKind::Bash, &folder);
    let allowed = lines.len();
    lines.sort();
    lines.dedup();
    let batches: Vec<_> = lines.chunks(100).collect();
    let next = AtomicUsize::new(0);
    let work = |worker: usize| {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(batch) = batches.get(number) else {
                return;
            };
            // A guilty line, which leaves nothing behind, is found among the others, too.
            if number.is_multiple_of(CONTROL_EVERY) {
                let guilty = format!("mkdir guilty-{number} && rmdir guilty-{number}");
                let planted = [batch, &[guilty][..]].concat();
                let found = trace_effects(&base, worker, &planted);
                assert!(!found.is_empty(), "not noticed in batch {number}");
            }
            if trace_effects(&base, worker, batch).is_empty() {
                continue;
            }
            for line in *batch {
                let found = trace_effects(&base, worker, std::slice::from_ref(line));
                assert!(found.is_empty(), "found harmless: {line:?}: {found:#?}");
            }
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let work = &work;
        for worker in 0..workers {
            scope.spawn(move || work(worker));
        }
    });
    let different = lines.len();
    tell(&format!(
        "{count} lines, {allowed} allowed, {different} different ones run under strace, {} guilty ones found",
        GUILTY.len() + batches.len().div_ceil(CONTROL_EVERY)
    ));
    fs::remove_dir_all(&base).unwrap();
}

/// Reports whether a shell that runs these lines changes anything.
fn changes(
    program: &str,
    base: &Path,
    lines: &[String],
    before: &BTreeMap<PathBuf, Vec<u8>>,
) -> bool {
    let (folder, canaries) = (base.join("proj"), base.join("canaries"));
    let quoted = lines.iter().map(|line| quote_line(line));
    run(
        program,
        (&folder, &canaries),
        &quoted.collect::<Vec<_>>().join("\n"),
    );
    let mut after = BTreeMap::new();
    snapshot(&folder, &mut after);
    after != *before
}
