//! Checks tool calls before they run: a pure function from an [`Access`] to a [`PolicyDecision`] with its reason.
//!
//! Anything that cannot be checked is asked about or denied, never allowed. By default, reading inside the workspace is allowed,
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
//! | `everyday.rs` | subcommands of build tools and services that only look, and the files that must be absent for that |
//! | `builds.rs` | builds and tests that run unasked where the workspace is trusted and a sandbox keeps them in |
//! | `protected_targets.rs` | commands that write protected paths, which no approval of a kind covers |
//! | `push_target.rs` | where `git push` sends to, for the question |
//! | `secret_paths.rs`, `secret_reach.rs` | the table of files with secrets, and which of them a command may open |
//! | `dependencies.rs` | the programs and files that a line depends on |
//! | `path_scope.rs`, `paths.rs` | whether a path stays inside the workspace; which paths a command names |
//! | `pattern.rs`, `command_kinds.rs`, `destructive.rs` | the user's rules, kinds of commands to approve once, commands that always ask |
//!
//! Four properties hold, and tests (`tests/it/properties.rs`) state them for any rules and lines:
//!
//! * wrapping a command (`bash -c`, a loop, `$(…)`, a pipe) never weakens the verdict,
//! * one more deny or ask rule never loosens it, one more allow rule never tightens it and never beats a deny,
//! * quoting that changes nothing for the shell changes nothing here,
//! * no text panics, and control or invisible characters ask.
//!
//! Another test compares with a real bash: whatever runs unasked has no effect (`tests/it/differential.rs`). Tables of
//! programs have tests that find dead rows, because a row which never matches looks like protection and is none.
//!
//! Architecture invariant: nothing in this crate reads a transcript. The model cannot influence its
//! own approval.
//!
//! The crate touches nothing: no file, process, environment or clock. The caller gathers [`CommandFacts`] ([`required_facts`]
//! names those that a command line depends on) and acts on the [`PolicyDecision`].
//!
//! ```
//! use sabir_policy::{Access, ExtraPermissions, CommandFacts, PolicyRules, Verdict};
//!
//! let mut rules = PolicyRules::default();
//! rules.add_approval("kind=cargo")?;
//!
//! // Every folder of the search path is absolute and outside of the workspace.
//! let facts = CommandFacts { clean_path: true, ..CommandFacts::default() };
//! let check = |line: &str| {
//!     let command = line.to_owned();
//!     rules.decide(&Access::Command { command, facts: facts.clone(), beyond: ExtraPermissions::Nothing })
//! };
//!
//! // Known to only read, so no rule is needed.
//! assert_eq!(check("ls -l src | head").verdict, Verdict::Allow);
//! // Approved by the rule above.
//! assert_eq!(check("cargo test").verdict, Verdict::Allow);
//! // Every part of a line is checked, however it is hidden.
//! let hidden = check("ls $(rm -rf build)");
//! assert_eq!(hidden.verdict, Verdict::Ask);
//! assert!(hidden.reason.contains("rm -rf build"), "{}", hidden.reason);
//! # Ok::<(), sabir_policy::RuleError>(())
//! ```

mod access;
mod ask_reason;
mod braces;
mod builds;
mod command_facts;
mod command_kinds;
mod dependencies;
mod destructive;
mod evaluator;
mod everyday;
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
mod protected_targets;
mod push_target;
mod scripts;
mod secret_paths;
mod secret_reach;
mod simple_command;
mod verdict;
mod word;
mod wrappers;

use std::sync::Arc;

pub use access::{Access, ExtraPermissions};
pub use command_facts::{
    BuildTrust, CommandFacts, FileNames, RepositoryState, RequiredFacts, SecretFile, SecretFiles,
    ShellKind, SymlinkTraversal, TrackedSecrets, is_plain_name,
};
pub use dependencies::{CommandDependencies, command_dependencies};
use evaluator::{CommandEvaluator, EvaluatedPart, PolicyFinding, ShellScope};
pub use line::is_deceptive_char;
pub use mode::{FilePattern, FilePatternError, Mode, ToolGroup};
use pattern::{RulePattern, RuleReach, matches_glob};
use pipe_input::PipeInput;
pub use programs::{is_python_tool, may_be_in_workspace};
pub use secret_paths::{
    command_names_secret_file, home_secret_paths, may_end_secret_path, names_secret_file,
};
pub use verdict::Verdict;
use word::ShellWord;

/// The user's rules: what is approved, asked about and forbidden in advance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyRules {
    /// Approves writing inside the workspace, except to protected paths.
    edits: bool,
    /// Approves any command, except destructive ones.
    commands: bool,
    /// Approves the network for commands whose sandbox would block it.
    network: bool,
    /// Approves the hosts of package registries in the same way.
    registries: bool,
    /// The reason why every write asks, even where a rule allows it; `None` if writes follow the rules.
    write_question_reason: Option<String>,
    /// The mode that limits everything else.
    mode: Option<Arc<Mode>>,
    /// The names of the modes that a task may switch to without a question.
    modes: Vec<String>,
    /// Approved command lines, compared character by character.
    exact: Vec<String>,
    allow: Vec<RulePattern>,
    ask: Vec<RulePattern>,
    deny: Vec<RulePattern>,
}

/// The effect of a rule on what it matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleKind {
    /// Runs without a question.
    Allow,
    /// Asks, even if another rule allows it.
    Ask,
    /// Never runs.
    Deny,
}

/// An error for a rule that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// An approval rule that is none of the known forms; holds the rule.
    #[error(
        "`{0}` is not an approval rule: use `reads`, `edits`, `commands`, `network`, `registries`, `all`, `none`, `command=LINE` for one exact command \
         line, `host=NAME` for documents of one host, `mcp=SERVER/TOOL` for tools of a server, `mode=NAME` for a switch to a mode, or \
         `kind=NAME` for a kind of command, as `sabir policy explain` proposes it"
    )]
    Approval(String),
    /// A pattern that is none of the known forms; holds the pattern.
    #[error(
        "`{0}` is not a rule: write the words of a command (`git log **`: `*` is one word, `**` at the end any number; the program \
         itself must be named), `kind=NAME`, `path=GLOB` (without `..`), `host=NAME` or `mcp=SERVER/TOOL` (to allow, the server must be \
         named)"
    )]
    Pattern(String),
}

/// A verdict with its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyDecision {
    /// The verdict.
    pub verdict: Verdict,
    /// The reason, as a phrase for the user.
    pub reason: String,
    /// True if it is allowed without any rule or approval, because it is known to only read.
    pub only_reads: bool,
    /// The parts of a command, in the order in which they were checked. Empty for any other access.
    pub segments: Vec<CommandSegment>,
    /// Narrow approval rules that would answer this question in the future: one for each part that asks. Empty if any of the
    /// parts has no such rule.
    pub proposals: Vec<String>,
}

impl PolicyDecision {
    /// Returns true if a rule or an approval of the user allows the access, and not only its kind.
    pub fn is_allowed_by_rule(&self) -> bool {
        self.verdict == Verdict::Allow
            && [BY_RULE, BY_APPROVAL, BY_LINE].contains(&self.reason.as_str())
    }
}

/// A part of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandSegment {
    /// The text of the part, with normalized blanks.
    pub command: String,
    /// The verdict on this part alone.
    pub verdict: Verdict,
    /// The reason, as a phrase for the user.
    pub reason: String,
}

/// The reason of a part that a rule of the user allows.
const BY_RULE: &str = "a rule allows it";
/// The reason of a part that the approval of all commands allows.
const BY_APPROVAL: &str = "commands are approved";
/// The reason of a command line that an exact approval allows.
const BY_LINE: &str = "this command line is approved";
/// The reason of a build that runs unasked.
const BY_TRUST: &str = "you trust this repository, and the sandbox keeps builds in its folder";

/// Describes what one of the [`PolicyDecision::proposals`] would allow, as a phrase for the user. Returns `None` for any other rule.
///
/// ```
/// assert_eq!(sabir_policy::describe_proposal("host=docs.rs").as_deref(), Some("documents of docs.rs"));
/// assert_eq!(sabir_policy::describe_proposal("command=make"), None);
/// ```
pub fn describe_proposal(rule: &str) -> Option<String> {
    if rule == "edits" {
        return Some("changes of files in the workspace, but for protected ones".to_owned());
    }
    if rule == "registries" {
        return Some(
            "the hosts of package registries, through a proxy that records them".to_owned(),
        );
    }
    if let Some(host) = rule.strip_prefix("host=") {
        return Some(format!("documents of {host}"));
    }
    command_kinds::find_kind(rule.strip_prefix("kind=")?).map(command_kinds::CommandKind::describe)
}

/// Checks an access by rules; the function form of [`PolicyRules::decide`].
pub fn decide_access(rules: &PolicyRules, access: &Access) -> PolicyDecision {
    rules.decide(access)
}

/// Returns the facts that a command line depends on and that `facts` does not hold yet.
///
/// The caller looks them up and checks the line with the complete facts.
///
/// Known facts are not requested again, so a second call with complete facts requests nothing more.
pub fn required_facts(command: &str, facts: &CommandFacts) -> RequiredFacts {
    let rules = PolicyRules::default();
    let mut evaluator = CommandEvaluator {
        touched_paths: Some(Vec::new()),
        ..CommandEvaluator::new(&rules, facts)
    };
    evaluator.evaluate_line(command, &mut ShellScope::new());
    RequiredFacts {
        repositories: evaluator.wanted_repositories,
        paths: evaluator.touched_paths.unwrap_or_default(),
        follows_symlinks: evaluator.follows_symlinks,
        could_match_secret: evaluator.could_match_secret,
        file_names: evaluator.needs_file_names,
        index_names: evaluator.needs_index_names,
        absent_files: evaluator.wanted_absent,
        build_folders: evaluator.wanted_build_folders,
        tracked_secrets: evaluator.needs_tracked_secrets,
        history_secrets: evaluator.needs_history_secrets,
        object_ids: evaluator.wanted_object_ids,
        push_folder: evaluator.wanted_push_folder,
    }
}

impl PolicyRules {
    /// Adds an approval rule: `reads` or `none` (both allow nothing beyond reading), `edits`, `commands`, `all` (edits and
    /// commands), `network`, `registries`, `command=LINE`, `host=NAME`, `kind=NAME`, `mcp=SERVER/TOOL`, or `mode=NAME`.
    ///
    /// # Errors
    /// Returns [`RuleError::Approval`] for anything else.
    ///
    /// ```
    /// use sabir_policy::PolicyRules;
    ///
    /// let mut rules = PolicyRules::default();
    /// rules.add_approval("edits")?;
    /// rules.add_approval("command=cargo run -- --help")?;
    /// assert!(rules.add_approval("everything").is_err());
    /// # Ok::<(), sabir_policy::RuleError>(())
    /// ```
    pub fn add_approval(&mut self, rule: &str) -> Result<(), RuleError> {
        let wrong = || RuleError::Approval(rule.to_owned());
        match rule.split_once('=') {
            Some(("command", line)) if !line.trim().is_empty() => {
                self.exact.push(line.trim().to_owned())
            }
            Some(("mode", name)) if !name.trim().is_empty() => self
                .modes
                .push(Mode::canonical_name(name.trim()).to_owned()),
            Some(("host" | "kind" | "mcp", name)) if !name.trim().is_empty() => {
                self.add_rule(RuleKind::Allow, rule).map_err(|_| wrong())?;
            }
            _ => match rule {
                "reads" | "none" => {}
                "edits" => self.edits = true,
                "commands" => self.commands = true,
                "network" => (self.network, self.registries) = (true, true),
                "registries" => self.registries = true,
                "all" => (self.edits, self.commands) = (true, true),
                _ => return Err(wrong()),
            },
        }
        Ok(())
    }

    /// Adds a pattern rule: the words of a command (`cargo test **`), `kind=NAME`, `path=GLOB`, `host=NAME` or
    /// `mcp=SERVER/TOOL`.
    ///
    /// # Errors
    /// Returns [`RuleError::Pattern`] if the pattern names no program or cannot be parsed, or if it would allow the tools of
    /// every server.
    ///
    /// ```
    /// use sabir_policy::{PolicyRules, RuleKind};
    ///
    /// let mut rules = PolicyRules::default();
    /// rules.add_rule(RuleKind::Allow, "cargo test **")?;
    /// rules.add_rule(RuleKind::Deny, "path=secrets/")?;
    /// // Without `*` a deny rule is a prefix, so this also means `git push origin main`.
    /// rules.add_rule(RuleKind::Deny, "git push")?;
    /// // A rule must name the program.
    /// assert!(rules.add_rule(RuleKind::Allow, "* --version").is_err());
    /// # Ok::<(), sabir_policy::RuleError>(())
    /// ```
    pub fn add_rule(&mut self, kind: RuleKind, pattern: &str) -> Result<(), RuleError> {
        let parsed = RulePattern::parse(pattern)
            .filter(|parsed| kind != RuleKind::Allow || !parsed.is_any_server());
        let parsed = parsed.ok_or_else(|| RuleError::Pattern(pattern.to_owned()))?;
        match kind {
            RuleKind::Allow => self.allow.push(parsed),
            RuleKind::Ask => self.ask.push(parsed),
            RuleKind::Deny => self.deny.push(parsed),
        }
        Ok(())
    }

    /// Returns these rules limited by a mode: anything outside of the mode is denied, even if a rule allows it.
    ///
    /// ```
    /// use sabir_policy::{Access, Mode, PolicyRules, Verdict};
    ///
    /// let plan = Mode::built_in_modes().into_iter().find(|mode| mode.name == "plan");
    /// let mut rules = PolicyRules::default();
    /// rules.add_approval("all")?;
    /// let rules = rules.with_mode(plan.unwrap());
    /// let write = Access::Write { path: "src/lib.rs".to_owned(), protected: None };
    /// assert_eq!(rules.decide(&write).verdict, Verdict::Deny);
    /// # Ok::<(), sabir_policy::RuleError>(())
    /// ```
    #[must_use]
    pub fn with_mode(self, mode: Mode) -> Self {
        Self {
            mode: Some(Arc::new(mode)),
            ..self
        }
    }

    /// The mode that limits these rules; `None` means no limits.
    pub fn mode(&self) -> Option<&Mode> {
        self.mode.as_deref()
    }

    /// Returns these rules with a question before every write; `because` is the reason shown in it.
    ///
    /// Meant for workspaces that are a whole home folder or machine, where no approval should cover every file.
    #[must_use]
    pub fn ask_before_writes(self, because: impl Into<String>) -> Self {
        Self {
            write_question_reason: Some(because.into()),
            ..self
        }
    }

    /// Iterates over the globs of the denied paths.
    ///
    /// The file tools hide these paths, and a sandbox can keep them from commands.
    pub fn denied_paths(&self) -> impl Iterator<Item = &str> {
        self.deny.iter().filter_map(|rule| {
            if let RulePattern::Path(glob) = rule {
                Some(glob.as_str())
            } else {
                None
            }
        })
    }

    /// Returns true if any rule or approval could change the verdict on a command.
    fn has_command_rules(&self) -> bool {
        let rules = [&self.allow, &self.ask, &self.deny];
        self.commands
            || self.network
            || self.registries
            || !self.exact.is_empty()
            || rules.iter().any(|rules| !rules.is_empty())
    }

    /// Returns true if neither the mode nor the folder limits which files may be written.
    fn may_write_freely(&self) -> bool {
        let mode_permits = self
            .mode
            .as_ref()
            .is_none_or(|mode| mode.can_edit_any_file());
        mode_permits && self.write_question_reason.is_none()
    }

    /// Returns true if a rule denies paths or asks about them.
    fn has_path_rules(&self) -> bool {
        self.deny
            .iter()
            .chain(&self.ask)
            .any(|rule| matches!(rule, RulePattern::Path(_)))
    }

    /// Checks an access.
    ///
    /// The order of precedence: the mode, deny rules, ask rules, allow rules and approvals, and then what is known of programs. A command
    /// is as strict as its strictest part. The same access always gets the same decision, since no state is kept.
    ///
    /// ```
    /// use sabir_policy::{Access, PolicyRules, Verdict};
    ///
    /// let read = |path: &str| Access::Read { path: path.to_owned(), outside: false };
    /// let rules = PolicyRules::default();
    /// assert_eq!(rules.decide(&read("src/lib.rs")).verdict, Verdict::Allow);
    /// assert_eq!(rules.decide(&read(".env")).verdict, Verdict::Ask);
    /// ```
    pub fn decide(&self, access: &Access) -> PolicyDecision {
        // The mode comes first, because no rule may widen it.
        if let Some(reason) = self
            .mode
            .as_ref()
            .and_then(|mode| mode.denial_reason(access))
        {
            return plain_decision(Verdict::Deny, &reason);
        }
        let host = |url: &str, rules: &[RulePattern]| {
            let host = host_of(url);
            rules
                .iter()
                .any(|rule| matches!(rule, RulePattern::Host(name) if host.as_ref() == Some(name)))
        };
        match access {
            Access::Nothing => plain_decision(Verdict::Allow, "touches nothing"),
            // The task machine answers such a call itself; it never reaches the tool.
            Access::Invalid { reason } => plain_decision(Verdict::Deny, reason),
            Access::Read { path, outside } => self.decide_read(path, *outside),
            Access::Write { path, protected } => self.decide_write(path, protected.as_deref()),
            Access::Command {
                command,
                facts,
                beyond,
            } => self.decide_command(command, facts, *beyond),
            // Deny rules come before ask rules, and those before allow rules.
            Access::Fetch { url } if host(url, &self.deny) => {
                plain_decision(Verdict::Deny, "a rule forbids this host")
            }
            Access::Fetch { url } if host(url, &self.ask) => {
                plain_decision(Verdict::Ask, "fetches from a host that a rule asks about")
            }
            Access::Fetch { url } if host(url, &self.allow) => {
                plain_decision(Verdict::Allow, "this host is approved")
            }
            Access::Fetch { url } => PolicyDecision {
                proposals: host_of(url)
                    .into_iter()
                    .map(|host| format!("host={host}"))
                    .collect(),
                ..plain_decision(Verdict::Ask, "fetches a document from the network")
            },
            Access::Server {
                server,
                tool,
                caution,
            } => self.decide_server(server, tool, caution.as_deref()),
            Access::Several(all) => self.strictest_decision(all),
        }
    }

    /// Checks a call of a tool of an MCP server. The server's own description of the tool has no influence.
    fn decide_server(&self, server: &str, tool: &str, caution: Option<&str>) -> PolicyDecision {
        let any = |rules: &[RulePattern]| rules.iter().any(|rule| rule.matches_tool(server, tool));
        match (any(&self.deny), any(&self.ask), any(&self.allow)) {
            (true, ..) => plain_decision(Verdict::Deny, "a rule forbids this tool"),
            (_, true, _) => plain_decision(
                Verdict::Ask,
                &format!("calls {tool} of the server {server}, which a rule asks about"),
            ),
            _ if caution.is_some() => plain_decision(Verdict::Ask, caution.unwrap_or_default()),
            (.., true) => plain_decision(Verdict::Allow, "this tool is approved"),
            _ => {
                let proposals = vec![format!("mcp={server}/{tool}")];
                let asked = plain_decision(
                    Verdict::Ask,
                    &format!("calls the tool {tool} of the server {server}"),
                );
                PolicyDecision { proposals, ..asked }
            }
        }
    }

    /// Checks reading a file or folder with the file tools.
    fn decide_read(&self, path: &str, outside: bool) -> PolicyDecision {
        if outside {
            // The path is in the reason because one call may read many paths.
            let reason =
                format!("`{path}` lies outside of the workspace, where the tools cannot reach");
            return plain_decision(Verdict::Deny, &reason);
        }
        match (
            any_matches_path(&self.deny, path),
            any_matches_path(&self.ask, path),
            secret_paths::secret_reason(path),
        ) {
            (true, ..) => plain_decision(Verdict::Deny, "a rule forbids this path"),
            (_, true, _) => plain_decision(Verdict::Ask, "reads a path that a rule asks about"),
            (.., Some(why)) if !any_matches_path(&self.allow, path) => {
                plain_decision(Verdict::Ask, &format!("reads a file that {why}"))
            }
            _ => plain_decision(Verdict::Allow, "reads inside the workspace"),
        }
    }

    /// Checks writing a file with the file tools.
    fn decide_write(&self, path: &str, protected: Option<&str>) -> PolicyDecision {
        // A protected path asks even if all edits are approved; only a deny or ask rule comes
        // before that.
        match (
            any_matches_path(&self.deny, path),
            any_matches_path(&self.ask, path),
            protected,
        ) {
            (true, ..) => plain_decision(Verdict::Deny, "a rule forbids this path"),
            (_, true, _) => plain_decision(Verdict::Ask, "writes a path that a rule asks about"),
            (.., Some(reason)) => {
                plain_decision(Verdict::Ask, &format!("writes a protected path: {reason}"))
            }
            _ if self.write_question_reason.is_some() => plain_decision(
                Verdict::Ask,
                &format!(
                    "writes a file: {}",
                    self.write_question_reason.as_deref().unwrap_or_default()
                ),
            ),
            _ if self.edits => plain_decision(Verdict::Allow, "edits are approved"),
            _ if any_matches_path(&self.allow, path) => {
                plain_decision(Verdict::Allow, "edits of this path are approved")
            }
            _ => PolicyDecision {
                proposals: vec!["edits".to_owned()],
                ..plain_decision(Verdict::Ask, "writes a file")
            },
        }
    }

    /// Checks a command line: each part, then the approvals of the whole line, then the mode.
    ///
    /// The parts are checked by rules and programs. An exact approval (`command=LINE`) answers for the whole line, but never a question
    /// that a rule of the user asks. `only_reads` is found by a second decision without any rules, because it decides whether the
    /// sandbox lets the command write.
    fn decide_command(
        &self,
        command: &str,
        facts: &CommandFacts,
        beyond: ExtraPermissions,
    ) -> PolicyDecision {
        if let SecretFiles::Masked(files) = &facts.secret_files {
            let is_allowed = |file: &SecretFile| any_matches_path(&self.allow, &file.path);
            // Files that the user allows to be read must not look empty.
            if beyond == ExtraPermissions::Nothing && !files.iter().any(is_allowed) {
                let decision = self.decide_known_command(command, facts, beyond);
                if decision.only_reads || decision.verdict != Verdict::Allow {
                    return decision;
                }
            }
            // The files look empty only to commands that run because they only read.
            let facts = CommandFacts {
                secret_files: SecretFiles::Found(files.clone()),
                ..facts.clone()
            };
            return self.decide_known_command(command, &facts, beyond);
        }
        self.decide_known_command(command, facts, beyond)
    }

    /// Checks a command line whose files with secrets are masked, or looked for.
    fn decide_known_command(
        &self,
        command: &str,
        facts: &CommandFacts,
        beyond: ExtraPermissions,
    ) -> PolicyDecision {
        // A command with exceptions from its sandbox is not confined by it.
        let beyond_facts = (beyond != ExtraPermissions::Nothing).then(|| CommandFacts {
            confined: false,
            build_folders: Vec::new(),
            ..facts.clone()
        });
        let facts = beyond_facts.as_ref().unwrap_or(facts);
        let mut evaluator = CommandEvaluator::new(self, facts);
        evaluator.evaluate_line(command, &mut ShellScope::new());
        let CommandEvaluator {
            parts,
            asked_by_rule,
            allowed_build,
            ..
        } = evaluator;
        // The first of the strictest parts decides. `max_by_key` returns the last of equals, so the
        // parts are walked from the end.
        let decisive = parts
            .iter()
            .rev()
            .max_by_key(|part| (strictness_rank(part.segment.verdict), part.always_asks));
        let mut verdict = decisive.map_or(Verdict::Allow, |part| part.segment.verdict);
        let mut reason = match (verdict, decisive) {
            (Verdict::Deny, Some(part)) => {
                format!("`{}`: {}", part.segment.command, part.segment.reason)
            }
            (Verdict::Ask, Some(part)) => {
                format!("runs `{}`: {}", part.segment.command, part.segment.reason)
            }
            // A command that a rule or an approval allowed is not reported as only reading.
            _ => parts
                .iter()
                .map(|part| part.segment.reason.as_str())
                .find(|reason| [BY_RULE, BY_APPROVAL, BY_TRUST].contains(reason))
                .unwrap_or("only reads")
                .to_owned(),
        };
        let mut is_approved_line = false;
        // An exact approval answers the policy's own questions, never those of the user's ask
        // rules.
        if verdict == Verdict::Ask
            && !asked_by_rule
            && self.exact.iter().any(|line| line == command.trim())
        {
            verdict = Verdict::Allow;
            reason = BY_LINE.to_owned();
            is_approved_line = true;
        }
        let exception = self.exception_question(beyond);
        // A question of the parts that no rule answers is not answered by the registries either.
        let asks_registries = exception.is_some() && beyond == ExtraPermissions::Registries;
        let base_verdict = verdict;
        match (exception, verdict) {
            (Some(asks), Verdict::Allow) => {
                verdict = Verdict::Ask;
                reason = asks.to_owned();
            }
            // The user has to see everything that a yes would permit.
            (Some(asks), Verdict::Ask) => reason = format!("{asks}, and {reason}"),
            _ => {}
        }
        // The user should not say yes to something that cannot work.
        if let (Verdict::Ask, ExtraPermissions::Nothing, Some(wall)) =
            (verdict, beyond, &facts.loopback_wall)
        {
            reason = format!("{reason}; {wall}");
        }
        // Only a question can be answered by a rule.
        let mut proposals = if verdict == Verdict::Ask {
            kind_proposals(&parts)
        } else {
            Vec::new()
        };
        if asks_registries && (base_verdict == Verdict::Allow || !proposals.is_empty()) {
            proposals.push("registries".to_owned());
        }
        let segments = parts.into_iter().map(|part| {
            let mut segment = part.segment;
            // The parts agree with the whole, and still say what was approved.
            if is_approved_line && segment.verdict == Verdict::Ask {
                segment.verdict = Verdict::Allow;
                segment.reason = format!("{BY_LINE}; otherwise it asks: {}", segment.reason);
            }
            segment
        });
        let segments = segments.collect();
        // A mode that cannot edit any file runs only commands that read: a command can write
        // anywhere.
        let limiting_mode = self.mode.as_ref().filter(|mode| !mode.can_edit_any_file());
        let mut only_reads = false;
        if verdict == Verdict::Allow || limiting_mode.is_some() {
            // `only_reads` must not depend on the user's rules and trust, so the line is checked
            // again without any.
            let plain = || Self::decide_unruled(command, facts).verdict;
            // Without any rules the second decision would be the same as the first.
            let silent = verdict == Verdict::Allow && !self.has_command_rules() && !allowed_build;
            only_reads = (beyond == ExtraPermissions::Nothing || limiting_mode.is_some())
                && (silent || plain() == Verdict::Allow);
        }
        if let Some(mode) = limiting_mode.filter(|_| {
            verdict != Verdict::Deny && (!only_reads || beyond == ExtraPermissions::Unconfined)
        }) {
            let why = match (verdict, beyond) {
                (
                    Verdict::Allow,
                    ExtraPermissions::Nothing
                    | ExtraPermissions::Registries
                    | ExtraPermissions::Network,
                ) => Self::decide_unruled(command, facts).reason,
                _ => reason,
            };
            let reason = format!(
                "the mode `{}` runs only commands that are known to only read: {why}",
                mode.name
            );
            return PolicyDecision {
                verdict: Verdict::Deny,
                reason,
                only_reads: false,
                segments,
                proposals: Vec::new(),
            };
        }
        PolicyDecision {
            verdict,
            reason,
            only_reads,
            segments,
            proposals,
        }
    }

    /// Checks a command line without the user's rules and trust, inside its sandbox.
    fn decide_unruled(command: &str, facts: &CommandFacts) -> PolicyDecision {
        let facts = CommandFacts {
            build_folders: Vec::new(),
            ..facts.clone()
        };
        Self::default().decide_command(command, &facts, ExtraPermissions::Nothing)
    }

    /// Returns the finding of the first matching rule, with the reach of that rule. Deny rules win over ask rules, and those over allow
    /// rules.
    fn user_rule_finding(&self, words: &[ShellWord]) -> Option<(PolicyFinding, RuleReach)> {
        if self.deny.iter().any(|rule| rule.may_match(words)) {
            let reason = "a rule forbids it".to_owned();
            return Some((
                PolicyFinding {
                    verdict: Verdict::Deny,
                    reason,
                    always_asks: true,
                },
                RuleReach::Wide,
            ));
        }
        if self.ask.iter().any(|rule| rule.may_match(words)) {
            return Some((
                PolicyFinding::always_ask("a rule asks about it"),
                RuleReach::Wide,
            ));
        }
        // An exact rule is preferred, since it also allows destructive commands, unlike a wide one.
        // Several rules may match; the order in which they were given has no meaning.
        let mut reaches = self
            .allow
            .iter()
            .filter_map(|rule| rule.allow_reach(words))
            .collect::<Vec<_>>();
        reaches.sort_by_key(|reach| *reach == RuleReach::Wide);
        reaches
            .first()
            .map(|reach| (PolicyFinding::allow(BY_RULE), *reach))
    }

    /// Turns a question into a permission if all commands are approved and the question is not one that always asks.
    fn apply_blanket_approval(&self, finding: PolicyFinding) -> PolicyFinding {
        if self.commands && finding.verdict == Verdict::Ask && !finding.always_asks {
            return PolicyFinding::allow(BY_APPROVAL);
        }
        finding
    }

    /// Returns the question about a command that needs more than its sandbox permits. The network can be approved in advance; running
    /// without a sandbox always asks.
    fn exception_question(&self, beyond: ExtraPermissions) -> Option<&'static str> {
        match beyond {
            ExtraPermissions::Nothing => None,
            ExtraPermissions::Registries => (!self.registries).then_some(
                "reaches the hosts of package registries, through a proxy that records them",
            ),
            ExtraPermissions::Network => (!self.network).then_some("uses the network"),
            ExtraPermissions::Unconfined => Some("runs outside of the sandbox"),
        }
    }

    /// Combines several accesses: the strictest verdict wins (the first one among equals), and the parts of all are kept. Rules
    /// are proposed only if every access that asks has one, since approving some of them would not answer the question.
    fn strictest_decision(&self, all: &[Access]) -> PolicyDecision {
        let mut decisions: Vec<_> = all.iter().map(|access| self.decide(access)).collect();
        let verdict = decisions
            .iter()
            .map(|one| one.verdict)
            .max_by_key(|verdict| strictness_rank(*verdict));
        let Some(verdict) = verdict else {
            return self.decide(&Access::Nothing);
        };
        let only_reads = decisions.iter().all(|one| one.only_reads);
        let segments = decisions
            .iter_mut()
            .flat_map(|one| std::mem::take(&mut one.segments))
            .collect();
        // Proposals only make sense for the accesses that decide the verdict.
        decisions.retain(|one| one.verdict == verdict);
        let mut proposals: Vec<String> = Vec::new();
        if !decisions.iter().any(|one| one.proposals.is_empty()) {
            decisions
                .iter()
                .for_each(|one| proposals.extend(one.proposals.iter().cloned()));
            let mut seen = std::collections::HashSet::new();
            proposals.retain(|rule| seen.insert(rule.clone()));
        }
        let reason = decisions
            .into_iter()
            .next()
            .map(|one| one.reason)
            .unwrap_or_default();
        PolicyDecision {
            verdict,
            reason,
            only_reads,
            segments,
            proposals,
        }
    }
}

impl<'a> CommandEvaluator<'a> {
    /// Starts a walk with nothing found yet.
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
            could_match_secret: false,
            needs_file_names: false,
            needs_index_names: false,
            wanted_absent: Vec::new(),
            wanted_build_folders: Vec::new(),
            needs_tracked_secrets: false,
            needs_history_secrets: false,
            wanted_object_ids: Vec::new(),
            wanted_push_folder: None,
            allowed_build: false,
            piped: false,
            document: None,
            input: PipeInput::Unknown,
            plain_shell: facts.shell == ShellKind::Plain,
        }
    }
}

/// Returns a decision about an access that has no parts and no proposals.
fn plain_decision(verdict: Verdict, reason: &str) -> PolicyDecision {
    let reason = reason.to_owned();
    PolicyDecision {
        verdict,
        reason,
        only_reads: false,
        segments: Vec::new(),
        proposals: Vec::new(),
    }
}

/// Reports whether a path rule among these matches a path or a folder above it.
fn any_matches_path(rules: &[RulePattern], path: &str) -> bool {
    rules
        .iter()
        .any(|rule| matches!(rule, RulePattern::Path(pattern) if matches_path(pattern, path)))
}

/// Reports whether a glob matches a path or one of the folders above it.
pub(crate) fn matches_path(pattern: &str, path: &str) -> bool {
    let path = path.trim_start_matches("./");
    matches_glob(pattern, path) || matches_glob(&format!("{pattern}/**"), path)
}

/// Orders verdicts from the most permissive to the strictest.
fn strictness_rank(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Allow => 0,
        Verdict::Ask => 1,
        Verdict::Deny => 2,
    }
}

/// Reports whether a command may run the words behind its name as another command. True for every program that is not known to
/// only read.
fn may_wrap_command(command: &[ShellWord]) -> bool {
    command
        .first()
        .and_then(ShellWord::known_text)
        .is_none_or(|name| programs::find_program(name).is_none())
}

/// Returns the kind rules that would allow every part that asks, without duplicates. Empty if any of those parts has no kind.
fn kind_proposals(parts: &[EvaluatedPart]) -> Vec<String> {
    let mut proposed = Vec::new();
    for part in parts
        .iter()
        .filter(|part| part.segment.verdict == Verdict::Ask)
    {
        let Some(kind) = part.kind else {
            return Vec::new();
        };
        let rule = format!("kind={kind}");
        if !proposed.contains(&rule) {
            proposed.push(rule);
        }
    }
    proposed
}

/// Returns the lower-case host of an `http` or `https` URL. `None` for URLs with credentials (`https://docs.rs@evil/` goes to
/// `evil`) and for ports other than 80 and 443: approving a host does not approve other services on it.
fn host_of(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#', '\\']).next()?;
    let plain = matches!(scheme.to_ascii_lowercase().as_str(), "http" | "https")
        && !authority.contains('@');
    let (host, port) = match authority.rsplit_once(':') {
        // An IPv6 address is in brackets, so a colon before `]` does not begin a port.
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    };
    (plain && matches!(port, None | Some("80" | "443"))).then(|| host.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::{Access, CommandFacts, ExtraPermissions, PolicyRules, Verdict};

    fn clean() -> CommandFacts {
        CommandFacts {
            clean_path: true,
            ..CommandFacts::default()
        }
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
        let read = |outside| Access::Read {
            path: "a".into(),
            outside,
        };
        let write = |protected: Option<&str>| Access::Write {
            path: "a".into(),
            protected: protected.map(str::to_owned),
        };
        let command = |line: &str| Access::Command {
            command: line.into(),
            facts: clean(),
            beyond: ExtraPermissions::Nothing,
        };
        check(&[], &read(false), Verdict::Allow);
        check(&["all"], &read(true), Verdict::Deny);
        check(
            &["all"],
            &Access::Invalid {
                reason: "no path".into(),
            },
            Verdict::Deny,
        );
        check(&[], &write(None), Verdict::Ask);
        check(&["edits"], &write(None), Verdict::Allow);
        check(&["all"], &write(Some("git's own")), Verdict::Ask);
        check(&[], &command("ls"), Verdict::Allow);
        check(&["edits"], &command("touch x"), Verdict::Ask);
        check(&["commands"], &command("touch x"), Verdict::Allow);
        check(
            &["command=cargo test"],
            &command(" cargo test\n"),
            Verdict::Allow,
        );
        check(&["command=git"], &command("gitevil"), Verdict::Ask);
        check(
            &["all", "command=echo"],
            &command("echo $(rm -rf .git)"),
            Verdict::Ask,
        );
        let fetch = |url: &str| Access::Fetch { url: url.into() };
        check(&["all"], &fetch("https://docs.rs/x"), Verdict::Ask);
        check(
            &["host=Docs.rs"],
            &fetch("https://docs.rs:443/x"),
            Verdict::Allow,
        );
        check(
            &["host=docs.rs"],
            &fetch("https://docs.rs.evil/x"),
            Verdict::Ask,
        );
        check(
            &["host=docs.rs"],
            &fetch("https://evildocs.rs/x"),
            Verdict::Ask,
        );
        check(
            &["host=docs.rs"],
            &fetch("https://docs.rs:8443/x"),
            Verdict::Ask,
        );
        check(
            &["host=*.docs.rs"],
            &fetch("https://xdocs.rs/x"),
            Verdict::Ask,
        );
        check(
            &["host=[2606:4700::1]"],
            &fetch("https://[2606:4700::1]/x"),
            Verdict::Allow,
        );
        check(
            &["host=github.com"],
            &fetch("https://xn--gthub-n2e.com/"),
            Verdict::Ask,
        );
        check(
            &["host=docs.rs"],
            &fetch("https://docs.rs@evil/x"),
            Verdict::Ask,
        );
        check(&["host=docs.rs"], &fetch("file://docs.rs/x"), Verdict::Ask);
        let several = |all: &[Access]| Access::Several(all.to_vec());
        check(
            &["edits"],
            &several(&[read(false), write(None)]),
            Verdict::Allow,
        );
        check(
            &["edits"],
            &several(&[write(None), write(Some("git's own")), read(false)]),
            Verdict::Ask,
        );
        check(
            &["all"],
            &several(&[write(Some("git's own")), read(true)]),
            Verdict::Deny,
        );
        check(&[], &several(&[]), Verdict::Allow);
        let outside = Access::Read {
            path: "/etc/passwd".into(),
            outside: true,
        };
        let several = PolicyRules::default().decide(&several(&[read(false), outside, read(false)]));
        assert!(
            several.reason.contains("`/etc/passwd`"),
            "{}",
            several.reason
        );
        assert!(PolicyRules::default().add_approval("everything").is_err());
        assert!(PolicyRules::default().add_approval("command=").is_err());
    }
}
