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
import httpx
import httpx2
import ollama
import openai

folder, gateway, back, token = Path(sys.argv[1]), *sys.argv[2:5]
only = sys.argv[5] if len(sys.argv) > 5 else ""
script = {name: replies[-1] for name, replies in json.loads((folder / "matrix.json").read_text()).items()}
models = json.loads((folder / "models.json").read_text())
picture = json.loads((folder / "picture.json").read_text())
picture["url"] = "data:image/png;base64," + picture["data"]

TEXT = {"type": "string"}
TOOLS = {
    "read_file": {"path": TEXT, "lines": {"type": "array", "items": {"type": "integer"}}, "all": {"type": "boolean"}},
    "write_file": {"path": TEXT, "content": TEXT},
    "now": {},
}
SCHEMAS = {name: {"type": "object", "properties": properties} for name, properties in TOOLS.items()}
# Wires that take a picture by its address.
ADDRESSED = ("anthropic", "openai-chat", "openai-responses")
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
    thought: str = ""


def overheard(http):
    """A transport of that HTTP library that keeps what came over it last: there the report of what was done stands."""

    class Kept(http.SyncByteStream):
        def __init__(self, stream, pieces):
            self.stream, self.pieces = stream, pieces

        def __iter__(self):
            for piece in self.stream:
                self.pieces.append(piece)
                yield piece

        def close(self):
            self.stream.close()

    class Line(http.HTTPTransport):
        headers, pieces = {}, []

        def handle_request(self, request):
            request.headers["sabir-report"] = "1"
            response = super().handle_request(request)
            self.headers, self.pieces = response.headers, []
            response.stream = Kept(response.stream, self.pieces)
            return response

        def report(self):
            """In a header, or in a comment at the end of a stream."""
            comment = b"".join(self.pieces).decode().partition(": sabir-report ")[2].partition("\n")[0]
            return self.headers.get("sabir-report") or comment

    return Line()


def content(words, text, image):
    """A message's content: words, or words with a picture of that spelling."""
    if words not in ("image", "address"):
        return words
    return [{"type": text, "text": words}, image(picture["url"] if words == "image" else picture["address"])]


class Chat:
    """OpenAI Chat Completions, by `openai`."""

    name, package = "openai chat", "openai"
    limited = openai.RateLimitError
    stops = ("stop", "tool_calls")
    base = openai.APIError

    def __init__(self):
        self.line = overheard(httpx)
        self.client = openai.OpenAI(base_url=gateway + "/v1", api_key=token, max_retries=0, http_client=httpx.Client(transport=self.line, timeout=60))
        self.tools = [{"type": "function", "function": {"name": n, "description": "Does it.", "parameters": s}} for n, s in SCHEMAS.items()]

    def asking(self, model, words):
        said = content(words, "text", lambda url: {"type": "image_url", "image_url": {"url": url}})
        return {"model": model, "messages": [{"role": "user", "content": said}], "tools": self.tools}

    def seen(self, done, pieces=None):
        choice = done.choices[0]
        found = choice.message.tool_calls or []
        calls = [(c.function.name, json.loads(c.function.arguments)) for c in found]
        usage = (done.usage.prompt_tokens, done.usage.completion_tokens)
        thought = getattr(choice.message, "reasoning_content", None) or ""
        return Seen(choice.message.content or "", calls, [c.id for c in found], choice.finish_reason, usage, pieces, thought)

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
    limited = openai.RateLimitError
    stops = ("completed", "completed")
    # The client's accumulator has no event for errors and says that none came to an end.
    base = (openai.APIError, RuntimeError)

    def __init__(self):
        self.line = overheard(httpx)
        self.client = openai.OpenAI(base_url=gateway + "/v1", api_key=token, max_retries=0, http_client=httpx.Client(transport=self.line, timeout=60))
        self.tools = [{"type": "function", "name": n, "description": "Does it.", "parameters": s, "strict": False} for n, s in SCHEMAS.items()]

    def asking(self, model, words):
        said = content(words, "input_text", lambda url: {"type": "input_image", "detail": "auto", "image_url": url})
        return {"model": model, "input": [{"role": "user", "content": said}], "tools": self.tools}

    def seen(self, done, pieces=None):
        found = [item for item in done.output if item.type == "function_call"]
        calls = [(c.name, json.loads(c.arguments)) for c in found]
        usage = (done.usage.input_tokens, done.usage.output_tokens)
        thought = "".join(part.text for item in done.output if item.type == "reasoning" for part in item.summary)
        return Seen(done.output_text, calls, [c.call_id for c in found], done.status, usage, pieces, thought)

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
    limited = anthropic.RateLimitError
    stops = ("end_turn", "tool_use")
    base = anthropic.APIError

    def __init__(self):
        self.line = overheard(httpx2)
        self.client = anthropic.Anthropic(base_url=gateway, api_key=token, max_retries=0, http_client=httpx2.Client(transport=self.line, timeout=60))
        self.tools = [{"name": n, "description": "Does it.", "input_schema": s} for n, s in SCHEMAS.items()]

    def asking(self, model, words):
        said = content(words, "text", self.image)
        return {"model": model, "messages": [{"role": "user", "content": said}], "tools": self.tools, "max_tokens": 999}

    def image(self, url):
        base64 = {"type": "base64", "media_type": "image/png", "data": picture["data"]}
        return {"type": "image", "source": base64 if url.startswith("data:") else {"type": "url", "url": url}}

    def seen(self, done, pieces=None):
        found = [block for block in done.content if block.type == "tool_use"]
        text = "".join(block.text for block in done.content if block.type == "text")
        usage = (done.usage.input_tokens, done.usage.output_tokens)
        thought = "".join(block.thinking for block in done.content if block.type == "thinking")
        return Seen(text, [(c.name, c.input) for c in found], [c.id for c in found], done.stop_reason, usage, pieces, thought)

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
    limited = ollama.ResponseError
    stops = ("stop", "stop")
    base = ollama.ResponseError

    def __init__(self):
        self.line = overheard(httpx)
        self.client = ollama.Client(host=gateway, headers={"Authorization": f"Bearer {token}"}, transport=self.line)
        self.tools = [{"type": "function", "function": {"name": n, "description": "Does it.", "parameters": s}} for n, s in SCHEMAS.items()]

    def asking(self, model, words):
        images = {"images": [picture["data"]]} if words == "image" else {}
        return {"model": model, "messages": [{"role": "user", "content": words, **images}], "tools": self.tools}

    def seen(self, chunks):
        calls = [call.function for chunk in chunks for call in chunk.message.tool_calls or []]
        last = chunks[-1]
        text = "".join(chunk.message.content or "" for chunk in chunks)
        found = [(c.name, json.loads(json.dumps(dict(c.arguments)))) for c in calls]
        thought = "".join(chunk.message.thinking or "" for chunk in chunks)
        return Seen(text, found, [], last.done_reason, (last.prompt_eval_count, last.eval_count), thought=thought)

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
    compare(seen.usage, (24, 10) if case == "retry" else (12, 5), "usage")
    compare(seen.thought, "".join(part["text"] for part in say if part["type"] == "thought"), "thought")
    # A stream of lines has no room for a report.
    if case == "retry" and (client.name, way) != ("ollama", "stream"):
        compare("asked_again=1" in client.line.report(), True, f"a second asking in the report ({client.line.report()})")
    if seen.ids:
        compare(len(set(seen.ids)), len(calls), "different ids")
        if row["mode"] == "native" and row["back"] in WITH_IDS:
            compare(seen.ids, [part["id"] for part in say if part["type"] == "call"], "ids")
    if case == "big" and seen.pieces is not None and not (row["mode"] == "native" and row["back"] in ("gemini", "ollama")):
        compare(seen.pieces > 100, True, f"more than 100 pieces of arguments ({seen.pieces})")


def passed(client, row, case, way):
    """What a model calls text goes through as text."""
    seen = getattr(client, way)(row["model"], case)
    compare((seen.calls, seen.stop, seen.usage), ([], client.stops[0], (12, 5)), "calls, stop and usage")
    say = script[case]["say"]
    for part in say:
        mark = part["text"] if part["type"] == "text" else f"<function={part['name']}>"
        compare(seen.text.count(mark), 1, f"{mark} in {seen.text}")


def limited(client, row, case, way):
    """The client's own error for this, so that its own retries work."""
    try:
        seen = getattr(client, way)(row["model"], case)
    except client.limited as error:
        compare(status_of(error), 429, "status")
        return
    raise AssertionError(f"no error, but {seen}"[:200])


def addressed(client, row, case, way):
    """An address goes to wires that take one, and is refused at others."""
    if row["back"] in ADDRESSED:
        return answered(client, row, case, way)
    try:
        seen = getattr(client, way)(row["model"], case)
    except client.base as error:
        compare(status_of(error), 400, "status")
        # By the gateway: a back end that was asked without the address says what it wanted.
        compare("wants a request with" in str(error), False, f"the back end's words in {error}")
        return
    raise AssertionError(f"no error, but {seen}"[:200])


def failed(client, row, case, way):
    """An error has to be the client's own, with the words or the status that say what it was."""
    try:
        seen = getattr(client, way)(row["model"], case)
    except client.base as error:
        status = status_of(error)
        if case == "refused":
            compare(status, 400, "status")
        elif way == "whole":
            compare(status in (500, 502, 503, 529), True, f"a status of the provider's ({status})")
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


JUDGES = {"cancel": cancelled, "error": failed, "refused": failed, "cut": failed, "busy": limited, "address": addressed}


def cells(client):
    for row in models:
        for case in row["cases"]:
            # Ollama's clients send no addresses.
            if (client.name, case) == ("ollama", "address"):
                continue
            judge = passed if row["mode"] == "pass" else JUDGES.get(case, answered)
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
