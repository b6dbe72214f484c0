//! What the policy has to know of the place where a command would run.

use std::path::Path;

use sabir_policy::{
    CommandFacts, RepositoryState, RequiredFacts, ShellKind, SymlinkTraversal, required_facts,
};
use sabir_workspace::{GitConfig, Trust, TrustState, Workspace, default_shell};

/// More paths than these are not looked at: a line that names more is asked about.
const MAX_PATHS: usize = 500;

/// Gathers the facts for a command line: the search path of the environment it gets, where links lead the paths that it names, and
/// the configuration of the repositories that git would read, if it is a line that needs them. Blocks for some milliseconds for
/// each of those, and for a look at every file of the workspace where a program follows links that it meets.
#[must_use]
pub fn gather_facts(
    workspace: &Workspace,
    environment: &[(String, String)],
    command: &str,
) -> CommandFacts {
    let root = workspace.root();
    let path = environment.iter().rev().find(|(name, _)| name == "PATH");
    let clean_path = path.is_some_and(|(_, path)| is_clean_search_path(path, root));
    let name = root
        .to_str()
        .map(|root| root.trim_end_matches('/').to_owned())
        .unwrap_or_default();
    let bash = default_shell()
        .file_name()
        .is_some_and(|name| name == "bash");
    let shell = if bash {
        ShellKind::Bash
    } else {
        ShellKind::Plain
    };
    let facts = CommandFacts {
        shell,
        clean_path,
        root: name,
        ..CommandFacts::default()
    };
    let RequiredFacts {
        repositories,
        paths,
        follows_symlinks: roams,
    } = required_facts(command, &facts);
    let mut links = Vec::new();
    for (at, (path, pattern)) in paths.into_iter().enumerate() {
        let leads = if at < MAX_PATHS {
            workspace.link_targets(&path, pattern)
        } else {
            vec![None]
        };
        links.extend(leads.into_iter().map(|leads| (path.clone(), leads)));
    }
    let known = repositories
        .into_iter()
        .filter(|_| clean_path)
        .map(|folder| {
            let found = GitConfig::of(&root.join(&folder), environment);
            (folder, repository_facts(found, workspace.trust()))
        });
    let roaming = match roams.then(|| workspace.find_escaping_link()) {
        Some(Ok(Some(link))) => SymlinkTraversal::Outside(link),
        Some(Ok(None)) => SymlinkTraversal::Inside,
        Some(Err(_)) | None => SymlinkTraversal::Unknown,
    };
    CommandFacts {
        repositories: known.collect(),
        links,
        symlink_traversal: roaming,
        ..facts
    }
}

fn repository_facts(found: GitConfig, trust: &Trust) -> RepositoryState {
    match found {
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

/// Whether every folder of a search path is absolute and outside of the workspace.
pub(crate) fn is_clean_search_path(path: &str, root: &Path) -> bool {
    let outside = |folder: &str| {
        let folder = Path::new(folder);
        // What a link leads to is what counts; a folder that is not there holds no programs.
        let real = folder.canonicalize();
        folder.is_absolute()
            && !folder.starts_with(root)
            && !real.is_ok_and(|real| real.starts_with(root))
    };
    path.split(':').all(outside)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::is_clean_search_path;

    #[test]
    fn search_paths() {
        let check = |path: &str, expected| {
            assert_eq!(
                is_clean_search_path(path, Path::new("/w/proj")),
                expected,
                "{path}"
            )
        };
        check("/usr/bin:/bin", true);
        check(".:/bin", false);
        check("/bin:", false);
        check("", false);
        check("/bin:/w/proj/node_modules/.bin", false);
        check("/w/project/bin:/bin", true);
    }
}
