//! Finds cycles of imports between the files of a crate.
//!
//! A file imports another one if one of its `use` declarations names an item of it. Paths that pass through a re-export lead to the
//! file that is re-exported: with `pub use verdict::Verdict` in `lib.rs`, `use crate::Verdict` imports `verdict.rs`. For that reason
//! `pub use` declarations are not imports themselves. Paths outside of `use` declarations are not considered.
//!
//! Files in one cycle can only be understood together. The figure is the size of the largest cycle,
//! which a refactoring should not increase; it is not a rule, because small cycles between a type and
//! its parts are natural.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::blank_non_code;

/// The most re-exports that one path is followed through, in case they form a circle.
const MAX_REEXPORTS: usize = 8;

/// A module as the names on the way to it from the crate root, which itself is empty.
type ModulePath = Vec<String>;

/// One `use` declaration for one item.
#[derive(Debug, PartialEq, Eq)]
struct ModuleImport {
    /// The path as it is written.
    path: Vec<String>,
    /// The name in the importing file; `*` for a glob.
    name: String,
    /// True for a re-export, of any visibility.
    is_public: bool,
}

/// Returns the sorted paths of the files in the largest import cycle of a crate; empty if there is none.
///
/// `sources` holds pairs of a path and its text; only files in `source_folder` count.
pub(crate) fn largest_import_cycle(source_folder: &str, sources: &[(&str, &str)]) -> Vec<String> {
    // Sorted, so that the result does not depend on the order of the files.
    let mut modules: BTreeMap<ModulePath, (&str, Vec<ModuleImport>)> = BTreeMap::new();
    for (path, text) in sources {
        if let Some(module) = module_of(source_folder, path) {
            let entry = (*path, parse_imports(text));
            // With both `lib.rs` and `main.rs`, the modules belong to the library.
            if !modules.contains_key(&module) || path.ends_with("/lib.rs") {
                modules.insert(module, entry);
            }
        }
    }
    let edges = modules.iter().map(|(module, (_, imports))| {
        // A re-export uses nothing of the other file. A file that imports through it does.
        let imports = imports.iter().filter(|import| !import.is_public);
        let targets = imports
            .filter_map(|import| resolve_import(module, &import.path, &modules, MAX_REEXPORTS));
        (
            module.clone(),
            targets.filter(|target| target != module).collect(),
        )
    });
    let component = largest_component(&edges.collect());
    let mut files: Vec<String> = component
        .iter()
        .filter_map(|module| modules.get(module))
        .map(|(path, _)| (*path).to_owned())
        .collect();
    files.sort();
    files
}

/// Returns the module of a file. `None` for a file outside the source folder and for the root of another binary.
fn module_of(source_folder: &str, path: &str) -> Option<ModulePath> {
    let relative = path
        .strip_prefix(source_folder)?
        .strip_prefix('/')?
        .strip_suffix(".rs")?;
    if relative.starts_with("bin/") {
        return None;
    }
    let names = relative.split('/').map(str::to_owned).collect();
    if matches!(relative, "lib" | "main") {
        Some(ModulePath::new())
    } else {
        Some(names)
    }
}

/// Parses the `use` declarations of a file.
fn parse_imports(text: &str) -> Vec<ModuleImport> {
    let code = blank_non_code(text);
    let mut imports = Vec::new();
    let mut offset = 0;
    for line in code.split_inclusive('\n') {
        let declaration = code.get(offset..).unwrap_or_default().trim_start();
        offset += line.len();
        let is_public = declaration.starts_with("pub");
        // The rest of the file from this line on, because a declaration may span lines.
        let visible = strip_visibility(declaration);
        let Some((tree, _)) = visible
            .strip_prefix("use ")
            .and_then(|rest| rest.split_once(';'))
        else {
            continue;
        };
        // A blank line would find the declaration behind it, which is found again at its own line.
        if !line.trim().is_empty() {
            expand_use_tree(tree, &[], is_public, &mut imports);
        }
    }
    imports
}

/// Strips `pub` or `pub(…)` from the front of a declaration.
fn strip_visibility(declaration: &str) -> &str {
    let Some(rest) = declaration.strip_prefix("pub") else {
        return declaration;
    };
    let rest = match rest.strip_prefix('(') {
        Some(scope) => scope.split_once(')').map_or(rest, |(_, rest)| rest),
        None => rest,
    };
    rest.trim_start()
}

/// Expands a `use` tree such as `a::{b, c::{self, D as E}}` into one import for each item.
fn expand_use_tree(
    tree: &str,
    prefix: &[String],
    is_public: bool,
    imports: &mut Vec<ModuleImport>,
) {
    let tree = tree.trim();
    if let Some((head, group)) = tree.split_once('{') {
        let mut path = prefix.to_vec();
        path.extend(
            head.split("::")
                .map(str::trim)
                .filter(|name| !name.is_empty())
                .map(str::to_owned),
        );
        let group = group.trim_end().strip_suffix('}').unwrap_or(group);
        split_group(group)
            .into_iter()
            .for_each(|item| expand_use_tree(item, &path, is_public, imports));
        return;
    }
    if tree.is_empty() {
        return;
    }
    let (path_text, alias) = tree
        .split_once(" as ")
        .map_or((tree, None), |(path, alias)| (path, Some(alias)));
    let mut path = prefix.to_vec();
    path.extend(path_text.split("::").map(|name| name.trim().to_owned()));
    // `a::{self}` imports `a`.
    if path.len() > 1 && path.last().is_some_and(|name| name == "self") {
        path.pop();
    }
    let name = alias
        .map(|alias| alias.trim().to_owned())
        .or_else(|| path.last().cloned())
        .unwrap_or_default();
    imports.push(ModuleImport {
        path,
        name,
        is_public,
    });
}

/// Splits the inside a group at its commas; inner groups stay whole.
fn split_group(group: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let items = group.split(move |c: char| {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    items.collect()
}

/// Returns the module whose file defines an imported item. `None` for items of other crates.
fn resolve_import(
    from: &ModulePath,
    path: &[String],
    modules: &BTreeMap<ModulePath, (&str, Vec<ModuleImport>)>,
    reexports_left: usize,
) -> Option<ModulePath> {
    let mut names = path.iter();
    let mut module = match path.first()?.as_str() {
        "crate" => {
            names.next();
            ModulePath::new()
        }
        "self" => {
            names.next();
            from.clone()
        }
        "super" => {
            let mut module = from.clone();
            while names.as_slice().first().is_some_and(|name| name == "super") {
                names.next();
                module.pop()?;
            }
            module
        }
        // A path may also begin with a child module or with an imported name; any other name is a
        // crate.
        first => {
            let mut child = from.clone();
            child.push(first.to_owned());
            let imported = modules
                .get(from)?
                .1
                .iter()
                .any(|import| import.name == first && import.path != path);
            if !modules.contains_key(&child) && !imported {
                return None;
            }
            from.clone()
        }
    };
    while let Some(name) = names.next() {
        let mut child = module.clone();
        child.push(name.clone());
        // Modules first: their items are looked for behind the last one.
        if modules.contains_key(&child) {
            module = child;
            continue;
        }
        // The item may be re-exported from another module.
        let imports = &modules.get(&module)?.1;
        let reexport = imports
            .iter()
            .find(|import| import.name == *name)
            .filter(|_| reexports_left > 0);
        let Some(reexport) = reexport else { break };
        let mut target = reexport.path.clone();
        target.extend(names.as_slice().iter().cloned());
        return resolve_import(&module, &target, modules, reexports_left - 1);
    }
    // The names that are left are items inside the module's file.
    modules.contains_key(&module).then_some(module)
}

/// Returns the largest strongly connected component with more than one node; the first one among equals.
fn largest_component(edges: &BTreeMap<ModulePath, BTreeSet<ModulePath>>) -> BTreeSet<ModulePath> {
    // A crate has at most some hundred files, so reachability from every node is fast enough.
    let reachable: BTreeMap<&ModulePath, BTreeSet<&ModulePath>> = edges
        .keys()
        .map(|node| (node, reachable_from(node, edges)))
        .collect();
    let mut largest = BTreeSet::new();
    for (node, reached) in &reachable {
        let returns = |other: &&&ModulePath| {
            reachable
                .get(**other)
                .is_some_and(|back| back.contains(node))
        };
        let component: BTreeSet<ModulePath> = reached
            .iter()
            .filter(returns)
            .map(|other| (*other).clone())
            .collect();
        if component.len() > largest.len().max(1) {
            largest = component;
        }
    }
    largest
}

/// Returns all nodes that one or more edges lead to from a node.
fn reachable_from<'a>(
    start: &'a ModulePath,
    edges: &'a BTreeMap<ModulePath, BTreeSet<ModulePath>>,
) -> BTreeSet<&'a ModulePath> {
    let mut reached = BTreeSet::new();
    let mut open = vec![start];
    while let Some(node) = open.pop() {
        let targets = edges.get(node).into_iter().flatten();
        open.extend(targets.filter(|target| reached.insert(*target)));
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(files: &[(&str, &str)], expected: &[&str]) {
        let sources: Vec<(String, &str)> = files
            .iter()
            .map(|(name, text)| (format!("crates/c/src/{name}.rs"), *text))
            .collect();
        let sources: Vec<(&str, &str)> = sources
            .iter()
            .map(|(path, text)| (path.as_str(), *text))
            .collect();
        let found = largest_import_cycle("crates/c/src", &sources);
        let names: Vec<&str> = found
            .iter()
            .filter_map(|path| path.strip_prefix("crates/c/src/")?.strip_suffix(".rs"))
            .collect();
        assert_eq!(names, expected, "{files:?}");
    }

    #[test]
    fn cycles_are_found_through_any_path() {
        check(&[("a", "use crate::b::B;"), ("b", "use std::fmt;")], &[]);
        check(
            &[("a", "use crate::b::B;"), ("b", "use super::a::A;")],
            &["a", "b"],
        );
        check(
            &[
                ("a", "use crate::{b::{B, D as E}, x};"),
                ("b", "use crate::c;"),
                ("c", "use crate::a::*;"),
            ],
            &["a", "b", "c"],
        );
        check(
            &[("a", "use self::b::B;"), ("a/b", "use super::A;")],
            &["a", "a/b"],
        );
        check(
            &[("a", "use b::{self, B};"), ("a/b", "use crate::a;")],
            &["a", "a/b"],
        );
    }

    #[test]
    fn the_largest_cycle_counts() {
        let files = [
            ("a", "use crate::b::B;"),
            ("b", "use crate::a::A;"),
            ("c", "use crate::d::D;\nuse crate::a::A;"),
            ("d", "use crate::e::E;"),
            ("e", "use crate::c::C;"),
        ];
        check(&files, &["c", "d", "e"]);
    }

    #[test]
    fn reexports_lead_to_the_definition() {
        let root = ("lib", "mod a;\nmod b;\npub use a::A;\npub use b::B;");
        check(&[root, ("a", "use crate::B;"), ("b", "use super::C;")], &[]);
        check(
            &[root, ("a", "use crate::B;"), ("b", "use super::{A, C};")],
            &["a", "b"],
        );
        check(
            &[("lib", "use a::A;"), ("a", "use crate::Root;")],
            &["a", "lib"],
        );
        // Re-exports in a circle end somewhere.
        check(
            &[
                ("a", "pub use crate::b::X;\nuse crate::b::Y;"),
                ("b", "pub use crate::a::X;\npub use crate::a::Y;"),
            ],
            &[],
        );
    }

    #[test]
    fn only_use_declarations_of_the_code_count() {
        check(
            &[
                (
                    "a",
                    "// use crate::b::B;\nconst X: &str = \"use crate::b::B;\";",
                ),
                ("b", "use crate::a::A;"),
            ],
            &[],
        );
        check(
            &[
                ("a", "fn f() {\n    use crate::b::B;\n}"),
                ("b", "\n\nuse crate::{\n    a::A,\n};"),
            ],
            &["a", "b"],
        );
        check(
            &[
                ("lib", "pub mod a;"),
                ("main", "use crate::a::A;"),
                ("a", "use crate::Root;"),
            ],
            &[],
        );
        check(
            &[
                ("bin/x", "use crate::a::A;"),
                ("a", "use crate::bin::x::X;"),
            ],
            &[],
        );
    }
}
