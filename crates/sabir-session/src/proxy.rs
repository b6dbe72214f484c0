//! Chooses the proxy of a provider from the conventional variables of the environment, as curl and most SDKs do.

use sabir_model::{Provider, Secret, is_loopback, strip_url_secrets};
use serde::Serialize;

use crate::environment::Environment;
use crate::providers::trimmed_variable;

/// The variables for providers with an `https:` address, the first that is set wins.
const SECURE_VARIABLES: [&str; 4] = ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];
/// The variables for providers with an `http:` address. `HTTP_PROXY` is left out, as in curl: where a program answers web requests,
/// a client's header `Proxy:` becomes that variable.
const PLAIN_VARIABLES: [&str; 3] = ["http_proxy", "all_proxy", "ALL_PROXY"];
/// All variables that name a proxy.
const PROXY_VARIABLES: [&str; 5] = [
    "https_proxy",
    "HTTPS_PROXY",
    "http_proxy",
    "all_proxy",
    "ALL_PROXY",
];
/// The variables that the TLS library reads: certificates in place of the system's.
const CERTIFICATE_VARIABLES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];
/// The variables for the hosts that are reached directly.
const EXCEPTION_VARIABLES: [&str; 2] = ["no_proxy", "NO_PROXY"];

/// A variable that changes how providers are reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NetworkVariable {
    /// The variable's name, such as `HTTPS_PROXY`.
    pub name: String,
    /// Its value, without user name and password.
    pub value: String,
    /// The reason why certificates cannot be read from there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Sets the proxy of a provider that has none. Servers on this machine are always reached directly.
pub(crate) fn apply_proxy_variables(provider: &mut Provider, environment: &Environment) {
    if provider.proxy.is_some() || is_loopback(&provider.base_url) {
        return;
    }
    let names: &[&str] = if provider.is_secure() {
        &SECURE_VARIABLES
    } else {
        &PLAIN_VARIABLES
    };
    let Some(proxy) = first_value(names, environment) else {
        return;
    };
    provider.proxy = Some(Secret::new(with_scheme(proxy)));
    provider.proxy_exceptions = first_value(&EXCEPTION_VARIABLES, environment).unwrap_or_default();
}

/// Lists the variables that are set and change how providers are reached.
pub(crate) fn network_variables(environment: &Environment) -> Vec<NetworkVariable> {
    let proxies = PROXY_VARIABLES.iter().filter_map(|name| {
        let value = strip_url_secrets(&with_scheme(trimmed_variable(environment, name)?));
        Some((*name, value))
    });
    let others = EXCEPTION_VARIABLES.iter().chain(&CERTIFICATE_VARIABLES);
    let others = others.filter_map(|name| Some((*name, trimmed_variable(environment, name)?)));
    proxies
        .chain(others)
        .map(|(name, value)| NetworkVariable {
            name: name.to_owned(),
            problem: certificate_problem(name, &value),
            value,
        })
        .collect()
}

/// Returns the reason why the certificates that a variable names cannot be read; `None` for other variables.
fn certificate_problem(name: &str, path: &str) -> Option<String> {
    let error = match name {
        "SSL_CERT_FILE" => std::fs::File::open(path).err()?,
        // Several folders are separated as in PATH; only a single one is checked.
        "SSL_CERT_DIR" if !path.contains(':') => std::fs::read_dir(path).err()?,
        _ => return None,
    };
    Some(format!("cannot be read: {error}"))
}

/// Returns the value of the first variable that is set and not empty.
fn first_value(names: &[&str], environment: &Environment) -> Option<String> {
    names
        .iter()
        .find_map(|name| trimmed_variable(environment, name))
}

/// Returns a proxy with its scheme, `http://` where it has none: `proxy:3128` is a common spelling.
fn with_scheme(proxy: String) -> String {
    if proxy.contains("://") {
        proxy
    } else {
        format!("http://{proxy}")
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use sabir_wire::Wire;

    use super::*;

    fn environment(variables: &[(&str, &str)]) -> Environment {
        let variables = variables
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()));
        Environment::new(variables, "", || UNIX_EPOCH)
    }

    fn proxy_for(url: &str, variables: &[(&str, &str)]) -> Option<String> {
        let mut provider = Provider::new("p", Wire::OpenAiChat, url, None);
        apply_proxy_variables(&mut provider, &environment(variables));
        provider.proxy.map(|proxy| proxy.expose().to_owned())
    }

    #[test]
    fn each_scheme_has_its_variables() {
        let both = [("HTTPS_PROXY", "http://s:1"), ("http_proxy", "p:2")];
        let secure = proxy_for("https://api.example/v1", &both);
        assert_eq!(secure.as_deref(), Some("http://s:1"));
        let plain = proxy_for("http://api.example/v1", &both);
        assert_eq!(plain.as_deref(), Some("http://p:2"));
        assert_eq!(proxy_for("http://127.0.0.1:8000/v1", &both), None);
        let upper = [("HTTP_PROXY", "p:2")];
        assert_eq!(proxy_for("http://api.example/v1", &upper), None);
        let all = [("ALL_PROXY", "socks5://s:3"), ("HTTPS_PROXY", " ")];
        let all = proxy_for("https://api.example/v1", &all);
        assert_eq!(all.as_deref(), Some("socks5://s:3"));
    }

    #[test]
    fn passwords_are_not_listed() {
        let variables = [
            ("HTTPS_PROXY", "user:secret@proxy:3128"),
            ("NO_PROXY", "localhost,.example"),
        ];
        let listed = network_variables(&environment(&variables));
        let listed: Vec<_> = listed
            .iter()
            .map(|variable| (variable.name.as_str(), variable.value.as_str()))
            .collect();
        assert_eq!(
            listed,
            [
                ("HTTPS_PROXY", "http://proxy:3128"),
                ("NO_PROXY", "localhost,.example")
            ]
        );
    }
}
