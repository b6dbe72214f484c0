//! Commands that write protected paths (`.git/hooks`, `AGENTS.md`, `.vscode`), which ask even if their kind is approved.
//!
//! The caller knows the protected names and looks up the paths that a line names
//! ([`CommandFacts::protected_paths`](super::CommandFacts::protected_paths)). The file tools ask
//! about the same names, and a sandbox keeps commands from changing them; this check is for
//! commands without a sandbox.

use super::evaluator::{CommandEvaluator, ShellScope};
use super::path_scope::FolderScope;
use super::paths::named_workspace_paths;
use super::word::ShellWord;

/// Programs that write, replace or remove the files in their arguments.
const WRITERS: [&str; 29] = [
    "cp", "mv", "ln", "install", "rsync", "scp", "tee", "sponge", "touch", "mkdir", "rmdir", "rm",
    "unlink", "shred", "truncate", "dd", "sed", "gsed", "perl", "patch", "chmod", "chown", "tar",
    "bsdtar", "unzip", "cpio", "curl", "wget", "7z",
];

impl CommandEvaluator<'_> {
    /// Returns the reason why a command that writes files asks, if one of its words names a protected path.
    ///
    /// The source of a copy counts, too: a move removes it, and a copied folder keeps its name.
    pub(crate) fn protected_target_reason(
        &self,
        name: &str,
        rest: &[ShellWord],
        scope: &ShellScope,
    ) -> Option<String> {
        let moves = name == "git"
            && rest
                .first()
                .is_some_and(|word| is_word(word, &["mv", "rm"]));
        if !moves && !WRITERS.contains(&name) {
            return None;
        }
        rest.iter()
            .find_map(|word| self.protected_word_reason(word, &scope.folder))
    }

    /// Returns the reason why writing the path of a word asks, if it is protected.
    pub(crate) fn protected_word_reason(
        &self,
        word: &ShellWord,
        folder: &FolderScope,
    ) -> Option<String> {
        let protected = &self.facts.protected_paths;
        if protected.is_empty() {
            return None;
        }
        let named = named_workspace_paths(word, folder, &self.facts.root);
        protected
            .iter()
            .find(|(path, _)| named.contains(path))
            .map(|(_, reason)| {
                format!(
                    "{} is a protected path ({reason}), which no approval of a kind covers",
                    word.raw
                )
            })
    }
}

/// Reports whether a word is certain and one of these.
fn is_word(word: &ShellWord, words: &[&str]) -> bool {
    word.known_text().is_some_and(|text| words.contains(&text))
}
