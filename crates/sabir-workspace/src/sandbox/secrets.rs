//! Lists the paths and variables that no command needs to see: secrets of the machine, and access
//! to other services. The secrets of the user's home folder are in the policy's table, which the
//! caller passes to `Sandbox::hide_paths`.

use std::path::PathBuf;

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

pub(super) fn machine_secrets() -> Vec<PathBuf> {
    MACHINE.iter().map(PathBuf::from).collect()
}

pub(super) fn names_session_service(name: &str) -> bool {
    LEADS.iter().any(|start| name.starts_with(start)) && !HARMLESS.contains(&name)
}
