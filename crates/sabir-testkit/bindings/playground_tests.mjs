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

const [build, folder, chromium] = process.argv.slice(2);
const work = mkdtempSync(join(tmpdir(), "playground-"));
process.on("exit", () => rmSync(work, { recursive: true, force: true }));

/**
 * Opens the page with a preset, or a state in its address, and returns its content after it has read the text. Chromium's virtual time
 * does not wait for the threads that compile the module, so it can be over too early; then the page is opened again.
 */
function open(state, hash) {
  let opened;
  for (let attempt = 0; attempt < 10; attempt++) {
    opened = openOnce(state, hash);
    if (opened.state !== undefined) break;
  }
  return opened;
}

function openOnce(state, hash) {
  const preset = join(work, "preset.json");
  const page = join(work, "page.html");
  writeFileSync(preset, JSON.stringify(state));
  execFileSync("node", [build, folder, page, preset]);
  const address = pathToFileURL(page).href + (hash ? `#${hash}` : "");
  const flags = ["--headless", "--no-sandbox", "--disable-gpu", `--user-data-dir=${join(work, "profile")}`];
  // Virtual time ends when the page has nothing left to do.
  const html = execFileSync(chromium, [...flags, "--virtual-time-budget=60000", "--dump-dom", address], {
    stdio: ["ignore", "pipe", "ignore"],
    maxBuffer: 1 << 28,
  }).toString();
  // The scripts and the preset are the page's own; what was made of the text comes before them.
  const made = html.slice(0, html.indexOf('<script type="application/json"'));
  return { made, state: /data-state="(\w+)"/.exec(html)?.[1], took: Number(/data-took="([\d.]+)"/.exec(html)?.[1]) };
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
  const { made, state } = open({ text, tools: JSON.stringify(tools) });
  assert.equal(state, "done", dialect);
  assert.match(made, /class="complete">look {2}\(/, `${dialect}: ${text}`);
  assert.match(made, /src\/&lt;main&gt;\.rs/, dialect);
  console.log(`ok: a transcript in ${dialect}`);
}

const linked = { text: "Ünder\n<look><path>linked.rs</path></look>" };
const hash = Buffer.from(JSON.stringify(linked)).toString("base64url");
assert.match(open({ text: "nothing" }, hash).made, /linked\.rs/);
console.log("ok: a permalink");

const body = { choices: [{ message: { role: "assistant", content: "<look><path>leaked.rs</path></look>" }, finish_reason: "stop" }] };
assert.match(open({ text: JSON.stringify(body) }).made, /response of openai.*leaked\.rs/s);
console.log("ok: a leaked call in a provider's response");

const attack = '<img src=x onerror="document.body.dataset.hacked=1"></textarea></script><script>document.body.dataset.hacked=1</script>';
const hostile = open({ text: `${attack}<look><path>${attack}</path><${attack}></look>` });
assert.equal(hostile.state, "done");
assert.doesNotMatch(hostile.made, /data-hacked|<img|<script>document/);
console.log("ok: hostile HTML is inert");

const megabyte = `Now:\n<look><path>${"if (a < b) f(); ".repeat(65536)}</path></look>`;
const large = open({ text: megabyte, tools: JSON.stringify(tools) });
assert.equal(large.state, "done");
assert.match(large.made, /class="complete">look/);
console.log(`ok: a transcript of ${megabyte.length} bytes, read and shown in ${large.took} ms`);
