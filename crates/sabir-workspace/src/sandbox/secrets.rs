//! Lists the paths and variables that no command needs to see: secrets of the machine and of the
//! user, and access to other services.

use std::path::{Path, PathBuf};

/// The secrets of the machine. Its sockets cannot be connected to anyway; hiding them avoids
/// attempts.
const MACHINE: &[&str] = &[
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/ssl/private",
    "/etc/pki/tls/private",
    "/etc/letsencrypt",
    "/etc/ssh/ssh_host_rsa_key",
    "/etc/ssh/ssh_host_ecdsa_key",
    "/etc/ssh/ssh_host_ed25519_key",
    "/etc/krb5.keytab",
    "/etc/wireguard",
    "/etc/NetworkManager/system-connections",
    "/run/containerd",
    "/run/crio",
    "/run/dbus",
    "/run/docker.sock",
    "/run/k3s",
    "/run/podman",
    "/run/secrets",
    "/run/user",
    "/var/run/docker.sock",
    "/var/run/secrets",
    "/var/lib/docker",
];

/// The secrets in the home folder.
const HOME: &[&str] = &[
    ".ssh",
    ".aws",
    ".azure",
    ".gnupg",
    ".kube",
    ".docker",
    ".netrc",
    ".git-credentials",
    ".pypirc",
    ".pgpass",
    ".my.cnf",
    ".boto",
    ".s3cfg",
    ".vault-token",
    ".terraform.d/credentials.tfrc.json",
    ".password-store",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".nuget/NuGet/NuGet.Config",
    ".m2/settings-security.xml",
    ".config/gh",
    ".config/hub",
    ".config/glab-cli",
    ".config/git/credentials",
    ".config/gcloud",
    ".config/doctl",
    ".config/rclone",
    ".config/op",
    ".config/sops",
    ".config/age",
    ".config/containers/auth.json",
    ".config/heroku",
    ".config/netlify",
    ".config/stripe",
    ".config/sabir",
    ".local/share/sabir",
    ".local/share/keyrings",
    ".local/share/kwalletd",
    ".claude/.credentials.json",
    ".claude.json",
    ".codex/auth.json",
    ".gemini/oauth_creds.json",
    ".config/anthropic",
    ".config/openai",
    ".config/github-copilot",
    ".bash_history",
    ".zsh_history",
    ".python_history",
    ".mozilla",
    ".thunderbird",
    ".config/google-chrome",
    ".config/chromium",
    ".config/BraveSoftware",
    ".bitcoin",
    ".ethereum",
    ".electrum",
    "Library/Keychains",
];

/// The prefixes of environment variables that lead to an agent, a bus, a display or a container
/// engine.
const LEADS: &[&str] = &[
    "SSH_AUTH_SOCK",
    "SSH_AGENT_",
    "GPG_AGENT_INFO",
    "GNOME_KEYRING_",
    "DBUS_",
    "XDG_RUNTIME_DIR",
    "DISPLAY",
    "WAYLAND_",
    "XAUTHORITY",
    "PULSE_SERVER",
    "DOCKER_HOST",
    "DOCKER_CONTEXT",
    "CONTAINER_HOST",
    "KUBECONFIG",
    "KUBERNETES_",
    "TMUX",
    "VSCODE_IPC_",
    "VSCODE_GIT_",
    "NVIM",
    "GIT_ASKPASS",
    "SSH_ASKPASS",
    "SUDO_ASKPASS",
    "BROWSER",
];

/// The exceptions from `LEADS`: they keep programs from asking questions.
const HARMLESS: &[&str] = &["SSH_ASKPASS_REQUIRE"];

/// Returns the files and folders of a home folder that hold secrets, whether they exist or not.
#[must_use]
pub fn home_secrets(home: &Path) -> Vec<PathBuf> {
    HOME.iter().map(|name| home.join(name)).collect()
}

pub(super) fn machine_secrets() -> Vec<PathBuf> {
    MACHINE.iter().map(PathBuf::from).collect()
}

pub(super) fn leads_out(name: &str) -> bool {
    LEADS.iter().any(|start| name.starts_with(start)) && !HARMLESS.contains(&name)
}
