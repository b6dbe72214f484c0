#!/usr/bin/env python3
"""Compares the interface of Sabir with those of other agents, in one run.

    bench/interface/compare.py SABIR NODE_MODULES [NAME ...]

NODE_MODULES is the folder in which `npm install @openai/codex @anthropic-ai/claude-code @mariozechner/pi-coding-agent` has put them.
Every program runs in a terminal of its own, 120 by 40, with a home that is set up for it, and with a scripted provider on 127.0.0.1
that speaks all their protocols. Run it under `unshare -rn` with the loopback device up: then none of them reaches anything else.

Measures: the first visible character; the echo of a key typed at once (usable); the echo of keys while idle (median of 40) and while
an answer streams at 50 kB/s (median of 8); CPU over 5 idle seconds; PSS of all its processes; bytes written to the terminal for each
kilobyte of a streamed answer. Medians of five starts. The terminal answers the usual queries at once. Prints a Markdown table.
Needs Linux.
"""

import http.server
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import termios
import threading
import time

from weigh import WORDS, Program, milliseconds

ANSWER_BYTES = 100_000
PACE = 50_000
# What a terminal answers: its kind, the place of the cursor, its colours, its keyboard protocol.
ANSWERS = [
    (b"\x1b[c", b"\x1b[?62;22c"),
    (b"\x1b[6n", b"\x1b[1;1R"),
    (b"\x1b]10;?", b"\x1b]10;rgb:cccc/cccc/cccc\x1b\\"),
    (b"\x1b]11;?", b"\x1b]11;rgb:0000/0000/0000\x1b\\"),
    (b"\x1b[?u", b"\x1b[?0u"),
]
SEQUENCE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[PX^_][^\x1b]*\x1b\\|[ -/]*[0-~])")


class AnsweringProgram(Program):
    """A program whose terminal answers queries, and echoes nothing itself."""

    def __init__(self, words, environment):
        super().__init__(words, environment)
        settings = termios.tcgetattr(self.terminal)
        settings[3] &= ~termios.ECHO
        termios.tcsetattr(self.terminal, termios.TCSANOW, settings)

    def read(self, seconds):
        piece = super().read(seconds)
        for query, answer in ANSWERS:
            for _ in range(piece.count(query)):
                self.type(answer)
        return piece

    def read_until(self, mark, limit=30.0):
        """Reads until these characters are visible. Returns false if they are not in time."""
        end = time.monotonic() + limit
        while mark not in SEQUENCE.sub(b"", self.seen):
            if time.monotonic() > end:
                return False
            self.read(0.5)
        return True

    def read_until_visible(self, limit=30.0):
        end = time.monotonic() + limit
        while not SEQUENCE.sub(b"", self.seen).strip(b"\r\n \x00"):
            if time.monotonic() > end:
                return False
            self.read(0.5)
        return True

    def echo_of(self, key):
        """Returns the seconds until a rare character is visible, and deletes it."""
        self.seen = b""
        begun = time.monotonic()
        self.type(key)
        is_seen = self.read_until(key, 5.0)
        echo = time.monotonic() - begun
        self.type(b"\x7f")
        return echo if is_seen else None


class Provider(http.server.BaseHTTPRequestHandler):
    """Streams the same answer in the protocol of the request."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.reply_json({"object": "list", "data": [], "models": []})

    def do_HEAD(self):
        self.reply_json({})

    def reply_json(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_POST(self):
        request = self.rfile.read(int(self.headers.get("content-length", 0)))
        if "count_tokens" in self.path:
            return self.reply_json({"input_tokens": 10})
        is_long = b"tell me much" in request
        if b'"stream":true' not in request.replace(b" ", b""):
            return self.reply_json(
                {
                    "id": "msg_1",
                    "type": "message",
                    "role": "assistant",
                    "model": "x",
                    "content": [{"type": "text", "text": "ok"}],
                    "stop_reason": "end_turn",
                    "usage": {"input_tokens": 1, "output_tokens": 1},
                }
            )
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        try:
            if "/messages" in self.path:
                self.stream_messages(is_long)
            elif "/responses" in self.path:
                self.stream_responses(is_long)
            else:
                self.stream_chat(is_long)
        except OSError:
            pass

    def pieces(self, is_long):
        if not is_long:
            yield "ok"
            return
        sent, begun = 0, time.monotonic()
        while sent < ANSWER_BYTES:
            yield WORDS
            sent += len(WORDS)
            ahead = sent / PACE - (time.monotonic() - begun)
            if ahead > 0.005:
                time.sleep(ahead)
        yield "\n\nThe end of it."

    def event(self, value, name=None):
        head = f"event: {name}\n" if name else ""
        self.wfile.write(f"{head}data: {json.dumps(value)}\n\n".encode())

    def stream_chat(self, is_long):
        base = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "x"}
        for piece in self.pieces(is_long):
            choice = {"index": 0, "delta": {"content": piece}, "finish_reason": None}
            self.event({**base, "choices": [choice]})
        self.event({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        self.event({**base, "choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")

    def stream_messages(self, is_long):
        message = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "x",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
        self.event({"type": "message_start", "message": message}, "message_start")
        block = {"type": "text", "text": ""}
        start = {"type": "content_block_start", "index": 0, "content_block": block}
        self.event(start, "content_block_start")
        for piece in self.pieces(is_long):
            delta = {"type": "text_delta", "text": piece}
            self.event({"type": "content_block_delta", "index": 0, "delta": delta}, "content_block_delta")
        self.event({"type": "content_block_stop", "index": 0}, "content_block_stop")
        end = {"stop_reason": "end_turn", "stop_sequence": None}
        self.event({"type": "message_delta", "delta": end, "usage": {"output_tokens": 1}}, "message_delta")
        self.event({"type": "message_stop"}, "message_stop")

    def stream_responses(self, is_long):
        response = {"id": "resp_1", "object": "response", "status": "in_progress", "output": []}
        self.event({"type": "response.created", "response": response}, "response.created")
        item = {"id": "item_1", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
        added = {"type": "response.output_item.added", "output_index": 0, "item": item}
        self.event(added, "response.output_item.added")
        whole = ""
        for piece in self.pieces(is_long):
            whole += piece
            delta = {
                "type": "response.output_text.delta",
                "item_id": "item_1",
                "output_index": 0,
                "content_index": 0,
                "delta": piece,
            }
            self.event(delta, "response.output_text.delta")
        content = [{"type": "output_text", "text": whole, "annotations": []}]
        item = {**item, "status": "completed", "content": content}
        done = {"type": "response.output_item.done", "output_index": 0, "item": item}
        self.event(done, "response.output_item.done")
        usage = {
            "input_tokens": 1,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 1,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 2,
        }
        response = {**response, "status": "completed", "output": [item], "usage": usage}
        self.event({"type": "response.completed", "response": response}, "response.completed")


def set_up_sabir(binary, _modules, _home, port):
    """Returns the words and the variables of a program, after its home was filled."""
    words = [binary, "--interface", "full", "--sandbox", "off", "--model", f"http://127.0.0.1:{port}/v1#weigh"]
    return words, {}


def set_up_codex(_binary, modules, home, port):
    folder = home / ".codex"
    folder.mkdir()
    work = home / "work"
    (folder / "config.toml").write_text(
        f"""model = "x"
model_provider = "local"
check_for_update_on_startup = false
[model_providers.local]
name = "local"
base_url = "http://127.0.0.1:{port}/v1"
wire_api = "responses"
[projects."{work}"]
trust_level = "trusted"
"""
    )
    return [str(modules / ".bin/codex")], {"CODEX_HOME": str(folder)}


def set_up_claude(_binary, modules, home, port):
    key = "sk-ant-local-0123456789abcdefghij"
    settings = {
        "hasCompletedOnboarding": True,
        "theme": "dark",
        "customApiKeyResponses": {"approved": [key[-20:]], "rejected": []},
        "projects": {str(home / "work"): {"hasTrustDialogAccepted": True}},
    }
    (home / ".claude.json").write_text(json.dumps(settings))
    environment = {
        "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}",
        "ANTHROPIC_API_KEY": key,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }
    return [str(modules / ".bin/claude")], environment


def set_up_pi(_binary, modules, home, port):
    folder = home / ".pi/agent"
    folder.mkdir(parents=True)
    provider = {
        "baseUrl": f"http://127.0.0.1:{port}/v1",
        "apiKey": "none",
        "api": "openai-completions",
        "models": [{"id": "weigh", "name": "weigh", "contextWindow": 1000000, "maxTokens": 100000}],
    }
    (folder / "models.json").write_text(json.dumps({"providers": {"local": provider}}))
    words = [str(modules / ".bin/pi"), "--provider", "local", "--model", "weigh"]
    return words, {"PI_OFFLINE": "1", "PI_SKIP_VERSION_CHECK": "1"}


PROGRAMS = {"sabir": set_up_sabir, "codex": set_up_codex, "claude": set_up_claude, "pi": set_up_pi}


def start(setup, binary, modules, port):
    """Starts a program in a new home, and returns it with its folder."""
    # Some refuse a home in a folder of temporary files.
    base = pathlib.Path.home() / ".cache"
    base.mkdir(exist_ok=True)
    folder = tempfile.TemporaryDirectory(prefix="weigh-", dir=base)
    home = pathlib.Path(folder.name)
    (home / "work").mkdir()
    words, variables = setup(binary, modules, home, port)
    environment = {
        "PATH": os.environ["PATH"],
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "HOME": folder.name,
        **variables,
    }
    os.chdir(home / "work")
    return AnsweringProgram(words, environment), folder


def median_text(times):
    """Returns the median of those that were measured."""
    times = [time for time in times if time is not None]
    return milliseconds(statistics.median(times) if times else None)


def weigh_start(setup, binary, modules, port):
    first, usable = [], []
    for _ in range(5):
        program, folder = start(setup, binary, modules, port)
        if program.read_until_visible():
            first.append(time.monotonic() - program.begun)
        # Typed again until it is there: some lose what comes before they are ready.
        end = time.monotonic() + 30
        while time.monotonic() < end:
            program.type("¶".encode())
            if program.read_until("¶".encode(), 0.25):
                usable.append(time.monotonic() - program.begun)
                break
        program.stop()
        os.chdir("/")
        folder.cleanup()
    return {"first paint": median_text(first), "usable": median_text(usable)}


def weigh_idle_and_stream(setup, binary, modules, port):
    program, folder = start(setup, binary, modules, port)
    program.read_until_visible()
    program.read_until_quiet(1.5)
    echoes = []
    for _ in range(40):
        echoes.append(program.echo_of("¶".encode()))
        program.read_until_quiet(0.05, 1.0)
    program.read_until_quiet(1.5, 5.0)
    before = program.cpu_seconds()
    time.sleep(5)
    cpu = (program.cpu_seconds() - before) / 5
    memory = program.pss_megabytes()
    figures = {
        "key to screen": median_text(echoes),
        "idle CPU": f"{cpu * 100:.1f} %",
        "idle PSS": f"{memory:.0f} MB",
    }
    program.seen = b""
    program.type(b"tell me much")
    program.read_until_quiet(0.3, 2.0)
    program.type(b"\r")
    if not program.read_until(b"fox", 20.0):
        print(f"no answer: {SEQUENCE.sub(b'', program.seen)[-600:]}", file=sys.stderr)
        return {**figures, "key to screen at 50 kB/s": "–", "bytes per streamed kB": "–", "PSS after the answer": "–"}
    written, last, end = len(program.seen), time.monotonic(), time.monotonic() + 60
    # The keys would add bytes of their own, so they are another run's.
    tail = program.seen
    while time.monotonic() - last < 3 and time.monotonic() < end:
        piece = program.read(0.3)
        written += len(piece)
        tail = (tail + piece)[-20000:]
        program.seen = b""
        if piece and b"The end of it." not in SEQUENCE.sub(b"", tail):
            last = time.monotonic()
    memory = program.pss_megabytes()
    program.type(b"tell me much")
    program.read_until_quiet(0.3, 2.0)
    program.seen = b""
    program.type(b"\r")
    program.read_until(b"fox", 20.0)
    busy = []
    for _ in range(8):
        busy.append(program.echo_of("¶".encode()))
        end = time.monotonic() + 0.1
        while time.monotonic() < end:
            program.read(0.02)
    program.stop()
    os.chdir("/")
    folder.cleanup()
    return {
        **figures,
        "key to screen at 50 kB/s": median_text(busy),
        "bytes per streamed kB": f"{written / (ANSWER_BYTES / 1000):,.0f}",
        "PSS after the answer": f"{memory:.0f} MB",
    }


def version(name, binary, modules):
    packages = {"codex": "@openai/codex", "claude": "@anthropic-ai/claude-code", "pi": "@mariozechner/pi-coding-agent"}
    if name == "sabir":
        said = subprocess.run([binary, "--version"], capture_output=True, text=True)
        return said.stdout.strip()
    known = json.loads((modules / packages[name] / "package.json").read_text())
    return f"{known['name']} {known['version']}"


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    binary, modules = os.path.realpath(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
    names = sys.argv[3:] or list(PROGRAMS)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    rows = []
    for name in names:
        setup = PROGRAMS[name]
        figures = weigh_start(setup, binary, modules, server.server_port)
        figures |= weigh_idle_and_stream(setup, binary, modules, server.server_port)
        rows.append((version(name, binary, modules), figures))
        print(rows[-1], file=sys.stderr)
    columns = list(rows[0][1])
    print(f"| program | {' | '.join(columns)} |")
    print(f"| --- |{' --- |' * len(columns)}")
    for name, figures in rows:
        print(f"| {name} | {' | '.join(figures[column] for column in columns)} |")
    server.shutdown()


if __name__ == "__main__":
    main()
