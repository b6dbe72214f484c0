// The interface: converts options to JSON and results from it, and errors to exceptions. The small module must be loaded already.
import { modules } from "./modules.js";

/** Input that cannot be used. `code` names the kind; `span` is the position in the input in bytes, or null. */
export class SabirError extends Error {
  constructor(report, options) {
    super(report.message, options);
    this.name = "SabirError";
    this.code = report.code;
    this.span = report.span;
    this.problems = report.problems ?? [];
  }
}

/** Shared by all pushes without events: most of them have none. */
const NOTHING = Object.freeze([]);

function refuseFreed() {
  throw new SabirError({ code: "freed", message: "this was freed: create another one for the next text", span: null });
}

/** Replaces a handle that was freed. The module must not be called with one: it throws without restoring its stack. */
const FREED = { push: refuseFreed, push_bytes: refuseFreed, finish: refuseFreed, next_reader: refuseFreed, free() {} };

function attempt(run) {
  try {
    return run();
  } catch (error) {
    if (typeof error !== "string") throw error;
    throw new SabirError(JSON.parse(error));
  }
}

/** Returns the full module, which is loaded now if that is possible. */
function needFull() {
  if (!modules.full && modules.loadNow) modules.full = modules.loadNow();
  if (modules.full) return modules.full;
  throw new SabirError({
    code: "not_loaded",
    message: "this needs the full module: `await load()` first, or import from `sabir/full`",
    span: null,
  });
}

/** Runs with the small module, or with the full one if a tool has a schema that the small one does not support. */
function withModule(run) {
  try {
    return run(modules.core);
  } catch (error) {
    if (typeof error !== "string") throw error;
    const report = JSON.parse(error);
    if (report.code !== "unsupported_schema") throw new SabirError(report);
  }
  const full = needFull();
  return attempt(() => run(full));
}

let loading = null;

/** Loads the full module. Only browsers need it, before schemas with rare keywords and before `decode`, `detect`, `edit` and `lint`. */
export async function load() {
  if (modules.full) return;
  // A failed download may be tried again.
  loading ??= Promise.resolve(modules.loadNow ? modules.loadNow() : modules.loadLater()).finally(() => (loading = null));
  try {
    modules.full = await loading;
  } catch (cause) {
    throw new SabirError({ code: "not_loaded", message: `the full module cannot be loaded: ${cause?.message ?? cause}`, span: null }, { cause });
  }
}

/** Creates a reader of chunks, and loads the full module before if that is necessary. If it fails, the source of the chunks is closed. */
async function created(chunks, create) {
  try {
    try {
      return create();
    } catch (error) {
      if (error?.code !== "not_loaded") throw error;
    }
    await load();
    return create();
  } catch (error) {
    await closeSource(chunks);
    throw error;
  }
}

/** Closes an iterable that nobody will read, as a loop that ends early does. Its own errors are left out: one is being thrown. */
async function closeSource(chunks) {
  try {
    const source = chunks[Symbol.asyncIterator]?.() ?? chunks[Symbol.iterator]?.();
    await source?.return?.();
  } catch {}
}

/** Reports whether a value is a handle of a reader, which only `nextReader` passes. */
function isHandle(value) {
  return value instanceof modules.core.RawReader || (modules.full !== null && value instanceof modules.full.RawReader);
}

function optionsText(options) {
  return JSON.stringify(options ?? {});
}

/** Reads one text that arrives in chunks. */
export class Reader {
  #raw;

  constructor(options) {
    this.#raw = isHandle(options) ? options : withModule((raw) => new raw.RawReader(optionsText(options)));
  }

  /** Reads a chunk, a string or a Uint8Array, and returns its events. */
  push(chunk) {
    const raw = this.#raw;
    let events;
    try {
      events = typeof chunk === "string" ? raw.push(chunk) : raw.push_bytes(chunk);
    } catch (error) {
      return attempt(() => {
        throw error;
      });
    }
    return events === undefined ? NOTHING : JSON.parse(events);
  }

  /** Ends the text and returns the last events. */
  finish(reason = "ended") {
    return JSON.parse(attempt(() => this.#raw.finish(reason)));
  }

  /** Creates a reader for another text with the same settings, which costs less than a new one. */
  nextReader() {
    return new Reader(this.#raw.next_reader());
  }

  /** Frees the memory at once. Without it the garbage collector does. */
  free() {
    this.#raw.free();
    this.#raw = FREED;
  }
}

/** Converts one text that arrives in chunks to deltas of OpenAI's Chat Completions. */
export class OpenAIDeltas {
  #raw;

  constructor(options) {
    this.#raw = withModule((raw) => new raw.RawDeltas(optionsText(options)));
  }

  push(chunk) {
    const deltas = attempt(() => this.#raw.push(chunk));
    return deltas === undefined ? NOTHING : JSON.parse(deltas);
  }

  finish(reason = "ended") {
    return JSON.parse(attempt(() => this.#raw.finish(reason)));
  }

  free() {
    this.#raw.free();
    this.#raw = FREED;
  }
}

/** A message whose calls must not run. */
export class CallError extends Error {
  constructor(report) {
    const errors = report.faults.filter((fault) => fault.severity === "error");
    super(errors.map((fault) => fault.diagnostic).join("\n") || "the message is not understood");
    this.name = "CallError";
    this.faults = report.faults;
    this.span = errors[0]?.span ?? null;
    this.feedback = report.feedback;
  }
}

export function parse(text, options) {
  return JSON.parse(withModule((raw) => raw.parse(text, optionsText(options))));
}

export function check(text, { strict = false, ...options } = {}) {
  const report = JSON.parse(withModule((raw) => raw.check(text, optionsText(options))));
  if (strict && !report.ok) throw new CallError(report);
  return report;
}

export function explain(text, options) {
  return JSON.parse(withModule((raw) => raw.explain(text, optionsText(options))));
}

export function detect(text, options) {
  return JSON.parse(attempt(() => needFull().detect(text, optionsText(options))));
}

export function guessTools(text) {
  return JSON.parse(attempt(() => modules.core.guess_tools(text)));
}

export function decode(body, { wire = "auto", ...options } = {}) {
  const bytes = typeof body === "string" ? new TextEncoder().encode(body) : body;
  return JSON.parse(attempt(() => needFull().decode(bytes, wire, optionsText(options))));
}

export function render(calls, options) {
  return withModule((raw) => raw.render(JSON.stringify(calls), optionsText(options)));
}

export function renderResult(name, content, isError = false) {
  return modules.core.render_result(name, content, isError);
}

export function prompt(options) {
  return withModule((raw) => raw.prompt(optionsText(options)));
}

export function lint(tools, dialect = "auto") {
  const text = typeof tools === "string" ? tools : JSON.stringify(tools);
  return JSON.parse(attempt(() => needFull().lint(text, dialect)));
}

export function edit(text, change, format = "auto") {
  return JSON.parse(attempt(() => needFull().edit(text, change, format)));
}

export function dialects() {
  return JSON.parse(modules.core.dialects());
}

export function version() {
  return modules.core.version();
}

/** Yields the events of an iterable, or async iterable, of chunks. If the source fails, an open call is cut and the error passes on. */
export async function* read(chunks, options) {
  const reader = await created(chunks, () => new Reader(options));
  try {
    for await (const chunk of chunks) yield* reader.push(chunk);
  } catch (error) {
    yield* reader.finish("broken");
    throw error;
  }
  yield* reader.finish();
}

/** Yields choices of OpenAI's Chat Completions, the last with its finish reason. */
export async function* toOpenAIDeltas(chunks, options = {}) {
  const prefix = { id_prefix: `call_${crypto.randomUUID().slice(0, 13)}_` };
  const stream = await created(chunks, () => new OpenAIDeltas({ ...prefix, ...options }));
  const choice = (delta, finish_reason = null) => ({ index: 0, delta, finish_reason });
  for await (const chunk of chunks) for (const delta of stream.push(chunk)) yield choice(delta);
  const end = stream.finish();
  for (const delta of end.deltas) yield choice(delta);
  yield choice({}, end.finish_reason);
}
