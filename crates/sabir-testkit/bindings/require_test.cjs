// Tests that a CommonJS program can require the npm package, and gets all that a module gets.
"use strict";
const assert = require("node:assert");
const sabir = require("sabir");

const tools = [{ name: "look", input_schema: { type: "object", properties: { path: { type: "string" } } } }];
const reader = new sabir.Reader({ tools });
const events = [...reader.push("<look><path>a.rs</path></look>"), ...reader.finish()];
assert.deepStrictEqual(
  events.filter((event) => event.event === "call_end").map((event) => event.index),
  [0],
);
assert.throws(() => sabir.parse("", { dialect: "none-such" }), sabir.SabirError);
import("sabir").then((module) => {
  assert.deepStrictEqual(Object.keys(sabir).sort(), Object.keys(module).sort());
  // Each has classes of its own, but an error is an instance of both.
  assert.throws(() => module.parse("", { dialect: "none-such" }), sabir.SabirError);
  assert.throws(() => sabir.parse("", { dialect: "none-such" }), module.SabirError);
  const strict = { tools, strict: true };
  assert.throws(() => module.check("<look><nope>1</nope></look>", strict), sabir.CallError);
  console.log(`${Object.keys(sabir).length} exports`);
});
