"""Reads, checks and writes the tool calls of language models, in any dialect, while they stream.

Everything is in Rust; this module adds only iteration, ``asyncio`` and exceptions for faulty calls.
"""

from __future__ import annotations

import uuid

from ._sabir import (
    EditError,
    OpenAIDeltas,
    Reader,
    SabirError,
    __version__,
    decode,
    detect,
    dialects,
    edit,
    explain,
    guess_tools,
    lint,
    parse,
    prompt,
    render,
    render_result,
)
from ._sabir import check as _check

__all__ = [
    "CallError",
    "EditError",
    "OpenAIDeltas",
    "Reader",
    "SabirError",
    "__version__",
    "check",
    "decode",
    "detect",
    "dialects",
    "edit",
    "explain",
    "guess_tools",
    "lint",
    "parse",
    "prompt",
    "read",
    "read_async",
    "render",
    "render_result",
    "to_openai_deltas",
    "to_openai_deltas_async",
]


class CallError(SabirError):
    """A message whose calls must not run.

    ``faults`` lists every fault with its position, ``span`` is that of the first error, and ``feedback`` is the text
    that tells the model what to correct.
    """

    def __init__(self, report):
        errors = [fault for fault in report["faults"] if fault["severity"] == "error"]
        super().__init__("\n".join(fault["diagnostic"] for fault in errors) or "the message is not understood")
        self.code = "faulty_calls"
        self.message = str(self)
        self.span = tuple(errors[0]["span"]) if errors else None
        self.faults = report["faults"]
        self.feedback = report["feedback"]

    def __reduce__(self):
        # `args` holds the message, but the constructor takes a report.
        return type(self), ({"faults": self.faults, "feedback": self.feedback},), self.__dict__


def check(text, dialect="auto", tools=None, *, strict=False, **options):
    """Checks the calls of a whole message; with ``strict`` raises `CallError` unless all of them may run."""
    report = _check(text, dialect, tools, **options)
    if strict and not report["ok"]:
        raise CallError(report)
    return report


def _end_reason(reason):
    """Returns the reason why a text has ended, which a function may know only now."""
    return (reason() if callable(reason) else reason) or "ended"


def read(chunks, dialect="auto", tools=None, *, reason=None, **options):
    """Yields the events of chunks, which may be ``str`` or ``bytes``. If the source fails, an open call is cut and the error passes on.

    ``reason`` says why the text ended, as in `Reader.finish`: a word, or a function that returns it when the chunks have ended.
    """
    reader = Reader(dialect, tools, **options)
    try:
        for chunk in chunks:
            yield from reader.push(chunk)
    except Exception:
        yield from reader.finish("broken")
        raise
    yield from reader.finish(_end_reason(reason))


async def read_async(chunks, dialect="auto", tools=None, *, reason=None, **options):
    """Does the same as `read` for chunks that arrive asynchronously."""
    reader = Reader(dialect, tools, **options)
    try:
        async for chunk in chunks:
            for event in reader.push(chunk):
                yield event
    except Exception:
        for event in reader.finish("broken"):
            yield event
        raise
    for event in reader.finish(_end_reason(reason)):
        yield event


def _new_id_prefix():
    return "call_" + uuid.uuid4().hex[:16] + "_"


def to_openai_deltas(chunks, dialect="auto", tools=None, *, reason=None, **options):
    """Yields choices of OpenAI's Chat Completions: ``{"index": 0, "delta": …, "finish_reason": None}``, the last with its reason.

    ``reason`` is as in `read`. With ``"limit"`` the last finish reason is ``length``.
    """
    options.setdefault("id_prefix", _new_id_prefix())
    stream = OpenAIDeltas(dialect, tools, **options)
    for chunk in chunks:
        for delta in stream.push(chunk):
            yield {"index": 0, "delta": delta, "finish_reason": None}
    yield from _last_choices(stream.finish(_end_reason(reason)))


async def to_openai_deltas_async(chunks, dialect="auto", tools=None, *, reason=None, **options):
    """Does the same as `to_openai_deltas` for chunks that arrive asynchronously."""
    options.setdefault("id_prefix", _new_id_prefix())
    stream = OpenAIDeltas(dialect, tools, **options)
    async for chunk in chunks:
        for delta in stream.push(chunk):
            yield {"index": 0, "delta": delta, "finish_reason": None}
    for choice in _last_choices(stream.finish(_end_reason(reason))):
        yield choice


def _last_choices(end):
    for delta in end["deltas"]:
        yield {"index": 0, "delta": delta, "finish_reason": None}
    yield {"index": 0, "delta": {}, "finish_reason": end["finish_reason"]}
