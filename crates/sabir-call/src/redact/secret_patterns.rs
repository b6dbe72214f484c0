//! Defines the formats of known secrets and matches them.
//!
//! Each row gives a secret's prefix and the rule for its body. The length, the alphabet and the
//! surrounding text separate secrets from similar text: encoded data (signatures, images, hashes)
//! may contain any prefix by chance, but then in the middle of a word.

/// One secret format.
struct SecretPattern {
    /// The name that appears in the redaction marker.
    name: &'static str,
    /// The prefix, in lower case if case is ignored.
    begin: &'static [u8],
    case: CaseRule,
    place: StartBoundary,
    body: BodyRule,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CaseRule {
    Sensitive,
    Insensitive,
}

/// The position at which a secret may begin.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StartBoundary {
    /// Only at the start of a word.
    WordBoundary,
    Anywhere,
}

/// The rule for the bytes after the prefix.
#[derive(Clone, Copy)]
enum BodyRule {
    /// At least `least` bytes of this class.
    Run { of: ByteClass, least: usize },
    /// At least `least` bytes of this class, with a digit among them; without a digit, twice as
    /// many.
    Mixed { of: ByteClass, least: usize },
    /// Like `Mixed`, but the prefix is not part of the secret.
    Value { of: ByteClass, least: usize },
    /// Exactly `count` bytes of this class.
    Exactly { of: ByteClass, count: usize },
    /// The rest of a JSON Web Token's header, and the beginning of its claims.
    Jwt,
    /// `user:password@`.
    Password,
    /// The rest of a private key's first line, and the key.
    Block,
    /// An assignment sign and a value of exactly `count` bytes.
    Assigned { of: ByteClass, count: usize },
    /// An assignment sign and the value of a header.
    Header,
}

type ByteClass = fn(u8) -> bool;

/// The result of matching at one position.
pub(super) enum SecretScan {
    Nothing,
    /// More text is needed to decide.
    Undecided,
    Secret(SecretMatch),
}

/// A matched secret, with offsets from the start of its prefix.
pub(super) struct SecretMatch {
    pub(super) name: &'static str,
    /// The start of the secret part; the text before it stays visible.
    pub(super) from: usize,
    /// The known end of the secret.
    pub(super) to: usize,
    /// The rule for the rest of the secret.
    pub(super) rest: SecretRest,
}

/// The rule for the bytes that continue a secret after its match.
#[derive(Debug, Default)]
pub(super) enum SecretRest {
    #[default]
    Nothing,
    /// All following bytes of this class.
    Run(ByteClass),
    /// A private key up to the end of its last line: the current run of dashes, and the number of
    /// dash groups seen.
    Block(usize, usize),
}

const fn exact_pattern(name: &'static str, begin: &'static str, body: BodyRule) -> SecretPattern {
    SecretPattern {
        name,
        begin: begin.as_bytes(),
        case: CaseRule::Sensitive,
        place: StartBoundary::WordBoundary,
        body,
    }
}

const fn ignore_case_pattern(
    name: &'static str,
    begin: &'static str,
    place: StartBoundary,
    body: BodyRule,
) -> SecretPattern {
    SecretPattern {
        name,
        begin: begin.as_bytes(),
        case: CaseRule::Insensitive,
        place,
        body,
    }
}

// Lengths are somewhat below those that vendors use today, because vendors vary them.
const KEY: BodyRule = BodyRule::Run {
    of: is_token_byte,
    least: 20,
};
/// Providers' keys of letters and digits; the prefix is short, so a digit must be among them.
const KEY_OF_LETTERS: BodyRule = BodyRule::Mixed {
    of: is_alphanumeric,
    least: 20,
};
const GITHUB: BodyRule = BodyRule::Run {
    of: is_alphanumeric,
    least: 30,
};
const SLACK: BodyRule = BodyRule::Mixed {
    of: is_token_byte,
    least: 10,
};
const STRIPE: BodyRule = BodyRule::Run {
    of: is_alphanumeric,
    least: 16,
};
const AWS_ID: BodyRule = BodyRule::Exactly {
    of: is_upper_or_digit,
    count: 16,
};
const AWS_SECRET: BodyRule = BodyRule::Assigned {
    of: is_base64_byte,
    count: 40,
};

const ROWS: [SecretPattern; 52] = [
    // Long-term keys and temporary keys.
    exact_pattern("AWS access key id", "AKIA", AWS_ID),
    exact_pattern("AWS access key id", "ASIA", AWS_ID),
    ignore_case_pattern(
        "AWS secret access key",
        "secret_access_key",
        StartBoundary::Anywhere,
        AWS_SECRET,
    ),
    ignore_case_pattern(
        "AWS secret access key",
        "secretaccesskey",
        StartBoundary::Anywhere,
        AWS_SECRET,
    ),
    // Personal, OAuth, user-to-server, server-to-server and refresh tokens.
    exact_pattern("GitHub token", "ghp_", GITHUB),
    exact_pattern("GitHub token", "gho_", GITHUB),
    exact_pattern("GitHub token", "ghu_", GITHUB),
    exact_pattern("GitHub token", "ghs_", GITHUB),
    exact_pattern("GitHub token", "ghr_", GITHUB),
    exact_pattern(
        "GitHub token",
        "github_pat_",
        BodyRule::Run {
            of: is_token_byte,
            least: 30,
        },
    ),
    exact_pattern("GitLab token", "glpat-", KEY),
    exact_pattern("Anthropic key", "sk-ant-", KEY),
    exact_pattern("OpenAI key", "sk-proj-", KEY),
    exact_pattern("OpenAI key", "sk-svcacct-", KEY),
    exact_pattern("OpenAI key", "sk-admin-", KEY),
    exact_pattern("OpenRouter key", "sk-or-v1-", KEY),
    exact_pattern("Groq key", "gsk_", GITHUB),
    exact_pattern("xAI key", "xai-", GITHUB),
    exact_pattern("Perplexity key", "pplx-", GITHUB),
    exact_pattern("Fireworks key", "fw_", KEY_OF_LETTERS),
    exact_pattern("Cerebras key", "csk-", KEY_OF_LETTERS),
    exact_pattern("NVIDIA key", "nvapi-", KEY),
    exact_pattern("Together key", "tgp_v1_", KEY),
    exact_pattern("Replicate token", "r8_", GITHUB),
    exact_pattern(
        "Bedrock key",
        "ABSK",
        BodyRule::Run {
            of: is_base64_byte,
            least: 60,
        },
    ),
    exact_pattern(
        "Google key",
        "AQ.",
        BodyRule::Mixed {
            of: is_token_byte,
            least: 30,
        },
    ),
    exact_pattern("Vercel key", "vck_", KEY),
    exact_pattern(
        "Databricks token",
        "dapi",
        BodyRule::Exactly {
            of: is_alphanumeric,
            count: 32,
        },
    ),
    exact_pattern("DigitalOcean token", "dop_v1_", GITHUB),
    exact_pattern("Vault token", "hvs.", KEY),
    // Older OpenAI keys and those of many compatible providers. `sk-` also begins identifiers, so
    // the body must contain a digit or be long.
    exact_pattern(
        "API key",
        "sk-",
        BodyRule::Mixed {
            of: is_alphanumeric,
            least: 20,
        },
    ),
    exact_pattern("Slack token", "xoxa-", SLACK),
    exact_pattern("Slack token", "xoxb-", SLACK),
    exact_pattern("Slack token", "xoxe-", SLACK),
    exact_pattern("Slack token", "xoxp-", SLACK),
    exact_pattern("Slack token", "xoxr-", SLACK),
    exact_pattern("Slack token", "xoxs-", SLACK),
    exact_pattern("Slack token", "xapp-", SLACK),
    exact_pattern(
        "Google key",
        "AIza",
        BodyRule::Exactly {
            of: is_token_byte,
            count: 35,
        },
    ),
    exact_pattern("Stripe key", "sk_live_", STRIPE),
    exact_pattern("Stripe key", "rk_live_", STRIPE),
    exact_pattern(
        "npm token",
        "npm_",
        BodyRule::Run {
            of: is_alphanumeric,
            least: 36,
        },
    ),
    exact_pattern(
        "PyPI token",
        "pypi-",
        BodyRule::Run {
            of: is_token_byte,
            least: 50,
        },
    ),
    exact_pattern("Hugging Face token", "hf_", GITHUB),
    // `eyJ` is the base64 form of `{"`, with which every JSON header begins.
    exact_pattern("JWT", "eyJ", BodyRule::Jwt),
    // The password in a URL such as `https://user:password@host`.
    ignore_case_pattern(
        "password",
        "://",
        StartBoundary::Anywhere,
        BodyRule::Password,
    ),
    ignore_case_pattern(
        "private key",
        BLOCK,
        StartBoundary::Anywhere,
        BodyRule::Block,
    ),
    ignore_case_pattern(
        "authorization",
        "authorization",
        StartBoundary::Anywhere,
        BodyRule::Header,
    ),
    ignore_case_pattern(
        "authorization",
        "bearer ",
        StartBoundary::WordBoundary,
        BodyRule::Value {
            of: is_value_byte,
            least: 20,
        },
    ),
    ignore_case_pattern(
        "API key",
        "x-api-key",
        StartBoundary::WordBoundary,
        BodyRule::Header,
    ),
    ignore_case_pattern(
        "API key",
        "x-goog-api-key",
        StartBoundary::WordBoundary,
        BodyRule::Header,
    ),
    ignore_case_pattern(
        "API key",
        "private-token",
        StartBoundary::WordBoundary,
        BodyRule::Header,
    ),
];

/// The number of bytes of a value that are examined to decide what it is.
const SEEN: usize = 80;
/// The maximum length of a JSON Web Token's header, in bytes.
const JWT_HEADER: usize = 1024;
/// The maximum length of the user name in a URL, in bytes.
const USER: usize = 128;
/// The maximum length of the password in a URL, in bytes.
const PASSWORD: usize = 256;
/// The maximum distance between a private key's first line and its first line of data, in bytes.
/// Headers such as `Proc-Type` may be between.
const BLOCK_HEAD: usize = 256;
/// The number of consecutive base64 bytes that identify a line of key data.
const BLOCK_LINE: usize = 40;
/// The maximum number of bytes between a name and its value.
const ASSIGNMENT: usize = 8;
/// The maximum length of an authorization scheme's name, in bytes.
const SCHEME: usize = 16;
/// The prefix of a private key block, matched without regard to case.
const BLOCK: &str = "-----begin ";

/// For each byte, the patterns that begin with it: bit `n` for the row `n`.
const ROWS_BY_BYTE: [u64; 256] = rows_by_byte();

#[expect(
    clippy::indexing_slicing,
    reason = "evaluated at compile time, where `get` cannot be used"
)]
const fn rows_by_byte() -> [u64; 256] {
    assert!(ROWS.len() <= 64, "a row needs a bit");
    let mut rows = [0; 256];
    let mut at = 0;
    while at < ROWS.len() {
        let byte = ROWS[at].begin[0];
        rows[byte as usize] |= 1 << at;
        if matches!(ROWS[at].case, CaseRule::Insensitive) {
            rows[byte.to_ascii_uppercase() as usize] |= 1 << at;
        }
        at += 1;
    }
    rows
}

fn rows_of(byte: u8) -> u64 {
    ROWS_BY_BYTE
        .get(usize::from(byte))
        .copied()
        .unwrap_or_default()
}

/// Returns true if some pattern begins with that byte.
pub(super) fn may_begin(byte: u8) -> bool {
    rows_of(byte) != 0
}

/// Matches all patterns at a position. `ended` means that no text follows.
pub(super) fn match_at(text: &[u8], at: usize, ended: bool) -> SecretScan {
    let (before, text) = text.split_at_checked(at).unwrap_or_default();
    // Computed at most once per position, and only if a pattern with a boundary matches.
    let mut edge = None;
    // Most bytes begin a few of the patterns, if any.
    let mut possible = text.first().map_or(u64::MAX, |byte| rows_of(*byte));
    while let Some(row) = ROWS.get(possible.trailing_zeros() as usize) {
        possible &= possible - 1;
        let common = row.begin.len().min(text.len());
        let begin = row.begin.get(..common);
        let found = text.get(..common);
        let same = match row.case {
            CaseRule::Sensitive => begin == found,
            CaseRule::Insensitive => begin
                .zip(found)
                .is_some_and(|(begin, found)| begin.eq_ignore_ascii_case(found)),
        };
        if !same
            || row.place == StartBoundary::WordBoundary
                && !*edge.get_or_insert_with(|| is_edge(before))
        {
            continue;
        }
        let look = match text.get(row.begin.len()..) {
            // A prefix that is cut off by the end of the text may still be completed by the next
            // chunk.
            None if ended => SecretScan::Nothing,
            None => SecretScan::Undecided,
            Some(text) => row.match_body(FollowingText { text, ended }),
        };
        if !matches!(look, SecretScan::Nothing) {
            return look;
        }
    }
    SecretScan::Nothing
}

/// Returns true if a word may begin after that text. An escape sequence (`\n`, `%20`, `\u0020`), a
/// terminal color and the sign of a diff line end the word before.
fn is_edge(before: &[u8]) -> bool {
    let back = |by: usize| {
        before
            .len()
            .checked_sub(by)
            .and_then(|at| before.get(at))
            .copied()
    };
    let Some(last) = back(1) else { return true };
    if !(is_token_byte(last) || last == b'+') {
        return true;
    }
    let hex =
        |count: usize| (1..=count).all(|by| back(by).is_some_and(|byte| byte.is_ascii_hexdigit()));
    let color = || {
        let digits = (2..16)
            .take_while(|by| back(*by).is_some_and(|byte| byte.is_ascii_digit() || byte == b';'));
        back(2 + digits.count()) == Some(b'[')
    };
    match last {
        // At the start of a line these are diff markers.
        b'+' | b'-' => matches!(back(2), None | Some(b'\n')),
        // The letter belongs to an escape such as `\n`.
        b'n' | b'r' | b't' if back(2) == Some(b'\\') => true,
        // The end of a terminal color sequence such as `\x1b[31m`.
        b'm' if color() => true,
        // The digits belong to an escape such as `%20` or `\u0020`.
        _ => {
            hex(2) && back(3) == Some(b'%')
                || hex(4) && back(5) == Some(b'u') && back(6) == Some(b'\\')
        }
    }
}

impl SecretPattern {
    /// Applies the body rule to the text after the prefix.
    fn match_body(&self, behind: FollowingText<'_>) -> SecretScan {
        match self.body {
            BodyRule::Run { of, least } => {
                self.match_run(0, behind, of, |value| value.len() >= least)
            }
            BodyRule::Mixed { of, least } | BodyRule::Value { of, least } => {
                self.match_run(0, behind, of, |it| is_mixed(it, least))
            }
            BodyRule::Exactly { of, count } => self.match_exact_run(0, behind, of, count),
            BodyRule::Jwt => self.match_jwt(behind),
            BodyRule::Password => self.match_password(behind),
            BodyRule::Block => self.match_key_block(behind),
            BodyRule::Assigned { of, count } => match behind.assignment_len() {
                Ok(gap) => self.match_exact_run(gap, behind, of, count),
                Err(look) => look,
            },
            BodyRule::Header => self.match_header(behind),
        }
    }

    fn secret_match(&self, from: usize, to: usize, rest: SecretRest) -> SecretScan {
        let begin = self.begin.len();
        let from = match self.body {
            BodyRule::Run { .. }
            | BodyRule::Mixed { .. }
            | BodyRule::Exactly { .. }
            | BodyRule::Jwt
            | BodyRule::Block => 0,
            BodyRule::Value { .. }
            | BodyRule::Password
            | BodyRule::Assigned { .. }
            | BodyRule::Header => begin + from,
        };
        SecretScan::Secret(SecretMatch {
            name: self.name,
            from,
            to: begin + to,
            rest,
        })
    }

    /// Matches a value that begins `gap` bytes after the prefix, and accepts it if `is` does.
    fn match_run(
        &self,
        gap: usize,
        behind: FollowingText<'_>,
        of: ByteClass,
        is: impl Fn(&[u8]) -> bool,
    ) -> SecretScan {
        let value = behind.skip_bytes(gap);
        let seen = value.first_bytes(SEEN);
        let count = count_while(seen, of);
        if is(seen.get(..count).unwrap_or_default()) {
            return self.secret_match(gap, gap + count, SecretRest::Run(of));
        }
        if count < value.text.len() {
            SecretScan::Nothing
        } else {
            value.match_at_end()
        }
    }

    fn match_exact_run(
        &self,
        gap: usize,
        behind: FollowingText<'_>,
        of: ByteClass,
        count: usize,
    ) -> SecretScan {
        let value = behind.skip_bytes(gap);
        let found = self::count_while(value.first_bytes(count + 1), of);
        // A private key block directly after the value becomes a marker, which ends the value. A
        // prefix of the block must end the value too, or a second redaction would find more than
        // the first.
        let behind = value.text.get(count..).unwrap_or_default();
        let common = behind.len().min(BLOCK.len());
        let block = found >= count
            && BLOCK.get(..common).is_some_and(|begin| {
                behind
                    .get(..common)
                    .is_some_and(|begun| begun.eq_ignore_ascii_case(begin.as_bytes()))
            });
        match value.text.get(found) {
            _ if block && common == BLOCK.len() => {
                self.secret_match(gap, gap + count, SecretRest::Nothing)
            }
            _ if block && common > 0 && !value.ended => SecretScan::Undecided,
            _ if found > count => SecretScan::Nothing,
            None if !value.ended => SecretScan::Undecided,
            next if found < count
                || next.is_some_and(|next| is_token_byte(*next) || is_base64_byte(*next)) =>
            {
                SecretScan::Nothing
            }
            _ => self.secret_match(gap, gap + count, SecretRest::Nothing),
        }
    }

    fn match_jwt(&self, behind: FollowingText<'_>) -> SecretScan {
        let header = count_while(behind.first_bytes(JWT_HEADER), is_token_byte);
        match behind.text.get(header) {
            None => return behind.match_at_end(),
            Some(b'.') if header >= 8 => {}
            Some(_) => return SecretScan::Nothing,
        }
        let claims = behind.skip_bytes(header + 1);
        // Both halves of a token are base64 of JSON objects, so the claims begin with `ey` (`{"`),
        // like the header.
        let begin = claims.first_bytes(8);
        if !begin.iter().zip(b"ey").all(|(one, other)| one == other)
            || count_while(begin, is_token_byte) < begin.len()
        {
            return SecretScan::Nothing;
        }
        if begin.len() < 8 {
            claims.match_at_end()
        } else {
            self.secret_match(0, header + 9, SecretRest::Run(is_jwt_byte))
        }
    }

    fn match_password(&self, behind: FollowingText<'_>) -> SecretScan {
        let user = count_while(behind.first_bytes(USER), |byte| {
            is_address_byte(byte) && byte != b':'
        });
        match behind.text.get(user) {
            None => return behind.match_at_end(),
            Some(b':') => {}
            Some(_) => return SecretScan::Nothing,
        }
        let password = behind.skip_bytes(user + 1);
        // Not a password but a variable, a placeholder, or the marker of an earlier redaction.
        if password
            .text
            .first()
            .is_some_and(|first| b"$<{*[".contains(first))
        {
            return SecretScan::Nothing;
        }
        let length = count_while(password.first_bytes(PASSWORD), is_address_byte);
        match password.text.get(length) {
            None => password.match_at_end(),
            Some(b'@') if length > 0 => {
                self.secret_match(user + 1, user + 1 + length, SecretRest::Nothing)
            }
            Some(_) => SecretScan::Nothing,
        }
    }

    fn match_key_block(&self, behind: FollowingText<'_>) -> SecretScan {
        const KINDS: [&[u8]; 2] = [b"PRIVATE KEY", b"PRIVATE KEY BLOCK"];
        let label = count_while(behind.first_bytes(BLOCK_LINE), |byte| {
            is_upper_or_digit(byte) || byte == b' '
        });
        let dashes = behind.skip_bytes(label).first_bytes(5);
        let kind = behind.first_bytes(label);
        let other = !dashes.is_empty() && !KINDS.iter().any(|end| kind.ends_with(end));
        if other || dashes.iter().any(|byte| *byte != b'-') {
            return SecretScan::Nothing;
        }
        if dashes.len() < 5 {
            return behind.match_at_end();
        }
        let seen = behind.skip_bytes(label + 5).first_bytes(BLOCK_HEAD);
        let mut run = 0;
        let mut dashes = 0;
        for (at, byte) in seen.iter().enumerate() {
            run = if is_base64_byte(*byte) { run + 1 } else { 0 };
            dashes = if *byte == b'-' { dashes + 1 } else { 0 };
            // A full line of data, or the dashes of the last line after a short key.
            if run == BLOCK_LINE || dashes == 5 && at >= 16 {
                return self.secret_match(
                    0,
                    label + 6 + at,
                    SecretRest::Block(dashes, usize::from(dashes == 5)),
                );
            }
            if dashes == 5 || !is_key_block_byte(*byte) && *byte != b'.' {
                return SecretScan::Nothing;
            }
        }
        if seen.len() == BLOCK_HEAD {
            SecretScan::Nothing
        } else {
            behind.match_at_end()
        }
    }

    /// Matches the value of a header, after the name of its scheme if it has one.
    fn match_header(&self, behind: FollowingText<'_>) -> SecretScan {
        let gap = match behind.assignment_len() {
            Ok(gap) => gap,
            Err(look) => return look,
        };
        let value = behind.skip_bytes(gap);
        let scheme = count_while(value.first_bytes(SCHEME), |byte| byte.is_ascii_alphabetic());
        match value.text.get(scheme) {
            None if scheme < SCHEME && !value.ended => SecretScan::Undecided,
            Some(b' ') if scheme > 0 => {
                self.match_run(gap + scheme + 1, behind, is_header_byte, is_credential)
            }
            _ => self.match_run(gap, behind, is_header_byte, |value| is_mixed(value, 16)),
        }
    }
}

/// The known text after a position.
#[derive(Clone, Copy)]
struct FollowingText<'a> {
    text: &'a [u8],
    /// True if no text follows.
    ended: bool,
}

impl<'a> FollowingText<'a> {
    fn skip_bytes(self, at: usize) -> Self {
        Self {
            text: self.text.get(at..).unwrap_or_default(),
            ended: self.ended,
        }
    }

    /// Returns the first bytes, at most `count`.
    fn first_bytes(self, count: usize) -> &'a [u8] {
        self.text.get(..count).unwrap_or(self.text)
    }

    /// Returns the result for a match that reaches the end of the known text.
    fn match_at_end(self) -> SecretScan {
        if self.ended {
            SecretScan::Nothing
        } else {
            SecretScan::Undecided
        }
    }

    /// Returns the number of bytes between a name and its value.
    fn assignment_len(self) -> Result<usize, SecretScan> {
        let gap = count_while(self.first_bytes(ASSIGNMENT), |byte| {
            b" \t\"'\\:=>".contains(&byte)
        });
        // Without an assignment sign the name is only mentioned.
        let sign = self
            .first_bytes(gap)
            .iter()
            .any(|byte| matches!(byte, b':' | b'='));
        match self.text.get(gap) {
            None => Err(self.match_at_end()),
            Some(_) if sign => Ok(gap),
            Some(_) => Err(SecretScan::Nothing),
        }
    }
}

fn is_mixed(value: &[u8], least: usize) -> bool {
    value.len() >= least && (value.iter().any(u8::is_ascii_digit) || value.len() >= 2 * least)
}

/// Returns true if a value after a scheme's name looks like a credential: ordinary words have no
/// digit, and no capital after the first letter.
fn is_credential(value: &[u8]) -> bool {
    let odd = |byte: &u8| byte.is_ascii_digit() || byte.is_ascii_uppercase() || *byte == b'=';
    value.len() >= 8 && (value.iter().skip(1).any(odd) || value.len() >= 40)
}

fn count_while(text: &[u8], of: impl Fn(u8) -> bool) -> usize {
    text.iter()
        .position(|byte| !of(*byte))
        .unwrap_or(text.len())
}

fn is_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}

fn is_upper_or_digit(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit()
}

fn is_token_byte(byte: u8) -> bool {
    is_alphanumeric(byte) || byte == b'_' || byte == b'-'
}

fn is_base64_byte(byte: u8) -> bool {
    is_alphanumeric(byte) || matches!(byte, b'+' | b'/' | b'=')
}

fn is_jwt_byte(byte: u8) -> bool {
    is_token_byte(byte) || byte == b'.'
}

fn is_value_byte(byte: u8) -> bool {
    is_token_byte(byte) || matches!(byte, b'.' | b'~' | b'+' | b'/' | b'=')
}

fn is_header_byte(byte: u8) -> bool {
    is_value_byte(byte) || byte == b':'
}

/// Returns true for bytes that a user name or password in a URL may contain unescaped.
fn is_address_byte(byte: u8) -> bool {
    byte > b' ' && byte != 0x7f && !b"/?#@<>\"'`\\()".contains(&byte)
}

/// Returns true for bytes of a private key, including line numbers, escapes, quotes and frames that
/// tools add when they show a file.
fn is_key_block_byte(byte: u8) -> bool {
    is_base64_byte(byte)
        || byte.is_ascii_whitespace()
        || b"\\|\"',:->#*;[\x1b".contains(&byte)
        || byte >= 0x80
}

impl SecretRest {
    /// Returns the number of leading bytes of the text that belong to the secret.
    pub(super) fn take_bytes(&mut self, text: &[u8]) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Run(of) => count_while(text, *of),
            Self::Block(dashes, lines) => {
                for (at, byte) in text.iter().enumerate() {
                    // The first group of dashes opens the last line, the second one closes it.
                    if *lines == 2 && *dashes == 0 || !is_key_block_byte(*byte) {
                        return at;
                    }
                    *dashes = if *byte == b'-' { *dashes + 1 } else { 0 };
                    if *dashes == 5 {
                        *lines += 1;
                        if *lines == 2 {
                            *dashes = 0;
                        }
                    }
                }
                text.len()
            }
        }
    }
}
