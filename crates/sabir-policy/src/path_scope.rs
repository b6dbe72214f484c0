//! Checks that a path stays inside the workspace, relative to the folder that the line has changed to.

use super::ask_reason::AskReason;
use super::word::{ShellWord, WordForm};

/// The folder where a command would run, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FolderScope {
    /// The path relative to the workspace (`.` for the workspace itself); `None` if it is not certain.
    path: Option<String>,
    /// The least number of folders between it and the workspace, which is the number of `..` that are safe.
    depth: usize,
}

/// Files outside of the workspace that any program may read.
const HARMLESS: [&str; 3] = ["/dev/null", "/dev/stdin", "/dev/zero"];

impl FolderScope {
    /// Returns the workspace folder.
    pub(crate) fn root() -> Self {
        Self {
            path: Some(".".to_owned()),
            depth: 0,
        }
    }

    /// Returns an unknown folder inside of the workspace.
    pub(crate) fn somewhere() -> Self {
        Self {
            path: None,
            depth: 0,
        }
    }

    /// Returns the path if it is certain.
    pub(crate) fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// Returns the scope that covers both.
    pub(crate) fn common_scope(&self, other: &Self) -> Self {
        if self == other {
            return self.clone();
        }
        Self {
            path: None,
            depth: self.depth.min(other.depth),
        }
    }

    /// Resolves a path from this folder.
    ///
    /// # Errors
    /// Returns the reason if the path lies, or may lie, outside of the workspace.
    pub(crate) fn join(&self, path: &str, root: &str) -> Result<Self, AskReason> {
        let (from, rest) = match strip_root(path, root) {
            Some(rest) => (Self::root(), rest),
            None if path.starts_with('/') => {
                return Err(format!("{path} lies outside of the workspace").into());
            }
            None => (self.clone(), path),
        };
        let mut depth = from.depth;
        let mut names = from.path.map(path_components);
        for part in rest.split('/') {
            match part {
                "" | "." => {}
                ".." => {
                    depth = depth
                        .checked_sub(1)
                        .ok_or_else(|| format!("{path} may lie outside of the workspace"))?;
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
        let path = names.map(|names| {
            if names.is_empty() {
                ".".to_owned()
            } else {
                names.join("/")
            }
        });
        Ok(Self { path, depth })
    }
}

fn path_components(path: String) -> Vec<String> {
    path.split('/')
        .filter(|part| *part != ".")
        .map(str::to_owned)
        .collect()
}

/// Strips the workspace folder from an absolute path. The rest begins with `/` or is empty.
pub(super) fn strip_root<'a>(path: &'a str, root: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(root).filter(|_| !root.is_empty())?;
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}

/// Checks that the paths a word may name are inside of the workspace and usually hold no secrets.
///
/// # Errors
/// Returns the reason if reading such a path may not be harmless.
pub(crate) fn check_readable(
    word: &ShellWord,
    folder: &FolderScope,
    root: &str,
) -> Result<(), AskReason> {
    match word.form {
        WordForm::Literal if HARMLESS.contains(&word.text.as_str()) => Ok(()),
        WordForm::Literal => check_path(&word.text, folder, root),
        WordForm::Glob(_) => {
            // In some shells `.*` also matches `..`.
            let up = word
                .text
                .split('/')
                .filter_map(|part| {
                    part.strip_prefix('.')
                        .filter(|rest| !rest.starts_with("[!.]"))
                })
                .any(|rest| rest.starts_with(['*', '?', '[']));
            if up {
                return Err(format!("{} may lead out of the folder", word.raw).into());
            }
            check_path(&word.text, folder, root)
        }
        WordForm::Field(known) if known.inside && !word.text.starts_with('/') => {
            folder.join(&word.text, root)?;
            Ok(())
        }
        WordForm::Field(_) | WordForm::Fields => {
            Err(format!("what {} becomes is not known", word.raw).into())
        }
        WordForm::Odd(odd) => Err(format!("{} holds {odd}", word.raw).into()),
    }
}

/// Checks a certain path.
fn check_path(path: &str, folder: &FolderScope, root: &str) -> Result<(), AskReason> {
    folder.join(path, root)?;
    match secret_reason(path) {
        Some(why) => Err(format!("{path} {why}").into()),
        None => Ok(()),
    }
}

/// Reports whether a command line names a file that usually holds secrets, by its words alone.
///
/// This is a heuristic for display. It does not parse the line, so it must not decide whether a command is allowed.
pub fn names_secrets(command: &str) -> bool {
    let between = |c: char| c.is_whitespace() || "\"'`;|&<>(){}=:,$".contains(c);
    command
        .split(between)
        .any(|word| secret_reason(word).is_some())
}

/// Returns a reason, as a phrase that follows the path, if a file of that name usually holds secrets.
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
    // Some file systems ignore case, so `.ENV` may be `.env`.
    let path = path.to_lowercase();
    let mut parts = path.split('/').filter(|part| !part.is_empty()).rev();
    let name = parts.next()?;
    // `.env.example` and the like are committed on purpose and hold no secrets.
    let env = name == ".env"
        || name.starts_with(".env.") && !SAMPLES.iter().any(|end| name.ends_with(end));
    let key = name.starts_with("id_")
        && ["rsa", "dsa", "ecdsa", "ed25519"]
            .iter()
            .any(|kind| name.get(3..) == Some(kind));
    let secret = env
        || key
        || FILES.contains(&name)
        || ENDS.iter().any(|end| name.ends_with(end))
        || parts.any(|part| FOLDERS.contains(&part));
    secret.then_some("usually holds secrets")
}
