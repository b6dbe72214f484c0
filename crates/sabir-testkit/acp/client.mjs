// Drives `sabir acp` with the protocol's own TypeScript SDK. Usage: node client.mjs SABIR PROVIDER SCHEMA
// Every line from Sabir is checked against the published schema. Last line: N passed, N failed.
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, writeFileSync, realpathSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk/unstable";
import Ajv from "ajv/dist/2020.js";

const [sabir, provider, schemaFile] = process.argv.slice(2);
const schema = JSON.parse(readFileSync(schemaFile, "utf8"));
const ajv = new Ajv({ strict: false, allErrors: false, validateFormats: false });
ajv.addSchema(schema, "acp");
const validators = new Map();
const validator = (name) => {
  if (!validators.has(name)) validators.set(name, ajv.compile({ $ref: `acp#/$defs/${name}` }));
  return validators.get(name);
};
const responses = {
  initialize: "InitializeResponse", "session/new": "NewSessionResponse", "session/load": "LoadSessionResponse",
  "session/resume": "ResumeSessionResponse", "session/fork": "ForkSessionResponse", "session/list": "ListSessionsResponse",
  "session/prompt": "PromptResponse", "session/set_mode": "SetSessionModeResponse", "session/close": "CloseSessionResponse",
  "session/set_config_option": "SetSessionConfigOptionResponse",
};
const own = {
  "session/update": "SessionNotification", "session/request_permission": "RequestPermissionRequest",
  "fs/read_text_file": "ReadTextFileRequest", "fs/write_text_file": "WriteTextFileRequest", "terminal/create": "CreateTerminalRequest",
  "terminal/output": "TerminalOutputRequest", "terminal/wait_for_exit": "WaitForTerminalExitRequest",
  "terminal/release": "ReleaseTerminalRequest", "elicitation/create": "CreateElicitationRequest",
};

let passed = 0, failed = 0, checked = 0;
const check = (name, holds, shown) => {
  if (holds) { passed += 1; console.log(`ok: ${name}`); } else { failed += 1; console.log(`FAILED: ${name}: ${JSON.stringify(shown)}`); }
};
const invalid = [];
const home = mkdtempSync(join(tmpdir(), "sabir-acp-home-"));

/** Starts an agent in a new folder or the given one. `decide` answers permissions. */
function start(model, protocol, decide, folder, more = []) {
  const work = folder ?? realpathSync(mkdtempSync(join(tmpdir(), "sabir-acp-work-")));
  const child = spawn(sabir, ["acp", "--model", model, "--protocol", protocol, ...more], {
    cwd: work, stdio: ["pipe", "pipe", "inherit"],
    env: { PATH: process.env.PATH, HOME: home, ANTHROPIC_API_KEY: "x", ANTHROPIC_BASE_URL: provider,
           OPENAI_API_KEY: "x", OPENAI_BASE_URL: `${provider}/v1` },
  });
  const methods = new Map();
  const output = new Writable({ write(chunk, _encoding, done) {
    for (const line of chunk.toString().split("\n").filter(Boolean)) {
      try { const m = JSON.parse(line); if (m.method && m.id !== undefined) methods.set(m.id, m.method); } catch { /* a part of a line */ }
    }
    child.stdin.write(chunk, done);
  } });
  let rest = "";
  child.stdout.on("data", (chunk) => {
    rest += chunk;
    const lines = rest.split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const m = JSON.parse(line);
      const [name, value] = m.method ? [own[m.method], m.params] : [m.result !== undefined && responses[methods.get(m.id)], m.result];
      if (!name) continue;
      checked += 1;
      const validate = validator(name);
      if (!validate(value)) invalid.push([name, validate.errors, value]);
    }
  });
  const updates = [];
  const app = acp.client({ name: "sabir-check" })
    .onRequest("session/request_permission", async ({ params }) => decide(params))
    .onNotification("session/update", ({ params }) => { updates.push(params); });
  const stream = acp.ndJsonStream(Writable.toWeb(output), Readable.toWeb(child.stdout));
  return { child, work, updates, app, stream };
}
const text = (updates, kind) => updates.filter((u) => u.update.sessionUpdate === kind).map((u) => u.update.content.text).join("");
const prompt = (ctx, sessionId, words) => ctx.request("session/prompt", { sessionId, prompt: [{ type: "text", text: words }] });
const initialize = (ctx) => ctx.request("initialize", { protocolVersion: 1, clientCapabilities: {} });
const wait = async (holds) => { for (let i = 0; i < 1200 && !holds(); i += 1) await new Promise((r) => setTimeout(r, 100)); };

for (const [protocol, model] of [["native", "anthropic/turns-native-task"], ["cline", "openai/turns-cline-task"], ["hermes", "openai/turns-hermes-task"]]) {
  const asked = [];
  const agent = start(model, protocol, (params) => {
    asked.push(params);
    const deny = asked.length === 1;
    return { outcome: { outcome: "selected", optionId: params.options.find((o) => o.kind === (deny ? "reject_once" : "allow_once")).optionId },
             ...(deny ? { _meta: { reason: "that is wrong" } } : {}) };
  });
  writeFileSync(join(agent.work, "a.txt"), "old\n");
  let session;
  await agent.app.connectWith(agent.stream, async (ctx) => {
    const about = await initialize(ctx);
    check(`${protocol}: initialize`, about.protocolVersion === 1 && about.agentCapabilities.loadSession, about);
    session = (await ctx.request("session/new", { cwd: agent.work, mcpServers: [] })).sessionId;
    const end = await prompt(ctx, session, "change a.txt");
    check(`${protocol}: the task ends`, end.stopReason === "end_turn", end);
    const diffs = asked.map((p) => p.toolCall.content.find((c) => c.type === "diff"));
    check(`${protocol}: diffs are asked about`, diffs[0]?.oldText === "old\n" && diffs[1]?.newText === "right\n", diffs);
    check(`${protocol}: denied, then allowed`, readFileSync(join(agent.work, "a.txt"), "utf8") === "right\n", asked.length);
    if (protocol === "native") check("native: thought is streamed", text(agent.updates, "agent_thought_chunk") === "A plan first.", agent.updates);
    const plans = agent.updates.filter((u) => u.update.sessionUpdate === "plan").map((u) => u.update.entries[0].status);
    check(`${protocol}: the plan is updated`, plans.join() === "in_progress,completed", plans);
    check(`${protocol}: the result is shown`, text(agent.updates, "agent_message_chunk").endsWith("It is done."), text(agent.updates, "agent_message_chunk"));
    await ctx.request("session/set_mode", { sessionId: session, modeId: "plan" });
    check(`${protocol}: the mode is switched`, (await prompt(ctx, session, "again")).stopReason === "end_turn");
    agent.child.kill("SIGKILL");
  }).catch((error) => { if (!agent.child.killed) throw error; });
  const second = start(model, protocol, () => ({ outcome: { outcome: "cancelled" } }), agent.work);
  await second.app.connectWith(second.stream, async (ctx) => {
    await initialize(ctx);
    const listed = await ctx.request("session/list", { cwd: agent.work });
    check(`${protocol}: the killed session is listed`, listed.sessions.map((s) => s.sessionId).join() === session, listed);
    const loaded = await ctx.request("session/load", { sessionId: session, cwd: agent.work, mcpServers: [] });
    check(`${protocol}: it is loaded in its mode`, loaded.modes.currentModeId === "plan", loaded.modes);
    check(`${protocol}: its history is repeated`, text(second.updates, "user_message_chunk") === "change a.txtagain"
      && text(second.updates, "agent_message_chunk").includes("It is done."), second.updates);
    const fork = await ctx.request("session/fork", { sessionId: session, cwd: agent.work, mcpServers: [] });
    check(`${protocol}: it is forked`, fork.sessionId !== session, fork);
  });
  await wait(() => second.child.exitCode !== null || second.child.signalCode !== null || (second.child.stdin.end(), false));
  check(`${protocol}: the end of input ends the agent`, second.child.exitCode === 0, second.child.exitCode);
}

const agent = start("anthropic/turns-native-cancel", "native", () => ({ outcome: { outcome: "cancelled" } }));
await agent.app.connectWith(agent.stream, async (ctx) => {
  await initialize(ctx);
  const open = async () => (await ctx.request("session/new", { cwd: agent.work, mcpServers: [] })).sessionId;
  const [one, two] = [await open(), await open()];
  await ctx.request("session/set_config_option", { sessionId: two, configId: "model", value: "anthropic/turns-native-answer" });
  const first = prompt(ctx, one, "begin");
  await wait(() => text(agent.updates, "agent_message_chunk").length > 0);
  const other = await prompt(ctx, two, "beside it");
  check("two sessions work at once", other.stopReason === "end_turn" && text(agent.updates.filter((u) => u.sessionId === two), "agent_message_chunk") === "First answer.", other);
  await ctx.notify("session/cancel", { sessionId: one });
  check("a cancel ends the turn", (await first).stopReason === "cancelled");
});
agent.child.stdin.end();

// An editor with unsaved text, terminals and forms.
const editor = start("anthropic/turns-native-editor", "native", (params) => ({
  outcome: { outcome: "selected", optionId: params.options.find((o) => o.kind === "allow_once").optionId },
}), undefined, ["--sandbox", "off"]);
const file = join(editor.work, "a.txt");
writeFileSync(file, "saved\n");
let buffer = "typed\n";
const terminals = new Map(), released = [], asked = [];
editor.app
  .onRequest("fs/read_text_file", async ({ params }) => {
    if (params.path !== file) throw new Error("not open");
    return { content: buffer };
  })
  .onRequest("fs/write_text_file", async ({ params }) => { buffer = params.content; writeFileSync(params.path, buffer); return {}; })
  .onRequest("elicitation/create", async ({ params }) => { asked.push(params); return { action: "accept", content: { choice: "blue" } }; })
  .onRequest("terminal/create", async ({ params }) => {
    const env = { ...process.env, ...Object.fromEntries((params.env ?? []).map((v) => [v.name, v.value])) };
    const child = spawn(params.command, params.args, { cwd: params.cwd, env, stdio: ["ignore", "pipe", "pipe"] });
    const terminal = { output: "", ended: new Promise((done) => child.on("close", (exitCode) => done({ exitCode }))) };
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk) => { terminal.output += chunk; });
    terminals.set("t1", terminal);
    return { terminalId: "t1" };
  })
  .onRequest("terminal/wait_for_exit", async ({ params }) => terminals.get(params.terminalId).ended)
  .onRequest("terminal/output", async ({ params }) => ({ output: terminals.get(params.terminalId).output, truncated: false }))
  .onRequest("terminal/release", async ({ params }) => { released.push(params.terminalId); return {}; });
await editor.app.connectWith(editor.stream, async (ctx) => {
  const fs = { readTextFile: true, writeTextFile: true };
  await ctx.request("initialize", { protocolVersion: 1, clientCapabilities: { fs, terminal: true, elicitation: { form: {} } } });
  const session = (await ctx.request("session/new", { cwd: editor.work, mcpServers: [] })).sessionId;
  const end = await prompt(ctx, session, "change a.txt");
  check("editor: the task ends", end.stopReason === "end_turn", end);
  const results = editor.updates.map((u) => u.update).filter((u) => u.rawOutput).map((u) => u.rawOutput.text);
  check("editor: unsaved text is read", results[0]?.startsWith("1 | typed"), results);
  check("editor: and changed through the editor", buffer === "changed\n" && readFileSync(file, "utf8") === buffer, buffer);
  check("editor: a question is a form", asked[0]?.requestedSchema.properties.choice.enum.join() === "red,blue", asked);
  const ran = results.find((text) => text.startsWith("Exit code 3"));
  check("editor: a command runs in a terminal of the client", ran?.includes("changed"), results);
  const shown = editor.updates.some((u) => u.update.content?.[0]?.type === "terminal" && u.update.content[0].terminalId === "t1");
  await wait(() => released.length > 0);
  check("editor: the terminal is shown and released", shown && released.join() === "t1", released);
});
editor.child.stdin.end();
check("every message fits the published schema", invalid.length === 0 && checked > 50, invalid.slice(0, 3));
console.log(`${checked} messages were checked`);
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed === 0 ? 0 : 1);
