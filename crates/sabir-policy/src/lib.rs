//! Judges tool calls before they run: a pure function from an [`Access`] to a [`PolicyDecision`] with its reason.
//!
//! Anything that cannot be judged is asked about or denied, never allowed. By default, reading inside the workspace is allowed,
//! reading outside of it is denied (the tools cannot reach there), and everything else asks. The user's rules widen or narrow
//! this. Without anybody to ask, `Ask` means `Deny`; the caller enforces that.
//!
//! Shell commands are parsed, and every part is checked against an allowlist grammar of the known programs:
//!
//! | file | content |
//! | --- | --- |
//! | `access.rs`, `verdict.rs` | the question (what a call would touch) and the answer |
//! | `mode.rs`, `mode_switch.rs` | modes, which only restrict, and the rules for switching between them |
//! | `command_facts.rs` | facts about the environment of a command: shell, search path, repositories, links |
//! | `line.rs` | checks before parsing: length, control characters, nesting depth |
//! | `word.rs`, `braces.rs` | the certain part of a word before the shell expands it |
//! | `evaluator.rs`, `simple_command.rs`, `wrappers.rs`, `pipe_input.rs` | the walk over lists, loops, redirections, pipes, and commands that run commands |
//! | `grammar.rs`, `programs.rs`, `scripts.rs`, `find.rs`, `git.rs` | the allowlist for each program |
//! | `dependencies.rs` | the programs and files that a line depends on |
//! | `path_scope.rs`, `paths.rs` | whether a path stays inside the workspace; which paths a command names |
//! | `pattern.rs`, `command_kinds.rs`, `destructive.rs` | the user's rules, kinds of commands to approve once, commands that always ask |
//!
//! Architecture invariant: nothing in this crate reads a transcript. The model has no say in its own approval.
//!
//! The crate touches nothing: no file, process, environment or clock. The caller gathers [`CommandFacts`] ([`required_facts`]
//! names those that a command line depends on) and acts on the [`PolicyDecision`].
//!
//! ```
//! use sabir_policy::{Access, Beyond, CommandFacts, PolicyRules, Verdict};
//!
//! let mut rules = PolicyRules::default();
//! rules.add_approval("kind=cargo")?;
//!
//! // Every folder of the search path is absolute and outside of the workspace.
//! let facts = CommandFacts { clean_path: true, ..CommandFacts::default() };
//! let judge = |line: &str| {
//!     let command = line.to_owned();
//!     rules.decide(&Access::Command { command, facts: facts.clone(), beyond: Beyond::Nothing })
//! };
//!
//! // Known to only read, so no rule is needed.
//! assert_eq!(judge("ls -l src | head").verdict, Verdict::Allow);
//! // Approved by the rule above.
//! assert_eq!(judge("cargo test").verdict, Verdict::Allow);
//! // Every part of a line is judged, however it is hidden.
//! let hidden = judge("ls $(rm -rf build)");
//! assert_eq!(hidden.verdict, Verdict::Ask);
//! assert!(hidden.reason.contains("rm -rf build"), "{}", hidden.reason);
//! # Ok::<(), sabir_policy::RuleError>(())
//! ```

mod access;
mod braces;
mod command_facts;
mod command_kinds;
mod dependencies;
mod destructive;
mod evaluator;
mod find;
mod git;
mod grammar;
mod line;
mod mode;
mod mode_switch;
mod path_scope;
mod paths;
mod pattern;
mod pipe_input;
mod programs;
mod scripts;
mod simple_command;
mod verdict;
mod word;
mod wrappers;

use std::sync::Arc;

pub use access::{Access, Beyond};
pub use command_facts::{CommandFacts, RepositoryState, RequiredFacts, ShellKind, SymlinkTraversal};
pub use dependencies::{CommandDependencies, command_dependencies};
use evaluator::{CommandEvaluator, EvaluatedPart, PolicyFinding, ShellScope};
pub use line::is_deceiving;
pub use mode::{FilePattern, Mode, ToolGroup};
pub use path_scope::names_secrets;
use pattern::{RulePattern, RuleReach, matches_glob};
use pipe_input::PipeInput;
pub use verdict::Verdict;
use word::ShellWord;

/// What the user has approved, wants to be asked about, and has forbidden in advance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyRules {
    /// Writing inside the workspace, protected paths excepted.
    edits: bool,
    /// Any command, grave ones excepted.
    commands: bool,
    /// The network, for commands that a sandbox keeps from it.
    network: bool,
    /// Whether every write is asked about, whatever allows it, and why.
    write_question_reason: Option<String>,
    /// What may be done at all.
    mode: Option<Arc<Mode>>,
    /// The modes that a task may switch to.
    modes: Vec<String>,
    /// These very command lines.
    exact: Vec<String>,
    allow: Vec<RulePattern>,
    ask: Vec<RulePattern>,
    deny: Vec<RulePattern>,
}

/// What a rule does with what it matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleKind {
    /// It needs no question.
    Allow,
    /// It needs one, whatever else allows it.
    Ask,
    /// It is not done.
    Deny,
}

/// A rule that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// Of what is approved as a whole.
    #[error(
        "`{0}` is no approval rule: use `reads`, `edits`, `commands`, `network`, `all`, `none`, `command=LINE` for one exact command \
         line, `host=NAME` for documents of one host, `mcp=SERVER/TOOL` for tools of a server, `mode=NAME` for a switch to a mode, or \
         `kind=NAME` for a kind of command, as `sabir policy explain` proposes it"
    )]
    Approval(String),
    /// Of a pattern.
    #[error(
        "`{0}` is no rule: write the words of a command (`git log **`: `*` is one word, `**` at the end any number; the program \
         itself must be named), `kind=NAME`, `path=GLOB` (without `..`), `host=NAME` or `mcp=SERVER/TOOL` (to allow, the server must be \
         named)"
    )]
    Pattern(String),
}

/// A verdict and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyDecision {
    /// The verdict.
    pub verdict: Verdict,
    /// Why, in words for the user.
    pub reason: String,
    /// Whether it is allowed because it is known to only read: no rule and no approval had a part in it.
    pub only_reads: bool,
    /// The parts of a command, in the order in which they were judged. Empty for all else.
    pub segments: Vec<CommandSegment>,
    /// Approval rules that are narrow and would answer the question from now on: one for each part that asks. Empty where one
    /// of them has none.
    pub proposals: Vec<String>,
}

/// A part of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandSegment {
    /// The part, as it was written but for blanks.
    pub command: String,
    /// Its verdict.
    pub verdict: Verdict,
    /// Why.
    pub reason: String,
}

/// What one of the [`PolicyDecision::proposals`] would allow, in words.
pub fn describe_proposal(rule: &str) -> Option<String> {
    if rule == "edits" {
        return Some("changes of files in the workspace, but for protected ones".to_owned());
    }
    if let Some(host) = rule.strip_prefix("host=") {
        return Some(format!("documents of {host}"));
    }
    command_kinds::find_kind(rule.strip_prefix("kind=")?).map(command_kinds::CommandKind::describe)
}

/// Judges an access by rules.
pub fn decide_access(rules: &PolicyRules, access: &Access) -> PolicyDecision {
    rules.decide(access)
}

/// What has to be known to judge a command besides these facts.
pub fn required_facts(command: &str, facts: &CommandFacts) -> RequiredFacts {
    let rules = PolicyRules::default();
    let mut judge = CommandEvaluator { touched_paths: Some(Vec::new()), ..CommandEvaluator::new(&rules, facts) };
    judge.evaluate_line(command, &mut ShellScope::new());
    RequiredFacts {
        repositories: judge.wanted_repositories,
        paths: judge.touched_paths.unwrap_or_default(),
        follows_symlinks: judge.follows_symlinks,
    }
}

impl PolicyRules {
    /// Adds a rule: `reads` and `none` (nothing beyond reading), `edits`, `commands`, `all` (both), `network`, `command=LINE`,
    /// `host=NAME`, `kind=NAME`, `mcp=SERVER/TOOL`, `mode=NAME`.
    ///
    /// # Errors
    /// Any other word, named in the error.
    pub fn add_approval(&mut self, rule: &str) -> Result<(), RuleError> {
        let wrong = || RuleError::Approval(rule.to_owned());
        match rule.split_once('=') {
            Some(("command", line)) if !line.trim().is_empty() => self.exact.push(line.trim().to_owned()),
            Some(("mode", name)) if !name.trim().is_empty() => {
                self.modes.push(Mode::canonical_name(name.trim()).to_owned())
            }
            Some(("host" | "kind" | "mcp", name)) if !name.trim().is_empty() => {
                self.add_rule(RuleKind::Allow, rule).map_err(|_| wrong())?;
            }
            _ => match rule {
                "reads" | "none" => {}
                "edits" => self.edits = true,
                "commands" => self.commands = true,
                "network" => self.network = true,
                "all" => (self.edits, self.commands) = (true, true),
                _ => return Err(wrong()),
            },
        }
        Ok(())
    }

    /// Adds a rule of patterns: the words of a command (`cargo test **`), `kind=NAME`, `path=GLOB`, `host=NAME` or
    /// `mcp=SERVER/TOOL`.
    ///
    /// # Errors
    /// A pattern that names no program, or cannot be read.
    pub fn add_rule(&mut self, kind: RuleKind, pattern: &str) -> Result<(), RuleError> {
        let read = RulePattern::parse(pattern).filter(|read| kind != RuleKind::Allow || !read.is_any_server());
        let read = read.ok_or_else(|| RuleError::Pattern(pattern.to_owned()))?;
        match kind {
            RuleKind::Allow => self.allow.push(read),
            RuleKind::Ask => self.ask.push(read),
            RuleKind::Deny => self.deny.push(read),
        }
        Ok(())
    }

    /// These rules within a mode: what it does not have is denied, whatever allows it.
    #[must_use]
    pub fn with_mode(self, mode: Mode) -> Self {
        Self { mode: Some(Arc::new(mode)), ..self }
    }

    /// The mode that they are within; none is one without limits.
    pub fn mode(&self) -> Option<&Mode> {
        self.mode.as_deref()
    }

    /// These rules where nothing is written unasked, and why that is.
    #[must_use]
    pub fn ask_before_writes(self, because: impl Into<String>) -> Self {
        Self { write_question_reason: Some(because.into()), ..self }
    }

    /// The paths that are denied, as globs.
    pub fn denied_paths(&self) -> impl Iterator<Item = &str> {
        self.deny.iter().filter_map(|rule| if let RulePattern::Path(glob) = rule { Some(glob.as_str()) } else { None })
    }

    /// Whether anything here may say something of a command.
    fn has_command_rules(&self) -> bool {
        let rules = [&self.allow, &self.ask, &self.deny];
        self.commands || self.network || !self.exact.is_empty() || rules.iter().any(|rules| !rules.is_empty())
    }

    /// Whether a rule denies paths or asks about them.
    fn has_path_rules(&self) -> bool {
        self.deny.iter().chain(&self.ask).any(|rule| matches!(rule, RulePattern::Path(_)))
    }

    /// Judges an access.
    pub fn decide(&self, access: &Access) -> PolicyDecision {
        if let Some(reason) = self.mode.as_ref().and_then(|mode| mode.denial_reason(access)) {
            return plain_decision(Verdict::Deny, &reason);
        }
        let host = |url: &str, rules: &[RulePattern]| {
            let host = host_of(url);
            rules.iter().any(|rule| matches!(rule, RulePattern::Host(name) if host.as_ref() == Some(name)))
        };
        match access {
            Access::Nothing => plain_decision(Verdict::Allow, "touches nothing"),
            // The machine answers such a call itself and never runs it.
            Access::Invalid { reason } => plain_decision(Verdict::Deny, reason),
            Access::Read { path, outside } => self.decide_read(path, *outside),
            Access::Write { path, protected } => self.decide_write(path, protected.as_deref()),
            Access::Command { command, facts, beyond } => self.decide_command(command, facts, *beyond),
            Access::Fetch { url } if host(url, &self.deny) => plain_decision(Verdict::Deny, "a rule forbids this host"),
            Access::Fetch { url } if host(url, &self.ask) => {
                plain_decision(Verdict::Ask, "fetches from a host that a rule asks about")
            }
            Access::Fetch { url } if host(url, &self.allow) => plain_decision(Verdict::Allow, "this host is approved"),
            Access::Fetch { url } => PolicyDecision {
                proposals: host_of(url).into_iter().map(|host| format!("host={host}")).collect(),
                ..plain_decision(Verdict::Ask, "fetches a document from the network")
            },
            Access::Server { server, tool } => self.decide_server(server, tool),
            Access::Several(all) => self.strictest_decision(all),
        }
    }

    fn decide_server(&self, server: &str, tool: &str) -> PolicyDecision {
        let any = |rules: &[RulePattern]| rules.iter().any(|rule| rule.matches_tool(server, tool));
        match (any(&self.deny), any(&self.ask), any(&self.allow)) {
            (true, ..) => plain_decision(Verdict::Deny, "a rule forbids this tool"),
            (_, true, _) => {
                plain_decision(Verdict::Ask, &format!("calls {tool} of the server {server}, which a rule asks about"))
            }
            (.., true) => plain_decision(Verdict::Allow, "this tool is approved"),
            _ => {
                let proposals = vec![format!("mcp={server}/{tool}")];
                let asked = plain_decision(Verdict::Ask, &format!("calls the tool {tool} of the server {server}"));
                PolicyDecision { proposals, ..asked }
            }
        }
    }

    fn decide_read(&self, path: &str, outside: bool) -> PolicyDecision {
        if outside {
            // Named, because a call may read many.
            let reason = format!("`{path}` lies outside of the workspace, where the tools cannot reach");
            return plain_decision(Verdict::Deny, &reason);
        }
        match (any_matches_path(&self.deny, path), any_matches_path(&self.ask, path), path_scope::secret_reason(path)) {
            (true, ..) => plain_decision(Verdict::Deny, "a rule forbids this path"),
            (_, true, _) => plain_decision(Verdict::Ask, "reads a path that a rule asks about"),
            (.., Some(why)) if !any_matches_path(&self.allow, path) => {
                plain_decision(Verdict::Ask, &format!("reads a file that {why}"))
            }
            _ => plain_decision(Verdict::Allow, "reads inside the workspace"),
        }
    }

    fn decide_write(&self, path: &str, protected: Option<&str>) -> PolicyDecision {
        match (any_matches_path(&self.deny, path), any_matches_path(&self.ask, path), protected) {
            (true, ..) => plain_decision(Verdict::Deny, "a rule forbids this path"),
            (_, true, _) => plain_decision(Verdict::Ask, "writes a path that a rule asks about"),
            (.., Some(reason)) => plain_decision(Verdict::Ask, &format!("writes a protected path: {reason}")),
            _ if self.write_question_reason.is_some() => plain_decision(
                Verdict::Ask,
                &format!("writes a file: {}", self.write_question_reason.as_deref().unwrap_or_default()),
            ),
            _ if self.edits => plain_decision(Verdict::Allow, "edits are approved"),
            _ if any_matches_path(&self.allow, path) => {
                plain_decision(Verdict::Allow, "edits of this path are approved")
            }
            _ => {
                PolicyDecision { proposals: vec!["edits".to_owned()], ..plain_decision(Verdict::Ask, "writes a file") }
            }
        }
    }

    fn decide_command(&self, command: &str, facts: &CommandFacts, beyond: Beyond) -> PolicyDecision {
        let mut judge = CommandEvaluator::new(self, facts);
        judge.evaluate_line(command, &mut ShellScope::new());
        let CommandEvaluator { parts, asked_by_rule, .. } = judge;
        let (mut verdict, mut reason) = (Verdict::Allow, "only reads".to_owned());
        for EvaluatedPart { segment, .. } in &parts {
            if strictness_rank(segment.verdict) > strictness_rank(verdict) {
                verdict = segment.verdict;
                reason = match segment.verdict {
                    Verdict::Deny => format!("`{}`: {}", segment.command, segment.reason),
                    _ => format!("runs `{}`: {}", segment.command, segment.reason),
                };
            }
        }
        if verdict == Verdict::Ask && !asked_by_rule && self.exact.iter().any(|line| line == command.trim()) {
            (verdict, reason) = (Verdict::Allow, "this command line is approved".to_owned());
        }
        match (self.exception_question(beyond), verdict) {
            (Some(asks), Verdict::Allow) => (verdict, reason) = (Verdict::Ask, asks.to_owned()),
            // Whoever answers has to see all that a yes gives.
            (Some(asks), Verdict::Ask) => reason = format!("{asks}, and {reason}"),
            _ => {}
        }
        let proposals = if verdict == Verdict::Ask { kind_proposals(&parts) } else { Vec::new() };
        let segments = parts.into_iter().map(|part| part.segment).collect();
        let held = self.mode.as_ref().filter(|mode| !mode.can_edit_any_file());
        let mut only_reads = false;
        if verdict == Verdict::Allow || held.is_some() {
            // What the rules say has no part in what is known of a command.
            let plain = || Self::default().decide_command(command, facts, Beyond::Nothing).verdict;
            let silent = verdict == Verdict::Allow && !self.has_command_rules();
            only_reads = (beyond == Beyond::Nothing || held.is_some()) && (silent || plain() == Verdict::Allow);
        }
        if let Some(mode) = held.filter(|_| verdict != Verdict::Deny && (!only_reads || beyond == Beyond::Unconfined)) {
            let why = match (verdict, beyond) {
                (Verdict::Allow, Beyond::Nothing | Beyond::Network) => {
                    Self::default().decide_command(command, facts, Beyond::Nothing).reason
                }
                _ => reason,
            };
            let reason = format!("the mode `{}` runs only commands that are known to only read: {why}", mode.name);
            return PolicyDecision {
                verdict: Verdict::Deny,
                reason,
                only_reads: false,
                segments,
                proposals: Vec::new(),
            };
        }
        PolicyDecision { verdict, reason, only_reads, segments, proposals }
    }

    /// What the rules say of a command, if they say anything.
    fn user_rule_finding(&self, words: &[ShellWord]) -> Option<(PolicyFinding, RuleReach)> {
        if self.deny.iter().any(|rule| rule.may_match(words)) {
            let reason = "a rule forbids it".to_owned();
            return Some((PolicyFinding { verdict: Verdict::Deny, reason, always_asks: true }, RuleReach::Wide));
        }
        if self.ask.iter().any(|rule| rule.may_match(words)) {
            return Some((PolicyFinding::always_ask("a rule asks about it"), RuleReach::Wide));
        }
        let mut reaches = self.allow.iter().filter_map(|rule| rule.allow_reach(words)).collect::<Vec<_>>();
        reaches.sort_by_key(|reach| *reach == RuleReach::Wide);
        reaches.first().map(|reach| (PolicyFinding::allow("a rule allows it"), *reach))
    }

    /// What is asked about is allowed where commands are, unless it is grave.
    fn apply_blanket_approval(&self, finding: PolicyFinding) -> PolicyFinding {
        if self.commands && finding.verdict == Verdict::Ask && !finding.always_asks {
            return PolicyFinding::allow("commands are approved");
        }
        finding
    }

    /// What is asked about a command that wants more than its sandbox gives. No rule answers for a command without a sandbox.
    fn exception_question(&self, beyond: Beyond) -> Option<&'static str> {
        match beyond {
            Beyond::Nothing => None,
            Beyond::Network => (!self.network).then_some("uses the network"),
            Beyond::Unconfined => Some("runs outside of the sandbox"),
        }
    }

    /// The strictest verdict, the first of equals, with all parts; nothing at all touches nothing. What asks for itself can be
    /// approved as a kind only if all that asks can.
    fn strictest_decision(&self, all: &[Access]) -> PolicyDecision {
        let mut judged: Vec<_> = all.iter().map(|access| self.decide(access)).collect();
        let verdict = judged.iter().map(|one| one.verdict).max_by_key(|verdict| strictness_rank(*verdict));
        let Some(verdict) = verdict else { return self.decide(&Access::Nothing) };
        let only_reads = judged.iter().all(|one| one.only_reads);
        let segments = judged.iter_mut().flat_map(|one| std::mem::take(&mut one.segments)).collect();
        judged.retain(|one| one.verdict == verdict);
        let mut proposals: Vec<String> = Vec::new();
        if !judged.iter().any(|one| one.proposals.is_empty()) {
            judged.iter().for_each(|one| proposals.extend(one.proposals.iter().cloned()));
            let mut seen = std::collections::HashSet::new();
            proposals.retain(|rule| seen.insert(rule.clone()));
        }
        let reason = judged.into_iter().next().map(|one| one.reason).unwrap_or_default();
        PolicyDecision { verdict, reason, only_reads, segments, proposals }
    }
}

impl<'a> CommandEvaluator<'a> {
    fn new(rules: &'a PolicyRules, facts: &'a CommandFacts) -> Self {
        Self {
            rules,
            facts,
            parts: Vec::new(),
            wanted_repositories: Vec::new(),
            touched_paths: None,
            dependencies: Vec::new(),
            line_depth: 0,
            text: String::new(),
            asked_by_rule: false,
            follows_symlinks: false,
            input: PipeInput::Unknown,
            plain_shell: facts.shell == ShellKind::Plain,
        }
    }
}

fn plain_decision(verdict: Verdict, reason: &str) -> PolicyDecision {
    let reason = reason.to_owned();
    PolicyDecision { verdict, reason, only_reads: false, segments: Vec::new(), proposals: Vec::new() }
}

fn any_matches_path(rules: &[RulePattern], path: &str) -> bool {
    rules.iter().any(|rule| matches!(rule, RulePattern::Path(pattern) if matches_path(pattern, path)))
}

/// Whether a glob means a path, or a folder that it lies in.
pub(crate) fn matches_path(pattern: &str, path: &str) -> bool {
    let path = path.trim_start_matches("./");
    matches_glob(pattern, path) || matches_glob(&format!("{pattern}/**"), path)
}

/// How strict a verdict is.
fn strictness_rank(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Allow => 0,
        Verdict::Ask => 1,
        Verdict::Deny => 2,
    }
}

/// Whether a command may be one that runs the words behind it: every program that is not known to only read.
fn may_wrap_command(command: &[ShellWord]) -> bool {
    command.first().and_then(ShellWord::known_text).is_none_or(|name| programs::find_program(name).is_none())
}

/// The kinds that would allow what asks, each once, if all that asks is of one.
fn kind_proposals(parts: &[EvaluatedPart]) -> Vec<String> {
    let mut proposed = Vec::new();
    for part in parts.iter().filter(|part| part.segment.verdict == Verdict::Ask) {
        let Some(kind) = part.kind else { return Vec::new() };
        let rule = format!("kind={kind}");
        if !proposed.contains(&rule) {
            proposed.push(rule);
        }
    }
    proposed
}

/// The host of an `http` or `https` address without a user's name in it, in lower case. None where it names a port that is not
/// the web's: who approved a host did not mean whatever else runs there.
fn host_of(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#', '\\']).next()?;
    let plain = matches!(scheme.to_ascii_lowercase().as_str(), "http" | "https") && !authority.contains('@');
    let (host, port) = match authority.rsplit_once(':') {
        // The colons of an IPv6 address stand in brackets.
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    };
    (plain && matches!(port, None | Some("80" | "443"))).then(|| host.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::{Access, Beyond, CommandFacts, PolicyRules, Verdict};

    fn clean() -> CommandFacts {
        CommandFacts { clean_path: true, ..CommandFacts::default() }
    }

    fn check(rules: &[&str], access: &Access, expected: Verdict) {
        let mut all = PolicyRules::default();
        for rule in rules {
            all.add_approval(rule).unwrap();
        }
        assert_eq!(all.decide(access).verdict, expected, "{rules:?} {access:?}");
    }

    #[test]
    fn verdicts() {
        let read = |outside| Access::Read { path: "a".into(), outside };
        let write =
            |protected: Option<&str>| Access::Write { path: "a".into(), protected: protected.map(str::to_owned) };
        let command = |line: &str| Access::Command { command: line.into(), facts: clean(), beyond: Beyond::Nothing };
        check(&[], &read(false), Verdict::Allow);
        check(&["all"], &read(true), Verdict::Deny);
        check(&["all"], &Access::Invalid { reason: "no path".into() }, Verdict::Deny);
        check(&[], &write(None), Verdict::Ask);
        check(&["edits"], &write(None), Verdict::Allow);
        check(&["all"], &write(Some("git's own")), Verdict::Ask);
        check(&[], &command("ls"), Verdict::Allow);
        check(&["edits"], &command("touch x"), Verdict::Ask);
        check(&["commands"], &command("touch x"), Verdict::Allow);
        check(&["command=cargo test"], &command(" cargo test\n"), Verdict::Allow);
        check(&["command=git"], &command("gitevil"), Verdict::Ask);
        check(&["all", "command=echo"], &command("echo $(rm -rf .git)"), Verdict::Ask);
        let fetch = |url: &str| Access::Fetch { url: url.into() };
        check(&["all"], &fetch("https://docs.rs/x"), Verdict::Ask);
        check(&["host=Docs.rs"], &fetch("https://docs.rs:443/x"), Verdict::Allow);
        check(&["host=docs.rs"], &fetch("https://docs.rs.evil/x"), Verdict::Ask);
        check(&["host=docs.rs"], &fetch("https://evildocs.rs/x"), Verdict::Ask);
        check(&["host=docs.rs"], &fetch("https://docs.rs:8443/x"), Verdict::Ask);
        check(&["host=*.docs.rs"], &fetch("https://xdocs.rs/x"), Verdict::Ask);
        check(&["host=[2606:4700::1]"], &fetch("https://[2606:4700::1]/x"), Verdict::Allow);
        check(&["host=github.com"], &fetch("https://xn--gthub-n2e.com/"), Verdict::Ask);
        check(&["host=docs.rs"], &fetch("https://docs.rs@evil/x"), Verdict::Ask);
        check(&["host=docs.rs"], &fetch("file://docs.rs/x"), Verdict::Ask);
        let several = |all: &[Access]| Access::Several(all.to_vec());
        check(&["edits"], &several(&[read(false), write(None)]), Verdict::Allow);
        check(&["edits"], &several(&[write(None), write(Some("git's own")), read(false)]), Verdict::Ask);
        check(&["all"], &several(&[write(Some("git's own")), read(true)]), Verdict::Deny);
        check(&[], &several(&[]), Verdict::Allow);
        let outside = Access::Read { path: "/etc/passwd".into(), outside: true };
        let several = PolicyRules::default().decide(&several(&[read(false), outside, read(false)]));
        assert!(several.reason.contains("`/etc/passwd`"), "{}", several.reason);
        assert!(PolicyRules::default().add_approval("everything").is_err());
        assert!(PolicyRules::default().add_approval("command=").is_err());
    }
}
