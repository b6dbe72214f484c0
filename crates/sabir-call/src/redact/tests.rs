//! Tests of all secret formats in many surroundings, properties of texts made of secrets and their
//! parts, and the text of this repository.

use std::fs;
use std::path::Path;

use proptest::prelude::*;

use super::*;

/// Returns letters without equal neighbours, built here so that no source file contains anything
/// like a key.
fn letters(count: usize) -> String {
    "Ab3dE5gHi7".chars().cycle().take(count).collect()
}

fn capitals(count: usize) -> String {
    letters(count).to_uppercase()
}

fn block(kind: &str, lines: usize) -> String {
    let line = format!("{}\n", letters(64));
    format!(
        "-----BEGIN {kind}-----\n{}-----END {kind}-----",
        line.repeat(lines)
    )
}

/// Returns secrets of every format, with their names.
fn secrets() -> Vec<(&'static str, String)> {
    let jwt = format!(
        "{0}JhbGciOiJIUzI1NiJ9.{0}JzdWIiOiIx{1}.{2}",
        "ey",
        letters(20),
        letters(43)
    );
    let mut all = vec![
        ("AWS access key id", format!("AKIA{}", capitals(16))),
        ("AWS access key id", format!("ASIA{}", "A".repeat(16))),
        (
            "GitHub token",
            format!("github_pat_{}_{}", letters(22), letters(59)),
        ),
        ("GitLab token", format!("glpat-{}", letters(20))),
        (
            "OpenAI key",
            format!("sk-proj-{}-{}", letters(40), letters(20)),
        ),
        (
            "Anthropic key",
            format!("sk-ant-api03-{}_{}", letters(60), letters(32)),
        ),
        ("API key", format!("sk-{}", letters(48))),
        ("OpenRouter key", format!("sk-or-v1-{}", letters(64))),
        ("Groq key", format!("gsk_{}", letters(52))),
        ("xAI key", format!("xai-{}", letters(80))),
        ("Perplexity key", format!("pplx-{}", letters(48))),
        ("Fireworks key", format!("fw_{}", letters(24))),
        ("Cerebras key", format!("csk-{}", letters(48))),
        ("NVIDIA key", format!("nvapi-{}", letters(64))),
        ("Together key", format!("tgp_v1_{}", letters(43))),
        ("Replicate token", format!("r8_{}", letters(37))),
        ("Bedrock key", format!("ABSK{}", letters(128))),
        ("Google key", format!("AQ.{}", letters(50))),
        ("Vercel key", format!("vck_{}", letters(40))),
        ("Databricks token", format!("dapi{}", letters(32))),
        ("DigitalOcean token", format!("dop_v1_{}", letters(64))),
        ("Vault token", format!("hvs.{}", letters(90))),
        ("Google key", format!("AIza{}", letters(35))),
        ("Stripe key", format!("sk_live_{}", letters(24))),
        ("Stripe key", format!("rk_live_{}", letters(24))),
        ("npm token", format!("npm_{}", letters(36))),
        (
            "PyPI token",
            format!("pypi-AgEIcHlwaS5vcmc{}", letters(100)),
        ),
        ("Hugging Face token", format!("hf_{}", letters(34))),
        ("JWT", jwt),
        ("private key", block("RSA PRIVATE KEY", 4)),
        ("private key", block("OPENSSH PRIVATE KEY", 2)),
        ("private key", block("PRIVATE KEY", 1)),
    ];
    all.extend(
        ["ghp_", "gho_", "ghu_", "ghs_", "ghr_"]
            .map(|begin| ("GitHub token", format!("{begin}{}", letters(36)))),
    );
    all.extend(["xoxa-", "xoxb-", "xoxp-", "xoxr-", "xoxs-"].map(|begin| {
        (
            "Slack token",
            format!("{begin}123456789012-{}", letters(24)),
        )
    }));
    all
}

#[test]
fn every_format_is_replaced_by_its_marker() {
    for (name, secret) in secrets() {
        for (before, behind) in [
            ("", ""),
            ("a ", " b"),
            ("KEY=", "\n"),
            ("\"", "\","),
            ("https://h/p?key=", "&x=1"),
            ("\\n", "\\n"),
            ("\u{1b}[01;31m", "\u{1b}[0m"),
            ("a\n+", "\n"),
            ("%3D", "%26"),
            ("1 | ", "\n2 | é"),
            ("é", "ü"),
        ] {
            // A key block ends with a line, so the text after it in the same line is not specified.
            let expected = format!("{before}[redacted: {name}]{behind}");
            assert_eq!(
                redact_text(&format!("{before}{secret}{behind}")),
                expected,
                "{secret}"
            );
        }
    }
}

#[test]
fn only_the_secret_part_is_removed() {
    let check = |shown: &str, expected: &str| assert_eq!(redact_text(shown), expected);
    let secret = letters(40);
    let value = letters(24);
    check(
        "git clone https://ann:hunter2@host/x.git",
        "git clone https://ann:[redacted: password]@host/x.git",
    );
    check(
        "redis://:s%40cret@h:6379/0",
        "redis://:[redacted: password]@h:6379/0",
    );
    for name in [
        "aws_secret_access_key = ",
        "AWS_SECRET_ACCESS_KEY=",
        "\"secretAccessKey\": \"",
        "SECRET_ACCESS_KEY\\\": \\\"",
    ] {
        check(
            &format!("{name}{secret}\n"),
            &format!("{name}[redacted: AWS secret access key]\n"),
        );
    }
    for name in [
        "Authorization: Bearer ",
        "authorization: token ",
        "'Authorization': 'Basic ",
        "Proxy-Authorization=",
        "x-api-key: ",
    ] {
        let what = if name.starts_with('x') {
            "API key"
        } else {
            "authorization"
        };
        check(
            &format!("-H \"{name}{value}\""),
            &format!("-H \"{name}[redacted: {what}]\""),
        );
    }
    check(
        &format!("a Bearer {value} b"),
        "a Bearer [redacted: authorization] b",
    );
    check(
        "Authorization: Basic dXNlcjpwYXNz\r\n",
        "Authorization: Basic [redacted: authorization]\r\n",
    );
    let numbered: Vec<_> = block("EC PRIVATE KEY", 3)
        .lines()
        .map(|line| format!("7 | {line}"))
        .collect();
    check(
        &format!("{}\n8 | x = 1\n", numbered.join("\n")),
        "7 | [redacted: private key]\n8 | x = 1\n",
    );
    let cut = block("PRIVATE KEY", 9);
    check(
        &format!("{}...(rest)", cut.split_at(cut.len() - 60).0),
        "[redacted: private key]...(rest)",
    );
    let header = "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,0011\n\n";
    check(
        &block("RSA PRIVATE KEY", 5).replacen('\n', &format!("\n{header}"), 1),
        "[redacted: private key]",
    );
}

#[test]
fn similar_text_is_kept() {
    let long = letters(400);
    let hex = "0123456789abcdef".repeat(8);
    let ids = [
        "call_",
        "toolu_",
        "msg_",
        "resp_",
        "fc_",
        "chatcmpl-",
        "req_",
        "rs_",
        "thread_",
        "gen-",
        "call-",
    ];
    let mut all: Vec<String> = ids
        .iter()
        .map(|id| format!("{id}{}", letters(40)))
        .collect();
    all.extend([
        hex.clone(),
        format!("sha256-{}=", letters(43)),
        format!("{long}ghp_{}", letters(36)),
        format!("{long}/AKIA{}x/{long}", capitals(16)),
        format!("{long}/AIza{}/{long}", letters(35)),
        format!("Aa_{long}-sk-{}", letters(30)),
        "0190b3c2-7a1e-7c3d-9f00-0123456789ab".to_owned(),
        "ghp_short npm_config_cache hf_hub_download sk-learn sk-fading-circle-with-dots-12 glpat- xoxb-token"
            .to_owned(),
        "the bearer of this; Bearer authentication; Authorization: required; Authorization: Basic auth".to_owned(),
        "https://host:8080/a@b mailto:a:b@c https://$USER:$TOKEN@host https://u:<password>@host u:p@h".to_owned(),
        "-----BEGIN PRIVATE KEY-----\" is how such a file begins".to_owned(),
        "-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----".to_owned(),
        block("CERTIFICATE", 12),
        block("PUBLIC KEY", 4),
        "aws_secret_access_key = os.environ[\"AWS_SECRET_ACCESS_KEY\"]".to_owned(),
        "eyJhbGciOiJIUzI1NiJ9 eyJa.eyJ eyJ.eyJ. eyJhbGciOiJIUzI1NiJ9.png".to_owned(),
    ]);
    for shown in all {
        assert_eq!(redact_text(&shown), shown);
    }
}

fn files(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() && name != "target" && name != ".git" && name != "node_modules" {
            files(&path, found);
        } else if path.extension().is_some_and(|end| {
            ["rs", "md", "toml", "lock", "jsonl", "json"]
                .iter()
                .any(|it| end == *it)
        }) {
            found.push(path);
        }
    }
}

/// Checks that this repository's text contains no secret, except a few addresses with made-up
/// passwords in tests.
#[test]
fn this_repository_is_unchanged() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap();
    let mut all = Vec::new();
    files(root, &mut all);
    assert!(all.len() > 200, "the tree was not found");
    for path in all {
        let Ok(before) = fs::read_to_string(&path) else {
            continue;
        };
        let after = redact_text(&before);
        for (_, other) in before
            .lines()
            .zip(after.lines())
            .filter(|(one, other)| one != other)
        {
            let made_up = ["[redacted: password]", "[redacted: authorization]"]
                .iter()
                .any(|sign| other.contains(sign));
            assert!(made_up, "{}: {other}", path.display());
        }
    }
}

#[test]
fn escaped_json_strings_are_redacted() {
    let key = block("PRIVATE KEY", 3);
    let token = format!("ghp_{}", letters(36));
    let value = serde_json::json!({"a": [key, format!("\"{token}\"\t{token}"), 1.50, null], token.as_str(): {"é": "\u{1}"}});
    let expected = serde_json::json!({
        "a": ["[redacted: private key]", "\"[redacted: GitHub token]\"\t[redacted: GitHub token]", 1.50, null],
        "[redacted: GitHub token]": {"é": "\u{1}"},
    });
    assert_eq!(redact_json(&value.to_string()), expected.to_string());
    let plain = r#"{"a": 1.000, "b": "\u0041\/", "c":"\ud800"}"#;
    assert_eq!(redact_json(plain), plain);
    assert_eq!(
        redact_json(&format!("no JSON, {token}")),
        "no JSON, [redacted: GitHub token]"
    );
    assert_eq!(
        redact_json(&format!(r#"{{"a":"\ud800 {token}"#)),
        r#"{"a":"\ud800 [redacted: GitHub token]"#
    );
}

#[test]
fn held_bytes_are_bounded() {
    for begin in [
        "eyJ",
        "x://a:",
        "-----BEGIN PRIVATE KEY-----\n",
        "authorization: ",
        "sk-",
        "bearer ",
        "hf_",
        "-----BEGIN ",
    ] {
        for filler in ["a", "A", " ", "ab\n", ":"] {
            let mut redactor = Redactor::default();
            let mut most = 0;
            for piece in std::iter::once(begin).chain(std::iter::repeat_n(filler, 20_000)) {
                redactor.redact_piece(piece);
                most = most.max(redactor.held_bytes());
            }
            assert!(most <= 1700, "{begin:?} {filler:?}: {most}");
        }
    }
}

/// Generates text in which secrets, their prefixes and their neighbours are likely.
fn likely() -> impl Strategy<Value = String> {
    let secret = prop::sample::select(secrets()).prop_map(|(_, secret)| secret);
    let part =
        (prop::sample::select(secrets()), 0.0..1.0).prop_map(|((_, secret), part): (_, f64)| {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a part of a length"
            )]
            let end = (secret.len() as f64 * part) as usize;
            secret.get(..end).unwrap_or_default().to_owned()
        });
    let glue = prop::sample::select(vec![
        "",
        " ",
        "\n",
        "\"",
        "\\n",
        "=",
        "/",
        "-",
        "+",
        ".",
        "@",
        ":",
        "://u:p",
        "é",
        "Bearer ",
        "authorization: ",
        "\u{1b}[1m",
        "aws_secret_access_key=",
        concat!("-----BEGIN PRIVATE", " KEY-----\n"),
        "-----",
        "eyJ",
        "sk-",
        "%3d",
        "abc",
        "7",
    ]);
    let piece =
        prop_oneof![2 => secret, 3 => part, 6 => glue.prop_map(str::to_owned), 1 => ".{0,8}"];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn chunking_never_changes_the_result(shown in likely(), cuts in prop::collection::vec(1_usize..40, 1..20)) {
        let expected = redact_text(&shown).into_owned();
        for cuts in [vec![1], cuts] {
            let mut redactor = Redactor::default();
            let mut out = Vec::new();
            let mut from = 0;
            let mut bytes = 0;
            let mut take = |piece: RedactedPiece<'_>| {
                bytes += match piece {
                    RedactedPiece::Plain(plain) => plain.len(),
                    RedactedPiece::Secret { bytes, .. } | RedactedPiece::More(bytes) => bytes,
                };
                piece.write_to(&mut out);
            };
            for size in cuts.iter().cycle() {
                let end = (from + size).min(shown.len());
                redactor.push(&shown.as_bytes()[from..end], &mut take);
                from = end;
                if from == shown.len() {
                    break;
                }
            }
            redactor.finish(&mut take);
            prop_assert_eq!(bytes, shown.len());
            prop_assert_eq!(String::from_utf8(out).unwrap(), expected.as_str());
        }
    }

    #[test]
    fn redaction_is_idempotent(shown in likely()) {
        let once = redact_text(&shown).into_owned();
        prop_assert_eq!(redact_text(&once), once.as_str());
    }

    #[test]
    fn json_stays_json(shown in likely()) {
        let value = serde_json::json!({"a": [shown], shown.as_str(): 1});
        let again: serde_json::Value = serde_json::from_str(&redact_json(&value.to_string())).unwrap();
        prop_assert_eq!(again["a"][0].as_str().unwrap(), redact_text(&shown));
    }
}
