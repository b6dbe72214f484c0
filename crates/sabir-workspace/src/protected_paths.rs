//! Lists the names whose change makes some program run something later.

use std::path::Path;

const GIT: &str = "git's own files";
const OTHER_VCS: &str = "a version control system's configuration";
const EDITOR: &str = "an editor's configuration";
const PACKAGES: &str = "a package manager's configuration";
const SHELL: &str = "a shell's or a command's start-up file";
const TOOLCHAIN: &str = "a choice of the programs that build";
const CI: &str = "a CI configuration";
const AGENT: &str = "a coding agent's configuration or instructions";
const OURS: &str = "Sabir's own configuration";

/// The folded names, each one or more components joined by `/`, which match anywhere in a path. A
/// trailing `*` matches any rest of that component.
const PROTECTED: &[(&str, &str)] = &[
    (".git", GIT),
    // The short name that a file system with 8.3 names gives to `.git`.
    ("git~1", GIT),
    (".gitmodules", GIT),
    (".gitattributes", GIT),
    (".gitconfig", GIT),
    (".hg/hgrc", OTHER_VCS),
    (".jj/repo/config*", OTHER_VCS),
    (".pijul/config", OTHER_VCS),
    (".husky", GIT),
    (".vscode", EDITOR),
    (".idea", EDITOR),
    (".zed", EDITOR),
    (".fleet", EDITOR),
    (".vs", EDITOR),
    (".exrc", EDITOR),
    (".nvimrc", EDITOR),
    (".vimrc", EDITOR),
    (".nvim.lua", EDITOR),
    (".dir-locals*", EDITOR),
    (".helix", EDITOR),
    (".lvimrc", EDITOR),
    (".local.vimrc", EDITOR),
    (".nova", EDITOR),
    (".ycm_extra_conf.py", EDITOR),
    (".gitpod*", EDITOR),
    (".idx", EDITOR),
    (".devcontainer", EDITOR),
    (".devcontainer.json", EDITOR),
    (".envrc", SHELL),
    (".direnv", SHELL),
    (".bashrc", SHELL),
    (".bash_profile", SHELL),
    (".bash_login", SHELL),
    (".bash_logout", SHELL),
    (".profile", SHELL),
    (".zshrc", SHELL),
    (".zshenv", SHELL),
    (".zprofile", SHELL),
    (".zlogin", SHELL),
    (".zlogout", SHELL),
    (".bash_aliases", SHELL),
    (".autoenv*", SHELL),
    (".ripgreprc", SHELL),
    (".gdbinit", SHELL),
    (".lldbinit", SHELL),
    (".pdbrc", SHELL),
    (".irbrc", SHELL),
    (".pryrc", SHELL),
    (".rprofile", SHELL),
    (".renviron", SHELL),
    (".octaverc", SHELL),
    (".ghci", SHELL),
    (".ocamlinit", SHELL),
    (".iex.exs", SHELL),
    ("rust-toolchain", TOOLCHAIN),
    ("rust-toolchain.toml", TOOLCHAIN),
    (".tool-versions", TOOLCHAIN),
    (".mise*", TOOLCHAIN),
    ("mise.toml", TOOLCHAIN),
    ("mise.local.toml", TOOLCHAIN),
    (".rtx.toml", TOOLCHAIN),
    (".sdkmanrc", TOOLCHAIN),
    (".config/mise*", TOOLCHAIN),
    (".bazelrc", TOOLCHAIN),
    (".bazelversion", TOOLCHAIN),
    ("global.json", TOOLCHAIN),
    (".npmrc", PACKAGES),
    (".yarnrc*", PACKAGES),
    (".yarn", PACKAGES),
    (".pnpmfile*", PACKAGES),
    (".pnp.*", PACKAGES),
    (".mvn", PACKAGES),
    ("bunfig.toml", PACKAGES),
    (".cargo/config*", PACKAGES),
    (".cargo/credentials*", PACKAGES),
    ("pip.conf", PACKAGES),
    (".pypirc", PACKAGES),
    (".github/workflows", CI),
    (".github/actions", CI),
    (".gitlab-ci.yml", CI),
    (".gitlab-ci.yaml", CI),
    (".gitlab/ci", CI),
    (".circleci", CI),
    (".buildkite", CI),
    (".forgejo", CI),
    (".gitea", CI),
    (".woodpecker*", CI),
    (".drone.yml", CI),
    (".travis.yml", CI),
    (".appveyor.yml", CI),
    ("appveyor.yml", CI),
    ("azure-pipelines*", CI),
    ("bitbucket-pipelines.yml", CI),
    ("jenkinsfile*", CI),
    (".pre-commit-config.yaml", CI),
    (".pre-commit-config.yml", CI),
    ("lefthook*", CI),
    (".lefthook*", CI),
    (".huskyrc*", CI),
    (".claude*", AGENT),
    (".cursor*", AGENT),
    (".cline*", AGENT),
    (".roo*", AGENT),
    (".windsurf*", AGENT),
    (".codex", AGENT),
    (".gemini*", AGENT),
    (".qwen", AGENT),
    (".opencode*", AGENT),
    ("opencode.json*", AGENT),
    (".crush*", AGENT),
    ("crush.json", AGENT),
    (".aider*", AGENT),
    (".continue*", AGENT),
    (".amp", AGENT),
    (".amazonq", AGENT),
    (".factory", AGENT),
    (".grok", AGENT),
    (".warp", AGENT),
    ("warp.md", AGENT),
    (".rules", AGENT),
    (".kiro", AGENT),
    (".kilocode*", AGENT),
    (".goosehints", AGENT),
    (".goose", AGENT),
    (".augment*", AGENT),
    (".junie", AGENT),
    (".trae", AGENT),
    (".mcp.json", AGENT),
    (".agents", AGENT),
    (".agent", AGENT),
    ("agents.md", AGENT),
    ("agents.override.md", AGENT),
    ("agents.local.md", AGENT),
    ("agent.md", AGENT),
    ("claude.md", AGENT),
    ("claude.local.md", AGENT),
    ("gemini.md", AGENT),
    ("qwen.md", AGENT),
    ("crush.md", AGENT),
    (".github/copilot-instructions.md", AGENT),
    (".github/instructions", AGENT),
    (".github/prompts", AGENT),
    (".github/agents", AGENT),
    (".github/chatmodes", AGENT),
    (".sabir*", OURS),
];

/// Returns the reason of the first row that the path matches.
pub(crate) fn find_protection_reason(path: &Path) -> Option<&'static str> {
    let names: Vec<String> = path
        .components()
        .map(|part| fold_name(&part.as_os_str().to_string_lossy()))
        .collect();
    PROTECTED
        .iter()
        .find(|(row, _)| matches_row(&names, row))
        .map(|&(_, reason)| reason)
}

fn matches_row(names: &[String], row: &str) -> bool {
    // Most rows are one name; this is called for every entry of a folder.
    if !row.contains('/') {
        return names.iter().any(|name| matches_component(name, row));
    }
    let wanted: Vec<&str> = row.split('/').collect();
    names.windows(wanted.len()).any(|window| {
        window
            .iter()
            .zip(&wanted)
            .all(|(name, wanted)| matches_component(name, wanted))
    })
}

fn matches_component(name: &str, wanted: &str) -> bool {
    match wanted.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == wanted,
    }
}

/// Returns true for a folder, relative to the workspace, that is not protected itself but may
/// contain protected names, such as `.github`.
pub(crate) fn holds_protected_names(folder: &Path) -> bool {
    let names: Vec<String> = folder
        .components()
        .map(|part| fold_name(&part.as_os_str().to_string_lossy()))
        .collect();
    PROTECTED.iter().any(|(row, _)| {
        let mut wanted = row.split('/');
        let begins = names.iter().all(|name| {
            wanted
                .next()
                .is_some_and(|part| matches_component(name, part))
        });
        begins && wanted.next().is_some()
    })
}

/// Folds a name as the most lenient file system would: without invisible characters, letter case,
/// and the trailing dots, trailing spaces and stream suffix that Windows drops.
fn fold_name(name: &str) -> String {
    let visible = name.chars().filter(|&c| !is_ignorable(c));
    // Upper case first, because the long s and the Kelvin sign only share their upper (lower) case
    // with plain letters.
    let folded: String = visible
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase)
        .collect();
    let stem = folded.split(':').next().unwrap_or_default();
    stem.trim_end_matches(['.', ' ']).to_owned()
}

/// Returns true for control characters and code points that Unicode calls default-ignorable: HFS+
/// drops some of them from names, and none is visible in a prompt.
fn is_ignorable(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, expected: Option<&str>) {
        assert_eq!(
            find_protection_reason(Path::new(path)),
            expected,
            "{path:?}"
        );
    }

    #[test]
    fn protected_names_are_recognized() {
        check(".git/hooks/pre-commit", Some(GIT));
        check(".git", Some(GIT));
        check("sub/.git/config", Some(GIT));
        check(".git/modules/sm/hooks/post-checkout", Some(GIT));
        check(".vscode/tasks.json", Some(EDITOR));
        check(".idea/x.iml", Some(EDITOR));
        check("deep/down/.envrc", Some(SHELL));
        check(".gitattributes", Some(GIT));
        check("sub/.ripgreprc", Some(SHELL));
        check(".npmrc", Some(PACKAGES));
        check(".yarnrc.yml", Some(PACKAGES));
        check("rust-toolchain.toml", Some(TOOLCHAIN));
        check("sub/.tool-versions", Some(TOOLCHAIN));
        check("lefthook-local.yml", Some(CI));
        check(".hg/hgrc", Some(OTHER_VCS));
        check(".hg/store", None);
        check(".jj/repo/config.toml", Some(OTHER_VCS));
        check(".jj/repo/store", None);
        check(".mvn/extensions.xml", Some(PACKAGES));
        check(".pnpmfile.mjs", Some(PACKAGES));
        check(".helix/languages.toml", Some(EDITOR));
        check("sub/.Rprofile", Some(SHELL));
        check(".cargo/config.toml", Some(PACKAGES));
        check(".cargo/config", Some(PACKAGES));
        check(".github/workflows/ci.yml", Some(CI));
        check("Jenkinsfile", Some(CI));
        check(".claude/settings.json", Some(AGENT));
        check(".roomodes", Some(AGENT));
        check("AGENTS.md", Some(AGENT));
        check("docs/CLAUDE.md", Some(AGENT));
        check(".sabir/config.toml", Some(OURS));
    }

    #[test]
    fn disguised_names_are_recognized() {
        check(".Sabir/Config.toml", Some(OURS));
        check(".GIT/config", Some(GIT));
        check(".git\u{200c}/config", Some(GIT));
        check("\u{feff}.g\u{200d}it/config", Some(GIT));
        check(".git./config", Some(GIT));
        check(".git /config", Some(GIT));
        check(".git::$INDEX_ALLOCATION/config", Some(GIT));
        check("GIT~1/config", Some(GIT));
        check(".vscode\u{e0041}/x", Some(EDITOR));
        check(".v\u{17f}code/x", Some(EDITOR));
        check(".\u{212a}iro/x", Some(AGENT));
    }

    #[test]
    fn ordinary_names_are_not_protected() {
        for path in [
            "src/main.rs",
            "git/config",
            ".gitignore",
            "a.git/x",
            "cargo/config",
            ".github/README.md",
            "agents.rs",
        ] {
            check(path, None);
        }
    }
}
