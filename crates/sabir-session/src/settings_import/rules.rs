//! Translates rules of other programs. A rule is left out if the nearest rule of Sabir would allow
//! more.

use super::RuleList;

/// A rule of another program, translated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TranslatedRule {
    pub(super) list: RuleList,
    pub(super) rule: String,
}

/// The reason why a rule is not carried over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum RuleProblem {
    #[error("it allows every command; `approve = [\"commands\"]` does that here")]
    EveryCommand,
    #[error("it allows every address; `approve = [\"network\"]` does that here")]
    EveryAddress,
    #[error("it allows every tool of a kind; `approve = [\"edits\"]` allows changes here")]
    EveryTool,
    #[error("a path that is allowed here may be written too")]
    ReadOnly,
    #[error("it only allows reading in the folder, which Sabir allows without a rule")]
    ReadAnyway,
    #[error("Sabir's rules cannot express its path")]
    Path,
    #[error("Sabir's rules cannot express its pattern")]
    Pattern,
    #[error("Sabir has no such tool")]
    UnknownTool,
}

/// Translates a rule of Claude Code, such as `Bash(git status:*)`.
pub(super) fn translate_claude_rule(
    list: RuleList,
    text: &str,
) -> Result<TranslatedRule, RuleProblem> {
    let text = text.trim();
    let (tool, content) = match text.split_once('(') {
        Some((tool, rest)) => (tool, rest.strip_suffix(')').unwrap_or(rest).trim()),
        None => (text, ""),
    };
    let rule = match tool {
        "Bash" => command_rule(list, content)?,
        "Read" | "Edit" | "Write" | "MultiEdit" | "NotebookEdit" => {
            path_rule(list, tool == "Read", content)?
        }
        "WebFetch" => {
            let host = content.strip_prefix("domain:").unwrap_or(content);
            match host {
                "" | "*" => return Err(RuleProblem::EveryAddress),
                host if host.contains(['*', '/', ':']) => return Err(RuleProblem::Pattern),
                host => format!("host={host}"),
            }
        }
        tool => match tool.strip_prefix("mcp__") {
            Some(name) => server_rule(name),
            None => return Err(RuleProblem::UnknownTool),
        },
    };
    Ok(TranslatedRule { list, rule })
}

/// Translates a command with a `:*` or `*` at its end, as Claude Code and opencode write them.
pub(super) fn command_rule(list: RuleList, content: &str) -> Result<String, RuleProblem> {
    let content = content.trim();
    let (start, is_prefix) = match content
        .strip_suffix(":*")
        .or_else(|| content.strip_suffix(" **"))
        .or_else(|| content.strip_suffix(" *"))
    {
        Some(start) => (start.trim(), true),
        None => (content, false),
    };
    match start {
        "" | "*" | "**" => return Err(RuleProblem::EveryCommand),
        start if start.contains('*') && list == RuleList::Allow => {
            // A star in the middle may stand for any words there, and for one word here, or the
            // other way round.
            return Err(RuleProblem::Pattern);
        }
        // What several commands on one line mean is another question there than here.
        start if start.contains([';', '&', '|', '\n', '$', '`', '<', '>', '\\', '"', '\'']) => {
            return Err(RuleProblem::Pattern);
        }
        _ => {}
    }
    Ok(match (is_prefix, list) {
        (true, _) => format!("{start} **"),
        (false, _) => start.to_owned(),
    })
}

/// Translates a prefix of a command line, as Roo Code and Gemini CLI have them.
pub(super) fn prefix_rule(list: RuleList, prefix: &str) -> Result<String, RuleProblem> {
    match prefix.trim() {
        "" | "*" => Err(RuleProblem::EveryCommand),
        prefix => command_rule(list, &format!("{prefix} *")),
    }
}

fn path_rule(list: RuleList, is_read: bool, content: &str) -> Result<String, RuleProblem> {
    if list == RuleList::Allow && is_read {
        return Err(match content {
            "" | "*" | "**" => RuleProblem::ReadAnyway,
            _ => RuleProblem::ReadOnly,
        });
    }
    let path = match content {
        "" | "*" | "**" => return Err(RuleProblem::EveryTool),
        content => content,
    };
    // There two slashes are the root of the machine, and one is the folder of the settings.
    let path = match (path.strip_prefix("//"), path.strip_prefix("./")) {
        (Some(absolute), _) => format!("/{absolute}"),
        (_, Some(relative)) => relative.to_owned(),
        // Relative to the file of the settings, which is in the home folder.
        _ if path.starts_with('/') => return Err(RuleProblem::Path),
        // A name alone fits in every folder there, as in an ignore file.
        _ if list != RuleList::Allow && !path.contains('/') => format!("**/{path}"),
        _ => path.to_owned(),
    };
    if path.contains(['?', '[', ']', '{', '}', '!', '\\', '$']) {
        return Err(RuleProblem::Path);
    }
    Ok(format!("path={path}"))
}

/// Translates `SERVER__TOOL`, or `SERVER` for all of its tools.
fn server_rule(name: &str) -> String {
    match name.split_once("__") {
        Some((server, tool)) if !tool.is_empty() => format!("mcp={server}/{tool}"),
        Some((server, _)) => format!("mcp={server}/*"),
        None => format!("mcp={name}/*"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_claude_code_become_rules_or_reasons() {
        let check = |list: RuleList, text: &str, expected: Result<&str, RuleProblem>| {
            let rule = translate_claude_rule(list, text).map(|rule| rule.rule);
            assert_eq!(rule.as_deref(), expected.as_ref().copied(), "{text}");
        };
        use RuleList::{Allow, Deny};
        check(Allow, "Bash(git status:*)", Ok("git status **"));
        check(Allow, "Bash(npm run test *)", Ok("npm run test **"));
        check(Allow, "Bash(npm run build)", Ok("npm run build"));
        check(Allow, "Bash", Err(RuleProblem::EveryCommand));
        check(Allow, "Bash(*)", Err(RuleProblem::EveryCommand));
        check(Allow, "Bash(git * main)", Err(RuleProblem::Pattern));
        check(Deny, "Bash(git push * --force)", Ok("git push * --force"));
        check(Allow, "Bash(a && b)", Err(RuleProblem::Pattern));
        check(Deny, "Read(./.env)", Ok("path=.env"));
        check(Deny, "Read(notes.dat)", Ok("path=**/notes.dat"));
        check(Deny, "Read(~/.ssh/**)", Ok("path=~/.ssh/**"));
        check(Deny, "Read(//etc/**)", Ok("path=/etc/**"));
        check(Deny, "Read(/src/**)", Err(RuleProblem::Path));
        check(Allow, "Read(docs/**)", Err(RuleProblem::ReadOnly));
        check(Allow, "Edit(docs/**)", Ok("path=docs/**"));
        check(Allow, "Edit", Err(RuleProblem::EveryTool));
        check(Deny, "Read(*.{a,b})", Err(RuleProblem::Path));
        check(Allow, "WebFetch(domain:docs.rs)", Ok("host=docs.rs"));
        check(Allow, "WebFetch(domain:*.rs)", Err(RuleProblem::Pattern));
        check(Allow, "mcp__github__get_issue", Ok("mcp=github/get_issue"));
        check(Allow, "mcp__github", Ok("mcp=github/*"));
        check(Allow, "WebSearch", Err(RuleProblem::UnknownTool));
        assert_eq!(prefix_rule(Allow, "git log"), Ok("git log **".to_owned()));
        assert_eq!(prefix_rule(Allow, "*"), Err(RuleProblem::EveryCommand));
    }
}
