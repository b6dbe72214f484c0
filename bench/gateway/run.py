#!/usr/bin/env python3
"""Loads the gateway with streams beside a plain TCP proxy, and beside LiteLLM where it is given.

    bench/gateway/run.py SABIR LOAD [LITELLM]

SABIR is the binary and LOAD is `sabir-load` of this folder (release builds), LITELLM the program of that name. Upstream and client are
pinned to one core, what is measured to another one. Prints Markdown: for each number of streams the requests that failed, the
latency of a delta from the upstream's write to the client's read, CPU time per delta, and memory per stream.
`STREAMS` (default "100 1000 5000") and `SECONDS` (default 20) change the load. A stream has 100 deltas, one every 50 ms.
"""
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time

DELTAS = 100
INTERVAL_MS = 50
LEVELS = [int(word) for word in os.environ.get("STREAMS", "100 1000 5000").split()]
SECONDS = float(os.environ.get("SECONDS", "20"))
TICKS = os.sysconf("SC_CLK_TCK")
CORE_OF_LOAD, CORE_OF_GATEWAY = 0, 1


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(core, command, **options):
    return subprocess.Popen(["taskset", "-c", str(core), *command], **options)


def wait_for(port, process):
    for _ in range(1200):
        if process.poll() is not None:
            sys.exit(f"a process ended with {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    sys.exit(f"nobody listens at {port}")


def cpu_seconds(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def status_kib(pid, name):
    for line in open(f"/proc/{pid}/status"):
        if line.startswith(name):
            return int(line.split()[1])
    return 0


def measure(load, port, pid, streams):
    requests = max(streams, int(streams * SECONDS / (DELTAS * INTERVAL_MS / 1000)))
    # The peak of an earlier level must not count.
    open(f"/proc/{pid}/clear_refs", "w").write("5")
    memory = status_kib(pid, "VmRSS")
    before = cpu_seconds(pid)
    client = ["client", f"127.0.0.1:{port}", str(streams), str(requests), str(DELTAS), "m", "t"]
    out = start(CORE_OF_LOAD, [load, *client], stdout=subprocess.PIPE, text=True).communicate()[0].split()
    used = cpu_seconds(pid) - before
    sent, failed, deltas, middle, high, worst = map(int, out)
    per_delta = used / max(deltas, 1) * 1e6
    per_stream = (status_kib(pid, "VmHWM") - memory) / streams
    return sent, failed, middle, high, worst, per_delta, per_stream


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sabir, load = sys.argv[1:3]
    # Each stream needs two connections of what is measured; the other processes inherit the limit.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if most < 2 * max(LEVELS) + 100:
        sys.exit(f"only {most} files may be open: raise the limit (ulimit -Hn), or set STREAMS")
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    litellm = sys.argv[3] if len(sys.argv) > 3 else None
    upstream_port = free_port()
    upstream = start(CORE_OF_LOAD, [load, "upstream", f"127.0.0.1:{upstream_port}", str(DELTAS), str(INTERVAL_MS)])
    running = [upstream]
    try:
        wait_for(upstream_port, upstream)
        with tempfile.TemporaryDirectory() as folder:
            targets = {}
            port = free_port()
            targets["TCP proxy"] = (port, [load, "proxy", f"127.0.0.1:{port}", f"127.0.0.1:{upstream_port}"], {})
            port = free_port()
            config = os.path.join(folder, "gateway.toml")
            with open(config, "w") as file:
                file.write("[gateway]\nlog = \"off\"\n[gateway.limits]\nconnections = 20000\nanswers = 20000\n")
                file.write(f"[gateway.models.m]\nto = \"http://127.0.0.1:{upstream_port}\"\n")
            gateway = [sabir, "--config", config, "gateway", "--quiet", "--listen", f"127.0.0.1:{port}"]
            targets["sabir"] = (port, gateway, {"SABIR_GATEWAY_TOKEN": "t"})
            if litellm:
                port = free_port()
                settings = os.path.join(folder, "litellm.yaml")
                with open(settings, "w") as file:
                    file.write("model_list:\n- model_name: m\n  litellm_params:\n    model: openai/m\n    api_key: x\n")
                    file.write(f"    api_base: http://127.0.0.1:{upstream_port}/v1\n")
                proxy = [litellm, "--config", settings, "--port", str(port), "--host", "127.0.0.1"]
                targets["LiteLLM"] = (port, proxy, {"LITELLM_LOG": "ERROR", "LITELLM_TELEMETRY": "False"})
            print("| through | streams | requests | failed | p50 µs | p99 µs | worst ms | CPU µs a delta | KiB a stream |")
            print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
            for name, (port, command, variables) in targets.items():
                process = start(
                    CORE_OF_GATEWAY,
                    command,
                    env={**os.environ, **variables},
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
                running.append(process)
                wait_for(port, process)
                for streams in LEVELS:
                    sent, failed, middle, high, worst, cpu, memory = measure(load, port, process.pid, streams)
                    print(
                        f"| {name} | {streams} | {sent} | {failed} | {middle} | {high} | {worst / 1000:.1f} "
                        f"| {cpu:.1f} | {memory:.1f} |",
                        flush=True,
                    )
                process.terminate()
                process.wait()
                running.remove(process)
    finally:
        for process in running:
            process.kill()


main()
