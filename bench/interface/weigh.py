#!/usr/bin/env python3
"""Weighs interactive terminal programs: first paint, echo of keys, idle CPU and memory, bytes per streamed kilobyte.

    bench/interface/weigh.py SABIR [NAME=COMMAND ...]

SABIR is the binary to weigh. It is also weighed while a local server streams an answer to it. Each further program, such as
`peer="npx some-agent"`, is weighed without a model: first paint, echo, CPU and memory. Prints a Markdown table. Needs Linux.
"""

import fcntl
import http.server
import json
import os
import pty
import select
import shlex
import signal
import statistics
import struct
import sys
import tempfile
import termios
import threading
import time

ROWS, COLUMNS = 40, 120
WORDS = "The quick brown fox jumps over the lazy dog, and `code` stays code.\n"


class Program:
    """A program at a terminal of its own."""

    def __init__(self, words, environment):
        self.begun = time.monotonic()
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.execvpe(words[0], words, environment)
        size = struct.pack("HHHH", ROWS, COLUMNS, 0, 0)
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, size)
        self.seen = b""

    def read(self, seconds):
        """Reads what is shown within some seconds; empty if nothing is."""
        ready, _, _ = select.select([self.terminal], [], [], seconds)
        if not ready:
            return b""
        try:
            piece = os.read(self.terminal, 1 << 16)
        except OSError:
            return b""
        self.seen += piece
        return piece

    def read_until_quiet(self, quiet, limit=20.0):
        end = time.monotonic() + limit
        while time.monotonic() < end and self.read(quiet):
            pass

    def type(self, keys):
        os.write(self.terminal, keys)

    def echo_time(self, key):
        """Returns the seconds until something is shown after a key."""
        begun = time.monotonic()
        self.type(key)
        return time.monotonic() - begun if self.read(5.0) else None

    def processes(self):
        """Returns the process and everything below it."""
        parents = {}
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                stat = open(f"/proc/{name}/stat").read()
            except OSError:
                continue
            parents.setdefault(int(stat.rsplit(")", 1)[1].split()[1]), []).append(int(name))
        found, open_ones = [], [self.pid]
        while open_ones:
            found.append(open_ones.pop())
            open_ones += parents.get(found[-1], [])
        return found

    def cpu_seconds(self):
        ticks = 0
        for process in self.processes():
            try:
                fields = open(f"/proc/{process}/stat").read().rsplit(")", 1)[1].split()
            except OSError:
                continue
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def pss_megabytes(self):
        total = 0
        for process in self.processes():
            try:
                lines = open(f"/proc/{process}/smaps_rollup").read().splitlines()
            except OSError:
                continue
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        return total / 1024

    def stop(self):
        try:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass
        os.close(self.terminal)


class Answers(http.server.BaseHTTPRequestHandler):
    """Streams an answer of `size` bytes in small pieces."""

    protocol_version = "HTTP/1.1"
    size = 1 << 20
    # Bytes a second.
    pace = 1 << 20

    def log_message(self, *_):
        pass

    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        sent, begun = 0, time.monotonic()
        try:
            while sent < self.size:
                self.event({"delta": {"content": WORDS}})
                sent += len(WORDS)
                ahead = sent / self.pace - (time.monotonic() - begun)
                if ahead > 0.005:
                    time.sleep(ahead)
            self.event({"delta": {}, "finish_reason": "stop"})
            self.wfile.write(b"data: [DONE]\n\n")
        except OSError:
            pass

    def event(self, choice):
        body = json.dumps({"id": "x", "object": "chat.completion.chunk", "choices": [{"index": 0, **choice}]})
        self.wfile.write(f"data: {body}\n\n".encode())


def milliseconds(seconds):
    return "–" if seconds is None else f"{seconds * 1000:.1f} ms"


def weigh_idle(words, environment):
    """Returns first paint, usable, echo, idle CPU and idle PSS."""
    first, usable = [], []
    for _ in range(5):
        program = Program(words, environment)
        if program.read(30.0):
            first.append(time.monotonic() - program.begun)
        # Nothing was typed before, so this is no echo of the terminal itself.
        program.type(b"q")
        while b"q" not in program.seen and program.read(10.0):
            pass
        usable.append(time.monotonic() - program.begun)
        program.stop()
    program = Program(words, environment)
    program.read_until_quiet(1.5)
    echoes = []
    for at in range(60):
        echo = program.echo_time(b"abcdefghij"[at % 10 : at % 10 + 1])
        if echo is not None:
            echoes.append(echo)
        program.read_until_quiet(0.03)
    program.read_until_quiet(1.5)
    before = program.cpu_seconds()
    time.sleep(5)
    cpu = (program.cpu_seconds() - before) / 5
    memory = program.pss_megabytes()
    program.stop()
    return {
        "first paint": milliseconds(statistics.median(first) if first else None),
        "usable": milliseconds(statistics.median(usable)),
        "key to screen": milliseconds(statistics.median(echoes) if echoes else None),
        "idle CPU": f"{cpu * 100:.1f} %",
        "idle PSS": f"{memory:.1f} MB",
    }


def weigh_stream(sabir, environment):
    """Returns the echo of keys while an answer streams, and the bytes that it costs."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    model = f"http://127.0.0.1:{server.server_port}/v1#weigh"
    program = Program([sabir, "--interface", "full", "--sandbox", "off", "--model", model, "tell", "me", "much"], environment)
    while b"fox" not in program.seen and program.read(20.0):
        pass
    echoes = []
    for _ in range(8):
        mark = time.monotonic()
        program.seen = program.seen[-64:]
        program.type(b"\xc2\xb6")
        while b"\xc2\xb6" not in program.seen and program.read(5.0):
            pass
        echoes.append(time.monotonic() - mark)
        program.type(b"\x7f")
        end = time.monotonic() + 0.05
        while time.monotonic() < end:
            program.read(0.01)
    program.stop()
    program = Program([sabir, "--interface", "full", "--sandbox", "off", "--model", model, "tell", "me", "much"], environment)
    written, last = 0, time.monotonic()
    while time.monotonic() - last < 3:
        piece = program.read(0.5)
        if piece:
            written, last = written + len(piece), time.monotonic()
    memory = program.pss_megabytes()
    program.stop()
    server.shutdown()
    return {
        "key to screen at 1 MB/s": milliseconds(statistics.median(echoes)),
        "bytes to the terminal per streamed kB": f"{written / (Answers.size / 1000):.0f}",
        "PSS after 1 MB of answer": f"{memory:.1f} MB",
    }


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sabir = os.path.realpath(sys.argv[1])
    peers = [argument.split("=", 1) for argument in sys.argv[2:]]
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "TERM": "xterm-256color", "HOME": folder}
        os.chdir(folder)
        model = "http://127.0.0.1:9/v1#none"
        rows = [("sabir", weigh_idle([sabir, "--interface", "full", "--model", model], environment))]
        for name, command in peers:
            rows.append((name, weigh_idle(shlex.split(command), {**environment, "HOME": os.environ["HOME"]})))
        columns = list(rows[0][1])
        print(f"| program | {' | '.join(columns)} |")
        print(f"| --- |{' --- |' * len(columns)}")
        for name, figures in rows:
            print(f"| {name} | {' | '.join(figures[column] for column in columns)} |")
        print()
        for name, figure in weigh_stream(sabir, environment).items():
            print(f"* {name}: {figure}")


if __name__ == "__main__":
    main()
