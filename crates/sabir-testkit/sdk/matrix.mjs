// The official JavaScript clients through the gateway: every back end, mode and case, streamed and whole.
//
// Usage: matrix.mjs FOLDER GATEWAY BACK TOKEN [WORD]. Writes FOLDER/javascript.json: a list of `[client, back, mode, case, way, why]`,
// where `why` is null or what is wrong. With WORD only cells that hold it are asked. What is expected is what matrix.py expects.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import Anthropic from "@anthropic-ai/sdk";
import { Ollama } from "ollama";
import OpenAI from "openai";

const [folder, gateway, back, token, only = ""] = process.argv.slice(2);
const read = (name) => JSON.parse(readFileSync(join(folder, name), "utf8"));
const script = Object.fromEntries(Object.entries(read("matrix.json")).map(([name, replies]) => [name, replies.at(-1)]));
const models = read("models.json");
const picture = read("picture.json");
picture.url = "data:image/png;base64," + picture.data;
const version = (name) => read(`node_modules/${name}/package.json`).version;

const text = { type: "string" };
const schemas = Object.entries({
  read_file: { path: text, lines: { type: "array", items: { type: "integer" } }, all: { type: "boolean" } },
  write_file: { path: text, content: text },
  now: {},
}).map(([name, properties]) => [name, { type: "object", properties }]);
const functions = schemas.map(([name, parameters]) => ({ type: "function", function: { name, description: "Does it.", parameters } }));
// Wires that take a picture by its address.
const addressable = ["anthropic", "openai-chat", "openai-responses"];
const withIds = ["anthropic", "openai-chat", "openai-responses", "bedrock"];
// A message: words, or words with a picture of that spelling.
const user = (words, type, image) => {
  const url = { image: picture.url, address: picture.address }[words];
  return [{ role: "user", content: url ? [{ type, text: words }, image(url)] : words }];
};
// Asks for a report of what was done; keeps its header, and where the case is `retry` what came over the line.
let heard = {};
async function overhear(url, init) {
  const headers = new Headers(init.headers);
  headers.set("sabir-report", "1");
  const response = await fetch(url, { ...init, headers });
  heard = { header: response.headers.get("sabir-report") };
  if (!response.ok || !String(init.body).includes(".retry-1")) return response;
  const [mine, theirs] = response.body.tee();
  heard.text = new Response(mine).text();
  return new Response(theirs, response);
}
const report = async () => heard.header ?? (await heard.text)?.match(/^: sabir-report (.*)$/m)?.[1];

// Reads a stream until an event that `wanted` finds, and leaves it.
async function leaveAt(stream, wanted) {
  for await (const event of stream) if (wanted(event)) break;
}

const openai = new OpenAI({ baseURL: gateway + "/v1", apiKey: token, maxRetries: 0, fetch: overhear });
const chat = {
  name: "openai chat",
  package: "openai",
  stops: ["stop", "tool_calls"],
  base: OpenAI.OpenAIError,
  limited: OpenAI.RateLimitError,
  asking: (model, words) => ({ model, messages: user(words, "text", (url) => ({ type: "image_url", image_url: { url } })), tools: functions }),
  seen(done, pieces, thought) {
    const [choice] = done.choices;
    const calls = choice.message.tool_calls ?? [];
    return {
      text: choice.message.content ?? "",
      calls: calls.map((c) => [c.function.name, JSON.parse(c.function.arguments)]),
      ids: calls.map((c) => c.id),
      stop: choice.finish_reason,
      usage: [done.usage.prompt_tokens, done.usage.completion_tokens],
      pieces,
      thought: thought ?? choice.message.reasoning_content ?? "",
    };
  },
  async whole(model, words) {
    return this.seen(await openai.chat.completions.create(this.asking(model, words)));
  },
  async stream(model, words) {
    let [pieces, thought] = [0, ""];
    const stream = openai.chat.completions.stream({ ...this.asking(model, words), stream_options: { include_usage: true } });
    stream.on("tool_calls.function.arguments.delta", () => (pieces += 1));
    // The client's accumulator keeps only the last piece of what it does not know.
    stream.on("chunk", (chunk) => (thought += chunk.choices[0]?.delta.reasoning_content ?? ""));
    return this.seen(await stream.finalChatCompletion(), pieces, thought);
  },
  async leave(model, words) {
    await leaveAt(await openai.chat.completions.create({ ...this.asking(model, words), stream: true }), (c) => c.choices[0]?.delta.content);
  },
};
const responses = {
  name: "openai responses",
  package: "openai",
  stops: ["completed", "completed"],
  base: OpenAI.OpenAIError,
  tools: schemas.map(([name, parameters]) => ({ type: "function", name, description: "Does it.", parameters, strict: false })),
  limited: OpenAI.RateLimitError,
  asking(model, words) {
    const input = user(words, "input_text", (url) => ({ type: "input_image", detail: "auto", image_url: url }));
    return { model, input, tools: this.tools };
  },
  seen(done, pieces) {
    const calls = done.output.filter((item) => item.type === "function_call");
    const said = done.output.filter((item) => item.type === "message").flatMap((item) => item.content.map((part) => part.text));
    return {
      text: said.join(""),
      calls: calls.map((c) => [c.name, JSON.parse(c.arguments)]),
      ids: calls.map((c) => c.call_id),
      stop: done.status,
      usage: [done.usage.input_tokens, done.usage.output_tokens],
      pieces,
      thought: done.output.filter((item) => item.type === "reasoning").flatMap((item) => item.summary.map((part) => part.text)).join(""),
    };
  },
  async whole(model, words) {
    return this.seen(await openai.responses.create(this.asking(model, words)));
  },
  async stream(model, words) {
    let pieces = 0;
    const stream = openai.responses.stream(this.asking(model, words));
    stream.on("response.function_call_arguments.delta", () => (pieces += 1));
    return this.seen(await stream.finalResponse(), pieces);
  },
  async leave(model, words) {
    await leaveAt(await openai.responses.create({ ...this.asking(model, words), stream: true }), (e) => e.type === "response.output_text.delta");
  },
};
const anthropic = new Anthropic({ baseURL: gateway, apiKey: token, maxRetries: 0, fetch: overhear });
const messages = {
  name: "anthropic",
  package: "@anthropic-ai/sdk",
  stops: ["end_turn", "tool_use"],
  base: Anthropic.AnthropicError,
  tools: schemas.map(([name, input_schema]) => ({ name, description: "Does it.", input_schema })),
  limited: Anthropic.RateLimitError,
  asking(model, words) {
    const base64 = { type: "base64", media_type: "image/png", data: picture.data };
    const image = (url) => ({ type: "image", source: url === picture.url ? base64 : { type: "url", url } });
    return { model, messages: user(words, "text", image), tools: this.tools, max_tokens: 999 };
  },
  seen(done, pieces) {
    const calls = done.content.filter((block) => block.type === "tool_use");
    return {
      text: done.content.filter((block) => block.type === "text").map((block) => block.text).join(""),
      calls: calls.map((c) => [c.name, c.input]),
      ids: calls.map((c) => c.id),
      stop: done.stop_reason,
      usage: [done.usage.input_tokens, done.usage.output_tokens],
      pieces,
      thought: done.content.filter((block) => block.type === "thinking").map((block) => block.thinking).join(""),
    };
  },
  async whole(model, words) {
    return this.seen(await anthropic.messages.create(this.asking(model, words)));
  },
  async stream(model, words) {
    let pieces = 0;
    const stream = anthropic.messages.stream(this.asking(model, words));
    stream.on("streamEvent", (event) => (pieces += event.delta?.type === "input_json_delta" ? 1 : 0));
    return this.seen(await stream.finalMessage(), pieces);
  },
  async leave(model, words) {
    await leaveAt(await anthropic.messages.create({ ...this.asking(model, words), stream: true }), (e) => e.type === "content_block_delta");
  },
};
const client = new Ollama({ host: gateway, headers: { Authorization: `Bearer ${token}` }, fetch: overhear });
const ollama = {
  name: "ollama",
  package: "ollama",
  stops: ["stop", "stop"],
  base: Error,
  limited: Error,
  asking(model, words) {
    const images = words === "image" ? { images: [picture.data] } : {};
    return { model, messages: [{ role: "user", content: words, ...images }], tools: functions };
  },
  seen(chunks) {
    const last = chunks.at(-1);
    return {
      text: chunks.map((chunk) => chunk.message.content ?? "").join(""),
      calls: chunks.flatMap((chunk) => chunk.message.tool_calls ?? []).map((c) => [c.function.name, c.function.arguments]),
      ids: [],
      stop: last.done_reason,
      usage: [last.prompt_eval_count, last.eval_count],
      thought: chunks.map((chunk) => chunk.message.thinking ?? "").join(""),
    };
  },
  async whole(model, words) {
    return this.seen([await client.chat(this.asking(model, words))]);
  },
  async stream(model, words) {
    const chunks = [];
    for await (const chunk of await client.chat({ ...this.asking(model, words), stream: true })) chunks.push(chunk);
    return this.seen(chunks);
  },
  async leave(model, words) {
    const stream = await client.chat({ ...this.asking(model, words), stream: true });
    await leaveAt(stream, (chunk) => chunk.message.content);
    stream.abort();
  },
};

function compare(found, expected, what) {
  if (isDeepStrictEqual(found, expected)) return;
  const short = (value) => (JSON.stringify(value) ?? "nothing").slice(0, 200);
  throw new Error(`${what}: found ${short(found)}, expected ${short(expected)}`);
}

async function answered(client, row, name, way) {
  const seen = await client[way](row.model, name);
  const said = script[name].say;
  const words = said.filter((part) => part.type === "text").map((part) => part.text).join("");
  const calls = said.filter((part) => part.type === "call");
  compare(seen.calls, calls.map((c) => [c.name, c.arguments]), "calls");
  compare(row.mode === "native" ? seen.text : seen.text.replace(/\n$/, ""), words, "text");
  compare(seen.stop, client.stops[calls.length ? 1 : 0], "stop");
  compare(seen.usage, name === "retry" ? [24, 10] : [12, 5], "usage");
  compare(seen.thought, said.filter((part) => part.type === "thought").map((part) => part.text).join(""), "thought");
  // A stream of lines has no room for a report.
  if (name === "retry" && !(client.name === "ollama" && way === "stream")) {
    const told = await report();
    compare(String(told).includes("asked_again=1"), true, `a second asking in the report (${told})`);
  }
  if (seen.ids.length) {
    compare(new Set(seen.ids).size, calls.length, "different ids");
    if (row.mode === "native" && withIds.includes(row.back)) compare(seen.ids, calls.map((c) => c.id), "ids");
  }
  const wholes = row.mode === "native" && ["gemini", "ollama"].includes(row.back);
  if (name === "big" && seen.pieces !== undefined && !wholes) compare(seen.pieces > 100, true, `more than 100 pieces of arguments (${seen.pieces})`);
}

// What a model calls text goes through as text.
async function passed(client, row, name, way) {
  const seen = await client[way](row.model, name);
  compare([seen.calls, seen.stop, seen.usage], [[], client.stops[0], [12, 5]], "calls, stop and usage");
  for (const part of script[name].say) {
    const mark = part.type === "text" ? part.text : `<function=${part.name}>`;
    compare(seen.text.split(mark).length, 2, `${mark} in ${seen.text}`);
  }
}

// The client's own error for this, so that its own retries work.
async function limited(client, row, name, way) {
  const error = await client[way](row.model, name).then(() => null, (error) => error);
  compare(error instanceof client.limited, true, `an error about too many requests (${error})`);
  compare(error.status ?? error.status_code, 429, "status");
}

// An address goes to wires that take one, and is refused at others.
async function addressed(client, row, name, way) {
  if (addressable.includes(row.back)) return answered(client, row, name, way);
  const error = await client[way](row.model, name).then(() => null, (error) => error);
  compare(error?.status, 400, `a status (${error})`);
  // By the gateway: a back end that was asked without the address says what it wanted.
  compare(String(error).includes("wants a request with"), false, `the back end's words in ${error}`);
}

async function failed(client, row, name, way) {
  const error = await client[way](row.model, name).then(() => null, (error) => error);
  compare(error instanceof client.base, true, `an error of the client's (${error})`);
  const status = error.status ?? error.status_code;
  if (name === "refused") compare(status, 400, "status");
  else if (way === "whole") compare([500, 502, 503, 529].includes(status), true, `a status of the provider's (${status})`);
  if (name === "error") compare(String(error).includes("Overloaded"), true, `the provider's words in ${error}`);
}

async function cancelled(client, row, name) {
  const tag = `${name} ${client.name} js ${row.model}`;
  await client.leave(row.model, tag).catch((error) => {
    if (error.name !== "AbortError") throw error;
  });
  for (let round = 0; round < 250; round += 1) {
    if ((await (await fetch(back + "/left")).json()).some((left) => left.includes(tag))) return;
    await new Promise((done) => setTimeout(done, 20));
  }
  throw new Error("the back end was not left within 5 s");
}

const judges = { cancel: cancelled, error: failed, refused: failed, cut: failed, busy: limited, address: addressed };
const results = [];
for (const client of [chat, responses, messages, ollama]) {
  const label = `${client.name} ${version(client.package)} (npm)`;
  for (const row of models) {
    for (const name of row.cases) {
      // Ollama's clients send no addresses.
      if (client === ollama && name === "address") continue;
      const judge = row.mode === "pass" ? passed : (judges[name] ?? answered);
      for (const way of name === "cancel" ? ["stream"] : ["stream", "whole"]) {
        if (!`${client.name}/${row.model}/${name}/${way}`.includes(only)) continue;
        const why = await judge(client, row, name, way).then(() => null, (error) => String(error).slice(0, 400));
        results.push([label, row.back, row.mode, name, way, why]);
      }
    }
  }
}
writeFileSync(join(folder, "javascript.json"), JSON.stringify(results));
process.exit(0);
