//! What was done about an answer: told to whoever watches, and counted for the client's report.

use std::collections::BTreeMap;

use sabir_call::Fault;

use crate::note::Note;

/// Notes of one answer.
pub(crate) struct Diary<'n> {
    tell: &'n (dyn Fn(Note<'_>) + Send + Sync),
    counts: BTreeMap<&'static str, u32>,
}

impl<'n> Diary<'n> {
    /// An empty diary.
    pub(crate) fn new(tell: &'n (dyn Fn(Note<'_>) + Send + Sync)) -> Self {
        Self { tell, counts: BTreeMap::new() }
    }

    /// Something was set right, or kept from the client.
    pub(crate) fn mended(&mut self, rule: &'static str, name: &str) {
        self.count(rule);
        (self.tell)(Note::Mended { rule, name });
    }

    /// A call goes to the client.
    pub(crate) fn called(&self, name: &str, dialect: Option<&str>) {
        (self.tell)(Note::Called { name, dialect });
    }

    /// Something is wrong with what the model wrote.
    pub(crate) fn faulty(&self, fault: &Fault) {
        (self.tell)(Note::Faulty(fault));
    }

    /// The model is asked again.
    pub(crate) fn again(&mut self, attempt: u32, feedback: &str) {
        self.count("asked_again");
        (self.tell)(Note::Again { attempt, feedback });
    }

    fn count(&mut self, rule: &'static str) {
        let count = self.counts.entry(rule).or_default();
        *count = count.saturating_add(1);
    }

    /// The report: `RULE=COUNT`, in alphabetical order, or `none`.
    pub(crate) fn report(&self) -> String {
        let rows: Vec<String> = self.counts.iter().map(|(rule, count)| format!("{rule}={count}")).collect();
        if rows.is_empty() { "none".to_owned() } else { rows.join(", ") }
    }
}
