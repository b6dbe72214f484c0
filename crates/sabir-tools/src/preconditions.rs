//! Gathers what calls depend on beside their arguments. An approval holds as long as this is
//! unchanged.
//!
//! A write depends on the files that it replaces: where their paths lead, and their versions. A
//! command that is not known to only read depends on its folder, its environment, the programs that
//! it names, and the files of the workspace that it names or that such a program is known to follow
//! (`make` its Makefile). It is not bound to what those files read in turn: that would be the whole
//! machine.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use sabir_agent::Preconditions;
use sabir_policy::{CommandDependencies, CommandFacts, command_dependencies};
use sabir_workspace::{
    ExecutableFile, FileVersion, ListOptions, StopFlag, WorkPath, Workspace, WorkspaceError,
};

use crate::ToolSettings;
use crate::command_facts::workspace_programs;
use crate::file_tracker::FileTracker;

/// The most files and programs that one call is bound to. Further names in a longer command line
/// are ignored.
const MAX_DEPENDENCIES: usize = 4096;

/// The most bytes of a `package.json` that are read for its entry point.
const MAX_MANIFEST_BYTES: usize = 1 << 20;

/// The most names of a folder that a pattern is compared with.
const MAX_LISTED: usize = 1000;

/// Files that programs read although the command line does not name them: program names, and file
/// names in the folder where they run.
const PROGRAM_FILES: &[(&[&str], &[&str])] = &[
    // The order in which GNU make looks for them does not matter: each that exists is bound.
    (&["make", "gmake"], &["GNUmakefile", "makefile", "Makefile"]),
    (&["just"], &["justfile", "Justfile", ".justfile"]),
    // Scripts and their hooks; `.npmrc` can name another shell for them. The configurations of test
    // runners are programs too, and scripts seldom name them.
    (
        &["npm", "pnpm", "yarn", "npx", "bun", "bunx", "deno"],
        &[
            "package.json",
            ".npmrc",
            ".pnpmfile.cjs",
            ".yarnrc.yml",
            "bunfig.toml",
            "deno.json",
        ],
    ),
    (
        &[
            "npm", "pnpm", "yarn", "npx", "bun", "bunx", "jest", "vitest", "mocha",
        ],
        &[
            "package.json",
            "jest.config.js",
            "jest.config.ts",
            "jest.config.cjs",
            "jest.config.mjs",
            "jest.config.json",
            "vitest.config.ts",
            "vitest.config.js",
            "vitest.config.mts",
            "vitest.config.mjs",
            "vite.config.ts",
            "vite.config.js",
            ".mocharc.js",
            ".mocharc.cjs",
            "babel.config.js",
        ],
    ),
    // `build.rs` runs on every build, and the configuration can name a linker or a runner.
    (
        &["cargo"],
        &[
            "Cargo.toml",
            "build.rs",
            ".cargo/config.toml",
            ".cargo/config",
            ".config/nextest.toml",
            "rust-toolchain.toml",
            "rust-toolchain",
        ],
    ),
    (&["go"], &["go.mod"]),
    // pytest imports `conftest.py`; pip and uv run the build backend that a project names.
    (
        &["python", "python3", "pytest", "pip", "uv", "tox", "nox"],
        &[
            "pyproject.toml",
            "setup.py",
            "setup.cfg",
            "conftest.py",
            "pytest.ini",
            "tox.ini",
            "noxfile.py",
            "sitecustomize.py",
            "tests/conftest.py",
            "test/conftest.py",
        ],
    ),
    (&["rake", "bundle"], &["Rakefile", "Gemfile", ".rspec"]),
    (
        &["docker", "podman"],
        &["Dockerfile", "compose.yaml", "docker-compose.yml"],
    ),
    // Configuration, attributes and hooks let git run programs by itself.
    (
        &["git"],
        &[
            ".git/config",
            ".gitattributes",
            ".gitmodules",
            ".git/hooks/pre-commit",
            ".git/hooks/prepare-commit-msg",
            ".git/hooks/commit-msg",
            ".git/hooks/post-commit",
            ".git/hooks/post-checkout",
            ".git/hooks/post-merge",
            ".git/hooks/post-rewrite",
            ".git/hooks/pre-merge-commit",
            ".git/hooks/pre-rebase",
            ".git/hooks/pre-push",
            ".git/hooks/post-index-change",
        ],
    ),
];

/// Returns the preconditions of a call that writes these paths.
pub(crate) fn write_preconditions<'a>(
    tracker: &FileTracker,
    paths: impl IntoIterator<Item = &'a str>,
) -> Preconditions {
    let mut preconditions = Preconditions::default();
    for path in paths {
        preconditions.insert(format!("`{path}`"), buffer_state(tracker, path));
    }
    preconditions
}

/// Returns the preconditions of a command line; empty if it only reads.
pub(crate) fn command_preconditions(settings: &ToolSettings, command: &str) -> Preconditions {
    let ToolSettings {
        workspace,
        environment,
        ..
    } = settings;
    let root = workspace.root();
    let search_path = environment
        .iter()
        // The last of several equal names is the one that the command gets.
        .rev()
        .find(|(name, _)| name == "PATH")
        .map_or("", |(_, path)| path.as_str());
    let workspace_programs = workspace_programs(search_path, root);
    let facts = CommandFacts {
        clean_path: workspace_programs.is_some(),
        workspace_programs: workspace_programs.unwrap_or_default(),
        root: root
            .to_str()
            .map(|root| root.trim_end_matches('/').to_owned())
            .unwrap_or_default(),
        ..CommandFacts::default()
    };
    let commands = command_dependencies(command, &facts);
    let mut collector = PreconditionCollector {
        preconditions: Preconditions::default(),
        examined: HashSet::new(),
        workspace,
        search_path,
    };
    if commands.is_empty() {
        return collector.preconditions;
    }
    // An approval of several commands covers all of them, so it depends on all.
    commands
        .iter()
        .for_each(|command| collector.add_command(command));
    let mut preconditions = collector.preconditions;
    preconditions.insert("the workspace folder", folder_identity(root));
    preconditions.insert("the environment", hash_environment(environment));
    preconditions
}

/// Returns the programs and scripts of a workspace that run when a program is started in it: those that a word of the command, a part of a
/// word or the value of a variable names, and the files that the program is known to read by default. Each has a text that identifies its
/// path and content. Files that these load in turn and files of data are not included.
#[must_use]
pub fn launch_files(
    workspace: &Workspace,
    words: &[String],
    variables: &[String],
) -> BTreeMap<String, String> {
    let mut collector = PreconditionCollector::for_launch(workspace);
    let pieces = split_words(words);
    collector.add_named_files(&pieces);
    for piece in pieces
        .iter()
        .filter(|piece| !has_extension(piece, DATA_EXTENSIONS))
    {
        collector.add_installed_package(piece);
        let name = piece.rsplit('/').next().unwrap_or_default();
        // Others run a package or a module by its name, whatever the manifest of the folder says.
        if RUN_MANIFESTS.contains(&name) {
            collector.add_default_files(".", name);
            // `npm --prefix tools run serve` reads the manifest there.
            let named = pieces.iter().filter(|piece| !piece.starts_with('-'));
            let folders = named.filter(|piece| workspace.root().join(piece).is_dir());
            folders.for_each(|folder| collector.add_default_files(folder, name));
        }
    }
    for piece in split_words(variables) {
        if has_extension(piece, CODE_EXTENSIONS) {
            collector.add_file(".", piece);
        }
    }
    collector.into_files()
}

/// Returns those of the [`launch_files`] that the words name themselves, without the files that a program reads unnamed, such as a
/// `Makefile`.
#[must_use]
pub fn named_launch_files(workspace: &Workspace, words: &[String]) -> BTreeMap<String, String> {
    let mut collector = PreconditionCollector::for_launch(workspace);
    collector.add_named_files(&split_words(words));
    collector.into_files()
}

/// The programs of [`PROGRAM_FILES`] that start other programs named by a file of the folder.
const RUN_MANIFESTS: &[&str] = &[
    "bun", "bundle", "cargo", "deno", "gmake", "go", "just", "make", "npm", "nox", "pnpm", "rake",
    "tox", "uv", "yarn",
];

/// The extensions of files that programs write and that nothing runs.
const DATA_EXTENSIONS: &[&str] = &[
    "csv", "db", "db3", "duckdb", "jsonl", "log", "md", "ndjson", "parquet", "pid", "sock",
    "sqlite", "sqlite3", "tsv", "txt",
];

/// The extensions of files that run.
const CODE_EXTENSIONS: &[&str] = &[
    "bash", "cjs", "class", "cts", "dll", "dylib", "exe", "fish", "jar", "js", "jsx", "lua", "mjs",
    "mts", "node", "php", "pl", "py", "pyc", "rb", "sh", "so", "ts", "tsx", "wasm", "zsh",
];

fn has_extension(name: &str, extensions: &[&str]) -> bool {
    let extension = Path::new(name).extension();
    extension.is_some_and(|found| {
        extensions
            .iter()
            .any(|known| found.eq_ignore_ascii_case(known))
    })
}

/// Reports whether a program runs the folder that it is given.
fn is_interpreter(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or_default();
    matches!(name, "bun" | "deno" | "node" | "nodejs" | "ts-node" | "tsx")
        || name.starts_with("python")
}

/// Returns words and their parts: a word may be a shell command line, a list of paths, or an option with a value, which may follow its
/// letter at once (`-fscript.awk`).
fn split_words(words: &[String]) -> Vec<&str> {
    let parts = |c: char| c.is_whitespace() || "'\"`$(){}[];|&<>=,:@\\".contains(c);
    let pieces = words.iter().flat_map(|word| {
        let is_whole = !word.contains(parts);
        let whole = (!is_whole).then_some(word.as_str());
        whole.into_iter().chain(word.split(parts))
    });
    let pieces = pieces.flat_map(|piece| {
        let option = piece.strip_prefix('-').map(str::chars);
        let value = option.map(|mut letters| {
            letters.next();
            letters.as_str()
        });
        std::iter::once(piece).chain(value)
    });
    pieces.filter(|piece| !piece.is_empty()).collect()
}

/// Identifies a folder by device and inode: another folder may have been put in its place.
fn folder_identity(path: &Path) -> String {
    use std::os::unix::fs::MetadataExt;
    let found = path.metadata().map(|found| (found.dev(), found.ino()));
    format!("{path:?}: {found:?}")
}

/// Hashes the variables of an environment. The user is shown that it changed, never its values.
fn hash_environment(environment: &[(String, String)]) -> String {
    let mut bytes = Vec::new();
    for (name, value) in environment {
        for text in [name, value] {
            // Each text has its length before it, so that no two environments give the same bytes.
            bytes.extend(text.len().to_le_bytes());
            bytes.extend(text.as_bytes());
        }
    }
    FileVersion::of_content(&bytes).to_string()
}

/// Collects the preconditions of the commands in a line.
struct PreconditionCollector<'a> {
    preconditions: Preconditions,
    /// Programs and paths that were examined, found or not.
    examined: HashSet<String>,
    workspace: &'a Workspace,
    /// The value of `PATH`.
    search_path: &'a str,
}

impl<'a> PreconditionCollector<'a> {
    /// Adds the program of a command, the files that it is known to read, and its operands.
    fn add_command(&mut self, command: &CommandDependencies) {
        let folder = command.folder.as_deref().unwrap_or(".");
        if let Some(program) = &command.program {
            let from = self.workspace.root().join(folder);
            let thing = format!("the program `{program}`");
            if self.mark_examined(&format!("{folder}: {thing}"))
                && let Some(found) = ExecutableFile::find_in_path(program, self.search_path, &from)
            {
                self.preconditions.insert(thing, format!("{found:?}"));
            }
            // The program may be a script of the workspace, given by its path.
            self.add_file(folder, program);
            // `/usr/bin/make` reads the same files as `make`.
            let name = program.rsplit('/').next().unwrap_or_default();
            self.add_default_files(folder, name);
        }
        // An operand may be anything; those that name no file are skipped.
        command
            .operands
            .iter()
            .for_each(|operand| self.add_file(folder, operand));
        for operand in &command.operands {
            self.add_matches(folder, operand);
            self.add_folder_entry_points(folder, operand);
            self.add_test_configurations(folder, operand);
        }
        let modules = command.operands.windows(2).filter_map(|pair| match pair {
            [option, module] if option == "-m" => Some(module),
            _ => None,
        });
        modules.for_each(|module| self.add_python_module(folder, module));
    }

    /// Adds the files that a program reads by default.
    fn add_default_files(&mut self, folder: &str, program: &str) {
        let followed = PROGRAM_FILES
            .iter()
            .filter(|(programs, _)| programs.contains(&program));
        followed
            .flat_map(|(_, files)| *files)
            .for_each(|file| self.add_file(folder, file));
    }

    /// Adds the files that `npx NAME` runs if the package is installed in the folder.
    fn add_installed_package(&mut self, name: &str) {
        // `@scope/name@version`.
        let name = match name.rsplit_once('@') {
            Some((name, _)) if !name.is_empty() => name,
            _ => name,
        };
        let program = name.rsplit('/').next().unwrap_or_default();
        self.add_file(".", &format!("node_modules/.bin/{program}"));
        self.add_folder_entry_points(".", &format!("node_modules/{name}"));
    }

    /// Adds the files that `python -m NAME` runs, if they are in the folder: the packages around the
    /// module run too.
    fn add_python_module(&mut self, folder: &str, module: &str) {
        let path = module.replace('.', "/");
        self.add_file(folder, &format!("{path}.py"));
        self.add_file(folder, &format!("{path}/__main__.py"));
        for (at, _) in path.match_indices('/').chain([(path.len(), "")]) {
            if let Some(package) = path.get(..at) {
                self.add_file(folder, &format!("{package}/__init__.py"));
            }
        }
    }

    /// Adds the files that `node DIR` and `python DIR` run.
    fn add_folder_entry_points(&mut self, folder: &str, name: &str) {
        const ENTRY_POINTS: [&str; 6] = [
            "package.json",
            "index.js",
            "index.mjs",
            "index.cjs",
            "index.ts",
            "__main__.py",
        ];
        let name = name.trim_end_matches('/');
        ENTRY_POINTS
            .iter()
            .for_each(|entry| self.add_file(folder, &format!("{name}/{entry}")));
        // `main` names the file that really runs.
        let manifest = join_path(folder, &format!("{name}/package.json"));
        if let Some(main) = self.read_main_file(&manifest) {
            self.add_file(folder, &format!("{name}/{main}"));
            self.add_file(folder, &format!("{name}/{main}.js"));
            self.add_file(folder, &format!("{name}/{main}/index.js"));
        }
    }

    /// Returns the member `main` of a `package.json`.
    fn read_main_file(&self, manifest: &str) -> Option<String> {
        let path = self.workspace.parse_path(manifest).ok()?;
        let real = self.workspace.resolve_links(&path).ok()?;
        let found = self.workspace.read_file(&real, MAX_MANIFEST_BYTES).ok()?;
        let value: serde_json::Value = serde_json::from_slice(&found.bytes).ok()?;
        Some(value.get("main")?.as_str()?.to_owned())
    }

    /// Adds the `conftest.py` of each folder above a test: pytest imports them all.
    fn add_test_configurations(&mut self, folder: &str, name: &str) {
        let (path, _) = name.split_once("::").unwrap_or((name, ""));
        self.add_file(folder, path);
        for (at, _) in path.match_indices('/').chain([(path.len(), "")]) {
            if let Some(above) = path.get(..at).filter(|above| !above.is_empty()) {
                self.add_file(folder, &format!("{above}/conftest.py"));
            }
        }
    }

    /// Adds the files that match a pattern of the shell in the last part of a path. A file that
    /// appears later is a change, too.
    fn add_matches(&mut self, folder: &str, pattern: &str) {
        let (parent, last) = pattern.rsplit_once('/').unwrap_or((".", pattern));
        if !last.contains(['*', '?']) {
            return;
        }
        let parent = join_path(folder, parent);
        let options = ListOptions {
            recursive: false,
            max_entries: MAX_LISTED,
            stop: StopFlag::default(),
        };
        let listing = self
            .workspace
            .parse_path(&parent)
            .and_then(|parent| self.workspace.list_folder(&parent, &options));
        for entry in listing.map(|listing| listing.entries).unwrap_or_default() {
            let path = entry.path.to_string();
            let name = path.rsplit('/').next().unwrap_or_default();
            if matches_wildcards(last.as_bytes(), name.as_bytes()) {
                self.add_file(".", &path);
            }
        }
    }

    /// Creates a collector for a program that the user's configuration starts. No search path is examined.
    fn for_launch(workspace: &'a Workspace) -> Self {
        Self {
            preconditions: Preconditions::default(),
            examined: HashSet::new(),
            workspace,
            search_path: "",
        }
    }

    /// Adds the files, modules and entry points of folders that pieces of a command line name, without files of data.
    fn add_named_files(&mut self, pieces: &[&str]) {
        for piece in pieces
            .iter()
            .filter(|piece| !has_extension(piece, DATA_EXTENSIONS))
        {
            self.add_file(".", piece);
        }
        for pair in pieces.windows(2) {
            if let [before, piece] = pair {
                if *before == "-m" {
                    self.add_python_module(".", piece);
                }
                // Elsewhere `.` is an argument, as the folder that a server may see.
                if !piece.trim_matches(['.', '/']).is_empty() || is_interpreter(before) {
                    self.add_folder_entry_points(".", piece);
                }
            }
        }
    }

    /// Returns the files with the texts that identify them.
    fn into_files(self) -> BTreeMap<String, String> {
        let things = self.preconditions.iter();
        things
            .map(|(thing, state)| (thing.trim_matches('`').to_owned(), state.to_owned()))
            .collect()
    }

    /// Adds a file of the workspace, if there is one of this name.
    fn add_file(&mut self, folder: &str, name: &str) {
        let path = join_path(folder, name);
        if self.mark_examined(&path)
            && let Ok(state) = file_version(self.workspace, &path)
        {
            self.preconditions.insert(format!("`{path}`"), state);
        }
    }

    /// Reports whether something has yet to be examined, and notes that it was.
    fn mark_examined(&mut self, thing: &str) -> bool {
        self.examined.len() < MAX_DEPENDENCIES && self.examined.insert(thing.to_owned())
    }
}

/// Joins a folder and a name, which may be absolute.
fn join_path(folder: &str, name: &str) -> String {
    if folder == "." || name.starts_with('/') {
        name.to_owned()
    } else {
        format!("{folder}/{name}")
    }
}

/// Reports whether a name matches a pattern with `*` and `?`.
fn matches_wildcards(pattern: &[u8], name: &[u8]) -> bool {
    let mut rest = (pattern, name);
    // Where to continue if the part behind the last `*` does not fit.
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        rest = match rest {
            ([], []) => return true,
            ([b'*', pattern @ ..], name) => {
                retry = Some((pattern, name));
                (pattern, name)
            }
            ([b'?', pattern @ ..], [_, name @ ..]) => (pattern, name),
            ([wanted, pattern @ ..], [found, name @ ..]) if wanted == found => (pattern, name),
            _ => match retry {
                Some((pattern, [_, name @ ..])) => {
                    retry = Some((pattern, name));
                    (pattern, name)
                }
                _ => return false,
            },
        };
    }
}

/// Describes the target of a path and the version of the file there; for a path that cannot be
/// read, the error.
fn file_state(workspace: &Workspace, path: &str) -> String {
    file_version(workspace, path).unwrap_or_else(|error| error.to_string())
}

/// Identifies the text that a file tool would change.
fn buffer_state(tracker: &FileTracker, path: &str) -> String {
    let Ok(real) = tracker.resolve_path(path) else {
        return file_state(tracker.workspace(), path);
    };
    match tracker.buffers().unsaved_content(&real) {
        Some(unsaved) => format!("unsaved: {:?}", unsaved.version),
        None => {
            resolved_version(tracker.workspace(), &real).unwrap_or_else(|error| error.to_string())
        }
    }
}

/// Resolves a path, and returns it with the version of its file.
fn file_version(workspace: &Workspace, path: &str) -> Result<String, WorkspaceError> {
    let real = workspace.resolve_links(&workspace.parse_path(path)?)?;
    resolved_version(workspace, &real)
}

/// Returns a resolved path with the version of its file.
fn resolved_version(workspace: &Workspace, real: &WorkPath) -> Result<String, WorkspaceError> {
    // The content is not needed, but its first 64 MiB are hashed for the version.
    let found = workspace.read_file(real, 0)?;
    Ok(format!("{real}: {:?}", found.version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(words: &str, variables: &str, expected: &str) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for path in [
            "serve.sh",
            "tools/serve",
            "tools/index.js",
            "hook.js",
            "data.db",
            "memory.json",
            "pkg/__init__.py",
            "pkg/server.py",
            "package.json",
            "pyproject.toml",
            "Makefile",
            "tools/Makefile",
            "node_modules/.bin/own",
            "node_modules/@a/own/package.json",
        ] {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "{}").unwrap();
        }
        let workspace = Workspace::open(&root).unwrap();
        let split = |text: &str| text.split('|').map(str::to_owned).collect::<Vec<_>>();
        let words = words.replace("ROOT", root.to_str().unwrap());
        let found = launch_files(&workspace, &split(&words), &split(variables));
        let names: Vec<_> = found.keys().map(String::as_str).collect();
        let shown = names.join(" ").replace(root.to_str().unwrap(), "ROOT");
        assert_eq!(shown, expected, "{words}");
    }

    #[test]
    fn what_a_program_starts_with_is_found() {
        check("./serve.sh", "", "./serve.sh");
        check("ROOT/serve.sh", "", "ROOT/serve.sh");
        check("sh|-c|exec ./serve.sh --x", "", "./serve.sh");
        check("sh|tools/serve|--db=data.db", "", "tools/serve");
        check("node|tools", "", "tools/index.js");
        check("node|.", "", "./package.json");
        check("node|x|.", "", "");
        check("node|--import=./hook.js|x", "", "./hook.js");
        check("x", "--require ./hook.js|memory.json", "./hook.js");
        check("python3|-m|pkg.server", "", "pkg/__init__.py pkg/server.py");
        check("npm|run|serve", "", "package.json");
        check("make|serve", "", "Makefile");
        check(
            "make|-C|tools|serve",
            "",
            "Makefile tools/Makefile tools/index.js",
        );
        check(
            "npx|-y|@a/own@1.2|.",
            "",
            "node_modules/.bin/own node_modules/@a/own/package.json",
        );
    }

    #[test]
    fn a_changed_file_is_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let workspace = Workspace::open(&root).unwrap();
        let words = ["sh".to_owned(), "a".to_owned()];
        let found = |text: &str| {
            std::fs::write(root.join("a"), text).unwrap();
            launch_files(&workspace, &words, &[])
        };
        assert_eq!(found("one"), found("one"));
        assert_ne!(found("one"), found("two"));
    }
}
