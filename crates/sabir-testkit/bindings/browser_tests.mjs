// Tests the entry of the npm package for browsers, with a `fetch` that reads files: what is downloaded when, and what the small module refuses.
//
//     node browser_tests.mjs PACKAGE_FOLDER
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { register } from "node:module";
import { pathToFileURL } from "node:url";

const folder = pathToFileURL(`${process.argv[2]}/`);
const fetched = [];
let isOffline = false;
globalThis.fetch = async (url) => {
  if (isOffline) throw new TypeError("there is no network");
  fetched.push(url.pathname.split("/").at(-1));
  return new Response(readFileSync(url), { headers: { "content-type": "application/wasm" } });
};
// The middleware imports the package by its name, which must be the entry under test.
const entry = new URL("browser.js", folder).href;
register(`data:text/javascript,${encodeURIComponent(`
  export const resolve = (name, context, next) =>
    name === "sabir" ? { url: ${JSON.stringify(entry)}, shortCircuit: true } : next(name, context);
`)}`);
const sabir = await import(entry);
const { sabirMiddleware } = await import(new URL("ai-sdk.js", folder));
const [small, full] = ["sabir_wasm_bg.wasm", "sabir_full_bg.wasm"];
assert.deepEqual(fetched, [small]);

const tool = (name, properties) => ({ name, input_schema: { type: "object", properties, required: Object.keys(properties) } });
const common = [tool("look", { path: { type: "string", minLength: 2 }, kind: { enum: ["a", "b"] }, size: { anyOf: [{ type: "integer" }, { type: "null" }] } })];
const rare = [...common, tool("find", { word: { type: "string", pattern: "^[a-z]+$" } })];
const texts = [
  "<look><path>a.rs</path><kind>a</kind><size>7</size></look>",
  "<look><path>a</path><kind>c</kind><size>much</size></look>",
  "<look><kind>a</kind><odd>1</odd></look>",
];
const isNotLoaded = { name: "SabirError", code: "not_loaded" };

// Common schemas need the small module only.
const reports = texts.map((text) => sabir.check(text, { tools: common }));
assert.deepEqual(reports.map((report) => report.ok), [true, false, false]);
const reader = new sabir.Reader({ tools: common });
assert.equal(reader.push(texts[0]).at(-1).event, "call_end");
reader.free();

// Functions that validate no values need the small module only, for any schemas.
const foundWord = "<find><word>A1</word></find>";
const events = [];
for await (const event of sabir.read([foundWord], { tools: rare })) events.push(event);
assert.equal(events.at(-1).event, "call_end");
assert.match(sabir.prompt({ dialect: "hermes", tools: rare }), /find/);
assert.match(sabir.render([{ name: "find", arguments: { word: "a" } }], { dialect: "hermes", tools: rare }), /find/);
assert.deepEqual(fetched, [small]);

// The rest says what is missing, and works afterwards.
for (const run of [sabir.check, sabir.parse, sabir.explain]) assert.throws(() => run(texts[0], { tools: rare }), isNotLoaded);
assert.throws(() => new sabir.OpenAIDeltas({ tools: rare }), isNotLoaded);
for (const run of [() => sabir.decode("{}"), () => sabir.detect("a"), () => sabir.edit("a", "b", "whole"), () => sabir.lint(common)]) {
  assert.throws(run, isNotLoaded);
}

// Without a network the error is the same one, with its cause, and the source of a stream is closed.
isOffline = true;
await assert.rejects(sabir.load(), (error) => error.code === "not_loaded" && error.cause instanceof TypeError);
let closed = 0;
const source = { [Symbol.asyncIterator]: () => ({ next: () => assert.fail("it was read"), return: async () => void closed++ }) };
await assert.rejects(sabir.toOpenAIDeltas(source, { tools: rare }).next(), isNotLoaded);
await assert.rejects(sabir.toOpenAIDeltas(source, { tools: [{}] }).next(), { code: "invalid_tools" });
assert.equal(closed, 2);
const body = new ReadableStream({ cancel: () => void closed++ });
await assert.rejects(sabir.toOpenAIDeltas(body, { tools: rare }).next(), isNotLoaded);
assert.equal(closed, 3);

// The middleware passes answers through where it cannot read with the tools, and says so once.
const warnings = [];
console.warn = (message) => warnings.push(message);
const sdkTools = (schema, name = "find") => [{ type: "function", name, inputSchema: schema }];
const native = { type: "tool-call", toolCallId: "1", toolName: "find", input: "{}" };
const contents = [[native], [{ type: "text", text: foundWord }]];
const partsOf = (content) =>
  content.flatMap((part) =>
    part.type === "text" ? [{ type: "text-start", id: "0" }, { type: "text-delta", id: "0", delta: part.text }, { type: "text-end", id: "0" }] : [part],
  );
const answer = async (middleware, tools, content) => {
  const doGenerate = async () => ({ content, finishReason: "stop" });
  const doStream = async () => ({ stream: ReadableStream.from(partsOf(content)) });
  const whole = await middleware.wrapGenerate({ doGenerate, params: { tools } });
  const { stream } = await middleware.wrapStream({ doStream, params: { tools } });
  const parts = [];
  for await (const part of stream) parts.push(part);
  return { whole: whole.content, parts };
};
const rareTools = sdkTools(rare[1].input_schema);
const broken = [sdkTools({ type: "object" }, "a b"), sdkTools(null), [...rareTools, ...rareTools]];
const middleware = sabirMiddleware();
for (const tools of [rareTools, ...broken]) {
  for (const content of contents) {
    assert.deepEqual(await answer(middleware, tools, content), { whole: content, parts: partsOf(content) });
  }
}
assert.deepEqual(warnings.length, 2);
assert.match(warnings[0], /cannot be loaded/);
// A wrong option is an error before the model is asked.
const isAsked = () => assert.fail("the model was asked");
const odd = sabirMiddleware({ dialect: "no such" });
for (const request of [odd.wrapGenerate({ doGenerate: isAsked, params: { tools: rareTools } }), odd.wrapStream({ doStream: isAsked, params: { tools: rareTools } })]) {
  await assert.rejects(request, { code: "unknown_dialect" });
}
isOffline = false;
assert.deepEqual(fetched, [small]);
const repaired = await answer(middleware, sdkTools({ ...rare[1].input_schema, properties: { word: { type: "string", pattern: "^[A-Z]" } } }), contents[1]);
assert.deepEqual(JSON.parse(repaired.whole[0].input), { word: "A1" });
assert.equal(repaired.parts.at(-1).type, "tool-call");
assert.deepEqual(fetched, [small, full]);
await Promise.all([sabir.load(), sabir.load()]);
assert.deepEqual(fetched, [small, full]);
const found = sabir.check(foundWord, { tools: rare });
assert.match(found.faults[0].message, /does not match/);
assert.equal(sabir.edit("a", "b", "whole").content, "b");
const next = new sabir.Reader({ tools: rare }).nextReader();
assert.equal(next.push("<find><word>a</word></find>").at(-1).event, "call_end");

// Both modules give the same results.
assert.deepEqual(texts.map((text) => sabir.check(text, { tools: rare })), reports);
console.log(`${fetched.length} modules, the second one only when it was needed`);
