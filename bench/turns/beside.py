#!/usr/bin/env python3
"""Compares what a task costs in two builds of sabir, and prints a table in Markdown.

    bench/turns/beside.py --sabir target/release/sabir --beside OTHER [--turns N] [--rounds N] [--no-wall]

`bench/turns/run COMMIT` makes both builds, with the same profile, and runs this.

Both builds run headless with a scripted provider, alternately, so that a busy moment of the machine meets both. Each row is one figure:

* CPU: user and system time, with the processes that were started for the task; medians. Time itself says little on a busy machine.
* instructions: counted by valgrind's callgrind in the process itself, not in what it starts. Load has no influence.
* system calls: counted by strace in all processes.
* time: on the clock, medians. For a machine that does nothing else.

The start is what happens until the first request. A turn is the difference between a task of N + 1 turns and one of 1 turn,
divided by N. Exits with 2 where valgrind or strace is missing: nothing may pass uncounted.
"""

import argparse
import json
import os
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

KINDS = {
    "read a file": lambda turn: ("read_file", {"path": f"f{turn % 25}.txt"}),
    "write a file": lambda turn: ("write_to_file", {"path": "out.txt", "content": f"{turn}\n" * 50}),
    "run a command": lambda turn: ("execute_command", {"command": f"echo {turn}"}),
}


def stream(delta, reason):
    """Returns an answer of Chat Completions as server-sent events."""
    events = [
        {"choices": [{"index": 0, "delta": delta}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
    ]
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
    head = f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {len(body)}\r\n\r\n"
    return (head + body).encode()


def call(turn, tool, arguments):
    """Returns an answer with one call."""
    function = {"name": tool, "arguments": json.dumps(arguments)}
    made = {"index": 0, "id": f"call_{turn}", "type": "function", "function": function}
    return stream({"role": "assistant", "tool_calls": [made]}, "tool_calls")


class Provider:
    """Answers each request with the next answer, without reading it, and notes when it came."""

    def __init__(self, answers):
        self.answers = answers
        self.came = []
        self.answered = []
        self.cpu_at_first = None
        self.process = None
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        reader = connection.makefile("rb", buffering=1 << 20)
        while True:
            length, line = 0, reader.readline()
            if not line:
                return
            while line.strip():
                name, _, value = line.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
                line = reader.readline()
            reader.read(length)
            self.came.append(time.perf_counter())
            if self.cpu_at_first is None:
                self.cpu_at_first = process_cpu(self.process)
            number = len(self.came) - 1
            try:
                connection.sendall(self.answers[min(number, len(self.answers) - 1)])
            except OSError:
                return
            self.answered.append(time.perf_counter())

    def close(self):
        self.listener.close()


def process_cpu(process):
    """Returns the seconds of CPU that a running process has used, without its children: see clock_getcpuclockid(3)."""
    return time.clock_gettime((~process << 3) | 2)


def run(binary, kind, turns, prefix=()):
    """Runs a task of so many turns with one call each; returns its costs."""
    answers = [call(turn, *KINDS[kind](turn)) for turn in range(turns)]
    answers.append(call(turns, "attempt_completion", {"result": "done"}))
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryDirectory() as work:
        for number in range(25):
            pathlib.Path(work, f"f{number}.txt").write_text(f"line of file {number}\n" * 20)
        provider = Provider(answers)
        environment = {
            "HOME": home,
            "PATH": os.environ["PATH"],
            "OPENAI_BASE_URL": f"http://127.0.0.1:{provider.port}/v1",
            "OPENAI_API_KEY": "none",
        }
        command = [*prefix, binary, "run", "--model", "openai/scripted", "--approve", "all", "--output", "json", "go"]
        log = tempfile.TemporaryFile()
        began = time.perf_counter()
        child = subprocess.Popen(command, cwd=work, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        provider.process = child.pid
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        provider.close()
        if child.returncode != 0 or len(provider.came) != turns + 1:
            log.seek(0)
            sys.exit(f"{' '.join(command)}\nended with {child.returncode} after {len(provider.came)} requests:\n{log.read().decode()}")
    gaps = [came - answered for came, answered in zip(provider.came[1:], provider.answered)]
    return {
        "start CPU": provider.cpu_at_first * 1000,
        "start time": (provider.came[0] - began) * 1000,
        "CPU": (usage.ru_utime + usage.ru_stime) * 1000,
        "time": statistics.median(gaps) * 1000 if gaps else 0.0,
    }


def instructions(binary, kind, turns):
    """Returns the thousands of instructions of the process in a whole task."""
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/out"
        run(binary, kind, turns, ["valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={out}"])
        # The process itself: one that it forks, and that has not become another program when it ends, writes no such file.
        lines = pathlib.Path(out).read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(("totals:", "summary:"))) / 1000


def system_calls(binary, kind, turns):
    """Returns the system calls of all processes in a whole task."""
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/out"
        run(binary, kind, turns, ["strace", "-f", "-c", "-U", "calls,name", "-o", out])
        lines = pathlib.Path(out).read_text().splitlines()
    return next(float(line.split()[0]) for line in lines if line.split()[1:] == ["total"])


def alternate(binaries, rounds, measure):
    """Measures both builds in turn; the second of a pair finds warmer caches, so the order changes every round."""
    values = {binary: [] for binary in binaries}
    for number in range(rounds):
        for binary in binaries if number % 2 == 0 else reversed(binaries):
            values[binary].append(measure(binary))
    return [values[binary] for binary in binaries]


def main():
    parser = argparse.ArgumentParser(description="Compares what a task costs in two builds of sabir.")
    parser.add_argument("--sabir", required=True)
    parser.add_argument("--beside", required=True)
    parser.add_argument("--turns", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--no-wall", action="store_true", help="leave out times on the clock")
    parser.add_argument("--only", choices=["cpu", "instructions", "calls"], help="measure one figure only")
    options = parser.parse_args()
    binaries = [os.path.abspath(options.sabir), os.path.abspath(options.beside)]
    for tool in ("valgrind", "strace"):
        if shutil.which(tool) is None:
            print(f"{tool} is missing: `apt-get install {tool}`", file=sys.stderr)
            sys.exit(2)

    print("| measured | this build | the other | ratio |\n| --- | ---: | ---: | ---: |")

    def row(name, own, other):
        print(f"| {name} | {own:,.2f} | {other:,.2f} | {own / other:.3f} |", flush=True)

    def medians(values, key):
        return [statistics.median(one[key] for one in each) for each in values]

    wanted = lambda figure: options.only in (None, figure)
    first = next(iter(KINDS))
    if wanted("cpu"):
        starts = alternate(binaries, options.rounds * 5, lambda binary: run(binary, first, 1))
        row("start to first request: CPU, ms", *medians(starts, "start CPU"))
        if not options.no_wall:
            row("start to first request: time, ms", *medians(starts, "start time"))
        row("a task of one turn: CPU, ms", *medians(starts, "CPU"))
        for kind in KINDS:
            short = alternate(binaries, options.rounds * 3, lambda binary: run(binary, kind, 1))
            long = alternate(binaries, options.rounds, lambda binary: run(binary, kind, options.turns + 1))
            pairs = zip(medians(long, "CPU"), medians(short, "CPU"))
            row(f"a turn, {kind}: CPU, ms", *[(whole - start) / options.turns for whole, start in pairs])
            if not options.no_wall:
                row(f"a turn, {kind}: time, ms", *medians(long, "time"))
    for figure, name, count in (
        ("instructions", "thousand instructions", instructions),
        ("calls", "system calls", system_calls),
    ):
        if not wanted(figure):
            continue
        for kind in KINDS:
            short, long = [
                [statistics.median(each) for each in alternate(binaries, 3, lambda binary: count(binary, kind, turns))]
                for turns in (1, options.turns + 1)
            ]
            if kind == first:
                row(f"a task of one turn: {name}", *short)
            row(f"a turn, {kind}: {name}", *[(whole - start) / options.turns for whole, start in zip(long, short)])


if __name__ == "__main__":
    main()
