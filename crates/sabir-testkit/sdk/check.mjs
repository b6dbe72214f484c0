// Do the official JavaScript clients read our streams? Last line: N passed, N failed.
import { isDeepStrictEqual } from "node:util";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

const address = process.argv[2];
const chat = new OpenAI({ baseURL: address + "/v1", apiKey: "k" });
const messages = new Anthropic({ baseURL: address, apiKey: "k" });
let passed = 0;
let failed = 0;

const CALL = [["call_1", "read_file", { path: 'ä "b"\n.rs', lines: [1, 50], all: false }]];
const CALLS = [["call_1", "read_file", { path: "a.rs" }], ["call_2", "read_file", { path: "b.rs" }], ["call_3", "now", {}]];

function check(name, found, expected) {
  if (isDeepStrictEqual(found, expected)) {
    passed += 1;
  } else {
    failed += 1;
    console.log(`FAIL ${name}: found ${JSON.stringify(found)}, expected ${JSON.stringify(expected)}`);
  }
}

async function guarded(name, work) {
  try {
    await work();
  } catch (error) {
    failed += 1;
    console.log(`FAIL ${name}: ${error}`);
  }
}

const user = (model) => ({ model, messages: [{ role: "user", content: "go" }] });
const stream = (model) => chat.chat.completions.stream({ ...user(model), stream_options: { include_usage: true } });
const message = (model) => messages.messages.stream({ ...user(model), max_tokens: 99 }).finalMessage();
const words = (done) => done.content.filter((b) => b.type === "text").map((b) => b.text).join("");
const calls = (done) => done.content.filter((b) => b.type === "tool_use").map((b) => [b.id, b.name, b.input]);

const response = (model) => chat.responses.stream({ model, input: "go" }).finalResponse();
const responseCalls = (done) =>
  done.output.filter((item) => item.type === "function_call").map((item) => [item.call_id, item.name, JSON.parse(item.arguments)]);

await guarded("chat text", async () => {
  const done = await stream("text").finalChatCompletion();
  check("chat text", done.choices[0].message.content, "Hello, wörld 😀.");
  check("chat usage", done.usage.prompt_tokens, 12);
});
for (const [model, expected] of [["call", CALL], ["calls", CALLS], ["empty", [["call_1", "now", {}]]]]) {
  await guarded(`chat ${model}`, async () => {
    const done = await stream(model).finalChatCompletion();
    const found = done.choices[0].message.tool_calls.map((c) => [c.id, c.function.name, JSON.parse(c.function.arguments)]);
    check(`chat ${model}`, found, expected);
  });
  await guarded(`responses ${model}`, async () => check(`responses ${model}`, responseCalls(await response(model)), expected));
  await guarded(`messages ${model}`, async () => check(`messages ${model}`, calls(await message(model)), expected));
}
await guarded("chat error", async () => {
  const error = await stream("error").finalChatCompletion().then(() => null, (error) => error);
  check("chat error", String(error).includes("Overloaded"), true);
});
await guarded("messages text", async () => {
  const done = await message("text");
  check("messages text", words(done), "Hello, wörld 😀.");
  check("messages usage", [done.usage.input_tokens, done.usage.output_tokens], [12, 5]);
});
await guarded("messages thinking", async () => {
  const done = await message("thinking");
  check("messages thinking", [done.content[0].thinking, done.content[0].signature, words(done)], ["Let me see.", "c2ln", "42"]);
});
await guarded("messages error", async () => {
  const error = await message("error").then(() => null, (error) => error);
  check("messages error", String(error).includes("Overloaded"), true);
});
await guarded("responses text", async () => {
  const done = await response("text");
  check("responses text", done.output_text, "Hello, wörld 😀.");
  check("responses usage", [done.usage.input_tokens, done.usage.output_tokens], [12, 5]);
});
await guarded("responses thinking", async () => {
  const done = await response("thinking");
  check("responses thinking", [done.output[0].summary[0].text, done.output_text], ["Let me see.", "42"]);
});
await guarded("responses error", async () => {
  const error = await response("error").then(() => null, (error) => error);
  check("responses error", String(error).includes("Overloaded"), true);
});
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed ? 1 : 0;
