"""The shapes of what the functions take and return, for type checkers. At run time they are plain dictionaries."""

from typing import Any, Dict, List, Literal, Optional, Sequence, Tuple, TypedDict, Union

EndReason = Literal["ended", "limit", "broken", "cancelled"]
Wire = Literal["auto", "anthropic", "openai-chat", "openai-responses", "gemini", "ollama", "bedrock"]
EditFormat = Literal["auto", "search-replace", "patch", "string-replace", "whole"]
Severity = Literal["error", "warning"]
Form = Literal["raw", "string", "json"]
CallState = Literal["complete", "rejected", "cut"]
FinishReason = Literal["stop", "tool_calls", "length"]
# A start and an end in bytes: a list of two numbers.
Span = List[int]
Json = Dict[str, Any]


class ReadOptions(TypedDict, total=False):
    """Options of all functions that read a text."""

    prefill: str
    closes_last_call: bool
    single_call: bool
    marks: bool
    dialects: Sequence[Json]
    repairs: Sequence[Tuple[str, bool]]


class DeltaOptions(ReadOptions, total=False):
    """Options of what makes deltas."""

    whole_calls: bool
    id_prefix: str


class TextEvent(TypedDict):
    event: Literal["text"]
    text: str


class ThoughtEvent(TypedDict):
    event: Literal["thought"]
    text: str


class MarkEvent(TypedDict):
    event: Literal["mark"]
    role: str
    dialect: Optional[str]
    span: Span
    sure: str
    rule: str


class CallStartEvent(TypedDict):
    event: Literal["call_start"]
    index: int
    id: Optional[str]
    name: str
    dialect: Optional[str]
    at: int
    name_at: int


class ArgStartEvent(TypedDict):
    event: Literal["arg_start"]
    index: int
    name: str
    form: Form
    at: int


class ArgDeltaEvent(TypedDict):
    event: Literal["arg_delta"]
    index: int
    text: str


class ArgEndEvent(TypedDict):
    event: Literal["arg_end"]
    index: int
    lead: str
    at: int


class CallEndEvent(TypedDict):
    event: Literal["call_end"]
    index: int
    at: int


class CallCutEvent(TypedDict):
    event: Literal["call_cut"]
    index: int
    why: EndReason
    at: int


class CallFault(TypedDict):
    """A fault without its line and column."""

    kind: str
    severity: Severity
    call: Optional[int]
    argument: Optional[str]
    span: Span
    origin: Literal["text", "arguments"]
    message: str
    hint: Optional[str]


class FaultEvent(CallFault):
    event: Literal["fault"]


Event = Union[
    TextEvent,
    ThoughtEvent,
    MarkEvent,
    CallStartEvent,
    ArgStartEvent,
    ArgDeltaEvent,
    ArgEndEvent,
    CallEndEvent,
    CallCutEvent,
    FaultEvent,
]


class Fault(TypedDict):
    kind: str
    severity: Severity
    call: Optional[int]
    argument: Optional[str]
    line: int
    column: int
    span: Span
    message: str
    hint: Optional[str]


class DiagnosedFault(Fault):
    diagnostic: str


class Repair(TypedDict):
    rule: str
    span: Span
    before: str
    after: str


class Evidence(TypedDict):
    sure: str
    rule: str


class TextPart(TypedDict):
    type: Literal["text"]
    text: str


class ThoughtPart(TypedDict):
    type: Literal["thought"]
    text: str


class CallPart(TypedDict):
    type: Literal["call"]
    name: str
    id: Optional[str]
    dialect: Optional[str]
    state: CallState
    arguments: Json
    span: Optional[Span]
    repairs: List[Repair]
    how: Optional[Evidence]


Part = Union[TextPart, ThoughtPart, CallPart]


class ParseReport(TypedDict):
    dialect: str
    parts: List[Part]
    faults: List[Fault]
    feedback: Optional[str]


class DecodeReport(ParseReport):
    usage: Optional[Json]
    stop: Optional[Json]
    ended: bool
    error: Optional[Any]
    skipped: int
    failed: bool


class CheckedCall(TypedDict):
    index: int
    name: str
    arguments: Json
    state: CallState
    faults: List[CallFault]
    repairs: List[Repair]


class CheckReport(TypedDict):
    ok: bool
    calls: List[CheckedCall]
    faults: List[DiagnosedFault]
    feedback: Optional[str]


class FoundDialect(TypedDict):
    dialect: str
    calls: int


class ExplainedMark(TypedDict):
    line: int
    column: int
    span: Span
    source: str
    role: str
    argument: Optional[str]
    call: Optional[int]
    dialect: Optional[str]
    sure: str
    rule: str


class ExplainReport(TypedDict):
    dialect: str
    found: List[FoundDialect]
    marks: List[ExplainedMark]
    calls: List[Json]


class DetectedDialect(FoundDialect):
    sure: Optional[str]


class DetectReport(TypedDict):
    dialects: List[DetectedDialect]
    wire: Optional[str]


class GuessedTool(TypedDict):
    name: str
    description: str
    parameters: Json


class Finding(TypedDict):
    lint: str
    severity: Severity
    tool: Optional[str]
    pointer: str
    dialects: List[str]
    message: str
    hint: Optional[str]


class LintReport(TypedDict):
    findings: List[Finding]
    errors: int
    warnings: int
    prompt_sizes: Dict[str, int]


class Hunk(TypedDict):
    block: int
    level: str
    old_line: int
    old_lines: int
    new_line: int
    new_lines: int


class EditReport(TypedDict):
    status: str
    content: str
    faults: List[Json]
    hunks: List[Hunk]
    moved_to: Optional[str]
    files: List[Json]


class EditProblem(TypedDict):
    kind: str
    line: int
    message: str
    hint: Optional[str]
    block: Optional[int]
    lines: List[Any]


class KnownDialect(TypedDict):
    name: str
    aliases: List[str]
    summary: str
    defined: bool
    machine: str
    tags: List[str]
    markers: List[str]


class DeltaFunction(TypedDict, total=False):
    name: str
    arguments: str


class DeltaCall(TypedDict, total=False):
    index: int
    id: str
    type: Literal["function"]
    function: DeltaFunction


class Delta(TypedDict, total=False):
    content: str
    reasoning_content: str
    tool_calls: List[DeltaCall]


class DeltaEnd(TypedDict):
    deltas: List[Delta]
    finish_reason: FinishReason
    call_indexes: List[int]
    faults: List[CallFault]


class Choice(TypedDict):
    index: int
    delta: Delta
    finish_reason: Optional[FinishReason]


class CallToRender(TypedDict, total=False):
    name: str
    arguments: Json
