//! From messages to records: turns are counted, calls get ids of their own, and every call gets its one result.

use std::collections::{BTreeMap, HashSet};

use sabir_agent::{Answered, Check, Outcome, Record, Speaker, When};
use sabir_call::dialect::Selection;
use sabir_call::{
    Call, CallId, CallResult, Cost, Cut, Draft, DraftPart, Ending, Event, Fault, Image, Opaque, Part, Reader, Sink,
    Usage,
};
use sabir_check::{CallState, Checker};
use sabir_journal::Entry;
use serde_json::Value;

use super::blocks::Block;
use super::tools;

/// What stands in place of a result that the history lacks.
const LOST: &str = "The history holds no result of this call.";
/// The names of notes that are told one by one.
const MAX_NOTES: usize = 50;

/// What is not taken over, or not as it was: each thing with how often.
#[derive(Debug, Default)]
pub(super) struct Notes(BTreeMap<String, u64>);

impl Notes {
    pub(super) fn add(&mut self, thing: &str, count: u64) {
        let full = self.0.len() >= MAX_NOTES && !self.0.contains_key(thing);
        let thing = if full { "other things that are not known" } else { thing };
        *self.0.entry(thing.to_owned()).or_default() += count;
    }

    /// A sentence for each.
    pub(super) fn words(&self) -> Vec<String> {
        self.0.iter().map(|(thing, count)| format!("{thing}: {count}")).collect()
    }
}

/// A name from a history, short enough for a note.
pub(super) fn short(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(60).collect()
}

/// Writes the records.
pub(super) struct Scribe {
    pub(super) notes: Notes,
    /// Calls are looked for in text.
    in_text: bool,
    entries: Vec<Entry>,
    turn: u32,
    used: HashSet<String>,
    /// Calls without a result yet: the history's id, ours, and the tool's name.
    open: Vec<(String, CallId, String)>,
    /// The result of the last completion, while nothing has followed it.
    completed: Option<String>,
    at: u64,
    checker: Checker,
}

impl Scribe {
    /// `in_text`: whether the history has its calls in text. `at`: when it began.
    pub(super) fn new(in_text: bool, at: u64, notes: Notes) -> Self {
        Self {
            notes,
            in_text,
            entries: Vec::new(),
            turn: 0,
            used: HashSet::new(),
            open: Vec::new(),
            completed: None,
            at,
            checker: Checker::new(tools::known()),
        }
    }

    /// Takes a time over; one that is missing is that of what came before.
    pub(super) fn clock(&mut self, at: Option<u64>) {
        self.at = at.filter(|at| *at > 0).unwrap_or(self.at);
    }

    /// An answer.
    pub(super) fn assistant(&mut self, blocks: Vec<Block>, usage: Usage) {
        self.settle();
        self.turn = self.turn.saturating_add(1);
        let (mut parts, mut checks, mut faults) = (Vec::new(), Vec::new(), Vec::new());
        for block in blocks {
            match block {
                Block::Text(text) if self.in_text => self.read(&text, &mut parts, &mut checks, &mut faults),
                Block::Text(text) => parts.push(Part::Text { text }),
                Block::Thought { text, opaque } => parts.push(Part::Thought { text, opaque }),
                Block::Image(image) => parts.push(Part::Image(image)),
                Block::Call { id, name, arguments } => {
                    let call = self.call(&id, name, None);
                    checks.push(passed(call.clone()));
                    let name = self.open.last().map(|(_, _, name)| name.clone()).unwrap_or_default();
                    self.note_completion(&name, &arguments);
                    parts.push(Part::Call(Call { id: call, name, arguments, dialect: None }));
                }
                Block::Result { .. } => self.notes.add("results in answers, which are left out", 1),
                Block::Other(data) => parts.push(Part::Opaque(Opaque { wire: "anthropic".to_owned(), data })),
            }
        }
        if parts.is_empty() {
            self.notes.add("answers without content", 1);
        }
        let answered = Answered {
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
        self.push(Record::Answered(answered));
    }

    /// What the user said and the program added, and the results.
    pub(super) fn user(&mut self, blocks: Vec<Block>, by: Speaker) {
        let mut said = Vec::new();
        let mut blocks = blocks.into_iter().peekable();
        while let Some(block) = blocks.next() {
            match block {
                Block::Result { id, content, failed, images } => match self.close(|open| open.0 == id) {
                    Some(call) => self.result(call, content, failed, images),
                    None => self.notes.add("results of calls that are not there, which are left out", 1),
                },
                Block::Text(text) => match self.header(&text) {
                    Some((call, name, mut content)) => {
                        while let Some(Block::Text(more)) = blocks.next_if(|block| self.continues(block)) {
                            content.extend([if content.is_empty() { "" } else { "\n" }, &more]);
                        }
                        self.result((call, name), content, false, Vec::new());
                    }
                    None => said.push(text),
                },
                Block::Image(_) => self.notes.add("pictures in the user's messages, which are left out", 1),
                Block::Thought { .. } | Block::Call { .. } => {
                    self.notes.add("calls and thoughts in the user's messages, which are left out", 1);
                }
                Block::Other(value) => said.push(value.to_string()),
            }
        }
        self.settle();
        for text in said.into_iter().filter(|text| !text.trim().is_empty()) {
            let by = if text.trim_start().starts_with("<environment_details>") { Speaker::Sabir } else { by };
            self.push(Record::Said { by, text, images: Vec::new(), when: When::Next });
        }
    }

    /// The records, and what is to be said of the history.
    pub(super) fn finish(mut self) -> (Vec<Entry>, Notes) {
        let completed = self.completed.take();
        if completed.is_some() && self.open.len() == 1 {
            // A completion that was accepted has no further message.
            if let Some(call) = self.close(|_| true) {
                self.result(call, "The history ends here.".to_owned(), false, Vec::new());
            }
        }
        self.settle();
        if let Some(message) = completed {
            self.push(Record::Ended { outcome: Outcome::Completed, message });
        }
        (self.entries, self.notes)
    }

    fn push(&mut self, record: Record) {
        self.entries.push(Entry { at: self.at, record });
    }

    /// Gives every call that is still open a result.
    fn settle(&mut self) {
        self.completed = None;
        for (_, id, name) in std::mem::take(&mut self.open) {
            self.notes.add("calls without a result, which have an interrupted one", 1);
            let (ending, content) = (Ending::Interrupted, LOST.to_owned());
            self.push(Record::Result(CallResult { id, name, ending, content, images: Vec::new() }));
        }
    }

    /// Takes the first open call that is wanted.
    fn close(&mut self, wanted: impl Fn(&(String, CallId, String)) -> bool) -> Option<(CallId, String)> {
        let at = self.open.iter().position(wanted)?;
        let (_, id, name) = self.open.remove(at);
        Some((id, name))
    }

    fn result(&mut self, (id, name): (CallId, String), content: String, failed: bool, images: Vec<Image>) {
        const DENIED: [&str; 2] = ["The user denied this operation", "The user doesn't want to proceed"];
        const FAILED: [&str; 2] = ["The tool execution failed", "Error executing"];
        let begins = |starts: &[&str]| starts.iter().any(|start| content.trim_start().starts_with(start));
        let ending = match () {
            () if begins(&DENIED) => Ending::Denied,
            () if failed || begins(&FAILED) => Ending::Failed,
            () => Ending::Done,
        };
        self.push(Record::Result(CallResult { id, name, ending, content, images }));
    }

    /// A call with an id that no other one has.
    fn call(&mut self, id: &str, name: String, index: Option<u32>) -> CallId {
        let mut own = if id.is_empty() { format!("call_{}_{}", self.turn, index.unwrap_or(0)) } else { id.to_owned() };
        while !self.used.insert(own.clone()) {
            own.push('x');
        }
        let call = CallId::new(own);
        self.open.push((id.to_owned(), call.clone(), name));
        call
    }

    fn note_completion(&mut self, name: &str, arguments: &serde_json::Map<String, Value>) {
        if name == "attempt_completion" {
            self.completed = Some(arguments.get("result").and_then(Value::as_str).unwrap_or_default().to_owned());
        }
    }

    /// Reads calls in text, as any answer of a model's is read.
    fn read(&mut self, text: &str, parts: &mut Vec<Part>, checks: &mut Vec<Check>, faults: &mut Vec<Fault>) {
        let mut draft = Draft::default();
        let mut reader = Reader::new(Selection::AUTO, self.checker.tools());
        let mut sink = |event: Event<'_>| draft.event(event);
        reader.push(text, &mut sink);
        reader.finish(Cut::Ended, &mut sink);
        draft.drop_blank_text();
        draft.source = text.to_owned();
        let mut checked = self.checker.check_all(&draft);
        faults.extend(draft.faults.iter().filter(|fault| fault.call.is_none()).cloned());
        for part in draft.parts {
            match part {
                DraftPart::Text(text) => parts.push(Part::Text { text }),
                DraftPart::Thought(text) => parts.push(Part::Thought { text, opaque: None }),
                DraftPart::Opaque(opaque) => parts.push(Part::Opaque(opaque)),
                DraftPart::Call(call) => {
                    let Some(at) = checked.iter().position(|checked| checked.index == call.index) else { continue };
                    let checked = checked.swap_remove(at);
                    let id = self.call("", checked.name.clone(), Some(call.index));
                    let passed = checked.state == CallState::Complete;
                    self.note_completion(&checked.name, &checked.arguments);
                    let (repairs, faults) = (checked.repairs, checked.faults);
                    checks.push(Check { call: id.clone(), passed, repairs, faults, feedback: None });
                    let (name, arguments) = (checked.name, checked.arguments);
                    parts.push(Part::Call(Call { id, name, arguments, dialect: call.dialect }));
                }
            }
        }
    }

    /// A text that begins a result: `[read_file for 'a.txt'] Result:`. The open call that it answers, and what stands behind.
    fn header(&mut self, text: &str) -> Option<(CallId, String, String)> {
        let (name, content) = result_of(text).filter(|_| self.in_text)?;
        let (call, name) = self.close(|open| open.2 == name)?;
        Some((call, name, content.trim_start_matches('\n').to_owned()))
    }

    /// Whether a block is more of the result before it.
    fn continues(&self, block: &Block) -> bool {
        let Block::Text(text) = block else { return false };
        let begun = text.trim_start();
        const OTHERS: [&str; 4] = ["<environment_details>", "<user_message>", "<feedback>", "<task>"];
        result_of(text).is_none() && !OTHERS.iter().any(|start| begun.starts_with(start))
    }
}

/// The tool's name and the content of a text that begins a result.
fn result_of(text: &str) -> Option<(&str, &str)> {
    let (line, _) = text.strip_prefix('[')?.split_once('\n').unwrap_or((text.strip_prefix('[')?, ""));
    let (head, _) = line.split_once("] Result:")?;
    let name = head.split(' ').next()?;
    let at = text.find("] Result:")? + "] Result:".len();
    Some((name, text.get(at..).unwrap_or_default()))
}

fn passed(call: CallId) -> Check {
    Check { call, passed: true, repairs: Vec::new(), faults: Vec::new(), feedback: None }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use sabir_agent::{Attended, Conditions, Limits, Origin, Settings, Start, Task, TaskId};
    use sabir_call::{Prices, Protocol, Role, ToolSet};
    use sabir_check::Repairs;
    use sabir_policy::Rules;
    use serde_json::json;

    use super::*;

    /// Numbers that look like chance, the same each time.
    struct Chance(u64);

    impl Chance {
        fn below(&mut self, limit: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(self.0 >> 33).unwrap() % limit
        }

        fn block(&mut self) -> Block {
            let id = ["", "a", "b", "c"][self.below(4)].to_owned();
            match self.below(7) {
                0 => Block::Call { id, name: "attempt_completion".to_owned(), arguments: serde_json::Map::new() },
                1 | 2 => Block::Call { id, name: "Bash".to_owned(), arguments: serde_json::Map::new() },
                3 | 4 => Block::Result { id, content: "x".to_owned(), failed: self.below(2) == 0, images: Vec::new() },
                5 => Block::Other(json!({"type": "odd"})),
                _ => Block::Text(
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

    fn settings() -> Settings {
        Settings {
            system: String::new(),
            model: "m".to_owned(),
            tools: ToolSet::default(),
            readers: Vec::new(),
            pollers: Vec::new(),
            rules: Rules::default(),
            attended: Attended::No,
            limits: Limits::default(),
            completion: Conditions::default(),
            repairs: Repairs::all(),
            max_output: None,
            prices: Prices::default(),
        }
    }

    #[test]
    fn any_history_becomes_one_that_could_have_been() {
        let mut chance = Chance(1);
        for round in 0..1000 {
            let mut scribe = Scribe::new(round % 2 == 0, 1, Notes::default());
            for _ in 0..chance.below(8) {
                let blocks = (0..chance.below(5)).map(|_| chance.block()).collect();
                match chance.below(2) {
                    0 => scribe.assistant(blocks, Usage::default()),
                    _ => scribe.user(blocks, Speaker::User),
                }
            }
            let (mut entries, _) = scribe.finish();
            // Every call has its one result, in the records and in the history that a fork goes on from.
            let mut results: BTreeMap<&CallId, usize> = BTreeMap::new();
            for entry in &entries {
                match &entry.record {
                    Record::Answered(answered) => {
                        for check in &answered.checks {
                            assert!(results.insert(&check.call, 0).is_none(), "round {round}: an id twice");
                        }
                    }
                    Record::Result(result) => *results.get_mut(&result.id).unwrap() += 1,
                    _ => {}
                }
            }
            assert!(results.values().all(|count| *count == 1), "round {round}: {entries:?}");
            entries.retain(|entry| !matches!(entry.record, Record::Ended { .. }));
            let [prompt, workspace, model, version] = ["p", "/w", "m", "1"].map(str::to_owned);
            let from = Origin::Import { program: "cline".to_owned(), source: String::new(), notes: Vec::new() };
            let (task, protocol, from) = (TaskId::new("t"), Protocol::Native, Some(from));
            let start = Start { task, prompt, workspace, model, protocol, version, edit_tool: None, mode: None, from };
            let records = std::iter::once(Record::Started(start)).chain(entries.into_iter().map(|entry| entry.record));
            let task = Task::replay(records, settings()).unwrap();
            let (mut asked, mut answered) = (0, 0);
            for message in task.history() {
                asked += message.calls().count();
                answered += message.parts.iter().filter(|part| matches!(part, Part::Result(_))).count();
            }
            assert_eq!(asked, answered, "round {round}");
            assert!(task.history().windows(2).all(|pair| pair[0].role != Role::User || pair[1].role != Role::User));
        }
    }

    #[test]
    fn the_heads_of_results() {
        for (text, expected) in [
            ("[read_file for 'a.txt'] Result:\nx\ny", Some(("read_file", "\nx\ny"))),
            ("[execute_command for 'ls'] Result:", Some(("execute_command", ""))),
            ("[attempt_completion] Result: ok", Some(("attempt_completion", " ok"))),
            ("read_file] Result:", None),
            ("[x\n] Result:", None),
            ("", None),
        ] {
            assert_eq!(result_of(text), expected, "{text}");
        }
    }
}
