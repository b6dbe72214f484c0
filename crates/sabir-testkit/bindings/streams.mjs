// Reads the streams of crates/sabir-bindings/examples/streams.rs with the npm package and prints their events.
import { readFileSync, writeSync } from "node:fs";
import { Reader } from "sabir";

const CHUNK_SIZES = [1, 3, 16, 256, 0];
const data = readFileSync(0);
let at = 0;
const readText = () => {
  const length = data.readUInt32LE(at);
  at += 4 + length;
  return data.subarray(at - length, at);
};
let lines = [];
const flush = () => {
  let bytes = Buffer.from(lines.map((line) => line + "\n").join(""));
  while (bytes.length > 0) bytes = bytes.subarray(writeSync(1, bytes));
  lines = [];
};
while (at < data.length) {
  const options = JSON.parse(readText().toString());
  const stream = readText();
  for (const chunkSize of CHUNK_SIZES) {
    const reader = new Reader(options);
    const size = chunkSize || Math.max(stream.length, 1);
    for (let start = 0; start < stream.length; start += size) {
      const events = reader.push(stream.subarray(start, start + size));
      if (events.length > 0) lines.push(JSON.stringify(events));
    }
    lines.push(JSON.stringify(reader.finish()), "--");
    reader.free();
  }
  if (lines.length > 10000) flush();
}
flush();
