//! Counts events, and renders the counters in the text format of Prometheus.
//!
//! There are some counters and one histogram, so no library is needed. No label has values that a
//! client can choose, because that would let a client create any number of time series.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sabir_wire::Wire;

use crate::gateway_event::{ExchangeSummary, GatewayEvent};
use crate::key_ledger::SettlementCounts;
use crate::upstream_group::{UpstreamCounters, UpstreamGroup};

/// The upper bounds of the histogram's buckets, in seconds.
const BUCKET_BOUNDS: [f64; 12] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];

/// The metrics of a gateway.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    /// Open connections. Signed, so that an unbalanced decrement does not wrap.
    connections: AtomicI64,
    /// Requests that are being answered.
    requests: AtomicI64,
    /// Calls that were sent.
    calls: AtomicU64,
    /// Requests that repeated one because of a mistake.
    retries: AtomicU64,
    /// Bytes of response bodies.
    bytes: AtomicU64,
    /// The counters with labels.
    tables: Mutex<LabeledCounters>,
}

/// Counters with labels.
#[derive(Debug, Default)]
struct LabeledCounters {
    /// Requests by wire and status.
    requests: BTreeMap<(&'static str, u16), u64>,
    /// Responses by model and end.
    answers: BTreeMap<(String, &'static str), u64>,
    /// Tokens by model and direction.
    tokens: BTreeMap<(String, &'static str), u64>,
    /// Repairs by model and rule.
    repairs: BTreeMap<(String, &'static str), u64>,
    /// Refusals by the gateway itself, by reason.
    refusals: BTreeMap<&'static str, u64>,
    /// Requests of models by key and status.
    key_requests: BTreeMap<(String, u16), u64>,
    /// Tokens by key and direction.
    key_tokens: BTreeMap<(String, &'static str), u64>,
    /// Costs by key, in billionths of a dollar.
    key_costs: BTreeMap<String, u64>,
    /// The time to the first output of the model, by model and upstream.
    first_output: BTreeMap<(String, String), Histogram>,
    /// The time for each output token after the first, by model and upstream.
    output_token: BTreeMap<(String, String), Histogram>,
    /// Faults by kind.
    faults: BTreeMap<String, u64>,
    /// The time to the first byte by wire, in seconds.
    first: BTreeMap<&'static str, Histogram>,
}

/// The most keys with series of their own. Keys are made by the operator, but may be many.
const MAX_KEYS: usize = 1000;

/// A histogram of times.
#[derive(Debug, Default)]
struct Histogram {
    /// The number of observations in each bucket, not cumulative.
    counts: [u64; BUCKET_BOUNDS.len()],
    /// The number of all observations, also those above the last bound.
    all: u64,
    /// The sum of all observations in seconds.
    sum: f64,
}

impl Metrics {
    /// Locks the counters with labels.
    fn lock_tables(&self) -> MutexGuard<'_, LabeledCounters> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a connection that was accepted.
    pub(crate) fn connection_opened(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the end of a connection.
    pub(crate) fn connection_closed(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a request that has begun.
    pub(crate) fn request_opened(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an event. `is_named` returns true for model names from the configuration; all others
    /// are counted as `other`.
    pub(crate) fn count_event(
        &self,
        note: &GatewayEvent<'_>,
        model: &str,
        is_named: impl Fn(&str) -> bool,
    ) {
        match note {
            GatewayEvent::Repaired { rule, .. } => {
                let model = if is_named(model) { model } else { "other" };
                let mut tables = self.lock_tables();
                *tables.repairs.entry((model.to_owned(), rule)).or_default() += 1
            }
            GatewayEvent::FaultFound(fault) => {
                let kind = serde_json::to_value(fault.kind).ok();
                let kind = kind
                    .as_ref()
                    .and_then(|kind| kind.as_str())
                    .unwrap_or("unknown")
                    .to_owned();
                *self.lock_tables().faults.entry(kind).or_default() += 1;
            }
            GatewayEvent::Retried { .. } => _ = self.retries.fetch_add(1, Ordering::Relaxed),
            GatewayEvent::Ended(ended) => self.count_ended(ended, is_named),
            _ => {}
        }
    }

    /// Counts the end of an exchange.
    fn count_ended(&self, ended: &ExchangeSummary<'_>, is_named: impl Fn(&str) -> bool) {
        self.requests.fetch_sub(1, Ordering::Relaxed);
        self.calls
            .fetch_add(u64::from(ended.calls), Ordering::Relaxed);
        self.bytes.fetch_add(ended.bytes, Ordering::Relaxed);
        let front = ended.front.map_or("none", Wire::name);
        let mut tables = self.lock_tables();
        *tables.requests.entry((front, ended.status)).or_default() += 1;
        if let Some(reason) = ended.refusal {
            *tables.refusals.entry(reason).or_default() += 1;
        }
        tables.count_key(ended);
        // Only models' responses count below: a refused request has no tokens, and its model may
        // not exist.
        if ended.model.is_empty() || ended.status != 200 {
            return;
        }
        // A client can send any name, and each one would be a time series of its own.
        let model = if is_named(ended.model) {
            ended.model
        } else {
            "other"
        };
        let end = match ended.error {
            Some(_) => "failed",
            None if ended.whole => "whole",
            None => "left",
        };
        *tables.answers.entry((model.to_owned(), end)).or_default() += 1;
        for (direction, count) in [("input", ended.usage.input), ("output", ended.usage.output)] {
            *tables
                .tokens
                .entry((model.to_owned(), direction))
                .or_default() += count.unwrap_or(0);
        }
        if let Some(first) = ended.first {
            tables.first.entry(front).or_default().observe_time(first);
        }
        let Some(first) = ended.first_output else {
            return;
        };
        let place = (
            model.to_owned(),
            ended.upstream.unwrap_or_default().to_owned(),
        );
        if let Some(more @ 1..) = ended.usage.output.map(|tokens| tokens.saturating_sub(1)) {
            let each = ended.took.saturating_sub(first).div_f64(more as f64);
            let histogram = tables.output_token.entry(place.clone()).or_default();
            histogram.observe_time(each);
        }
        tables
            .first_output
            .entry(place)
            .or_default()
            .observe_time(first);
    }

    /// Renders all metrics, with those of the upstreams in these groups by the names of their models.
    pub(crate) fn render_text(
        &self,
        groups: &[(&str, &Arc<UpstreamGroup>)],
        settlements: SettlementCounts,
    ) -> String {
        let mut page = MetricsText(String::new());
        let gauge = |value: &AtomicI64| value.load(Ordering::Relaxed).max(0).unsigned_abs();
        page.write_value(
            "connections_open",
            "gauge",
            "Connections that are open.",
            gauge(&self.connections),
        );
        page.write_value(
            "requests_open",
            "gauge",
            "Requests that are being answered.",
            gauge(&self.requests),
        );
        let count = |value: &AtomicU64| value.load(Ordering::Relaxed);
        page.write_value(
            "calls_total",
            "counter",
            "Calls in answers.",
            count(&self.calls),
        );
        page.write_value(
            "retries_total",
            "counter",
            "Times that a model was asked again.",
            count(&self.retries),
        );
        page.write_value(
            "bytes_total",
            "counter",
            "Bytes of answers.",
            count(&self.bytes),
        );
        page.write_value(
            "lost_settlements_total",
            "counter",
            "Requests whose usage was not counted because the store of keys failed.",
            settlements.lost,
        );
        page.write_value(
            "waiting_settlements",
            "gauge",
            "Requests whose usage is not counted yet: it is being written, or waits for the store of keys.",
            settlements.waiting,
        );
        let tables = self.lock_tables();
        page.write_table(
            "requests_total",
            "Requests, by the API and the status that was answered.",
            tables.requests.iter().map(|((front, status), count)| {
                (format!("front=\"{front}\",status=\"{status}\""), *count)
            }),
        );
        page.write_table(
            "answers_total",
            "Answers of models, by how they ended.",
            tables.answers.iter().map(|((model, end), count)| {
                (
                    format!("model=\"{}\",end=\"{end}\"", escape_label(model)),
                    *count,
                )
            }),
        );
        page.write_table(
            "tokens_total",
            "Tokens, as providers count them.",
            tables.tokens.iter().map(|((model, direction), count)| {
                (
                    format!(
                        "model=\"{}\",direction=\"{direction}\"",
                        escape_label(model)
                    ),
                    *count,
                )
            }),
        );
        let repairs = tables.repairs.iter().map(|((model, rule), count)| {
            let model = escape_label(model);
            (format!("model=\"{model}\",rule=\"{rule}\""), *count)
        });
        page.write_table("repairs_total", "Repairs, by model and rule.", repairs);
        let refusals = tables
            .refusals
            .iter()
            .map(|(reason, count)| (format!("reason=\"{reason}\""), *count));
        page.write_table(
            "refusals_total",
            "Requests that the gateway itself refused, by reason.",
            refusals,
        );
        tables.write_keys(&mut page);
        let faults = tables
            .faults
            .iter()
            .map(|(kind, count)| (format!("kind=\"{kind}\""), *count));
        page.write_table("faults_total", "Faults of calls, by kind.", faults);
        let fronts = tables.first.iter();
        page.write_histograms(
            "first_byte_seconds",
            "From a request to the first byte of its answer.",
            fronts.map(|(front, times)| (format!("front=\"{front}\""), times)),
        );
        page.write_histograms(
            "first_output_seconds",
            "From a request to the first output of its model.",
            upstream_labels(&tables.first_output),
        );
        page.write_histograms(
            "output_token_seconds",
            "The time for each output token after the first, as a mean of its answer.",
            upstream_labels(&tables.output_token),
        );
        write_upstreams(&mut page, groups);
        page.0
    }
}

/// Returns the labels of histograms by model and upstream.
fn upstream_labels(
    all: &BTreeMap<(String, String), Histogram>,
) -> impl Iterator<Item = (String, &Histogram)> {
    all.iter().map(|((model, upstream), times)| {
        let model = escape_label(model);
        let upstream = escape_label(upstream);
        (format!("model=\"{model}\",upstream=\"{upstream}\""), times)
    })
}

impl LabeledCounters {
    /// Counts the end of an exchange for its key, if its model was asked.
    fn count_key(&mut self, ended: &ExchangeSummary<'_>) {
        let Some(key) = ended.key.filter(|_| !ended.model.is_empty()) else {
            return;
        };
        let known = self.key_costs.contains_key(key);
        if !known && self.key_costs.len() >= MAX_KEYS {
            return;
        }
        *self.key_costs.entry(key.to_owned()).or_default() += ended.nano_usd.unwrap_or(0);
        *self
            .key_requests
            .entry((key.to_owned(), ended.status))
            .or_default() += 1;
        for (direction, count) in [
            ("input", ended.counted.input),
            ("output", ended.counted.output),
        ] {
            *self
                .key_tokens
                .entry((key.to_owned(), direction))
                .or_default() += count.unwrap_or(0);
        }
    }

    /// Writes the counters by key.
    fn write_keys(&self, page: &mut MetricsText) {
        page.write_table(
            "key_requests_total",
            "Requests of models, by key and status.",
            self.key_requests.iter().map(|((key, status), count)| {
                let key = escape_label(key);
                (format!("key=\"{key}\",status=\"{status}\""), *count)
            }),
        );
        page.write_table(
            "key_tokens_total",
            "Tokens, by key, as providers count them.",
            self.key_tokens.iter().map(|((key, direction), count)| {
                let key = escape_label(key);
                (format!("key=\"{key}\",direction=\"{direction}\""), *count)
            }),
        );
        page.write_table(
            "key_nano_usd_total",
            "Costs by key, in billionths of a dollar.",
            self.key_costs
                .iter()
                .map(|(key, cost)| (format!("key=\"{}\"", escape_label(key)), *cost)),
        );
    }
}

/// Writes the metrics of the upstreams.
fn write_upstreams(page: &mut MetricsText, groups: &[(&str, &Arc<UpstreamGroup>)]) {
    let rows: Vec<(String, UpstreamCounters)> = groups
        .iter()
        .flat_map(|(model, group)| {
            group.counters().map(|(upstream, counters)| {
                let labels = format!(
                    "model=\"{}\",upstream=\"{}\"",
                    escape_label(model),
                    escape_label(upstream)
                );
                (labels, counters)
            })
        })
        .collect();
    let mut write = |name: &str, kind: &str, help: &str, value: fn(&UpstreamCounters) -> u64| {
        page.write_header(name, kind, help);
        for (labels, counters) in &rows {
            let value = value(counters);
            _ = writeln!(page.0, "sabir_gateway_{name}{{{labels}}} {value}");
        }
    };
    write(
        "upstream_requests_total",
        "counter",
        "Requests that were sent to an upstream.",
        |counters| counters.requests,
    );
    write(
        "upstream_failures_total",
        "counter",
        "Requests that an upstream failed.",
        |counters| counters.failures,
    );
    write(
        "upstream_failovers_total",
        "counter",
        "Requests that went to another upstream after this one failed them.",
        |counters| counters.failovers,
    );
    write(
        "upstream_outstanding",
        "gauge",
        "Requests that an upstream is answering.",
        |counters| counters.outstanding as u64,
    );
    write(
        "upstream_available",
        "gauge",
        "1 if an upstream gets requests, 0 if it is left out for a while.",
        |counters| u64::from(counters.available),
    );
}

/// The metrics text being written.
struct MetricsText(String);

impl MetricsText {
    /// Writes the two lines before a metric. All names begin with `sabir_gateway_`.
    fn write_header(&mut self, name: &str, kind: &str, help: &str) {
        _ = writeln!(
            self.0,
            "# HELP sabir_gateway_{name} {help}\n# TYPE sabir_gateway_{name} {kind}"
        );
    }

    /// Writes a metric with one value.
    fn write_value(&mut self, name: &str, kind: &str, help: &str, value: u64) {
        self.write_header(name, kind, help);
        _ = writeln!(self.0, "sabir_gateway_{name} {value}");
    }

    /// Writes a counter with a line for each combination of labels.
    fn write_table(&mut self, name: &str, help: &str, rows: impl Iterator<Item = (String, u64)>) {
        self.write_header(name, "counter", help);
        for (labels, value) in rows {
            _ = writeln!(self.0, "sabir_gateway_{name}{{{labels}}} {value}");
        }
    }

    /// Writes a histogram for each combination of labels. Prometheus expects cumulative buckets.
    fn write_histograms<'a>(
        &mut self,
        name: &str,
        help: &str,
        all: impl Iterator<Item = (String, &'a Histogram)>,
    ) {
        self.write_header(name, "histogram", help);
        for (labels, histogram) in all {
            let mut below = 0;
            for (bound, count) in BUCKET_BOUNDS.iter().zip(histogram.counts) {
                below += count;
                _ = writeln!(
                    self.0,
                    "sabir_gateway_{name}_bucket{{{labels},le=\"{bound}\"}} {below}"
                );
            }
            let Histogram { all, sum, .. } = histogram;
            _ = writeln!(
                self.0,
                "sabir_gateway_{name}_bucket{{{labels},le=\"+Inf\"}} {all}"
            );
            _ = writeln!(self.0, "sabir_gateway_{name}_sum{{{labels}}} {sum}");
            _ = writeln!(self.0, "sabir_gateway_{name}_count{{{labels}}} {all}");
        }
    }
}

impl Histogram {
    /// Adds an observation.
    fn observe_time(&mut self, time: Duration) {
        let seconds = time.as_secs_f64();
        if let Some((_, count)) = BUCKET_BOUNDS
            .iter()
            .zip(&mut self.counts)
            .find(|(bound, _)| seconds <= **bound)
        {
            *count += 1;
        }
        self.all += 1;
        self.sum += seconds;
    }
}

/// Escapes a label's value.
fn escape_label(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use sabir_call::Usage;

    use super::*;

    fn ended<'a>(model: &'a str, status: u16, error: Option<&'a str>) -> ExchangeSummary<'a> {
        ExchangeSummary {
            front: Some(Wire::Anthropic),
            model,
            key: Some("team"),
            upstream: Some("u1"),
            first_output: Some(Duration::from_millis(15)),
            asks_model: true,
            nano_usd: Some(7),
            refusal: (status == 404).then_some("model"),
            status,
            whole: error.is_none(),
            took: Duration::from_millis(80),
            first: Some(Duration::from_millis(20)),
            bytes: 10,
            calls: 2,
            usage: Usage {
                input: Some(5),
                output: None,
                ..Usage::default()
            },
            counted: Usage {
                input: Some(5),
                ..Usage::default()
            },
            error,
            trace_parent: None,
        }
    }

    #[test]
    fn events_are_counted_by_model_and_kind() {
        let metrics = Metrics::default();
        for ended in [
            ended("m\"x", 200, None),
            ended("m\"x", 200, Some("cut")),
            ended("zzz", 200, None),
            ended("y", 404, None),
        ] {
            metrics.request_opened();
            metrics.count_event(&GatewayEvent::Ended(&ended), ended.model, |name| {
                name == "m\"x"
            });
        }
        metrics.count_event(
            &GatewayEvent::Repaired {
                rule: "near_name",
                name: "read_file",
            },
            "m",
            |_| true,
        );
        metrics.count_event(
            &GatewayEvent::Retried {
                attempt: 1,
                feedback: "",
            },
            "m",
            |_| true,
        );
        let text = metrics.render_text(&[], SettlementCounts::default());
        for line in [
            "sabir_gateway_requests_open 0",
            "sabir_gateway_calls_total 8",
            "sabir_gateway_retries_total 1",
            "sabir_gateway_bytes_total 40",
            "sabir_gateway_requests_total{front=\"anthropic\",status=\"200\"} 3",
            "sabir_gateway_requests_total{front=\"anthropic\",status=\"404\"} 1",
            "sabir_gateway_answers_total{model=\"m\\\"x\",end=\"failed\"} 1",
            "sabir_gateway_answers_total{model=\"other\",end=\"whole\"} 1",
            "sabir_gateway_tokens_total{model=\"m\\\"x\",direction=\"input\"} 10",
            "sabir_gateway_repairs_total{model=\"m\",rule=\"near_name\"} 1",
            "sabir_gateway_refusals_total{reason=\"model\"} 1",
            "sabir_gateway_key_requests_total{key=\"team\",status=\"200\"} 3",
            "sabir_gateway_key_tokens_total{key=\"team\",direction=\"input\"} 20",
            "sabir_gateway_key_nano_usd_total{key=\"team\"} 28",
            "sabir_gateway_first_output_seconds_count{model=\"other\",upstream=\"u1\"} 1",
            "sabir_gateway_first_byte_seconds_bucket{front=\"anthropic\",le=\"0.01\"} 0",
            "sabir_gateway_first_byte_seconds_bucket{front=\"anthropic\",le=\"0.025\"} 3",
            "sabir_gateway_first_byte_seconds_bucket{front=\"anthropic\",le=\"+Inf\"} 3",
            "sabir_gateway_first_byte_seconds_count{front=\"anthropic\"} 3",
        ] {
            assert!(text.lines().any(|known| known == line), "{line}\n{text}");
        }
    }
}
