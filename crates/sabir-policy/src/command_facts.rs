//! Facts: what a judgement needs to know of the place where a command would run, gathered by whoever may look.

/// What is known of the place. The default knows nothing, and what is not known is asked about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandFacts {
    /// The shell that gets the command line.
    pub shell: ShellKind,
    /// Whether every folder of `PATH` is absolute and outside of the workspace, so that a bare name is a program of the system.
    pub clean_path: bool,
    /// The workspace's folder, absolute, without a `/` at its end; empty where it is not known.
    pub root: String,
    /// What git would find, for folders inside the workspace: relative, `.` for the workspace itself. One that is not listed
    /// is unknown.
    pub repositories: Vec<(String, RepositoryState)>,
    /// Paths that the line names ([`required_facts`](super::required_facts)) and that links lead elsewhere: to this path in the workspace, or out of
    /// it, or where it cannot be said.
    pub links: Vec<(String, Option<String>)>,
    /// Where links lead that a program meets on its own way.
    pub symlink_traversal: SymlinkTraversal,
}

/// Where the links of a workspace lead, wherever they lie in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SymlinkTraversal {
    /// They were not looked at, or there are too many files.
    #[default]
    Unknown,
    /// None leads out of the workspace, but to programs.
    Inside,
    /// This one does.
    Outside(String),
}

/// What has to be known to judge a command line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequiredFacts {
    /// The folders inside the workspace whose repositories have to be known: `.` for the workspace.
    pub repositories: Vec<String>,
    /// The paths inside the workspace that it names, as it spells them, each with whether it is a pattern of the shell. There are
    /// more than these if there are very many.
    pub paths: Vec<(String, bool)>,
    /// Whether a program of it follows links that it meets.
    pub follows_symlinks: bool,
}

/// A shell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ShellKind {
    /// bash.
    #[default]
    Bash,
    /// A shell that knows no more than POSIX says: `[[` is a program there, and braces are letters.
    Plain,
    /// zsh, whose own expansions can run commands. Only what means the same in both is judged.
    Zsh,
}

/// What git would find in a folder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum RepositoryState {
    /// It could not be found out.
    #[default]
    Unknown,
    /// No repository.
    None,
    /// A repository whose configuration runs nothing.
    Clean,
    /// A repository whose own configuration names programs: the keys that do.
    Executes(Vec<String>),
    /// One that the user trusted as it was: what has changed since.
    Changed(Vec<String>),
}

impl CommandFacts {
    /// What git would find in a folder of the workspace.
    pub(super) fn repository_state(&self, folder: &str) -> &RepositoryState {
        let known = self.repositories.iter().find(|(name, _)| name == folder);
        known.map_or(&RepositoryState::Unknown, |(_, repository)| repository)
    }
}
