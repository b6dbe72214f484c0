// Drives headless Chromium over the pipe of its DevTools protocol: messages are JSON and end with a zero byte.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Starts Chromium with one empty page and returns that page. */
export async function startChromium(program) {
  const profile = mkdtempSync(join(tmpdir(), "chromium-"));
  const flags = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", `--user-data-dir=${profile}`];
  const stdio = ["ignore", "ignore", "ignore", "pipe", "pipe"];
  const browser = spawn(program, flags, { stdio, env: { ...process.env, TMPDIR: profile } });
  const ended = new Promise((resolve) => browser.on("exit", resolve));
  // A test that fails ends without `close`.
  process.on("exit", () => browser.kill("SIGKILL"));
  const commands = browser.stdio[3];
  const pending = new Map();
  const fail = (error) => {
    for (const { reject } of pending.values()) reject(error);
    pending.clear();
  };
  browser.on("error", fail);
  browser.on("exit", (code) => fail(new Error(`Chromium ended with ${code}`)));
  commands.on("error", fail);

  const received = [];
  browser.stdio[4].on("data", (bytes) => {
    for (let end = bytes.indexOf(0); end >= 0; end = bytes.indexOf(0)) {
      received.push(bytes.subarray(0, end));
      const message = JSON.parse(Buffer.concat(received.splice(0)).toString());
      bytes = bytes.subarray(end + 1);
      const waiting = pending.get(message.id);
      pending.delete(message.id);
      if (message.error) waiting?.reject(new Error(message.error.message));
      else waiting?.resolve(message.result);
    }
    received.push(bytes);
  });

  let sent = 0;
  const send = (method, params = {}, sessionId = undefined) =>
    new Promise((resolve, reject) => {
      sent += 1;
      pending.set(sent, { resolve, reject });
      commands.write(`${JSON.stringify({ id: sent, method, params, sessionId })}\0`);
    });
  const { targetId } = await send("Target.createTarget", { url: "about:blank" });
  const { sessionId } = await send("Target.attachToTarget", { targetId, flatten: true });
  const close = async () => {
    await send("Browser.close");
    await ended;
    rmSync(profile, { recursive: true, force: true, maxRetries: 20 });
  };
  return new Page((method, params) => send(method, params, sessionId), close);
}

/** A page of the browser. `close` ends the browser and removes its profile. */
class Page {
  #send;

  constructor(send, close) {
    this.#send = send;
    this.close = close;
  }

  /** Opens an address, of the same file too, and waits until the expression has a value in the page other than undefined. */
  async open(address, expression) {
    await this.#send("Page.navigate", { url: "about:blank" });
    await this.#send("Page.navigate", { url: address });
    for (;;) {
      // The page that was there before may be asked once more, and goes away while it is.
      const value = await this.evaluate(`location.href === "about:blank" ? undefined : (${expression})`).catch(() => undefined);
      if (value !== undefined) return value;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  /** Evaluates an expression in the page and returns its value. */
  async evaluate(expression) {
    const { result, exceptionDetails } = await this.#send("Runtime.evaluate", { expression, returnByValue: true });
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  }
}
