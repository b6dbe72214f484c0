//! Answers with several choices, for a provider of the client's own wire.
//!
//! The wire's decoder splits such an answer into the chunks of its choices. Each choice is decoded,
//! repaired and encoded on its own, so a call that leaked in one changes nothing in the others. The
//! model is not asked again: that would replace choices that are right.

use std::sync::Arc;
use std::time::Duration;

use sabir_call::{
    CallReader, DraftResponse, Event, EventSink, ModelError, PromptedSink, Request, TextRecovery,
    ToolChoice, ToolProtocol, ToolSet, Truncation,
};
use sabir_wire::{BodyEnd, ChoiceChunk, ResponseDecoder, ResponseEncoder, ResponseMetadata};
use serde_json::Value;

use super::{
    AnswerFailure, BufferingSink, Exchange, MeteringSink, REPORT_HEADER, ResolvedRequest,
    StreamingSink,
};
use crate::call_repair::{CallDelivery, CallRepairer, NextStep, RepairLog, RepairMode};
use crate::exchange_log::ExchangeLog;
use crate::exchange_meter::RequestEnd;
use crate::gateway_event::GatewayEvent;
use crate::response_body::BodyBuffer;
use crate::route::ModelRoute;

/// The most choices that a request may ask for.
pub(super) const MAX_CHOICES: u32 = 128;

/// A function that gets the events about repairs.
type EventReporter<'n> = &'n (dyn Fn(GatewayEvent<'_>) + Send + Sync);

impl Exchange {
    /// Writes a streamed response with several choices to the buffer.
    pub(super) async fn stream_choices(self, asking: Box<ResolvedRequest>, buffer: BodyBuffer) {
        let ResolvedRequest {
            request,
            route,
            head,
            ..
        } = *asking;
        let new_sink = |choice: u64| {
            let head = ResponseMetadata {
                choice,
                ..head.clone()
            };
            StreamingSink {
                encoder: ResponseEncoder::new(self.front, head),
                buffer: buffer.clone(),
                ledger: self.ledger.clone(),
                begun: None,
            }
        };
        let mut rest = new_sink(0);
        let FinishedChoices {
            choices,
            result,
            report,
        } = self
            .read_choices(
                &request,
                &route,
                CallDelivery::InPieces,
                new_sink,
                &mut rest,
            )
            .await;
        let report = self.ledger.complete_report(report);
        let failure = result
            .err()
            .map(|failure| self.describe_failure(failure, &request));
        let begun = choices.iter().any(|choice| choice.sink.begun.is_some());
        let StreamingSink { mut encoder, .. } = rest;
        if self.report && (begun || failure.is_none()) {
            buffer.write_with(|out| encoder.encode_comment(REPORT_HEADER, &report, out));
        } else if self.report {
            self.ledger.set_report(report);
        }
        match failure {
            Some(refusal) if !begun => buffer.set_refusal(refusal),
            Some(refusal) => {
                self.ledger.set_error(&refusal);
                buffer.write_with(|out| {
                    encoder.encode_error_event(&refusal.to_provider_error(), out);
                });
            }
            None => {
                buffer.write_with(|out| {
                    for choice in choices {
                        choice.sink.encoder.finish_choice(out);
                    }
                    encoder.finish_choices(out);
                });
                self.ledger.mark_done();
            }
        }
    }

    /// Asks the model, and reads each choice of its answer into a sink of its own. Events that belong to all choices go to `rest`.
    async fn read_choices<S: EventSink + Send>(
        &self,
        request: &Request,
        route: &Arc<ModelRoute>,
        delivery: CallDelivery,
        new_sink: impl FnMut(u64) -> S + Send,
        rest: &mut S,
    ) -> FinishedChoices<S> {
        let report_event = |note: GatewayEvent<'_>| self.ledger.emit_event(note);
        self.ledger.begin_request(&request.report);
        let mut splitter = ChoiceSplitter::new(
            request,
            route,
            delivery,
            &self.ledger,
            &report_event,
            new_sink,
            rest,
        );
        let result = route.model.stream_response(request, &mut splitter).await;
        self.ledger.end_request(match &result {
            Ok(()) => RequestEnd::Complete,
            Err(_) => RequestEnd::Failed,
        });
        let finished = splitter.finish(result);
        if finished.result.is_ok()
            && let Some(usage) = self.ledger.missing_usage()
        {
            rest.push_event(Event::Usage(usage));
        }
        self.ledger.set_upstream(request.report.report().upstream);
        finished
    }

    /// Writes a whole response with several choices to the buffer.
    pub(super) async fn buffer_choices(self, asking: Box<ResolvedRequest>, buffer: BodyBuffer) {
        let ResolvedRequest {
            request,
            route,
            mut head,
            ..
        } = *asking;
        let new_sink = |_: u64| BufferingSink {
            draft: DraftResponse::default(),
            ledger: self.ledger.clone(),
            begun: None,
        };
        let mut rest = new_sink(0);
        let FinishedChoices {
            choices,
            result,
            report,
        } = self
            .read_choices(&request, &route, CallDelivery::Whole, new_sink, &mut rest)
            .await;
        if self.report {
            self.ledger.set_report(self.ledger.complete_report(report));
        }
        if let Err(failure) = result {
            return buffer.set_refusal(self.describe_failure(failure, &request));
        }
        head.total_duration = self.ledger.elapsed();
        head.generation_duration = Duration::ZERO;
        let mut answer = self.front.encode_response(&head, &rest.draft);
        let mut encoded = Vec::new();
        let list = self.front.choice_members().map(|members| members.list);
        for choice in choices {
            head.choice = choice.index;
            let mut body = self.front.encode_response(&head, &choice.sink.draft);
            if let Some(Value::Array(items)) = list.and_then(|list| body.get_mut(list)) {
                encoded.append(items);
            }
        }
        if let Some(place) = list.and_then(|list| answer.get_mut(list)) {
            *place = Value::Array(encoded);
        }
        let body = answer.to_string();
        buffer.write_with(|out| out.extend_from_slice(body.as_bytes()));
        self.ledger.mark_done();
    }
}

/// A sink that hands each choice of an answer to a decoder and a sink of its own.
struct ChoiceSplitter<'n, S: EventSink, F> {
    /// The request.
    request: &'n Request,
    /// The route, for its repair mode.
    route: &'n Arc<ModelRoute>,
    /// The way in which the client gets calls.
    delivery: CallDelivery,
    /// The log, which meters the answer.
    ledger: &'n ExchangeLog,
    /// Gets the events about repairs.
    report_event: EventReporter<'n>,
    /// The repairs of what belongs to all choices.
    log: RepairLog<'n>,
    /// The choices that have begun.
    open_choices: Vec<OpenChoice<'n, S>>,
    /// Makes the sink of a choice.
    new_sink: F,
    /// The sink of what belongs to all choices.
    rest: &'n mut S,
}

/// A choice that is being read.
struct OpenChoice<'n, S: EventSink> {
    /// The index of the choice.
    index: u64,
    /// Decodes its chunks.
    decoder: ResponseDecoder,
    /// Reads and repairs its calls.
    reader: ChoicePipeline<'n, S>,
}

/// The way of a choice's events to the client.
enum ChoicePipeline<'n, S: EventSink> {
    /// The text cannot hold calls.
    Plain(Box<CallRepairer<'n, S>>),
    /// The text is parsed for calls.
    Parsing(Box<PromptedSink<CallRepairer<'n, S>>>),
}

/// An answer whose choices have all ended.
struct FinishedChoices<S> {
    /// The choices, in the order of their indexes.
    choices: Vec<FinishedChoice<S>>,
    /// The first failure.
    result: Result<(), AnswerFailure>,
    /// The report about repairs in all of them.
    report: String,
}

/// A choice that has ended.
struct FinishedChoice<S> {
    /// The index of the choice.
    index: u64,
    /// Its sink.
    sink: S,
}

impl<'n, S: EventSink, F: FnMut(u64) -> S> ChoiceSplitter<'n, S, F> {
    fn new(
        request: &'n Request,
        route: &'n Arc<ModelRoute>,
        delivery: CallDelivery,
        ledger: &'n ExchangeLog,
        report_event: EventReporter<'n>,
        new_sink: F,
        rest: &'n mut S,
    ) -> Self {
        Self {
            request,
            route,
            delivery,
            ledger,
            report_event,
            log: RepairLog::new(report_event),
            open_choices: Vec::new(),
            new_sink,
            rest,
        }
    }

    /// Decodes a chunk of a choice.
    fn push_chunk(&mut self, piece: ChoiceChunk<'_>) {
        let known = self
            .open_choices
            .iter()
            .position(|choice| choice.index == piece.index);
        let position = known.unwrap_or(self.open_choices.len());
        if known.is_none() {
            let choice = self.open_choice(piece);
            self.open_choices.push(choice);
        }
        if let Some(choice) = self.open_choices.get_mut(position) {
            choice.push_data(self.ledger, &piece.chunk.to_string());
        }
    }

    fn open_choice(&mut self, first: ChoiceChunk<'_>) -> OpenChoice<'n, S> {
        let request = self.request;
        // Without another attempt nothing has to be held back.
        let mode = match self.route.repair_mode {
            RepairMode::Retry(_) => RepairMode::Repair,
            mode => mode,
        };
        let log = RepairLog::new(self.report_event);
        let sink = (self.new_sink)(first.index);
        let repairer = CallRepairer::new(request, mode, self.delivery, log, sink);
        let is_native = request.protocol == ToolProtocol::Native;
        let ignores_text =
            is_native && (mode == RepairMode::Pass || request.recovery == TextRecovery::Off);
        let has_calls = !request.tools.is_empty() && request.tool_choice != ToolChoice::None;
        let has_calls = has_calls && !ignores_text;
        let reader = if !has_calls && first.prefill.is_empty() {
            ChoicePipeline::Plain(Box::new(repairer))
        } else {
            let all = request.dialects.all();
            let selection = if is_native {
                all.for_native_calls()
            } else {
                all
            };
            let selection = selection.with_prefill(first.prefill);
            // Without tools only thoughts are read.
            let no_tools = ToolSet::default();
            let tools = if has_calls { &request.tools } else { &no_tools };
            let reader =
                CallReader::new(selection, tools).with_missing_last_close(first.closes_last_call);
            ChoicePipeline::Parsing(Box::new(PromptedSink::with_reader(reader, repairer)))
        };
        OpenChoice {
            index: first.index,
            decoder: ResponseDecoder::new(first.wire).with_details(),
            reader,
        }
    }

    /// Ends all choices, after the answer has ended or failed.
    fn finish(self, result: Result<(), ModelError>) -> FinishedChoices<S> {
        let mut log = self.log;
        let is_whole = result.is_ok();
        let mut result = result.map_err(AnswerFailure::Model);
        let mut choices = Vec::new();
        for choice in self.open_choices {
            let index = choice.index;
            let mut repairer = choice.finish(self.ledger, is_whole);
            // After a failure of the model nothing else is of interest.
            if is_whole {
                let step = repairer.finish_attempt(self.request, Ok(()));
                let end = match step {
                    // Nothing asks again without retries.
                    NextStep::Done | NextStep::Ask(_) => Ok(()),
                    NextStep::ModelFailed(error) => Err(AnswerFailure::Model(error)),
                    NextStep::CallFailed(error) => Err(AnswerFailure::Call(error)),
                };
                result = result.and(end);
            }
            log.add_counts(repairer.repair_log());
            choices.push(FinishedChoice {
                index,
                sink: repairer.into_sink(),
            });
        }
        choices.sort_by_key(|choice| choice.index);
        FinishedChoices {
            choices,
            result,
            report: log.render_report(),
        }
    }
}

impl<S: EventSink, F: FnMut(u64) -> S> EventSink for ChoiceSplitter<'_, S, F> {
    fn push_event(&mut self, event: Event<'_>) {
        match event {
            Event::Opaque(state) => match ChoiceChunk::from_state(state) {
                Some(piece) => self.push_chunk(piece),
                None => self.rest.push_event(event),
            },
            Event::Usage(_) => {
                self.ledger.meter_event(&event);
                self.rest.push_event(event);
            }
            Event::Fault(fault) => {
                self.log.log_fault(fault);
                self.log.log_surrogate_replacement(fault);
            }
            // The answer itself has neither text nor calls.
            _ => {}
        }
    }
}

impl<'n, S: EventSink> OpenChoice<'n, S> {
    /// Decodes the data of an event.
    fn push_data(&mut self, ledger: &ExchangeLog, data: &str) {
        let event = format!("data: {data}\n\n");
        match &mut self.reader {
            ChoicePipeline::Plain(repairer) => {
                let sink = &mut **repairer;
                let mut metered = MeteringSink { ledger, sink };
                self.decoder.push(event.as_bytes(), &mut metered);
            }
            ChoicePipeline::Parsing(reader) => {
                let sink = &mut **reader;
                let mut metered = MeteringSink { ledger, sink };
                self.decoder.push(event.as_bytes(), &mut metered);
            }
        }
    }

    /// Ends the choice. `is_whole` is true if the answer has ended on the wire's terms.
    fn finish(mut self, ledger: &ExchangeLog, is_whole: bool) -> CallRepairer<'n, S> {
        let mut body_end = BodyEnd::Broken;
        let mut why = Truncation::Broken;
        if is_whole {
            self.push_data(ledger, "[DONE]");
            body_end = BodyEnd::Clean;
            why = Truncation::Ended;
        }
        match self.reader {
            ChoicePipeline::Plain(mut repairer) => {
                self.decoder.finish(body_end, &mut *repairer);
                *repairer
            }
            ChoicePipeline::Parsing(mut reader) => {
                self.decoder.finish(body_end, &mut *reader);
                reader.finish(why)
            }
        }
    }
}
