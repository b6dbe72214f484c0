//! Tests what bounds hide and forbid, for every way to access a file.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;
use sabir_workspace::{
    Bounds, FileChange, FileVersion, ListOptions, SearchOptions, StopFlag, Workspace,
    WorkspaceError, WritePrecondition,
};

use crate::Place;

const NAMES: [&str; 3] = [".sabirignore", ".clineignore", ".rooignore"];

/// Applies bounds to a place.
fn bounded(place: Place, bounds: Bounds) -> Place {
    let workspace = Workspace::open(place.root.path())
        .unwrap()
        .with_bounds(bounds);
    Place { workspace, ..place }
}

fn ignoring(lists: &[(&str, &str)]) -> Place {
    let place = Place::new();
    for (name, text) in lists {
        place.put(name, text);
    }
    for name in [
        ".env",
        "svc/.env",
        "svc/main.rs",
        "secrets/deep/key",
        "build/keep/x",
        "build/y",
        "plain.txt",
        "mover",
    ] {
        place.put(name, "TOKEN=1\n");
    }
    bounded(place, Bounds::new().ignore_files(NAMES))
}

fn all() -> ListOptions {
    ListOptions {
        recursive: true,
        ..ListOptions::default()
    }
}

/// Checks that every way to access a file gives the same answer.
#[track_caller]
fn check(place: &Place, path: &str, hidden_by: Option<&str>) {
    let workspace = &place.workspace;
    let at = place.path(path);
    let is_folder = place.inner(path).is_dir();
    let mut said: Vec<(&str, Option<WorkspaceError>)> = vec![
        ("may_read", workspace.check_readable(&at).err()),
        ("may_write", workspace.check_writable(&at).err()),
        ("metadata", workspace.metadata(&at).err()),
        ("exists", workspace.exists(&at).err()),
        (
            "search",
            workspace
                .search_files(&SearchOptions {
                    path: at.clone(),
                    ..SearchOptions::new("TOKEN")
                })
                .err(),
        ),
    ];
    if is_folder {
        said.push(("list", workspace.list_folder(&at, &all()).err()));
    } else {
        said.push(("read", workspace.read_file(&at, 100).err()));
        let wrong = WritePrecondition::Version(FileVersion::of_content(b"something else"));
        let change = |change| {
            workspace
                .apply_changes(&[change])
                .err()
                .filter(|error| !is_stale(error))
        };
        said.push((
            "write",
            workspace
                .write_file(&at, b"new", wrong)
                .err()
                .filter(|error| !is_stale(error)),
        ));
        said.push((
            "add",
            change(FileChange::write(
                at.clone(),
                Vec::new(),
                WritePrecondition::Missing,
            )),
        ));
        said.push(("delete", change(FileChange::delete(at.clone(), wrong))));
        let [written, deleted] =
            FileChange::move_file(at.clone(), wrong, place.path("elsewhere"), Vec::new());
        said.push((
            "move from",
            workspace
                .apply_changes(&[written, deleted])
                .err()
                .filter(|error| !is_stale(error)),
        ));
        let [written, deleted] =
            FileChange::move_file(place.path("mover"), wrong, at.clone(), Vec::new());
        said.push((
            "move to",
            workspace
                .apply_changes(&[written, deleted])
                .err()
                .filter(|error| !is_stale(error)),
        ));
    }
    for (way, error) in said {
        let by = match &error {
            Some(WorkspaceError::Hidden { by, .. }) => Some(by.as_str()),
            _ => None,
        };
        assert!(
            by == hidden_by && error.is_none() == by.is_none(),
            "{way} of {path}: {error:?}, not {hidden_by:?}"
        );
    }
    assert!(!place.inner("elsewhere").exists());
}

fn is_stale(error: &WorkspaceError) -> bool {
    matches!(
        error,
        WorkspaceError::Stale { .. } | WorkspaceError::Exists { .. }
    )
}

/// Returns everything that is listed and found, as one text each.
fn shown(place: &Place) -> (String, usize) {
    let listing = place
        .workspace
        .list_folder(&place.path("."), &all())
        .unwrap();
    let names: Vec<_> = listing
        .entries
        .iter()
        .map(|entry| entry.path.to_string())
        .collect();
    let found = place
        .workspace
        .search_files(&SearchOptions::new("TOKEN"))
        .unwrap();
    for found in found.matches {
        assert!(
            names.contains(&found.path.to_string()),
            "{} is found and not listed",
            found.path
        );
    }
    (names.join(" "), listing.hidden)
}

#[test]
fn ignored_files_are_hidden_from_every_operation() {
    let place = ignoring(&[
        (".sabirignore", ".env\n/secrets/\n"),
        (".rooignore", "build/*\n!build/keep\n"),
    ]);
    check(&place, ".env", Some(".sabirignore"));
    check(&place, "svc/.env", Some(".sabirignore"));
    check(&place, "svc/../svc/./.env", Some(".sabirignore"));
    check(&place, "secrets", Some(".sabirignore"));
    check(&place, "secrets/deep", Some(".sabirignore"));
    check(&place, "secrets/deep/key", Some(".sabirignore"));
    check(&place, "build/y", Some(".rooignore"));
    check(&place, "build/keep/x", None);
    check(&place, "plain.txt", None);
    check(&place, "svc/main.rs", None);
    assert_eq!(
        shown(&place),
        (
            ".rooignore .sabirignore build build/keep build/keep/x mover plain.txt svc svc/main.rs"
                .to_owned(),
            4
        )
    );
    // A missing path is hidden as well, and nothing is created.
    let error = place
        .workspace
        .write_file(&place.path("secrets/new/x"), b"", WritePrecondition::Any)
        .unwrap_err();
    assert!(matches!(error, WorkspaceError::Hidden { .. }), "{error:?}");
    let error = place
        .workspace
        .write_file(&place.path("new/secrets/.env"), b"", WritePrecondition::Any)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "`new/secrets/.env` is hidden by .sabirignore; work without it, or ask the user"
    );
    assert!(!place.inner("secrets/new").exists() && !place.inner("new").exists());
}

#[test]
fn links_to_hidden_files_are_hidden() {
    let place = ignoring(&[(".sabirignore", ".env\nsecrets/\nshown-as\n")]);
    place.link("alias", ".env");
    place.link("through", "secrets/deep");
    place.link("deeper", "through");
    place.link("shown-as", "plain.txt");
    for path in ["alias", "through/key", "through", "deeper/key", "shown-as"] {
        let error = place
            .workspace
            .read_file(&place.path(path), 10)
            .unwrap_err();
        assert!(
            matches!(error, WorkspaceError::Hidden { .. }),
            "{path}: {error:?}"
        );
        let error = place
            .workspace
            .check_writable(&place.path(path))
            .unwrap_err();
        assert!(
            matches!(error, WorkspaceError::Hidden { .. }),
            "{path}: {error:?}"
        );
        let error = place
            .workspace
            .write_file(&place.path(path), b"x", WritePrecondition::Any)
            .unwrap_err();
        assert!(
            matches!(error, WorkspaceError::Hidden { .. }),
            "{path}: {error:?}"
        );
    }
    let options = SearchOptions {
        path: place.path("through"),
        ..SearchOptions::new("TOKEN")
    };
    assert!(matches!(
        place.workspace.search_files(&options),
        Err(WorkspaceError::Hidden { .. })
    ));
    assert!(matches!(
        place.workspace.list_folder(&place.path("deeper"), &all()),
        Err(WorkspaceError::Hidden { .. })
    ));
}

#[test]
fn changed_and_nested_ignore_files_apply() {
    let place = ignoring(&[
        ("svc/.clineignore", "main.*\n"),
        ("secrets/.sabirignore", "*\n!deep\n"),
    ]);
    check(&place, "svc/main.rs", Some(".clineignore"));
    check(&place, "secrets/deep/key", Some(".sabirignore"));
    check(&place, ".env", None);
    place.put("svc/.clineignore", "*\n!main.rs\n");
    check(&place, "svc/main.rs", None);
    check(&place, "svc/.env", Some(".clineignore"));
    place.put(".sabirignore", "*\n");
    check(&place, "plain.txt", Some(".sabirignore"));
    // The ignore file itself can be read, but changing it needs an approval.
    assert_eq!(
        place
            .workspace
            .read_file(&place.path(".sabirignore"), 10)
            .unwrap()
            .bytes,
        b"*\n"
    );
    assert!(
        place
            .workspace
            .protection_reason(&place.path(".sabirignore"))
            .is_some()
    );
    assert!(
        place
            .workspace
            .protection_reason(&place.path("svc/.clineignore"))
            .is_some()
    );
    let own = bounded(Place::new(), Bounds::new().ignore_files([".gitignore"]));
    assert!(
        own.workspace
            .protection_reason(&own.path("sub/.gitignore"))
            .is_some()
    );
    assert!(
        Place::new()
            .workspace
            .protection_reason(&own.path("sub/.gitignore"))
            .is_none()
    );
}

#[test]
fn a_list_that_cannot_be_read_hides_its_folder() {
    let place = ignoring(&[]);
    let unreadable = ".sabirignore, which cannot be read as a text file of at most 1 MiB";
    place.link("svc/.sabirignore", "nowhere");
    check(&place, "svc/main.rs", Some(unreadable));
    check(&place, "plain.txt", None);
    fs::remove_file(place.inner("svc/.sabirignore")).unwrap();
    place.put("svc/.sabirignore", "#\n".repeat(600_000));
    check(&place, "svc/main.rs", Some(unreadable));
    fs::remove_file(place.inner("svc/.sabirignore")).unwrap();
    fs::create_dir(place.inner("svc/.sabirignore")).unwrap();
    check(&place, "svc/main.rs", Some(unreadable));
    fs::remove_dir(place.inner("svc/.sabirignore")).unwrap();
    // One list is often linked for several tools; a link to the outside cannot be read.
    place.put(".ignored", "main.rs\n");
    place.link("svc/.sabirignore", "../.ignored");
    check(&place, "svc/main.rs", Some(".sabirignore"));
    fs::remove_file(place.inner("svc/.sabirignore")).unwrap();
    place.link("svc/.sabirignore", place.outside.path().join("secret"));
    check(&place, "svc/main.rs", Some(unreadable));
}

#[test]
fn globs_hide_files() {
    let place = ignoring(&[]);
    let absolute = place
        .workspace
        .root()
        .join("svc/.env")
        .to_str()
        .unwrap()
        .to_owned();
    let globs = ["secrets/deep".to_owned(), absolute, ".env/".to_owned()];
    let place = bounded(place, Bounds::new().hide_globs(globs).unwrap());
    check(&place, "secrets/deep/key", Some("a rule"));
    check(&place, "svc/.env", Some("a rule"));
    check(&place, ".env", Some("a rule"));
    check(&place, "svc/main.rs", None);
    assert_eq!(shown(&place).1, 3);
    assert!(Bounds::new().hide_globs(["".to_owned()]).is_err());
}

#[test]
fn regular_expressions_limit_writes() {
    let both = |globs: &[&str], expressions: &[&str]| {
        let strings = |all: &[&str]| {
            all.iter()
                .map(|text| (*text).to_owned())
                .collect::<Vec<_>>()
        };
        Bounds::new()
            .limit_writes_to_globs(strings(globs))
            .unwrap()
            .allow_writes_matching(strings(expressions))
    };
    let place = bounded(
        ignoring(&[]),
        both(&["docs"], &[r"\.(md|mdx)$", "^notes/"]).unwrap(),
    );
    for path in ["a.md", "deep/b.mdx", "notes/x.rs", "docs/x.html"] {
        place
            .workspace
            .write_file(&place.path(path), b"x", WritePrecondition::Missing)
            .unwrap();
    }
    for path in ["a.mdz", "deep/notes/x.rs", "b.md.rs"] {
        let error = place
            .workspace
            .apply_changes(&[FileChange::write(
                place.path(path),
                Vec::new(),
                WritePrecondition::Any,
            )])
            .unwrap_err();
        let words = r"only `docs`, `/\.(md|mdx)$/`, `/^notes//` may be written now";
        assert_eq!(
            error.to_string(),
            format!("`{path}` cannot be written, and nothing was: {words}")
        );
    }
    assert!(
        both(&[], &["("]).is_err()
            && both(&[], &["(?!a)"]).is_err()
            && both(&[], &[r"\w{99}{99}{99}"]).is_err()
    );
    // A workspace that is read-only stays so.
    let place = bounded(
        ignoring(&[]),
        Bounds::new()
            .read_only()
            .allow_writes_matching([".".to_owned()])
            .unwrap(),
    );
    place
        .workspace
        .write_file(&place.path("c.md"), b"x", WritePrecondition::Missing)
        .unwrap_err();
}

#[test]
fn a_mode_limits_writes() {
    let only = Bounds::new()
        .limit_writes_to_globs(["**/*.md".to_owned(), "docs".to_owned()])
        .unwrap();
    let place = bounded(
        ignoring(&[]),
        only.with_limit_reason("the mode `docs` writes only Markdown"),
    );
    for path in ["a.md", "deep/down/b.md", "docs/x.html"] {
        place
            .workspace
            .write_file(&place.path(path), b"x", WritePrecondition::Missing)
            .unwrap();
    }
    place
        .workspace
        .read_file(&place.path("plain.txt"), 10)
        .unwrap();
    let refused = |changes: &[FileChange]| {
        let error = place.workspace.apply_changes(changes).unwrap_err();
        assert!(
            matches!(error, WorkspaceError::WriteForbidden { .. }),
            "{error:?}"
        );
        error.to_string()
    };
    assert_eq!(
        refused(&[FileChange::write(
            place.path("a.rs"),
            Vec::new(),
            WritePrecondition::Any
        )]),
        "`a.rs` cannot be written, and nothing was: the mode `docs` writes only Markdown"
    );
    refused(&[FileChange::delete(
        place.path("plain.txt"),
        WritePrecondition::Any,
    )]);
    refused(&FileChange::move_file(
        place.path("a.md"),
        WritePrecondition::Any,
        place.path("a.rs"),
        Vec::new(),
    ));
    refused(&FileChange::move_file(
        place.path("plain.txt"),
        WritePrecondition::Any,
        place.path("b.md"),
        Vec::new(),
    ));
    // All or nothing: the first change alone would be allowed.
    refused(&[
        FileChange::write(place.path("new.md"), Vec::new(), WritePrecondition::Any),
        FileChange::write(place.path("new.rs"), Vec::new(), WritePrecondition::Any),
    ]);
    assert!(!place.inner("new.md").exists() && place.inner("a.md").exists());
    place.link("l.md", "plain.txt");
    refused_by_limit(&place, "l.md");
    let place = bounded(place, Bounds::new().read_only());
    refused_by_limit(&place, "a.md");
    assert_eq!(
        place
            .workspace
            .read_file(&place.path("a.md"), 10)
            .unwrap()
            .bytes,
        b"x"
    );
}

#[track_caller]
fn refused_by_limit(place: &Place, path: &str) {
    let error = place
        .workspace
        .check_writable(&place.path(path))
        .unwrap_err();
    assert!(
        matches!(error, WorkspaceError::WriteForbidden { .. }),
        "{error:?}"
    );
}

#[test]
fn hidden_paths_are_listed_for_a_sandbox() {
    let lists = [
        (".sabirignore", ".env\nsecrets/\nlink*\n!link3\n"),
        (".gitignore", "build\n"),
    ];
    let place = ignoring(&lists);
    place.put("build/.env", "");
    place.put(".git/.env", "");
    place.link("link1", "plain.txt");
    place.link("link2", "svc");
    place.link("link3", "svc/main.rs");
    let root = place.workspace.root().to_path_buf();
    // Ignore files do not apply to git's own files; globs may.
    let expected = [".env", "build/.env", "plain.txt", "secrets", "svc/.env"];
    let expected: Vec<PathBuf> = expected.iter().map(|path| root.join(path)).collect();
    assert_eq!(
        place
            .workspace
            .list_hidden_paths(&StopFlag::default())
            .unwrap(),
        expected
    );
    let place = bounded(
        place,
        Bounds::new().hide_globs(["**/.env".to_owned()]).unwrap(),
    );
    let expected = [".env", ".git/.env", "build/.env", "svc/.env"].map(|path| root.join(path));
    assert_eq!(
        place
            .workspace
            .list_hidden_paths(&StopFlag::default())
            .unwrap(),
        expected
    );
    let stopped = StopFlag::default();
    stopped.request_stop();
    assert!(matches!(
        place.workspace.list_hidden_paths(&stopped),
        Err(WorkspaceError::Stopped { .. })
    ));
    let unbound = Workspace::open(place.root.path()).unwrap();
    assert_eq!(
        unbound.list_hidden_paths(&stopped).unwrap(),
        Vec::<PathBuf>::new()
    );
}

#[test]
fn the_root_folder_is_recognized() {
    assert!(Workspace::open("/".as_ref()).unwrap().is_filesystem_root());
    assert!(!Place::new().workspace.is_filesystem_root());
}

fn names() -> impl Strategy<Value = String> {
    prop::collection::vec("[ab]{1,2}", 1..4).prop_map(|parts| parts.join("/"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 48 }))]

    /// Listing, reading and the list for the sandbox agree on every file, and so does git.
    #[test]
    fn all_operations_agree_on_hidden_files(
        files in prop::collection::btree_set(names(), 1..12),
        lines in prop::collection::vec("!?/?[ab*]{1,2}(/[ab*]{1,2})?/?", 0..5),
        nested in prop::collection::vec("!?/?[ab*]{1,2}/?", 0..3),
    ) {
        let place = Place::new();
        for file in &files {
            // A name cannot be both a file and a folder.
            let path = place.inner(file);
            if fs::create_dir_all(path.parent().unwrap()).is_ok() {
                let _ = fs::write(&path, "x");
            }
        }
        place.put(".sabirignore", lines.join("\n"));
        if place.inner("a").is_dir() {
            place.put("a/.sabirignore", nested.join("\n"));
        }
        let everything: BTreeSet<String> = place.workspace.list_folder(&place.path("."), &all()).unwrap().entries.iter()
            .map(|entry| entry.path.to_string()).collect();
        let place = bounded(place, Bounds::new().ignore_files([".sabirignore"]));
        let listed: BTreeSet<String> = place.workspace.list_folder(&place.path("."), &all()).unwrap().entries.iter()
            .map(|entry| entry.path.to_string()).collect();
        let hidden = place.workspace.list_hidden_paths(&StopFlag::default()).unwrap();
        for path in &everything {
            let readable = place.workspace.metadata(&place.path(path)).is_ok();
            prop_assert_eq!(readable, listed.contains(path), "{}", path);
            let real = place.workspace.root().join(path);
            prop_assert_eq!(readable, !hidden.iter().any(|hidden| real.starts_with(hidden)), "{}", path);
        }
        for path in everything.iter().filter(|path| !path.ends_with(".sabirignore")) {
            prop_assert_eq!(!listed.contains(path), git_ignores(&place, path), "{}", path);
        }
    }
}

/// Returns git's verdict for the same rules.
fn git_ignores(place: &Place, path: &str) -> bool {
    let root = place.workspace.root();
    for folder in ["", "a"] {
        let _ = fs::copy(
            root.join(folder).join(".sabirignore"),
            root.join(folder).join(".gitignore"),
        );
    }
    let git = |arguments: &[&str]| {
        let mut git = std::process::Command::new("git");
        git.args(["-c", "core.excludesFile=/dev/null"])
            .args(arguments)
            .current_dir(root)
            .output()
            .unwrap()
    };
    if !root.join(".git").exists() {
        assert!(git(&["init", "-q"]).status.success());
    }
    git(&["check-ignore", "-q", "--no-index", path])
        .status
        .success()
}
