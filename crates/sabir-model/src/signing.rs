//! Signs requests to Amazon Bedrock with AWS Signature Version 4.
//!
//! # Supported
//! Requests with a body in one piece, signed in their headers: `host`, `x-amz-date`, and the token
//! of temporary keys. The path is escaped once more for the signature, as every AWS service except
//! S3 demands.
//!
//! # Unsupported
//! Chunked and unsigned bodies, signatures in the query, paths with `.` and `..`, and version 4a.
//!
//! This module does not read a clock: the credentials contain one.

use std::fmt::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hmac::{Hmac, Mac};
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use sabir_call::{ModelError, ModelErrorKind};
use sha2::{Digest, Sha256};

use crate::provider_error::RequestTarget;
use crate::secret::Secret;

/// The service whose requests are signed.
const SERVICE: &str = "bedrock";

/// Keys that sign requests; they are never sent themselves.
#[derive(Debug, Clone)]
pub struct SigningCredentials {
    /// The id of the access key, which is public.
    pub access_key: String,
    /// The secret access key.
    pub secret_key: Secret,
    /// The token of temporary keys; `None` for lasting ones.
    pub token: Option<Secret>,
    /// The region of the endpoint, such as `eu-west-1`.
    pub region: String,
    /// The clock, usually [`SystemTime::now`]. Amazon rejects signatures that are more than five
    /// minutes off.
    pub clock: fn() -> SystemTime,
}

/// The parts of a request that are signed.
struct CanonicalRequest<'a> {
    /// The HTTP method.
    method: &'a str,
    /// The value of the `host` header, with a port that is not the default.
    host: &'a str,
    /// The path of the sent request.
    path: &'a str,
    /// The query of the sent request, without the question mark.
    query: &'a str,
    /// The whole body, whose hash is signed.
    body: &'a [u8],
}

/// The scope in which a signature is valid.
struct CredentialScope<'a> {
    /// The time, such as `20150830T123600Z`.
    timestamp: String,
    /// The region, such as `eu-west-1`.
    region: &'a str,
    /// The service, such as `bedrock`.
    service: &'a str,
}

impl RequestTarget<'_> {
    /// Returns the headers that sign a request; none if there is a key. Each attempt needs new
    /// ones, because they contain the time.
    pub(crate) fn signature_headers(self, body: &[u8]) -> Result<HeaderMap, ModelError> {
        let keyed = self
            .provider
            .key
            .as_ref()
            .is_some_and(|key| !key.is_empty());
        match self.provider.signing.as_ref().filter(|_| !keyed) {
            Some(signing) => {
                signing.sign_request(&self.provider.endpoint_url(self.model), body, self)
            }
            None => Ok(HeaderMap::new()),
        }
    }
}

impl SigningCredentials {
    /// Returns the headers that sign a request; none for an invalid address, whose request fails
    /// later anyway.
    fn sign_request(
        &self,
        url: &str,
        body: &[u8],
        asked: RequestTarget<'_>,
    ) -> Result<HeaderMap, ModelError> {
        let mut headers = HeaderMap::new();
        let Ok(url) = Url::parse(url) else {
            return Ok(headers);
        };
        // The signed host must be exactly the header that reqwest sends, which leaves out a default
        // port.
        let host = match (url.host_str().unwrap_or_default(), url.port()) {
            (host, Some(port)) => format!("{host}:{port}"),
            (host, None) => host.to_owned(),
        };
        let query = url.query().unwrap_or_default();
        let request = CanonicalRequest {
            method: "POST",
            host: &host,
            path: url.path(),
            query,
            body,
        };
        let now = (self.clock)()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let scope = CredentialScope {
            timestamp: format_timestamp(now),
            region: &self.region,
            service: SERVICE,
        };
        let authorization = self.authorization_header(&request, &scope);
        let token = self
            .token
            .as_ref()
            .map(|token| (TOKEN_HEADER, token.expose()));
        let own = [
            (AUTHORIZATION, authorization.as_str()),
            (DATE_HEADER, scope.timestamp.as_str()),
        ];
        for (name, value) in own.into_iter().chain(token) {
            let mut value = HeaderValue::try_from(value).map_err(|_| {
                let name = &asked.provider.name;
                asked.new_error(
                    ModelErrorKind::Key,
                    format!("a key for {name} holds characters that HTTP does not allow"),
                )
            })?;
            // The time is no secret, but a replay, which runs at another time, compares all headers
            // that are not sensitive.
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(headers)
    }

    /// Returns the value of the `authorization` header, with the signature.
    fn authorization_header(
        &self,
        request: &CanonicalRequest<'_>,
        scope: &CredentialScope<'_>,
    ) -> String {
        let (canonical, names) = canonicalize_request(
            request,
            &scope.timestamp,
            self.token.as_ref().map(Secret::expose),
        );
        let place = format!(
            "{}/{}/{}/aws4_request",
            scope.day(),
            scope.region,
            scope.service
        );
        // The string to sign: algorithm, time, scope, and the hash of the canonical request.
        let text = format!(
            "AWS4-HMAC-SHA256\n{}\n{place}\n{}",
            scope.timestamp,
            to_hex(&Sha256::digest(canonical))
        );
        let signature = to_hex(&hmac_sha256(&signing_key(&self.secret_key, scope), &text));
        let access = &self.access_key;
        format!(
            "AWS4-HMAC-SHA256 Credential={access}/{place}, SignedHeaders={names}, Signature={signature}"
        )
    }
}

/// The header with the time of the signature.
const DATE_HEADER: HeaderName = HeaderName::from_static("x-amz-date");
/// The header with the token of temporary keys.
const TOKEN_HEADER: HeaderName = HeaderName::from_static("x-amz-security-token");

impl CredentialScope<'_> {
    /// Returns the day, such as `20150830`.
    fn day(&self) -> &str {
        self.timestamp.split('T').next().unwrap_or_default()
    }
}

/// Returns the canonical form of a request, which is signed, and the names of the signed headers.
fn canonicalize_request(
    request: &CanonicalRequest<'_>,
    stamp: &str,
    token: Option<&str>,
) -> (String, &'static str) {
    let mut headers = format!("host:{}\nx-amz-date:{stamp}\n", request.host);
    let names = match token {
        Some(token) => {
            let _ = writeln!(headers, "x-amz-security-token:{token}");
            "host;x-amz-date;x-amz-security-token"
        }
        None => "host;x-amz-date",
    };
    let mut query: Vec<String> = request
        .query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(normalize_pair)
        .collect();
    // The specification demands the pairs sorted by name, then by value.
    query.sort_unstable();
    let body = to_hex(&Sha256::digest(request.body));
    let path = escape_path(request.path);
    let text = format!(
        "{}\n{path}\n{}\n{headers}\n{names}\n{body}",
        request.method,
        query.join("&")
    );
    (text, names)
}

/// Adds an empty value to a pair of the query without one.
fn normalize_pair(pair: &str) -> String {
    if pair.contains('=') {
        pair.to_owned()
    } else {
        format!("{pair}=")
    }
}

/// Escapes all but the unreserved characters of a path, including the `%` of earlier escapes.
fn escape_path(path: &str) -> String {
    path.bytes().fold(String::new(), |mut text, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
        text
    })
}

/// Derives the key for one day, one region and one service.
fn signing_key(secret: &Secret, scope: &CredentialScope<'_>) -> [u8; 32] {
    // The specification puts this prefix before the secret key.
    let first = format!("AWS4{}", secret.expose());
    let day = hmac_sha256(first.as_bytes(), scope.day());
    [scope.region, scope.service, "aws4_request"]
        .iter()
        .fold(day, |key, text| hmac_sha256(&key, text))
}

/// Computes the HMAC-SHA-256 of a text.
fn hmac_sha256(key: &[u8], text: &str) -> [u8; 32] {
    // HMAC accepts keys of any length, so the error cannot occur.
    let Ok(mut hmac) = Hmac::<Sha256>::new_from_slice(key) else {
        return [0; 32];
    };
    hmac.update(text.as_bytes());
    hmac.finalize().into_bytes().into()
}

/// Formats bytes as lower-case hexadecimal digits, as the specification demands.
fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Formats a time since 1970 as `20150830T123600Z`.
fn format_timestamp(since: Duration) -> String {
    sabir_wire::format_timestamp(since.as_secs()).replace(['-', ':'], "")
}

#[cfg(test)]
mod tests {
    use sabir_wire::Wire;

    use super::*;
    use crate::provider::Provider;

    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

    fn scope<'a>(stamp: &str, region: &'a str, service: &'a str) -> CredentialScope<'a> {
        CredentialScope {
            timestamp: stamp.to_owned(),
            region,
            service,
        }
    }

    /// The example of Amazon's documentation on deriving a key.
    #[test]
    fn a_key_is_derived_as_published() {
        let key = signing_key(
            &Secret::new(SECRET),
            &scope("20120215T000000Z", "us-east-1", "iam"),
        );
        assert_eq!(
            to_hex(&key),
            "f4780e2d9f65fa895f9c67b32ce1baf0b0d8a43505a000a1a9e090d414db404d"
        );
    }

    /// Rows of Amazon's test suite for signature version 4.
    #[test]
    fn requests_are_signed_as_published() {
        let check = |method: &str,
                     path: &str,
                     query: &str,
                     token: Option<&str>,
                     signature: &str| {
            let signing = SigningCredentials {
                access_key: "AKIDEXAMPLE".into(),
                secret_key: Secret::new(SECRET),
                token: token.map(Secret::new),
                region: "us-east-1".into(),
                clock: || UNIX_EPOCH,
            };
            let request = CanonicalRequest {
                method,
                host: "example.amazonaws.com",
                path,
                query,
                body: b"",
            };
            let names = if token.is_some() {
                ";x-amz-security-token"
            } else {
                ""
            };
            let expected = format!(
                "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
                 SignedHeaders=host;x-amz-date{names}, Signature={signature}"
            );
            let scope = scope("20150830T123600Z", "us-east-1", "service");
            assert_eq!(
                signing.authorization_header(&request, &scope),
                expected,
                "{method} {path}?{query}"
            );
        };
        // get-vanilla, post-vanilla, get-utf8, get-vanilla-query-order-key-case,
        // get-vanilla-with-session-token.
        check(
            "GET",
            "/",
            "",
            None,
            "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
        );
        check(
            "POST",
            "/",
            "",
            None,
            "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
        );
        check(
            "GET",
            "/ሴ",
            "",
            None,
            "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85",
        );
        let query = "Param2=value2&Param1=value1";
        check(
            "GET",
            "/",
            query,
            None,
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
        );
        let token = "6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267";
        check(
            "GET",
            "/",
            "",
            Some(token),
            "07ec1639c89043aa0e3e2de82b96708f198cceab042d4a97044c66dd9f74e7f8",
        );
    }

    /// The signature that Amazon's own client for Python makes of this request.
    #[test]
    fn a_model_of_slashes_and_colons_is_signed_as_botocore_does() {
        let signing = SigningCredentials {
            access_key: "AKIDEXAMPLE".into(),
            secret_key: Secret::new(SECRET),
            token: Some(Secret::new("temporary")),
            region: "eu-west-1".into(),
            clock: || UNIX_EPOCH + Duration::from_secs(1_440_938_160),
        };
        let mut provider = Provider::new(
            "b",
            Wire::Bedrock,
            "https://bedrock-runtime.eu-west-1.amazonaws.com",
            None,
        );
        provider.signing = Some(signing);
        let asked = RequestTarget {
            provider: &provider,
            model: "arn:aws:bedrock:eu-west-1:1:inference-profile/a.b-v1:0",
        };
        let headers = asked.signature_headers(br#"{"messages":[]}"#).unwrap();
        let expected = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/eu-west-1/bedrock/aws4_request, \
                        SignedHeaders=host;x-amz-date;x-amz-security-token, \
                        Signature=1198a34375b8833914b68f08e8019a31a875dd76e9a85379bc2e598111fa70c6";
        assert_eq!(headers.get(AUTHORIZATION).unwrap(), expected);
    }

    #[test]
    fn times_are_written_as_amazon_wants_them() {
        let check = |seconds: u64, expected: &str| {
            assert_eq!(format_timestamp(Duration::from_secs(seconds)), expected)
        };
        check(0, "19700101T000000Z");
        check(1_440_938_160, "20150830T123600Z");
        check(951_782_400, "20000229T000000Z");
        check(1_709_251_199, "20240229T235959Z");
        check(1_709_251_200, "20240301T000000Z");
        check(4_107_542_400, "21000301T000000Z");
    }

    #[test]
    fn an_escaped_path_is_escaped_again() {
        assert_eq!(
            escape_path("/model/a%3A0/converse"),
            "/model/a%253A0/converse"
        );
    }
}
