//! Facts about the environment of a command, which the caller gathers because this crate touches nothing.

/// Facts about the environment where a command would run. The default knows nothing, and anything unknown asks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandFacts {
    /// The shell that runs the command line.
    pub shell: ShellKind,
    /// True if every folder of `PATH` is absolute and outside of the workspace, so that a bare name is a system program.
    pub clean_path: bool,
    /// The absolute path of the workspace folder without a final `/`; empty if it is not known.
    pub root: String,
    /// The repository that git would find from each folder, with the folder relative to the workspace (`.` for the workspace
    /// itself). A folder that is not listed counts as [`RepositoryState::Unknown`].
    pub repositories: Vec<(String, RepositoryState)>,
    /// The named paths ([`required_facts`](super::required_facts)) that are symbolic links or lie behind one, with the workspace
    /// path that they lead to. `None` if they lead out of the workspace or the target cannot be determined.
    pub links: Vec<(String, Option<String>)>,
    /// The targets of symbolic links that a program may meet while it walks the tree.
    pub symlink_traversal: SymlinkTraversal,
}

/// The targets of all symbolic links of a workspace, taken together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SymlinkTraversal {
    /// The links were not checked, or the workspace has too many files for that.
    #[default]
    Unknown,
    /// No link leads out of the workspace, except links to programs.
    Inside,
    /// At least one link leads out of the workspace; holds its path.
    Outside(String),
}

/// The facts that are needed to judge a command line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequiredFacts {
    /// The folders whose repository state is needed, relative to the workspace (`.` for the workspace itself).
    pub repositories: Vec<String>,
    /// The workspace paths that the line names, as it spells them, each with true if it is a shell pattern. The list is cut off
    /// at an internal limit, so it may be incomplete for a line that names very many paths.
    pub paths: Vec<(String, bool)>,
    /// True if a program of the line follows symbolic links that it meets.
    pub follows_symlinks: bool,
}

/// The shell that runs a command line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ShellKind {
    /// bash.
    #[default]
    Bash,
    /// A shell with nothing beyond POSIX: `[[` is a program there, and braces are ordinary characters.
    Plain,
    /// zsh, whose own expansions can run commands. Only syntax with the same meaning in bash is judged.
    Zsh,
}

/// The repository that git would find from a folder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum RepositoryState {
    /// The state could not be determined.
    #[default]
    Unknown,
    /// No repository.
    None,
    /// A repository whose configuration runs nothing.
    Clean,
    /// A repository whose own configuration names programs; holds the keys that do.
    Executes(Vec<String>),
    /// A repository that changed since the user trusted it; holds the changes.
    Changed(Vec<String>),
}

impl CommandFacts {
    /// Returns the state of the repository that git would find from a folder of the workspace.
    pub(super) fn repository_state(&self, folder: &str) -> &RepositoryState {
        let known = self.repositories.iter().find(|(name, _)| name == folder);
        known.map_or(&RepositoryState::Unknown, |(_, repository)| repository)
    }
}
