from typing import Any, AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from typing_extensions import Unpack

from .types import (
    CallToRender,
    CheckReport,
    Choice,
    DecodeReport,
    Delta,
    DeltaEnd,
    DeltaOptions,
    DetectReport,
    DiagnosedFault,
    EditFormat,
    EditProblem,
    EditReport,
    EndReason,
    Event,
    ExplainReport,
    GuessedTool,
    KnownDialect,
    LintReport,
    ParseReport,
    ReadOptions,
    Wire,
)

__version__: str

_Text = Union[str, bytes, bytearray]
# An array of tools, an object that holds one, or the JSON of either.
_Tools = Union[str, Sequence[Any], Mapping[str, Any], None]
# Why a text ended: a word, or a function that returns it when the chunks have ended.
_Reason = Union[EndReason, Callable[[], Optional[EndReason]], None]

class SabirError(ValueError):
    code: str
    message: str
    span: Optional[Tuple[int, int]]

class EditError(SabirError):
    problems: List[EditProblem]

class CallError(SabirError):
    faults: List[DiagnosedFault]
    feedback: Optional[str]

class Reader:
    def __init__(self, dialect: str = "auto", tools: _Tools = None, **options: Unpack[ReadOptions]) -> None: ...
    def push(self, chunk: _Text) -> List[Event]: ...
    def finish(self, reason: EndReason = "ended") -> List[Event]: ...
    def next_reader(self) -> Reader: ...

class OpenAIDeltas:
    def __init__(self, dialect: str = "auto", tools: _Tools = None, **options: Unpack[DeltaOptions]) -> None: ...
    def push(self, chunk: str) -> List[Delta]: ...
    def finish(self, reason: EndReason = "ended") -> DeltaEnd: ...

def parse(text: _Text, dialect: str = "auto", tools: _Tools = None, **options: Unpack[ReadOptions]) -> ParseReport: ...
def check(
    text: _Text, dialect: str = "auto", tools: _Tools = None, *, strict: bool = False, **options: Unpack[ReadOptions]
) -> CheckReport: ...
def explain(text: _Text, dialect: str = "auto", tools: _Tools = None, **options: Unpack[ReadOptions]) -> ExplainReport: ...
def detect(text: _Text, tools: _Tools = None) -> DetectReport: ...
def guess_tools(text: _Text) -> List[GuessedTool]: ...
def decode(body: _Text, wire: Wire = "auto", tools: _Tools = None) -> DecodeReport: ...
def render(calls: Union[str, Sequence[CallToRender]], dialect: str, tools: _Tools = None) -> str: ...
def render_result(name: str, content: str, is_error: bool = False) -> str: ...
def prompt(dialect: str, tools: _Tools = None, **options: Unpack[ReadOptions]) -> str: ...
def lint(tools: _Tools, dialect: str = "auto") -> LintReport: ...
def edit(text: str, edit: str, format: EditFormat = "auto") -> EditReport: ...
def dialects() -> List[KnownDialect]: ...
def read(
    chunks: Iterable[_Text], dialect: str = "auto", tools: _Tools = None, *, reason: _Reason = None, **options: Unpack[ReadOptions]
) -> Iterator[Event]: ...
def read_async(
    chunks: AsyncIterable[_Text], dialect: str = "auto", tools: _Tools = None, *, reason: _Reason = None, **options: Unpack[ReadOptions]
) -> AsyncIterator[Event]: ...
def to_openai_deltas(
    chunks: Iterable[str], dialect: str = "auto", tools: _Tools = None, *, reason: _Reason = None, **options: Unpack[DeltaOptions]
) -> Iterator[Choice]: ...
def to_openai_deltas_async(
    chunks: AsyncIterable[str], dialect: str = "auto", tools: _Tools = None, *, reason: _Reason = None, **options: Unpack[DeltaOptions]
) -> AsyncIterator[Choice]: ...
