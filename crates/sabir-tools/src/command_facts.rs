//! Gathers the facts about a command's environment that the policy needs in order to check it.

use std::cell::RefCell;
use std::io::ErrorKind;
use std::path::Path;

use sabir_policy::{
    BuildTrust, CommandFacts, FileNames, RepositoryState, RequiredFacts, SecretFile, SecretFiles,
    ShellKind, SymlinkTraversal, TrackedSecrets, is_plain_name, is_python_tool,
    may_be_in_workspace, may_end_secret_path, names_secret_file, required_facts,
};
use sabir_workspace::{
    EffectiveLevel, FileSurvey, GitConfig, GitConfigError, HistorySearch, NetworkAccess,
    PathFilter, Sandbox, Trust, TrustState, WorkPath, Workspace, default_shell, find_index_name,
    list_push_addresses, protection_reason,
};

/// The most paths whose links are examined. If a command names more, the policy asks the user.
const MAX_PATHS: usize = 500;

/// The number of files with secrets that are masked one by one. Each is a mount.
pub(crate) const MAX_MASKED: usize = 200;

/// The environment in which a command would run.
#[derive(Debug, Clone, Copy)]
pub struct CommandContext<'a> {
    /// The folder.
    pub workspace: &'a Workspace,
    /// The environment variables.
    pub environment: &'a [(String, String)],
    /// The sandbox, without what a call asks for beyond it.
    pub sandbox: &'a Sandbox,
    /// The program that supervises commands.
    pub helper: &'a Path,
}

impl CommandContext<'_> {
    /// Returns true if the sandbox is really at level 2 here.
    fn is_at_level_2(&self) -> bool {
        let level = self
            .sandbox
            .effective_level(self.workspace, self.helper, self.environment);
        level == Some(EffectiveLevel::Two)
    }
}

/// Gathers the facts for a command line.
///
/// These are the search path of the command's environment, the targets of links in its paths, and the configuration of the repositories
/// that git would read. Each fact is gathered only if the command needs it. Blocks for some milliseconds per fact, and lists the whole
/// workspace if a program follows links.
#[must_use]
pub fn gather_facts(context: &CommandContext<'_>, command: &str) -> CommandFacts {
    let CommandContext {
        workspace,
        environment,
        ..
    } = *context;
    let root = workspace.root();
    let facts = plain_facts(context);
    let clean_path = facts.clean_path;
    let RequiredFacts {
        repositories,
        paths,
        follows_symlinks,
        could_match_secret,
        file_names: needs_file_names,
        index_names: needs_index_names,
        absent_files,
        build_folders,
        tracked_secrets: needs_tracked_secrets,
        history_secrets: needs_history_secrets,
        object_ids,
        push_folder,
    } = required_facts(command, &facts);
    let protected_paths = protected_among(&paths, root);
    let mut links = Vec::new();
    for (index, (path, pattern)) in paths.into_iter().enumerate() {
        // A target of `None` means that it is not known.
        let targets = if index < MAX_PATHS {
            workspace.link_targets(&path, pattern)
        } else {
            vec![None]
        };
        links.extend(targets.into_iter().map(|target| (path.clone(), target)));
    }
    let survey = (could_match_secret || needs_file_names)
        .then(|| {
            workspace
                .survey_files(&names_secret_file, &is_plain_name)
                .ok()
        })
        .flatten();
    let index_names = match needs_index_names {
        true => index_names_of(&repositories, root, environment),
        false => FileNames::Unknown,
    };
    let tracked_secrets = match needs_tracked_secrets {
        true => tracked_secrets_of(&repositories, root, environment),
        false => TrackedSecrets::Unknown,
    };
    let mut history_secrets = TrackedSecrets::Unknown;
    let mut harmless_ids = Vec::new();
    if (needs_history_secrets || !object_ids.is_empty())
        && let Ok(searches) = search_histories(workspace, &repositories, environment, &object_ids)
    {
        let is_blob = |id: &String| searches.iter().any(|one| one.blob_ids.contains(id));
        harmless_ids = object_ids.into_iter().filter(|id| !is_blob(id)).collect();
        let paths = searches.into_iter().flat_map(|one| one.paths);
        history_secrets = TrackedSecrets::Found(paths.collect());
    }
    let repositories = repositories
        .into_iter()
        // If the search path is not clean, `git` may be any program, and its configuration proves
        // nothing.
        .filter(|_| clean_path)
        .map(|folder| {
            let config = GitConfig::of(&root.join(&folder), environment);
            (folder, repository_state(config, workspace.trust()))
        });
    let escaping_link = follows_symlinks.then(|| workspace.find_escaping_link());
    let symlink_traversal = match escaping_link {
        Some(Ok(Some(link))) => SymlinkTraversal::Outside(link),
        Some(Ok(None)) => SymlinkTraversal::Inside,
        Some(Err(_)) | None => SymlinkTraversal::Unknown,
    };
    CommandFacts {
        repositories: repositories.collect(),
        links,
        symlink_traversal,
        secret_files: match secret_files_of(survey.as_ref(), environment) {
            SecretFiles::Found(files)
                if could_match_secret && !files.is_empty() && can_mask_secrets(context, &files) =>
            {
                SecretFiles::Masked(files)
            }
            known => known,
        },
        file_names: survey.map_or(FileNames::Unknown, |survey| to_file_names(survey.odd_name)),
        index_names,
        absent_files: retain_missing(absent_files, root),
        build_folders: decide_builds(context, build_folders),
        protected_paths,
        tracked_secrets,
        history_secrets,
        harmless_ids,
        // Only shown, so what cannot be read is left out.
        push_addresses: push_folder
            .and_then(|folder| list_push_addresses(&root.join(folder), environment).ok())
            .unwrap_or_default(),
        ..facts
    }
}

/// Gathers the facts that do not depend on the command line.
fn plain_facts(context: &CommandContext<'_>) -> CommandFacts {
    let CommandContext {
        workspace,
        environment,
        sandbox,
        ..
    } = *context;
    let root = workspace.root();
    // The last of several equal names is the one that the command gets.
    let path = environment.iter().rev().find(|(name, _)| name == "PATH");
    let workspace_programs = path.and_then(|(_, path)| workspace_programs(path, root));
    let root_name = root
        .to_str()
        .map(|root| root.trim_end_matches('/').to_owned())
        .unwrap_or_default();
    let is_bash = default_shell()
        .file_name()
        .is_some_and(|name| name == "bash");
    // Bash expands more than other shells, which changes what a line can do.
    let shell = if is_bash {
        ShellKind::Bash
    } else {
        ShellKind::Plain
    };
    CommandFacts {
        shell,
        clean_path: workspace_programs.is_some(),
        workspace_programs: workspace_programs.unwrap_or_default(),
        root: root_name,
        // If the sandbox is not available, the command does not run at all.
        confined: sandbox.is_on() && !sandbox.has_network(),
        ..CommandFacts::default()
    }
}

/// Reports whether each of these files can be replaced by an empty one for commands that run unasked, which needs mounts.
fn can_mask_secrets(context: &CommandContext<'_>, files: &[SecretFile]) -> bool {
    files.len() <= MAX_MASKED && context.is_at_level_2()
}

/// Reports whether a command could read a file with secrets that it does not name.
pub(crate) fn could_read_secrets(context: &CommandContext<'_>, command: &str) -> bool {
    let facts = plain_facts(context);
    required_facts(command, &facts).could_match_secret
}

/// Finds out in which folders builds and tests may run unasked: those where the sandbox really reaches level 2 without network, and whose
/// repository the user trusts.
fn decide_builds(context: &CommandContext<'_>, folders: Vec<String>) -> Vec<(String, BuildTrust)> {
    let CommandContext {
        workspace,
        environment,
        sandbox,
        ..
    } = *context;
    if folders.is_empty()
        || !workspace.trust().covers_builds()
        // A package registry takes uploads, too.
        || sandbox.network() != NetworkAccess::Denied
        || !context.is_at_level_2()
    {
        return Vec::new();
    }
    let decide = |folder: String| {
        let trust = match GitConfig::of(&workspace.root().join(&folder), environment) {
            GitConfig::Repository(programs) => match workspace.trust().state_of(&programs) {
                TrustState::Trusted => BuildTrust::Trusted,
                TrustState::Changed(_) | TrustState::Unknown => BuildTrust::Untrusted,
            },
            // `sabir trust` would not help.
            GitConfig::NoRepository | GitConfig::Unknown(_) => BuildTrust::Unconfined,
        };
        (folder, trust)
    };
    folders.into_iter().map(decide).collect()
}

/// Returns the protected ones among the paths that a line names, with the reason.
fn protected_among(paths: &[(String, bool)], root: &Path) -> Vec<(String, String)> {
    let reason = |(path, is_pattern): &(String, bool)| {
        // Only a pattern whose part begins with a dot matches hidden names, and most protected
        // names are hidden.
        let is_wild = |part: &str| part.starts_with('.') && part.contains(['*', '?', '[']);
        if *is_pattern && path.split('/').any(is_wild) {
            return Some((path.clone(), "it may be one".to_owned()));
        }
        let parsed = WorkPath::parse(path, root).ok()?;
        Some((path.clone(), protection_reason(&parsed)?.to_owned()))
    };
    paths.iter().filter_map(reason).collect()
}

/// Lists the files with secrets in the indexes of the repositories that git would read.
fn tracked_secrets_of(
    folders: &[String],
    root: &Path,
    environment: &[(String, String)],
) -> TrackedSecrets {
    let found = RefCell::new(Vec::new());
    let note_secret = |path: &str| {
        if names_secret_file(path) {
            found.borrow_mut().push(path.to_owned());
        }
        true
    };
    for folder in folders {
        // A name that is not UTF-8 ends the walk too early.
        if !matches!(
            find_index_name(&root.join(folder), environment, &note_secret),
            Ok(None)
        ) {
            return TrackedSecrets::Unknown;
        }
    }
    TrackedSecrets::Found(found.into_inner())
}

/// Looks through the commits of the repositories that git would read.
fn search_histories(
    workspace: &Workspace,
    folders: &[String],
    environment: &[(String, String)],
    ids: &[String],
) -> Result<Vec<HistorySearch>, GitConfigError> {
    let filter = PathFilter {
        may_end_with: may_end_secret_path,
        is_wanted: names_secret_file,
    };
    let root = workspace.root();
    let searches = folders
        .iter()
        .map(|folder| workspace.search_history(&root.join(folder), environment, &filter, ids));
    searches.collect()
}

/// Returns the files with secrets that a survey found.
fn secret_files_of(survey: Option<&FileSurvey>, environment: &[(String, String)]) -> SecretFiles {
    let Some(survey) = survey else {
        return SecretFiles::Unknown;
    };
    // A configuration file may make `rg` search hidden files, too.
    let configured = environment
        .iter()
        .any(|(name, _)| name == "RIPGREP_CONFIG_PATH");
    let files = survey.secret_files.iter().map(|secret| SecretFile {
        path: secret.path.clone(),
        ignored: secret.ignored && !configured,
    });
    SecretFiles::Found(files.collect())
}

/// Looks for names that would be split in the indexes of the repositories that git would read.
fn index_names_of(folders: &[String], root: &Path, environment: &[(String, String)]) -> FileNames {
    for folder in folders {
        match find_index_name(&root.join(folder), environment, &is_plain_name) {
            Ok(None) => {}
            Ok(Some(name)) => return FileNames::Odd(name),
            Err(_) => return FileNames::Unknown,
        }
    }
    FileNames::Plain
}

/// Keeps the files that do not exist. A file that cannot be examined may exist.
fn retain_missing(files: Vec<String>, root: &Path) -> Vec<String> {
    let is_absent = |file: &String| {
        root.join(file)
            .symlink_metadata()
            .is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
    };
    files.into_iter().filter(is_absent).collect()
}

fn to_file_names(odd_name: Option<String>) -> FileNames {
    odd_name.map_or(FileNames::Plain, FileNames::Odd)
}

/// Checks the configuration of a repository. Programs that the user trusts count as none.
fn repository_state(config: GitConfig, trust: &Trust) -> RepositoryState {
    match config {
        GitConfig::Unknown(_) => RepositoryState::Unknown,
        GitConfig::NoRepository => RepositoryState::None,
        GitConfig::Repository(programs) if programs.is_empty() => RepositoryState::Clean,
        GitConfig::Repository(programs) => match trust.state_of(&programs) {
            TrustState::Trusted => RepositoryState::Clean,
            TrustState::Changed(things) => RepositoryState::Changed(things),
            TrustState::Unknown => RepositoryState::Executes(programs.running_keys()),
        },
    }
}

/// The folders of the programs that come with the system, and that start each other.
const SYSTEM_FOLDERS: [&str; 4] = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"];

/// The most programs of the workspace that a search path may have.
const MAX_WORKSPACE_PROGRAMS: usize = 2000;

/// Returns the names in those folders of a search path that lie in the workspace, as the `bin` of an activated virtual environment does.
///
/// Returns `None` if the name of a system program may run a file of the workspace: a folder is relative or cannot be listed, or holds a
/// program that other programs start or that a system folder has too (`/usr/bin`, `/bin`, `/usr/sbin`, `/sbin`).
#[must_use]
pub fn workspace_programs(path: &str, root: &Path) -> Option<Vec<String>> {
    let folders: Vec<&Path> = path.split(':').map(Path::new).collect();
    if !folders.iter().all(|folder| folder.is_absolute()) {
        return None;
    }
    // The resolved location of a folder counts as well. A missing folder holds no programs.
    let is_inside = |folder: &Path| {
        folder.starts_with(root)
            || folder
                .canonicalize()
                .is_ok_and(|real| real.starts_with(root))
    };
    let mut programs = Vec::new();
    for folder in folders.into_iter().filter(|folder| is_inside(folder)) {
        let entries = match folder.read_dir() {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(_) => return None,
        };
        for entry in entries {
            let name = entry.ok()?.file_name().into_string().ok()?;
            let is_of_system = |folder: &&str| Path::new(folder).join(&name).exists();
            let hides_system_program =
                || !is_python_tool(&name) && SYSTEM_FOLDERS.iter().any(is_of_system);
            if programs.len() == MAX_WORKSPACE_PROGRAMS
                || !may_be_in_workspace(&name)
                || hides_system_program()
            {
                return None;
            }
            programs.push(name);
        }
    }
    Some(programs)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::workspace_programs;

    #[test]
    fn folders_of_a_search_path_are_absolute() {
        let check = |path: &str, is_clean: bool| {
            let found = workspace_programs(path, Path::new("/w/proj"));
            assert_eq!(found, is_clean.then(Vec::new), "{path}");
        };
        check("/usr/bin:/bin", true);
        check(".:/bin", false);
        check("/bin:", false);
        check("", false);
        check("/bin:/w/proj/missing", true);
        check("/w/project/bin:/bin", true);
    }

    #[test]
    fn a_workspace_may_have_programs_of_its_own_but_none_in_place_of_the_systems() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let own = root.join("bin");
        fs::create_dir(&own).unwrap();
        let path = format!("{}:/usr/bin:/bin", own.display());
        let found = || {
            let mut names = workspace_programs(&path, &root)?;
            names.sort();
            Some(names.join(" "))
        };
        for name in ["python3", "pip3.11", "activate", "pytest", "flask-of-ours"] {
            fs::write(own.join(name), "").unwrap();
        }
        let usual = "activate flask-of-ours pip3.11 pytest python3";
        assert_eq!(found().as_deref(), Some(usual));
        // `ls` is in the tables, `perl` runs scripts, git starts `git-x`, and the system has `ldd`.
        // kubectl starts what logs in to a cluster, and mvn starts `java`.
        for name in [
            "ls",
            "perl",
            "git-x",
            "less",
            "xargs",
            "cargo",
            "ldd",
            "kubelogin",
            "java",
        ] {
            fs::write(own.join(name), "").unwrap();
            assert_eq!(found(), None, "{name}");
            fs::remove_file(own.join(name)).unwrap();
        }
        assert_eq!(found().as_deref(), Some(usual));
        // A link from outside leads inside.
        let elsewhere = tempfile::tempdir().unwrap();
        let link = elsewhere.path().join("link");
        std::os::unix::fs::symlink(&own, &link).unwrap();
        fs::write(own.join("ls"), "").unwrap();
        let path = format!("{}:/bin", link.display());
        assert_eq!(workspace_programs(&path, &root), None);
    }
}
