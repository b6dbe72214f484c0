//! Finds the files of a folder that the command line of a hook or an MCP server runs, so that trust
//! covers their content.
//!
//! These are the files that the line names, files beside them whose names their text mentions, and
//! the files that programs such as `make` read by default. If only the shell knows which file of a
//! folder it runs, all files of that folder count. If that may be any file, the hook cannot be
//! trusted.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Component, Path};
use std::sync::LazyLock;

use regex::{Captures, Regex};
use sabir_tools::{launch_files, named_launch_files};
use sabir_workspace::Workspace;

use super::run_words::{UnknownPart, expand_assignments, find_executed_words, find_unknown_part};
use crate::environment::Environment;

/// The most files that one hook may run: each is hashed before each run.
const MAX_FILES: usize = 128;
/// The most entries of a folder that are looked at, and the most bytes of a script in which names are looked for.
const MAX_ENTRIES: usize = 10_000;
const MAX_SCRIPT_BYTES: u64 = 256 * 1024;
/// The files that programs read by default.
const UNNAMED: &[(&[&str], &[&str])] = &[
    (&["make", "gmake"], &["GNUmakefile", "makefile", "Makefile"]),
    (&["just"], &["justfile", "Justfile", ".justfile"]),
    (&["bun", "npm", "npx", "pnpm", "yarn"], &["package.json"]),
    (&["rake"], &["Rakefile", "rakefile"]),
    (&["tox"], &["tox.ini"]),
];
/// The extensions of files that a script may load.
const MODULES: &[&str] = &[
    "bash", "cjs", "js", "json", "lua", "mjs", "php", "pl", "pm", "py", "rb", "sh", "ts", "zsh",
];
/// The most words of a command line, and the most of them that may name a folder: each word is looked for in each folder.
const MAX_WORDS: usize = 1000;
const MAX_FOLDERS: usize = 32;

/// The files of the folder that a command line names, each with a text that identifies its place and content.
pub(super) type PinnedFiles = BTreeMap<String, String>;

/// The ways in which hooks name the folder of the task.
#[expect(clippy::unwrap_used, reason = "a constant, which a test compiles")]
static FOLDER: LazyLock<Regex> = LazyLock::new(|| {
    let names = "(CLAUDE_PROJECT_DIR|SABIR_PROJECT_DIR|PWD)";
    let commands = r"\s*(pwd|git rev-parse --show-toplevel)\s*";
    Regex::new(&format!(
        r"\$\{{{names}[^}}]*\}}|\${names}\b|\$\({commands}\)|`{commands}`"
    ))
    .unwrap()
});

/// The ways in which hooks name the home of the user.
#[expect(clippy::unwrap_used, reason = "a constant, which a test compiles")]
static HOME: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"\$\{HOME[^}]*\}|\$HOME\b|(?<start>^|[\s;&|(`=:"'])~(?<end>/|$)"#).unwrap()
});

/// The target of a redirection, which is written and not run.
#[expect(clippy::unwrap_used, reason = "a constant, which a test compiles")]
static REDIRECTION: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"[0-9&]?>{1,2}[|&]?\s*[^\s;&|()<>]+").unwrap());

/// The reason why a command cannot be trusted: a change of what it runs would not be noticed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnpinnableCommand {
    #[error("it runs more than {MAX_FILES} files of the folder")]
    Files,
    #[error(
        "the folder `{0}`, of which it runs files, is a link, or has too many entries or names that are not UTF-8"
    )]
    Folder(String),
    #[error("only the shell knows which file `{0}` is; write the name of the file")]
    ShellOnly(String),
    #[error("it has more than {MAX_WORDS} words, or names more than {MAX_FOLDERS} folders")]
    Words,
}

/// The variables of hooks by which a command finds files that its line does not name in full.
#[derive(Debug, Clone, Default)]
pub(super) struct HookVariables {
    home: Option<String>,
    /// The folders of `PATH`.
    search_path: Vec<String>,
}

impl HookVariables {
    pub(super) fn from_environment(environment: &Environment) -> Self {
        Self::from_variables(&environment.command_variables())
    }

    pub(super) fn from_variables(variables: &[(String, String)]) -> Self {
        let find = |wanted: &str| {
            let last = variables.iter().rfind(|(name, _)| name == wanted);
            last.map(|(_, value)| value.clone())
        };
        let path = find("PATH").unwrap_or_default();
        Self {
            home: find("HOME"),
            search_path: path.split(':').map(str::to_owned).collect(),
        }
    }

    /// Returns the folders of `PATH` that are in this one, relative to it. An empty one, and a relative one, is meant there.
    fn folders_inside(&self, root: &Path) -> BTreeSet<String> {
        let inside = self.search_path.iter().filter_map(|folder| {
            let path = Path::new(folder);
            // A folder that a link leads to is the same one.
            let real = root.join(path).canonicalize().ok()?;
            let below = path.strip_prefix(root).or_else(|_| real.strip_prefix(root));
            Some(below.ok()?.display().to_string())
        });
        inside.collect()
    }
}

/// Finds the files of the folder that a command line names. `workspace` must have no bounds, since a hook can run files that are hidden
/// from the model.
///
/// # Errors
/// When there are too many.
pub(super) fn find_pinned_files(
    workspace: &Workspace,
    command: &str,
    variables: &HookVariables,
) -> Result<PinnedFiles, UnpinnableCommand> {
    let root = workspace.root();
    let mut named = named_words(root, command, variables)?;
    let run = find_executed_words(&named.text);
    for word in &run {
        match find_unknown_part(word, &named.text) {
            None => {}
            Some(UnknownPart::Anywhere) => {
                return Err(UnpinnableCommand::ShellOnly(word.clone()));
            }
            Some(UnknownPart::Below(folder)) => {
                let folder = plain_spelling(&format!("{folder}/"), root);
                // What is outside of the folder is nothing that a clone or the model changes.
                if !folder.starts_with('/') {
                    named.all.extend(list_files_below(root, &folder)?);
                }
            }
        }
    }
    for (programs, names) in UNNAMED {
        if run.iter().any(|word| programs.contains(&word.as_str())) {
            let places = std::iter::once(".").chain(named.folders.iter().map(String::as_str));
            let paths =
                places.flat_map(|folder| names.iter().map(move |name| format!("{folder}/{name}")));
            named.all.extend(paths.filter(|path| is_there(root, path)));
        }
    }
    let mut files = named_launch_files(workspace, &named.all);
    let mut unread: Vec<String> = files.keys().cloned().collect();
    while let Some(file) = unread.pop() {
        if files.len() > MAX_FILES {
            return Err(UnpinnableCommand::Files);
        }
        let beside = find_mentioned_siblings(root, &file)?;
        let more = named_launch_files(workspace, &beside);
        unread.extend(
            more.keys()
                .filter(|name| !files.contains_key(*name))
                .cloned(),
        );
        files.extend(more);
    }
    Ok(files)
}

/// Finds the files of the workspace that a program runs or reads if it is started with these words. Folders that the words change to are
/// searched too (`sh -c "cd tools && ./serve.sh"`, `uv --directory tools run serve.py`). In `environment`, a later variable overrides an
/// earlier one of the same name; `own_values` are the values of the variables that are set for this program alone.
///
/// # Errors
/// When there are too many words.
pub(crate) fn find_launch_files(
    workspace: &Workspace,
    words: &[String],
    environment: &[(String, String)],
    own_values: &[String],
) -> Result<PinnedFiles, UnpinnableCommand> {
    let mut files = launch_files(workspace, words, own_values);
    // As one line, so that both ways of reading quotes apply to each word.
    let quoted: Vec<String> = words.iter().map(|word| quote_word(word)).collect();
    let variables = HookVariables::from_variables(environment);
    let named = named_words(workspace.root(), &quoted.join(" "), &variables)?;
    for (name, state) in launch_files(workspace, &named.all, &[]) {
        // Found in another spelling already.
        if !files.values().any(|known| *known == state) {
            files.insert(name, state);
        }
    }
    Ok(files)
}

/// Quotes a word, unless it is plain or a line of several words without quotes of both kinds.
fn quote_word(word: &str) -> String {
    let is_plain = !word.contains(|letter: char| letter.is_whitespace() || "'\"".contains(letter));
    match (is_plain, word.contains('\'')) {
        (true, _) => word.to_owned(),
        (false, false) => format!("'{word}'"),
        (false, true) => format!("\"{word}\""),
    }
}

/// The words of a command line, for the search of the files that it runs.
struct NamedWords {
    /// The line, with folders and assigned variables written out.
    text: String,
    /// The folders that it names.
    folders: Vec<String>,
    /// Its words and the paths that they may mean, also in the folders that it names and in those of `PATH`.
    all: Vec<String>,
}

/// Splits a command line into words and finds the paths that they may mean.
fn named_words(
    root: &Path,
    command: &str,
    variables: &HookVariables,
) -> Result<NamedWords, UnpinnableCommand> {
    let text = command.replace("\\\n", "");
    let text = FOLDER.replace_all(&text, ".");
    let text = expand_home(&text, variables);
    let text = REDIRECTION.replace_all(&text, " ");
    let text = expand_assignments(&text);
    // The line is split in two ways: `"my hooks/a.sh"` is one word, but `sh -c "cd x; ./a.sh"`
    // quotes several.
    let mut words = split_line(&text, true);
    words.extend(split_line(&text, false));
    // One spelling for each file: many of them would be hashed many times.
    let mut plain: Vec<String> = words
        .iter()
        .map(|word| plain_spelling(word, root))
        .filter(|word| !word.is_empty())
        .collect();
    let mut seen = HashSet::new();
    // `-m` may stand before several modules.
    plain.retain(|word| word.starts_with('-') || seen.insert(word.clone()));
    if plain.len() > MAX_WORDS {
        return Err(UnpinnableCommand::Words);
    }
    let folders = named_folders(root, &plain)?;
    let mut all = plain.clone();
    for folder in &folders {
        // Looked for before: most of these pairs are not files.
        let inside = plain
            .iter()
            .map(|word| plain_spelling(&format!("{folder}/{word}"), root));
        all.extend(inside.filter(|path| is_there(root, path) && seen.insert(path.clone())));
        let modules = plain.windows(2).filter_map(|pair| match pair {
            [option, module] if option == "-m" => Some(format!("{folder}/{module}")),
            _ => None,
        });
        all.extend(modules.flat_map(|module| ["-m".to_owned(), module]));
    }
    for folder in variables.folders_inside(root) {
        let programs = plain.iter().filter(|word| !word.contains('/'));
        let paths = programs.filter_map(|word| match folder.as_str() {
            // A name with an extension was looked up above. Others get a `./`, since a new file
            // with the name of a plain word is not treated as a change.
            "" => (!word.contains('.')).then(|| format!("./{word}")),
            folder => Some(format!("{folder}/{word}")),
        });
        all.extend(paths.filter(|path| is_there(root, path) && seen.insert(path.clone())));
    }
    Ok(NamedWords { text, folders, all })
}

/// Lists the files in a folder and below.
fn list_files_below(root: &Path, folder: &str) -> Result<Vec<String>, UnpinnableCommand> {
    let mut files = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in list_entries(root, &folder)? {
            let path = format!("{folder}/{}", entry.name);
            if entry.is_linked_folder {
                return Err(UnpinnableCommand::Folder(path));
            }
            match entry.is_folder {
                true => open.push(path),
                false => files.push(path),
            }
        }
        if files.len() > MAX_FILES || open.len() > MAX_FILES {
            return Err(UnpinnableCommand::Files);
        }
    }
    Ok(files)
}

/// An entry of a folder.
struct Entry {
    name: String,
    is_folder: bool,
    is_linked_folder: bool,
}

/// Lists a folder.
///
/// # Errors
/// When it has too many entries, or one that cannot be read or whose name is not UTF-8: a script among them could run unnoticed.
fn list_entries(root: &Path, folder: &str) -> Result<Vec<Entry>, UnpinnableCommand> {
    let unclear = || UnpinnableCommand::Folder(folder.to_owned());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root.join(folder)).into_iter().flatten() {
        let entry = entry.map_err(|_| unclear())?;
        let kind = entry.file_type().map_err(|_| unclear())?;
        let name = entry.file_name().into_string().map_err(|_| unclear())?;
        found.push(Entry {
            name,
            is_folder: kind.is_dir(),
            is_linked_folder: kind.is_symlink() && entry.path().is_dir(),
        });
        if found.len() > MAX_ENTRIES {
            return Err(unclear());
        }
    }
    Ok(found)
}

/// Returns the files beside a script whose names it mentions, such as the modules that it imports, and those in folders beside it.
fn find_mentioned_siblings(root: &Path, file: &str) -> Result<Vec<String>, UnpinnableCommand> {
    let path = root.join(file);
    let is_script = path
        .symlink_metadata()
        .is_ok_and(|found| found.is_file() && found.len() <= MAX_SCRIPT_BYTES);
    let Some(text) = is_script.then(|| std::fs::read(&path).ok()).flatten() else {
        return Ok(Vec::new());
    };
    let text = String::from_utf8_lossy(&text);
    let mentioned: HashSet<&str> = text
        .split(|c: char| !c.is_alphanumeric() && c != '_' && c != '-')
        .collect();
    let folder = Path::new(file).parent().unwrap_or(Path::new(""));
    let folder = match folder.as_os_str().is_empty() {
        true => ".".to_owned(),
        false => folder.display().to_string(),
    };
    let is_module = |name: &str| {
        let extension = Path::new(name).extension().and_then(|found| found.to_str());
        extension.is_some_and(|extension| MODULES.contains(&extension))
    };
    let mut siblings = Vec::new();
    for entry in list_entries(root, &folder)? {
        let stem = entry.name.split('.').next().unwrap_or_default();
        // A name that begins with a dot has no stem, and is that of no module.
        if stem.is_empty() || !mentioned.contains(stem) {
            continue;
        }
        let path = format!("{folder}/{}", entry.name);
        if entry.is_folder || entry.is_linked_folder {
            let inside = list_entries(root, &path)?.into_iter();
            let modules = inside.filter(|entry| !entry.is_folder && is_module(&entry.name));
            siblings.extend(modules.map(|entry| format!("{path}/{}", entry.name)));
        } else if is_module(&entry.name) {
            siblings.push(path);
        }
    }
    Ok(siblings)
}

fn is_there(root: &Path, path: &str) -> bool {
    root.join(path).symlink_metadata().is_ok()
}

/// Puts the home of the user in the place of its names.
fn expand_home(text: &str, variables: &HookVariables) -> String {
    let Some(home) = &variables.home else {
        return text.to_owned();
    };
    let put_home = |found: &Captures<'_>| {
        let part = |name: &str| found.name(name).map_or("", |part| part.as_str()).to_owned();
        part("start") + home.trim_end_matches('/') + &part("end")
    };
    HOME.replace_all(text, put_home).into_owned()
}

/// Returns the words that are folders, alone or inside of an earlier one: a command may run in each (`cd a && cd b`, `env -C a`, `make -C
/// a`).
fn named_folders(root: &Path, words: &[String]) -> Result<Vec<String>, UnpinnableCommand> {
    let is_folder = |path: &str| {
        // Paths that leave the folder are ignored.
        let is_inside = !path.starts_with('/') && !path.split('/').any(|part| part == "..");
        is_inside && !matches!(path, "" | ".") && root.join(path).is_dir()
    };
    let mut folders: Vec<String> = Vec::new();
    for word in words {
        let below = folders.iter().map(|folder| format!("{folder}/{word}"));
        let candidates: Vec<String> = std::iter::once(word.clone()).chain(below).collect();
        for path in candidates {
            if is_folder(&path) && !folders.contains(&path) {
                folders.push(path);
            }
        }
        if folders.len() > MAX_FOLDERS {
            return Err(UnpinnableCommand::Words);
        }
    }
    Ok(folders)
}

/// Returns the files that differ from those that were trusted, are gone, or have appeared.
pub(super) fn changed_files(trusted: &PinnedFiles, now: &PinnedFiles) -> Vec<String> {
    let differing = trusted
        .iter()
        .filter(|(name, state)| now.get(*name) != Some(*state))
        .map(|(name, _)| name);
    // A new file with the name of a plain word, such as `echo`, is not what that word runs.
    let is_named_as_file = |name: &&String| name.contains('/') || name.contains('.');
    let new = now
        .keys()
        .filter(|name| !trusted.contains_key(*name))
        .filter(is_named_as_file);
    differing.chain(new).cloned().collect()
}

/// Returns stamps that change if one of the files, or a folder above it, is moved or changed. A file that was replaced for a moment also
/// leaves a new change time (ctime), which no program can set.
pub(super) fn change_stamps(root: &Path, files: &PinnedFiles) -> Vec<Option<(u64, u64, i64, i64)>> {
    use std::os::unix::fs::MetadataExt;
    let stamp = |path: &Path| {
        let found = path.symlink_metadata().ok()?;
        Some((found.dev(), found.ino(), found.ctime(), found.ctime_nsec()))
    };
    files
        .keys()
        .flat_map(|name| {
            let path = root.join(name);
            // Without the root, in which the task works meanwhile.
            let above: Vec<_> = path
                .ancestors()
                .take_while(|above| *above != root && above.starts_with(root))
                .map(Path::to_owned)
                .collect();
            // A link, and the file that it leads to.
            above.into_iter().chain(path.canonicalize().ok())
        })
        .map(|path| stamp(&path))
        .collect()
}

/// Returns true if the line names such a file as one: with a folder or an extension, and not as a plain word.
pub(super) fn names_a_file(files: &PinnedFiles) -> bool {
    !changed_files(&PinnedFiles::new(), files).is_empty()
}

/// Returns true if only the shell knows all that a line names.
pub(super) fn has_unknown_parts(command: &str) -> bool {
    let text = FOLDER.replace_all(command, ".");
    let text = HOME.replace_all(&text, "$start/$end");
    text.contains(['$', '`', '*', '?', '[', '{', '~'])
}

/// Returns a path in its plain spelling, relative to the root where it lies inside; a word that is not a path stays as it is.
fn plain_spelling(word: &str, root: &Path) -> String {
    let word = word.replace('\\', "");
    if !word.contains('/') {
        return word;
    }
    let path = Path::new(&word);
    let path = path.strip_prefix(root).unwrap_or(path);
    let parts = path
        .components()
        .filter(|part| !matches!(part, Component::CurDir));
    parts.collect::<std::path::PathBuf>().display().to_string()
}

/// Splits a command line into words without quotes. `keeps_quoted`: a quoted part is not split.
fn split_line(line: &str, keeps_quoted: bool) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quote = None;
    for letter in line.chars() {
        let is_border = letter.is_whitespace() || ";&|<>()`=".contains(letter);
        match letter {
            '"' | '\'' if quote.is_none() => quote = Some(letter),
            _ if quote == Some(letter) => quote = None,
            '"' | '\'' if !keeps_quoted => {}
            _ if is_border && !(keeps_quoted && quote.is_some()) => {
                words.push(std::mem::take(&mut word));
            }
            _ => word.push(letter),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_folder_are_found_in_a_command() {
        let folder = tempfile::TempDir::new().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join(".claude/hooks")).unwrap();
        for name in [
            ".claude/hooks/a.sh",
            "b.py",
            "c d.sh",
            "hook.log",
            "Makefile",
            "scripts/deep/c.sh",
            "scripts/own/mod.py",
            "bin/guard",
        ] {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "1").unwrap();
        }
        let workspace = Workspace::open(&root).unwrap();
        let variables = HookVariables::from_variables(&[
            ("HOME".to_owned(), root.display().to_string()),
            ("PATH".to_owned(), format!("/bin:{}/bin:", root.display())),
        ]);
        let check = |command: &str, expected: &[&str]| {
            let command = command.replace("ROOT", root.to_str().unwrap());
            let found = find_pinned_files(&workspace, &command, &variables).unwrap();
            let names: Vec<_> = found.keys().map(String::as_str).collect();
            assert_eq!(names, expected, "{command}");
        };
        let script = &[".claude/hooks/a.sh"];
        let deep_script = &["scripts/deep/c.sh"];
        check("echo x", &[]);
        check("\"$CLAUDE_PROJECT_DIR\"/.claude/hooks/a.sh", script);
        check("\"$CLAUDE_PROJECT_DIR/.claude/hooks/a.sh\" x", script);
        check("\"${CLAUDE_PROJECT_DIR:-.}\"/.claude/hooks/a.sh", script);
        check(
            "$(git rev-parse --show-toplevel)/.claude/hooks/a.sh",
            script,
        );
        check("cd .claude/hooks && ./a.sh", script);
        check("./.claude//hooks/./a.sh .claude/hooks/a.sh", script);
        check("./.clau\\de/hooks/a.sh", script);
        check("cd ${CLAUDE_PROJECT_DIR}; python b.py", &["b.py"]);
        check("python3 ./b.py|cat", &["b.py"]);
        check("X=1 ROOT/b.py", &["b.py"]);
        check("cat /etc/passwd", &[]);
        check("'sh' ''\"$CLAUDE_PROJECT_DIR\"'/b.py' 'x'", &["b.py"]);
        check("sh -c 'python \"b.py\"; true'", &["b.py"]);
        check("cat >> hook.log; tee -a hook.log; date > b.py", &[]);
        check("make test", &["./Makefile"]);
        check("X='b.py'; python $X", &["b.py"]);
        check("d=scripts; ./$d/deep/c.sh", deep_script);
        check("for f in .claude/hooks/*.sh; do sh $f; done", script);
        check(
            "./scripts/$1/c.sh",
            &["scripts/deep/c.sh", "scripts/own/mod.py"],
        );
        for line in [
            "./*.sh",
            "while read -r f; do $f; done",
            "sh $(cat b.py)",
            "X=$(cat b.py); $X",
        ] {
            let found = find_pinned_files(&workspace, line, &variables);
            assert!(
                matches!(found, Err(UnpinnableCommand::ShellOnly(_))),
                "{line}: {found:?}"
            );
        }
        let deep = &["scripts/deep/c.sh"];
        check("cd scripts; cd deep && ./c.sh", deep);
        check("env -C scripts/deep ./c.sh", deep);
        check("sh -c 'pushd scripts >/dev/null && sh deep/c.sh'", deep);
        check("cd scripts && python -m own.mod", &["scripts/own/mod.py"]);
        check("~/scripts/deep/c.sh", deep);
        check("\"$HOME\"/scripts/deep/c.sh", deep);
        check("X=${HOME}/b.py; python $X", &["b.py"]);
        check("./scr\\\nipts/deep/c.sh", deep);
        // Programs that `PATH` finds in the folder.
        check("guard --strict", &["bin/guard"]);
        check("exec b.py", &["b.py"]);
        let long = "x ".repeat(10) + &(0..2000).map(|n| format!("w{n} ")).collect::<String>();
        assert!(find_pinned_files(&workspace, &(long + "./b.py"), &variables).is_err());
        // A server is started by words, of which one may be a line of a shell.
        let environment = [("HOME".to_owned(), root.display().to_string())];
        for words in [
            &["sh", "-c", "cd scripts && exec ./deep/c.sh"][..],
            &["bash", "-lc", "cd \"$HOME\"/scripts; exec \"deep/c.sh\""],
            &["env", "-C", "scripts/deep", "./c.sh"],
            &["uv", "--directory=scripts", "run", "deep/c.sh"],
        ] {
            let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
            let found = find_launch_files(&workspace, &words, &environment, &[]).unwrap();
            assert!(found.contains_key(deep[0]), "{words:?}: {found:?}");
        }
        let found = find_pinned_files(&workspace, "sh \"c d.sh\"", &variables).unwrap();
        assert!(found.contains_key("c d.sh"), "{found:?}");
        // A link out of the folder is not followed: it could lead to a file without an end.
        std::os::unix::fs::symlink("/proc/self/pagemap", root.join("endless.sh")).unwrap();
        check("./endless.sh", &[]);
    }

    #[test]
    fn modules_beside_a_script_are_pinned_if_it_mentions_them() {
        let folder = tempfile::TempDir::new().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("hooks/lib")).unwrap();
        let put = |name: &str, text: &str| std::fs::write(root.join(name), text).unwrap();
        put(
            "hooks/check.py",
            "import json, helper\nfrom lib.rules import x\n",
        );
        put("hooks/helper.py", "import deeper\n");
        put("hooks/deeper.py", "");
        put("hooks/other.py", "");
        put("hooks/lib/rules.py", "");
        let workspace = Workspace::open(&root).unwrap();
        let find = || {
            find_pinned_files(
                &workspace,
                "python3 hooks/check.py",
                &HookVariables::default(),
            )
            .unwrap()
        };
        let trusted = find();
        let names: Vec<_> = trusted.keys().map(String::as_str).collect();
        let expected = [
            "hooks/check.py",
            "hooks/deeper.py",
            "hooks/helper.py",
            "hooks/lib/rules.py",
        ];
        assert_eq!(names, expected);
        // A new module would be loaded in the place of the library's.
        put("hooks/json.py", "");
        assert_eq!(changed_files(&trusted, &find()), ["hooks/json.py"]);
        std::fs::remove_file(root.join("hooks/json.py")).unwrap();
        // A linked folder could lead anywhere, and be changed there.
        std::os::unix::fs::symlink("lib", root.join("hooks/linked")).unwrap();
        let all = find_pinned_files(&workspace, "sh hooks/*.sh", &HookVariables::default());
        assert!(matches!(all, Err(UnpinnableCommand::Folder(_))), "{all:?}");
        std::fs::remove_file(root.join("hooks/linked")).unwrap();
        put("hooks/deeper.py", "print()");
        assert_eq!(changed_files(&trusted, &find()), ["hooks/deeper.py"]);
    }

    #[test]
    fn what_has_changed_is_named() {
        let files = |names: &[(&str, &str)]| -> PinnedFiles {
            let pairs = names.iter();
            pairs
                .map(|(name, state)| ((*name).to_owned(), (*state).to_owned()))
                .collect()
        };
        let trusted = files(&[("a.sh", "1"), ("check", "1")]);
        let check = |now: &[(&str, &str)], expected: &[&str]| {
            assert_eq!(changed_files(&trusted, &files(now)), expected, "{now:?}");
        };
        check(&[("a.sh", "1"), ("check", "1")], &[]);
        check(&[("a.sh", "2"), ("check", "1")], &["a.sh"]);
        check(&[("a.sh", "1")], &["check"]);
        check(&[("a.sh", "1"), ("check", "1"), ("echo", "1")], &[]);
        check(&[("a.sh", "1"), ("check", "1"), ("x/run", "1")], &["x/run"]);
        let folder = tempfile::TempDir::new().unwrap();
        let root = folder.path();
        std::fs::create_dir(root.join("s")).unwrap();
        std::fs::write(root.join("s/a.sh"), "1").unwrap();
        let pinned = files(&[("s/a.sh", "1")]);
        let before = change_stamps(root, &pinned);
        std::fs::write(root.join("other"), "1").unwrap();
        assert_eq!(before, change_stamps(root, &pinned));
        let swap = |name: &str| {
            // Longer than the steps of the clock of a file system.
            std::thread::sleep(std::time::Duration::from_millis(20));
            std::fs::rename(root.join(name), root.join("away")).unwrap();
            std::fs::rename(root.join("away"), root.join(name)).unwrap();
            change_stamps(root, &pinned)
        };
        let swapped = swap("s/a.sh");
        assert_ne!(before, swapped);
        assert_ne!(swapped, swap("s"));
        assert!(has_unknown_parts("./$d/a.sh") && !has_unknown_parts("$PWD/a.sh"));
        assert!(has_unknown_parts("~ada/a.sh") && !has_unknown_parts("~/a.sh $HOME"));
    }
}
