// Measures streaming of one call with 100 KB of arguments in chunks of 16 bytes: Sabir beside other parsers, in one run. The others parse
// what they have so far with every chunk, as their users do.
import { parse as parsePartial } from "partial-json";
import { parse as parseBestEffort } from "best-effort-json-parser";
import { parsePartialJson } from "ai";
import { Reader } from "sabir";

const line = 'if (a < b) { f("x"); }\n';
const argumentsOf = (size) => JSON.stringify({ path: "src/main.rs", content: line.repeat(Math.floor(size / line.length)) });
const chunksOf = (text) => text.match(/[^]{1,16}/g);
const median = (numbers) => numbers.sort((a, b) => a - b)[Math.floor(numbers.length / 2)];
async function measure(run, times) {
  const taken = [];
  for (let i = 0; i < times; i++) {
    const start = performance.now();
    await run();
    taken.push(performance.now() - start);
  }
  return median(taken);
}
const size = 100_000;
const whole = `<tool_call>\n{"name": "write", "arguments": ${argumentsOf(size)}}\n</tool_call>`;
const tools = [{ name: "write", parameters: { type: "object", properties: { path: { type: "string" }, content: { type: "string" } } } }];
const template = new Reader({ dialect: "hermes", tools });
const ours = await measure(() => {
  const reader = template.nextReader();
  let ended = false;
  const note = (events) => (ended ||= events.some((event) => event.event === "call_end"));
  for (const chunk of chunksOf(whole)) note(reader.push(chunk));
  if (!note(reader.finish())) throw new Error("no call");
  reader.free();
}, 9);
console.log(`sabir Reader             ${ours.toFixed(1).padStart(9)} ms`);
const others = [
  ["partial-json", parsePartial],
  ["best-effort-json-parser", parseBestEffort],
  ["ai parsePartialJson", parsePartialJson],
];
for (const [name, parse] of others) {
  // A quarter of the text, scaled by the square: all of them are quadratic.
  const part = size / 4;
  const taken = 16 * (await measure(async () => {
    let text = "";
    for (const chunk of chunksOf(argumentsOf(part))) await parse((text += chunk));
  }, 1));
  console.log(`${name.padEnd(24)} ${taken.toFixed(1).padStart(9)} ms, ${(taken / ours).toFixed(0)} times, scaled from ${part} bytes`);
}
