//! Reads the region and the signing keys for Amazon Bedrock from the environment, by the names that Amazon's own tools use.

use std::time::SystemTime;

use sabir_model::{Provider, Secret, SigningCredentials};

/// The text before and after the region in the host of an endpoint.
const HOST_PARTS: (&str, &str) = ("bedrock-runtime.", ".amazonaws.com");

/// The region of an endpoint whose address and environment name none.
const DEFAULT_REGION: &str = "us-east-1";

/// Sets the region of a Bedrock provider, and its signing credentials if it has no other key.
///
/// If `usual` is set, the base URL is the provider's default, and is replaced by the URL of the environment's region. Amazon's credential
/// files are not read.
pub(crate) fn apply_aws_environment(
    provider: &mut Provider,
    usual: bool,
    clock: fn() -> SystemTime,
    variable: impl Fn(&str) -> Option<String>,
) {
    let named = || {
        ["AWS_REGION", "AWS_DEFAULT_REGION"]
            .iter()
            .find_map(|name| variable(name))
    };
    let own = region_of(&provider.base_url)
        .filter(|_| !usual)
        .map(str::to_owned);
    let region = own
        .or_else(named)
        .unwrap_or_else(|| DEFAULT_REGION.to_owned());
    if usual {
        provider.base_url = format!("https://{}{region}{}", HOST_PARTS.0, HOST_PARTS.1);
    }
    if provider.key.is_none()
        && let (Some(access_key), Some(secret)) = (
            variable("AWS_ACCESS_KEY_ID"),
            variable("AWS_SECRET_ACCESS_KEY"),
        )
    {
        let secret_key = Secret::new(secret);
        // Temporary credentials come with a session token, which must be sent with each request.
        let token = variable("AWS_SESSION_TOKEN").map(Secret::new);
        provider.signing = Some(SigningCredentials {
            access_key,
            secret_key,
            token,
            region,
            clock,
        });
    }
}

fn region_of(url: &str) -> Option<&str> {
    let (_, host) = url.split_once(HOST_PARTS.0)?;
    host.split_once(HOST_PARTS.1).map(|(region, _)| region)
}

#[cfg(test)]
mod tests {
    use sabir_wire::Wire;

    use super::*;

    #[test]
    fn regions_and_keys_are_found_in_every_source() {
        let check =
            |url: &str, usual: bool, variables: &[(&str, &str)], expected: (&str, Option<&str>)| {
                let mut provider = Provider::new("bedrock", Wire::Bedrock, url, None);
                apply_aws_environment(&mut provider, usual, SystemTime::now, |name| {
                    variables
                        .iter()
                        .find(|(known, _)| *known == name)
                        .map(|(_, value)| (*value).to_owned())
                });
                let region = provider
                    .signing
                    .as_ref()
                    .map(|signing| signing.region.as_str());
                assert_eq!((provider.base_url.as_str(), region), expected);
            };
        let keys = [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "s")];
        let here = [
            ("AWS_REGION", "eu-west-1"),
            ("AWS_DEFAULT_REGION", "eu-north-1"),
            keys[0],
            keys[1],
        ];
        let at = |region: &str| format!("https://bedrock-runtime.{region}.amazonaws.com");
        check(
            &at("us-east-1"),
            true,
            &keys,
            (&at("us-east-1"), Some("us-east-1")),
        );
        check(
            &at("us-east-1"),
            true,
            &here,
            (&at("eu-west-1"), Some("eu-west-1")),
        );
        check(
            &at("us-east-1"),
            true,
            &here[1..],
            (&at("eu-north-1"), Some("eu-north-1")),
        );
        // An address that somebody chose is not moved, and says its region if it can.
        check(
            &at("ap-south-1"),
            false,
            &here,
            (&at("ap-south-1"), Some("ap-south-1")),
        );
        check(
            "http://localhost:1",
            false,
            &here,
            ("http://localhost:1", Some("eu-west-1")),
        );
        check(
            "http://localhost:1",
            false,
            &keys[..1],
            ("http://localhost:1", None),
        );
    }
}
