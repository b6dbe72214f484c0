// Tests the entry of the npm package for browsers, with a `fetch` that reads files: what is downloaded when, and what the small module refuses.
//
//     node browser_tests.mjs PACKAGE_FOLDER
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const folder = pathToFileURL(`${process.argv[2]}/`);
const fetched = [];
let isOffline = false;
globalThis.fetch = async (url) => {
  if (isOffline) throw new TypeError("there is no network");
  fetched.push(url.pathname.split("/").at(-1));
  return new Response(readFileSync(url), { headers: { "content-type": "application/wasm" } });
};
const sabir = await import(new URL("browser.js", folder));
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
const judged = texts.map((text) => sabir.check(text, { tools: common }));
assert.deepEqual(judged.map((report) => report.ok), [true, false, false]);
const reader = new sabir.Reader({ tools: common });
assert.equal(reader.push(texts[0]).at(-1).event, "call_end");
reader.free();

// The rest says what is missing, and works afterwards.
assert.throws(() => new sabir.Reader({ tools: rare }), isNotLoaded);
assert.throws(() => sabir.check(texts[0], { tools: rare }), isNotLoaded);
for (const run of [() => sabir.decode("{}"), () => sabir.detect("a"), () => sabir.edit("a", "b", "whole"), () => sabir.lint(common)]) {
  assert.throws(run, isNotLoaded);
}
isOffline = true;
await assert.rejects(sabir.load(), TypeError);
isOffline = false;
assert.deepEqual(fetched, [small]);
const events = [];
for await (const event of sabir.read(["<find><word>A1</word></find>"], { tools: rare })) events.push(event);
assert.equal(events.at(-1).event, "call_end");
await Promise.all([sabir.load(), sabir.load()]);
assert.deepEqual(fetched, [small, full]);
const found = sabir.check("<find><word>A1</word></find>", { tools: rare });
assert.match(found.faults[0].message, /does not match/);
assert.equal(sabir.edit("a", "b", "whole").content, "b");
const next = new sabir.Reader({ tools: rare }).nextReader();
assert.equal(next.push("<find><word>a</word></find>").at(-1).event, "call_end");

// Both modules judge alike.
assert.deepEqual(texts.map((text) => sabir.check(text, { tools: rare })), judged);
console.log(`${fetched.length} modules, the second one only when it was needed`);
