//! Checks that only certain crates use files, processes, the environment, printing and `unsafe`.
//!
//! Tests that libraries neither print nor read environment, home directory or clock. The same holds for files and processes: a tool that could open a file by itself would
//! go around the workspace, and with it around ignore files, bounds and checkpoints.
//! A use is a path such as `std::fs` or `tokio::process`, alone or in a group, or the name of a
//! macro or keyword. A module that is imported under another name is found at its import.

use crate::source::{leading_word, without_tests};
use crate::{SourceFile, Violation};

/// A restricted module, macro or keyword, with the crates that may use it.
struct RestrictedItem {
    /// The module of `std` or `tokio`, the macro with its `!`, or the keyword.
    name: &'static str,
    /// The crates that may use it.
    crates: &'static [&'static str],
    /// The items of the module that every crate may use, or only the crate before the `/`.
    except: &'static [&'static str],
    /// The advice for a crate that may not use it.
    instead: &'static str,
}

/// All restricted items.
const RESTRICTED_ITEMS: [RestrictedItem; 8] = [
    RestrictedItem {
        name: "fs",
        // The session layer reads what the user names or keeps in their home: configuration,
        // pictures, recordings, trust. The toolbox reads the histories of other programs, in one
        // module (`import/source_files.rs`).
        crates: &[
            "sabir-workspace",
            "sabir-checkpoint",
            "sabir-journal",
            "sabir-session",
            "sabir-toolbox",
            "sabir-testkit",
            // Homes, folders and logs of the agents that it tests.
            "sabir-torture",
            "sabir-tidy",
            "sabir",
        ],
        // The error type of a file lock, which the simulated disk returns.
        except: &["sabir-simulate/TryLockError"],
        instead: "files are touched by the workspace and the journal; ask them, or take the text as a value",
    },
    RestrictedItem {
        name: "process",
        crates: &["sabir-workspace"],
        // Names of temporary files contain the id of this process.
        except: &[
            "sabir-checkpoint/id",
            "sabir-testkit/id",
            "sabir/ExitCode",
            "sabir/exit",
            "sabir/Termination",
            "sabir-simulate/ExitCode",
            "sabir-tidy/ExitCode",
        ],
        instead: "only the workspace starts processes; ask it",
    },
    RestrictedItem {
        name: "env",
        crates: &["sabir", "sabir-testkit", "sabir-simulate", "sabir-tidy"],
        except: &["consts"],
        instead: "only the binary reads the environment; take the value as a parameter",
    },
    RestrictedItem {
        name: "println!",
        crates: &["sabir", "sabir-simulate", "sabir-tidy"],
        except: &[],
        instead: PRINT,
    },
    RestrictedItem {
        name: "print!",
        crates: &["sabir", "sabir-simulate"],
        except: &[],
        instead: PRINT,
    },
    RestrictedItem {
        name: "eprintln!",
        crates: &["sabir", "sabir-simulate", "sabir-tidy"],
        except: &[],
        instead: PRINT,
    },
    RestrictedItem {
        name: "eprint!",
        crates: &["sabir"],
        except: &[],
        instead: PRINT,
    },
    RestrictedItem {
        name: "unsafe",
        // C passes raw pointers to the functions of `sabir-c`.
        crates: &["sabir-workspace", "sabir-c"],
        except: &[],
        instead: "only the workspace talks to the kernel; use a safe library, or move it there",
    },
];

/// The advice for printing macros. `sabir-terminal` prints without them: they panic on a closed pipe.
const PRINT: &str = "libraries do not print; return the words";

/// Checks one file for restricted items. `code` is its text without comments and literals.
pub(crate) fn check_boundaries(file: &SourceFile, code: &str, found: &mut Vec<Violation>) {
    let Some(owner) = file.owning_crate() else {
        return;
    };
    // A build script gets its parameters from the environment, and answers cargo by printing.
    if file.path.ends_with("/build.rs") && !code.contains("unsafe") {
        return;
    }
    // The number of the last line before the inline tests.
    let lines = without_tests(&file.text)
        .map(|(line, _)| line)
        .last()
        .unwrap_or(0);
    for item in RESTRICTED_ITEMS
        .iter()
        .filter(|item| !item.crates.contains(&owner))
    {
        // Tests may use files and print, but not `unsafe`.
        let includes_tests = item.name == "unsafe";
        if file.is_test() && !includes_tests {
            continue;
        }
        // Lines of the blanked code are those of the file, because its line breaks stay.
        for (at, what) in find_uses(code, item, owner) {
            let line = code.get(..at).unwrap_or_default().matches('\n').count() + 1;
            if includes_tests || line <= lines {
                found.push(file.violation_at(
                    line,
                    format!("`{what}` is not allowed in {owner}: {}", item.instead),
                ));
            }
        }
    }
}

/// Finds the uses of a restricted item: the offset of each, and the name as it is shown.
///
/// An offset is where the path, the macro or the keyword begins.
fn find_uses(code: &str, item: &RestrictedItem, owner: &str) -> Vec<(usize, String)> {
    let name = item.name;
    // A match inside a longer identifier does not count.
    let begins_word = |at: usize| {
        code.get(..at)
            .is_some_and(|head| !head.ends_with(|c: char| c.is_alphanumeric() || c == '_'))
    };
    if name.ends_with('!') {
        return code
            .match_indices(name)
            .filter(|(at, _)| begins_word(*at))
            .map(|(at, _)| (at, name.to_owned()))
            .collect();
    }
    if name == "unsafe" {
        let is_word = |at: &usize| {
            begins_word(*at)
                && code
                    .get(*at..)
                    .is_some_and(|rest| leading_word(rest) == name)
        };
        return code
            .match_indices(name)
            .map(|(at, _)| at)
            .filter(is_word)
            .map(|at| (at, name.to_owned()))
            .collect();
    }
    let mut places = Vec::new();
    // tokio has modules of the same names that do the same.
    for library in ["std::", "tokio::"] {
        for (at, _) in code
            .match_indices(library)
            .filter(|(at, _)| begins_word(*at))
        {
            let rest = code.get(at + library.len()..).unwrap_or_default();
            for path in split_import_paths(rest) {
                let mut parts = path.split("::").map(str::trim);
                let module = parts.next().unwrap_or_default();
                let items = parts.next().unwrap_or_default();
                if leading_word(module) == name && !is_excepted(items, item, owner) {
                    places.push((at, format!("{library}{name}")));
                }
            }
        }
    }
    places
}

/// Returns the paths that follow `std::`: one, or those of a group in braces. A group inside a group stays whole.
fn split_import_paths(rest: &str) -> Vec<&str> {
    let Some(group) = rest.strip_prefix('{') else {
        // A nested group belongs to the path: `process::{Command, exit}`.
        let end = rest
            .find([';', '\n', '(', ')', ',', '<', '>', ' '])
            .unwrap_or(rest.len());
        let end = if rest.get(..end).is_some_and(|path| path.contains('{')) {
            closing_brace(rest)
        } else {
            end
        };
        return vec![rest.get(..end).unwrap_or_default()];
    };
    let inside = group
        .get(..closing_brace(rest).saturating_sub(2))
        .unwrap_or(group);
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

/// Returns the offset past the brace that closes the first one.
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

/// Reports whether all the items that follow a module are exceptions for this crate.
fn is_excepted(items: &str, restricted: &RestrictedItem, owner: &str) -> bool {
    let items = items.trim_start_matches('{').trim_end_matches('}');
    let free = |item: &str| {
        restricted
            .except
            .iter()
            .any(|except| match except.split_once('/') {
                Some((there, name)) => there == owner && name == item,
                None => *except == item,
            })
    };
    // A module without items, as in `use std::fs;`, gives access to all of them.
    !items.is_empty()
        && items
            .split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty())
            .all(|item| free(leading_word(item)))
}

#[cfg(test)]
mod tests {
    use crate::{SourceTree, check_tree};

    fn shown_violations(path: &str, code: &str) -> String {
        let mut tree = SourceTree::default();
        tree.add_file(path, format!("//! Doc.\n{code}\n"));
        check_tree(&tree)
            .iter()
            .map(|found| {
                format!(
                    "{}:{} ",
                    found.line,
                    found.message.split(" is not").next().unwrap_or("")
                )
            })
            .collect()
    }

    #[test]
    fn build_scripts_may_read_the_environment_and_print() {
        let code = "fn main() { println!(\"{:?}\", std::env::var(\"X\")); }";
        assert_eq!(shown_violations("crates/sabir-c/build.rs", code), "");
        let code = "fn main() { unsafe { f() } }";
        let path = "crates/sabir-call/build.rs";
        assert!(shown_violations(path, code).contains("`unsafe`"));
    }

    #[test]
    fn restricted_items_are_found() {
        let path = "crates/sabir-call/src/x.rs";
        for (code, expected) in [
            ("use std::fs;", "2:`std::fs` "),
            ("use std::{\n    env,\n    io,\n};", "2:`std::env` "),
            (
                "use std::{fs::File, process::{Command, exit}};",
                "2:`std::fs` 2:`std::process` ",
            ),
            ("fn f() { std::fs::read(\"x\") }", "2:`std::fs` "),
            ("use tokio::process::Command;", "2:`tokio::process` "),
            ("println!(\"x\")", "2:`println!` "),
            ("eprint!(\"x\")", "2:`eprint!` "),
            ("unsafe { f() }", "2:`unsafe` "),
            (
                "#[cfg(test)]\nmod tests {\n    use std::fs;\n    unsafe fn f() {}\n}",
                "5:`unsafe` ",
            ),
            (
                "#![expect(unsafe_code)]\n// std::fs\nlet x = \"std::env println!\";",
                "",
            ),
            (
                "use std::env::consts;\nmy_println!(1); a::fs::b(); mystd::fs::x()",
                "",
            ),
            (
                "use std::environment; use std::{fmt, io::{self, Read}};",
                "",
            ),
        ] {
            assert_eq!(shown_violations(path, code), expected, "{code}");
        }
    }

    #[test]
    fn owners_may_use_their_items() {
        assert_eq!(
            shown_violations(
                "crates/sabir-workspace/src/x.rs",
                "use std::{fs, process}; unsafe {}"
            ),
            ""
        );
        assert_eq!(
            shown_violations("crates/sabir-workspace/src/x.rs", "use std::env;"),
            "2:`std::env` "
        );
        assert_eq!(
            shown_violations(
                "crates/sabir/src/x.rs",
                "use std::process::{self, ExitCode};"
            ),
            "2:`std::process` "
        );
        assert_eq!(
            shown_violations(
                "crates/sabir/src/x.rs",
                "use std::{env, process::ExitCode}; println!()"
            ),
            ""
        );
        assert_eq!(
            shown_violations("crates/sabir-call/tests/x.rs", "use std::fs; println!()"),
            ""
        );
        assert_eq!(
            shown_violations("crates/sabir-call/src/a/tests.rs", "use std::fs;"),
            ""
        );
    }
}
