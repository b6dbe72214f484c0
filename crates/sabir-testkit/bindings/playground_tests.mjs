// Opens the playground in headless Chromium: transcripts in ten dialects, a permalink, responses of providers, hostile HTML, a megabyte.
//
//     node playground_tests.mjs BUILD.mjs PACKAGE_FOLDER CHROMIUM
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { render } from "sabir";
import { startChromium } from "./chromium.mjs";

const [build, folder, chromium] = process.argv.slice(2);
const work = mkdtempSync(join(tmpdir(), "playground-"));
process.on("exit", () => rmSync(work, { recursive: true, force: true }));
const page = await startChromium(chromium);

/** Opens the page with a preset, or a state in its address, and returns what it shows after it has read the text. */
async function open(state, hash) {
  const preset = join(work, "preset.json");
  const file = join(work, "page.html");
  writeFileSync(preset, JSON.stringify(state));
  execFileSync("node", [build, folder, file, preset]);
  const address = pathToFileURL(file).href + (hash ? `#${hash}` : "");
  const ended = await page.open(address, "document.body?.dataset.state");
  // The scripts and the preset are the page's own; what was made of the text comes before them.
  const html = await page.evaluate("document.documentElement.outerHTML");
  const took = Number(await page.evaluate("document.body.dataset.took"));
  return { made: html.slice(0, html.indexOf('<script type="application/json"')), state: ended, took };
}

const tools = [{ name: "look", parameters: { type: "object", properties: { path: { type: "string" } } } }];
const calls = [{ name: "look", arguments: { path: "src/<main>.rs" } }];
for (const dialect of ["cline", "hermes", "invoke", "mistral", "llama", "kimi", "glm", "qwen_coder", "deepseek", "pythonic"]) {
  let text;
  try {
    text = `I look.\n\n${render(calls, { dialect, tools })}`;
  } catch (error) {
    throw new Error(`${dialect}: ${error.message}`);
  }
  const { made, state } = await open({ text, tools: JSON.stringify(tools) });
  assert.equal(state, "done", dialect);
  assert.match(made, /class="complete">look {2}\(/, `${dialect}: ${text}`);
  assert.match(made, /src\/&lt;main&gt;\.rs/, dialect);
  console.log(`ok: a transcript in ${dialect}`);
}

const linked = { text: "Ünder\n<look><path>linked.rs</path></look>" };
const hash = Buffer.from(JSON.stringify(linked)).toString("base64url");
assert.match((await open({ text: "nothing" }, hash)).made, /linked\.rs/);
console.log("ok: a permalink");

const body = { choices: [{ message: { role: "assistant", content: "<look><path>leaked.rs</path></look>" }, finish_reason: "stop" }] };
assert.match((await open({ text: JSON.stringify(body) })).made, /response of openai.*leaked\.rs/s);
console.log("ok: a leaked call in a provider's response");

const attack = '<img src=x onerror="document.body.dataset.hacked=1"></textarea></script><script>document.body.dataset.hacked=1</script>';
const hostile = await open({ text: `${attack}<look><path>${attack}</path><${attack}></look>` });
assert.equal(hostile.state, "done");
assert.doesNotMatch(hostile.made, /data-hacked|<img|<script>document/);
console.log("ok: hostile HTML is inert");

const megabyte = `Now:\n<look><path>${"if (a < b) f(); ".repeat(65536)}</path></look>`;
const large = await open({ text: megabyte, tools: JSON.stringify(tools) });
assert.equal(large.state, "done");
assert.match(large.made, /class="complete">look/);
console.log(`ok: a transcript of ${megabyte.length} bytes, read and shown in ${large.took} ms`);
await page.close();
