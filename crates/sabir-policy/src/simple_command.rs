//! Checks simple commands: their assignments, redirections and words.
//!
//! A simple command is what is left when lists, pipes and loops are taken apart: `A=1 B=2 name word… >file 2>&1`. Its finding is
//! the strictest of its pieces:
//!
//! * an assignment in front of a name sets the environment of that program, so only harmless variables are allowed; alone it sets a
//!   variable of the line, which later words may use,
//! * a redirection to a file is a write, whatever the program does; one from a file is a read,
//! * the words are expanded as far as that is certain (`word.rs`), compared with path rules (`paths.rs`), and checked by their
//!   program (`wrappers.rs`).
//!
//! `[[ … ]]` is a part of the shell's grammar and is checked here as well: its numeric operators evaluate arithmetic, and
//! `[[ a[$(cmd)] -eq 0 ]]` runs `cmd`.

use brush_parser::ast::{
    AssignmentValue, BinaryPredicate, CommandPrefixOrSuffixItem, ExtendedTestExpr,
    IoFileRedirectKind, IoFileRedirectTarget, IoHereDocument, IoRedirect, ProcessSubstitutionKind,
    SimpleCommand, SubshellCommand, UnaryPredicate, Word as Raw,
};

use super::Verdict;
use super::destructive::{CommandLocation, is_outside_target};
use super::evaluator::{CommandEvaluator, PolicyFinding, ShellScope, tidy_redirections};
use super::path_scope::check_readable;
use super::pipe_input::PipeInput;
use super::word::{ScannedWord, ShellWord, WordForm};

impl CommandEvaluator<'_> {
    /// Checks a simple command with all its parts. `fed` is the output of the command before it in a pipeline.
    ///
    /// The pieces are checked in the order in which the shell handles them: assignments and redirections first, then the words. The
    /// strictest finding is recorded for the command as a whole, with the kind that would allow it if only the words ask.
    pub(crate) fn evaluate_simple(
        &mut self,
        simple: &SimpleCommand,
        scope: &mut ShellScope,
        fed: PipeInput,
    ) {
        let mut finding: Option<PolicyFinding> = None;
        let mut note = |found: PolicyFinding| {
            finding = Some(match finding.take() {
                Some(before) => before.stricter(found),
                None => found,
            });
        };
        let mut words = Vec::new();
        let mut document = None;
        let alone = simple.word_or_name.is_none();
        for item in simple.prefix.iter().flat_map(|prefix| &prefix.0) {
            match item {
                CommandPrefixOrSuffixItem::AssignmentWord(assignment, _) => {
                    let name = simple.word_or_name.as_ref().map(|word| word.value.as_str());
                    // `IFS= read -r line` is a common idiom: it keeps the blanks of the line and
                    // affects only `read`.
                    if name == Some("read") && assignment.to_string() == "IFS=" {
                        note(PolicyFinding::allow("keeps the blanks of a line"));
                    } else {
                        note(self.evaluate_assignment(assignment, alone, scope));
                    }
                }
                CommandPrefixOrSuffixItem::IoRedirect(redirection) => {
                    note(self.evaluate_redirection(redirection, scope))
                }
                _ => note(PolicyFinding::ask("its beginning is not understood")),
            }
        }
        if let Some(name) = &simple.word_or_name {
            words.push(self.evaluate_word(&name.value, scope));
        }
        for item in simple.suffix.iter().flat_map(|suffix| &suffix.0) {
            match item {
                CommandPrefixOrSuffixItem::Word(raw) => {
                    let raws = self.expand_word(&raw.value);
                    words.extend(raws.iter().map(|raw| self.evaluate_word(raw, scope)));
                }
                CommandPrefixOrSuffixItem::AssignmentWord(assignment, raw) => {
                    if matches!(assignment.value, AssignmentValue::Array(_)) {
                        note(PolicyFinding::ask("arrays are not understood"));
                    }
                    words.push(self.evaluate_word(&raw.value, scope));
                }
                CommandPrefixOrSuffixItem::IoRedirect(redirection) => {
                    document = document.or_else(|| self.document_text(redirection));
                    note(self.evaluate_redirection(redirection, scope))
                }
                CommandPrefixOrSuffixItem::ProcessSubstitution(kind, command) => {
                    words.push(self.evaluate_process_substitution(kind, command, scope));
                }
            }
        }
        let mut kind = None;
        finding = match (finding, self.check_paths(&words, scope)) {
            (Some(before), Some(found)) => Some(before.stricter(found)),
            (before, found) => before.or(found),
        };
        if !words.is_empty() {
            let outer = std::mem::replace(&mut self.document, document);
            let found = self.evaluate_words(&words, scope, fed);
            self.document = outer;
            let found = match &finding {
                Some(before) if before.verdict != Verdict::Allow => found,
                _ => self.apply_build_trust(&words, found, scope),
            };
            // A kind covers the words of a command, never its redirections and assignments.
            kind = super::command_kinds::kind_of(&words).filter(|_| {
                finding
                    .as_ref()
                    .is_none_or(|found| found.verdict == Verdict::Allow)
            });
            // If both are allowed, the reason of the command itself is shown.
            finding = Some(match finding {
                Some(before) => found.stricter(before),
                None => found,
            });
        }
        let text = tidy_redirections(simple.to_string().trim());
        self.push_kind_finding(
            &text,
            finding.unwrap_or_else(|| PolicyFinding::allow("does nothing")),
            kind,
        );
    }

    /// Scans a word and checks its command substitutions.
    fn evaluate_word(&mut self, raw: &str, scope: &ShellScope) -> ShellWord {
        let scanned = self.scan_in_scope(raw, scope);
        self.evaluate_substitutions(&scanned, scope);
        match self.substituted_names(raw, &scanned, scope) {
            Some(names) => names,
            None => scanned.word,
        }
    }

    /// Returns a word for the file names that a lone `$(…)` prints: `wc -l $(git ls-files)`.
    ///
    /// The names stay whole, do not begin with `-` and hold no secret, so they are checked like a pattern for files of the workspace.
    /// `None` for any other word, and if there are rules for paths, which could be among the names.
    fn substituted_names(
        &mut self,
        raw: &str,
        scanned: &ScannedWord,
        scope: &ShellScope,
    ) -> Option<ShellWord> {
        let [line] = scanned.commands.as_slice() else {
            return None;
        };
        let alone = raw
            .strip_prefix("$(")
            .and_then(|rest| rest.strip_suffix(')'))
            == Some(line.as_str());
        if !alone || self.rules.has_path_rules() || self.facts.shell == super::ShellKind::Zsh {
            return None;
        }
        let program = super::line::parse_line(line).ok()?;
        let [list] = program.complete_commands.as_slice() else {
            return None;
        };
        let [item] = list.0.as_slice() else {
            return None;
        };
        if !item.0.additional.is_empty() {
            return None;
        }
        // The last command of the pipeline decides what is printed.
        let mut fed = PipeInput::Unknown;
        for command in &item.0.first.seq {
            fed = self.pipe_output(command, scope, fed);
        }
        match fed {
            PipeInput::Names(names)
                if !names.ends_with_nul && names.starts_plain && !names.may_hold_secret =>
            {
                Some(ShellWord::file_names(raw))
            }
            _ => None,
        }
    }

    /// Checks the commands in `<(…)` or `>(…)`, which expand to the name of a pipe.
    fn evaluate_process_substitution(
        &mut self,
        _kind: &ProcessSubstitutionKind,
        command: &SubshellCommand,
        scope: &ShellScope,
    ) -> ShellWord {
        self.evaluate_list(&command.list, &mut scope.clone());
        ShellWord::field("<(…)", "", true, true)
    }

    /// Checks the redirections of a compound command as parts of their own.
    pub(crate) fn evaluate_redirections(&mut self, list: &[IoRedirect], scope: &ShellScope) {
        for redirection in list {
            let finding = self.evaluate_redirection(redirection, scope);
            self.push_finding(&tidy_redirections(redirection.to_string().trim()), finding);
        }
    }

    /// Checks one redirection of any form.
    ///
    /// `2>&1` only duplicates a descriptor. `>&word` writes a file unless the word is a number. A here document is text, as long as it is
    /// certain where it ends.
    fn evaluate_redirection(
        &mut self,
        redirection: &IoRedirect,
        scope: &ShellScope,
    ) -> PolicyFinding {
        match redirection {
            IoRedirect::File(_, kind, IoFileRedirectTarget::Filename(raw)) => {
                self.evaluate_file_redirect(kind, raw, scope)
            }
            IoRedirect::File(_, _, IoFileRedirectTarget::Fd(_)) => {
                PolicyFinding::allow("duplicates a descriptor")
            }
            IoRedirect::File(_, kind, IoFileRedirectTarget::Duplicate(raw)) => {
                let word = self.evaluate_word(&raw.value, scope);
                let descriptor = |text: &str| {
                    !text.is_empty()
                        && text
                            .strip_suffix('-')
                            .unwrap_or(text)
                            .bytes()
                            .all(|byte| byte.is_ascii_digit())
                };
                match word.known_text() {
                    Some(text) if descriptor(text) => {
                        PolicyFinding::allow("duplicates a descriptor")
                    }
                    _ => PolicyFinding::ask(format!("{kind}{} may write a file", word.raw)),
                }
            }
            IoRedirect::File(_, _, IoFileRedirectTarget::ProcessSubstitution(kind, command)) => {
                self.evaluate_process_substitution(kind, command, scope);
                PolicyFinding::allow("reads or writes a command that is checked")
            }
            IoRedirect::OutputAndError(raw, _) => {
                self.evaluate_file_redirect(&IoFileRedirectKind::Write, raw, scope)
            }
            IoRedirect::HereString(_, raw) => {
                let word = self.evaluate_word(&raw.value, scope);
                match word.form {
                    WordForm::Odd(odd) => PolicyFinding::ask(format!("{} holds {odd}", word.raw)),
                    _ => PolicyFinding::allow("reads a text"),
                }
            }
            IoRedirect::HereDocument(_, document) => {
                if document.requires_expansion {
                    // A here document expands like text in double quotes, except that a quotation
                    // mark means itself.
                    let quoted = format!("\"{}\"", document.doc.value.replace('"', "\\\""));
                    _ = self.evaluate_word(&quoted, scope);
                }
                if self.has_certain_end(document) {
                    return PolicyFinding::allow("reads a text");
                }
                PolicyFinding::ask("the end of a document in the line is not certain")
            }
        }
    }

    /// Returns the text of a here document or here string if it is certain.
    fn document_text(&self, redirection: &IoRedirect) -> Option<String> {
        match redirection {
            IoRedirect::HereDocument(_, document) if self.has_certain_end(document) => {
                Some(document.doc.value.clone())
            }
            IoRedirect::HereString(_, raw) => {
                let scanned = self.scan_in_scope(&raw.value, &ShellScope::new());
                scanned.word.known_text().map(str::to_owned)
            }
            _ => None,
        }
    }

    /// Reports whether the end of a here document is certain.
    ///
    /// The document must be the only one of its line, and must be exactly the text between the first line feed and the first line
    /// that equals its plain delimiter. Otherwise the shell and the parser could disagree about which lines are commands.
    fn has_certain_end(&self, document: &IoHereDocument) -> bool {
        let mark = document.here_end.value.trim_matches(['\'', '"']);
        let plain = !mark.is_empty()
            && mark
                .bytes()
                .all(|byte| byte.is_ascii_uppercase() || byte == b'_');
        let text = document.doc.value.as_str();
        let still = !document.requires_expansion || !text.contains(['$', '`', '\\']);
        let behind = self
            .text
            .split_once('\n')
            .map(|(_, behind)| behind)
            .unwrap_or_default();
        let mut lines = behind.split_inclusive('\n');
        let body: String = lines
            .by_ref()
            .take_while(|line| line.trim_end_matches('\n') != mark)
            .collect();
        let first = self.text.lines().next().unwrap_or_default();
        plain
            && still
            && !document.remove_tabs
            && body == text
            && first.matches("<<").count() == 1
            && body.len() < behind.len()
    }

    /// Checks a redirection from or to a file.
    fn evaluate_file_redirect(
        &mut self,
        kind: &IoFileRedirectKind,
        raw: &Raw,
        scope: &ShellScope,
    ) -> PolicyFinding {
        let word = self.evaluate_word(&raw.value, scope);
        if matches!(kind, IoFileRedirectKind::Read) {
            self.note_dependencies(
                &[ShellWord::field("", "", false, false), word.clone()],
                scope,
            );
        }
        let named = self.check_paths(std::slice::from_ref(&word), scope);
        let mut finding = self.evaluate_redirect_target(kind, &word, scope);
        if finding.verdict != Verdict::Allow
            && !matches!(kind, IoFileRedirectKind::Read)
            && let Some(reason) = self.protected_word_reason(&word, &scope.folder)
        {
            finding = finding.stricter(PolicyFinding::always_ask(reason));
        }
        match named {
            Some(named) => finding.stricter(named),
            None => finding,
        }
    }

    /// Checks the file of a redirection, without the user's path rules.
    ///
    /// Writing inside of the workspace asks and can be approved. Writing to files without checkpoints, devices or the configuration of the
    /// system asks despite any approval.
    fn evaluate_redirect_target(
        &self,
        kind: &IoFileRedirectKind,
        word: &ShellWord,
        scope: &ShellScope,
    ) -> PolicyFinding {
        match kind {
            _ if word.known_text() == Some("/dev/null") => PolicyFinding::allow("discards"),
            IoFileRedirectKind::Write
                if matches!(word.known_text(), Some("/dev/stdout" | "/dev/stderr")) =>
            {
                PolicyFinding::allow("prints")
            }
            IoFileRedirectKind::Read if self.may_be_zsh_range(word) => {
                PolicyFinding::ask("a range of zsh")
            }
            IoFileRedirectKind::Read if !matches!(word.form, WordForm::Glob(_)) => {
                PolicyFinding::from(
                    check_readable(word, &scope.folder, &self.facts.root)
                        .map(|()| "reads a file".to_owned()),
                )
            }
            IoFileRedirectKind::Read => {
                PolicyFinding::ask(format!("which file {} is, is not certain", word.raw))
            }
            // Devices, kernel settings and system configuration always ask.
            _ if !is_in_shared_memory(word)
                && ["/dev/", "/proc/", "/sys/", "/etc/", "/boot/"]
                    .iter()
                    .any(|place| word.text.starts_with(place)) =>
            {
                PolicyFinding::always_ask(format!("writes {} ({kind})", word.raw))
            }
            // There are no checkpoints of what lies outside.
            _ if is_outside_target(
                word,
                CommandLocation {
                    folder: &scope.folder,
                    root: &self.facts.root,
                },
            ) =>
            {
                PolicyFinding::always_ask(format!(
                    "writes {} ({kind}), which may lie outside of the workspace",
                    word.raw
                ))
            }
            _ => PolicyFinding::ask(format!("writes {} ({kind})", word.raw)),
        }
    }

    /// Reports whether the word after `<` may belong to a zsh number pattern such as `<1-5>`.
    fn may_be_zsh_range(&self, word: &ShellWord) -> bool {
        self.facts.shell == super::ShellKind::Zsh
            && word
                .text
                .starts_with(|c: char| c.is_ascii_digit() || c == '-')
    }

    /// Checks `[[ … ]]`. Its numeric operators evaluate arithmetic and some unary ones look up variables; both can run commands.
    pub(crate) fn evaluate_extended_test(&mut self, test: &ExtendedTestExpr, scope: &ShellScope) {
        match test {
            ExtendedTestExpr::And(one, other) | ExtendedTestExpr::Or(one, other) => {
                self.evaluate_extended_test(one, scope);
                self.evaluate_extended_test(other, scope);
            }
            ExtendedTestExpr::Not(inner) | ExtendedTestExpr::Parenthesized(inner) => {
                self.evaluate_extended_test(inner, scope)
            }
            ExtendedTestExpr::UnaryTest(predicate, raw) => {
                let word = self.evaluate_word(&raw.value, scope);
                // `[[ -v a[$(cmd)] ]]` evaluates the subscript.
                let looked_up = matches!(
                    predicate,
                    UnaryPredicate::ShellVariableIsSetAndAssigned
                        | UnaryPredicate::ShellVariableIsSetAndNameRef
                        | UnaryPredicate::FdIsOpenTerminal
                );
                let finding = match word.form {
                    WordForm::Odd(odd) => PolicyFinding::ask(format!("{} holds {odd}", word.raw)),
                    _ if looked_up => {
                        PolicyFinding::ask(format!("looking up {} can run commands", word.raw))
                    }
                    _ => PolicyFinding::allow("only tests"),
                };
                self.push_finding(&format!("[[ {test} ]]"), finding);
            }
            ExtendedTestExpr::BinaryTest(predicate, left, right) => {
                let left = self.evaluate_word(&left.value, scope);
                let right = self.evaluate_word(&right.value, scope);
                let number = |word: &ShellWord| {
                    word.known_text().is_some_and(|text| {
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
                    (WordForm::Odd(odd), _) | (_, WordForm::Odd(odd)) => {
                        PolicyFinding::ask(format!("it holds {odd}"))
                    }
                    _ if arithmetic && !(number(&left) && number(&right)) => {
                        PolicyFinding::ask("arithmetic can run commands")
                    }
                    _ => PolicyFinding::allow("only tests"),
                };
                self.push_finding(&format!("[[ {test} ]]"), finding);
            }
        }
    }
}

/// Returns true for a file in `/dev/shm`, a folder for temporary files among the devices.
fn is_in_shared_memory(word: &ShellWord) -> bool {
    word.known_text().is_some_and(|path| {
        path.starts_with("/dev/shm/") && !path.split('/').any(|part| part == "..")
    })
}
