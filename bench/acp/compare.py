#!/usr/bin/env python3
"""Compares agents of the Agent Client Protocol: the time from the start until `initialize` is answered, and the memory of idle sessions.

    bench/acp/compare.py SABIR [FOLDER]

SABIR is the binary (use a release build). The other agents are installed from npm into FOLDER, by default target/acp-agents, and are left
out where that is not possible. Every agent gets an empty home, keys that are not real, and a network namespace without a network where the
system has those. The agents take turns, each in another order every round; `ROUNDS` sets their number, `SESSIONS` that of the sessions.

Memory is the proportional share (PSS) of all processes of the agent, 3 s after its last session was opened. Sabir's aims: 15 ms, and 60 MB
for ten sessions. Ends with 1 if it misses one.
"""
import fcntl
import json
import os
import random
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

ROUNDS = int(os.environ.get("ROUNDS", "15"))
SESSIONS = int(os.environ.get("SESSIONS", "10"))
START_AIM_MS = 15.0
MEMORY_AIM_MB = 60.0
PATIENCE = 60
WITHOUT_NETWORK = "COMPARE_WITHOUT_NETWORK"
PACKAGES = {
    "@agentclientprotocol/codex-acp": ("Codex", ["codex-acp"]),
    "@agentclientprotocol/claude-agent-acp": ("Claude Code", ["claude-agent-acp"]),
    "opencode-ai": ("opencode", ["opencode", "acp"]),
    "@google/gemini-cli": ("Gemini CLI", ["gemini", "--experimental-acp"]),
}


def install(folder):
    """Installs the other agents, and returns a list of name, version and command."""
    os.makedirs(folder, exist_ok=True)
    if shutil.which("npm") is None:
        print("npm is not installed: only Sabir is measured", file=sys.stderr)
        return []
    missing = [name for name in PACKAGES if not os.path.exists(f"{folder}/node_modules/{name}")]
    for name in missing:
        command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", folder, name]
        if subprocess.run(command, stdout=subprocess.DEVNULL).returncode != 0:
            print(f"{name} cannot be installed, and is left out", file=sys.stderr)
    found = []
    for name, (label, command) in PACKAGES.items():
        about = f"{folder}/node_modules/{name}/package.json"
        if os.path.exists(about):
            with open(about, encoding="utf-8") as file:
                version = json.load(file)["version"]
            found.append((label, version, [f"{folder}/node_modules/.bin/{command[0]}", *command[1:]]))
    return found


def leave_network():
    """Starts this program again where it has no network, if the system can do that. Agents are started without further ado then."""
    words = ["unshare", "--net", "--map-root-user", "--user"]
    if shutil.which("unshare") and subprocess.run([*words, "true"], capture_output=True).returncode == 0:
        environment = {**os.environ, WITHOUT_NETWORK: "1"}
        os.execvpe(words[0], [*words, sys.executable, *sys.argv], environment)


def raise_loopback():
    """Switches on the loopback of a new namespace: some agents talk to themselves over it."""
    set_flags, up_and_running = 0x8914, 0x41
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, set_flags, struct.pack("16sh", b"lo", up_and_running))


class Agent:
    """A running agent and its connection."""

    def __init__(self, command, home, work):
        environment = {
            "HOME": home, "PATH": os.environ["PATH"], "ANTHROPIC_API_KEY": "x", "OPENAI_API_KEY": "x",
            "CODEX_API_KEY": "x", "GEMINI_API_KEY": "x",
        }
        self.begun = time.perf_counter()
        self.process = subprocess.Popen(
            command, cwd=work, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )
        self.number = 0
        self.keys = []

    def call(self, method, params):
        """Sends a request and returns its response, or None if the agent ends or takes too long."""
        self.number += 1
        message = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}
        watchdog = threading.Timer(PATIENCE, self.kill)
        watchdog.start()
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()
            for line in self.process.stdout:
                try:
                    answer = json.loads(line)
                except ValueError:
                    continue
                if answer.get("id") == self.number and "method" not in answer:
                    return answer
        except BrokenPipeError:
            pass
        finally:
            watchdog.cancel()
        return None

    def initialize(self):
        """Initializes the connection, and returns the milliseconds since the start; None if that failed."""
        answer = self.call("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        taken = (time.perf_counter() - self.begun) * 1000
        methods = ((answer or {}).get("result") or {}).get("authMethods") or []
        self.keys = [method["id"] for method in methods if "key" in method["id"].lower()]
        return taken if answer and "result" in answer else None

    def kill(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def end(self):
        for process in reversed(family(self.process.pid)):
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()


def family(root):
    """Returns a process and all its descendants."""
    children = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                    parent = int(file.read().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry))
    found, rest = [], [root]
    while rest:
        process = rest.pop()
        found.append(process)
        rest.extend(children.get(process, []))
    return found


def memory_mb(root):
    """Returns the proportional share of memory of a process and its descendants, and their number."""
    total, count = 0, 0
    for process in family(root):
        try:
            with open(f"/proc/{process}/smaps_rollup", encoding="utf-8") as file:
                total += next(int(line.split()[1]) for line in file if line.startswith("Pss:"))
            count += 1
        except (OSError, StopIteration):
            continue
    return total / 1024, count


def with_agent(command, use):
    """Starts an agent in an empty home and folder, and returns what `use` makes of it."""
    with tempfile.TemporaryDirectory() as place:
        home, work = f"{place}/home", f"{place}/work"
        os.mkdir(home)
        os.mkdir(work)
        agent = Agent(command, home, work)
        try:
            return use(agent, work)
        finally:
            agent.end()


def measure_sessions(agent, work):
    """Opens the sessions; returns the memory, the number of processes, and the number of sessions or the reason why there are none."""
    if agent.initialize() is None:
        return None
    opened, reason = 0, ""
    # One that asks for it gets the key of its environment.
    if agent.keys:
        agent.call("authenticate", {"methodId": agent.keys[0]})
    for _ in range(SESSIONS):
        answer = agent.call("session/new", {"cwd": work, "mcpServers": []})
        if not answer or "result" not in answer:
            reason = (answer or {}).get("error", {}).get("message", "it ended")
            break
        opened += 1
    time.sleep(3)
    memory, processes = memory_mb(agent.process.pid)
    return memory, processes, opened, reason


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sabir = os.path.abspath(sys.argv[1])
    folder = os.path.abspath(sys.argv[2] if len(sys.argv) > 2 else "target/acp-agents")
    version = subprocess.run([sabir, "--version"], capture_output=True, text=True).stdout.split()[-1]
    others = install(folder)
    has_network = WITHOUT_NETWORK not in os.environ
    if has_network:
        leave_network()
    else:
        raise_loopback()
    model = ["--model", "anthropic/claude-sonnet-4-5"]
    agents = [("Sabir", version, [sabir, "acp", *model]), *others]
    starts = {name: [] for name, _, _ in agents}
    for _ in range(ROUNDS):
        for name, _, command in random.sample(agents, len(agents)):
            starts[name].append(with_agent(command, lambda agent, _: agent.initialize()))
    print(f"{ROUNDS} starts, {SESSIONS} sessions; {'with' if has_network else 'without'} a network")
    print("| agent | version | start to `initialize` answered, ms | sessions | processes | memory, MB |")
    print("| --- | --- | --- | --- | --- | --- |")
    missed = False
    for name, version, command in agents:
        taken = [one for one in starts[name] if one is not None]
        start = statistics.median(taken) if len(taken) > ROUNDS / 2 else None
        measured = with_agent(command, measure_sessions)
        memory, processes, opened, reason = measured or (0.0, 0, 0, "it does not initialize")
        words = f"{start:.1f}" if start is not None else "–"
        shown = str(opened) if opened == SESSIONS else f"{opened} ({reason})"
        print(f"| {name} | {version} | {words} | {shown} | {processes} | {memory:.0f} |", flush=True)
        if name == "Sabir":
            missed = start is None or start > START_AIM_MS or opened < SESSIONS or memory > MEMORY_AIM_MB
    if missed:
        sys.exit("Sabir misses an aim")


if __name__ == "__main__":
    main()
