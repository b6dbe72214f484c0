// Feeds random input to every function of the npm package: random strings and bytes, pieces of markup, wrong options, readers that have
// finished or were freed.
//
//     node --expose-gc fuzz.mjs COUNT SEED
//
// Only the package's own errors, and those of JavaScript for values of a wrong type, may come out. A panic inside would be a
// `WebAssembly.RuntimeError`. Neither the memory of the modules nor the process may grow after the first part.
import { setImmediate } from "node:timers/promises";

// The memories of the modules are not exported by the package: they are taken from the instances.
const memories = [];
WebAssembly.Instance = class extends WebAssembly.Instance {
  constructor(module, imports) {
    super(module, imports);
    memories.push(this.exports.memory);
  }
};
const sabir = await import("sabir");

const [count, seed] = process.argv.slice(2).map(Number);
if (!globalThis.gc || !count) throw new Error("usage: node --expose-gc fuzz.mjs COUNT SEED");
const warmUp = Math.min(50_000, Math.floor(count / 2));
// An engine keeps some memory for later, and a module's never shrinks: a few pieces between others make it grow by pages of 64 KiB.
const maxModuleGrowth = 1 << 20;
const maxResidentGrowth = 32 << 20;

let state = seed >>> 0;
/** Returns a number from 0 to before `end` (mulberry32). */
function below(end) {
  state = (state + 0x6d2b79f5) >>> 0;
  let mixed = Math.imul(state ^ (state >>> 15), state | 1);
  mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
  return ((mixed ^ (mixed >>> 14)) >>> 0) % end;
}
const pick = (list) => list[below(list.length)];

const pieces = [
  "<look>", "</look>", "<path>", "</path>", "a", "\n", "<tool_call>", "</tool_call>", '{"name": "look", ',
  '"arguments": {"path": "x"}}', "[TOOL_CALLS]", "<|python_tag|>", "look(path='a')", "<function=look>", "</function>",
  "<parameter=path>", "</parameter>", '<invoke name="look">', "</invoke>", "```", "<think>", "</think>", "😀é", "\ud83d", "\\u00",
  '"', "{", "}", "[", "]", "<|tool_call|>", "<<<<<<< SEARCH\n", "=======\n", ">>>>>>> REPLACE\n", "*** Begin Patch\n",
  'data: {"choices": [', "\0",
];
const schema = { type: "object", properties: { path: { type: "string", minLength: 1 }, size: { type: "integer" } } };
const tools = [
  undefined,
  [{ name: "look", input_schema: schema }],
  [{ name: "look", inputSchema: { type: "object", properties: { path: { type: "integer" } } } }],
  [{ type: "function", function: { name: "look", parameters: { $ref: "#/missing" } } }],
  "[", {}, [3], [{ name: "look", parameters: { type: "object", properties: { path: { pattern: "(a" } } } }],
];
const dialects = ["auto", "cline", "hermes", "invoke", "mistral", "harmony", "glm", "pythonic", "none", "", 3];
const reasons = ["ended", "limit", "broken", "cancelled", "odd", ""];
const formats = ["auto", "search-replace", "patch", "string-replace", "odd"];

function text() {
  let made = "";
  for (let left = below(20); left > 0; left--) made += pick(pieces);
  return below(8) === 0 ? made + String.fromCharCode(below(0x10000)) : made;
}
function bytes() {
  const made = new TextEncoder().encode(text());
  if (made.length > 0 && below(4) === 0) made[below(made.length)] = below(256);
  return made;
}
const options = () => ({ dialect: pick(dialects), tools: pick(tools) });

let reader = new sabir.Reader();
let deltas = new sabir.OpenAIDeltas();
let errors = 0;
const steps = [
  () => {
    // Half of the readers are left to the garbage collector.
    if (below(2)) reader.free();
    reader = new sabir.Reader({ ...options(), marks: below(2) === 0, single_call: below(2) === 0 });
  },
  () => (reader = reader.nextReader()),
  () => {
    if (below(2)) deltas.free();
    deltas = new sabir.OpenAIDeltas({ ...options(), whole_calls: below(2) === 0 });
  },
  () => reader.finish(pick(reasons)),
  () => deltas.finish(pick(reasons)),
  () => sabir.parse(text(), options()),
  () => sabir.check(text(), { ...options(), strict: below(2) === 0 }),
  () => sabir.explain(text(), options()),
  () => sabir.detect(text(), options()),
  () => sabir.decode(bytes(), { wire: pick(["auto", "anthropic", "openai", "odd"]), tools: pick(tools) }),
  () => sabir.render(pick([text(), [{ name: "look", arguments: { path: text() } }]]), options()),
  () => sabir.edit(text(), text(), pick(formats)),
  () => pick([() => sabir.lint(pick(tools)), () => sabir.prompt(options()), () => sabir.guessTools(text())])(),
];
const pushes = [() => deltas.push(text()), () => reader.push(bytes()), () => reader.push(text())];

function isAllowed(error) {
  return error instanceof sabir.SabirError || error instanceof sabir.CallError || error instanceof TypeError;
}

async function run(inputs) {
  for (let input = 0; input < inputs; input++) {
    const chosen = below(32);
    try {
      (steps[chosen] ?? pick(pushes))();
    } catch (error) {
      if (!isAllowed(error)) throw error;
      errors += 1;
    }
    // The collector does not see the memory of the modules, and so runs when it likes. Afterwards the engine frees between its tasks
    // what was left to the collector.
    if (input % 1000 === 0) {
      globalThis.gc();
      await setImmediate();
    }
  }
}
async function measure() {
  for (let round = 0; round < 3; round++) {
    globalThis.gc();
    await setImmediate();
  }
  return { module: memories.reduce((sum, memory) => sum + memory.buffer.byteLength, 0), resident: process.memoryUsage().rss };
}

await run(warmUp);
const before = await measure();
await run(count - warmUp);
const after = await measure();
const moduleGrowth = after.module - before.module;
const residentGrowth = after.resident - before.resident;
console.log(
  `${count} inputs, ${errors} errors, module ${before.module >> 10} KiB + ${moduleGrowth >> 10}, resident ${residentGrowth >> 10} KiB more`,
);
process.exit(moduleGrowth > maxModuleGrowth || residentGrowth > maxResidentGrowth ? 1 : 0);
