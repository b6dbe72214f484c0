//! Tests listing and searching trees: hidden entries, order, limits, stops, and concurrent changes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use sabir_workspace::{
    EntryKind, FileChange, ListEntry, ListOptions, SearchOptions, StopFlag, WorkPath, Workspace,
    WritePrecondition,
};

use crate::Place;
use crate::files::kind;

fn all() -> ListOptions {
    ListOptions {
        recursive: true,
        max_entries: 100_000,
        ..ListOptions::default()
    }
}

/// Files only, each with a space after it.
fn files(workspace: &Workspace) -> String {
    let listing = workspace.list_folder(&WorkPath::root(), &all()).unwrap();
    let files = listing
        .entries
        .iter()
        .filter(|entry| entry.kind == EntryKind::File);
    files.map(|entry| format!("{} ", entry.path)).collect()
}

#[track_caller]
fn check_list(place: &Place, folder: &str, options: &ListOptions, expected: &str) {
    let listing = place
        .workspace
        .list_folder(&place.path(folder), options)
        .unwrap();
    let show = |entry: &ListEntry| match entry.kind {
        EntryKind::File => entry.path.to_string(),
        EntryKind::Folder => format!("{}/", entry.path),
        EntryKind::Link => format!("{}@", entry.path),
        EntryKind::Other => format!("{}?", entry.path),
    };
    let mut shown: Vec<String> = listing.entries.iter().map(show).collect();
    shown.extend(listing.truncated.then(|| "more".to_owned()));
    assert_eq!(shown.join(" "), expected);
}

#[test]
fn folders_are_listed() {
    let place = Place::new();
    for name in [
        "b.rs",
        "a/y",
        "a/x",
        "target/junk",
        ".hidden",
        ".git/config",
        "a/keep.log",
        "z.log",
    ] {
        place.put(name, "");
    }
    place.put(".gitignore", "target\n*.log\n!keep.log\n");
    place.link("a/up", "..");
    place.link("out", place.outside.path());
    let all = ListOptions {
        recursive: true,
        max_entries: 100,
        ..ListOptions::default()
    };
    check_list(
        &place,
        ".",
        &ListOptions::default(),
        ".gitignore .hidden a/ b.rs out@",
    );
    check_list(
        &place,
        ".",
        &all,
        ".gitignore .hidden a/ a/keep.log a/up@ a/x a/y b.rs out@",
    );
    check_list(
        &place,
        "a",
        &ListOptions::default(),
        "a/keep.log a/up@ a/x a/y",
    );
    check_list(
        &place,
        ".",
        &ListOptions {
            max_entries: 4,
            ..all.clone()
        },
        ".gitignore .hidden a/ a/keep.log more",
    );
    check_list(
        &place,
        ".",
        &ListOptions {
            max_entries: 9,
            ..all.clone()
        },
        ".gitignore .hidden a/ a/keep.log a/up@ a/x a/y b.rs out@",
    );
    assert_eq!(
        kind(place.workspace.list_folder(&place.path("b.rs"), &all)),
        "NotAFolder"
    );
    assert_eq!(
        kind(place.workspace.list_folder(&place.path("absent"), &all)),
        "Missing"
    );
}

/// Creates files (after a colon their content, with commas for line ends) and checks which are
/// listed.
#[track_caller]
fn check_hidden(put: &str, expected: &str) {
    let place = Place::new();
    for file in put.split(' ') {
        let (name, content) = file.split_once(':').unwrap_or((file, ""));
        place.put(name, content.replace(',', "\n"));
    }
    let shown = files(&place.workspace);
    let shown: Vec<&str> = shown
        .split(' ')
        .filter(|name| !name.ends_with("ignore") && !name.is_empty())
        .collect();
    assert_eq!(shown.join(" "), expected);
}

#[test]
fn ignore_files_are_respected() {
    check_hidden(".gitignore:*.log a.log b deep/c.log", "b");
    check_hidden(".gitignore:/a,b/ a deep/a b/x deep/b/x c", "c deep/a");
    check_hidden(
        ".gitignore:*.log,!keep.log keep.log x.log deep/keep.log",
        "deep/keep.log keep.log",
    );
    check_hidden(
        ".gitignore:*.log deep/.gitignore:!x.log x.log deep/x.log deep/y.log",
        "deep/x.log",
    );
    check_hidden(".gitignore:*.log .ignore:!a.log a.log b.log", "a.log");
    check_hidden(
        "deep/.gitignore:/x,y/z deep/x deep/a/x deep/y/z y/z",
        "deep/a/x y/z",
    );
    check_hidden(
        ".git/info/exclude:*.log,/top a.log top deep/top",
        "deep/top",
    );
    check_hidden(".gitignore:!a .git/info/exclude:a a", "a");
    // A nested repository has its own rules; `.ignore` is not git's.
    check_hidden(
        ".gitignore:*.log .ignore:*.tmp sub/.git/config sub/a.log sub/a.tmp a.log",
        "sub/a.log",
    );
    check_hidden(".gitignore:\u{feff}a,[,b\r a b c [", "c");
    check_hidden(".gitignore:target target/deep/x target.rs", "target.rs");
}

/// A path that was requested by name is shown, hidden or not.
#[test]
fn a_hidden_folder_can_be_named() {
    let place = Place::new();
    place.put(".gitignore", "target\n*.o\n");
    place.put("target/x.rs", "needle\n");
    place.put("target/x.o", "needle\n");
    check_list(&place, "target", &ListOptions::default(), "target/x.rs");
    let options = SearchOptions {
        path: place.path("target/x.o"),
        ..SearchOptions::new("needle")
    };
    assert_eq!(
        place
            .workspace
            .search_files(&options)
            .unwrap()
            .matches
            .len(),
        1
    );
}

#[test]
fn rules_above_the_workspace_count_within_a_repository() {
    let place = Place::new();
    place.put("app/a.log", "");
    place.put("app/deep/b", "");
    place.put(".gitignore", "*.log\n/app/deep/b\n");
    let inner = Workspace::open(&place.inner("app")).unwrap();
    assert_eq!(files(&inner), "a.log deep/b ");
    std::fs::create_dir(place.inner(".git")).unwrap();
    assert_eq!(files(&inner), "");
    std::fs::create_dir(place.inner("app/.git")).unwrap();
    assert_eq!(files(&inner), "a.log deep/b ");
}

/// Ignore files that would block, lead outside, or are not files.
#[test]
fn odd_ignore_files_have_no_effect() {
    let place = Place::new();
    place.put("a", "needle\n");
    place.put("deep/a", "needle\n");
    std::fs::create_dir(place.inner(".ignore")).unwrap();
    assert!(
        std::process::Command::new("mkfifo")
            .arg(place.inner(".gitignore"))
            .status()
            .unwrap()
            .success()
    );
    std::fs::write(place.outside.path().join("rules"), "*\n").unwrap();
    place.link("deep/.gitignore", place.outside.path().join("rules"));
    assert_eq!(files(&place.workspace), "a deep/a ");
    assert_eq!(
        place
            .workspace
            .search_files(&SearchOptions::new("needle"))
            .unwrap()
            .matches
            .len(),
        2
    );
}

/// A folder comes right before its content, in listings and in searches.
#[test]
fn the_order_is_that_of_paths() {
    let place = Place::new();
    for name in ["a.b", "a-b", "a/x", "a/.y", "a!/z", "B", "aa", "a/x.d/q"] {
        place.put(name, "needle");
    }
    check_list(
        &place,
        ".",
        &all(),
        "B a/ a/.y a/x a/x.d/ a/x.d/q a!/ a!/z a-b a.b aa",
    );
    let found = place
        .workspace
        .search_files(&SearchOptions::new("needle"))
        .unwrap();
    let found: Vec<String> = found
        .matches
        .iter()
        .map(|found| found.path.to_string())
        .collect();
    assert_eq!(found.join(" "), "B a/.y a/x a/x.d/q a!/z a-b a.b aa");
}

/// Creates a tree with more folders and files than are handed out at once.
fn tree() -> Place {
    let place = Place::new();
    for number in 0..1500_usize {
        let name = format!("d{}/e{}/f{}", number % 3, number % 7, number * 7919 % 1500);
        place.put(
            &name,
            "x\n".repeat(number % 5) + &"needle\n".repeat(number % 4),
        );
    }
    for number in 0..300 {
        place.put(&format!("flat/{number}"), "needle\n");
    }
    place
}

/// Lists a tree with the standard library, one folder after the other.
fn by_hand(folder: &Path, names: &mut Vec<PathBuf>) {
    let mut inside: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    inside.sort();
    for path in inside {
        names.push(path.clone());
        if path.is_dir() {
            by_hand(&path, names);
        }
    }
}

#[test]
fn listings_are_always_cut_at_the_same_place() {
    let place = tree();
    let mut expected = Vec::new();
    by_hand(place.root.path(), &mut expected);
    let listed = |max_entries| {
        let listing = place
            .workspace
            .list_folder(
                &WorkPath::root(),
                &ListOptions {
                    max_entries,
                    ..all()
                },
            )
            .unwrap();
        let paths: Vec<PathBuf> = listing
            .entries
            .iter()
            .map(|entry| place.inner(&entry.path.to_string()))
            .collect();
        (paths, listing.truncated)
    };
    assert_eq!(listed(100_000), (expected.clone(), false));
    for max in [0, 1, 2, 50, 333, expected.len() - 1, expected.len()] {
        for _ in 0..10 {
            assert_eq!(
                listed(max),
                (expected[..max].to_vec(), max < expected.len()),
                "{max}"
            );
        }
    }
}

#[test]
fn searches_are_always_cut_at_the_same_place() {
    let place = tree();
    let options = SearchOptions {
        max_matches: 100_000,
        context_lines: 1,
        ..SearchOptions::new("needle")
    };
    let whole = place.workspace.search_files(&options).unwrap();
    let matching: usize = (0..1500).map(|number| number % 4).sum::<usize>() + 300;
    assert_eq!(
        (whole.matches.len(), whole.files, whole.truncated),
        (matching, 1800, false)
    );
    assert!(
        whole
            .matches
            .is_sorted_by_key(|found| (found.path.clone(), found.line))
    );
    for max_matches in [0, 1, 7, 500, matching - 1, matching] {
        let part = place
            .workspace
            .search_files(&SearchOptions {
                max_matches,
                ..options.clone()
            })
            .unwrap();
        assert_eq!(part.truncated, max_matches < matching);
        assert_eq!(part.matches[..], whole.matches[..max_matches]);
        for _ in 0..10 {
            assert_eq!(
                place
                    .workspace
                    .search_files(&SearchOptions {
                        max_matches,
                        ..options.clone()
                    })
                    .unwrap(),
                part
            );
        }
    }
    for max_file_bytes in [0, 100, 5000] {
        let part = place
            .workspace
            .search_files(&SearchOptions {
                max_file_bytes,
                ..options.clone()
            })
            .unwrap();
        assert!(part.truncated && whole.matches.starts_with(&part.matches));
        for _ in 0..10 {
            assert_eq!(
                place
                    .workspace
                    .search_files(&SearchOptions {
                        max_file_bytes,
                        ..options.clone()
                    })
                    .unwrap(),
                part
            );
        }
    }
}

/// Checks the matches in a file of these bytes, as `line:text`.
#[track_caller]
fn check_bytes(bytes: &[u8], regex: &str, expected: &str) {
    let place = Place::new();
    place.put("a", bytes);
    let result = place
        .workspace
        .search_files(&SearchOptions::new(regex))
        .unwrap();
    let shown: Vec<String> = result
        .matches
        .iter()
        .map(|found| format!("{}:{}", found.line, found.text))
        .collect();
    assert_eq!((shown.join(" "), result.skipped), (expected.to_owned(), 0));
}

#[test]
fn files_of_any_encoding_are_searched() {
    let utf16 = |text: &str, big: bool| -> Vec<u8> {
        let units = std::iter::once(0xfeff).chain(text.encode_utf16());
        units
            .flat_map(|unit| {
                if big {
                    unit.to_be_bytes()
                } else {
                    unit.to_le_bytes()
                }
            })
            .collect()
    };
    check_bytes(&utf16("eins\r\nzwölf 😀\r\n", false), "lf .$", "2:zwölf 😀");
    check_bytes(&utf16("eins\nzwölf", true), "wö", "2:zwölf");
    check_bytes(b"\xef\xbb\xbfone\r\none", "^one$", "1:one 2:one");
    check_bytes(b"caf\xe9 one\n\xff\n", "one|\u{fffd}", "1:caf\u{fffd} one");
    check_bytes(b"one\n\x00one\n", "one", "");
    check_bytes(b"", "^", "");
}

/// A sparse file of any size is binary, and little of it is read; it neither ends the search nor
/// counts with its size.
#[test]
fn a_huge_binary_file_costs_nothing() {
    let place = Place::new();
    std::fs::File::create(place.inner("big"))
        .unwrap()
        .set_len(5 << 30)
        .unwrap();
    place.put("last", "needle\n");
    let result = place
        .workspace
        .search_files(&SearchOptions::new("needle"))
        .unwrap();
    assert_eq!(
        (result.matches.len(), result.files, result.truncated),
        (1, 2, false)
    );
}

#[test]
fn names_that_are_not_unicode_are_listed() {
    let place = Place::new();
    let name = OsStr::from_bytes(b"caf\xe9");
    std::fs::create_dir(place.root.path().join(name)).unwrap();
    std::fs::write(place.root.path().join(name).join(name), "needle\n").unwrap();
    let listing = place
        .workspace
        .list_folder(&WorkPath::root(), &all())
        .unwrap();
    assert_eq!(
        listing.entries[1].path.as_path(),
        Path::new(name).join(name)
    );
    let found = place
        .workspace
        .search_files(&SearchOptions::new("needle"))
        .unwrap();
    assert_eq!(found.matches[0].path, listing.entries[1].path);
}

#[test]
fn a_deep_tree_needs_few_handles() {
    let place = Place::new();
    let path: PathBuf = std::iter::repeat_n("d", 1500).collect();
    std::fs::create_dir_all(place.inner(path.to_str().unwrap())).unwrap();
    std::fs::write(place.root.path().join(&path).join("f"), "needle").unwrap();
    assert_eq!(
        place
            .workspace
            .list_folder(&WorkPath::root(), &all())
            .unwrap()
            .entries
            .len(),
        1501
    );
    assert_eq!(
        place
            .workspace
            .search_files(&SearchOptions::new("needle"))
            .unwrap()
            .matches
            .len(),
        1
    );
}

#[test]
fn a_cancelled_search_ends() {
    let place = tree();
    let stop = StopFlag::default();
    std::thread::scope(|scope| {
        let searching = scope.spawn(|| {
            let options = SearchOptions {
                stop: stop.clone(),
                ..SearchOptions::new("needle")
            };
            // Each search is short, so it is repeated until one is stopped.
            loop {
                if let Err(error) = place.workspace.search_files(&options) {
                    return error.to_string();
                }
            }
        });
        drop(stop.stop_on_drop());
        assert_eq!(
            searching.join().unwrap(),
            "stopped in `.`, because the task was"
        );
    });
    assert_eq!(
        kind(
            place
                .workspace
                .list_folder(&WorkPath::root(), &ListOptions { stop, ..all() })
        ),
        "Stopped"
    );
}

/// Only a file that was regular when it was listed is opened.
#[test]
fn a_search_in_a_fifo_finds_nothing() {
    let place = Place::new();
    assert!(
        std::process::Command::new("mkfifo")
            .arg(place.inner("fifo"))
            .status()
            .unwrap()
            .success()
    );
    let options = SearchOptions {
        path: place.path("fifo"),
        ..SearchOptions::new("a")
    };
    assert_eq!(
        place.workspace.search_files(&options).unwrap(),
        Default::default()
    );
}

/// Exchanges two names in one step.
fn exchange(place: &Place, a: &str, b: &str) {
    let flags = rustix::fs::RenameFlags::EXCHANGE;
    let cwd = rustix::fs::CWD;
    let _ = rustix::fs::renameat_with(cwd, place.inner(a), cwd, place.inner(b), flags);
}

/// A folder is repeatedly swapped for a link to the outside, while another thread uses it in every
/// way.
#[test]
fn a_swapped_link_never_leads_outside() {
    let place = Place::quick();
    std::fs::create_dir(place.inner("real")).unwrap();
    place.put("real/secret", "inside\n");
    std::fs::write(place.outside.path().join("outer"), "secret\n").unwrap();
    place.link("link", place.outside.path());
    std::fs::create_dir(place.inner("d")).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                ["link", "link", "real", "real"]
                    .into_iter()
                    .for_each(|name| exchange(&place, name, "d"));
            }
        });
        let new = place.path("d/new");
        let secret = place.path("d/secret");
        let outer = place.path("d/outer");
        let search = SearchOptions::new("secret");
        for round in 0..3000 {
            let _ = place
                .workspace
                .write_file(&new, b"x", WritePrecondition::Any);
            let _ = place.workspace.delete_file(&outer, WritePrecondition::Any);
            if let Ok(content) = place.workspace.read_file(&secret, 100) {
                assert_eq!(content.bytes, b"inside\n");
            }
            if round % 10 == 0 {
                let change =
                    |path| FileChange::write(place.path(path), vec![b'y'], WritePrecondition::Any);
                let _ = place
                    .workspace
                    .apply_changes(&["d/below/x", "d/new"].map(change));
                let names = files(&place.workspace);
                assert!(!names.contains("outer"), "{names}");
                assert_eq!(place.workspace.search_files(&search).unwrap().matches, []);
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    let outside = std::fs::read_dir(place.outside.path()).unwrap();
    let mut names: Vec<_> = outside.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["outer", "secret"]);
}

/// A file becomes a link to the outside, a folder, a FIFO and a file again, while it is read,
/// written and deleted.
#[test]
fn a_file_replaced_meanwhile_never_leads_outside() {
    let place = Place::quick();
    place.put("a", "whole");
    place.put("f", "file");
    place.link("link", place.outside.path().join("secret"));
    std::fs::create_dir(place.inner("folder")).unwrap();
    assert!(
        std::process::Command::new("mkfifo")
            .arg(place.inner("fifo"))
            .status()
            .unwrap()
            .success()
    );
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let names = ["link", "folder", "fifo", "fifo", "folder", "link"];
            while !done.load(Ordering::Relaxed) {
                names
                    .into_iter()
                    .for_each(|name| exchange(&place, name, "f"));
            }
        });
        let a = place.path("a");
        let f = place.path("f");
        let new = vec![b'n'; 50];
        for round in 0..1500 {
            let expect = match place.workspace.read_file(&f, 100) {
                Ok(content) => {
                    assert_ne!(content.bytes, b"secret\n");
                    if round % 2 == 0 {
                        WritePrecondition::Version(content.version)
                    } else {
                        WritePrecondition::Any
                    }
                }
                Err(_) => WritePrecondition::Any,
            };
            let change =
                |path: &WorkPath, expect| FileChange::write(path.clone(), new.clone(), expect);
            let _ = place
                .workspace
                .apply_changes(&[change(&a, WritePrecondition::Any), change(&f, expect)]);
            let content = std::fs::read(place.inner("a")).unwrap();
            assert!(content == b"whole" || content == new);
            if round % 10 == 0 {
                let _ = place.workspace.delete_file(&f, expect);
                assert_eq!(
                    place
                        .workspace
                        .search_files(&SearchOptions::new("secret"))
                        .unwrap()
                        .matches,
                    []
                );
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(
        std::fs::read_to_string(place.outside.path().join("secret")).unwrap(),
        "secret\n"
    );
    assert_eq!(std::fs::read_dir(place.outside.path()).unwrap().count(), 1);
}
