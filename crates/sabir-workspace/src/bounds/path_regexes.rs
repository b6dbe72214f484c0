//! Matches paths against regular expressions, as the modes of other agents define them: an
//! expression may match anywhere in the path relative to the workspace folder. The engine is
//! linear, so none can hang it.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use grep_matcher::Matcher;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};

use super::BoundsError;

const MAX_COMPILED_BYTES: usize = 1 << 20;

/// A set of regular expressions with their source texts.
#[derive(Debug, Clone, Default)]
pub(crate) struct PathRegexes(Vec<(String, RegexMatcher)>);

impl PathRegexes {
    pub(crate) fn new(written: impl IntoIterator<Item = String>) -> Result<Self, BoundsError> {
        let compile = |text: String| match RegexMatcherBuilder::new()
            .size_limit(MAX_COMPILED_BYTES)
            .build(&text)
        {
            Ok(matcher) => Ok((text, matcher)),
            Err(error) => Err(BoundsError {
                glob: text,
                reason: error.to_string(),
            }),
        };
        written
            .into_iter()
            .map(compile)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if an expression matches. If the engine gives up, the path counts as not
    /// matching, which forbids the write.
    pub(crate) fn matches_path(&self, path: &Path) -> bool {
        self.0.iter().any(|(_, matcher)| {
            matcher
                .is_match(path.as_os_str().as_bytes())
                .unwrap_or(false)
        })
    }
}

/// Writes the expressions as "`/a/`, `/b/`".
impl fmt::Display for PathRegexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (text, _)) in self.0.iter().enumerate() {
            write!(f, "{}`/{text}/`", if index > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}
