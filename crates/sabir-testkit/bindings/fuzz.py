"""Feeds random input to every function of the Python package: random text and bytes, pieces of markup, wrong options, readers that have
finished.

    python fuzz.py COUNT SEED

Only the package's own errors, and those of Python for values of a wrong type, may come out. A panic inside would be a
`pyo3_runtime.PanicException`, which is no `Exception`, and ends the program. Memory must not grow after the first part: neither what Python
allocates (tracemalloc) nor the process as a whole.
"""

import gc
import os
import random
import sys
import tracemalloc

import sabir

PIECES = [
    "<look>", "</look>", "<path>", "</path>", "a", "\n", "<tool_call>", "</tool_call>", '{"name": "look", ',
    '"arguments": {"path": "x"}}', "[TOOL_CALLS]", "<|python_tag|>", "look(path='a')", "<function=look>", "</function>",
    "<parameter=path>", "</parameter>", '<invoke name="look">', "</invoke>", "```", "<think>", "</think>", "😀é", "\\u00",
    '"', "{", "}", "[", "]", "<|tool_call|>", "<<<<<<< SEARCH\n", "=======\n", ">>>>>>> REPLACE\n", "*** Begin Patch\n",
    'data: {"choices": [', "\0",
]
SCHEMA = {"type": "object", "properties": {"path": {"type": "string", "minLength": 1}, "size": {"type": "integer"}}}
TOOLS = [
    None,
    [{"name": "look", "input_schema": SCHEMA}],
    [{"name": "look", "inputSchema": {"type": "object", "properties": {"path": {"type": "integer"}}}}],
    [{"type": "function", "function": {"name": "look", "parameters": {"$ref": "#/missing"}}}],
    "[", {}, [3], '[{"name": "look", "parameters": {"type": "object", "properties": {"path": {"pattern": "(a"}}}}]',
]
DIALECTS = ["auto", "cline", "hermes", "invoke", "mistral", "harmony", "glm", "pythonic", "none", ""]
REASONS = ["ended", "limit", "broken", "cancelled", "odd", ""]
FORMATS = ["auto", "search-replace", "patch", "string-replace", "odd"]
WARM_UP = 50_000
# Python and the allocator keep some memory for later.
MAX_TRACED_GROWTH = 256 << 10
MAX_RESIDENT_GROWTH = 8 << 20


def resident_bytes():
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")


class Fuzzer:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.reader = sabir.Reader()
        self.deltas = sabir.OpenAIDeltas()
        self.errors = 0

    def text(self):
        choice = self.random.choice
        pieces = [choice(PIECES) for _ in range(self.random.randrange(20))]
        if self.random.randrange(8) == 0:
            pieces.append(chr(self.random.randrange(0xD800)))
        return "".join(pieces)

    def bytes(self):
        content = self.text().encode()
        if content and self.random.randrange(4) == 0:
            at = self.random.randrange(len(content))
            content = content[:at] + self.random.randbytes(1) + content[at + 1 :]
        return content

    def options(self):
        return {"dialect": self.random.choice(DIALECTS), "tools": self.random.choice(TOOLS)}

    def step(self):
        choice = self.random.choice
        kind = self.random.randrange(32)
        if kind == 0:
            self.reader = sabir.Reader(**self.options(), marks=choice([True, False]), single_call=choice([True, False]))
        elif kind == 1:
            self.reader = self.reader.next_reader()
        elif kind == 2:
            self.deltas = sabir.OpenAIDeltas(**self.options(), whole_calls=choice([True, False]))
        elif kind == 3:
            self.reader.finish(choice(REASONS))
        elif kind == 4:
            self.deltas.finish(choice(REASONS))
        elif kind == 5:
            sabir.parse(self.bytes(), **self.options())
        elif kind == 6:
            sabir.check(self.text(), **self.options(), strict=choice([True, False]))
        elif kind == 7:
            sabir.explain(self.text(), **self.options())
        elif kind == 8:
            sabir.detect(self.bytes(), choice(TOOLS))
        elif kind == 9:
            sabir.decode(self.bytes(), choice(["auto", "anthropic", "openai", "odd"]), choice(TOOLS))
        elif kind == 10:
            sabir.render(choice([self.text(), [{"name": "look", "arguments": {"path": self.text()}}]]), **self.options())
        elif kind == 11:
            sabir.edit(self.text(), self.text(), choice(FORMATS))
        elif kind == 12:
            choice([lambda: sabir.lint(choice(TOOLS)), lambda: sabir.prompt(**self.options()), lambda: sabir.guess_tools(self.text())])()
        elif kind < 22:
            self.deltas.push(self.text())
        elif kind < 27:
            self.reader.push(self.bytes())
        else:
            self.reader.push(self.text())

    def run(self, count):
        for _ in range(count):
            try:
                self.step()
            except (sabir.SabirError, sabir.CallError, TypeError, ValueError):
                self.errors += 1


def main():
    count, seed = int(sys.argv[1]), int(sys.argv[2])
    fuzzer = Fuzzer(seed)
    warm_up = min(WARM_UP, count // 2)
    fuzzer.run(warm_up)
    gc.collect()
    resident = resident_bytes()
    # What is traced takes memory itself, so the process is measured without it first.
    fuzzer.run(count - warm_up - count // 10)
    gc.collect()
    resident = resident_bytes() - resident
    tracemalloc.start()
    gc.collect()
    traced, _ = tracemalloc.get_traced_memory()
    fuzzer.run(count // 10)
    gc.collect()
    traced = tracemalloc.get_traced_memory()[0] - traced
    print(f"{count} inputs, {fuzzer.errors} errors, {resident >> 10} KiB more resident, {traced >> 10} KiB more traced")
    return resident > MAX_RESIDENT_GROWTH or traced > MAX_TRACED_GROWTH


sys.exit(main())
