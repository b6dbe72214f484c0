//! Finds the files of a folder that the command line of a hook runs, so that trust holds for their content.
//!
//! Only what the line says itself is found. What the shell makes of other variables, wildcards and substitutions is not known here, and
//! what a script loads in turn is not covered either.

use std::collections::BTreeMap;
use std::path::{Component, Path};
use std::sync::LazyLock;

use regex::Regex;
use sabir_tools::named_launch_files;
use sabir_workspace::Workspace;

/// The most files that one hook may name: each is hashed before each run.
const MAX_FILES: usize = 32;

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

/// The target of a redirection, which is written and not run.
#[expect(clippy::unwrap_used, reason = "a constant, which a test compiles")]
static REDIRECTION: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"[0-9&]?>{1,2}[|&]?\s*[^\s;&|()<>]+").unwrap());

/// The reason why a hook cannot be trusted: a change of what it runs would not be noticed.
#[derive(Debug, thiserror::Error)]
#[error("it names more than {MAX_FILES} files")]
pub(super) struct TooManyFiles;

/// Finds the files of the folder that a command line names.
///
/// # Errors
/// When there are too many.
pub(super) fn find_pinned_files(
    workspace: &Workspace,
    command: &str,
) -> Result<PinnedFiles, TooManyFiles> {
    let text = FOLDER.replace_all(command, ".");
    let text = REDIRECTION.replace_all(&text, " ");
    // Both ways of reading quotes: `"my hooks/a.sh"` is one word, and in `sh -c "cd x; ./a.sh"` there are several.
    let mut words = split_line(&text, true);
    words.extend(split_line(&text, false));
    let folders: Vec<String> = words
        .windows(2)
        .filter(|pair| matches!(pair, [before, _] if before == "cd" || before == "pushd"))
        .filter_map(|pair| pair.get(1).cloned())
        .collect();
    for folder in folders {
        let inside: Vec<_> = words
            .iter()
            .map(|word| format!("{folder}/{word}"))
            .collect();
        words.extend(inside);
    }
    // One spelling for each file: many of them would be hashed many times.
    let mut plain: Vec<String> = words
        .iter()
        .map(|word| plain_spelling(word, workspace.root()))
        .filter(|word| !word.is_empty())
        .collect();
    let mut seen = std::collections::HashSet::new();
    // `-m` may stand before several modules.
    plain.retain(|word| word.starts_with('-') || seen.insert(word.clone()));
    let files: PinnedFiles = named_launch_files(workspace, &plain);
    if files.len() > MAX_FILES {
        return Err(TooManyFiles);
    }
    Ok(files)
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

/// Returns what tells whether one of the files, or a folder above it, was moved or changed: also a file that was put in place and taken
/// away again leaves other times behind, which no program can set.
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
    FOLDER
        .replace_all(command, ".")
        .contains(['$', '`', '*', '?', '[', '{'])
}

/// Returns a path in its plain spelling, relative to the root where it lies inside; a word that is no path stays as it is.
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
        ] {
            std::fs::write(root.join(name), "1").unwrap();
        }
        let workspace = Workspace::open(&root).unwrap();
        let check = |command: &str, expected: &[&str]| {
            let command = command.replace("ROOT", root.to_str().unwrap());
            let found = find_pinned_files(&workspace, &command).unwrap();
            let names: Vec<_> = found.keys().map(String::as_str).collect();
            assert_eq!(names, expected, "{command}");
        };
        let script = &[".claude/hooks/a.sh"];
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
        check("make test", &[]);
        let found = find_pinned_files(&workspace, "sh \"c d.sh\"").unwrap();
        assert!(found.contains_key("c d.sh"), "{found:?}");
        // A link out of the folder is not followed: it could lead to a file without an end.
        std::os::unix::fs::symlink("/proc/self/pagemap", root.join("endless.sh")).unwrap();
        check("./endless.sh", &[]);
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
    }
}
