//! Holds the table of files that usually hold secrets: keys, tokens, passwords and the stores of programs that log in.
//!
//! Four users share the table, so that none of them misses a file that another one knows:
//!
//! * [`secret_reason`] and the reach of a command (`secret_reach.rs`) decide which reads are asked about,
//! * [`names_secret_file`] tells the file tools which files a search leaves out,
//! * [`home_secret_paths`] lists what the sandbox hides in the home folder,
//! * [`command_names_secret_file`] marks the command lines whose output a display folds.
//!
//! Names are compared without regard to case, because some file systems ignore it. A file that is committed on purpose
//! (`.env.example`) is not a secret. The table holds names only; known formats of keys are recognized by `sabir_call::redact`.

use std::collections::HashMap;
use std::sync::LazyLock;

use SecretPath::{End, File, Folder, Start};

/// One way to recognize a path that usually holds secrets. All texts are lower case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SecretPath {
    /// A file by its last components: `.m2/settings.xml` also means `a/.m2/settings.xml`.
    File(&'static str),
    /// A folder by its last components, with everything in it.
    Folder(&'static str),
    /// A file whose name ends with this.
    End(&'static str),
    /// A file whose name starts with the first text and ends with the second.
    Start(&'static str, &'static str),
}

/// The stores of secrets. Rows with a folder in front are stores of one program; most of them live in the home folder.
#[rustfmt::skip]
const ROWS: &[SecretPath] = &[
    // Environment files: `.env` itself, `.env.local`, `prod.env`, and `.envrc`, which direnv runs
    // to export variables.
    File(".env"), Start(".env.", ""), Start(".env-", ""), Start(".env_", ""), End(".env"), File(".envrc"), File(".dev.vars"),
    // Private keys and the containers that they come in.
    End(".pem"), End(".key"), End(".p12"), End(".pfx"), End(".p8"), End(".jks"), End(".jceks"), End(".keystore"), End(".bks"),
    End(".ppk"), End(".ovpn"), End(".kdbx"), End(".kdb"), End(".agekey"), End(".keychain"), End(".keychain-db"), End(".keytab"),
    File("id_rsa"), File("id_dsa"), File("id_ecdsa"), File("id_ed25519"), File("id_ecdsa_sk"), File("id_ed25519_sk"), File("id_xmss"),
    Folder(".ssh"), Folder(".gnupg"), Folder(".putty"), Folder(".config/age"), Folder(".config/sops"),
    // Names that programs share.
    File("credentials"), File(".credentials"), File("credentials.json"), File(".credentials.json"), File("credentials.toml"),
    Start("client_secret", ".json"), Start("service-account", ".json"), Start("service_account", ".json"),
    File("secrets.yml"), File("secrets.yaml"), File("secrets.json"), File("secrets.toml"), File(".secrets"), File(".htpasswd"),
    File(".netrc"), File("_netrc"), File(".authinfo"), File(".passwd-s3fs"), File("application_default_credentials.json"),
    // Hosts of code.
    File(".git-credentials"), Folder(".config/git/credentials"), Folder(".config/gh"), Folder(".config/hub"), Folder(".config/glab-cli"),
    Folder(".config/tea"), Folder(".git-credential-cache"), File(".config/jj/credentials"),
    // Package managers.
    File(".npmrc"), File(".pypirc"), File(".yarnrc.yml"), File(".m2/settings.xml"), File(".m2/settings-security.xml"),
    File(".gradle/gradle.properties"), File(".gem/credentials"), Folder(".local/share/gem/credentials"), File(".bundle/config"),
    File(".nuget/nuget/nuget.config"), File(".config/nuget/nuget.config"), File(".cargo/credentials"), File(".cargo/credentials.toml"),
    File(".config/composer/auth.json"), File(".composer/auth.json"), File(".config/pip/pip.conf"), File(".pip/pip.conf"),
    File(".config/pypoetry/auth.toml"), Folder(".local/share/uv/credentials"), File(".hex/hex.config"), File(".sbt/.credentials"),
    File(".ivy2/.credentials"), File(".jfrog/jfrog-cli.conf"), Folder(".jfrog/security"), File(".config/hatch/config.toml"),
    // Models and data.
    File(".cache/huggingface/token"), File(".cache/huggingface/stored_tokens"), Folder(".huggingface"), File(".kaggle/kaggle.json"),
    File(".config/kaggle/kaggle.json"), Folder(".config/wandb"), File(".modal.toml"), File(".config/replicate/hosts"), File(".ngc/config"),
    File(".comet.config"), File(".databrickscfg"), File(".snowsql/config"), File(".snowflake/connections.toml"),
    File(".streamlit/secrets.toml"), Folder(".config/together"), File(".ollama/id_ed25519"),
    // Logins of coding agents.
    File(".claude.json"), File(".claude/.credentials.json"), File(".codex/auth.json"), File(".gemini/oauth_creds.json"),
    File(".gemini/google_accounts.json"), File(".qwen/oauth_creds.json"), File(".factory/auth.json"), File(".kimi/config.toml"),
    Folder(".config/github-copilot"), Folder(".copilot"), File(".local/share/opencode/auth.json"), File(".local/share/crush/crush.json"),
    File(".local/share/amp/secrets.json"), File(".config/goose/secrets.yaml"), File(".aider.conf.yml"), Folder(".config/anthropic"),
    Folder(".config/openai"), File(".continue/config.json"), File(".continue/config.yaml"), File(".pi/agent/auth.json"),
    Folder(".config/sabir"), Folder(".local/share/sabir"), Folder(".config/cursor"), Folder(".aws/amazonq"), File(".vibe/.env"),
    // Clouds and deployment.
    Folder(".aws"), Folder(".azure"), Folder(".config/gcloud"), Folder(".oci"), Folder(".aliyun"), Folder(".bluemix"), Folder(".tccli"),
    Folder(".config/doctl"), Folder(".config/hcloud"), Folder(".config/linode-cli"), Folder(".config/scw"), File(".fly/config.yml"),
    Folder(".config/heroku"), Folder(".config/netlify"), File(".netlify/config.json"), Folder(".local/share/com.vercel.cli"),
    File(".railway/config.json"), Folder(".wrangler/config"), Folder(".config/.wrangler"), Folder(".config/stripe"),
    File(".supabase/access-token"), File(".config/configstore/firebase-tools.json"), File(".pulumi/credentials.json"), File(".boto"),
    File(".s3cfg"), File(".mc/config.json"), Folder(".config/rclone"), Folder(".cloudflared"), File(".ngrok2/ngrok.yml"),
    File(".config/ngrok/ngrok.yml"), File(".config/exoscale/exoscale.toml"), File(".vultr-cli.yaml"), Folder(".config/doppler"),
    Folder(".doppler"), Folder(".infisical"), File(".sentryclirc"), File(".config/circleci/cli.yml"), File(".circleci/cli.yml"),
    File(".travis/config.yml"), File(".config/tailscale/authkey"), Folder(".config/op"), Folder(".akeyless"), File(".edgerc"),
    // Containers and clusters.
    Folder(".docker"), File(".dockercfg"), File(".config/containers/auth.json"), Folder(".kube"), File("kubeconfig"), End(".kubeconfig"),
    File(".config/helm/registry/config.json"), File(".rancher/cli2.json"), File(".config/argocd/config"), File(".argocd/config"),
    // Infrastructure as code.
    File(".terraform.d/credentials.tfrc.json"), File(".terraformrc"), End(".tfstate"), End(".tfstate.backup"), File("terraform.tfvars"),
    End(".auto.tfvars"), File(".vault-token"), File(".vault_pass"), File(".vault_pass.txt"), File(".vault-pass"), File("vault_pass.txt"),
    File(".vault_password"), File(".vault-password"), File("vault-password.txt"), File(".ansible/vault"), File(".chef/knife.rb"),
    // Databases.
    File(".pgpass"), File("pgpass.conf"), File(".my.cnf"), File(".mylogin.cnf"), File(".mongorc.js"), File(".odbc.ini"), File(".dbshell"),
    Folder(".local/share/dbeaverdata"), File(".config/redis-cli/auth"),
    // Command histories, which may contain passwords.
    File(".bash_history"), File(".zsh_history"), File(".python_history"), File(".node_repl_history"), File(".psql_history"),
    File(".mysql_history"), File(".sqlite_history"), File(".rediscli_history"), File(".local/share/fish/fish_history"), File(".histfile"),
    // Password managers and keyrings.
    Folder(".password-store"), Folder(".local/share/keyrings"), Folder(".local/share/kwalletd"), Folder(".config/keepassxc"),
    Folder(".config/bitwarden"), Folder(".config/bitwarden cli"), Folder(".config/1password"), Folder(".config/enpass"),
    Folder(".local/share/gopass"), Folder(".config/gopass"), Folder("library/keychains"), Folder(".lastpass"), Folder(".config/protonpass"),
    // Browsers and mail.
    Folder(".mozilla"), Folder(".thunderbird"), Folder(".config/google-chrome"), Folder(".config/chromium"), Folder(".config/bravesoftware"),
    Folder(".config/microsoft-edge"), Folder(".config/vivaldi"), Folder(".config/opera"), Folder(".zen"), Folder(".librewolf"),
    Folder("library/application support/google/chrome"), Folder("library/application support/firefox"), Folder("library/cookies"),
    File(".mutt/passwords"), File(".msmtprc"), File(".mbsyncrc"), File(".fetchmailrc"), File(".getmail/passwords"),
    Folder(".config/slack"), Folder(".config/discord"), Folder(".config/signal"), Folder(".local/share/telegramdesktop"),
    // Wallets.
    Folder(".bitcoin"), Folder(".ethereum"), Folder(".electrum"), Folder(".litecoin"), Folder(".dogecoin"), Folder(".monero"),
    Folder(".config/solana"), Folder(".config/exodus"), Folder(".config/ledger live"), Folder(".near-credentials"), Folder(".sui"),
    Folder(".aptos"), File("wallet.dat"), Folder(".brownie/accounts"), Folder(".foundry/keystores"), Folder(".zcash"),
];

/// Files that programs read for settings beside the secret in them. Naming one asks, but the sandbox leaves them readable: without its
/// settings, a package manager would use other sources than the user configured.
const SETTINGS: [&str; 4] = [
    ".yarnrc.yml",
    ".bundle/config",
    ".config/pip/pip.conf",
    ".pip/pip.conf",
];

/// Endings of files that are committed as examples and hold no secrets.
const SAMPLES: [&str; 6] = [
    ".example",
    ".sample",
    ".template",
    ".dist",
    ".schema",
    ".vault",
];

/// Names of example files that end like an environment file.
const SAMPLE_FILES: [&str; 5] = [
    "example.env",
    "sample.env",
    "template.env",
    ".example.env",
    ".sample.env",
];

/// Names of files with public certificates, which end like those with private keys. Many packages bring one.
const PUBLIC_CERTIFICATES: [&str; 4] = ["cacert.pem", "roots.pem", "chain.pem", "fullchain.pem"];

/// The rows, ordered for the search. Every name in a folder is checked by them for each command.
struct RowIndex {
    /// The paths of files and folders, by their last components.
    paths: HashMap<&'static str, Vec<NamedPath>>,
    /// The beginnings and endings of names; an ending alone has an empty beginning.
    affixes: Vec<NameAffixes>,
}

/// A row that names a file or a folder.
struct NamedPath {
    path: &'static str,
    is_folder: bool,
}

/// A row about the beginning and the end of a name, between which it has something else.
struct NameAffixes {
    start: &'static str,
    end: &'static str,
}

static INDEX: LazyLock<RowIndex> = LazyLock::new(RowIndex::of_rows);

impl RowIndex {
    fn of_rows() -> Self {
        let mut paths: HashMap<_, Vec<_>> = HashMap::new();
        let mut affixes = Vec::new();
        for row in ROWS {
            match *row {
                File(path) | Folder(path) => {
                    let last = path.rsplit('/').next().unwrap_or(path);
                    let is_folder = matches!(row, Folder(_));
                    paths
                        .entry(last)
                        .or_default()
                        .push(NamedPath { path, is_folder });
                }
                End(end) => affixes.push(NameAffixes { start: "", end }),
                Start(start, end) => affixes.push(NameAffixes { start, end }),
            }
        }
        Self { paths, affixes }
    }

    /// Reports whether a row means a path, which is given in lower case and by its components. Only rows of folders mean a sample.
    fn has_match(&self, parts: &[&str], is_sample: bool) -> bool {
        let Some(name) = parts.last() else {
            return false;
        };
        // A folder may be the path itself or any of the folders above it.
        let has_path = (1..=parts.len()).any(|end| {
            let front = parts.get(..end).unwrap_or_default();
            let rows = front.last().and_then(|last| self.paths.get(last));
            rows.into_iter().flatten().any(|row| {
                let is_meant = row.is_folder || end == parts.len() && !is_sample;
                is_meant && ends_with_path(front, row.path)
            })
        });
        has_path
            || !is_sample
                && self.affixes.iter().any(|NameAffixes { start, end }| {
                    name.len() > start.len() + end.len()
                        && name.starts_with(start)
                        && name.ends_with(end)
                })
    }
}

/// Reports whether the last components of a path are those of another path.
fn ends_with_path(parts: &[&str], path: &str) -> bool {
    let mut own = parts.iter().rev();
    path.rsplit('/').all(|part| own.next() == Some(&part))
}

/// Returns a reason, as a phrase that follows the path, if a file of that name usually holds secrets.
pub(crate) fn secret_reason(path: &str) -> Option<&'static str> {
    names_secret_file(path).then_some("usually holds secrets")
}

/// Reports whether a path names a file or folder that usually holds secrets, or lies in such a folder.
///
/// Only the text counts: components are separated by `/`, in any letter case. The caller resolves links.
///
/// ```
/// use sabir_policy::names_secret_file;
///
/// assert!(names_secret_file("services/api/.env"));
/// assert!(names_secret_file(".M2/settings.xml"));
/// assert!(!names_secret_file(".env.example"));
/// assert!(!names_secret_file("src/keyboard.rs"));
/// ```
pub fn names_secret_file(path: &str) -> bool {
    let path = path.to_lowercase();
    let parts: Vec<&str> = path
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .collect();
    // The sample is recognized by its last component: `.env.example/key.pem` is a key.
    let sample = parts.last().is_some_and(|name| {
        SAMPLES.iter().any(|end| name.ends_with(end))
            || SAMPLE_FILES.contains(name)
            || PUBLIC_CERTIFICATES.contains(name)
    });
    // An example in a folder of secrets is still in that folder.
    INDEX.has_match(&parts, sample)
}

/// Reports whether a path that usually holds secrets may end with this component.
///
/// For callers that meet the components of many paths before the paths: [`names_secret_file`] decides about the whole path.
///
/// ```
/// use sabir_policy::may_end_secret_path;
///
/// assert!(may_end_secret_path(".env"));
/// // `.m2/settings.xml` is one.
/// assert!(may_end_secret_path("Settings.xml"));
/// assert!(!may_end_secret_path("main.rs"));
/// ```
pub fn may_end_secret_path(name: &str) -> bool {
    let lower = name.to_lowercase();
    names_secret_file(name)
        || ROWS.iter().any(|row| match row {
            File(path) | Folder(path) => path.rsplit('/').next() == Some(lower.as_str()),
            End(_) | Start(..) => false,
        })
}

/// Reports whether a command line names a file that usually holds secrets, by its words alone.
///
/// This is a heuristic for display. It does not parse the line, so it must not decide whether a command is allowed.
///
/// ```
/// assert!(sabir_policy::command_names_secret_file("cat deploy/.env | head"));
/// assert!(!sabir_policy::command_names_secret_file("cargo test env"));
/// ```
pub fn command_names_secret_file(command: &str) -> bool {
    let between = |c: char| c.is_whitespace() || "\"'`;|&<>(){}=:,$".contains(c);
    command.split(between).any(names_secret_file)
}

/// Iterates over the stores of secrets in a home folder, as paths relative to it, for a sandbox to hide.
///
/// Rows that only name files wherever they are (`*.pem`, `id_rsa`) are left out: a sandbox hides paths, not patterns. Where file names are
/// case-sensitive, programs use one spelling, so the few names with capitals are returned in both spellings.
///
/// ```
/// assert!(sabir_policy::home_secret_paths().any(|path| path == ".aws"));
/// ```
pub fn home_secret_paths() -> impl Iterator<Item = &'static str> {
    /// Spellings with capitals of rows that the table holds in lower case.
    const CAPITALS: [&str; 14] = [
        ".config/BraveSoftware",
        ".config/Bitwarden",
        ".config/Bitwarden CLI",
        ".config/1Password",
        ".config/Cursor",
        ".config/Exodus",
        ".config/Ledger Live",
        ".config/NuGet/NuGet.Config",
        ".config/Signal",
        ".config/Slack",
        ".nuget/NuGet/NuGet.Config",
        ".local/share/DBeaverData",
        ".local/share/TelegramDesktop",
        "Library/Keychains",
    ];
    let stores = ROWS.iter().filter_map(|row| match row {
        File(path) | Folder(path) => Some(*path),
        End(_) | Start(..) => None,
    });
    stores
        // A store in the home folder is hidden by name or lies in a hidden folder; `credentials` is
        // a name of any folder.
        .filter(|path| path.starts_with('.') && !SETTINGS.contains(path))
        .chain(CAPITALS)
}

/// Reports whether a shell pattern may match the name of some file that usually holds secrets.
///
/// Errs towards true. Independent of the files that exist, so after false the workspace need not be searched.
pub(crate) fn pattern_may_name_secret(pattern: &str) -> bool {
    let pattern = pattern.to_lowercase();
    let parts: Vec<&str> = pattern.split('/').filter(|part| !part.is_empty()).collect();
    let Some((name, folders)) = parts.split_last() else {
        return false;
    };
    let is_open = |part: &str| part.contains(['*', '?', '[']);
    let may = |part: &str, rule: &str| super::paths::may_intersect_name(rule, part);
    ROWS.iter().any(|row| match row {
        File(path) => {
            let last = path.rsplit('/').next().unwrap_or_default();
            may(name, last)
        }
        // Any component may be the folder, and what the last component matches may lie in it.
        Folder(path) => {
            let last = path.rsplit('/').next().unwrap_or_default();
            folders.iter().chain([name]).any(|part| may(part, last))
        }
        End(end) => may(name, &format!("*{end}")),
        Start(start, end) => may(name, &format!("{start}*{end}")),
    }) && parts.iter().any(|part| is_open(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of a row: a path that it alone should make secret.
    fn example(row: SecretPath) -> String {
        match row {
            File(path) => format!("sub/{path}"),
            Folder(path) => format!("sub/{path}/x"),
            End(end) => format!("sub/x{end}"),
            Start(start, end) => format!("sub/{start}x{end}"),
        }
    }

    #[test]
    fn every_row_matches_and_none_is_listed_twice() {
        for (at, row) in ROWS.iter().enumerate() {
            let path = example(*row);
            assert!(names_secret_file(&path), "{path}");
            assert_eq!(path, path.to_lowercase(), "rows are lower case");
            assert!(!ROWS[..at].contains(row), "{row:?} twice");
        }
        for path in SETTINGS {
            assert!(names_secret_file(path), "{path}");
        }
    }

    /// Reports whether a row means a path, without an index.
    fn is_meant(row: SecretPath, parts: &[&str]) -> bool {
        let name = parts.last().unwrap();
        match row {
            File(path) => ends_with_path(parts, path),
            Folder(path) => (1..=parts.len()).any(|end| ends_with_path(&parts[..end], path)),
            End(end) => name.len() > end.len() && name.ends_with(end),
            Start(start, end) => {
                name.len() > start.len() + end.len()
                    && name.starts_with(start)
                    && name.ends_with(end)
            }
        }
    }

    #[test]
    fn the_index_finds_what_the_rows_mean() {
        let words = ROWS.iter().flat_map(|row| match *row {
            File(path) | Folder(path) => path.split('/').collect(),
            End(end) => vec![end, "x.example"],
            Start(start, end) => vec![start, end],
        });
        let words: std::collections::BTreeSet<&str> = words.chain(["", "x", "x.pem"]).collect();
        let words: Vec<&str> = words.into_iter().collect();
        let check = |first: &str| {
            for second in &words {
                let path = format!("{first}/{second}");
                let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
                let is_sample = parts
                    .last()
                    .is_some_and(|name| SAMPLES.iter().any(|end| name.ends_with(end)));
                let is_secret = |row: &SecretPath| {
                    (matches!(row, Folder(_)) || !is_sample) && is_meant(*row, &parts)
                };
                let expected = !parts.is_empty() && ROWS.iter().any(is_secret);
                assert_eq!(names_secret_file(&path), expected, "{path}");
            }
        };
        std::thread::scope(|scope| {
            for half in words.chunks(words.len().div_ceil(2)) {
                scope.spawn(|| half.iter().for_each(|first| check(first)));
            }
        });
    }

    #[test]
    fn names_that_hold_no_secrets() {
        for path in [
            ".env.example",
            "config/.env.sample",
            "example.env",
            "src/env.rs",
            "environment",
            "keys.md",
            "id_rsa.pub",
            "src/credentials.rs",
            "settings.xml",
            "gradle.properties",
            "config.json",
            "docs/aws.md",
            ".envrc.md",
            ".github/workflows/ci.yml",
            "Cargo.lock",
            "README",
            "",
            ".",
        ] {
            assert!(!names_secret_file(path), "{path}");
        }
    }

    #[test]
    fn case_and_spelling_do_not_matter() {
        for path in [
            ".ENV",
            "./.env",
            "a//.env",
            ".Aws/credentials",
            ".ssh",
            "/home/u/.npmrc",
            "SERVER.PEM",
        ] {
            assert!(names_secret_file(path), "{path}");
        }
    }

    #[test]
    fn patterns_that_may_name_secrets() {
        for pattern in [
            ".e*", ".e??", ".env*", "*", "*/*", ".[e]nv", ".*", "*.k?y", "s*.pem", ".a*/*",
            ".npm*", "id_*", "conf/*", "**/*", "?env", "cred*", "*.p*",
        ] {
            assert!(pattern_may_name_secret(pattern), "{pattern}");
        }
        for pattern in [
            "*.toml.md",
            "*.rs",
            "src/*.rs",
            "*.md",
            "*.{c,h}",
            "Cargo.t?l.md",
            "test_*.py",
            "a.txt",
            ".env",
        ] {
            assert!(!pattern_may_name_secret(pattern), "{pattern}");
        }
    }

    #[test]
    fn the_sandbox_hides_stores_by_path() {
        let all: Vec<&str> = home_secret_paths().collect();
        for path in [
            ".ssh",
            ".aws",
            ".npmrc",
            ".m2/settings.xml",
            ".gradle/gradle.properties",
            ".cache/huggingface/token",
            ".config/gh",
            ".bash_history",
            "Library/Keychains",
        ] {
            assert!(all.contains(&path), "{path}");
        }
        assert!(!all.contains(&".yarnrc.yml"));
        assert!(
            all.iter()
                .all(|path| !path.contains('*') && !path.starts_with('/'))
        );
    }
}
