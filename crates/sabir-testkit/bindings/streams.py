"""Reads the streams of crates/sabir-bindings/examples/streams.rs with the Python package and prints their events."""

import json
import struct
import sys

import sabir

CHUNK_SIZES = [1, 3, 16, 256, 0]


def read_text(data, at):
    (length,) = struct.unpack_from("<I", data, at)
    return data[at + 4 : at + 4 + length], at + 4 + length


def dump(events):
    return json.dumps(events, ensure_ascii=False, separators=(",", ":"))


def main():
    data = sys.stdin.buffer.read()
    out = []
    at = 0
    while at < len(data):
        options, at = read_text(data, at)
        stream, at = read_text(data, at)
        options = json.loads(options)
        for size in CHUNK_SIZES:
            reader = sabir.Reader(**options)
            size = size or max(len(stream), 1)
            for start in range(0, len(stream), size):
                events = reader.push(stream[start : start + size])
                if events:
                    out.append(dump(events))
            out.append(dump(reader.finish()))
            out.append("--")
    out.append("")
    sys.stdout.buffer.write("\n".join(out).encode())


main()
