//! Builds records from messages: counts turns, makes call ids unique, and gives every call exactly
//! one result.

use std::collections::{BTreeMap, HashSet};

use sabir_agent::{AssistantTurn, CallCheck, DeliveryTime, MessageAuthor, Record, TaskOutcome};
use sabir_call::dialect::DialectSet;
use sabir_call::{
    Call, CallId, CallReader, CallResult, Cost, DraftPart, DraftResponse, Event, EventSink, Fault,
    Image, MessagePart, OpaqueState, ToolResultStatus, Truncation, Usage,
};
use sabir_check::{CallChecker, CallState};
use sabir_journal::JournalEntry;
use serde_json::Value;

use super::blocks::ContentBlock;
use super::tools;

/// The result of a call whose result the history lacks.
const MISSING_RESULT: &str = "The history contains no result of this call.";
/// The maximum number of different notes; a damaged file could otherwise make one for every line.
const MAX_NOTES: usize = 50;

/// Notes about what was left out or changed, each with its count.
#[derive(Debug, Default)]
pub(super) struct ImportNotes(BTreeMap<String, u64>);

impl ImportNotes {
    /// Adds to the count of a note. Beyond [`MAX_NOTES`] different notes, all others share one.
    pub(super) fn add_count(&mut self, thing: &str, count: u64) {
        // A note that is known already can always be counted.
        let full = self.0.len() >= MAX_NOTES && !self.0.contains_key(thing);
        let thing = if full {
            "other things that are not known"
        } else {
            thing
        };
        *self.0.entry(thing.to_owned()).or_default() += count;
    }

    /// Renders each note as a sentence.
    pub(super) fn to_sentences(&self) -> Vec<String> {
        self.0
            .iter()
            .map(|(thing, count)| format!("{thing}: {count}"))
            .collect()
    }
}

/// Shortens a name from a history for a note.
pub(super) fn short_name(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(60).collect()
}

/// A call without a result.
struct OpenCall {
    /// The id in the history.
    history_id: String,
    /// The id in the records.
    id: CallId,
    /// The name of the tool.
    name: String,
}

/// Builds the records of a history.
pub(super) struct RecordBuilder<'d> {
    /// The dialects in which calls in text are read.
    dialects: &'d DialectSet,
    /// The notes about what was left out.
    pub(super) notes: ImportNotes,
    /// True if calls are written in text.
    in_text: bool,
    entries: Vec<JournalEntry>,
    turn: u32,
    used_ids: HashSet<String>,
    /// The calls without a result so far.
    open_calls: Vec<OpenCall>,
    /// The result of the last completion call, as long as nothing follows it.
    completed: Option<String>,
    at: u64,
    checker: CallChecker,
}

impl<'d> RecordBuilder<'d> {
    /// Creates a builder. `in_text`: whether the history has its calls in text. `at`: the start
    /// time in milliseconds since 1970.
    pub(super) fn new(
        dialects: &'d DialectSet,
        in_text: bool,
        at: u64,
        notes: ImportNotes,
    ) -> Self {
        Self {
            dialects,
            notes,
            in_text,
            entries: Vec::new(),
            turn: 0,
            used_ids: HashSet::new(),
            open_calls: Vec::new(),
            completed: None,
            at,
            checker: CallChecker::new(tools::known_tools()),
        }
    }

    /// Sets the time of the next records; a missing time leaves the previous one.
    pub(super) fn set_time(&mut self, at: Option<u64>) {
        self.at = at.filter(|at| *at > 0).unwrap_or(self.at);
    }

    /// Adds an answer of the model.
    pub(super) fn add_answer(&mut self, blocks: Vec<ContentBlock>, usage: Usage) {
        // An answer after a call without a result means that the result was lost.
        self.close_open_calls();
        self.turn = self.turn.saturating_add(1);
        let mut parts = Vec::new();
        let mut checks = Vec::new();
        let mut faults = Vec::new();
        for block in blocks {
            match block {
                ContentBlock::Text(text) if self.in_text => {
                    self.parse_calls(&text, &mut parts, &mut checks, &mut faults)
                }
                ContentBlock::Text(text) => parts.push(MessagePart::Text { text }),
                ContentBlock::Thought { text, opaque } => {
                    parts.push(MessagePart::Thought { text, opaque })
                }
                ContentBlock::Image(image) => parts.push(MessagePart::Image(image)),
                ContentBlock::Call {
                    id,
                    name,
                    arguments,
                } => {
                    let call = self.add_call(&id, name, None);
                    checks.push(passed_check(call.clone()));
                    let name = self
                        .open_calls
                        .last()
                        .map(|open| open.name.clone())
                        .unwrap_or_default();
                    self.note_completion(&name, &arguments);
                    parts.push(MessagePart::Call(Call {
                        id: call,
                        name,
                        arguments,
                        dialect: None,
                    }));
                }
                ContentBlock::Result { .. } => self
                    .notes
                    .add_count("results in answers, which are left out", 1),
                ContentBlock::Other(data) => parts.push(MessagePart::Opaque(OpaqueState {
                    wire: "anthropic".to_owned(),
                    origin: None,
                    data,
                })),
            }
        }
        if parts.is_empty() {
            self.notes.add_count("answers without content", 1);
        }
        let answered = AssistantTurn {
            turn: self.turn,
            parts,
            checks,
            faults,
            usage,
            estimate: Usage::default(),
            cost: Cost::UNKNOWN,
            stop: None,
            feedback: None,
        };
        self.push_record(Record::Answered(answered));
    }

    /// Adds a message of the user, with the results in it.
    pub(super) fn add_user(&mut self, blocks: Vec<ContentBlock>, by: MessageAuthor) {
        let mut said = Vec::new();
        let mut blocks = blocks.into_iter().peekable();
        while let Some(block) = blocks.next() {
            match block {
                ContentBlock::Result {
                    id,
                    content,
                    failed,
                    images,
                } => match self.take_open_call(|open| open.history_id == id) {
                    Some(call) => self.add_result(call, content, failed, images),
                    None => self
                        .notes
                        .add_count("results of calls that are not there, which are left out", 1),
                },
                ContentBlock::Text(text) => match self.parse_result_header(&text) {
                    Some((call, mut content)) => {
                        // A long result is spread over several blocks, and only the first has a
                        // header.
                        while let Some(ContentBlock::Text(more)) =
                            blocks.next_if(|block| self.continues_result(block))
                        {
                            content.extend([if content.is_empty() { "" } else { "\n" }, &more]);
                        }
                        self.add_result(call, content, false, Vec::new());
                    }
                    None => said.push(text),
                },
                ContentBlock::Image(_) => self
                    .notes
                    .add_count("pictures in the user's messages, which are left out", 1),
                ContentBlock::Thought { .. } | ContentBlock::Call { .. } => {
                    self.notes.add_count(
                        "calls and thoughts in the user's messages, which are left out",
                        1,
                    );
                }
                ContentBlock::Other(value) => said.push(value.to_string()),
            }
        }
        self.close_open_calls();
        for text in said.into_iter().filter(|text| !text.trim().is_empty()) {
            // The program appends these in the user's name.
            let by = if text.trim_start().starts_with("<environment_details>") {
                MessageAuthor::Sabir
            } else {
                by
            };
            self.push_record(Record::Said {
                by,
                text,
                images: Vec::new(),
                when: DeliveryTime::Next,
            });
        }
    }

    /// Returns the records and the notes.
    pub(super) fn finish(mut self) -> (Vec<JournalEntry>, ImportNotes) {
        // Taken before the open calls are closed, which resets it.
        let completed = self.completed.take();
        if completed.is_some() && self.open_calls.len() == 1 {
            // An accepted completion has no result of its own in the history.
            if let Some(call) = self.take_open_call(|_| true) {
                self.add_result(call, "The history ends here.".to_owned(), false, Vec::new());
            }
        }
        self.close_open_calls();
        if let Some(message) = completed {
            self.push_record(Record::Ended {
                outcome: TaskOutcome::Completed,
                message,
                used: None,
            });
        }
        (self.entries, self.notes)
    }

    fn push_record(&mut self, record: Record) {
        self.entries.push(JournalEntry {
            at: self.at,
            record,
        });
    }

    /// Gives every open call an interrupted result.
    fn close_open_calls(&mut self) {
        self.completed = None;
        for OpenCall { id, name, .. } in std::mem::take(&mut self.open_calls) {
            self.notes
                .add_count("calls without a result, which have an interrupted one", 1);
            let ending = ToolResultStatus::Interrupted;
            let content = MISSING_RESULT.to_owned();
            self.push_record(Record::Result(CallResult {
                id,
                name,
                ending,
                content,
                images: Vec::new(),
            }));
        }
    }

    /// Removes and returns the first open call that `wanted` accepts.
    fn take_open_call(&mut self, wanted: impl Fn(&OpenCall) -> bool) -> Option<OpenCall> {
        let at = self.open_calls.iter().position(wanted)?;
        Some(self.open_calls.remove(at))
    }

    /// Adds the result of a call. The history marks denied and failed calls only by their texts.
    fn add_result(&mut self, call: OpenCall, content: String, failed: bool, images: Vec<Image>) {
        const DENIED: [&str; 2] = [
            "The user denied this operation",
            "The user doesn't want to proceed",
        ];
        const FAILED: [&str; 2] = ["The tool execution failed", "Error executing"];
        let begins = |starts: &[&str]| {
            starts
                .iter()
                .any(|start| content.trim_start().starts_with(start))
        };
        // Denial first: a denied call may be marked as failed as well.
        let ending = match () {
            () if begins(&DENIED) => ToolResultStatus::Denied,
            () if failed || begins(&FAILED) => ToolResultStatus::Failed,
            () => ToolResultStatus::Done,
        };
        self.push_record(Record::Result(CallResult {
            id: call.id,
            name: call.name,
            ending,
            content,
            images,
        }));
    }

    /// Registers a call under an id that no other call has.
    fn add_call(&mut self, id: &str, name: String, index: Option<u32>) -> CallId {
        let mut own = if id.is_empty() {
            format!("call_{}_{}", self.turn, index.unwrap_or(0))
        } else {
            id.to_owned()
        };
        // A journal needs unique ids, which another program does not promise.
        while !self.used_ids.insert(own.clone()) {
            own.push('x');
        }
        let call = CallId::new(own);
        self.open_calls.push(OpenCall {
            history_id: id.to_owned(),
            id: call.clone(),
            name,
        });
        call
    }

    /// Remembers the result of a completion call.
    fn note_completion(&mut self, name: &str, arguments: &serde_json::Map<String, Value>) {
        if name == "attempt_completion" {
            self.completed = Some(
                arguments
                    .get("result")
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned(),
            );
        }
    }

    /// Parses calls in text with the same reader and checks as live answers.
    fn parse_calls(
        &mut self,
        text: &str,
        parts: &mut Vec<MessagePart>,
        checks: &mut Vec<CallCheck>,
        faults: &mut Vec<Fault>,
    ) {
        let mut draft = DraftResponse::default();
        let mut reader = CallReader::new(self.dialects.all(), self.checker.tools());
        let mut sink = |event: Event<'_>| draft.push_event(event);
        reader.push(text, &mut sink);
        reader.finish(Truncation::Ended, &mut sink);
        draft.drop_blank_text();
        // The checks look for names in it.
        draft.source = text.to_owned();
        let mut checked = self.checker.check_all(&draft);
        faults.extend(
            draft
                .faults
                .iter()
                .filter(|fault| fault.call.is_none())
                .cloned(),
        );
        for part in draft.parts {
            match part {
                DraftPart::Text(text) => parts.push(MessagePart::Text { text }),
                DraftPart::Thought(text) => parts.push(MessagePart::Thought { text, opaque: None }),
                DraftPart::Opaque(opaque) => parts.push(MessagePart::Opaque(opaque)),
                DraftPart::Call(call) => {
                    let Some(at) = checked
                        .iter()
                        .position(|checked| checked.index == call.index)
                    else {
                        continue;
                    };
                    // The order does not matter here: each call is looked up by its index.
                    let checked = checked.swap_remove(at);
                    let id = self.add_call("", checked.name.clone(), Some(call.index));
                    // The other program may have run a call that these checks refuse; its result is
                    // kept anyway.
                    let passed = checked.state == CallState::Complete;
                    self.note_completion(&checked.name, &checked.arguments);
                    let repairs = checked.repairs;
                    let faults = checked.faults;
                    checks.push(CallCheck {
                        call: id.clone(),
                        passed,
                        repairs,
                        faults,
                        feedback: None,
                        recovered_from_text: false,
                        echo_of: None,
                        wrapped: Vec::new(),
                    });
                    let name = checked.name;
                    let arguments = checked.arguments;
                    parts.push(MessagePart::Call(Call {
                        id,
                        name,
                        arguments,
                        dialect: call.dialect,
                    }));
                }
            }
        }
    }

    /// Parses the header of a result, such as `[read_file for 'a.txt'] Result:`. Returns the open
    /// call that it answers, and the content.
    fn parse_result_header(&mut self, text: &str) -> Option<(OpenCall, String)> {
        let (name, content) = split_result(text).filter(|_| self.in_text)?;
        let call = self.take_open_call(|open| open.name == name)?;
        Some((call, content.trim_start_matches('\n').to_owned()))
    }

    /// Returns true if a block continues the result before it.
    fn continues_result(&self, block: &ContentBlock) -> bool {
        let ContentBlock::Text(text) = block else {
            return false;
        };
        let begun = text.trim_start();
        // Texts with these tags come from the user or the program, not from a tool.
        const OTHERS: [&str; 4] = [
            "<environment_details>",
            "<user_message>",
            "<feedback>",
            "<task>",
        ];
        split_result(text).is_none() && !OTHERS.iter().any(|start| begun.starts_with(start))
    }
}

/// Splits the text of a result into the tool's name and the content.
fn split_result(text: &str) -> Option<(&str, &str)> {
    let (line, _) = text
        .strip_prefix('[')?
        .split_once('\n')
        .unwrap_or((text.strip_prefix('[')?, ""));
    // The header must be whole on the first line, or a quoted one would count.
    let (head, _) = line.split_once("] Result:")?;
    let name = head.split(' ').next()?;
    let at = text.find("] Result:")? + "] Result:".len();
    Some((name, text.get(at..).unwrap_or_default()))
}

fn passed_check(call: CallId) -> CallCheck {
    CallCheck {
        call,
        passed: true,
        repairs: Vec::new(),
        faults: Vec::new(),
        feedback: None,
        recovered_from_text: false,
        echo_of: None,
        wrapped: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use sabir_agent::{
        CompletionConditions, Interactivity, Task, TaskId, TaskLimits, TaskOrigin, TaskSettings,
        TaskStart,
    };
    use sabir_call::{Role, TokenPrices, ToolProtocol, ToolSet};
    use sabir_check::RepairSet;
    use sabir_policy::PolicyRules;
    use serde_json::json;

    use super::*;

    /// Numbers that look like chance, the same each time.
    struct PseudoRandom(u64);

    impl PseudoRandom {
        fn below(&mut self, limit: usize) -> usize {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(self.0 >> 33).unwrap() % limit
        }

        fn block(&mut self) -> ContentBlock {
            let id = ["", "a", "b", "c"][self.below(4)].to_owned();
            match self.below(7) {
                0 => ContentBlock::Call {
                    id,
                    name: "attempt_completion".to_owned(),
                    arguments: serde_json::Map::new(),
                },
                1 | 2 => ContentBlock::Call {
                    id,
                    name: "Bash".to_owned(),
                    arguments: serde_json::Map::new(),
                },
                3 | 4 => ContentBlock::Result {
                    id,
                    content: "x".to_owned(),
                    failed: self.below(2) == 0,
                    images: Vec::new(),
                },
                5 => ContentBlock::Other(json!({"type": "odd"})),
                _ => ContentBlock::Text(
                    [
                        "words",
                        "<read_file>\n<path>a</path>\n</read_file>",
                        "<read_file>\n<path>a",
                        "[read_file for 'a'] Result:",
                        "<attempt_completion><result>r</result></attempt_completion>",
                        "<environment_details>",
                    ][self.below(6)]
                    .to_owned(),
                ),
            }
        }
    }

    fn settings() -> TaskSettings {
        TaskSettings {
            system: String::new(),
            model: "m".to_owned(),
            tools: ToolSet::default(),
            read_only_tools: Vec::new(),
            polling_tools: Vec::new(),
            rules: PolicyRules::default(),
            interactivity: Interactivity::Headless,
            limits: TaskLimits::default(),
            completion: CompletionConditions::default(),
            dialects: sabir_call::dialect::DialectSet::default(),
            repairs: RepairSet::all(),
            recovery: sabir_call::TextRecovery::Ask,
            parallel_calls: sabir_call::ParallelCalls::Many,
            renders_template: false,
            max_output: None,
            prices: TokenPrices::default(),
        }
    }

    #[test]
    fn any_imported_history_can_be_replayed() {
        let mut chance = PseudoRandom(1);
        for round in 0..1000 {
            let mut scribe = RecordBuilder::new(
                DialectSet::built_in(),
                round % 2 == 0,
                1,
                ImportNotes::default(),
            );
            for _ in 0..chance.below(8) {
                let blocks = (0..chance.below(5)).map(|_| chance.block()).collect();
                match chance.below(2) {
                    0 => scribe.add_answer(blocks, Usage::default()),
                    _ => scribe.add_user(blocks, MessageAuthor::User),
                }
            }
            let (mut entries, _) = scribe.finish();
            // Every call has exactly one result, in the records and in the history that a fork
            // continues.
            let mut results: BTreeMap<&CallId, usize> = BTreeMap::new();
            for entry in &entries {
                match &entry.record {
                    Record::Answered(answered) => {
                        for check in &answered.checks {
                            assert!(
                                results.insert(&check.call, 0).is_none(),
                                "round {round}: an id twice"
                            );
                        }
                    }
                    Record::Result(result) => *results.get_mut(&result.id).unwrap() += 1,
                    _ => {}
                }
            }
            assert!(
                results.values().all(|count| *count == 1),
                "round {round}: {entries:?}"
            );
            entries.retain(|entry| !matches!(entry.record, Record::Ended { .. }));
            let [prompt, workspace, model, version] = ["p", "/w", "m", "1"].map(str::to_owned);
            let from = TaskOrigin::Import {
                program: "cline".to_owned(),
                source: String::new(),
                notes: Vec::new(),
            };
            let task = TaskId::new("t");
            let protocol = ToolProtocol::Native;
            let from = Some(from);
            let start = TaskStart {
                task,
                prompt,
                workspace,
                model,
                protocol,
                version,
                edit_tool: None,
                mode: None,
                from,
            };
            let records = std::iter::once(Record::Started(start))
                .chain(entries.into_iter().map(|entry| entry.record));
            let task = Task::replay(records, settings()).unwrap();
            let mut asked = 0;
            let mut answered = 0;
            for message in task.history() {
                asked += message.calls().count();
                answered += message
                    .parts
                    .iter()
                    .filter(|part| matches!(part, MessagePart::Result(_)))
                    .count();
            }
            assert_eq!(asked, answered, "round {round}");
            assert!(
                task.history()
                    .windows(2)
                    .all(|pair| pair[0].role != Role::User || pair[1].role != Role::User)
            );
        }
    }

    #[test]
    fn result_headings_are_recognized() {
        for (text, expected) in [
            (
                "[read_file for 'a.txt'] Result:\nx\ny",
                Some(("read_file", "\nx\ny")),
            ),
            (
                "[execute_command for 'ls'] Result:",
                Some(("execute_command", "")),
            ),
            (
                "[attempt_completion] Result: ok",
                Some(("attempt_completion", " ok")),
            ),
            ("read_file] Result:", None),
            ("[x\n] Result:", None),
            ("", None),
        ] {
            assert_eq!(split_result(text), expected, "{text}");
        }
    }
}
