// Drives sabir with the Claude Agent SDK for TypeScript. Usage: node client.mjs SABIR MODEL_ADDRESS. Last line: N passed, N failed.
import { existsSync, mkdtempSync, readdirSync, realpathSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { z } from "zod";
import { createSdkMcpServer, query, tool } from "@anthropic-ai/claude-agent-sdk";

const [sabir, model] = process.argv.slice(2);
const home = mkdtempSync(join(tmpdir(), "sabir-agent-sdk-home-"));
let passed = 0, failed = 0;
const check = (name, holds, shown) => {
  if (holds) { passed += 1; console.log(`ok: ${name}`); } else { failed += 1; console.log(`FAILED: ${name}: ${JSON.stringify(shown)}`); }
};
const newFolder = () => realpathSync(mkdtempSync(join(tmpdir(), "sabir-agent-sdk-")));
const options = (cwd, more) => ({
  pathToClaudeCodeExecutable: sabir, cwd, model: "anthropic/claude-sonnet-4-5", stderr: (line) => process.stdout.write(`  stderr: ${line}`),
  env: { PATH: process.env.PATH, HOME: home, ANTHROPIC_API_KEY: "x", ANTHROPIC_BASE_URL: model }, ...more,
});
const collect = async (answers) => { const all = []; for await (const message of answers) all.push(message); return all; };
const blocks = (messages, kind, type) => messages.filter((m) => m.type === kind).flatMap((m) => m.message.content).filter((b) => b.type === type);

/** A conversation whose messages are given one by one. */
function conversation(options) {
  const waiting = [];
  let wake = () => {}, ended = false;
  async function* prompts() {
    for (;;) {
      while (waiting.length) yield waiting.shift();
      if (ended) return;
      await new Promise((resolve) => { wake = resolve; });
    }
  }
  const answers = query({ prompt: prompts(), options });
  const iterator = answers[Symbol.asyncIterator]();
  return {
    answers,
    say(text) { waiting.push({ type: "user", message: { role: "user", content: text }, parent_tool_use_id: null, session_id: "" }); wake(); },
    async turn(look = () => {}) {
      const messages = [];
      for (;;) {
        const { value, done } = await iterator.next();
        if (done) return messages;
        messages.push(value);
        look(value);
        if (value.type === "result") return messages;
      }
    },
    end() { ended = true; wake(); return collect({ [Symbol.asyncIterator]: () => iterator }); },
  };
}

const parts = {
  async permissions() {
    const folder = newFolder(), asked = [];
    const messages = await collect(query({ prompt: "script work", options: options(folder, {
      includePartialMessages: true,
      canUseTool: async (tool, input, { toolUseID }) => {
        asked.push([tool, input, toolUseID]);
        return asked.length === 1 ? { behavior: "deny", message: "not that way" } : { behavior: "allow", updatedInput: input };
      },
    }) }));
    const init = messages.find((m) => m.type === "system");
    check("init names the folder", init?.subtype === "init" && init.cwd === folder, init);
    const calls = blocks(messages, "assistant", "tool_use");
    check("calls have known names", calls.map((c) => c.name).join() === "Bash,Write", calls);
    check("both calls are asked about", asked.map((a) => a[0]).join() === "Bash,Write", asked);
    check("ids agree", asked.map((a) => a[2]).join() === calls.map((c) => c.id).join(), asked);
    const [denied] = blocks(messages, "user", "tool_result");
    check("the reason reaches the model", denied?.is_error && JSON.stringify(denied).includes("not that way"), denied);
    check("denied and allowed", !existsSync(join(folder, "made.txt")) && existsSync(join(folder, "notes.txt")), readdirSync(folder));
    const end = messages.at(-1);
    check("the result", end.type === "result" && end.subtype === "success" && end.result === "All is done." && end.num_turns === 3, end);
    const events = messages.filter((m) => m.type === "stream_event").map((m) => m.event);
    const pieces = events.filter((e) => e.delta?.type === "text_delta").map((e) => e.delta.text).join("");
    check("pieces arrive", pieces === "I make a file.All is done.", events);
    check("each message is opened and closed", events.filter((e) => e.type === "message_start").length === 3
      && events.filter((e) => e.type === "message_stop").length === 3, events);
    const again = await collect(query({ prompt: "script hello", options: options(folder, { resume: end.session_id }) }));
    check("resumed", again.at(-1).session_id === end.session_id && again.at(-1).result === "Hello again.", again.at(-1));
  },

  async hooks() {
    const folder = newFolder(), seen = [];
    const guard = async (input) => {
      seen.push(input.tool_name);
      return input.tool_name === "Bash"
        ? { hookSpecificOutput: { hookEventName: "PreToolUse", permissionDecision: "deny", permissionDecisionReason: "no shell here" } } : {};
    };
    const messages = await collect(query({ prompt: "script work", options: options(folder, {
      permissionMode: "bypassPermissions", allowDangerouslySkipPermissions: true, hooks: { PreToolUse: [{ hooks: [guard] }] },
    }) }));
    const found = blocks(messages, "user", "tool_result");
    check("a hook refuses", JSON.stringify(found[0]).includes("no shell here") && !existsSync(join(folder, "made.txt")), found);
    check("and lets another call pass", existsSync(join(folder, "notes.txt")) && seen.join() === "Bash,Write", seen);
    const failing = newFolder();
    const broken = await collect(query({ prompt: "script work", options: options(failing, {
      permissionMode: "bypassPermissions", allowDangerouslySkipPermissions: true,
      hooks: { PreToolUse: [{ hooks: [async () => { throw new Error("broken"); }] }] },
    }) }));
    check("a broken hook lets nothing pass", readdirSync(failing).length === 0 && broken.at(-1).subtype === "success", broken);
  },

  async interrupts() {
    const talk = conversation(options(newFolder(), { permissionMode: "bypassPermissions", allowDangerouslySkipPermissions: true }));
    talk.say("script sleep");
    let sent = false;
    const stopped = await talk.turn((message) => {
      if (!sent && message.type === "assistant") { sent = true; setTimeout(() => talk.answers.interrupt(), 500); }
    });
    check("an interrupt ends the turn", stopped.at(-1).subtype === "error_during_execution", stopped.at(-1));
    await talk.answers.setModel("anthropic/claude-opus-4-5");
    talk.say("script hello");
    const messages = await talk.turn();
    check("the session continues, with another model", messages.at(-1).result === "Hello again."
      && messages.find((m) => m.type === "assistant")?.message.model === "anthropic/claude-opus-4-5", messages);
    check("nothing follows the end", (await talk.end()).length === 0);
  },

  async questions() {
    const messages = await collect(query({ prompt: "script question", options: options(newFolder(), {
      canUseTool: async (tool, input) => ({ behavior: "allow",
        updatedInput: { ...input, answers: { [input.questions[0].question]: input.questions[0].options[1].label } } }),
    }) }));
    check("a question is answered", JSON.stringify(blocks(messages, "user", "tool_result")).includes("blue"), messages);
  },

  async servers() {
    const add = tool("add", "Adds a note", { text: z.string() }, async ({ text }) => ({ content: [{ type: "text", text: `kept ${text}` }] }));
    const messages = await collect(query({ prompt: "script server", options: options(newFolder(), {
      mcpServers: { notes: createSdkMcpServer({ name: "notes", tools: [add] }) }, allowedTools: ["mcp__notes__add"],
    }) }));
    check("a tool of the program itself", JSON.stringify(blocks(messages, "user", "tool_result")).includes("kept x"), messages);
  },

  async aborts() {
    const controller = new AbortController();
    const answers = query({ prompt: "script sleep", options: options(newFolder(), {
      permissionMode: "bypassPermissions", allowDangerouslySkipPermissions: true, abortController: controller,
    }) });
    let error;
    try {
      for await (const message of answers) if (message.type === "assistant") setTimeout(() => controller.abort(), 300);
    } catch (thrown) { error = thrown; }
    check("an abort ends the program", error !== undefined, error);
  },
};

for (const [name, part] of Object.entries(parts)) {
  const limit = new Promise((_, reject) => setTimeout(() => reject(new Error("not done after 300 s")), 300_000).unref());
  await Promise.race([part(), limit]).catch((error) => check(name, false, String(error?.stack ?? error)));
}
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed > 0 ? 1 : 0);
