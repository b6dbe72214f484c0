"""Recorded answers of real providers, through the gateway, read by the official Python clients of each of its APIs.

Usage: recordings.py SABIR STREAMS FOLDER. Starts an upstream that answers with the recorded bytes and a gateway in front of it, asks for
each answer on each API, and compares what the client's own objects say with what `sabir wire decode` reads from the recording: text,
thoughts, calls with their arguments, and the reason why the answer ended. Every difference is listed in FOLDER/recordings.md under the
reason that explains it; one that no reason explains fails the run.
"""
import base64
import json
import re
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path

import anthropic
import ollama
import openai
from google import genai

sabir, streams, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
TOKEN = "recordings-token"
WIRES = {
    "openai-chat-sse": "openai-chat",
    "openai-responses-sse": "openai-responses",
    "anthropic-sse": "anthropic",
    "gemini-sse": "gemini",
    "ollama-ndjson": "ollama",
    "bedrock-eventstream": "bedrock",
}
TYPES = {"ollama": "application/x-ndjson", "bedrock": "application/vnd.amazon.eventstream"}


@dataclass
class Recording:
    """A recorded answer."""

    id: int
    wire: str
    source: str
    body: bytes
    # The names of the tools that it calls.
    tools: list = field(default_factory=list)
    # What `sabir wire decode` reads.
    expected: object = None

    @property
    def model(self):
        return f"recording-{self.id}"


@dataclass
class Answer:
    """An answer as a client's own objects tell it."""

    text: str = ""
    thought: str = ""
    calls: list = field(default_factory=list)
    stop: str = ""
    # The error that the client raised.
    error: str = ""


def load_recordings():
    found = []
    for line in streams.open():
        row = json.loads(line)
        wire = WIRES.get(row["wire"])
        if wire is None:
            continue
        body = row["body"]
        if wire == "bedrock":
            try:
                data = base64.b64decode(body, validate=True)
            except ValueError:
                data = body.encode("latin-1", "replace")
        else:
            data = body.encode("utf-8", "surrogatepass")
        found.append(Recording(row["id"], wire, row["source"], data))
    return found


def decode(recording):
    """Fills in what the recording says, as Sabir's decoder reads it."""
    command = [sabir, "wire", "decode", "--wire", recording.wire, "--output", "json"]
    done = subprocess.run(command, input=recording.body, capture_output=True, timeout=60)
    try:
        value = json.loads(done.stdout)
    except ValueError:
        recording.expected = Answer(error=done.stderr.decode(errors="replace")[:200] or f"exit {done.returncode}")
        return recording
    answer = Answer(stop=(value.get("stop") or {}).get("reason", ""))
    for part in value["parts"]:
        match part["type"]:
            case "text":
                answer.text += part["text"]
            case "thought":
                answer.thought += part["text"]
            case "call":
                recording.tools.append(part["name"])
                if part["state"] == "complete":
                    answer.calls.append((part["name"], canonical(part.get("arguments") or {})))
                else:
                    answer.error = f"a call is {part['state']}"
    if value.get("error"):
        answer.error = value["error"] if isinstance(value["error"], str) else json.dumps(value["error"])
    recording.expected = answer
    return recording


def canonical(arguments):
    return json.dumps(arguments, sort_keys=True)


def serve(recordings):
    """Starts the upstream; it answers a request for a recording's model with its bytes."""
    by_model = {recording.model: recording for recording in recordings}

    class Upstream(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            named = next((part.split(":")[0] for part in self.path.split("/") if part.startswith("recording-")), None)
            recording = by_model[named or json.loads(body)["model"]]
            self.send_response(200)
            self.send_header("content-type", TYPES.get(recording.wire, "text/event-stream"))
            self.send_header("content-length", str(len(recording.body)))
            self.end_headers()
            self.wfile.write(recording.body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def start_gateway(recordings, upstream):
    rows = []
    for wire in sorted(set(WIRES.values())):
        base = upstream + ("/v1" if wire.startswith("openai") else "")
        rows.append(f'[providers.{wire}-back]\nbase_url = "{base}"\nwire = "{wire}"\nkey_env = "RECORDINGS_KEY"\nretries = 0\n')
    for recording in recordings:
        rows.append(f'[gateway.models.{recording.model}]\nto = "{recording.wire}-back/{recording.model}"\nprotocol = "native"\nfaulty_calls = "repair"\nretries = 0\n')
    config = folder / "recordings.toml"
    config.write_text("\n".join(rows))
    command = [sabir, "gateway", "--quiet", "--config", str(config), "--listen", "127.0.0.1:0", "--token", TOKEN, "--log", "off"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=(folder / "recordings.log").open("w"), text=True, env={"RECORDINGS_KEY": "k", "HOME": str(folder), "PATH": "/usr/bin:/bin"})
    for line in process.stdout:
        if "http://" in line:
            return process, "http://" + line.split("http://")[1].split()[0].rstrip("/")
    sys.exit(f"the gateway did not start: {(folder / 'recordings.log').read_text()[:500]}")


class Chat:
    """OpenAI Chat Completions, by `openai`."""

    name = "openai-chat"
    stops = {"stop": "end", "tool_calls": "calls", "length": "length", "content_filter": "filtered"}

    def __init__(self, gateway):
        self.client = openai.OpenAI(base_url=gateway + "/v1", api_key=TOKEN, max_retries=0, timeout=60)

    def ask(self, model, tools):
        answer, calls = Answer(), {}
        more = {"tools": [{"type": "function", "function": tool} for tool in tools]} if tools else {}
        messages = [{"role": "user", "content": "Go on."}]
        with self.client.chat.completions.stream(model=model, messages=messages, **more) as stream:
            for event in stream:
                if event.type != "chunk":
                    continue
                for choice in event.chunk.choices:
                    answer.text += choice.delta.content or ""
                    # Both spellings are in use; on the same API each comes as its provider wrote it.
                    thought = getattr(choice.delta, "reasoning_content", None) or getattr(choice.delta, "reasoning", None)
                    answer.thought += thought or ""
                    for call in choice.delta.tool_calls or []:
                        one = calls.setdefault(call.index, ["", ""])
                        one[0] += call.function.name or ""
                        one[1] += call.function.arguments or ""
                    answer.stop = self.stops.get(choice.finish_reason, choice.finish_reason) or answer.stop
            stream.get_final_completion()
        answer.calls = [(name, canonical(json.loads(text))) for name, text in calls.values()]
        return answer


class Responses:
    """OpenAI Responses, by `openai`."""

    name = "openai-responses"

    def __init__(self, gateway):
        self.client = openai.OpenAI(base_url=gateway + "/v1", api_key=TOKEN, max_retries=0, timeout=60)

    def ask(self, model, tools):
        answer = Answer()
        more = {"tools": [{"type": "function", **tool, "strict": False} for tool in tools]} if tools else {}
        with self.client.responses.stream(model=model, input="Go on.", **more) as stream:
            last = None
            for event in stream:
                if event.type in ("response.completed", "response.incomplete", "response.failed"):
                    last = event.response
        if last is None:
            raise ValueError("the stream has no end")
        if last.error:
            raise ValueError(last.error.message)
        thoughts = []
        for item in last.output:
            match item.type:
                case "message":
                    for part in item.content:
                        answer.text += part.text if part.type == "output_text" else part.refusal
                case "reasoning":
                    thoughts += [part.text for part in item.summary or item.content or []]
                case "function_call":
                    answer.calls.append((item.name, canonical(json.loads(item.arguments))))
                case "custom_tool_call":
                    answer.calls.append((item.name, canonical({"input": item.input})))
        answer.thought = "\n\n".join(thoughts)
        why = last.incomplete_details.reason if last.incomplete_details else None
        ends = {"max_output_tokens": "length", "content_filter": "filtered"}
        answer.stop = ends.get(why) or ("calls" if answer.calls else "end")
        return answer


class Messages:
    """Anthropic Messages, by `anthropic`."""

    name = "anthropic"
    stops = {"end_turn": "end", "stop_sequence": "end", "tool_use": "calls", "max_tokens": "length", "refusal": "filtered", "pause_turn": "paused"}

    def __init__(self, gateway):
        self.client = anthropic.Anthropic(base_url=gateway, api_key=TOKEN, max_retries=0, timeout=60)

    def ask(self, model, tools):
        answer = Answer()
        more = {"tools": [{"name": tool["name"], "input_schema": tool["parameters"]} for tool in tools]} if tools else {}
        messages = [{"role": "user", "content": "Go on."}]
        with self.client.messages.stream(model=model, max_tokens=4000, messages=messages, **more) as stream:
            done = stream.get_final_message()
        for block in done.content:
            match block.type:
                case "text":
                    answer.text += block.text
                case "thinking":
                    answer.thought += block.thinking
                case "tool_use":
                    answer.calls.append((block.name, canonical(block.input)))
        answer.stop = self.stops.get(done.stop_reason, done.stop_reason)
        return answer


class Gemini:
    """Google's Gemini API, by `google-genai`."""

    name = "gemini"
    stops = {"STOP": "end", "MAX_TOKENS": "length", "SAFETY": "filtered", "PROHIBITED_CONTENT": "filtered"}

    def __init__(self, gateway):
        options = genai.types.HttpOptions(base_url=gateway, timeout=60_000)
        self.client = genai.Client(api_key=TOKEN, http_options=options)

    def ask(self, model, tools):
        answer = Answer()
        declared = [{"name": tool["name"], "parameters_json_schema": tool["parameters"]} for tool in tools]
        config = {"tools": [{"function_declarations": declared}]} if tools else {}
        config["automatic_function_calling"] = {"disable": True}
        for chunk in self.client.models.generate_content_stream(model=model, contents="Go on.", config=config):
            for candidate in chunk.candidates or []:
                for part in (candidate.content and candidate.content.parts) or []:
                    if part.function_call:
                        answer.calls.append((part.function_call.name, canonical(part.function_call.args or {})))
                    elif part.thought:
                        answer.thought += part.text or ""
                    else:
                        answer.text += part.text or ""
                if candidate.finish_reason:
                    answer.stop = self.stops.get(candidate.finish_reason.value, candidate.finish_reason.value)
        if answer.stop == "end" and answer.calls:
            answer.stop = "calls"
        return answer


class Ollama:
    """Ollama's chat API, by `ollama`."""

    name = "ollama"
    stops = {"stop": "end", "length": "length"}

    def __init__(self, gateway):
        self.client = ollama.Client(host=gateway, headers={"authorization": f"Bearer {TOKEN}"}, timeout=60)

    def ask(self, model, tools):
        answer = Answer()
        declared = [{"type": "function", "function": tool} for tool in tools]
        for part in self.client.chat(model=model, messages=[{"role": "user", "content": "Go on."}], tools=declared, stream=True):
            answer.text += part.message.content or ""
            answer.thought += part.message.thinking or ""
            for call in part.message.tool_calls or []:
                answer.calls.append((call.function.name, canonical(dict(call.function.arguments))))
            if part.done:
                answer.stop = self.stops.get(part.done_reason, part.done_reason)
        if answer.stop == "end" and answer.calls:
            answer.stop = "calls"
        return answer


def ask(front, recording):
    """Asks a front for a recording; an error of the client is part of the answer."""
    tools = [
        {"name": name, "description": "Does it.", "parameters": {"type": "object", "properties": {}, "additionalProperties": True}}
        for name in dict.fromkeys(recording.tools)
    ]
    try:
        return front.ask(recording.model, tools)
    # Whatever a client raises is a result here.
    except Exception as error:
        return Answer(error=f"{type(error).__name__}: {error}")


def message_of(error):
    """Returns an error's message without the code before it."""
    return error.split(" ", 1)[-1].strip('"')


def compare(recording, answer):
    """Returns what differs from the recording: the name of the part, what is expected, and what came."""
    expected = recording.expected
    if answer.error:
        raised = expected.error and message_of(expected.error) in answer.error
        return [] if raised else [("error", expected.error, answer.error)]
    found = []
    for part in ("text", "thought", "calls", "stop"):
        if getattr(answer, part) != getattr(expected, part):
            found.append((part, getattr(expected, part), getattr(answer, part)))
    if expected.error:
        found.append(("error", expected.error, ""))
    return found


THOUGHT = re.compile(r"<(think|thinking)>(.*?)</\1>", re.DOTALL)


def is_blank(recording, front, part, expected, got):
    return part == "text" and expected.split() == got.split()


def is_pause(recording, front, part, expected, got):
    return part == "stop" and expected == "paused" and got == "end" and front != "anthropic"


def has_no_reason(recording, front, part, expected, got):
    return part == "stop" and expected == "" and got in ("end", "calls")


def is_thought_in_text(recording, front, part, expected, got):
    inside = "".join(text for _, text in THOUGHT.findall(recording.expected.text))
    outside = THOUGHT.sub("", recording.expected.text)
    if part == "text":
        return bool(inside) and got.strip() == outside.strip()
    return part == "thought" and bool(inside) and got.strip() == (expected + inside).strip()


# The reasons why an answer may differ, each with its check.
REASONS = (
    ("Blanks between calls, which the decoder drops and the gateway passes on", is_blank),
    ("Anthropic's `pause_turn`, for which the other APIs have no word: the answer ends as usual", is_pause),
    ("An answer that is complete but gives no reason for its end: clients get the usual one", has_no_reason),
    ("A thought that the model wrote between tags into its text becomes a thought, where tools are offered", is_thought_in_text),
)


def write_table(path, fronts, differences, recordings):
    """Writes the list of differences, by reason and by API."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("openai", "anthropic", "google-genai", "ollama"))
    lines = [f"# Recorded answers through the gateway\n\n{len(recordings)} recordings on {len(fronts)} APIs, read by {packages}.\n"]
    lines.append("| recorded on | recordings | " + " | ".join(front.name for front in fronts) + " |")
    lines.append("| --- | ---: |" + " ---: |" * len(fronts))
    for wire in dict.fromkeys(recording.wire for recording in recordings):
        own = [recording for recording in recordings if recording.wire == wire]
        cells = []
        for front in fronts:
            different = {row[0].id for row in differences if row[1] is front and row[0].wire == wire}
            cells.append(f"{len(own) - len(different)} equal")
        lines.append(f"| {wire} | {len(own)} | " + " | ".join(cells) + " |")
    by_reason = defaultdict(list)
    for recording, front, part, expected, got, reason in differences:
        by_reason[reason].append(f"- {recording.id} on {front.name}, {part}: {str(expected)[:120]!r} came as {str(got)[:120]!r}")
    for reason, rows in by_reason.items():
        lines += [f"\n## {reason or 'No known reason'}\n", *rows]
    path.write_text("\n".join(lines) + "\n")


def main():
    recordings = load_recordings()
    with ThreadPoolExecutor(4) as pool:
        recordings = list(pool.map(decode, recordings))
    gateway, address = start_gateway(recordings, serve(recordings))
    try:
        fronts = [make(address) for make in (Chat, Responses, Messages, Gemini, Ollama)]
        cells = [(front, recording) for recording in recordings for front in fronts]
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda cell: ask(*cell), cells))
    finally:
        gateway.terminate()
        gateway.wait()
    differences = []
    for (front, recording), answer in zip(cells, answers):
        for part, expected, got in compare(recording, answer):
            known = (words for words, check in REASONS if check(recording, front.name, part, expected, got))
            differences.append((recording, front, part, expected, got, next(known, None)))
    write_table(folder / "recordings.md", fronts, differences, recordings)
    for reason, count in Counter(row[-1] for row in differences if row[-1]).items():
        print(f"{count} differences: {reason}")
    unknown = [row for row in differences if row[-1] is None]
    for recording, front, part, expected, got, _ in unknown:
        print(f"FAIL {recording.id} {recording.wire} on {front.name}, {part}: {str(expected)[:200]!r} came as {str(got)[:200]!r}")
    answered = len({(id(front), recording.id) for front, recording in cells})
    failed = len({(id(row[1]), row[0].id) for row in unknown})
    print(f"{answered - failed} passed, {failed} failed")
    sys.exit(bool(unknown))


if __name__ == "__main__":
    main()
