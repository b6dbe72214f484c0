// Opens the playground's page of the built book in headless Chromium, over HTTP as a site serves it.
//
//     node book_tests.mjs BOOK_FOLDER CHROMIUM
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { extname, join, normalize } from "node:path";
import { startChromium } from "./chromium.mjs";

const [book, chromium] = process.argv.slice(2);
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
  response.writeHead(200, { "content-type": TYPES[extname(path)] ?? "application/octet-stream" }).end(content);
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const address = `http://127.0.0.1:${server.address().port}/playground.html`;

const page = await startChromium(chromium);
const calls = await page.open(
  address,
  'frames[0]?.document.body?.dataset.state && frames[0].document.querySelector("#calls").textContent',
);
assert.ok(asked.includes("/playground-app.html"), `the book asked only for ${asked}`);
assert.match(calls, /look {2}\(hermes, complete\)/);
console.log("ok: the playground reads its example inside the book");
await page.close();
server.close();
