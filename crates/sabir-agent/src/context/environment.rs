//! Facts about the folder and the date, as they were when the task began.

use super::fragment::{ContextFragment, FragmentKind};

/// Facts for the model about its environment, besides the folder and the operating system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EnvironmentFacts<'a> {
    /// The date, as `2026-11-22`.
    pub date: &'a str,
    /// The shell that runs commands.
    pub shell: &'a str,
    /// The branch of the repository, if the folder is the top of one.
    pub branch: Option<&'a str>,
}

impl EnvironmentFacts<'_> {
    /// The most bytes of the fragment: 1 KiB.
    pub const MAX_BYTES: usize = 1024;

    /// Renders the facts as a fragment.
    pub fn to_fragment(&self) -> ContextFragment {
        let branch = self
            .branch
            .map(|branch| format!("\nGit branch: {branch}"))
            .unwrap_or_default();
        let text = format!("Date: {}\nShell: {}{branch}", self.date, self.shell);
        ContextFragment::with_cap(
            FragmentKind::Place,
            "the place",
            &text,
            text.len() as u64,
            Self::MAX_BYTES,
        )
    }
}
