from typing import Any, AsyncIterable, AsyncIterator, Dict, Iterable, Iterator, List, Optional, Tuple, Union

__version__: str

_Text = Union[str, bytes]
_Tools = Union[str, List[Any], Dict[str, Any], None]
_Object = Dict[str, Any]

class SabirError(ValueError):
    code: str
    message: str
    span: Optional[Tuple[int, int]]

class EditError(SabirError):
    problems: List[_Object]

class CallError(SabirError):
    faults: List[_Object]
    feedback: Optional[str]

class Reader:
    def __init__(
        self,
        dialect: str = "auto",
        tools: _Tools = None,
        *,
        prefill: str = "",
        closes_last_call: bool = False,
        single_call: bool = False,
        marks: bool = False,
        dialects: List[_Object] = ...,
        repairs: List[Tuple[str, bool]] = ...,
    ) -> None: ...
    def push(self, chunk: _Text) -> List[_Object]: ...
    def finish(self, reason: str = "ended") -> List[_Object]: ...
    def next_reader(self) -> Reader: ...

class OpenAIDeltas:
    def __init__(
        self,
        dialect: str = "auto",
        tools: _Tools = None,
        *,
        whole_calls: bool = False,
        id_prefix: str = "call_",
        prefill: str = "",
        closes_last_call: bool = False,
        single_call: bool = False,
        dialects: List[_Object] = ...,
        repairs: List[Tuple[str, bool]] = ...,
    ) -> None: ...
    def push(self, chunk: str) -> List[_Object]: ...
    def finish(self, reason: str = "ended") -> _Object: ...

def parse(text: _Text, dialect: str = "auto", tools: _Tools = None, **options: Any) -> _Object: ...
def check(
    text: _Text, dialect: str = "auto", tools: _Tools = None, *, strict: bool = False, **options: Any
) -> _Object: ...
def explain(text: _Text, dialect: str = "auto", tools: _Tools = None, **options: Any) -> _Object: ...
def detect(text: _Text, tools: _Tools = None) -> _Object: ...
def guess_tools(text: _Text) -> List[_Object]: ...
def decode(body: _Text, wire: str = "auto", tools: _Tools = None) -> _Object: ...
def render(calls: Union[str, List[_Object]], dialect: str, tools: _Tools = None) -> str: ...
def render_result(name: str, content: str, is_error: bool = False) -> str: ...
def prompt(dialect: str, tools: _Tools = None, **options: Any) -> str: ...
def lint(tools: _Tools, dialect: str = "auto") -> _Object: ...
def edit(text: str, edit: str, format: str = "auto") -> _Object: ...
def dialects() -> List[_Object]: ...
def read(chunks: Iterable[_Text], dialect: str = "auto", tools: _Tools = None, **options: Any) -> Iterator[_Object]: ...
def read_async(
    chunks: AsyncIterable[_Text], dialect: str = "auto", tools: _Tools = None, **options: Any
) -> AsyncIterator[_Object]: ...
def to_openai_deltas(
    chunks: Iterable[str], dialect: str = "auto", tools: _Tools = None, **options: Any
) -> Iterator[_Object]: ...
def to_openai_deltas_async(
    chunks: AsyncIterable[str], dialect: str = "auto", tools: _Tools = None, **options: Any
) -> AsyncIterator[_Object]: ...
