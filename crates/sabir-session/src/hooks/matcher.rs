//! Decides whether a hook applies to a call or an event.

use regex::{Regex, RegexBuilder};
use sabir_policy::{Access, PolicyRules, RuleKind, Verdict};

/// The most bytes that a compiled pattern may take.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// The pattern of a hook, over the names of tools or the reasons of events.
#[derive(Debug, Clone)]
pub(super) enum Matcher {
    /// Fits everything.
    Any,
    /// Fits one of these names exactly.
    Names(Vec<String>),
    /// Matches the texts that the expression finds.
    Pattern(Regex),
}

/// The condition `if` of a hook: a tool, and a pattern over its command or path.
#[derive(Debug, Clone)]
pub(super) struct Condition {
    tool: String,
    pattern: Option<Regex>,
    /// A rule that denies the commands of the pattern; `None` if it can be no rule.
    denial: Option<PolicyRules>,
}

impl Matcher {
    /// Parses a matcher: nothing or `*`, names with `|` between them, or a regular expression.
    pub(super) fn parse(text: &str) -> Result<Self, regex::Error> {
        let text = text.trim();
        if text.is_empty() || text == "*" {
            return Ok(Self::Any);
        }
        // `Edit` must not mean `MultiEdit`, so a name is compared as a whole; only other characters
        // make an expression.
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-|, ".contains(c);
        if text.chars().all(is_plain) {
            let names = text.split(['|', ',']).map(str::trim);
            return Ok(Self::Names(names.map(str::to_owned).collect()));
        }
        compile(text).map(Self::Pattern)
    }

    /// Returns true if one of the names fits.
    pub(super) fn fits(&self, names: &[&str]) -> bool {
        match self {
            Self::Any => true,
            Self::Names(known) => names.iter().any(|name| known.iter().any(|one| one == name)),
            Self::Pattern(pattern) => names.iter().any(|name| pattern.is_match(name)),
        }
    }
}

impl Condition {
    /// Parses a condition such as `Bash(git push *)`, `Edit(src/**)` or `Bash`.
    pub(super) fn parse(text: &str) -> Result<Self, regex::Error> {
        let text = text.trim();
        let Some((tool, rest)) = text.split_once('(') else {
            return Ok(Self {
                tool: text.to_owned(),
                pattern: None,
                denial: None,
            });
        };
        let wanted = rest.strip_suffix(')').unwrap_or(rest);
        // `git:*` is another way to write `git *`, which fits `git` alone too.
        let (start, is_prefix) = match wanted.strip_suffix(":*").or(wanted.strip_suffix(" *")) {
            Some(start) => (start, true),
            None => (wanted, false),
        };
        // Escaped first: in a condition only the star has a meaning.
        let mut pattern = regex::escape(start).replace("\\*", ".*");
        if is_prefix {
            pattern.push_str(r"(\s.*)?");
        }
        Ok(Self {
            tool: tool.trim().to_owned(),
            pattern: Some(compile(&format!("(?s)^{pattern}$"))?),
            denial: denial_of(start),
        })
    }

    /// Returns true if the tool has one of these names, and one of the texts matches the pattern or the command may match it in another
    /// spelling.
    pub(super) fn fits(&self, names: &[&str], texts: &[String], access: &Access) -> bool {
        names.contains(&self.tool.as_str())
            && self.pattern.as_ref().is_none_or(|pattern| {
                texts.iter().any(|text| pattern.is_match(text)) || self.may_run(access)
            })
    }

    fn may_run(&self, access: &Access) -> bool {
        let (Some(denial), Access::Command { .. }) = (&self.denial, access) else {
            return false;
        };
        denial.decide(access).verdict == Verdict::Deny
    }
}

/// Returns rules that deny the commands which begin with these words.
fn denial_of(start: &str) -> Option<PolicyRules> {
    let mut rules = PolicyRules::default();
    rules.add_rule(RuleKind::Deny, start.trim()).ok()?;
    Some(rules)
}

fn compile(text: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(text)
        .size_limit(MAX_PATTERN_BYTES)
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matchers_are_names_or_expressions() {
        let check = |text: &str, name: &str, expected: bool| {
            let fits = Matcher::parse(text).unwrap().fits(&[name, "own_name"]);
            assert_eq!(fits, expected, "{text} {name}");
        };
        check("", "Bash", true);
        check("*", "Bash", true);
        check("Bash", "Bash", true);
        check("Bash", "BashOutput", false);
        check("Edit|Write", "Write", true);
        check("Edit, Write", "Write", true);
        check("edit", "Edit", false);
        check("own_name", "Bash", true);
        check("mcp__.*__write", "mcp__files__write_file", true);
        check("^(Edit|Write)$", "MultiEdit", false);
        assert!(Matcher::parse("(").is_err());
    }

    #[test]
    fn a_condition_looks_at_the_command_or_the_path() {
        let check = |text: &str, said: &str, expected: bool| {
            let fits = Condition::parse(text).unwrap().fits(
                &["Bash"],
                &[said.to_owned()],
                &Access::Nothing,
            );
            assert_eq!(fits, expected, "{text} {said}");
        };
        check("Bash", "anything", true);
        check("Edit", "anything", false);
        check("Bash(git push *)", "git push origin", true);
        check("Bash(git push *)", "git push", true);
        check("Bash(git push:*)", "git pushed", false);
        check("Bash(rm -rf *)", "rm -rf a\nb", true);
        check("Bash(npm test)", "npm test x", false);
        check("Bash(src/**/*.rs)", "src/a/b.rs", true);
        check("Bash(a.c)", "abc", false);
    }
    #[test]
    fn a_condition_sees_through_the_spelling_of_a_command() {
        let condition = Condition::parse("Bash(touch *)").unwrap();
        let fits = |line: &str| {
            let access = Access::Command {
                command: line.to_owned(),
                facts: Default::default(),
                beyond: Default::default(),
            };
            let mut texts = super::super::payload::split_commands(line);
            texts.push(line.to_owned());
            condition.fits(&["Bash"], &texts, &access)
        };
        for line in [
            "touch>N",
            "if true; then touch N; fi",
            "for i in 1; do touch N; done",
            "/usr/bin/touch N",
            "'touch' N",
            "\\touch N",
            "tou\\ch N",
            "touch\\\n N",
            "command touch N",
            "builtin command touch N",
            "env touch N",
            "timeout 5 touch N",
            "nice touch N",
            "time touch N",
            "exec touch N",
            "eval touch N",
            "! touch N",
            ">log touch N",
            "2>&1 touch N",
            "X='a b' touch N",
            "sh -c 'touch N'",
            "bash <<< 'touch N'",
            "echo N | xargs touch",
            "a=touch; $a N",
        ] {
            assert!(fits(line), "{line}");
        }
        for line in ["echo ok", "ls -la", "cargo test"] {
            assert!(!fits(line), "{line}");
        }
    }
}
