//! Decides which dialect a template writes.

use std::cmp::Reverse;

use sabir_call::dialect::{Dialect, DialectSelection, DialectSet};
use sabir_call::{Call, CallId, CallReader, DraftResponse, ToolSet, Truncation};
use sabir_check::{CallChecker, CallState, CheckedCall};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::conversation::{
    ANSWER, ArgumentForm, CallShape, QUESTION, TOOL, call_arguments, declared_tools,
};
use crate::engine::TemplateError;
use crate::rendering::RenderedTemplate;

/// The shortest text that is a marker of its dialect.
const MIN_MARKER_BYTES: usize = 3;

/// The closeness of a text to a dialect. Later levels are closer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MatchLevel {
    /// The template writes no calls, but its instructions contain the dialect's markup.
    Instructions,
    /// The reader of the dialect finds the call.
    Reads,
    /// The text is what Sabir writes in the dialect, without its markers.
    Bare,
    /// The call is read, and the text contains markers of the dialect.
    Markers,
    /// The text is what Sabir writes in the dialect, but for blanks and line feeds.
    Layout,
    /// The text is what Sabir writes in the dialect.
    Exact,
}

/// A dialect that a template may teach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DialectCandidate {
    /// The dialect's name.
    pub dialect: String,
    /// The closeness of the template to it.
    pub level: MatchLevel,
    /// The number of markers that Sabir would write and the template did not.
    pub missing_markers: usize,
    /// The length of the text that the template and Sabir write in the same way. It resolves ties, since the text of a dialect without
    /// markers is part of the text of others.
    #[serde(skip)]
    matched_bytes: usize,
}

impl DialectCandidate {
    /// Returns the order of candidates: the closest is the least.
    fn distance(&self) -> (Reverse<MatchLevel>, usize, Reverse<usize>) {
        (
            Reverse(self.level),
            self.missing_markers,
            Reverse(self.matched_bytes),
        )
    }
}

/// A call that the reader of all dialects found in the rendered text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecognizedCall {
    /// The tool's name.
    pub name: String,
    /// The dialect, where the reader knows it.
    pub dialect: Option<String>,
    /// The typed arguments.
    pub arguments: Map<String, Value>,
    /// The verdict of the checks.
    pub state: CallState,
}

/// The text that a template wrote for a call, with the calls that were read in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TemplateEvidence {
    /// The text that the template wrote for the call.
    pub text: String,
    /// The form of the arguments in which the template wrote it.
    pub arguments: ArgumentForm,
    /// The calls that the reader of all dialects finds in it.
    pub understood: Vec<RecognizedCall>,
}

/// The result for a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TemplateVerdict {
    /// The template writes one dialect.
    Recognized,
    /// The text of the template fits several dialects equally well.
    Several,
    /// The template writes calls that no dialect reads.
    Unknown,
    /// The template writes no calls.
    NoCalls,
    /// The template cannot be rendered.
    Failed,
}

/// The report about a template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TemplateReport {
    /// The template's name, where its file has several.
    pub name: Option<String>,
    /// The verdict.
    pub verdict: TemplateVerdict,
    /// The dialect, if there is exactly one.
    pub dialect: Option<String>,
    /// The reason for the verdict, as a sentence.
    pub reason: String,
    /// All dialects that fit, the closest first.
    pub candidates: Vec<DialectCandidate>,
    /// True if the template shows the tools to the model.
    pub shows_tools: bool,
    /// The text that the template wrote for the call; `None` if it wrote none.
    pub proof: Option<TemplateEvidence>,
}

impl TemplateReport {
    /// Returns the dialects that fit the calls of the template best: more than one if they fit equally well, none if it writes no calls.
    pub fn closest_dialects(&self) -> Vec<&str> {
        match self.verdict {
            TemplateVerdict::Recognized | TemplateVerdict::Several => closest(&self.candidates),
            TemplateVerdict::Unknown | TemplateVerdict::NoCalls | TemplateVerdict::Failed => {
                Vec::new()
            }
        }
    }

    fn failed(name: Option<String>, error: &TemplateError) -> Self {
        Self {
            name,
            verdict: TemplateVerdict::Failed,
            dialect: None,
            reason: error.to_string(),
            candidates: Vec::new(),
            shows_tools: false,
            proof: None,
        }
    }
}

/// Recognises the dialect that a template teaches, from its rendered texts.
///
/// One that failed, or that needed too much time or memory, gets a report that says so.
pub fn recognize_template(
    name: Option<&str>,
    rendered: &RenderedTemplate,
    dialects: &DialectSet,
) -> TemplateReport {
    let name = name.map(str::to_owned);
    match examine_rendering(name.clone(), rendered, dialects) {
        Ok(report) => report,
        Err(error) => TemplateReport::failed(name, &error),
    }
}

fn examine_rendering(
    name: Option<String>,
    rendered: &RenderedTemplate,
    dialects: &DialectSet,
) -> Result<TemplateReport, TemplateError> {
    if let Some(problem) = &rendered.problem {
        return Err(problem.clone());
    }
    let tools = declared_tools().map_err(|_| TemplateError::Engine)?;
    let frame = ConversationFrame::of(rendered);
    let mut best: Option<Reading> = None;
    for shape in CallShape::all() {
        let Some(Ok(text)) = rendered.call(shape) else {
            continue;
        };
        for piece in frame.call_texts(text) {
            if !piece.contains(TOOL) {
                continue;
            }
            let reading = Reading::of_text(piece, shape, dialects, &tools);
            if best
                .as_ref()
                .is_none_or(|best| reading.level() > best.level())
            {
                best = Some(reading);
            }
        }
        if best.as_ref().and_then(Reading::level) == Some(MatchLevel::Exact) {
            break;
        }
    }
    let shows_tools = frame.question.contains(TOOL);
    if let Some(mut reading) = best {
        reading.compare_line_feeds(rendered, &frame, dialects, &tools);
        return Ok(reading.into_report(name, shows_tools, dialects, &tools));
    }
    match rendered.refusal() {
        Some(error) => Err(error.clone()),
        None => Ok(report_instructions(name, &frame, shows_tools, dialects)),
    }
}

/// The conversation around a call. What a template refused to write is empty: the call is then searched in the whole text.
struct ConversationFrame<'r> {
    /// The question, with the tools.
    question: &'r str,
    /// The question, without tools.
    plain_question: &'r str,
    /// The question and an answer in words.
    answer: &'r str,
}

impl<'r> ConversationFrame<'r> {
    fn of(rendered: &'r RenderedTemplate) -> Self {
        Self {
            question: &rendered.question,
            plain_question: &rendered.plain_question,
            answer: &rendered.answer,
        }
    }

    /// Returns the part of a rendering that is the call, from the narrowest guess to the widest.
    fn call_texts<'t>(&self, text: &'t str) -> Vec<&'t str> {
        // The instructions contain examples of calls and the name of the tool, so the search begins
        // after them.
        let question_end = text.rfind(QUESTION).map_or(0, |at| at + QUESTION.len());
        let start = match text.starts_with(self.question) {
            true => question_end.max(self.question.len()),
            false => question_end,
        };
        let tail = text.get(start..).unwrap_or_default();
        let answer_tail = self
            .answer
            .rfind(QUESTION)
            .and_then(|at| self.answer.get(at + QUESTION.len()..))
            .unwrap_or_default();
        let mut texts = Vec::new();
        if let Some((head, end)) = answer_tail.split_once(ANSWER) {
            let head = text
                .get(question_end..)
                .and_then(|tail| tail.strip_prefix(head));
            let without_end = |text: &'t str| text.strip_suffix(end).unwrap_or(text);
            texts.extend(head.map(without_end));
            texts.push(without_end(tail));
        }
        // Some templates repeat their instructions at the end.
        let repeated = common_suffix_length(tail, self.question);
        texts.extend(tail.get(..tail.len() - repeated));
        texts.push(tail);
        texts
    }
}

/// Returns the length of the longest common end of two texts, in bytes.
fn common_suffix_length(left: &str, right: &str) -> usize {
    left.chars()
        .rev()
        .zip(right.chars().rev())
        .take_while(|(left, right)| left == right)
        .map(|(sign, _)| sign.len_utf8())
        .sum()
}

/// The calls that the readers of a dialect find in a text.
struct Reading {
    text: String,
    shape: CallShape,
    /// The closest first.
    candidates: Vec<DialectCandidate>,
    /// Of several closest candidates, those that can read a value which begins and ends with a line feed, if others cannot.
    line_feed_readers: Vec<String>,
}

impl Reading {
    fn of_text(text: &str, shape: CallShape, dialects: &DialectSet, tools: &ToolSet) -> Self {
        let mut candidates: Vec<_> = dialects
            .iter()
            .filter_map(|dialect| match_dialect(text, shape, dialect, dialects, tools))
            .collect();
        candidates.sort_by_key(DialectCandidate::distance);
        Self {
            text: text.to_owned(),
            shape,
            candidates,
            line_feed_readers: Vec::new(),
        }
    }

    fn level(&self) -> Option<MatchLevel> {
        self.candidates.first().map(|candidate| candidate.level)
    }

    fn closest(&self) -> Vec<&str> {
        closest(&self.candidates)
    }

    /// Finds out which of several candidates read a value that begins and ends with a line feed: some dialects differ in that only.
    fn compare_line_feeds(
        &mut self,
        rendered: &RenderedTemplate,
        frame: &ConversationFrame<'_>,
        dialects: &DialectSet,
        tools: &ToolSet,
    ) {
        if self.closest().len() < 2 {
            return;
        }
        let shape = self.shape.with_line_feeds();
        let Some(Ok(text)) = rendered.call(shape) else {
            return;
        };
        let pieces = frame.call_texts(text);
        let reads = |name: &str| {
            let selection = dialects.select(name);
            selection.is_some_and(|selection| {
                pieces
                    .iter()
                    .any(|piece| reads_call(&read_calls(piece, selection, tools), shape))
            })
        };
        let right: Vec<String> = self
            .closest()
            .into_iter()
            .filter(|name| reads(name))
            .map(str::to_owned)
            .collect();
        let wrong: Vec<String> = self
            .closest()
            .into_iter()
            .filter(|name| !right.iter().any(|right| right == name))
            .map(str::to_owned)
            .collect();
        // A template may also trim its values, and then no dialect reads them unchanged.
        if !right.is_empty() && !wrong.is_empty() {
            self.line_feed_readers = right;
        }
    }

    fn describe_line_feeds(&self) -> String {
        match self.line_feed_readers.as_slice() {
            [] => String::new(),
            names => format!(
                "; a value that begins and ends with a line feed is read as the template writes it by {} only",
                names.join(", ")
            ),
        }
    }

    fn into_report(
        self,
        name: Option<String>,
        shows_tools: bool,
        dialects: &DialectSet,
        tools: &ToolSet,
    ) -> TemplateReport {
        let understood = read_calls(&self.text, dialects.all(), tools);
        let best = self.level();
        let closest = self.closest();
        let (verdict, reason) = match closest.as_slice() {
            [] => (
                TemplateVerdict::Unknown,
                "no dialect reads what the template writes for the call".to_owned(),
            ),
            [only] => (
                TemplateVerdict::Recognized,
                format!("{}: {}", only, describe_level(best)),
            ),
            several => (
                TemplateVerdict::Several,
                format!(
                    "{} fit equally well: {}{}",
                    several.join(", "),
                    describe_level(best),
                    self.describe_line_feeds()
                ),
            ),
        };
        let dialect = match closest.as_slice() {
            [only] => Some((*only).to_owned()),
            _ => None,
        };
        TemplateReport {
            name,
            verdict,
            dialect,
            reason,
            candidates: self.candidates,
            shows_tools,
            proof: Some(TemplateEvidence {
                text: self.text,
                arguments: self.shape.arguments,
                understood,
            }),
        }
    }
}

/// Returns the names of the candidates that fit best, of a list whose first is among them.
fn closest(candidates: &[DialectCandidate]) -> Vec<&str> {
    let best = candidates.first().map(DialectCandidate::distance);
    candidates
        .iter()
        .filter(|candidate| Some(candidate.distance()) == best)
        .map(|candidate| candidate.dialect.as_str())
        .collect()
}

fn describe_level(level: Option<MatchLevel>) -> &'static str {
    match level {
        Some(MatchLevel::Exact) => "the template writes the call exactly as Sabir does",
        Some(MatchLevel::Layout) => {
            "the template writes the call as Sabir does, but for blanks and line feeds"
        }
        Some(MatchLevel::Markers) => "the call is read, and has the dialect's markers",
        Some(MatchLevel::Bare) => {
            "the template writes the call as Sabir does, but without the dialect's markers"
        }
        Some(MatchLevel::Reads) => "the call is read, without a marker that is the dialect's own",
        Some(MatchLevel::Instructions) => "the instructions contain its markup",
        None => "nothing fits",
    }
}

/// Decides how closely a text follows a dialect; `None` if the dialect's reader does not find exactly the call.
fn match_dialect(
    text: &str,
    shape: CallShape,
    dialect: &Dialect,
    dialects: &DialectSet,
    tools: &ToolSet,
) -> Option<DialectCandidate> {
    if !reads_call(&read_calls(text, dialects.only(dialect), tools), shape) {
        return None;
    }
    let call = Call {
        id: CallId::new("forecast1"),
        name: TOOL.to_owned(),
        arguments: call_arguments(shape),
        dialect: None,
    };
    let own = dialect.render_calls([&call], tools);
    let own = own.trim();
    let markers = tags_in(own);
    let missing_markers = markers.iter().filter(|tag| !text.contains(**tag)).count();
    // Brackets and the like are in any text.
    let long_markers: Vec<_> = dialect
        .marker_texts()
        .into_iter()
        .filter(|marker| marker.len() >= MIN_MARKER_BYTES)
        .collect();
    let has_marker =
        missing_markers < markers.len() || long_markers.iter().any(|marker| text.contains(marker));
    let bare = without_blanks(own);
    let level = if text.contains(own) {
        MatchLevel::Exact
    } else if without_blanks(text).contains(&bare) {
        MatchLevel::Layout
    } else if has_marker {
        MatchLevel::Markers
    } else if contains_bare_call(text, own, dialect) {
        MatchLevel::Bare
    } else {
        MatchLevel::Reads
    };
    // A dialect without markers is a better guess for a text without any.
    let missing_markers = match level {
        MatchLevel::Reads if !long_markers.is_empty() => missing_markers.max(1),
        _ => missing_markers,
    };
    Some(DialectCandidate {
        dialect: dialect.name.to_owned(),
        level,
        missing_markers,
        matched_bytes: if level >= MatchLevel::Layout {
            bare.len()
        } else {
            0
        },
    })
}

/// Reports whether a text contains what Sabir writes for the call, but for its markers.
fn contains_bare_call(text: &str, own: &str, dialect: &Dialect) -> bool {
    let mut bare = own.to_owned();
    for marker in dialect.marker_texts() {
        if marker.len() >= MIN_MARKER_BYTES {
            bare = bare.replace(marker, "");
        }
    }
    without_blanks(text).contains(&without_blanks(&bare))
}

/// Reports whether the calls are the one that the template was given.
fn reads_call(calls: &[RecognizedCall], shape: CallShape) -> bool {
    let [call] = calls else {
        return false;
    };
    call.name == TOOL
        && call.arguments == call_arguments(shape)
        && call.state == CallState::Complete
}

/// Returns the texts between angle brackets, with them.
fn tags_in(text: &str) -> Vec<&str> {
    let mut tags = Vec::new();
    for (start, _) in text.match_indices('<') {
        let rest = text.get(start..).unwrap_or_default();
        let tag = rest.find('>').and_then(|end| rest.get(..=end));
        tags.extend(tag.filter(|tag| !tags.contains(tag)));
    }
    tags
}

/// Returns the texts that begin the markup of a dialect.
fn markers(dialect: &Dialect) -> impl Iterator<Item = String> {
    let tags = dialect.tag_names().into_iter().map(|tag| format!("<{tag}"));
    let others = dialect.marker_texts().into_iter().map(str::to_owned);
    tags.chain(others)
}

fn without_blanks(text: &str) -> String {
    text.split_whitespace().collect()
}

fn read_calls(text: &str, selection: DialectSelection<'_>, tools: &ToolSet) -> Vec<RecognizedCall> {
    let mut draft = DraftResponse::default();
    let mut reader = CallReader::new(selection, tools);
    reader.push(text, &mut draft);
    reader.finish(Truncation::Ended, &mut draft);
    let checked = CallChecker::new(tools.clone()).check_all(&draft);
    let understood = |call: CheckedCall| RecognizedCall {
        dialect: draft
            .call_by_index(call.index)
            .and_then(|call| call.dialect.clone()),
        name: call.name,
        arguments: call.arguments,
        state: call.state,
    };
    checked.into_iter().map(understood).collect()
}

/// Reports about a template that leaves out calls: its instructions may still name the markup.
fn report_instructions(
    name: Option<String>,
    frame: &ConversationFrame<'_>,
    shows_tools: bool,
    dialects: &DialectSet,
) -> TemplateReport {
    // Markup that is there without tools too belongs to the chat and not to calls.
    let is_taught =
        |marker: &String| frame.question.contains(marker) && !frame.plain_question.contains(marker);
    let candidates: Vec<_> = match shows_tools {
        true => dialects
            .iter()
            .filter(|dialect| markers(dialect).any(|marker| is_taught(&marker)))
            .map(|dialect| DialectCandidate {
                dialect: dialect.name.to_owned(),
                level: MatchLevel::Instructions,
                missing_markers: 0,
                matched_bytes: 0,
            })
            .collect(),
        false => Vec::new(),
    };
    let reason = match (shows_tools, candidates.is_empty()) {
        (false, _) => "the template writes neither tools nor calls".to_owned(),
        (true, true) => {
            "the template shows the tools, but writes no calls, and its instructions have no markup that is known"
                .to_owned()
        }
        (true, false) => "the template shows the tools, but writes no calls; the candidates have markup in common with its instructions".to_owned(),
    };
    TemplateReport {
        name,
        verdict: TemplateVerdict::NoCalls,
        dialect: None,
        reason,
        candidates,
        shows_tools,
        proof: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rendering::render_conversations;

    /// A chat in the style of ChatML that shows the tools and writes calls with this piece of a template.
    fn report(call: &str) -> TemplateReport {
        let template = format!(
            "{{%- if tools %}}<|im_start|>system\nTools: {{{{ tools | tojson }}}}<|im_end|>\n{{% endif %}}\
             {{%- for message in messages %}}<|im_start|>{{{{ message.role }}}}\n\
             {{%- for call in message.tool_calls or [] %}}{{%- set call = call.function %}}\n{call}{{%- endfor %}}\
             {{{{ message.content or '' }}}}<|im_end|>\n{{% endfor %}}"
        );
        recognize_template(
            None,
            &render_conversations(&template),
            DialectSet::built_in(),
        )
    }

    const HERMES: &str = "<tool_call>\n{\"name\": \"{{ call.name }}\", \"arguments\": {{ call.arguments | tojson }}}\n</tool_call>";
    const QWEN_CODER: &str = "<tool_call>\n<function={{ call.name }}>\n{% for key, value in call.arguments.items() %}<parameter={{ key }}>\n{{ value }}\n</parameter>\n{% endfor %}</function>\n</tool_call>";
    const GLM: &str = "<tool_call>{{ call.name }}\n{% for key, value in call.arguments | items %}<arg_key>{{ key }}</arg_key>\n<arg_value>{{ value }}</arg_value>\n{% endfor %}</tool_call>";

    #[test]
    fn a_dialect_is_recognized_by_a_rendered_call() {
        for (call, dialect) in [(HERMES, "hermes"), (QWEN_CODER, "qwen_coder")] {
            let report = report(call);
            assert_eq!(report.verdict, TemplateVerdict::Recognized, "{report:?}");
            assert_eq!(report.dialect.as_deref(), Some(dialect));
            assert!(report.shows_tools);
            let proof = report.proof.unwrap();
            assert!(!proof.text.contains("im_end"), "{proof:?}");
            let [call] = proof.understood.as_slice() else {
                panic!("{proof:?}");
            };
            assert_eq!(call.arguments["city"], "Oslo-7");
            assert_eq!(call.arguments["days"], 3);
        }
    }

    #[test]
    fn arguments_may_be_a_text_that_the_template_copies() {
        let copied = HERMES.replace(" | tojson", "");
        let guarded = format!(
            "{{% if call.arguments is not string %}}{{{{ raise_exception('text') }}}}{{% endif %}}{copied}"
        );
        let report = report(&guarded);
        assert_eq!(report.dialect.as_deref(), Some("hermes"), "{report:?}");
        assert_eq!(report.proof.unwrap().arguments, ArgumentForm::Text);
    }

    #[test]
    fn instructions_behind_a_call_are_not_part_of_it() {
        let template = "{% for message in messages %}<{{ message.role }}>{{ message.content }}\
            {% for call in message.tool_calls or [] %}Action:\n```json\n\
            [{\"tool_name\": \"{{ call.function.name }}\", \"parameters\": {{ call.function.arguments | tojson }}}]\n```{% endfor %}\
            {% endfor %}<system>{{ tools | tojson }} Write a list: ```json\n[{\"tool_name\": a title, \"parameters\": {}}]\n```";
        let report = recognize_template(
            None,
            &render_conversations(template),
            DialectSet::built_in(),
        );
        assert_eq!(report.dialect.as_deref(), Some("json"), "{report:?}");
        assert!(!report.proof.unwrap().text.contains("Write a list"));
    }

    #[test]
    fn dialects_that_differ_in_line_feeds_only_are_both_named() {
        let report = report(GLM);
        assert_eq!(report.verdict, TemplateVerdict::Several, "{report:?}");
        assert_eq!(report.dialect, None);
        assert_eq!(report.closest_dialects(), ["glm", "spark25"]);
        assert!(report.reason.contains("glm, spark25 fit equally well"));
        assert!(
            report.reason.ends_with("by spark25 only"),
            "{}",
            report.reason
        );
    }

    #[test]
    fn calls_that_nobody_reads_are_shown() {
        let report = report("CALL {{ call.name }} WITH {{ call.arguments.city }}");
        assert_eq!(report.verdict, TemplateVerdict::Unknown);
        assert!(report.proof.unwrap().text.contains("WITH Oslo-7"));
    }

    #[test]
    fn a_template_without_calls_and_one_that_fails_say_so() {
        let examine = |template: &str| {
            recognize_template(
                None,
                &render_conversations(template),
                DialectSet::built_in(),
            )
        };
        let plain = examine("{% for message in messages %}{{ message.content }}{% endfor %}");
        assert_eq!(plain.verdict, TemplateVerdict::NoCalls);
        assert_eq!(plain.reason, "the template writes neither tools nor calls");
        let taught = examine("{% if tools %}{{ tools | tojson }} Write <tool_call>.{% endif %}");
        assert_eq!(taught.verdict, TemplateVerdict::NoCalls);
        assert!(
            taught
                .candidates
                .iter()
                .any(|candidate| candidate.dialect == "hermes"),
            "{taught:?}"
        );
        let broken = examine("{% for %}");
        assert_eq!(broken.verdict, TemplateVerdict::Failed);
        assert!(
            broken.reason.contains("not a valid Jinja"),
            "{}",
            broken.reason
        );
        let refusing = examine("{{ raise_exception('no tools here') }}");
        assert_eq!(
            refusing.reason,
            "it cannot be rendered: no tools here (line 1)"
        );
    }
}
