// Opens the playground's page of the built book in headless Chromium, over HTTP as a site serves it.
//
//     node book_tests.mjs BOOK_FOLDER CHROMIUM
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { extname, join, normalize } from "node:path";
import { promisify } from "node:util";

const [book, chromium] = process.argv.slice(2);
const profile = mkdtempSync(join(tmpdir(), "book-"));
process.on("exit", () => rmSync(profile, { recursive: true, force: true }));

// The dump of a page leaves out what its frames show, so the page says it in its own body.
const WATCH = `<script>
const timer = setInterval(() => {
  const shown = frames[0]?.document.body;
  if (shown?.dataset.state === undefined) return;
  clearInterval(timer);
  document.body.dataset.calls = shown.querySelector("#calls").textContent;
}, 20);
</script></body>`;
const TYPES = { ".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml" };

const asked = [];
const server = createServer((request, response) => {
  const path = normalize(new URL(request.url, "http://book").pathname);
  asked.push(path);
  let content;
  try {
    content = readFileSync(join(book, path));
  } catch {
    response.writeHead(404).end();
    return;
  }
  if (path === "/playground.html") content = content.toString().replace("</body>", () => WATCH);
  response.writeHead(200, { "content-type": TYPES[extname(path)] ?? "application/octet-stream" }).end(content);
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const address = `http://127.0.0.1:${server.address().port}/playground.html`;

// Virtual time does not wait for the threads that compile the module: then the page is opened again.
let calls;
for (let attempt = 0; attempt < 10 && calls === undefined; attempt++) {
  const flags = ["--headless", "--no-sandbox", "--disable-gpu", `--user-data-dir=${profile}`, "--virtual-time-budget=60000"];
  const { stdout } = await promisify(execFile)(chromium, [...flags, "--dump-dom", address], { maxBuffer: 1 << 28 });
  calls = /data-calls="([^"]*)"/.exec(stdout)?.[1];
}
server.close();
assert.ok(asked.includes("/playground-app.html"), `the book asked only for ${asked}`);
assert.match(calls ?? "", /look {2}\(hermes, complete\)/);
console.log("ok: the playground reads its example inside the book");
