// Do the official JavaScript clients read our streams? Last line: N passed, N failed.
import { isDeepStrictEqual } from "node:util";
import Anthropic from "@anthropic-ai/sdk";
import { GoogleGenAI } from "@google/genai";
import { Ollama } from "ollama";
import OpenAI from "openai";

const address = process.argv[2];
const chat = new OpenAI({ baseURL: address + "/v1", apiKey: "k" });
const messages = new Anthropic({ baseURL: address, apiKey: "k" });
const google = new GoogleGenAI({ apiKey: "k", httpOptions: { baseUrl: address } });
const ollama = new Ollama({ host: address });
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

const response = (model) => chat.responses.stream({ model, input: "go" }).finalResponse();
const items = (done) => done.output.filter((i) => i.type === "function_call").map((i) => [i.call_id, i.name, JSON.parse(i.arguments)]);
await guarded("responses text", async () => {
  const done = await response("text");
  const said = done.output.filter((i) => i.type === "message").flatMap((i) => i.content.map((part) => part.text)).join("");
  check("responses text", [said, done.status, done.usage.input_tokens], ["Hello, wörld 😀.", "completed", 12]);
});
for (const [model, expected] of [["call", CALL], ["calls", CALLS], ["empty", [["call_1", "now", {}]]]]) {
  await guarded(`responses ${model}`, async () => check(`responses ${model}`, items(await response(model)), expected));
}
await guarded("responses freeform", async () => {
  const done = await chat.responses.stream({ model: "patch", input: "go", tools: [{ type: "custom", name: "apply_patch" }] }).finalResponse();
  const found = done.output.filter((i) => i.type === "custom_tool_call").map((i) => [i.call_id, i.name, i.input]);
  check("responses freeform", found, [["call_1", "apply_patch", '*** Begin Patch\n+ü "x"\n']]);
});
await guarded("responses error", async () => {
  const error = await response("error").then(() => null, (error) => error);
  check("responses error", error !== null, true);
});

const unnamed = (calls) => calls.map(([, name, input]) => [name, input]);
async function parts(model) {
  const found = [];
  for await (const chunk of await google.models.generateContentStream({ model, contents: "go" })) {
    found.push(...(chunk.candidates?.[0]?.content?.parts ?? []));
  }
  return found;
}
await guarded("gemini text", async () => {
  check("gemini text", (await parts("text")).map((part) => part.text ?? "").join(""), "Hello, wörld 😀.");
  check("gemini whole text", (await google.models.generateContent({ model: "text", contents: "go" })).text, "Hello, wörld 😀.");
});
for (const [model, expected] of [["call", CALL], ["calls", CALLS], ["empty", [["call_1", "now", {}]]]]) {
  await guarded(`gemini ${model}`, async () => {
    const found = (await parts(model)).filter((part) => part.functionCall);
    check(`gemini ${model}`, found.map((part) => [part.functionCall.name, part.functionCall.args ?? {}]), unnamed(expected));
  });
  await guarded(`ollama ${model}`, async () => {
    const found = [];
    for await (const chunk of await ollama.chat({ ...user(model), stream: true })) found.push(...(chunk.message.tool_calls ?? []));
    check(`ollama ${model}`, found.map((call) => [call.function.name, call.function.arguments]), unnamed(expected));
  });
}
await guarded("ollama text", async () => {
  let said = "";
  for await (const chunk of await ollama.chat({ ...user("text"), stream: true })) said += chunk.message.content;
  check("ollama text", said, "Hello, wörld 😀.");
});
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed ? 1 : 0;
