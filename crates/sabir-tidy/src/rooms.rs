//! What may stand only in certain rooms: files, processes, the environment, printing and `unsafe`.

use crate::source::{without_tests, word};
use crate::{File, Violation};

/// One thing with its rooms.
struct Room {
    /// A module of `std` or `tokio`, a macro with its `!`, or a keyword.
    thing: &'static str,
    /// The crates in which it may stand.
    crates: &'static [&'static str],
    /// Items of the module that may stand anywhere, or in the crate named before the `/`.
    except: &'static [&'static str],
    /// What to do instead.
    instead: &'static str,
}

const ROOMS: [Room; 8] = [
    Room {
        thing: "fs",
        crates: &["sabir-workspace", "sabir-checkpoint", "sabir-journal", "sabir-testkit", "sabir"],
        // What a lock says, for a disk that is none.
        except: &["sabir-simulate/TryLockError"],
        instead: "files are touched by the workspace and the journal; ask them, or take the text as a value",
    },
    Room {
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
    Room {
        thing: "env",
        crates: &["sabir", "sabir-testkit", "sabir-simulate"],
        except: &["consts"],
        instead: "only the binary reads the environment; take the value as a parameter",
    },
    Room { thing: "println!", crates: &["sabir", "sabir-simulate"], except: &[], instead: PRINT },
    Room { thing: "print!", crates: &["sabir", "sabir-simulate"], except: &[], instead: PRINT },
    Room { thing: "eprintln!", crates: &["sabir", "sabir-simulate"], except: &[], instead: PRINT },
    Room { thing: "eprint!", crates: &["sabir"], except: &[], instead: PRINT },
    Room {
        thing: "unsafe",
        crates: &["sabir-workspace"],
        except: &[],
        instead: "only the workspace talks to the kernel; use a safe library, or move it there",
    },
];

const PRINT: &str = "libraries do not print; return the words";

pub(crate) fn check(file: &File, code: &str, found: &mut Vec<Violation>) {
    let Some(owner) = file.owner() else { return };
    let lines = without_tests(&file.text).map(|(line, _)| line).last().unwrap_or(0);
    for room in ROOMS.iter().filter(|room| !room.crates.contains(&owner)) {
        // Tests may touch files and print; `unsafe` they may not.
        let tests = room.thing == "unsafe";
        if file.is_test() && !tests {
            continue;
        }
        for (at, what) in places(code, room, owner) {
            let line = code.get(..at).unwrap_or_default().matches('\n').count() + 1;
            if tests || line <= lines {
                found.push(file.violation(line, format!("`{what}` has no place in {owner}: {}", room.instead)));
            }
        }
    }
}

/// Where a room's thing stands, and as what.
fn places(code: &str, room: &Room, owner: &str) -> Vec<(usize, String)> {
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
        let whole = |at: &usize| standing(*at) && code.get(*at..).is_some_and(|rest| word(rest) == thing);
        return code.match_indices(thing).map(|(at, _)| at).filter(whole).map(|at| (at, thing.to_owned())).collect();
    }
    let mut places = Vec::new();
    for library in ["std::", "tokio::"] {
        for (at, _) in code.match_indices(library).filter(|(at, _)| standing(*at)) {
            let rest = code.get(at + library.len()..).unwrap_or_default();
            for path in paths(rest) {
                let mut parts = path.split("::").map(str::trim);
                let (module, items) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
                if word(module) == thing && !excepted(items, room, owner) {
                    places.push((at, format!("{library}{thing}")));
                }
            }
        }
    }
    places
}

/// The paths that follow `std::`: one, or those of a group in braces. A group inside a group stays whole.
fn paths(rest: &str) -> Vec<&str> {
    let Some(group) = rest.strip_prefix('{') else {
        // A nested group belongs to the path: `process::{Command, exit}`.
        let end = rest.find([';', '\n', '(', ')', ',', '<', '>', ' ']).unwrap_or(rest.len());
        let end = if rest.get(..end).is_some_and(|path| path.contains('{')) { closing(rest) } else { end };
        return vec![rest.get(..end).unwrap_or_default()];
    };
    let inside = group.get(..closing(rest).saturating_sub(2)).unwrap_or(group);
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
fn closing(text: &str) -> usize {
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
fn excepted(items: &str, room: &Room, owner: &str) -> bool {
    let items = items.trim_start_matches('{').trim_end_matches('}');
    let free = |item: &str| {
        room.except.iter().any(|except| match except.split_once('/') {
            Some((there, name)) => there == owner && name == item,
            None => *except == item,
        })
    };
    !items.is_empty() && items.split(',').map(str::trim).filter(|item| !item.is_empty()).all(|item| free(word(item)))
}

#[cfg(test)]
mod tests {
    use crate::{Tree, check};

    fn said(path: &str, code: &str) -> String {
        let mut tree = Tree::default();
        tree.add(path, format!("//! Doc.\n{code}\n"));
        check(&tree)
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
