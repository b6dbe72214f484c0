#!/usr/bin/env python3
"""Compares the time that a sandbox adds to a command that does nothing: Sabir's, bubblewrap's and Codex's, in one run.

    bench/sandbox/start.py SABIR [CODEX]

SABIR is the binary (use a release build), CODEX the program of the npm package @openai/codex. bubblewrap is taken from PATH. What is
missing is left out. The programs take turns, so that a busy moment meets all of them. For Sabir and Codex the time includes the start
of a program that also does other things; `cargo bench -p sabir-workspace --bench sandbox` measures the sandbox alone.
"""
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROUNDS = int(os.environ.get("ROUNDS", "50"))


def rows(arguments, work):
    sabir = os.path.abspath(arguments[0])
    yield "no sandbox", ["bash", "-c", "true"]
    yield "sabir, off", [sabir, "sandbox", "--level", "off", "--", "true"]
    yield "sabir, level 1", [sabir, "sandbox", "--level", "1", "--", "true"]
    yield "sabir, level 2", [sabir, "sandbox", "--level", "2", "--", "true"]
    if shutil.which("bwrap"):
        walls = f"--ro-bind / / --bind {work} {work} --dev /dev --proc /proc --unshare-all --die-with-parent"
        yield "bubblewrap", ["bwrap", *walls.split(), "bash", "-c", "true"]
    if len(arguments) > 1:
        yield "codex", [os.path.abspath(arguments[1]), "sandbox", "--", "bash", "-c", "true"]


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    work = tempfile.mkdtemp()
    times = {}
    programs = list(rows(sys.argv[1:], work))
    for name, command in list(programs):
        done = subprocess.run(command, cwd=work, capture_output=True, text=True)
        if done.returncode != 0:
            print(f"{name}: does not run here: {done.stderr.strip().splitlines()[-1:]}")
            programs.remove((name, command))
    for _ in range(ROUNDS):
        for name, command in programs:
            begun = time.perf_counter()
            subprocess.run(command, cwd=work, capture_output=True, check=True)
            times.setdefault(name, []).append((time.perf_counter() - begun) * 1000)
    print("| command | median, ms | slowest of ten, ms |")
    print("| --- | ---: | ---: |")
    for name, found in times.items():
        found.sort()
        print(f"| {name} | {statistics.median(found):.1f} | {found[len(found) * 9 // 10]:.1f} |")
    shutil.rmtree(work)


main()
