//! What may stand only in certain rooms: files, processes, the environment, printing and `unsafe`.

use crate::source::{leading_word, without_tests};
use crate::{SourceFile, Violation};

/// One thing with its rooms.
struct RestrictedItem {
    /// A module of `std` or `tokio`, a macro with its `!`, or a keyword.
    thing: &'static str,
    /// The crates in which it may stand.
    crates: &'static [&'static str],
    /// Items of the module that may stand anywhere, or in the crate named before the `/`.
    except: &'static [&'static str],
    /// What to do instead.
    instead: &'static str,
}

const RESTRICTED_ITEMS: [RestrictedItem; 8] = [
    RestrictedItem {
        thing: "fs",
        crates: &["sabir-workspace", "sabir-checkpoint", "sabir-journal", "sabir-testkit", "sabir"],
        // What a lock says, for a disk that is none.
        except: &["sabir-simulate/TryLockError"],
        instead: "files are touched by the workspace and the journal; ask them, or take the text as a value",
    },
    RestrictedItem {
        thing: "process",
        crates: &["sabir-workspace"],
        // The number of this process is part of the names of temporary files.
        except: &[
            "sabir-checkpoint/id",
            "sabir/ExitCode",
            "sabir/exit",
            "sabir/Termination",
            "sabir-simulate/ExitCode",
        ],
        instead: "only the workspace starts processes; ask it",
    },
    RestrictedItem {
        thing: "env",
        crates: &["sabir", "sabir-testkit", "sabir-simulate"],
        except: &["consts"],
        instead: "only the binary reads the environment; take the value as a parameter",
    },
    RestrictedItem { thing: "println!", crates: &["sabir", "sabir-simulate"], except: &[], instead: PRINT },
    RestrictedItem { thing: "print!", crates: &["sabir", "sabir-simulate"], except: &[], instead: PRINT },
    RestrictedItem { thing: "eprintln!", crates: &["sabir", "sabir-simulate"], except: &[], instead: PRINT },
    RestrictedItem { thing: "eprint!", crates: &["sabir"], except: &[], instead: PRINT },
    RestrictedItem {
        thing: "unsafe",
        crates: &["sabir-workspace"],
        except: &[],
        instead: "only the workspace talks to the kernel; use a safe library, or move it there",
    },
];

const PRINT: &str = "libraries do not print; return the words";

pub(crate) fn check_boundaries(file: &SourceFile, code: &str, found: &mut Vec<Violation>) {
    let Some(owner) = file.owning_crate() else { return };
    let lines = without_tests(&file.text).map(|(line, _)| line).last().unwrap_or(0);
    for room in RESTRICTED_ITEMS.iter().filter(|room| !room.crates.contains(&owner)) {
        // Tests may touch files and print; `unsafe` they may not.
        let tests = room.thing == "unsafe";
        if file.is_test() && !tests {
            continue;
        }
        for (at, what) in find_uses(code, room, owner) {
            let line = code.get(..at).unwrap_or_default().matches('\n').count() + 1;
            if tests || line <= lines {
                found.push(file.violation_at(line, format!("`{what}` has no place in {owner}: {}", room.instead)));
            }
        }
    }
}

/// Where a room's thing stands, and as what.
fn find_uses(code: &str, room: &RestrictedItem, owner: &str) -> Vec<(usize, String)> {
    let thing = room.thing;
    let standing =
        |at: usize| code.get(..at).is_some_and(|head| !head.ends_with(|c: char| c.is_alphanumeric() || c == '_'));
    if thing.ends_with('!') {
        return code
            .match_indices(thing)
            .filter(|(at, _)| standing(*at))
            .map(|(at, _)| (at, thing.to_owned()))
            .collect();
    }
    if thing == "unsafe" {
        let whole = |at: &usize| standing(*at) && code.get(*at..).is_some_and(|rest| leading_word(rest) == thing);
        return code.match_indices(thing).map(|(at, _)| at).filter(whole).map(|at| (at, thing.to_owned())).collect();
    }
    let mut places = Vec::new();
    for library in ["std::", "tokio::"] {
        for (at, _) in code.match_indices(library).filter(|(at, _)| standing(*at)) {
            let rest = code.get(at + library.len()..).unwrap_or_default();
            for path in split_import_paths(rest) {
                let mut parts = path.split("::").map(str::trim);
                let (module, items) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
                if leading_word(module) == thing && !is_excepted(items, room, owner) {
                    places.push((at, format!("{library}{thing}")));
                }
            }
        }
    }
    places
}

/// The paths that follow `std::`: one, or those of a group in braces. A group inside a group stays whole.
fn split_import_paths(rest: &str) -> Vec<&str> {
    let Some(group) = rest.strip_prefix('{') else {
        // A nested group belongs to the path: `process::{Command, exit}`.
        let end = rest.find([';', '\n', '(', ')', ',', '<', '>', ' ']).unwrap_or(rest.len());
        let end = if rest.get(..end).is_some_and(|path| path.contains('{')) { closing_brace(rest) } else { end };
        return vec![rest.get(..end).unwrap_or_default()];
    };
    let inside = group.get(..closing_brace(rest).saturating_sub(2)).unwrap_or(group);
    let mut depth = 0u32;
    let split = inside.split(move |c: char| {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    split.map(str::trim).collect()
}

/// The offset past the brace that closes the first one.
fn closing_brace(text: &str) -> usize {
    let mut depth = 0u32;
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 1 => return at + 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    text.len()
}

/// Whether all the items that follow a module may stand here.
fn is_excepted(items: &str, room: &RestrictedItem, owner: &str) -> bool {
    let items = items.trim_start_matches('{').trim_end_matches('}');
    let free = |item: &str| {
        room.except.iter().any(|except| match except.split_once('/') {
            Some((there, name)) => there == owner && name == item,
            None => *except == item,
        })
    };
    !items.is_empty()
        && items.split(',').map(str::trim).filter(|item| !item.is_empty()).all(|item| free(leading_word(item)))
}

#[cfg(test)]
mod tests {
    use crate::{SourceTree, check_tree};

    fn said(path: &str, code: &str) -> String {
        let mut tree = SourceTree::default();
        tree.add_file(path, format!("//! Doc.\n{code}\n"));
        check_tree(&tree)
            .iter()
            .map(|found| format!("{}:{} ", found.line, found.message.split(" has").next().unwrap_or("")))
            .collect()
    }

    #[test]
    fn every_room_has_its_door() {
        let path = "crates/sabir-call/src/x.rs";
        for (code, expected) in [
            ("use std::fs;", "2:`std::fs` "),
            ("use std::{\n    env,\n    io,\n};", "2:`std::env` "),
            ("use std::{fs::File, process::{Command, exit}};", "2:`std::fs` 2:`std::process` "),
            ("fn f() { std::fs::read(\"x\") }", "2:`std::fs` "),
            ("use tokio::process::Command;", "2:`tokio::process` "),
            ("println!(\"x\")", "2:`println!` "),
            ("eprint!(\"x\")", "2:`eprint!` "),
            ("unsafe { f() }", "2:`unsafe` "),
            ("#[cfg(test)]\nmod tests {\n    use std::fs;\n    unsafe fn f() {}\n}", "5:`unsafe` "),
            ("#![expect(unsafe_code)]\n// std::fs\nlet x = \"std::env println!\";", ""),
            ("use std::env::consts;\nmy_println!(1); a::fs::b(); mystd::fs::x()", ""),
            ("use std::environment; use std::{fmt, io::{self, Read}};", ""),
        ] {
            assert_eq!(said(path, code), expected, "{code}");
        }
    }

    #[test]
    fn the_owners_may() {
        assert_eq!(said("crates/sabir-workspace/src/x.rs", "use std::{fs, process}; unsafe {}"), "");
        assert_eq!(said("crates/sabir-workspace/src/x.rs", "use std::env;"), "2:`std::env` ");
        assert_eq!(said("crates/sabir/src/x.rs", "use std::process::{self, ExitCode};"), "2:`std::process` ");
        assert_eq!(said("crates/sabir/src/x.rs", "use std::{env, process::ExitCode}; println!()"), "");
        assert_eq!(said("crates/sabir-call/tests/x.rs", "use std::fs; println!()"), "");
        assert_eq!(said("crates/sabir-call/src/a/tests.rs", "use std::fs;"), "");
    }
}
