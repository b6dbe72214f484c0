//! What commands get of our environment.

/// What commands get of our environment: names that programs need to work at all, and none that holds a secret.
pub(crate) fn command_environment() -> Vec<(String, String)> {
    const NAMES: [&str; 22] = [
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TMPDIR",
        "CARGO_HOME",
        "RUSTUP_HOME",
        "RUSTUP_TOOLCHAIN",
        "GOPATH",
        "GOROOT",
        "JAVA_HOME",
        "NVM_DIR",
        "PYENV_ROOT",
        "VIRTUAL_ENV",
        "NODE_PATH",
        "EDITOR",
        "XDG_CACHE_HOME",
        "COLUMNS",
    ];
    let keep = |name: &str| NAMES.contains(&name) || name.starts_with("LC_");
    let mut kept: Vec<_> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| keep(name))
        .collect();
    kept.push(("TERM".to_owned(), "dumb".to_owned()));
    kept
}
