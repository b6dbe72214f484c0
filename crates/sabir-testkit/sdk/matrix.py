"""The official Python clients through the gateway: every back end, mode and case, streamed and whole.

Usage: matrix.py FOLDER GATEWAY BACK TOKEN [WORD]. Writes FOLDER/python.json: a list of `[client, back, mode, case, way, why]`,
where `why` is null or what is wrong. With WORD only cells that hold it are asked.
"""
import json
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import anthropic
import ollama
import openai

folder, gateway, back, token = Path(sys.argv[1]), *sys.argv[2:5]
only = sys.argv[5] if len(sys.argv) > 5 else ""
script = {name: replies[0] for name, replies in json.loads((folder / "matrix.json").read_text()).items()}
models = json.loads((folder / "models.json").read_text())

TEXT = {"type": "string"}
TOOLS = {
    "read_file": {"path": TEXT, "lines": {"type": "array", "items": {"type": "integer"}}, "all": {"type": "boolean"}},
    "write_file": {"path": TEXT, "content": TEXT},
    "now": {},
}
SCHEMAS = {name: {"type": "object", "properties": properties} for name, properties in TOOLS.items()}
WITH_IDS = ("anthropic", "openai-chat", "openai-responses", "bedrock")


@dataclass
class Seen:
    """An answer, as the client's own objects tell it."""

    text: str = ""
    calls: list = field(default_factory=list)
    ids: list = field(default_factory=list)
    stop: object = None
    usage: tuple = ()
    # Pieces in which arguments came; None: the wire gives them whole.
    pieces: int | None = None


class Chat:
    """OpenAI Chat Completions, by `openai`."""

    name, package = "openai chat", "openai"
    stops = ("stop", "tool_calls")
    base = openai.APIError

    def __init__(self):
        self.client = openai.OpenAI(base_url=gateway + "/v1", api_key=token, max_retries=0)
        self.tools = [{"type": "function", "function": {"name": n, "description": "Does it.", "parameters": s}} for n, s in SCHEMAS.items()]

    def asking(self, model, words):
        return {"model": model, "messages": [{"role": "user", "content": words}], "tools": self.tools}

    def seen(self, done, pieces=None):
        choice = done.choices[0]
        found = choice.message.tool_calls or []
        calls = [(c.function.name, json.loads(c.function.arguments)) for c in found]
        usage = (done.usage.prompt_tokens, done.usage.completion_tokens)
        return Seen(choice.message.content or "", calls, [c.id for c in found], choice.finish_reason, usage, pieces)

    def whole(self, model, words):
        return self.seen(self.client.chat.completions.create(**self.asking(model, words)))

    def stream(self, model, words):
        pieces = 0
        with self.client.chat.completions.stream(**self.asking(model, words), stream_options={"include_usage": True}) as stream:
            for event in stream:
                pieces += event.type == "tool_calls.function.arguments.delta"
            return self.seen(stream.get_final_completion(), pieces)

    def leave(self, model, words):
        stream = self.client.chat.completions.create(**self.asking(model, words), stream=True)
        next(chunk for chunk in stream if chunk.choices and chunk.choices[0].delta.content)
        stream.close()


class Responses:
    """OpenAI Responses, by `openai`."""

    name, package = "openai responses", "openai"
    stops = ("completed", "completed")
    # The client's accumulator has no event for errors and says that none came to an end.
    base = (openai.APIError, RuntimeError)

    def __init__(self):
        self.client = openai.OpenAI(base_url=gateway + "/v1", api_key=token, max_retries=0)
        self.tools = [{"type": "function", "name": n, "description": "Does it.", "parameters": s, "strict": False} for n, s in SCHEMAS.items()]

    def asking(self, model, words):
        return {"model": model, "input": words, "tools": self.tools}

    def seen(self, done, pieces=None):
        found = [item for item in done.output if item.type == "function_call"]
        calls = [(c.name, json.loads(c.arguments)) for c in found]
        return Seen(done.output_text, calls, [c.call_id for c in found], done.status, (done.usage.input_tokens, done.usage.output_tokens), pieces)

    def whole(self, model, words):
        return self.seen(self.client.responses.create(**self.asking(model, words)))

    def stream(self, model, words):
        pieces = 0
        with self.client.responses.stream(**self.asking(model, words)) as stream:
            for event in stream:
                pieces += event.type == "response.function_call_arguments.delta"
            return self.seen(stream.get_final_response(), pieces)

    def leave(self, model, words):
        stream = self.client.responses.create(**self.asking(model, words), stream=True)
        next(event for event in stream if event.type == "response.output_text.delta")
        stream.close()


class Messages:
    """Anthropic Messages, by `anthropic`."""

    name, package = "anthropic", "anthropic"
    stops = ("end_turn", "tool_use")
    base = anthropic.APIError

    def __init__(self):
        self.client = anthropic.Anthropic(base_url=gateway, api_key=token, max_retries=0)
        self.tools = [{"name": n, "description": "Does it.", "input_schema": s} for n, s in SCHEMAS.items()]

    def asking(self, model, words):
        return {"model": model, "messages": [{"role": "user", "content": words}], "tools": self.tools, "max_tokens": 999}

    def seen(self, done, pieces=None):
        found = [block for block in done.content if block.type == "tool_use"]
        text = "".join(block.text for block in done.content if block.type == "text")
        usage = (done.usage.input_tokens, done.usage.output_tokens)
        return Seen(text, [(c.name, c.input) for c in found], [c.id for c in found], done.stop_reason, usage, pieces)

    def whole(self, model, words):
        return self.seen(self.client.messages.create(**self.asking(model, words)))

    def stream(self, model, words):
        pieces = 0
        with self.client.messages.stream(**self.asking(model, words)) as stream:
            for event in stream:
                pieces += event.type == "content_block_delta" and event.delta.type == "input_json_delta"
            return self.seen(stream.get_final_message(), pieces)

    def leave(self, model, words):
        stream = self.client.messages.create(**self.asking(model, words), stream=True)
        next(event for event in stream if event.type == "content_block_delta")
        stream.close()


class Ollama:
    """Ollama, by `ollama`. Its calls have no ids, and its stop reason does not tell of calls."""

    name, package = "ollama", "ollama"
    stops = ("stop", "stop")
    base = ollama.ResponseError

    def __init__(self):
        self.client = ollama.Client(host=gateway, headers={"Authorization": f"Bearer {token}"})
        self.tools = [{"type": "function", "function": {"name": n, "description": "Does it.", "parameters": s}} for n, s in SCHEMAS.items()]

    def asking(self, model, words):
        return {"model": model, "messages": [{"role": "user", "content": words}], "tools": self.tools}

    def seen(self, chunks):
        calls = [call.function for chunk in chunks for call in chunk.message.tool_calls or []]
        last = chunks[-1]
        text = "".join(chunk.message.content or "" for chunk in chunks)
        found = [(c.name, json.loads(json.dumps(dict(c.arguments)))) for c in calls]
        return Seen(text, found, [], last.done_reason, (last.prompt_eval_count, last.eval_count))

    def whole(self, model, words):
        return self.seen([self.client.chat(**self.asking(model, words))])

    def stream(self, model, words):
        return self.seen(list(self.client.chat(**self.asking(model, words), stream=True)))

    def leave(self, model, words):
        stream = self.client.chat(**self.asking(model, words), stream=True)
        next(chunk for chunk in stream if chunk.message.content)
        stream.close()


def status_of(error):
    return getattr(error, "status_code", None)


def compare(found, expected, what):
    if found != expected:
        raise AssertionError(f"{what}: found {str(found)[:200]!r}, expected {str(expected)[:200]!r}")


def answered(client, row, case, way):
    """What a proper answer must be."""
    seen = getattr(client, way)(row["model"], case)
    say = script[case]["say"]
    words = "".join(part["text"] for part in say if part["type"] == "text")
    calls = [(part["name"], part["arguments"]) for part in say if part["type"] == "call"]
    compare(seen.calls, calls, "calls")
    # A model that writes its calls as words puts a line feed before them.
    compare(seen.text if row["mode"] == "native" else seen.text.removesuffix("\n"), words, "text")
    compare(seen.stop, client.stops[bool(calls)], "stop")
    compare(seen.usage, (12, 5), "usage")
    if seen.ids:
        compare(len(set(seen.ids)), len(calls), "different ids")
        if row["mode"] == "native" and row["back"] in WITH_IDS:
            compare(seen.ids, [part["id"] for part in say if part["type"] == "call"], "ids")
    if case == "big" and seen.pieces is not None and not (row["mode"] == "native" and row["back"] in ("gemini", "ollama")):
        compare(seen.pieces > 100, True, f"more than 100 pieces of arguments ({seen.pieces})")


def failed(client, row, case, way):
    """An error has to be the client's own, with the words or the status that say what it was."""
    try:
        seen = getattr(client, way)(row["model"], case)
    except client.base as error:
        status = status_of(error)
        if case == "refused":
            compare(status, 400, "status")
        elif way == "whole":
            compare(status in (502, 503, 529), True, f"a status of the provider's ({status})")
        if case == "error" and not isinstance(error, RuntimeError):
            compare("Overloaded" in str(error), True, f"the provider's words in {error}")
        return
    raise AssertionError(f"no error, but {seen}"[:200])


def cancelled(client, row, case, way):
    """The client leaves; then the gateway must leave its back end."""
    tag = f"{case} {client.name} {row['model']}"
    client.leave(row["model"], tag)
    for _ in range(250):
        if any(tag in left for left in json.loads(urllib.request.urlopen(back + "/left").read())):
            return
        time.sleep(0.02)
    raise AssertionError("the back end was not left within 5 s")


def cells(client):
    for row in models:
        for case in script:
            judge = cancelled if case == "cancel" else failed if case in ("error", "refused", "cut") else answered
            for way in ("stream",) if case == "cancel" else ("stream", "whole"):
                if only in f"{client.name}/{row['model']}/{case}/{way}":
                    yield row, case, way, judge


results = []
for client in (Chat(), Responses(), Messages(), Ollama()):
    label = f"{client.name} {version(client.package)} (PyPI)"
    for row, case, way, judge in cells(client):
        why = None
        try:
            judge(client, row, case, way)
        except Exception as error:  # whatever a client makes of it is what is looked for
            why = f"{type(error).__name__}: {error}"[:400]
        results.append([label, row["back"], row["mode"], case, way, why])
(folder / "python.json").write_text(json.dumps(results))
