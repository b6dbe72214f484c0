#!/usr/bin/env python3
"""Measures the interface on a task with a long history beside one with a short history, in one run.

    bench/interface/history.py SABIR [TURNS ...]

Without TURNS: 20 and 2000. A scripted provider on 127.0.0.1 lets `sabir run` read a file in every turn, so the tasks have that many
turns. Then each task is continued in the interface, at a terminal of 120 by 40: five times each, in turns.

* usable: from the start of the process until a key that was typed at once is on the screen, below the end of the task
* key to screen: the next keys (median of 20)
* Enter to request: from Enter until the provider gets the request, so the whole history was read and encoded
* delta to screen: from the moment at which the provider sends a piece of the answer (median of 20)
* key while it streams: a key between two such pieces (median of 20)

Prints a Markdown table. Needs Linux.
"""

import http.server
import json
import os
import pathlib
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from compare import SEQUENCE, AnsweringProgram
from weigh import milliseconds

PIECES = 20


class Provider(http.server.BaseHTTPRequestHandler):
    """Answers with calls until there were enough, and then with pieces of text that are sent one at a time."""

    protocol_version = "HTTP/1.1"
    turns = 0
    left = 0
    received = queue.Queue()
    wanted = queue.Queue()
    sent = queue.Queue()

    def log_message(self, *_):
        pass

    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.received.put(time.monotonic())
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        cls = type(self)
        if cls.left > 0:
            cls.left -= 1
            arguments = json.dumps({"path": f"notes/{cls.left % 50}.txt", "start_line": 1 + cls.left // 50})
            call = {"index": 0, "id": f"call_{cls.left}", "type": "function"}
            call["function"] = {"name": "read_file", "arguments": arguments}
            self.event({"content": f"Next I read note {cls.left}, because it may say more about the parser.", "tool_calls": [call]})
            self.event({}, "tool_calls")
        elif cls.turns > 0:
            self.event({"content": "I have read everything."})
            self.event({}, "stop")
        else:
            while (piece := self.wanted.get()) is not None:
                self.event({"content": piece})
                self.wfile.flush()
                self.sent.put(time.monotonic())
            self.event({}, "stop")
        self.wfile.write(b"data: [DONE]\n\n")

    def event(self, delta, reason=None):
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        body = json.dumps({"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "x", "choices": [choice]})
        self.wfile.write(f"data: {body}\n\n".encode())


def words_of(binary, port, *rest):
    # A provider that caches nothing and counts no tokens: only Sabir's own work is measured.
    model = f"http://127.0.0.1:{port}/v1#history"
    return [binary, *rest, "--sandbox", "off", "--no-checkpoints", "--protocol", "native", "--model", model]


def make_task(binary, port, turns, home, environment):
    """Runs a task of so many turns, each in a folder of its own."""
    work = home / f"work-{turns}"
    (work / "notes").mkdir(parents=True)
    for number in range(50):
        lines = "".join(f"line {line} of note {number}\n" for line in range(turns // 50 + 2))
        (work / f"notes/{number}.txt").write_text(lines)
    Provider.turns = turns
    Provider.left = turns
    words = words_of(binary, port, "run") + ["--max-turns", str(turns + 10), "read", "the", "notes"]
    done = subprocess.run(words, cwd=work, env=environment, capture_output=True, text=True)
    if done.returncode != 0 or Provider.left > 0:
        sys.exit(f"the task of {turns} turns failed: {done.stderr[-2000:]}")
    Provider.turns = 0
    return work


def read_visible(program, mark, seen):
    """Reads until a mark is visible, and returns the moment and what was seen."""
    while mark not in SEQUENCE.sub(b"", seen):
        piece = program.read(10.0)
        if not piece:
            sys.exit(f"{mark} does not come: {SEQUENCE.sub(b'', seen)[-2000:]}")
        seen += piece
    return time.monotonic()


def median(times):
    """Returns the median of those that were measured: a key whose deletion shared its frame was not seen."""
    return statistics.median([time for time in times if time is not None])


def measure(binary, port, work, environment):
    while not Provider.received.empty():
        Provider.received.get()
    os.chdir(work)
    program = AnsweringProgram(words_of(binary, port, "--interface", "full", "-c"), environment)
    program.type("¶".encode())
    usable = read_visible(program, "¶".encode(), b"") - program.begun
    program.type(b"\x7f")
    program.read_until_quiet(1.0)
    keys = []
    for _ in range(PIECES):
        keys.append(program.echo_of("¶".encode()))
        program.read_until_quiet(0.05, 1.0)
    program.type(b"and now?")
    program.read_until_quiet(0.5, 2.0)
    begun = time.monotonic()
    program.type(b"\r")
    request = Provider.received.get(timeout=120) - begun
    deltas, busy = [], []
    for number in range(PIECES):
        mark = f"<{number}>"
        Provider.wanted.put(f"piece {mark} ")
        sent = Provider.sent.get(timeout=60)
        deltas.append(read_visible(program, mark.encode(), b"") - sent)
        program.read_until_quiet(0.05, 1.0)
        busy.append(program.echo_of("¶".encode()))
        program.read_until_quiet(0.05, 1.0)
    memory = program.pss_megabytes()
    Provider.wanted.put(None)
    program.read_until_quiet(0.5, 5.0)
    program.stop()
    os.chdir("/")
    return {
        "usable": usable,
        "key to screen": median(keys),
        "Enter to request": request,
        "delta to screen": median(deltas),
        "key while it streams": median(busy),
        "PSS": memory,
    }


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    binary = os.path.realpath(sys.argv[1])
    sizes = [int(turns) for turns in sys.argv[2:]] or [20, 2000]
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        home = pathlib.Path(folder)
        environment = {"PATH": os.environ["PATH"], "TERM": "xterm-256color", "LANG": "C.UTF-8", "HOME": folder}
        works = {turns: make_task(binary, server.server_port, turns, home, environment) for turns in sizes}
        runs = {turns: [] for turns in sizes}
        for _ in range(5):
            for turns, work in works.items():
                runs[turns].append(measure(binary, server.server_port, work, environment))
        columns = list(runs[sizes[0]][0])
        print(f"| turns | {' | '.join(columns)} |")
        print(f"| --- |{' --- |' * len(columns)}")
        for turns, measured in runs.items():
            medians = {column: statistics.median(run[column] for run in measured) for column in columns}
            cells = [f"{medians[column]:.0f} MB" if column == "PSS" else milliseconds(medians[column]) for column in columns]
            print(f"| {turns} | {' | '.join(cells)} |")
    server.shutdown()


if __name__ == "__main__":
    main()
