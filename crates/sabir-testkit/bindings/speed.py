"""Measures streaming of one call with 100 KB of arguments in chunks of 16 bytes: Sabir beside other parsers, in one run.

    python speed.py

The others parse what they have so far with every chunk, as their users do. Those that would take minutes are given the first part of the
stream, and their time is scaled by the square, which flatters them if they grow faster.
"""

import json
import statistics
import time

import json_repair
import partial_json_parser

import sabir

SIZE = 100_000
CHUNK = 16
TOOLS = [{"name": "write", "parameters": {"type": "object", "properties": {"path": {"type": "string"}, "content": {"type": "string"}}}}]


def chunks_of(text):
    return [text[at : at + CHUNK] for at in range(0, len(text), CHUNK)]


def measure(run, times):
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def arguments(size):
    line = 'if (a < b) { f("x"); }\n'
    return json.dumps({"path": "src/main.rs", "content": line * (size // len(line))})


def main():
    whole = f'<tool_call>\n{{"name": "write", "arguments": {arguments(SIZE)}}}\n</tool_call>'
    template = sabir.Reader("hermes", TOOLS)

    def read_events():
        reader = template.next_reader()
        ended = False
        for chunk in chunks_of(whole):
            for event in reader.push(chunk):
                ended = ended or event["event"] == "call_end"
        assert ended or reader.finish()[-1]["event"] == "call_end"

    def read_deltas():
        stream = sabir.OpenAIDeltas("hermes", TOOLS)
        for chunk in chunks_of(whole):
            stream.push(chunk)
        assert stream.finish()["finish_reason"] == "tool_calls"

    ours = measure(read_events, 9)
    print(f"sabir.Reader                     {ours * 1000:10.1f} ms")
    print(f"sabir.OpenAIDeltas               {measure(read_deltas, 9) * 1000:10.1f} ms")

    def incremental(parse):
        def run_on(size):
            text, chunks = "", chunks_of(arguments(size))

            def run():
                nonlocal text
                text = ""
                for chunk in chunks:
                    text += chunk
                    parse(text)

            return run

        return run_on

    for name, parse, size in (
        ("partial-json-parser", partial_json_parser.loads, SIZE // 4),
        ("json-repair", json_repair.loads, SIZE // 20),
    ):
        taken = measure(incremental(parse)(size), 1) * (SIZE / size) ** 2
        scaled = "" if size == SIZE else f", scaled from {size} bytes"
        print(f"{name:32} {taken * 1000:10.1f} ms, {taken / ours:8.0f} times sabir.Reader{scaled}")


main()
