#!/usr/bin/env python3
"""Measures what MCP servers that hang at their start cost a task: the time until its first request, and until its end.

    bench/mcp/start.py SABIR

SABIR is the binary (use a release build). A scripted provider in this process takes the time at which the request of `sabir run` arrives.
The cases take turns, each in another order every round, so that a busy moment meets all of them. `ROUNDS` sets their number.
Ends with 1 if a hanging server costs the first request more than 2 ms at the median.
"""
import http.server
import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROUNDS = int(os.environ.get("ROUNDS", "40"))
LIMIT_MS = 2.0
ANSWER = (
    b'data: {"id":"1","choices":[{"index":0,"delta":{"role":"assistant","content":"Done."},"finish_reason":"stop"}]}\n\n'
    b"data: [DONE]\n\n"
)
arrivals = []


class Provider(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        arrivals.append(time.perf_counter())
        self.rfile.read(int(self.headers.get("content-length", "0")))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(ANSWER)))
        self.end_headers()
        self.wfile.write(ANSWER)

    def log_message(self, *_):
        pass


def hanging_address():
    """Returns the address of a server that accepts connections and never answers."""
    listener = socket.create_server(("127.0.0.1", 0))
    kept = []

    def accept():
        while True:
            kept.append(listener.accept())

    threading.Thread(target=accept, daemon=True).start()
    return f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"


def run_once(sabir, home, work, port):
    environment = {
        "HOME": home,
        "PATH": os.environ["PATH"],
        "OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1",
        "OPENAI_API_KEY": "x",
    }
    arrivals.clear()
    begun = time.perf_counter()
    command = [sabir, "run", "--model", "openai/scripted", "Say that you are done."]
    done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True)
    ended = time.perf_counter()
    if done.returncode != 0 or not arrivals:
        sys.exit(f"the run failed: {done.stderr}")
    return (arrivals[0] - begun) * 1000, (ended - begun) * 1000


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sabir = os.path.abspath(sys.argv[1])
    provider = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    threading.Thread(target=provider.serve_forever, daemon=True).start()
    root = tempfile.mkdtemp()
    cases = {
        "no server": "",
        "a program that hangs": '[mcp.servers.slow]\ncommand = "sleep"\nargs = ["600"]\n',
        "an address that hangs": f'[mcp.servers.slow]\nurl = "{hanging_address()}"\n',
    }
    homes = {}
    for number, (name, text) in enumerate(cases.items()):
        homes[name] = os.path.join(root, f"home{number}")
        os.makedirs(os.path.join(homes[name], ".config", "sabir"))
        with open(os.path.join(homes[name], ".config", "sabir", "config.toml"), "w") as file:
            file.write(text)
    work = os.path.join(root, "work")
    os.makedirs(work)
    firsts = {name: [] for name in cases}
    wholes = {name: [] for name in cases}
    for _ in range(ROUNDS):
        for name in random.sample(list(cases), len(cases)):
            first, whole = run_once(sabir, homes[name], work, provider.server_port)
            firsts[name].append(first)
            wholes[name].append(whole)
    print("| servers | first request, fastest ms | median ms | slowest of ten, ms | whole run, median ms |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name in cases:
        found = sorted(firsts[name])
        slow = found[len(found) * 9 // 10]
        whole = statistics.median(wholes[name])
        middle = statistics.median(found)
        print(f"| {name} | {found[0]:.1f} | {middle:.1f} | {slow:.1f} | {whole:.1f} |")
    base = statistics.median(firsts["no server"])
    extra = max(statistics.median(found) - base for found in firsts.values())
    print(f"\nA hanging server costs the first request {extra:.1f} ms.")
    shutil.rmtree(root)
    sys.exit(1 if extra > LIMIT_MS else 0)


main()
