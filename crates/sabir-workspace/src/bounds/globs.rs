//! Compiles the globs of policy rules into one regular expression.
//!
//! `*` matches any characters within one name, `**` any characters at all, and `**/` may match
//! nothing; everything else matches itself, including `?`, `[` and `{`. The regex engine is linear,
//! so no glob can hang it.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use regex_automata::meta::Regex;
use regex_automata::util::syntax;

use super::BoundsError;

const MAX_GLOB_BYTES: usize = 4096;
const MAX_COMPILED_BYTES: usize = 16 << 20;

/// A set of globs.
#[derive(Debug, Clone, Default)]
pub(crate) struct PathGlobs {
    written: Vec<String>,
    inside: Option<Regex>,
    /// The globs that begin with `/`.
    absolute: Option<Regex>,
}

impl PathGlobs {
    /// Adds globs to the set.
    pub(crate) fn with_globs(
        self,
        globs: impl IntoIterator<Item = String>,
    ) -> Result<Self, BoundsError> {
        let mut written = self.written;
        for glob in globs {
            let fail = |reason: &str| {
                Err(BoundsError {
                    glob: glob.clone(),
                    reason: reason.to_owned(),
                })
            };
            // `./` means nothing, and a trailing slash must not weaken the rule.
            let short = glob.trim_start_matches("./");
            let short = if short.len() > 1 {
                short.trim_end_matches('/')
            } else {
                short
            };
            match short {
                "" => {
                    return fail(
                        "it names nothing; write a path such as `secrets/**` or `**/.env`",
                    );
                }
                _ if short.len() > MAX_GLOB_BYTES => {
                    return fail("it is too long; 4096 bytes are the most");
                }
                _ if short.contains('\0') => {
                    return fail("it holds a NUL byte, which no path can have");
                }
                _ => written.push(short.to_owned()),
            }
        }
        let (absolute, inside): (Vec<&String>, Vec<&String>) =
            written.iter().partition(|glob| glob.starts_with('/'));
        let inside = compile_globs(&inside)?;
        let absolute = compile_globs(&absolute)?;
        Ok(Self {
            inside,
            absolute,
            written,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.written.is_empty()
    }

    /// Returns true if a path, relative to the workspace folder, matches.
    pub(crate) fn matches_path(&self, root: &Path, path: &Path) -> bool {
        let matches = |regex: &Option<Regex>, path: &Path| {
            regex
                .as_ref()
                .is_some_and(|regex| regex.is_match(path.as_os_str().as_bytes()))
        };
        matches(&self.inside, path)
            || self.absolute.is_some() && matches(&self.absolute, &root.join(path))
    }

    /// Returns true if the path or a folder above it matches.
    pub(crate) fn matches_path_or_above(&self, root: &Path, path: &Path) -> bool {
        !self.is_empty()
            && path
                .ancestors()
                .any(|path| !path.as_os_str().is_empty() && self.matches_path(root, path))
    }
}

/// Writes the globs as "`a`, `b`".
impl fmt::Display for PathGlobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, glob) in self.written.iter().enumerate() {
            write!(f, "{}`{glob}`", if index > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

fn compile_globs(globs: &[&String]) -> Result<Option<Regex>, BoundsError> {
    if globs.is_empty() {
        return Ok(None);
    }
    let all: Vec<String> = globs.iter().map(|glob| glob_to_regex(glob)).collect();
    let config = Regex::config()
        .nfa_size_limit(Some(MAX_COMPILED_BYTES))
        // Building the full DFA of a few globs takes more than a sixth of the CPU time of a short
        // task, and it matches little faster than a lazy DFA.
        .dfa(false);
    let built = Regex::builder()
        .configure(config)
        .syntax(syntax::Config::new().unicode(false).utf8(false))
        .build(&format!(r"(?s)\A(?:{})\z", all.join("|")));
    built.map(Some).map_err(|_| BoundsError {
        glob: globs
            .iter()
            .map(|glob| glob.as_str())
            .collect::<Vec<_>>()
            .join(" "),
        reason: "they are too many together; use shorter ones, or hide whole folders".to_owned(),
    })
}

fn glob_to_regex(glob: &str) -> String {
    let mut regex = String::new();
    let mut rest = glob;
    // `**/` at the very end of a glob needs something below it, so it is not an optional prefix
    // there.
    while let Some(c) = rest.chars().next() {
        let (part, taken) = if rest.starts_with("**/") && rest.len() > 3 {
            ("(?:.*/)?".to_owned(), 3)
        } else if rest.starts_with("**") {
            (".*".to_owned(), 2)
        } else if c == '*' {
            ("[^/]*".to_owned(), 1)
        } else {
            // Every other byte is written in hexadecimal, so no regex syntax can slip in.
            let mut bytes = [0; 4];
            let bytes = c
                .encode_utf8(&mut bytes)
                .bytes()
                .map(|byte| format!(r"\x{byte:02x}"));
            (bytes.collect(), c.len_utf8())
        };
        regex.push_str(&part);
        rest = rest.get(taken..).unwrap_or_default();
    }
    regex
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(glob: &str, path: &str, expected: bool) {
        let globs = PathGlobs::default().with_globs([glob.to_owned()]).unwrap();
        assert_eq!(
            globs.matches_path_or_above(Path::new("/home/ada/app"), Path::new(path)),
            expected,
            "{glob} {path}"
        );
    }

    #[test]
    fn globs_of_rules() {
        check(".env", ".env", true);
        check(".env", "svc/.env", false);
        check(".env", ".ENV", false);
        check("./.env", ".env", true);
        check("**/.env", ".env", true);
        check("**/.env", "a/b/.env", true);
        check("**/.env", "a/b.env", false);
        check("*.pem", "a.pem", true);
        check("*.pem", "a/b.pem", false);
        check("secrets", "secrets/deep/key", true);
        check("secrets/", "secrets/deep/key", true);
        check("secrets/**", "secrets/deep/key", true);
        check("secrets/**", "secrets", false);
        check("src/**/x", "src/x", true);
        check("a?[b]{c}", "a?[b]{c}", true);
        check("a?", "ab", false);
        check("/home/ada/app/key", "key", true);
        check("/home/ada/app/key", "sub/key", false);
        check("/home/*/app/**", "sub/key", true);
        check("**", "anything/at all", true);
        check("\u{e9}", "e\u{301}", false);
        check("a\nb*", "a\nbc", true);
    }

    #[test]
    fn invalid_globs_are_rejected() {
        for glob in ["", "./", "a\0b", &"x".repeat(5000)] {
            assert!(
                PathGlobs::default().with_globs([glob.to_owned()]).is_err(),
                "{glob:?}"
            );
        }
    }

    #[test]
    fn every_glob_matches_in_linear_time() {
        let globs = PathGlobs::default()
            .with_globs(["**a".repeat(200) + "b"])
            .unwrap();
        assert!(!globs.matches_path(Path::new("/"), Path::new(&"a".repeat(3000))));
    }
}
