//! Checks the dependencies of every crate against a table of allowed dependencies.
//!
//! The arrows between crates are the design: a crate that may not depend on the driver cannot grow
//! a driver inside. Cargo forbids cycles only, so the table forbids the rest.

use std::collections::BTreeSet;

use crate::{SourceFile, SourceTree, Violation};

/// Each crate with the crates of this workspace that it may list under `[dependencies]`; `*` means all. Some rows are for crates that
/// do not exist yet.
const ALLOWED_DEPENDENCIES: [(&str, &[&str]); 31] = [
    ("sabir-call", &[]),
    ("sabir-check", &["sabir-call"]),
    ("sabir-edit", &[]),
    ("sabir-grammar", &["sabir-call"]),
    ("sabir-policy", &[]),
    ("sabir-template", &["sabir-check", "sabir-call"]),
    ("sabir-wire", &["sabir-call"]),
    ("sabir-model", &["sabir-wire", "sabir-check", "sabir-call"]),
    (
        "sabir-agent",
        &["sabir-check", "sabir-policy", "sabir-call"],
    ),
    ("sabir-journal", &["sabir-agent", "sabir-call"]),
    ("sabir-workspace", &["sabir-edit"]),
    ("sabir-checkpoint", &["sabir-workspace"]),
    (
        "sabir-tools",
        &[
            "sabir-agent",
            "sabir-policy",
            "sabir-workspace",
            "sabir-edit",
            "sabir-check",
            "sabir-call",
        ],
    ),
    (
        "sabir-mcp",
        &[
            "sabir-agent",
            "sabir-policy",
            "sabir-workspace",
            "sabir-check",
            "sabir-call",
        ],
    ),
    (
        "sabir-session",
        &[
            "sabir-mcp",
            "sabir-tools",
            "sabir-checkpoint",
            "sabir-workspace",
            "sabir-journal",
            "sabir-agent",
            // For the `[gateway]` section of the configuration, from which it sets up gateways.
            "sabir-gateway",
            // For the store of client keys that `[gateway]` names.
            "sabir-gateway-store",
            "sabir-model",
            "sabir-wire",
            "sabir-template",
            "sabir-policy",
            "sabir-edit",
            "sabir-check",
            "sabir-call",
        ],
    ),
    // The toolbox for the text helpers that both render with.
    (
        "sabir-terminal",
        &["sabir-session", "sabir-toolbox", "sabir-torture"],
    ),
    ("sabir-tui", &["sabir-session", "sabir-terminal"]),
    // The terminal for its sanitizer and its exact texts of what is asked about.
    ("sabir-acp", &["sabir-session", "sabir-terminal"]),
    ("sabir-agent-sdk", &["sabir-session", "sabir-terminal"]),
    (
        "sabir-gateway",
        &["sabir-model", "sabir-wire", "sabir-check", "sabir-call"],
    ),
    ("sabir-gateway-store", &["sabir-gateway", "sabir-call"]),
    (
        // No session: a server of tools, which sessions use, may offer the toolbox.
        "sabir-toolbox",
        &[
            "sabir-workspace",
            "sabir-journal",
            "sabir-agent",
            "sabir-model",
            "sabir-wire",
            "sabir-template",
            "sabir-policy",
            "sabir-grammar",
            "sabir-edit",
            "sabir-check",
            "sabir-call",
        ],
    ),
    (
        // No policy, journals or models: it is built for WebAssembly too.
        "sabir-bindings",
        &["sabir-toolbox", "sabir-edit", "sabir-check", "sabir-call"],
    ),
    ("sabir-python", &["sabir-bindings"]),
    ("sabir-wasm", &["sabir-bindings"]),
    ("sabir-c", &["sabir-bindings"]),
    (
        // The scripted provider of the tests is the provider that misbehaves.
        "sabir-torture",
        &[
            "sabir-testkit",
            "sabir-workspace",
            "sabir-wire",
            "sabir-call",
        ],
    ),
    ("sabir", &["*"]),
    (
        "sabir-testkit",
        &["sabir-call", "sabir-check", "sabir-wire", "sabir-agent"],
    ),
    (
        "sabir-simulate",
        &[
            "sabir-journal",
            "sabir-agent",
            "sabir-policy",
            "sabir-check",
            "sabir-call",
        ],
    ),
    ("sabir-tidy", &[]),
];

/// Crates that may only be dev-dependencies.
const TESTS_ONLY: [&str; 3] = ["sabir-testkit", "sabir-simulate", "sabir-tidy"];

/// A crate with the most packages that its dependencies may lock, itself included.
///
/// `sabir-call` is embedded in other programs, so it must have few dependencies.
const MAX_LOCKED_PACKAGES: (&str, usize) = ("sabir-call", 20);

/// Packages that the lock file lists for features that only other crates enable, since the workspace has one lock file. Run
/// `cargo tree -p sabir-call -e normal` to see that the crate is built without them.
/// `autocfg` belongs to an old `indexmap` beside ours, which a dependency of `sabir-acp` can use.
const IGNORED_PACKAGES: [&str; 2] = ["allocator-api2", "autocfg"];

/// Checks every manifest and the size of the lock file.
pub(crate) fn check_dependencies(tree: &SourceTree, found: &mut Vec<Violation>) {
    for file in &tree.files {
        if let Some(owner) = file
            .owning_crate()
            .filter(|owner| file.path == format!("crates/{owner}/Cargo.toml"))
        {
            check_manifest(file, owner, found);
        }
    }
    check_lock_size(tree, found);
}

/// Checks the dependencies in the manifest of a crate.
fn check_manifest(file: &SourceFile, owner: &str, found: &mut Vec<Violation>) {
    let Some((_, allowed)) = ALLOWED_DEPENDENCIES.iter().find(|(name, _)| *name == owner) else {
        let message = format!(
            "`{owner}` has no row in the table of arrows; add one to ARCHITECTURE.md and to dependency_rules.rs"
        );
        found.push(file.violation_at(1, message));
        return;
    };
    for dependency in parse_dependencies(&file.text).filter(|dependency| is_ours(dependency.name)) {
        let ManifestDependency { name, line, is_dev } = dependency;
        // The binary may use everything but the crates for tests.
        let listed =
            allowed.contains(&name) || allowed.contains(&"*") && !TESTS_ONLY.contains(&name);
        // Tests may use any crate that does not depend on theirs, because that would be a cycle.
        if listed || is_dev && (TESTS_ONLY.contains(&name) || !depends_on(name, owner)) {
            continue;
        }
        let message = match (is_dev, TESTS_ONLY.contains(&name)) {
            (false, true) => format!("`{name}` is for tests only; move it to [dev-dependencies]"),
            _ => format!(
                "`{owner}` must not depend on `{name}`; pass what it needs in, or move the code to another crate"
            ),
        };
        found.push(file.violation_at(line, message));
    }
}

/// Returns the dependencies that the table allows for a crate.
fn allowed_for(owner: &str) -> &'static [&'static str] {
    ALLOWED_DEPENDENCIES
        .iter()
        .find(|(name, _)| *name == owner)
        .map_or(&[], |(_, allowed)| allowed)
}

/// Reports whether the table allows a crate to depend on another one, directly or not.
fn depends_on(from: &str, to: &str) -> bool {
    allowed_for(from)
        .iter()
        // The table has no cycles, since Cargo would not build them, so this ends.
        .any(|next| *next == "*" || *next == to || depends_on(next, to))
}

/// Reports whether a package is a crate of this workspace.
fn is_ours(name: &str) -> bool {
    name == "sabir" || name.starts_with("sabir-")
}

/// One dependency in a manifest.
struct ManifestDependency<'a> {
    /// The name of the package.
    name: &'a str,
    /// The line in the manifest, counted from 1.
    line: usize,
    /// True for a dev-dependency.
    is_dev: bool,
}

/// Iterates over the dependencies of a manifest, of any kind and target.
///
/// The text is scanned line by line. Manifests of this tree have one dependency on a line, which
/// keeps the line number simple.
fn parse_dependencies(text: &str) -> impl Iterator<Item = ManifestDependency<'_>> {
    let mut section = "";
    text.lines().enumerate().filter_map(move |(index, line)| {
        let line = line.trim();
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_end_matches(']').trim();
            // `[dependencies.name]` is a dependency by itself.
            let (table, name) = section.rsplit_once('.')?;
            return is_dev_table(table).map(|is_dev| ManifestDependency {
                name,
                line: index + 1,
                is_dev,
            });
        }
        // `name.workspace = true` and `name = "1"` both begin with the name.
        let end = line.find(|c: char| c.is_whitespace() || matches!(c, '.' | '='))?;
        let name = line.get(..end)?.trim_matches('"');
        let is_dev =
            is_dev_table(section).filter(|_| !name.is_empty() && !name.starts_with('#'))?;
        Some(ManifestDependency {
            name,
            line: index + 1,
            is_dev,
        })
    })
}

/// Returns true for a table of dev-dependencies, false for other dependencies, and `None` for any other table.
fn is_dev_table(table: &str) -> Option<bool> {
    match table.rsplit('.').next()? {
        "dependencies" | "build-dependencies" => Some(false),
        "dev-dependencies" => Some(true),
        _ => None,
    }
}

/// Checks that the smallest crate does not lock too many packages.
fn check_lock_size(tree: &SourceTree, found: &mut Vec<Violation>) {
    let (owner, most) = MAX_LOCKED_PACKAGES;
    let manifest = tree.find_file(&format!("crates/{owner}/Cargo.toml"));
    let (Some(manifest), Some(lock)) = (manifest, tree.find_file("Cargo.lock")) else {
        return;
    };
    let packages = parse_packages(&lock.text);
    // The lock file also lists the dev-dependencies of our crates, so the walk starts at the
    // manifest.
    let direct = parse_dependencies(&manifest.text).filter(|dependency| !dependency.is_dev);
    let mut names: Vec<&str> = direct.map(|dependency| dependency.name).collect();
    let mut closure = BTreeSet::from([owner]);
    while let Some(name) = names.pop() {
        if !IGNORED_PACKAGES.contains(&name) && closure.insert(name) {
            names.extend(
                packages
                    .iter()
                    .filter(|(known, _)| *known == name)
                    .flat_map(|(_, needs)| needs),
            );
        }
    }
    if closure.len() > most {
        let list = closure.into_iter().collect::<Vec<_>>().join(", ");
        let message =
            format!("`{owner}` locks more than {most} packages ({list}); do without one of them");
        found.push(manifest.violation_at(1, message));
    }
}

/// Parses the packages of a lock file, each with the names of its dependencies.
///
/// A package that is locked in two versions comes twice, with the dependencies of each.
fn parse_packages(text: &str) -> Vec<(&str, Vec<&str>)> {
    let mut packages: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("name = \"") {
            packages.push((name.trim_end_matches('"'), Vec::new()));
        } else if let (Some(need), Some((_, needs))) =
            (line.strip_prefix(" \""), packages.last_mut())
        {
            needs.extend(need.split([' ', '"']).next());
        }
    }
    packages
}

#[cfg(test)]
mod tests {
    use crate::{SourceTree, check_tree};

    fn report_violations(files: &[(&str, &str)]) -> Vec<String> {
        let mut tree = SourceTree::default();
        for (path, text) in files {
            tree.add_file(*path, *text);
        }
        check_tree(&tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn only_allowed_dependencies_pass() {
        let ok = "[dependencies]\nsabir-call.workspace = true\nserde = \"1\"\n[dev-dependencies]\nsabir-testkit.workspace = true\n";
        assert_eq!(
            report_violations(&[("crates/sabir-check/Cargo.toml", ok)]),
            [""; 0]
        );
        let below = "[dev-dependencies]\nsabir-policy.workspace = true\n";
        assert_eq!(
            report_violations(&[("crates/sabir-journal/Cargo.toml", below)]),
            [""; 0]
        );
        for bad in [
            "[dependencies]\n\nsabir-agent.workspace = true\n",
            "[dependencies]\n\nsabir-agent = { path = \"../sabir-agent\" }\n",
            "[package]\n[target.'cfg(unix)'.dependencies]\nsabir-agent.workspace = true\n",
            "\n\n[dependencies.sabir-agent]\nworkspace = true\n",
            "[dev-dependencies]\n\nsabir-agent.workspace = true\n",
        ] {
            let said = report_violations(&[("crates/sabir-check/Cargo.toml", bad)]);
            assert_eq!(said.len(), 1, "{bad}");
            assert!(said[0].starts_with(
                "crates/sabir-check/Cargo.toml:3: `sabir-check` must not depend on `sabir-agent`"
            ));
        }
        let said_of = |owner: &str, bad: &str| {
            report_violations(&[(&format!("crates/{owner}/Cargo.toml"), bad)]).join("\n")
        };
        assert!(
            said_of("sabir", "[dependencies]\nsabir-testkit.workspace = true\n")
                .contains("for tests only")
        );
        assert!(said_of("sabir-odd", "").contains("no row"));
        assert!(
            said_of("sabir-call", "[build-dependencies]\nsabir-wire = \"1\"\n")
                .contains("must not depend")
        );
    }

    #[test]
    fn the_lock_of_the_first_crate_is_small() {
        let many: String = (0..20)
            .map(|index| {
                format!(
                    "[[package]]\nname = \"p{index}\"\ndependencies = [\n \"p{} 1.0\",\n]\n",
                    index + 1
                )
            })
            .collect();
        let manifest = |text: &str| {
            report_violations(&[
                ("crates/sabir-call/Cargo.toml", text),
                ("Cargo.lock", &many),
            ])
        };
        assert!(
            manifest("[dependencies]\np0 = \"1\"\n")
                .join("")
                .contains("locks more than 20")
        );
        assert_eq!(
            manifest("[dependencies]\np2 = \"1\"\n[dev-dependencies]\np0 = \"1\"\n"),
            [""; 0]
        );
    }
}
