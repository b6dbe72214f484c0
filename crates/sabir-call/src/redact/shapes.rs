//! The shapes of secrets.
//!
//! A row holds how a secret begins and what has to follow. It is told from what merely looks like it by its length, its letters and
//! what stands around it: encoded data (signatures, pictures, hashes) holds any beginning sooner or later, but in the middle of
//! its letters.

/// One shape.
struct Row {
    /// What it is called where it was taken out.
    name: &'static str,
    /// How it begins, in small letters where these make no difference.
    begin: &'static [u8],
    case: Case,
    place: Place,
    body: Body,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Case {
    Counts,
    Ignored,
}

/// Where a secret may begin.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Where no word goes on.
    Edge,
    Anywhere,
}

/// What follows the beginning.
#[derive(Clone, Copy)]
enum Body {
    /// So many of these at least.
    Run { of: Class, least: usize },
    /// So many of these at least, with a digit among them or twice as many.
    Mixed { of: Class, least: usize },
    /// The same, and the beginning is no part of the secret.
    Value { of: Class, least: usize },
    /// So many of these and no more.
    Exactly { of: Class, count: usize },
    /// The rest of a signed token's header, and the beginning of its claims.
    Jwt,
    /// `user:password@`.
    Password,
    /// The rest of a private key's first line, and the key.
    Block,
    /// A sign of assignment, and a value of exactly so many.
    Assigned { of: Class, count: usize },
    /// A sign of assignment, and a header's value.
    Header,
}

type Class = fn(u8) -> bool;

/// What stands at a place.
pub(super) enum Look {
    Nothing,
    /// It depends on what follows.
    Undecided,
    Secret(Secret),
}

/// A secret, counted from where its shape begins.
pub(super) struct Secret {
    pub(super) name: &'static str,
    /// What comes before may be seen.
    pub(super) from: usize,
    /// How far it is known.
    pub(super) to: usize,
    /// What follows it and belongs to it.
    pub(super) rest: Rest,
}

/// What belongs to a secret that has begun.
#[derive(Debug, Default)]
pub(super) enum Rest {
    #[default]
    Nothing,
    /// All of these.
    Run(Class),
    /// A private key to the end of its last line: the dashes in a row, and how many lines of them have been.
    Block(usize, usize),
}

const fn row(name: &'static str, begin: &'static str, body: Body) -> Row {
    Row { name, begin: begin.as_bytes(), case: Case::Counts, place: Place::Edge, body }
}

const fn word(name: &'static str, begin: &'static str, place: Place, body: Body) -> Row {
    Row { name, begin: begin.as_bytes(), case: Case::Ignored, place, body }
}

const KEY: Body = Body::Run { of: token, least: 20 };
const GITHUB: Body = Body::Run { of: letter, least: 30 };
const SLACK: Body = Body::Mixed { of: token, least: 10 };
const STRIPE: Body = Body::Run { of: letter, least: 16 };
const AWS_ID: Body = Body::Exactly { of: capital, count: 16 };
const AWS_SECRET: Body = Body::Assigned { of: base64, count: 40 };

const ROWS: [Row; 38] = [
    row("AWS access key id", "AKIA", AWS_ID),
    row("AWS access key id", "ASIA", AWS_ID),
    word("AWS secret access key", "secret_access_key", Place::Anywhere, AWS_SECRET),
    word("AWS secret access key", "secretaccesskey", Place::Anywhere, AWS_SECRET),
    row("GitHub token", "ghp_", GITHUB),
    row("GitHub token", "gho_", GITHUB),
    row("GitHub token", "ghu_", GITHUB),
    row("GitHub token", "ghs_", GITHUB),
    row("GitHub token", "ghr_", GITHUB),
    row("GitHub token", "github_pat_", Body::Run { of: token, least: 30 }),
    row("GitLab token", "glpat-", KEY),
    row("Anthropic key", "sk-ant-", KEY),
    row("OpenAI key", "sk-proj-", KEY),
    row("OpenAI key", "sk-svcacct-", KEY),
    row("OpenAI key", "sk-admin-", KEY),
    row("OpenRouter key", "sk-or-v1-", KEY),
    row("API key", "sk-", Body::Mixed { of: letter, least: 20 }),
    row("Slack token", "xoxa-", SLACK),
    row("Slack token", "xoxb-", SLACK),
    row("Slack token", "xoxe-", SLACK),
    row("Slack token", "xoxp-", SLACK),
    row("Slack token", "xoxr-", SLACK),
    row("Slack token", "xoxs-", SLACK),
    row("Slack token", "xapp-", SLACK),
    row("Google key", "AIza", Body::Exactly { of: token, count: 35 }),
    row("Stripe key", "sk_live_", STRIPE),
    row("Stripe key", "rk_live_", STRIPE),
    row("npm token", "npm_", Body::Run { of: letter, least: 36 }),
    row("PyPI token", "pypi-", Body::Run { of: token, least: 50 }),
    row("Hugging Face token", "hf_", GITHUB),
    row("JWT", "eyJ", Body::Jwt),
    word("password", "://", Place::Anywhere, Body::Password),
    word("private key", BLOCK, Place::Anywhere, Body::Block),
    word("authorization", "authorization", Place::Anywhere, Body::Header),
    word("authorization", "bearer ", Place::Edge, Body::Value { of: value, least: 20 }),
    word("API key", "x-api-key", Place::Edge, Body::Header),
    word("API key", "x-goog-api-key", Place::Edge, Body::Header),
    word("API key", "private-token", Place::Edge, Body::Header),
];

/// How much of a value is looked at before it is clear what it is.
const SEEN: usize = 80;
/// The most bytes of a signed token's header.
const JWT_HEADER: usize = 1024;
/// The most bytes of a user's name, and of a password, in an address.
const USER: usize = 128;
const PASSWORD: usize = 256;
/// The most bytes between a private key's first line and a line of it; and how long such a line is.
const BLOCK_HEAD: usize = 256;
const BLOCK_LINE: usize = 40;
/// The most bytes between a name and its value.
const ASSIGNMENT: usize = 8;
/// The most letters of the name of a scheme.
const SCHEME: usize = 16;
/// How a block of a private key begins, in any case.
const BLOCK: &str = "-----begin ";

/// Whether some shape begins with that byte.
pub(super) fn may_begin(byte: u8) -> bool {
    const FIRST: [bool; 256] = first();
    FIRST.get(usize::from(byte)).is_some_and(|first| *first)
}

#[expect(clippy::indexing_slicing, reason = "evaluated when it is compiled, where nothing else can be used")]
const fn first() -> [bool; 256] {
    let mut first = [false; 256];
    let mut at = 0;
    while at < ROWS.len() {
        let byte = ROWS[at].begin[0];
        first[byte as usize] = true;
        if matches!(ROWS[at].case, Case::Ignored) {
            first[byte.to_ascii_uppercase() as usize] = true;
        }
        at += 1;
    }
    first
}

/// What stands at that place. `ended`: nothing follows the text.
pub(super) fn look(text: &[u8], at: usize, ended: bool) -> Look {
    let (before, text) = text.split_at_checked(at).unwrap_or_default();
    let mut edge = None;
    for row in &ROWS {
        let common = row.begin.len().min(text.len());
        let (begin, found) = (row.begin.get(..common), text.get(..common));
        let same = match row.case {
            Case::Counts => begin == found,
            Case::Ignored => begin.zip(found).is_some_and(|(begin, found)| begin.eq_ignore_ascii_case(found)),
        };
        if !same || row.place == Place::Edge && !*edge.get_or_insert_with(|| is_edge(before)) {
            continue;
        }
        let look = match text.get(row.begin.len()..) {
            None if ended => Look::Nothing,
            None => Look::Undecided,
            Some(text) => row.look(Behind { text, ended }),
        };
        if !matches!(look, Look::Nothing) {
            return look;
        }
    }
    Look::Nothing
}

/// Whether a word may begin behind that text. An escape, a color and the sign of a changed line end what is before.
fn is_edge(before: &[u8]) -> bool {
    let back = |by: usize| before.len().checked_sub(by).and_then(|at| before.get(at)).copied();
    let Some(last) = back(1) else { return true };
    if !(token(last) || last == b'+') {
        return true;
    }
    let hex = |count: usize| (1..=count).all(|by| back(by).is_some_and(|byte| byte.is_ascii_hexdigit()));
    let color = || {
        let digits = (2..16).take_while(|by| back(*by).is_some_and(|byte| byte.is_ascii_digit() || byte == b';'));
        back(2 + digits.count()) == Some(b'[')
    };
    match last {
        b'+' | b'-' => matches!(back(2), None | Some(b'\n')),
        b'n' | b'r' | b't' if back(2) == Some(b'\\') => true,
        b'm' if color() => true,
        _ => hex(2) && back(3) == Some(b'%') || hex(4) && back(5) == Some(b'u') && back(6) == Some(b'\\'),
    }
}

impl Row {
    /// What the text behind the beginning makes of it.
    fn look(&self, behind: Behind<'_>) -> Look {
        match self.body {
            Body::Run { of, least } => self.run(0, behind, of, |value| value.len() >= least),
            Body::Mixed { of, least } | Body::Value { of, least } => self.run(0, behind, of, |it| is_mixed(it, least)),
            Body::Exactly { of, count } => self.exactly(0, behind, of, count),
            Body::Jwt => self.jwt(behind),
            Body::Password => self.password(behind),
            Body::Block => self.block(behind),
            Body::Assigned { of, count } => match behind.assignment() {
                Ok(gap) => self.exactly(gap, behind, of, count),
                Err(look) => look,
            },
            Body::Header => self.header(behind),
        }
    }

    fn secret(&self, from: usize, to: usize, rest: Rest) -> Look {
        let begin = self.begin.len();
        let from = match self.body {
            Body::Run { .. } | Body::Mixed { .. } | Body::Exactly { .. } | Body::Jwt | Body::Block => 0,
            Body::Value { .. } | Body::Password | Body::Assigned { .. } | Body::Header => begin + from,
        };
        Look::Secret(Secret { name: self.name, from, to: begin + to, rest })
    }

    /// A value that begins `gap` bytes behind the beginning and is one as soon as `is` says so.
    fn run(&self, gap: usize, behind: Behind<'_>, of: Class, is: impl Fn(&[u8]) -> bool) -> Look {
        let value = behind.from(gap);
        let seen = value.first(SEEN);
        let count = count(seen, of);
        if is(seen.get(..count).unwrap_or_default()) {
            return self.secret(gap, gap + count, Rest::Run(of));
        }
        if count < value.text.len() { Look::Nothing } else { value.missing() }
    }

    fn exactly(&self, gap: usize, behind: Behind<'_>, of: Class, count: usize) -> Look {
        let value = behind.from(gap);
        let found = self::count(value.first(count + 1), of);
        // The sign of a block ends a word, and so must what it stands for.
        let behind = value.text.get(count..).unwrap_or_default();
        let common = behind.len().min(BLOCK.len());
        let block = found >= count
            && BLOCK.get(..common).is_some_and(|begin| {
                behind.get(..common).is_some_and(|begun| begun.eq_ignore_ascii_case(begin.as_bytes()))
            });
        match value.text.get(found) {
            _ if block && common == BLOCK.len() => self.secret(gap, gap + count, Rest::Nothing),
            _ if block && common > 0 && !value.ended => Look::Undecided,
            _ if found > count => Look::Nothing,
            None if !value.ended => Look::Undecided,
            next if found < count || next.is_some_and(|next| token(*next) || base64(*next)) => Look::Nothing,
            _ => self.secret(gap, gap + count, Rest::Nothing),
        }
    }

    fn jwt(&self, behind: Behind<'_>) -> Look {
        let header = count(behind.first(JWT_HEADER), token);
        match behind.text.get(header) {
            None => return behind.missing(),
            Some(b'.') if header >= 8 => {}
            Some(_) => return Look::Nothing,
        }
        let claims = behind.from(header + 1);
        let begin = claims.first(8);
        if !begin.iter().zip(b"ey").all(|(one, other)| one == other) || count(begin, token) < begin.len() {
            return Look::Nothing;
        }
        if begin.len() < 8 { claims.missing() } else { self.secret(0, header + 9, Rest::Run(in_jwt)) }
    }

    fn password(&self, behind: Behind<'_>) -> Look {
        let user = count(behind.first(USER), |byte| in_address(byte) && byte != b':');
        match behind.text.get(user) {
            None => return behind.missing(),
            Some(b':') => {}
            Some(_) => return Look::Nothing,
        }
        let password = behind.from(user + 1);
        // A variable, a placeholder, or what was redacted before.
        if password.text.first().is_some_and(|first| b"$<{*[".contains(first)) {
            return Look::Nothing;
        }
        let length = count(password.first(PASSWORD), in_address);
        match password.text.get(length) {
            None => password.missing(),
            Some(b'@') if length > 0 => self.secret(user + 1, user + 1 + length, Rest::Nothing),
            Some(_) => Look::Nothing,
        }
    }

    fn block(&self, behind: Behind<'_>) -> Look {
        const KINDS: [&[u8]; 2] = [b"PRIVATE KEY", b"PRIVATE KEY BLOCK"];
        let label = count(behind.first(BLOCK_LINE), |byte| capital(byte) || byte == b' ');
        let dashes = behind.from(label).first(5);
        let kind = behind.first(label);
        let other = !dashes.is_empty() && !KINDS.iter().any(|end| kind.ends_with(end));
        if other || dashes.iter().any(|byte| *byte != b'-') {
            return Look::Nothing;
        }
        if dashes.len() < 5 {
            return behind.missing();
        }
        let seen = behind.from(label + 5).first(BLOCK_HEAD);
        let (mut run, mut dashes) = (0, 0);
        for (at, byte) in seen.iter().enumerate() {
            run = if base64(*byte) { run + 1 } else { 0 };
            dashes = if *byte == b'-' { dashes + 1 } else { 0 };
            if run == BLOCK_LINE || dashes == 5 && at >= 16 {
                return self.secret(0, label + 6 + at, Rest::Block(dashes, usize::from(dashes == 5)));
            }
            if dashes == 5 || !in_block(*byte) && *byte != b'.' {
                return Look::Nothing;
            }
        }
        if seen.len() == BLOCK_HEAD { Look::Nothing } else { behind.missing() }
    }

    /// The value of a header, behind the name of its scheme if it has one.
    fn header(&self, behind: Behind<'_>) -> Look {
        let gap = match behind.assignment() {
            Ok(gap) => gap,
            Err(look) => return look,
        };
        let value = behind.from(gap);
        let scheme = count(value.first(SCHEME), |byte| byte.is_ascii_alphabetic());
        match value.text.get(scheme) {
            None if scheme < SCHEME && !value.ended => Look::Undecided,
            Some(b' ') if scheme > 0 => self.run(gap + scheme + 1, behind, value_of_header, is_credential),
            _ => self.run(gap, behind, value_of_header, |value| is_mixed(value, 16)),
        }
    }
}

/// The text behind a place, as far as it is known.
#[derive(Clone, Copy)]
struct Behind<'a> {
    text: &'a [u8],
    /// Nothing follows it.
    ended: bool,
}

impl<'a> Behind<'a> {
    fn from(self, at: usize) -> Self {
        Self { text: self.text.get(at..).unwrap_or_default(), ended: self.ended }
    }

    /// The first of its bytes, at most so many.
    fn first(self, count: usize) -> &'a [u8] {
        self.text.get(..count).unwrap_or(self.text)
    }

    /// What it means that it does not go on.
    fn missing(self) -> Look {
        if self.ended { Look::Nothing } else { Look::Undecided }
    }

    /// How many bytes stand between a name and its value.
    fn assignment(self) -> Result<usize, Look> {
        let gap = count(self.first(ASSIGNMENT), |byte| b" \t\"'\\:=>".contains(&byte));
        let sign = self.first(gap).iter().any(|byte| matches!(byte, b':' | b'='));
        match self.text.get(gap) {
            None => Err(self.missing()),
            Some(_) if sign => Ok(gap),
            Some(_) => Err(Look::Nothing),
        }
    }
}

fn is_mixed(value: &[u8], least: usize) -> bool {
    value.len() >= least && (value.iter().any(u8::is_ascii_digit) || value.len() >= 2 * least)
}

/// No word behind a scheme's name has a digit, or a capital in its middle.
fn is_credential(value: &[u8]) -> bool {
    let odd = |byte: &u8| byte.is_ascii_digit() || byte.is_ascii_uppercase() || *byte == b'=';
    value.len() >= 8 && (value.iter().skip(1).any(odd) || value.len() >= 40)
}

fn count(text: &[u8], of: impl Fn(u8) -> bool) -> usize {
    text.iter().position(|byte| !of(*byte)).unwrap_or(text.len())
}

fn letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}

fn capital(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit()
}

fn token(byte: u8) -> bool {
    letter(byte) || byte == b'_' || byte == b'-'
}

fn base64(byte: u8) -> bool {
    letter(byte) || matches!(byte, b'+' | b'/' | b'=')
}

fn in_jwt(byte: u8) -> bool {
    token(byte) || byte == b'.'
}

fn value(byte: u8) -> bool {
    token(byte) || matches!(byte, b'.' | b'~' | b'+' | b'/' | b'=')
}

fn value_of_header(byte: u8) -> bool {
    value(byte) || byte == b':'
}

/// What may stand in a user's name or a password without an escape.
fn in_address(byte: u8) -> bool {
    byte > b' ' && byte != 0x7f && !b"/?#@<>\"'`\\()".contains(&byte)
}

/// What may stand in a private key, with numbers of lines, escapes, quotes and frames of whatever shows it.
fn in_block(byte: u8) -> bool {
    base64(byte) || byte.is_ascii_whitespace() || b"\\|\"',:->#*;[\x1b".contains(&byte) || byte >= 0x80
}

impl Rest {
    /// How many bytes of the text belong to the secret.
    pub(super) fn take(&mut self, text: &[u8]) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Run(of) => count(text, *of),
            Self::Block(dashes, lines) => {
                for (at, byte) in text.iter().enumerate() {
                    // The first line of dashes opens the last line, the second one closes it.
                    if *lines == 2 && *dashes == 0 || !in_block(*byte) {
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
