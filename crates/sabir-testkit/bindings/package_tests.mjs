// Tests the npm package as a user has it, and the middleware with the real AI SDK and a scripted model.
import assert from "node:assert/strict";
import test from "node:test";
import * as sabir from "sabir";
import { sabirMiddleware } from "sabir/ai-sdk";
import { generateText, jsonSchema, stepCountIs, streamText, tool, wrapLanguageModel } from "ai";
import { MockLanguageModelV4, convertArrayToReadableStream } from "ai/test";

const schema = { type: "object", properties: { path: { type: "string" }, line: { type: "integer" } }, required: ["path"] };
const tools = [{ type: "function", function: { name: "look", parameters: schema } }];
const text = "Now:\n<look><path>ä.rs</path><line>7</line></look>";

test("streams take strings and bytes", async () => {
  const bytes = [...new TextEncoder().encode(text)].map((byte) => Uint8Array.of(byte));
  for (const chunks of [[...text], bytes]) {
    const events = [];
    for await (const event of sabir.read(chunks, { tools })) events.push(event);
    const values = events.filter((event) => event.event === "arg_delta").map((event) => event.text);
    assert.equal(values.join(""), "ä.rs7");
    assert.equal(events.at(-1).event, "call_end");
  }
});

test("every shape of tools", () => {
  for (const shape of [tools, [{ name: "look", input_schema: schema }], { tools: [{ name: "look", inputSchema: schema }] }]) {
    const call = sabir.parse(text, { tools: shape }).parts.find((part) => part.type === "call");
    assert.deepEqual([call.state, call.arguments], ["complete", { path: "ä.rs", line: 7 }]);
  }
});

test("checks, strict checks and errors", () => {
  const bad = "<look><line>ten</line></look>";
  assert.equal(sabir.check(bad, { tools }).ok, false);
  assert.throws(() => sabir.check(bad, { tools, strict: true }), (error) => error instanceof sabir.CallError && error.span.length === 2);
  const code = (run) => {
    try {
      run();
    } catch (error) {
      assert.ok(error instanceof sabir.SabirError, String(error));
      return error.code;
    }
  };
  assert.equal(code(() => new sabir.Reader({ dialect: "clime" })), "unknown_dialect");
  assert.equal(code(() => new sabir.Reader({ odd: 1 })), "invalid_options");
  assert.equal(code(() => sabir.edit("a", "b", "magic")), "unknown_word");
  const reader = new sabir.Reader();
  reader.finish();
  assert.equal(code(() => reader.push("x")), "already_finished");
  assert.deepEqual(reader.nextReader().push("x"), [{ event: "text", text: "x" }]);
});

test("the other functions", () => {
  const written = sabir.render([{ name: "look", arguments: { path: "a" } }], { dialect: "hermes", tools });
  assert.equal(sabir.detect(written).dialects[0].dialect, "hermes");
  assert.equal(sabir.guessTools(written)[0].name, "look");
  assert.match(sabir.prompt({ dialect: "hermes", tools }), /look/);
  assert.ok(sabir.lint(tools).prompt_sizes.cline);
  assert.equal(sabir.edit("a\n", '{"old_string": "a", "new_string": "b"}').content, "b\n");
  assert.equal(sabir.explain(text, { tools }).found[0].dialect, "cline");
  assert.ok(sabir.dialects().length > 40);
  assert.match(sabir.renderResult("look", "x", true), /^\[look, failed\]/);
  const body = JSON.stringify({ choices: [{ message: { role: "assistant", content: "hi" }, finish_reason: "stop" }] });
  assert.deepEqual(sabir.decode(body).parts, [{ type: "text", text: "hi" }]);
  assert.match(sabir.version(), /^\d/);
});

// Each call with a handle that was freed would cost a piece of the module's stack.
test("what was freed refuses everything and breaks nothing", () => {
  for (const freed of [new sabir.Reader(), new sabir.OpenAIDeltas()]) {
    freed.free();
    freed.free();
    for (let round = 0; round < 100_000; round++) {
      assert.throws(() => freed.push("a"), { name: "SabirError", code: "freed" });
    }
    assert.throws(() => freed.finish(), sabir.SabirError);
  }
  assert.ok(sabir.lint([{ name: "look", parameters: { $ref: "#/missing" } }]));
});

test("OpenAI deltas", async () => {
  let content = "", sent = "", reason;
  for await (const { delta, finish_reason } of sabir.toOpenAIDeltas([...text], { tools })) {
    content += delta.content ?? "";
    for (const call of delta.tool_calls ?? []) sent += call.function.arguments;
    reason = finish_reason;
  }
  assert.deepEqual([content, JSON.parse(sent), reason], ["Now:\n", { path: "ä.rs", line: 7 }, "tool_calls"]);
});

const usage = { inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 }, outputTokens: { total: 1, text: 1, reasoning: 0 } };
const finishReason = { unified: "stop", raw: "stop" };
const leaked = 'Let me see.\n<tool_call>\n{"name": "look", "arguments": {"path": "a.rs", "line": 7}}\n</tool_call>';
const streamOf = (said) =>
  convertArrayToReadableStream([
    { type: "stream-start", warnings: [] },
    { type: "text-start", id: "0" },
    ...said.match(/[^]{1,5}/g).map((delta) => ({ type: "text-delta", id: "0", delta })),
    { type: "text-end", id: "0" },
    { type: "finish", finishReason, usage },
  ]);
// The first answer leaks a call, the second one has words.
const modelOf = (...answers) => {
  let at = 0;
  const model = new MockLanguageModelV4({
    doGenerate: async () => ({ content: [{ type: "text", text: answers[at++] }], finishReason, usage, warnings: [] }),
    doStream: async () => ({ stream: streamOf(answers[at++]) }),
  });
  return wrapLanguageModel({ model, middleware: sabirMiddleware() });
};
const request = (runs) => ({
  prompt: "go",
  stopWhen: stepCountIs(3),
  tools: {
    look: tool({
      description: "Looks.",
      inputSchema: jsonSchema(schema),
      execute: async (input) => {
        runs.push(input);
        return "seen";
      },
    }),
  },
});

test("the AI SDK runs a leaked call", async () => {
  const runs = [];
  const result = await generateText({ model: modelOf(leaked, "Done."), ...request(runs) });
  assert.deepEqual([runs, result.text, result.steps.length], [[{ path: "a.rs", line: 7 }], "Done.", 2]);
  assert.equal(result.steps[0].text, "Let me see.");
});

test("the AI SDK runs a leaked call of a stream", async () => {
  const runs = [];
  const result = streamText({ model: modelOf(leaked, "Done <b> now."), ...request(runs) });
  let said = "";
  for await (const piece of result.textStream) said += piece;
  assert.deepEqual(runs, [{ path: "a.rs", line: 7 }]);
  assert.equal(said.replace(/\s+/g, " "), "Let me see. Done <b> now.");
});

test("the AI SDK gets answers without calls unchanged, and no cut call", async () => {
  const runs = [];
  const words = await generateText({ model: modelOf("a <b> c"), ...request(runs) });
  assert.equal(words.text, "a <b> c");
  const cut = await generateText({ model: modelOf("Well.\n<look><path>a.rs</path><line>"), ...request(runs) });
  // Nothing is lost: what cannot be a call stays text.
  assert.deepEqual([cut.text, runs], ["Well.\n<look><path>a.rs</path><line>", []]);
});
