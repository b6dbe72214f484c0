//! Places: whether a path stays inside the workspace, wherever the command line has gone before.

use super::word::{ShellWord, WordForm};

/// Where a command would run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FolderScope {
    /// Relative to the workspace, `.` for itself, if it is certain.
    path: Option<String>,
    /// How many folders lie between it and the workspace, at least.
    depth: usize,
}

/// Files outside of the workspace that may be read by anything.
const HARMLESS: [&str; 3] = ["/dev/null", "/dev/stdin", "/dev/zero"];

impl FolderScope {
    /// The workspace itself.
    pub(crate) fn root() -> Self {
        Self { path: Some(".".to_owned()), depth: 0 }
    }

    /// A folder somewhere inside.
    pub(crate) fn somewhere() -> Self {
        Self { path: None, depth: 0 }
    }

    /// Its path, if it is certain.
    pub(crate) fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// What is certain of both.
    pub(crate) fn common_scope(&self, other: &Self) -> Self {
        if self == other {
            return self.clone();
        }
        Self { path: None, depth: self.depth.min(other.depth) }
    }

    /// The folder of that path, seen from here.
    ///
    /// # Errors
    /// The path may lie outside; why.
    pub(crate) fn join(&self, path: &str, root: &str) -> Result<Self, String> {
        let (from, rest) = match strip_root(path, root) {
            Some(rest) => (Self::root(), rest),
            None if path.starts_with('/') => return Err(format!("{path} lies outside of the workspace")),
            None => (self.clone(), path),
        };
        let (mut depth, mut names) = (from.depth, from.path.map(path_components));
        for part in rest.split('/') {
            match part {
                "" | "." => {}
                ".." => {
                    depth = depth.checked_sub(1).ok_or_else(|| format!("{path} may lie outside of the workspace"))?;
                    names = names.map(|mut names| {
                        names.pop();
                        names
                    });
                }
                name => {
                    depth += 1;
                    if let Some(names) = &mut names {
                        names.push(name.to_owned());
                    }
                }
            }
        }
        let path = names.map(|names| if names.is_empty() { ".".to_owned() } else { names.join("/") });
        Ok(Self { path, depth })
    }
}

fn path_components(path: String) -> Vec<String> {
    path.split('/').filter(|part| *part != ".").map(str::to_owned).collect()
}

/// What stands behind the root in an absolute path.
pub(super) fn strip_root<'a>(path: &'a str, root: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(root).filter(|_| !root.is_empty())?;
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}

/// Whether reading what a word names stays inside of the workspace.
///
/// # Errors
/// Why it may not, in words.
pub(crate) fn check_readable(word: &ShellWord, folder: &FolderScope, root: &str) -> Result<(), String> {
    match word.form {
        WordForm::Literal if HARMLESS.contains(&word.text.as_str()) => Ok(()),
        WordForm::Literal => check_path(&word.text, folder, root),
        WordForm::Glob(_) => {
            // In some shells `.*` is also `..`.
            let up = word
                .text
                .split('/')
                .filter_map(|part| part.strip_prefix('.').filter(|rest| !rest.starts_with("[!.]")))
                .any(|rest| rest.starts_with(['*', '?', '[']));
            if up {
                return Err(format!("{} may lead out of the folder", word.raw));
            }
            check_path(&word.text, folder, root)
        }
        WordForm::Field(known) if known.inside && !word.text.starts_with('/') => {
            folder.join(&word.text, root)?;
            Ok(())
        }
        WordForm::Field(_) | WordForm::Fields => Err(format!("what {} becomes is not known", word.raw)),
        WordForm::Odd(odd) => Err(format!("{} holds {odd}", word.raw)),
    }
}

fn check_path(path: &str, folder: &FolderScope, root: &str) -> Result<(), String> {
    folder.join(path, root)?;
    match secret_reason(path) {
        Some(why) => Err(format!("{path} {why}")),
        None => Ok(()),
    }
}

/// Whether a command line names a file that usually holds secrets, by its words alone: for what is shown, not for what is allowed.
pub fn names_secrets(command: &str) -> bool {
    let between = |c: char| c.is_whitespace() || "\"'`;|&<>(){}=:,$".contains(c);
    command.split(between).any(|word| secret_reason(word).is_some())
}

/// Why a file of that name is taken for a secret, judged by the name alone.
pub(crate) fn secret_reason(path: &str) -> Option<&'static str> {
    const FILES: [&str; 9] = [
        ".netrc",
        "_netrc",
        ".npmrc",
        ".pypirc",
        ".pgpass",
        ".git-credentials",
        ".dockercfg",
        ".htpasswd",
        "credentials",
    ];
    const ENDS: [&str; 7] = [".pem", ".key", ".p12", ".pfx", ".jks", ".keystore", ".kdbx"];
    const FOLDERS: [&str; 5] = [".ssh", ".gnupg", ".aws", ".kube", ".docker"];
    const SAMPLES: [&str; 4] = [".example", ".sample", ".template", ".dist"];
    let path = path.to_lowercase();
    let mut parts = path.split('/').filter(|part| !part.is_empty()).rev();
    let name = parts.next()?;
    let env = name == ".env" || name.starts_with(".env.") && !SAMPLES.iter().any(|end| name.ends_with(end));
    let key =
        name.starts_with("id_") && ["rsa", "dsa", "ecdsa", "ed25519"].iter().any(|kind| name.get(3..) == Some(kind));
    let secret = env
        || key
        || FILES.contains(&name)
        || ENDS.iter().any(|end| name.ends_with(end))
        || parts.any(|part| FOLDERS.contains(&part));
    secret.then_some("usually holds secrets")
}
