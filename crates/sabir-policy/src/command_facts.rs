//! Facts about the environment of a command, which the caller gathers because this crate touches nothing.
//!
//! The policy asks for facts in two rounds. [`required_facts`](super::required_facts) walks the line with what is known and
//! returns what else would settle a question; the caller looks it up and checks with the complete facts. So a plain `ls` costs no look
//! at the disk, and `grep -r` one walk over the workspace.
//!
//! ```
//! use sabir_policy::{Access, ExtraPermissions, CommandFacts, PolicyRules, SecretFile, SecretFiles, Verdict, required_facts};
//!
//! let mut facts = CommandFacts { clean_path: true, ..CommandFacts::default() };
//! let line = "grep -rn TODO .";
//! assert!(required_facts(line, &facts).could_match_secret);
//! assert!(!required_facts("ls -l", &facts).could_match_secret);
//!
//! // The caller walks the workspace and finds one file whose name passes `names_secret_file`.
//! facts.secret_files = SecretFiles::Found(vec![SecretFile { path: ".env".to_owned(), ignored: true }]);
//! let access = Access::Command { command: line.to_owned(), facts, beyond: ExtraPermissions::Nothing };
//! let decision = PolicyRules::default().decide(&access);
//! assert_eq!(decision.verdict, Verdict::Ask);
//! assert!(decision.reason.contains(".env"));
//! ```

/// Facts about the environment where a command would run. The default knows nothing, and anything unknown asks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandFacts {
    /// The shell that runs the command line.
    pub shell: ShellKind,
    /// True if a bare name is a system program, unless it is listed in `workspace_programs`: every folder of `PATH` is absolute, and
    /// lies outside of the workspace or holds only programs for which [`may_be_in_workspace`](super::may_be_in_workspace) is true.
    pub clean_path: bool,
    /// The names in those folders of `PATH` that lie in the workspace, such as `.venv/bin` of an activated virtual environment.
    pub workspace_programs: Vec<String>,
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
    /// The files of the workspace that usually hold secrets.
    pub secret_files: SecretFiles,
    /// The names of the files in the workspace.
    pub file_names: FileNames,
    /// The names in the index of the workspace's repository, which `git ls-files` prints even where the file is gone.
    pub index_names: FileNames,
    /// Files that were looked for and are not there, relative to the workspace. Any other file may be there.
    pub absent_files: Vec<String>,
    /// True if a command that runs unasked can neither write in the workspace nor reach the network, nor see denied paths.
    pub confined: bool,
    /// The folders in which the line builds or tests, relative to the workspace (`.` for the
    /// workspace itself), with the trust in them. In a folder that is not listed builds ask.
    pub build_folders: Vec<(String, BuildTrust)>,
    /// The paths that the line names and that are protected, as [`RequiredFacts::paths`] spells them, with the reason.
    pub protected_paths: Vec<(String, String)>,
    /// The files with secrets in git's index.
    pub tracked_secrets: TrackedSecrets,
    /// The files with secrets that any commit of the repositories holds.
    pub history_secrets: TrackedSecrets,
    /// The words among [`RequiredFacts::object_ids`] that are not the id of a file's content. Any other may be.
    pub harmless_ids: Vec<String>,
    /// The remotes that git could push to, by name, with their addresses. Only shown in questions.
    pub push_addresses: Vec<(String, String)>,
    /// The reason why the command does not reach the ports of the machine's loopback that its line names. Only shown in questions.
    pub loopback_wall: Option<String>,
}

/// The answer to whether builds and tests in a folder may run unasked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BuildTrust {
    /// No: they are not confined to the folder, or the user does not want it.
    #[default]
    Unconfined,
    /// They are confined to the folder and have no network, but the user does not trust its repository. The question says how to trust it.
    Untrusted,
    /// They are confined to the folder and have no network, and the user trusts its repository.
    Trusted,
}

/// The files with secrets that git keeps in the repositories that the line reads: in the index, which `git diff` and `git grep`
/// show without naming them, or in any commit, as `git show` and `git log -p` do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum TrackedSecrets {
    /// They were not searched, or could not be. Commands that show contents ask.
    #[default]
    Unknown,
    /// Their paths relative to the top of their repository; empty if there are none. For files in commits, each end of the path is listed
    /// as well, since any folder may have been the top.
    Found(Vec<String>),
}

/// The files of the workspace that usually hold secrets, by [`names_secret_file`](super::names_secret_file).
///
/// A command that does not name such a file may still read it: `cat *`, `grep -r KEY .`. It runs unasked only if none is in
/// its reach.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SecretFiles {
    /// The workspace was not searched, or has too many files for that. Commands that could read one ask.
    #[default]
    Unknown,
    /// These files. A command that runs unasked and only reads sees an empty file in place of each. A line that does more, or leaves its
    /// sandbox, is checked as with [`Found`](Self::Found).
    Masked(Vec<SecretFile>),
    /// These files, and the links that lead to one. Empty if there are none.
    Found(Vec<SecretFile>),
}

/// A file that usually holds secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretFile {
    /// The path relative to the workspace.
    pub path: String,
    /// True if `rg` skips the file by default, because it is hidden or an ignore file names it.
    pub ignored: bool,
}

/// The properties of file names that matter when a command passes them on as text.
///
/// `find . | xargs cat` splits names at blanks, so that a file `a /etc/passwd` in the folder `a ` makes it read `/etc/passwd`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum FileNames {
    /// The names were not listed, or there are too many. Names that are separated by blanks or line feeds count as any text.
    #[default]
    Unknown,
    /// No component of any path holds blanks, control characters, quotes, backslashes or characters of patterns
    /// (`*`, `?`, `[`), or begins with `-` or `~`. See [`is_plain_name`](super::is_plain_name).
    Plain,
    /// At least one path does not have plain names; holds that path.
    Odd(String),
}

/// Reports whether a path stays one word wherever the shell or `xargs` splits text into words.
///
/// The caller of [`CommandFacts::file_names`] applies this to every path of the workspace.
///
/// ```
/// use sabir_policy::is_plain_name;
///
/// assert!(is_plain_name("src/main.rs"));
/// // `xargs` makes two words of it, and the second is a path outside.
/// assert!(!is_plain_name("a /etc/passwd"));
/// // Behind `sort` it would be an option.
/// assert!(!is_plain_name("-o"));
/// ```
pub fn is_plain_name(path: &str) -> bool {
    let breaks = |c: char| c.is_whitespace() || c.is_control() || "'\"\\*?[".contains(c);
    !path.contains(breaks) && path.split('/').all(|part| !part.starts_with(['-', '~']))
}

/// The targets of all symbolic links of a workspace, taken together.
///
/// A link inside of the workspace that leads inside is harmless; what it leads to is checked by its own path.
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

/// The facts that are needed to check a command line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequiredFacts {
    /// The folders whose repository state is needed, relative to the workspace (`.` for the workspace itself).
    pub repositories: Vec<String>,
    /// The workspace paths that the line names, as it spells them, each with true if it is a shell pattern. The list is cut off
    /// at an internal limit, so it may be incomplete for a line that names very many paths.
    pub paths: Vec<(String, bool)>,
    /// True if a program of the line follows symbolic links that it meets.
    pub follows_symlinks: bool,
    /// True if a program of the line could read a file with secrets that the line does not name
    /// ([`CommandFacts::secret_files`]).
    pub could_match_secret: bool,
    /// True if the line passes names of files on as text ([`CommandFacts::file_names`]).
    pub file_names: bool,
    /// True if the line passes names from git's index on as text ([`CommandFacts::index_names`]).
    pub index_names: bool,
    /// Files whose absence would settle a question ([`CommandFacts::absent_files`]), relative to the workspace.
    pub absent_files: Vec<String>,
    /// The folders in which the line builds or tests ([`CommandFacts::build_folders`]).
    pub build_folders: Vec<String>,
    /// True if git would show contents of files in its index that the line does not name ([`CommandFacts::tracked_secrets`]).
    pub tracked_secrets: bool,
    /// True if git would show contents of files in its commits that the line does not name ([`CommandFacts::history_secrets`]).
    pub history_secrets: bool,
    /// The words that may be ids of contents which git would show ([`CommandFacts::harmless_ids`]).
    pub object_ids: Vec<String>,
    /// The folder from which git would push ([`CommandFacts::push_addresses`]), if it does.
    pub push_folder: Option<String>,
}

/// The shell that runs a command line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ShellKind {
    /// bash.
    #[default]
    Bash,
    /// A shell with nothing beyond POSIX: `[[` is a program there, and braces are ordinary characters.
    Plain,
    /// zsh, whose own expansions can run commands. Only syntax with the same meaning in bash is checked.
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

    /// Returns the trust in builds in a folder of the workspace; `None` if the caller did not look it up.
    pub(super) fn build_trust(&self, folder: &str) -> Option<BuildTrust> {
        let known = self.build_folders.iter().find(|(name, _)| name == folder);
        known.map(|(_, trust)| *trust)
    }
}
