//! Revokes the tokens of a login at the authorization server that issued them (RFC 7009).

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use rmcp::transport::auth::{AuthError, AuthorizationManager, AuthorizationMetadata};
use serde_json::Value;
use url::form_urlencoded;

use super::attempt::describe_auth_error;
use super::guarded_http::GuardedHttp;
use super::store::StoredLogin;
use super::{LoginKey, OAuthSettings};
use crate::result_content::one_line;
use crate::servers::McpSettings;
use crate::spec::{McpServerSpec, McpTransport};

/// The longest time in which the authorization server is found and asked. The login is removed from this machine in any case.
const REVOCATION_TIME: Duration = Duration::from_secs(15);

/// The outcome of an attempt to revoke the tokens of a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Revocation {
    /// The authorization server has withdrawn them.
    Revoked,
    /// The authorization server offers no revocation.
    NotOffered,
    /// They could not be withdrawn, with the reason.
    Failed(String),
}

/// A reason why tokens are not withdrawn.
#[derive(Debug, thiserror::Error)]
enum RevocationError {
    #[error("{}", describe_auth_error(.0))]
    Discovery(#[from] AuthError),
    #[error("the server names another authorization server now, {0}")]
    OtherIssuer(String),
    #[error(transparent)]
    Secret(#[from] super::IssuerMismatch),
    #[error("the request failed: {0}")]
    Request(String),
    #[error("the authorization server answered with the status {0}")]
    Status(u16),
}

/// Removes the login of a server from the store, then asks its authorization server to withdraw the tokens. Returns `None` without a
/// login. `spec` has no variables left.
///
/// # Errors
/// When the login cannot be removed.
pub async fn revoke_login(
    spec: &McpServerSpec,
    settings: &McpSettings,
) -> Result<Option<Revocation>, super::LoginStoreError> {
    let Some(key) = spec.transport.login_key(&spec.name) else {
        return Ok(None);
    };
    // A broken file is removed as well.
    let login = settings.logins.load_login(&key).ok().flatten();
    // Before any request: the user may not want to wait for a server that does not answer.
    if !settings.logins.remove_login(&key)? {
        return Ok(None);
    }
    let Some(login) = login.filter(|login| login.credentials.is_some()) else {
        return Ok(Some(Revocation::NotOffered));
    };
    let revoking = revoke_tokens(spec, &key, &login, settings);
    let ended = tokio::time::timeout(REVOCATION_TIME, revoking).await;
    Ok(Some(match ended {
        Ok(Ok(revocation)) => revocation,
        Ok(Err(error)) => Revocation::Failed(one_line(&error.to_string())),
        Err(_) => Revocation::Failed("the authorization server did not answer".to_owned()),
    }))
}

async fn revoke_tokens(
    spec: &McpServerSpec,
    key: &LoginKey,
    login: &StoredLogin,
    settings: &McpSettings,
) -> Result<Revocation, RevocationError> {
    let McpTransport::Http { oauth, .. } = &spec.transport else {
        return Ok(Revocation::NotOffered);
    };
    let Some(credentials) = &login.credentials else {
        return Ok(Revocation::NotOffered);
    };
    let server =
        url::Url::parse(&key.url).map_err(|error| RevocationError::Request(error.to_string()))?;
    let http = Arc::new(GuardedHttp::new(
        server.clone(),
        Arc::clone(&settings.http_client),
    ));
    let manager = AuthorizationManager::new_with_oauth_http_client(server, http.clone()).await?;
    // The metadata are not kept with the login: an endpoint that has moved is found.
    let metadata = manager.resolve_metadata().await?.metadata;
    if metadata.issuer != credentials.issuer {
        // The tokens belong to the other one, and are not sent here.
        let issuer = one_line(metadata.issuer.as_deref().unwrap_or("without a name"));
        return Err(RevocationError::OtherIssuer(issuer));
    }
    let endpoint = metadata.additional_fields.get("revocation_endpoint");
    let Some(endpoint) = endpoint.and_then(Value::as_str) else {
        return Ok(Revocation::NotOffered);
    };
    let oauth = oauth.clone().unwrap_or_default();
    let is_configured = oauth.client_id.as_ref() == Some(&credentials.client_id);
    let client = RevokingClient {
        endpoint,
        id: &credentials.client_id,
        secret: match is_configured {
            true => configured_secret(&oauth, &metadata)?,
            false => login.client_secret.as_deref(),
        },
        takes_secret_in_body: takes_secret_in_body(&metadata),
    };
    let kept = serde_json::to_value(credentials).unwrap_or_default();
    // The refresh token first: without it no new access token can be obtained.
    for kind in ["refresh_token", "access_token"] {
        let token = kept.pointer(&format!("/token_response/{kind}"));
        if let Some(token) = token.and_then(Value::as_str) {
            client.revoke_token(&http, kind, token).await?;
        }
    }
    Ok(Revocation::Revoked)
}

/// Returns the secret of the configuration, which must belong to the authorization server.
fn configured_secret<'a>(
    oauth: &'a OAuthSettings,
    metadata: &AuthorizationMetadata,
) -> Result<Option<&'a str>, RevocationError> {
    oauth.check_issuer(metadata)?;
    Ok(oauth.client_secret.as_deref())
}

/// Reports whether the authorization server takes the secret of a client among the fields of a form, and not only in a header.
fn takes_secret_in_body(metadata: &AuthorizationMetadata) -> bool {
    let fields = &metadata.additional_fields;
    let methods = fields
        .get("revocation_endpoint_auth_methods_supported")
        .or_else(|| fields.get("token_endpoint_auth_methods_supported"));
    let mut methods = methods.and_then(Value::as_array).into_iter().flatten();
    methods.any(|method| method == "client_secret_post")
}

/// The client that withdraws its tokens, and the place where it does.
struct RevokingClient<'a> {
    endpoint: &'a str,
    id: &'a str,
    secret: Option<&'a str>,
    takes_secret_in_body: bool,
}

impl RevokingClient<'_> {
    async fn revoke_token(
        &self,
        http: &GuardedHttp,
        kind: &str,
        token: &str,
    ) -> Result<(), RevocationError> {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("token", token);
        form.append_pair("token_type_hint", kind);
        let mut request = http::Request::post(self.endpoint)
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        match self.secret {
            Some(secret) if !self.takes_secret_in_body => {
                // Both parts are encoded as in a form first (RFC 6749, section 2.3.1).
                let encode = |text: &str| {
                    form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>()
                };
                let pair = STANDARD.encode(format!("{}:{}", encode(self.id), encode(secret)));
                request = request.header(AUTHORIZATION, format!("Basic {pair}"));
            }
            secret => {
                form.append_pair("client_id", self.id);
                if let Some(secret) = secret {
                    form.append_pair("client_secret", secret);
                }
            }
        }
        let failed = |error: &dyn std::fmt::Display| RevocationError::Request(error.to_string());
        let request = request.body(form.finish().into_bytes());
        let answer = http
            .send_request(request.map_err(|error| failed(&error))?)
            .await
            .map_err(|error| failed(&error))?;
        match answer.status().is_success() {
            true => Ok(()),
            false => Err(RevocationError::Status(answer.status().as_u16())),
        }
    }
}
