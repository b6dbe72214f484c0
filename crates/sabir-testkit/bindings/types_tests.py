"""Checked by mypy, not run: uses of the package that its types must accept, and, marked with ``type: ignore``, those that they must refuse.

A mark that is not needed is an error (``--warn-unused-ignores``), so a refusal that is lost is noticed.
"""

from typing import AsyncIterator, List, Optional

import sabir
from sabir.types import EndReason, Event, Part


def accepted(chunks: List[bytes]) -> Optional[str]:
    reader = sabir.Reader("auto", ({"name": "look"},), marks=True, repairs=[("trailing_comma", False)])
    events: List[Event] = reader.push(bytearray(b"a")) + reader.finish("limit")
    for event in events:
        if event["event"] == "arg_delta":
            print(event["index"], event["text"].upper())
        elif event["event"] == "fault":
            print(event["message"], event["span"][0])
    part: Part
    for part in sabir.parse("", prefill="<think>")["parts"]:
        if part["type"] == "call":
            print(part["arguments"], part["state"] == "complete")
    for choice in sabir.to_openai_deltas(["a"], reason=lambda: "limit", whole_calls=True):
        for call in choice["delta"].get("tool_calls", []):
            print(call["function"]["arguments"])
    reason: EndReason = "broken"
    list(sabir.read(chunks, reason=reason))
    print(sabir.check("", strict=True)["faults"][0]["diagnostic"], sabir.detect("")["wire"], sabir.lint([])["errors"])
    print(sabir.edit("", "", "patch")["hunks"][0]["level"], sabir.decode(b"", "gemini")["failed"], sabir.dialects()[0]["aliases"])
    return sabir.parse("")["feedback"]


async def accepted_async(chunks: AsyncIterator[bytes]) -> None:
    async for event in sabir.read_async(chunks, single_call=True):
        print(event["event"])


def refused() -> None:
    for event in sabir.read([""]):
        print(event["evnt"])  # type: ignore[typeddict-item]
        if event["event"] == "text":
            print(event["index"])  # type: ignore[typeddict-item]
    sabir.parse("")["part"]  # type: ignore[typeddict-item]
    sabir.parse("", strict=True)  # type: ignore[call-arg]
    sabir.check("", dialets=[])  # type: ignore[call-arg]
    sabir.parse("", marks="yes")  # type: ignore[arg-type]
    sabir.parse(5)  # type: ignore[arg-type]
    sabir.Reader().finish("length")  # type: ignore[arg-type]
    sabir.decode("", "openai")  # type: ignore[arg-type]
    sabir.edit("", "", "diff")  # type: ignore[arg-type]
    sabir.to_openai_deltas([""], reason="length")  # type: ignore[arg-type]
