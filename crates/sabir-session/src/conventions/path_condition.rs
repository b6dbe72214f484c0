//! The paths that a rule is limited to, as globs.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

/// The most globs of a condition, and the most bytes of one.
const MAX_GLOBS: usize = 64;
const MAX_GLOB_BYTES: usize = 256;

/// A list of globs that a path may match.
#[derive(Debug, Clone)]
pub(crate) struct PathCondition {
    globs: Vec<String>,
    set: GlobSet,
}

impl PathCondition {
    /// Compiles globs. Those that are too long or wrong match nothing.
    pub(crate) fn new(globs: Vec<String>) -> Self {
        let mut builder = GlobSetBuilder::new();
        for glob in globs.iter().take(MAX_GLOBS) {
            let glob = glob.trim_start_matches("./").trim_start_matches('/');
            // Limited before it is compiled: the pattern comes from a repository.
            if glob.is_empty() || glob.len() > MAX_GLOB_BYTES {
                continue;
            }
            // As in ignore files: a name matches in every folder, and a folder means its content.
            let anchored = match glob.strip_suffix('/') {
                Some(folder) => format!("{folder}/**"),
                None if glob.contains('/') => glob.to_owned(),
                None => format!("**/{glob}"),
            };
            let compiled = GlobBuilder::new(&anchored)
                // `*` stays in one folder, as everywhere else.
                .literal_separator(true)
                .empty_alternates(true)
                .build();
            if let Ok(compiled) = compiled {
                builder.add(compiled);
            }
        }
        Self {
            set: builder.build().unwrap_or_else(|_| GlobSet::empty()),
            globs,
        }
    }

    /// Returns true if every path matches, so that the rule holds from the beginning.
    pub(crate) fn is_universal(&self) -> bool {
        let is_all = |glob: &String| matches!(glob.as_str(), "**" | "**/*" | "*" | "/**");
        self.globs.iter().any(is_all)
    }

    /// Returns true if the path, relative to the workspace, matches one of the globs.
    pub(crate) fn matches(&self, path: &str) -> bool {
        self.set.is_match(path)
    }

    /// Returns the globs as they were written.
    pub(crate) fn globs(&self) -> &[String] {
        &self.globs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_paths() {
        let check = |glob: &str, path: &str, expected: bool| {
            let condition = PathCondition::new(vec![glob.to_owned()]);
            assert_eq!(condition.matches(path), expected, "{glob} {path}");
        };
        check("*.ts", "a.ts", true);
        check("*.ts", "src/a.ts", true);
        check("src/*.ts", "src/a.ts", true);
        check("src/*.ts", "src/b/a.ts", false);
        check("src/**/*.{ts,tsx}", "src/b/a.tsx", true);
        check("src/**/*.{ts,tsx}", "src/a.ts", true);
        check("src/**", "src/b/a", true);
        check("src/", "src/b/a", true);
        check("./src/**", "src/a", true);
        check("src/**", "srcs/a", false);
        check("[", "[", false);
        check("", "a", false);
        assert!(PathCondition::new(vec!["a".to_owned(), "**/*".to_owned()]).is_universal());
        let many = vec!["{".repeat(300), "{a,".repeat(80)];
        assert!(!PathCondition::new(many).matches("a"));
    }
}
