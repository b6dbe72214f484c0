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

test("wrong types are errors that name the argument", async () => {
  const reader = new sabir.Reader();
  const deltas = new sabir.OpenAIDeltas();
  const refuses = (run, name) => assert.throws(run, (error) => error instanceof TypeError && error.message.startsWith(`${name}: `), String(run));
  for (const wrong of [5, {}, null, undefined, true, []]) {
    for (const name of ["parse", "check", "explain", "detect", "guessTools"]) refuses(() => sabir[name](wrong), "text");
    refuses(() => sabir.decode(wrong), "body");
    refuses(() => reader.push(wrong), "chunk");
    refuses(() => deltas.push(wrong), "chunk");
    refuses(() => sabir.edit("a", wrong), "change");
    refuses(() => sabir.renderResult(wrong, "x"), "name");
  }
  for (const wrong of [5, "tools", true, []]) {
    refuses(() => new sabir.Reader(wrong), "options");
    for (const name of ["parse", "check", "explain", "detect", "decode"]) refuses(() => sabir[name]("", wrong), "options");
  }
  refuses(() => sabir.render(undefined, { dialect: "hermes" }), "calls");
  refuses(() => sabir.lint(undefined), "tools");
  refuses(() => reader.finish(5), "reason");
  for (const wrong of [null, undefined, 5, {}]) {
    await assert.rejects(sabir.read(wrong).next(), { name: "TypeError", message: /^chunks: / });
    await assert.rejects(sabir.toOpenAIDeltas(wrong).next(), { name: "TypeError", message: /^chunks: / });
  }
  // Nothing was lost and nothing broken.
  assert.deepEqual([reader.push("x"), deltas.push("x")], [[{ event: "text", text: "x" }], [{ content: "x" }]]);
  assert.equal(sabir.check("x", null).ok, true);
});

test("bytes of every kind are texts", async () => {
  const bytes = new TextEncoder().encode(text);
  assert.deepEqual(sabir.parse(bytes, { tools }), sabir.parse(text, { tools }));
  const said = (events) => events.map((event) => event.text).join("");
  for (const same of [new Uint8Array([97]), new Uint8Array([97]).buffer, new DataView(new Uint8Array([97]).buffer)]) {
    assert.equal(said(new sabir.Reader().push(same)), "a");
  }
  const content = async (chunks) => {
    let joined = "";
    for await (const { delta } of sabir.toOpenAIDeltas(chunks)) joined += delta.content ?? "";
    return joined;
  };
  const pieces = [...new TextEncoder().encode("ä 😀")].map((byte) => Uint8Array.of(byte));
  assert.equal(await content(pieces), "ä 😀");
  assert.equal(await content([...pieces.slice(0, 4), "x"]), "ä \ufffdx");
  assert.equal(await content(new Response("ä 😀").body), "ä 😀");
  const { body } = new Response("ä 😀");
  assert.equal(await content({ getReader: () => body.getReader() }), "ä 😀");
});

test("halves of surrogate pairs wait for each other", () => {
  const reader = new sabir.Reader();
  const deltas = new sabir.OpenAIDeltas();
  const events = [...reader.push("a\ud83d"), ...reader.push("\ude00b"), ...reader.push("\ud83d"), ...reader.finish()];
  assert.equal(events.map((event) => event.text ?? "").join(""), "a😀b\ufffd");
  const sent = [...deltas.push("a\ud83d"), ...deltas.push("\ude00b"), ...deltas.push("\ud83d"), ...deltas.finish().deltas];
  assert.equal(sent.map((delta) => delta.content).join(""), "a😀b\ufffd");
  const bytes = new sabir.Reader();
  assert.equal([...bytes.push("\ud83d"), ...bytes.push(Uint8Array.of(98))].map((event) => event.text ?? "").join(""), "\ufffdb");
});

test("errors of calls are errors of the package, and handles are disposable", () => {
  let error;
  try {
    sabir.check("<look><line>ten</line></look>", { tools, strict: true });
  } catch (thrown) {
    error = thrown;
  }
  assert.ok(error instanceof sabir.SabirError && error instanceof sabir.CallError && error instanceof Error);
  assert.deepEqual([error.name, error.code], ["CallError", "faulty_calls"]);
  const other = new sabir.SabirError({ code: "x", message: "y", span: null });
  assert.ok(!(other instanceof sabir.CallError));
  class Own extends sabir.SabirError {}
  assert.ok(!(other instanceof Own) && new Own({ code: "x", message: "y" }) instanceof sabir.SabirError);
  for (const handle of [new sabir.Reader(), new sabir.OpenAIDeltas()]) {
    handle[Symbol.dispose]();
    assert.throws(() => handle.push("x"), { code: "freed" });
  }
});

test("the reason for the end", async () => {
  const unclosed = "<look><path>a.rs</path>";
  const options = { tools, closes_last_call: true };
  const last = async (reason) => {
    let choice;
    for await (choice of sabir.toOpenAIDeltas([unclosed], { ...options, reason }));
    return choice.finish_reason;
  };
  assert.deepEqual([await last(undefined), await last("limit"), await last(() => "limit")], ["tool_calls", "length", "length"]);
  const events = [];
  let reason = "ended";
  const source = (async function* () {
    yield unclosed;
    reason = "limit";
  })();
  for await (const event of sabir.read(source, { ...options, reason: () => reason })) events.push(event);
  assert.deepEqual([events.at(-1).event, events.at(-1).why], ["call_cut", "limit"]);
  await assert.rejects(last("never"), { code: "unknown_word" });
  await assert.rejects(last(5), TypeError);
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
const streamOf = (said, finishReason) =>
  convertArrayToReadableStream([
    { type: "stream-start", warnings: [] },
    { type: "text-start", id: "0" },
    ...said.match(/[^]{1,5}/g).map((delta) => ({ type: "text-delta", id: "0", delta })),
    { type: "text-end", id: "0" },
    { type: "finish", finishReason, usage },
  ]);
// The first answer leaks a call, the second one has words.
const modelOf = (...answers) => scriptedModel(answers, finishReason);
const scriptedModel = (answers, finishReason, options) => {
  let at = 0;
  const model = new MockLanguageModelV4({
    doGenerate: async () => ({ content: [{ type: "text", text: answers[at++] }], finishReason, usage, warnings: [] }),
    doStream: async () => ({ stream: streamOf(answers[at++], finishReason) }),
  });
  return wrapLanguageModel({ model, middleware: sabirMiddleware(options) });
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
  assert.equal(result.steps[0].text, "Let me see.\n");
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

// The text and the runs of the first step, which must be the same whole and streamed.
async function both(said, reason = "stop", options) {
  const model = () => scriptedModel([said, "Done."], { unified: reason, raw: reason }, options);
  const whole = [], streamed = [];
  const generated = await generateText({ model: model(), ...request(whole) });
  const stream = streamText({ model: model(), ...request(streamed) });
  await stream.consumeStream();
  const steps = await stream.steps;
  assert.deepEqual([steps[0].text, streamed], [generated.steps[0].text, whole]);
  return [steps[0].text, whole];
}

test("the AI SDK gets all text as it is, whole and streamed", async () => {
  for (const said of ["<think>\nplan\n</think>\n\nAnswer 42.", "<think>plan is long", "\n\na <b> c \n", "Well.\n<look><path>a.rs</path><line>", " "]) {
    assert.deepEqual(await both(said), [said, []]);
  }
  const run = [{ path: "a.rs", line: 7 }];
  assert.deepEqual(await both(`<think>😀</think>${leaked}\nBye.<|im_end|>`), ["<think>😀</think>Let me see.\n\nBye.<|im_end|>", run]);
  assert.deepEqual(await both(`\n${leaked.slice(leaked.indexOf("<tool_call>"))}\n`), ["", run]);
});

test("the output limit closes no call for the AI SDK", async () => {
  const unclosed = leaked.slice(0, leaked.indexOf("\n</tool_call>"));
  const options = { closes_last_call: true };
  assert.deepEqual((await both(unclosed, "stop", options))[1], [{ path: "a.rs", line: 7 }]);
  for (const reason of ["length", "other"]) assert.deepEqual(await both(unclosed, reason, options), [unclosed, []]);
});
