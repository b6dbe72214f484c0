//! Tests the search for paths among all commits of a repository, which starts no program.

use std::path::Path;
use std::process::Command;

use sabir_workspace::{GitConfigError, HistorySearch, PathFilter};

use crate::Place;

const FILTER: PathFilter = PathFilter {
    may_end_with: |name| name == ".env" || name == "config",
    is_wanted: |path| path.ends_with(".env") || path.ends_with(".kube/config"),
};

fn environment() -> Vec<(String, String)> {
    let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".to_owned());
    let own = ["GIT_AUTHOR_", "GIT_COMMITTER_"]
        .into_iter()
        .flat_map(|who| ["NAME", "EMAIL"].map(|what| (format!("{who}{what}"), "x".to_owned())));
    own.chain([
        ("PATH".to_owned(), path),
        ("HOME".to_owned(), "/nonexistent".to_owned()),
    ])
    .collect()
}

/// Runs a shell script in a folder, and returns what it prints.
fn run(folder: &Path, script: &str) -> String {
    let mut shell = Command::new("sh");
    shell
        .args(["-ec", script])
        .current_dir(folder)
        .env_clear()
        .envs(environment());
    let done = shell.output().unwrap();
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{script}: {errors}");
    String::from_utf8_lossy(&done.stdout).trim().to_owned()
}

fn search(place: &Place, ids: &[String]) -> Result<HistorySearch, GitConfigError> {
    let root = place.workspace.root();
    place
        .workspace
        .search_history(root, &environment(), &FILTER, ids)
}

/// Checks the paths that are found after scripts.
#[track_caller]
fn check(scripts: &[&str], expected: &[&str]) {
    let place = Place::new();
    for script in scripts {
        run(place.workspace.root(), script);
    }
    assert_eq!(search(&place, &[]).unwrap().paths, expected, "{scripts:?}");
}

const START: &str =
    "git init -q -b main . && mkdir -p src && echo a > src/a && git add . && git commit -qm a";
const REMOVED: &str = "mkdir -p svc/api && echo k > svc/api/.env && git add -f . && git commit -qm b && \
     git rm -rq svc && git commit -qm c";
const ALL: [&str; 3] = ["svc/api/.env", "api/.env", ".env"];

#[test]
fn files_of_old_commits_are_found() {
    check(&[START], &[]);
    check(&[START, REMOVED], &ALL);
    check(
        &[START, REMOVED, "git gc -q --aggressive --prune=now"],
        &ALL,
    );
    // Packs whose deltas name their base by its id, and a second pack.
    check(
        &[
            START,
            REMOVED,
            "git -c repack.useDeltaBaseOffset=false repack -adfq && echo b > b && git add b && git commit -qm d && git repack -dq",
        ],
        &ALL,
    );
    check(
        &["git init -q --object-format=sha256 .", START, REMOVED],
        &ALL,
    );
    // No branch leads to it, but `git show ID` would print it.
    check(
        &[
            START,
            REMOVED,
            "git reset -q --hard HEAD~2 && git reflog expire --expire=now --all",
        ],
        &ALL,
    );
    check(&[START, "echo k > .env && git stash -qu"], &[".env"]);
    // A path is wanted by more than its last part, and the name alone is not.
    check(
        &[
            START,
            "mkdir conf && echo > conf/config && git add . && git commit -qm b",
        ],
        &[],
    );
    check(
        &[
            START,
            "mkdir -p a/.kube && echo > a/.kube/config && git add . && git commit -qm b",
        ],
        &["a/.kube/config", ".kube/config"],
    );
}

/// A store with so many trees that most of them are deltas: names are found in all of them.
#[test]
fn names_in_chains_of_deltas_are_found() {
    let many = "i=0; while [ $i -lt 40 ]; do mkdir -p d$((i % 7)); echo $i > d$((i % 7))/f$i; \
         [ $i -ne 21 ] || echo k > d3/.env; git add -f . && git commit -qm $i; \
         [ $i -ne 21 ] || git rm -qf d3/.env; i=$((i + 1)); done; git repack -adfq --depth=50 --window=50";
    check(&[START, many], &["d3/.env", ".env"]);
    // The positive control: git has really made deltas to trees.
    let place = Place::new();
    run(place.workspace.root(), START);
    run(place.workspace.root(), many);
    let listing = run(
        place.workspace.root(),
        "git verify-pack -v .git/objects/pack/*.idx | grep -c '^[0-9a-f]* tree.* [1-9][0-9]* [0-9a-f]\\{40\\}$'",
    );
    assert!(listing.parse::<u32>().unwrap() > 10, "{listing}");
}

#[test]
fn borrowed_stores_are_read_and_missing_parts_refused() {
    let place = Place::new();
    let root = place.workspace.root();
    let store = place.outside.path().join("store");
    let store = store.to_str().unwrap();
    run(
        root,
        &format!("git init -q -b main {store} && cd {store} && {START} && {REMOVED}"),
    );
    run(root, &format!("git clone -q --shared {store} ."));
    assert_eq!(search(&place, &[]).unwrap().paths, ALL);
    // A pack without its index, a broken object, a pipe.
    for damage in [
        "git repack -adq && rm -f .git/objects/pack/*.idx",
        "git repack -adq && for f in .git/objects/pack/*.pack; do chmod +w $f; printf 'PACKxx' > $f; done",
        "mkdir -p .git/objects/aa && printf nothing > .git/objects/aa/00112233445566778899aabbccddeeff001122",
        "mkdir -p .git/objects/aa && mkfifo .git/objects/aa/00112233445566778899aabbccddeeff001122",
    ] {
        let place = Place::new();
        run(place.workspace.root(), START);
        run(place.workspace.root(), damage);
        assert!(search(&place, &[]).is_err(), "{damage}");
    }
}

/// Returns the beginning of an id, as people write it.
fn shorten(id: &str) -> String {
    id.chars().take(7).collect()
}

#[test]
fn blobs_are_told_from_other_objects() {
    for pack in ["true", "git gc -q"] {
        let place = Place::new();
        let root = place.workspace.root();
        run(root, START);
        run(
            root,
            "echo dangling | git hash-object -w --stdin > /dev/null",
        );
        run(root, pack);
        let ids = ["HEAD", "HEAD:src/a", "HEAD:src"]
            .map(|name| run(root, &format!("git rev-parse {name}")));
        let dangling = run(root, "echo dangling | git hash-object --stdin");
        let asked: Vec<String> = ids
            .iter()
            .flat_map(|id| [id.clone(), shorten(id)])
            .chain([dangling.clone(), "0123456".to_owned()])
            .collect();
        let found = search(&place, &asked).unwrap().blob_ids;
        assert_eq!(found, [ids[1].clone(), shorten(&ids[1]), dangling]);
    }
}

/// An answer is kept only as long as the objects stay the same.
#[test]
fn new_commits_are_seen() {
    let place = Place::new();
    run(place.workspace.root(), START);
    assert!(search(&place, &[]).unwrap().paths.is_empty());
    run(place.workspace.root(), REMOVED);
    assert_eq!(search(&place, &[]).unwrap().paths, ALL);
    assert_eq!(search(&place, &[]).unwrap().paths, ALL, "from memory");
}
