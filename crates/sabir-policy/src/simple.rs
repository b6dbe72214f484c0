//! Simple commands: assignments, redirections and the words themselves, judged apart.

use brush_parser::ast::{
    AssignmentValue, BinaryPredicate, CommandPrefixOrSuffixItem, ExtendedTestExpr, IoFileRedirectKind,
    IoFileRedirectTarget, IoHereDocument, IoRedirect, ProcessSubstitutionKind, SimpleCommand, SubshellCommand,
    UnaryPredicate, Word as Raw,
};

use super::Verdict;

use super::feed::Feed;
use super::judge::{Finding, Judge, Scope};
use super::place::readable;
use super::word::{Form, Word};

impl Judge<'_> {
    pub(crate) fn simple(&mut self, simple: &SimpleCommand, scope: &mut Scope, fed: Feed) {
        let mut finding: Option<Finding> = None;
        let mut note = |found: Finding| {
            finding = Some(match finding.take() {
                Some(before) => before.and(found),
                None => found,
            });
        };
        let mut words = Vec::new();
        let alone = simple.word_or_name.is_none();
        for item in simple.prefix.iter().flat_map(|prefix| &prefix.0) {
            match item {
                CommandPrefixOrSuffixItem::AssignmentWord(assignment, _) => {
                    let name = simple.word_or_name.as_ref().map(|word| word.value.as_str());
                    // `IFS= read -r line`: the line stays whole.
                    if name == Some("read") && assignment.to_string() == "IFS=" {
                        note(Finding::allow("keeps the blanks of a line"));
                    } else {
                        note(self.assignment(assignment, alone, scope));
                    }
                }
                CommandPrefixOrSuffixItem::IoRedirect(redirection) => note(self.redirection(redirection, scope)),
                _ => note(Finding::ask("it begins with something that is not judged")),
            }
        }
        if let Some(name) = &simple.word_or_name {
            words.push(self.word(&name.value, scope));
        }
        for item in simple.suffix.iter().flat_map(|suffix| &suffix.0) {
            match item {
                CommandPrefixOrSuffixItem::Word(raw) => {
                    let raws = self.expanded(&raw.value);
                    words.extend(raws.iter().map(|raw| self.word(raw, scope)));
                }
                CommandPrefixOrSuffixItem::AssignmentWord(assignment, raw) => {
                    if matches!(assignment.value, AssignmentValue::Array(_)) {
                        note(Finding::ask("arrays are not judged"));
                    }
                    words.push(self.word(&raw.value, scope));
                }
                CommandPrefixOrSuffixItem::IoRedirect(redirection) => note(self.redirection(redirection, scope)),
                CommandPrefixOrSuffixItem::ProcessSubstitution(kind, command) => {
                    words.push(self.substitution(kind, command, scope));
                }
            }
        }
        let mut kind = None;
        finding = match (finding, self.paths(&words, scope)) {
            (Some(before), Some(found)) => Some(before.and(found)),
            (before, found) => before.or(found),
        };
        if !words.is_empty() {
            let found = self.words(&words, scope, fed);
            kind = super::kinds::of(&words)
                .filter(|_| finding.as_ref().is_none_or(|found| found.verdict == Verdict::Allow));
            // The reason of the command comes first where all of it is allowed.
            finding = Some(match finding {
                Some(before) => found.and(before),
                None => found,
            });
        }
        let text = simple.to_string();
        self.push_kind(text.trim(), finding.unwrap_or_else(|| Finding::allow("does nothing")), kind);
    }

    /// Scans a word and judges the lines in it.
    fn word(&mut self, raw: &str, scope: &Scope) -> Word {
        let scanned = self.scan(raw, scope);
        self.commands(&scanned, scope);
        scanned.word
    }

    /// `<(…)` and `>(…)` are the name of a pipe.
    fn substitution(&mut self, _kind: &ProcessSubstitutionKind, command: &SubshellCommand, scope: &Scope) -> Word {
        self.list(&command.list, &mut scope.clone());
        Word::field("<(…)", "", true, true)
    }

    /// The redirections of a compound command, which have no command of their own.
    pub(crate) fn redirections_alone(&mut self, list: &[IoRedirect], scope: &Scope) {
        for redirection in list {
            let finding = self.redirection(redirection, scope);
            self.push(redirection.to_string().trim(), finding);
        }
    }

    fn redirection(&mut self, redirection: &IoRedirect, scope: &Scope) -> Finding {
        match redirection {
            IoRedirect::File(_, kind, IoFileRedirectTarget::Filename(raw)) => self.file(kind, raw, scope),
            IoRedirect::File(_, _, IoFileRedirectTarget::Fd(_)) => Finding::allow("duplicates a descriptor"),
            IoRedirect::File(_, kind, IoFileRedirectTarget::Duplicate(raw)) => {
                let word = self.word(&raw.value, scope);
                let descriptor = |text: &str| {
                    !text.is_empty() && text.strip_suffix('-').unwrap_or(text).bytes().all(|byte| byte.is_ascii_digit())
                };
                match word.known() {
                    Some(text) if descriptor(text) => Finding::allow("duplicates a descriptor"),
                    _ => Finding::ask(format!("{kind}{} may write a file", word.raw)),
                }
            }
            IoRedirect::File(_, _, IoFileRedirectTarget::ProcessSubstitution(kind, command)) => {
                self.substitution(kind, command, scope);
                Finding::allow("reads or writes a command that is judged")
            }
            IoRedirect::OutputAndError(raw, _) => self.file(&IoFileRedirectKind::Write, raw, scope),
            IoRedirect::HereString(_, raw) => {
                let word = self.word(&raw.value, scope);
                match word.form {
                    Form::Odd(odd) => Finding::ask(format!("{} holds {odd}", word.raw)),
                    _ => Finding::allow("reads a text"),
                }
            }
            IoRedirect::HereDocument(_, document) => {
                if document.requires_expansion {
                    // What a document expands is judged as what stands in double quotes.
                    let quoted = format!("\"{}\"", document.doc.value.replace('"', "\\\""));
                    let _judged = self.word(&quoted, scope);
                }
                if self.is_certain(document) {
                    return Finding::allow("reads a text");
                }
                Finding::ask("where a document in the line ends is not judged")
            }
        }
    }

    /// Whether where a document ends is beyond doubt: the only one of its line, between the line's first line feed and the first
    /// line that is its plain mark.
    fn is_certain(&self, document: &IoHereDocument) -> bool {
        let mark = document.here_end.value.trim_matches(['\'', '"']);
        let plain = !mark.is_empty() && mark.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
        let text = document.doc.value.as_str();
        let still = !document.requires_expansion || !text.contains(['$', '`', '\\']);
        let behind = self.text.split_once('\n').map(|(_, behind)| behind).unwrap_or_default();
        let mut lines = behind.split_inclusive('\n');
        let body: String = lines.by_ref().take_while(|line| line.trim_end_matches('\n') != mark).collect();
        let first = self.text.lines().next().unwrap_or_default();
        plain
            && still
            && !document.remove_tabs
            && body == text
            && first.matches("<<").count() == 1
            && body.len() < behind.len()
    }

    fn file(&mut self, kind: &IoFileRedirectKind, raw: &Raw, scope: &Scope) -> Finding {
        let word = self.word(&raw.value, scope);
        if matches!(kind, IoFileRedirectKind::Read) {
            self.note(&[Word::field("", "", false, false), word.clone()], scope);
        }
        let named = self.paths(std::slice::from_ref(&word), scope);
        let finding = self.file_alone(kind, &word, scope);
        match named {
            Some(named) => finding.and(named),
            None => finding,
        }
    }

    fn file_alone(&self, kind: &IoFileRedirectKind, word: &Word, scope: &Scope) -> Finding {
        match kind {
            _ if word.known() == Some("/dev/null") => Finding::allow("discards"),
            IoFileRedirectKind::Write if matches!(word.known(), Some("/dev/stdout" | "/dev/stderr")) => {
                Finding::allow("prints")
            }
            IoFileRedirectKind::Read if self.zsh_range(word) => Finding::ask("a range of zsh"),
            IoFileRedirectKind::Read if !matches!(word.form, Form::Glob(_)) => {
                Finding::from(readable(word, &scope.folder, &self.facts.root).map(|()| "reads a file".to_owned()))
            }
            IoFileRedirectKind::Read => Finding::ask(format!("which file {} is, is not certain", word.raw)),
            // A disk, or what the kernel and the machine are set by.
            _ if ["/dev/", "/proc/", "/sys/", "/etc/", "/boot/"].iter().any(|place| word.text.starts_with(place)) => {
                Finding::firm(format!("writes {} ({kind})", word.raw))
            }
            _ => Finding::ask(format!("writes {} ({kind})", word.raw)),
        }
    }

    /// `<1-5>` is a pattern of zsh.
    fn zsh_range(&self, word: &Word) -> bool {
        self.facts.shell == super::Shell::Zsh && word.text.starts_with(|c: char| c.is_ascii_digit() || c == '-')
    }

    /// `[[ … ]]`, whose numbers are arithmetic and whose names are looked up.
    pub(crate) fn extended_test(&mut self, test: &ExtendedTestExpr, scope: &Scope) {
        match test {
            ExtendedTestExpr::And(one, other) | ExtendedTestExpr::Or(one, other) => {
                self.extended_test(one, scope);
                self.extended_test(other, scope);
            }
            ExtendedTestExpr::Not(inner) | ExtendedTestExpr::Parenthesized(inner) => self.extended_test(inner, scope),
            ExtendedTestExpr::UnaryTest(predicate, raw) => {
                let word = self.word(&raw.value, scope);
                let looked_up = matches!(
                    predicate,
                    UnaryPredicate::ShellVariableIsSetAndAssigned
                        | UnaryPredicate::ShellVariableIsSetAndNameRef
                        | UnaryPredicate::FdIsOpenTerminal
                );
                let finding = match word.form {
                    Form::Odd(odd) => Finding::ask(format!("{} holds {odd}", word.raw)),
                    _ if looked_up => Finding::ask(format!("looking up {} can run commands", word.raw)),
                    _ => Finding::allow("only tests"),
                };
                self.push(&format!("[[ {test} ]]"), finding);
            }
            ExtendedTestExpr::BinaryTest(predicate, left, right) => {
                let (left, right) = (self.word(&left.value, scope), self.word(&right.value, scope));
                let number = |word: &Word| {
                    word.known().is_some_and(|text| {
                        let digits = text.strip_prefix('-').unwrap_or(text);
                        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
                    }) || matches!(word.raw.as_str(), "$?" | "$#" | "\"$?\"" | "\"$#\"")
                };
                let arithmetic = matches!(
                    predicate,
                    BinaryPredicate::ArithmeticEqualTo
                        | BinaryPredicate::ArithmeticNotEqualTo
                        | BinaryPredicate::ArithmeticLessThan
                        | BinaryPredicate::ArithmeticLessThanOrEqualTo
                        | BinaryPredicate::ArithmeticGreaterThan
                        | BinaryPredicate::ArithmeticGreaterThanOrEqualTo
                );
                let finding = match (left.form, right.form) {
                    (Form::Odd(odd), _) | (_, Form::Odd(odd)) => Finding::ask(format!("it holds {odd}")),
                    _ if arithmetic && !(number(&left) && number(&right)) => {
                        Finding::ask("arithmetic can run commands")
                    }
                    _ => Finding::allow("only tests"),
                };
                self.push(&format!("[[ {test} ]]"), finding);
            }
        }
    }
}
