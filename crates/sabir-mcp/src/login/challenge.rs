//! Reads the `WWW-Authenticate` headers of servers.

use rmcp::transport::auth::WWWAuthenticateParams;
use url::Url;

use super::store::StoredLogin;

/// Returns the scopes that a server said are missing; `None` if the header says something else.
pub(crate) fn missing_scopes(challenge: &str, server: &Url) -> Option<Vec<String>> {
    let params = WWWAuthenticateParams::parse(challenge, server);
    if !params.is_insufficient_scope() {
        return None;
    }
    let scopes = params.scope.unwrap_or_default();
    Some(scopes.split_whitespace().map(str::to_owned).collect())
}

/// Adds the scopes of a login, and those that the server has demanded since, to the requested ones.
/// A login that was refused for another reason starts without them.
pub(super) fn widen_scopes(scopes: &mut Vec<String>, login: &StoredLogin, server: &Url) {
    let challenge = login.challenge.as_deref();
    let Some(missing) = challenge.and_then(|text| missing_scopes(text, server)) else {
        return;
    };
    let granted = login.credentials.iter().flat_map(|own| &own.granted_scopes);
    for scope in granted.cloned().chain(missing) {
        if !scopes.contains(&scope) {
            scopes.push(scope);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lack_of_scope_names_scopes() {
        let server = Url::parse("https://mcp.example.com/mcp").unwrap();
        let lack = r#"Bearer error="insufficient_scope", scope="files:read files:write""#;
        let missing = missing_scopes(lack, &server).unwrap();
        assert_eq!(missing, ["files:read", "files:write"]);
        let other = r#"Bearer error="invalid_token", scope="files:read""#;
        assert_eq!(missing_scopes(other, &server), None);
    }
}
