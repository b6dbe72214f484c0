//! Meters what an exchange uses. Every request to the model is counted separately, by the usage that its provider
//! reported, or else by an estimate from the bytes that were read.
//!
//! | a request to the model | counts |
//! | --- | --- |
//! | that was answered | what was reported, or the estimates of its input and of what was read |
//! | that was given up in the middle: an error, a client that left, an answer whose rest is not wanted | the same, and no less output than was read |
//! | whose client left before the answer began | the estimate of its input |
//! | that was refused, or failed before the answer began | nothing |

use std::sync::Arc;

use sabir_call::{BYTES_PER_TOKEN, Event, ProviderReportSlot, Usage};

use crate::key_store::Spending;
use crate::route::ModelRoute;

/// The end of a request to the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestEnd {
    /// The answer is complete.
    Complete,
    /// The rest of the answer was not read: the client left, or the rest is not wanted.
    Abandoned,
    /// The model refused or failed.
    Failed,
}

/// The meter of one exchange.
#[derive(Default)]
pub(crate) struct ExchangeMeter {
    /// The route, for the prices of its upstreams.
    route: Option<Arc<ModelRoute>>,
    /// The estimate of each request's input in tokens.
    estimated_input: u64,
    /// The request that is running.
    open: Option<OpenRequest>,
    /// The requests that are over.
    total: MeteredUsage,
}

/// The usage of a running request so far.
#[derive(Default)]
struct OpenRequest {
    /// The tokens that the provider reported.
    reported: Usage,
    /// The bytes of text, thoughts and calls.
    output_bytes: u64,
    /// Names the upstream.
    report: ProviderReportSlot,
}

/// The tokens and the cost of an exchange.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct MeteredUsage {
    /// The tokens that providers reported.
    pub(crate) reported: Usage,
    /// The tokens that count: those that were reported, and estimates of the others.
    pub(crate) counted: Usage,
    /// The cost in billionths of a dollar; `None` if a price is unknown or nothing was used.
    pub(crate) nano_usd: Option<u64>,
    /// True if something was used whose price is unknown.
    is_price_unknown: bool,
}

impl MeteredUsage {
    /// Returns what counts for the limits of a key.
    pub(crate) fn spending(&self) -> Spending {
        let input = self.counted.input.unwrap_or(0);
        let output = self.counted.output.unwrap_or(0);
        Spending {
            tokens: input.saturating_add(output),
            nano_usd: self.nano_usd.unwrap_or(0),
        }
        .clamped()
    }
}

impl ExchangeMeter {
    /// Sets the route, and the estimate of the input in tokens.
    pub(crate) fn set_route(&mut self, route: &Arc<ModelRoute>, estimated_input: u64) {
        self.route = Some(Arc::clone(route));
        self.estimated_input = estimated_input;
    }

    /// Returns true if the route is set.
    pub(crate) fn has_route(&self) -> bool {
        self.route.is_some()
    }

    /// Begins to meter a request that is being sent. `report` names the upstream that gets it.
    pub(crate) fn begin_request(&mut self, report: &ProviderReportSlot) {
        self.open = Some(OpenRequest {
            report: report.clone(),
            ..OpenRequest::default()
        });
    }

    /// Counts an event of the model's answer.
    pub(crate) fn push_event(&mut self, event: &Event<'_>) {
        let Some(open) = &mut self.open else { return };
        let bytes = match event {
            Event::Usage(usage) => {
                open.reported.update(*usage);
                return;
            }
            Event::Text { text } | Event::Thought { text } | Event::ArgDelta { text, .. } => {
                text.len()
            }
            Event::CallStart { name, .. } | Event::ArgStart { name, .. } => name.len(),
            _ => return,
        };
        open.output_bytes = open.output_bytes.saturating_add(bytes as u64);
    }

    /// Counts tokens that the provider reported.
    pub(crate) fn push_usage(&mut self, usage: Usage) {
        if let Some(open) = &mut self.open {
            open.reported.update(usage);
        }
    }

    /// Counts the estimate of an input that was only kept, and costs nothing.
    pub(crate) fn count_stored_input(&mut self) {
        self.total.counted.add(Usage {
            input: Some(self.estimated_input),
            ..Usage::default()
        });
    }

    /// Ends the running request, if there is one.
    pub(crate) fn end_request(&mut self, end: RequestEnd) {
        let Some(open) = self.open.take() else { return };
        let reported = open.reported;
        let has_reported = reported.input.is_some() || reported.output.is_some();
        if end == RequestEnd::Failed && !has_reported && open.output_bytes == 0 {
            return;
        }
        let estimate = open.output_bytes.div_ceil(BYTES_PER_TOKEN);
        let output = match reported.output {
            // Some providers report a first count at the beginning, and the real one at the end.
            Some(output) if end != RequestEnd::Complete => output.max(estimate),
            Some(output) => output,
            None => estimate,
        };
        let counted = Usage {
            input: reported.input.or(Some(self.estimated_input)),
            output: Some(output),
            ..reported
        };
        let upstream = open.report.report().upstream;
        let cost = self
            .route
            .as_ref()
            .and_then(|route| route.cost_at(upstream.as_deref(), counted));
        let total = &mut self.total;
        total.reported.add(reported);
        total.counted.add(counted);
        total.is_price_unknown |= cost.is_none();
        let sum = total
            .nano_usd
            .unwrap_or(0)
            .saturating_add(cost.unwrap_or(0));
        total.nano_usd = Some(sum).filter(|_| !total.is_price_unknown);
    }

    /// Returns the usage of all requests that are over.
    pub(crate) fn total(&self) -> MeteredUsage {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(input: Option<u64>, output: Option<u64>) -> Usage {
        Usage {
            input,
            output,
            ..Usage::default()
        }
    }

    /// Returns the tokens that count for one request.
    fn counted(events: &[Event<'_>], end: RequestEnd) -> [Option<u64>; 2] {
        let mut meter = ExchangeMeter {
            estimated_input: 100,
            ..ExchangeMeter::default()
        };
        meter.begin_request(&ProviderReportSlot::new());
        for event in events {
            meter.push_event(event);
        }
        meter.end_request(end);
        let counted = meter.total().counted;
        [counted.input, counted.output]
    }

    #[test]
    fn a_request_counts_by_its_end() {
        use RequestEnd::{Abandoned, Complete, Failed};
        let call = [
            Event::CallStart {
                index: 0,
                id: None,
                name: "read",
                dialect: None,
                at: 0,
                name_at: 0,
            },
            Event::ArgDelta {
                index: 0,
                text: "12345678",
            },
        ];
        for end in [Complete, Abandoned, Failed] {
            assert_eq!(counted(&call, end), [Some(100), Some(3)], "{end:?}");
        }
        assert_eq!(counted(&[], Complete), [Some(100), Some(0)]);
        assert_eq!(counted(&[], Abandoned), [Some(100), Some(0)]);
        assert_eq!(counted(&[], Failed), [None, None]);
        let first = Event::Usage(usage(Some(7), Some(1)));
        let text = Event::Text { text: "12345678" };
        assert_eq!(counted(&[first, text], Complete), [Some(7), Some(1)]);
        assert_eq!(counted(&[first, text], Abandoned), [Some(7), Some(2)]);
        assert_eq!(counted(&[first], Failed), [Some(7), Some(1)]);
    }

    #[test]
    fn all_requests_of_an_exchange_count() {
        let mut meter = ExchangeMeter::default();
        for _ in 0..2 {
            meter.begin_request(&ProviderReportSlot::new());
            meter.push_usage(usage(Some(7), Some(2)));
            meter.end_request(RequestEnd::Complete);
        }
        meter.begin_request(&ProviderReportSlot::new());
        meter.push_event(&Event::Text { text: "12345678" });
        meter.end_request(RequestEnd::Abandoned);
        // Nothing is counted twice.
        meter.end_request(RequestEnd::Abandoned);
        let total = meter.total();
        assert_eq!(total.counted, usage(Some(14), Some(6)));
        assert_eq!(total.reported, usage(Some(14), Some(4)));
        assert_eq!(total.nano_usd, None);
        assert_eq!(total.spending().tokens, 20);
    }
}
