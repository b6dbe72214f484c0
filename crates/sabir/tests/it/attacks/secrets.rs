//! Files with secrets that commands and searches meet without naming them, and names that are split on the way.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::world::{WAYS, World, code, events, stderr, turn};

use super::commands::endings;

/// A text that no result may hold.
const SECRET: &str = "KEY=swordfish-4711";

/// Commands that read `.env` or `deploy/server.pem` without naming it.
const READERS: [&str; 27] = [
    "cat .e*",
    "head .e??",
    "cat .[e]nv",
    "cat .??*",
    "tail -n 2 ./.e*",
    "sort .e*",
    "base64 .en?",
    "sed -n p .e*",
    "awk 1 .e*",
    "diff .e* /dev/null",
    "grep KEY .e*",
    "grep -r KEY .",
    "grep -rn KEY",
    "grep -R KEY . | head -3",
    "grep -r --include=.e* KEY",
    "rg --hidden KEY",
    "rg -uu KEY",
    "rg -g '.e*' KEY",
    "git grep --untracked KEY",
    "git grep --no-index KEY",
    "find . -type f -exec cat {} +",
    "find . -name '.e*' | xargs cat",
    "find . -type f -print0 | xargs -0 grep KEY",
    "find . -type f | while read -r f; do cat \"$f\"; done",
    "for f in .e*; do cat \"$f\"; done",
    "for x in v; do cat .en$x; done",
    "cat deploy/*",
];

/// Commands that read the file outside which the name of one inside is split into.
const SPLITTERS: [&str; 9] = [
    "find . -name secret | xargs cat",
    "find . -type f | xargs cat",
    "find . -name secret | xargs -n1 cat",
    "find . -name secret | sort | xargs head",
    "find . -name secret | xargs -I{} cat {}",
    "find . -name secret | while read -r f; do cat \"$f\"; done",
    "cat $(find . -name secret)",
    "git ls-files | xargs cat",
    "cat $(git ls-files)",
];

/// Commands that run unasked although the files with secrets exist.
const HARMLESS: [&str; 8] = [
    "ls -la",
    "find . -type f | wc -l",
    "cat src/*",
    "cat *.txt",
    "grep -rn alpha src",
    "grep -rn --include='*.txt' alpha .",
    "find src -type f -exec cat {} +",
    "rg alpha src",
];

fn git(folder: &Path, arguments: &[&str]) {
    let done = std::process::Command::new("git")
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(done.status.success(), "{arguments:?}");
}

/// A repository with secrets in it, beside a file outside.
fn project(place: &Path) -> std::path::PathBuf {
    let folder = place.join("proj");
    for path in [
        ".env",
        "deploy/server.pem",
        "src/a.txt",
        "a.txt",
        ".gitignore",
    ] {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "alpha\n").unwrap();
    }
    for path in [".env", "deploy/server.pem"] {
        fs::write(folder.join(path), format!("{SECRET}\n")).unwrap();
    }
    git(&folder, &["init", "-q", "-b", "main"]);
    git(&folder, &["add", "a.txt", "src"]);
    folder
}

fn run(folder: &Path, lines: &[&str], flags: &[&str]) -> Vec<String> {
    let calls: Vec<Value> = lines
        .iter()
        .map(|line| json!({"command": line, "timeout": 20}))
        .collect();
    let (output, endings) = endings(&World::new(), WAYS[1], folder, calls, flags);
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!shown.contains(SECRET), "{flags:?} shows the secret");
    assert_eq!(endings.len(), lines.len(), "{}", stderr(&output));
    endings
}

#[test]
fn no_command_reads_a_secret_unasked() {
    let place = tempfile::tempdir_in(sabir_testkit::find_temp_base()).unwrap();
    let folder = project(place.path());
    // Where the sandbox is at level 2, most of them run, and see an empty file: `run` checks that
    // nothing of it is shown.
    for flags in [&[][..], &["--approve", "edits"]] {
        run(&folder, &READERS, flags);
    }
    for flags in [&["--sandbox", "1"][..], &["--sandbox", "off"]] {
        let endings = run(&folder, &READERS, flags);
        let run: Vec<_> = READERS
            .iter()
            .zip(&endings)
            .filter(|(_, ending)| *ending != "denied")
            .collect();
        assert!(run.is_empty(), "{flags:?}: {run:?}");
    }
    let endings = run(&folder, &HARMLESS, &[]);
    let denied: Vec<_> = HARMLESS
        .iter()
        .zip(&endings)
        .filter(|(_, ending)| *ending == "denied")
        .collect();
    assert!(denied.is_empty(), "{denied:?}");
}

#[test]
fn a_name_that_is_split_reads_nothing_outside() {
    let place = tempfile::tempdir_in(sabir_testkit::find_temp_base()).unwrap();
    let folder = project(place.path());
    let outside = place.path().join("secret");
    fs::write(&outside, SECRET).unwrap();
    // `find` prints `./a /…/secret`, which is two words.
    for blank in ["a ", "b\n"] {
        let inside = folder.join(format!("{blank}{}", outside.display()));
        fs::create_dir_all(inside.parent().unwrap()).unwrap();
        fs::write(inside, "x").unwrap();
    }
    fs::remove_file(folder.join(".env")).unwrap();
    fs::remove_dir_all(folder.join("deploy")).unwrap();
    git(&folder, &["add", "-A"]);
    let endings = run(&folder, &SPLITTERS, &["--sandbox", "off"]);
    let run_unasked: Vec<_> = SPLITTERS
        .iter()
        .zip(&endings)
        .filter(|(_, ending)| *ending != "denied")
        .collect();
    assert!(run_unasked.is_empty(), "{run_unasked:?}");
    // The index still names the files.
    for blank in ["a ", "b\n"] {
        fs::remove_dir_all(folder.join(blank)).unwrap();
    }
    let endings = run(
        &folder,
        &["git ls-files | xargs cat", "cat $(git ls-files)"],
        &["--sandbox", "off"],
    );
    assert_eq!(endings, ["denied", "denied"]);
}

#[test]
fn no_search_shows_a_secret() {
    let place = tempfile::tempdir_in(sabir_testkit::find_temp_base()).unwrap();
    let folder = project(place.path());
    let searches = [
        json!({"regex": "KEY"}),
        json!({"regex": "KEY", "file_pattern": ".env*"}),
        json!({"regex": "KEY", "file_pattern": "**/.e*"}),
        json!({"regex": "KEY", "file_pattern": "*.pem"}),
        json!({"regex": "KEY", "path": "deploy"}),
        json!({"regex": "KEY", "path": ".env"}),
    ];
    let world = World::new();
    let calls = searches.map(|search| ("search_files", search)).to_vec();
    let done = turn("", vec![("attempt_completion", json!({"result": "done"}))]);
    let provider = world.plays(WAYS[1], &[turn("Searching.", calls), done.clone(), done]);
    let folder = folder.to_str().unwrap();
    let output = world.run(
        &provider,
        WAYS[1],
        &[
            "-C",
            folder,
            "--output",
            "events",
            "--no-checkpoints",
            "do it",
        ],
    );
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!shown.contains(SECRET), "{shown}");
    assert!(shown.contains("left out"), "{}: {shown}", code(&output));
    let results = events(&output)
        .into_iter()
        .filter(|event| event["kind"] == "result" && event["name"] == "search_files");
    let endings: Vec<_> = results.map(|event| event["ending"].clone()).collect();
    // The file itself is asked about; denials are reported before the others have run.
    let denied = endings.iter().filter(|ending| *ending == "denied").count();
    assert_eq!(denied, 1, "{endings:?}");
}

/// With every command approved, irreversible commands still ask, in any disguise.
#[test]
fn nothing_irreversible_happens_with_all_approved() {
    let place = tempfile::tempdir_in(sabir_testkit::find_temp_base()).unwrap();
    let folder = project(place.path());
    let precious = place.path().join("precious");
    fs::write(&precious, "x").unwrap();
    let removes = format!("rm -rf {}", precious.display());
    // Temporary folders are not asked about, so the file would be in the home folder.
    let writes = "~/.sabir-attack";
    let target = place.path().join("written");
    let lines = [
        format!("bash -lc '{removes}'"),
        format!("bash -euo pipefail -c '{removes}'"),
        format!("eval '{removes}'"),
        format!("env -S '{removes}'"),
        format!("echo '{removes}' | sh"),
        format!("sh <<'EOF'\n{removes}\nEOF"),
        format!("bash <<< '{removes}'"),
        format!("bash <(echo '{removes}')"),
        format!("source <(echo '{removes}')"),
        format!("$(echo rm) -rf {}", precious.display()),
        format!("X=rm; $X -rf {}", precious.display()),
        format!("XY=rm; $XY -rf {}", precious.display()),
        format!("exec bash -lc '{removes}'"),
        format!("timeout --foreground 5 bash -lc '{removes}'"),
        format!("python3 -c 'import os; os.system(\"{removes}\")'"),
        format!("echo x | tee {writes}"),
        format!("echo x > {writes}"),
        "cd .. && echo x > written".to_owned(),
        format!("cp a.txt {writes}"),
        "docker system prune".to_owned(),
        "npm unpublish x".to_owned(),
    ];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    for flags in [
        &["--approve", "all"][..],
        &["--approve", "all", "--sandbox", "off"],
    ] {
        let endings = run(&folder, &lines, flags);
        let run: Vec<_> = lines
            .iter()
            .zip(&endings)
            .filter(|(_, ending)| *ending != "denied")
            .collect();
        assert!(run.is_empty(), "{flags:?}: {run:?}");
        assert!(precious.exists() && !target.exists());
    }
}

/// Commands that show what only an old commit holds, and the id of its content.
fn history_readers(id: &str) -> Vec<String> {
    let short: String = id.chars().take(8).collect();
    [
        "git show HEAD",
        "git show",
        "git log -p",
        "git log --all --patch | cat",
        "git diff HEAD~1",
        "git diff HEAD~1 HEAD -- .",
        "git show HEAD -- src/../deploy",
        "git show ':!a.txt'",
        "git log -p --full-diff -- a.txt",
        "git grep KEY HEAD~1",
        "git cat-file --batch-all-objects --batch",
        "echo HEAD~1:.env | git cat-file --batch",
        "git reflog -p",
        "cd src && git show HEAD",
        "git -C src log -p",
        "for c in $(git rev-list HEAD); do git show $c; done",
    ]
    .into_iter()
    .map(str::to_owned)
    .chain([
        format!("git show {id}"),
        format!("git show --stat {short}"),
        format!("git cat-file -p {id}"),
        format!("git cat-file blob {short} -- a.txt"),
        format!("x={id}; git cat-file -p $x"),
    ])
    .collect()
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn no_command_shows_a_secret_of_an_old_commit() {
    let place = tempfile::tempdir_in(sabir_testkit::find_temp_base()).unwrap();
    let folder = project(place.path());
    let commit = [
        "-c",
        "user.name=x",
        "-c",
        "user.email=x",
        "commit",
        "-qm",
        "x",
    ];
    git(&folder, &["add", "-Af"]);
    git(&folder, &commit);
    git(&folder, &["rm", "-q", ".env", "deploy/server.pem"]);
    fs::write(folder.join("src/a.txt"), "beta\n").unwrap();
    git(&folder, &["add", "src"]);
    git(&folder, &commit);
    let id = std::process::Command::new("git")
        .args(["rev-parse", "HEAD~1:.env"])
        .current_dir(&folder)
        .output()
        .unwrap();
    let id = String::from_utf8(id.stdout).unwrap();
    let readers = history_readers(id.trim());
    let readers: Vec<&str> = readers.iter().map(String::as_str).collect();
    // The positive control: git does print it.
    let shown = std::process::Command::new("git")
        .args(["show", "HEAD"])
        .current_dir(&folder)
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&shown.stdout).contains(SECRET));
    for pack in [false, true] {
        if pack {
            git(&folder, &["gc", "-q"]);
        }
        for flags in [&[][..], &["--sandbox", "1"], &["--sandbox", "off"]] {
            let endings = run(&folder, &readers, flags);
            let run: Vec<_> = readers
                .iter()
                .zip(&endings)
                .filter(|(_, ending)| *ending != "denied")
                .collect();
            assert!(run.is_empty(), "{flags:?}: {run:?}");
        }
        let harmless = [
            "git log --stat",
            "git show --stat HEAD",
            "git diff",
            "git show HEAD -- src",
            "git log -p -- src a.txt",
            "git diff HEAD~1 HEAD -- src",
            "git show HEAD:a.txt",
        ];
        let endings = run(&folder, &harmless, &[]);
        assert_eq!(endings, ["done"; 7], "packed: {pack}");
    }
}
