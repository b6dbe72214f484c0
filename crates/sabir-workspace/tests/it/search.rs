//! Tests searches in real files.

use sabir_workspace::{SearchMatch, SearchOptions, WorkspaceError};

use crate::Place;

fn place() -> Place {
    let place = Place::new();
    place.put("a.rs", "fn one() {}\nlet x = 1;\r\nfn two() {}\n");
    place.put("deep/b.rs", "one\n");
    place.put("deep/c.txt", "one\ntwo\nthree\nfour\none\n");
    place.put("binary", b"one\nmore\n\0one\n");
    place.put("ignored.log", "one\n");
    place.put(".gitignore", "*.log\n");
    place.put(".git/config", "one\n");
    place.link("link", place.outside.path());
    place
}

/// Checks the matches of a search, each as `path:line:text`, with context as `(before|after)`.
#[track_caller]
fn check(options: &SearchOptions, expected: &str) {
    let result = place().workspace.search_files(options).unwrap();
    let show = |found: &SearchMatch| {
        let context = match (found.before.join(","), found.after.join(",")) {
            (before, after) if before.is_empty() && after.is_empty() => String::new(),
            (before, after) => format!("({before}|{after})"),
        };
        format!("{}:{}:{}{context}", found.path, found.line, found.text)
    };
    let mut shown: Vec<String> = result.matches.iter().map(show).collect();
    shown.extend(result.truncated.then(|| "more".to_owned()));
    assert_eq!(shown.join(" "), expected);
}

#[test]
fn matching_lines_are_found() {
    let one = SearchOptions::new("one");
    check(
        &one,
        "a.rs:1:fn one() {} deep/b.rs:1:one deep/c.txt:1:one deep/c.txt:5:one",
    );
    check(
        &SearchOptions::new("^one$"),
        "deep/b.rs:1:one deep/c.txt:1:one deep/c.txt:5:one",
    );
    check(&SearchOptions::new("1;$"), "a.rs:2:let x = 1;");
    check(&SearchOptions::new("secret"), "");
    check(&SearchOptions::new("--pre=./evil.sh"), "");
    let glob = |glob: &str| SearchOptions {
        glob: Some(glob.to_owned()),
        ..one.clone()
    };
    check(&glob("*.rs"), "a.rs:1:fn one() {} deep/b.rs:1:one");
    check(
        &glob("deep/**"),
        "deep/b.rs:1:one deep/c.txt:1:one deep/c.txt:5:one",
    );
    check(&glob("../../**/*"), "");
    let place = place();
    check(
        &SearchOptions {
            path: place.path("deep/b.rs"),
            ..one.clone()
        },
        "deep/b.rs:1:one",
    );
    check(
        &SearchOptions {
            path: place.path("deep"),
            max_matches: 2,
            ..one.clone()
        },
        "deep/b.rs:1:one deep/c.txt:1:one more",
    );
    check(
        &SearchOptions {
            path: place.path("deep"),
            max_matches: 3,
            ..one.clone()
        },
        "deep/b.rs:1:one deep/c.txt:1:one deep/c.txt:5:one",
    );
    check(
        &SearchOptions {
            max_file_bytes: 50,
            ..one
        },
        "a.rs:1:fn one() {} more",
    );
}

#[test]
fn matches_have_context_and_long_lines_are_cut() {
    let two = SearchOptions {
        context_lines: 1,
        ..SearchOptions::new("^two|four")
    };
    check(&two, "deep/c.txt:2:two(one|three) deep/c.txt:4:four(|one)");
    check(
        &SearchOptions {
            max_line_bytes: 4,
            ..SearchOptions::new("fn one")
        },
        "a.rs:1:fn o…",
    );
}

#[test]
fn bad_patterns_are_explained() {
    let place = place();
    let error = place
        .workspace
        .search_files(&SearchOptions::new("a(b"))
        .unwrap_err();
    assert!(error.to_string().contains("unclosed group"), "{error}");
    let error = place
        .workspace
        .search_files(&SearchOptions::new("a\\nb"))
        .unwrap_err();
    assert!(
        error.to_string().contains("not allowed in a regex"),
        "{error}"
    );
    let options = SearchOptions {
        glob: Some("a[".to_owned()),
        ..SearchOptions::new("a")
    };
    assert!(matches!(
        place.workspace.search_files(&options),
        Err(WorkspaceError::Glob { .. })
    ));
    let options = SearchOptions {
        path: place.path("absent"),
        ..SearchOptions::new("a")
    };
    assert!(matches!(
        place.workspace.search_files(&options),
        Err(WorkspaceError::Missing { .. })
    ));
    let options = SearchOptions {
        path: place.path("link"),
        ..SearchOptions::new("a")
    };
    assert!(matches!(
        place.workspace.search_files(&options),
        Err(WorkspaceError::LinkLeaves { .. })
    ));
}

#[test]
fn every_expression_and_line_ends_in_bounded_time() {
    let place = Place::new();
    place.put("a", "a".repeat(1 << 20));
    place.put("long", "b".repeat(40 << 20));
    let result = place
        .workspace
        .search_files(&SearchOptions::new("(a+)+$"))
        .unwrap();
    assert_eq!(
        (result.matches.len(), result.matches[0].text.len()),
        (1, 500 + "…".len())
    );
    assert_eq!(result.skipped, 1);
    assert!(matches!(
        place
            .workspace
            .search_files(&SearchOptions::new("(a{999}){999}")),
        Err(WorkspaceError::Regex { .. })
    ));
}
