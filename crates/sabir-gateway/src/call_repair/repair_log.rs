//! Logs the repairs of a response: as events, and as counts for the client's report.

use std::collections::BTreeMap;

use sabir_call::{Fault, FaultKind};

use crate::gateway_event::GatewayEvent;

/// The repair log of one response.
pub(crate) struct RepairLog<'n> {
    /// Passes events to the exchange's log.
    report_event: &'n (dyn Fn(GatewayEvent<'_>) + Send + Sync),
    /// The repairs by rule, in alphabetical order for the report.
    counts: BTreeMap<&'static str, u32>,
}

impl<'n> RepairLog<'n> {
    /// Makes an empty log.
    pub(crate) fn new(report_event: &'n (dyn Fn(GatewayEvent<'_>) + Send + Sync)) -> Self {
        Self {
            report_event,
            counts: BTreeMap::new(),
        }
    }

    /// Logs a mistake that was repaired, or kept from the client.
    pub(crate) fn log_repair(&mut self, rule: &'static str, name: &str) {
        self.count_rule(rule);
        (self.report_event)(GatewayEvent::Repaired { rule, name });
    }

    /// Logs a call that is sent to the client.
    pub(crate) fn log_call(&self, name: &str, dialect: Option<&str>) {
        (self.report_event)(GatewayEvent::CallSent { name, dialect });
    }

    /// Logs a fault in the model's output.
    pub(crate) fn log_fault(&self, fault: &Fault) {
        (self.report_event)(GatewayEvent::FaultFound(fault));
    }

    /// Counts a fault that says that halves of characters were replaced.
    pub(crate) fn log_surrogate_replacement(&mut self, fault: &Fault) {
        if fault.kind == FaultKind::InvalidUtf8 {
            self.log_repair("lone_surrogate", "");
        }
    }

    /// Logs a retry with its feedback.
    pub(crate) fn log_retry(&mut self, attempt: u32, feedback: &str) {
        self.count_rule("asked_again");
        (self.report_event)(GatewayEvent::Retried { attempt, feedback });
    }

    /// Counts a repair.
    fn count_rule(&mut self, rule: &'static str) {
        let count = self.counts.entry(rule).or_default();
        *count = count.saturating_add(1);
    }

    /// Adds the counts of another log.
    pub(crate) fn add_counts(&mut self, other: &Self) {
        for (rule, count) in &other.counts {
            let known = self.counts.entry(rule).or_default();
            *known = known.saturating_add(*count);
        }
    }

    /// Renders the report: `RULE=COUNT`, in alphabetical order, or `none`.
    pub(crate) fn render_report(&self) -> String {
        let rows: Vec<String> = self
            .counts
            .iter()
            .map(|(rule, count)| format!("{rule}={count}"))
            .collect();
        if rows.is_empty() {
            "none".to_owned()
        } else {
            rows.join(", ")
        }
    }
}
