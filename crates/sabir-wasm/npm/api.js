// The interface: converts options to JSON and results from it, and errors to exceptions. The small module must be loaded already.
import { modules } from "./modules.js";

// Marks the errors of every copy of this file: a program may load the package by `import` and by `require`, each with its own classes.
const SABIR_ERROR = Symbol.for("sabir.SabirError");
const CALL_ERROR = Symbol.for("sabir.CallError");

/** Reports whether a value is an instance of a class of errors, or of the same class in another copy of this file. */
function isErrorOf(asked, own, mark, value) {
  if (asked !== own) return Function.prototype[Symbol.hasInstance].call(asked, value);
  return typeof value === "object" && value !== null && value[mark] === true;
}

/** Input that cannot be used. `code` names the kind; `span` is the position in the input in bytes, or null. */
export class SabirError extends Error {
  static [Symbol.hasInstance](value) {
    return isErrorOf(this, SabirError, SABIR_ERROR, value);
  }

  get [SABIR_ERROR]() {
    return true;
  }

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

// WebAssembly takes whatever it gets for what it expects: another type would be read as an address, or as nothing. So types are checked here.

/** Describes a value of a wrong type. */
function describe(value) {
  if (value === null || value === undefined) return String(value);
  const kind = typeof value;
  return kind === "object" ? `an object (${value.constructor?.name ?? "without a class"})` : `a ${kind}`;
}

function wrongType(name, wanted, value) {
  return new TypeError(`${name}: ${wanted} is needed, not ${describe(value)}`);
}

function needString(value, name) {
  if (typeof value !== "string") throw wrongType(name, "a string", value);
  return value;
}

/** Returns bytes of any kind as a Uint8Array. */
function needBytes(value, name) {
  if (value instanceof Uint8Array) return value;
  if (ArrayBuffer.isView(value)) return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  // Another realm, such as a worker's or that of a test runner, has classes of its own.
  const tag = Object.prototype.toString.call(value);
  if (tag === "[object ArrayBuffer]" || tag === "[object SharedArrayBuffer]") return new Uint8Array(value);
  throw wrongType(name, "a string or a Uint8Array", value);
}

function needText(value, name) {
  return typeof value === "string" ? value : new TextDecoder("utf-8", { ignoreBOM: true }).decode(needBytes(value, name));
}

function needOptions(options) {
  if (options === undefined || options === null) return {};
  if (typeof options !== "object" || Array.isArray(options)) throw wrongType("options", "an object", options);
  return options;
}

function optionsText(options) {
  return JSON.stringify(needOptions(options));
}

/** Returns a value as JSON text, which a string is already. */
function jsonText(value, name, wanted) {
  if (typeof value === "string") return value;
  if (typeof value !== "object" || value === null) throw wrongType(name, wanted, value);
  return JSON.stringify(value);
}

/** Returns something to loop over. Not every browser can loop over a stream. */
function needChunks(chunks) {
  if (typeof chunks === "string") return [chunks];
  if (chunks?.[Symbol.asyncIterator] || chunks?.[Symbol.iterator]) {
    // The bytes of a whole text would be taken for numbers.
    return ArrayBuffer.isView(chunks) ? [chunks] : chunks;
  }
  if (typeof chunks?.getReader === "function") return streamChunks(chunks);
  throw wrongType("chunks", "an iterable or async iterable of strings or Uint8Arrays", chunks);
}

async function* streamChunks(stream) {
  const reader = stream.getReader();
  let isOpen = true;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) {
        isOpen = false;
        return;
      }
      yield value;
    }
  } finally {
    if (isOpen) await reader.cancel().catch(() => {});
    reader.releaseLock();
  }
}

function needReason(reason) {
  if (reason !== undefined && typeof reason !== "string" && typeof reason !== "function") {
    throw wrongType("options.reason", "a string, or a function that returns one,", reason);
  }
}

/** Returns the reason why a text has ended, which may be known only now. */
function endReason(reason) {
  return (typeof reason === "function" ? reason() : reason) ?? "ended";
}

/** Reports whether a text ends in the first half of a surrogate pair, whose other half begins the next chunk. */
function endsInHalf(text) {
  const last = text.charCodeAt(text.length - 1);
  return last >= 0xd800 && last <= 0xdbff;
}

// Engines without `using` lack the symbol.
const DISPOSE = Symbol.dispose ?? Symbol.for("Symbol.dispose");

/** Reads one text that arrives in chunks. */
export class Reader {
  #raw;
  /** Half of a surrogate pair, until its other half arrives. */
  #half = "";

  constructor(options) {
    this.#raw = isHandle(options) ? options : withModule((raw) => new raw.RawReader(optionsText(options)));
  }

  /** Reads a chunk, a string or a Uint8Array, and returns its events. */
  push(chunk) {
    if (typeof chunk !== "string") {
      const bytes = needBytes(chunk, "chunk");
      const half = this.#takeHalf();
      const before = half ? this.#push((raw) => raw.push(half)) : NOTHING;
      const events = this.#push((raw) => raw.push_bytes(bytes));
      return before === NOTHING ? events : [...before, ...events];
    }
    let text = this.#half + chunk;
    this.#half = "";
    if (endsInHalf(text)) {
      this.#half = text.slice(-1);
      text = text.slice(0, -1);
    }
    return this.#push((raw) => raw.push(text));
  }

  #takeHalf() {
    const half = this.#half;
    this.#half = "";
    return half;
  }

  #push(run) {
    const raw = this.#raw;
    let events;
    try {
      events = run(raw);
    } catch (error) {
      return attempt(() => {
        throw error;
      });
    }
    return events === undefined ? NOTHING : JSON.parse(events);
  }

  /** Ends the text and returns the last events. */
  finish(reason = "ended") {
    needString(reason, "reason");
    const half = this.#takeHalf();
    const before = half ? this.#push((raw) => raw.push(half)) : NOTHING;
    return [...before, ...JSON.parse(attempt(() => this.#raw.finish(reason)))];
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

  [DISPOSE]() {
    this.free();
  }
}

/** Converts one text that arrives in chunks to deltas of OpenAI's Chat Completions. */
export class OpenAIDeltas {
  #raw;
  /** Half of a surrogate pair, until its other half arrives. */
  #half = "";
  /** Holds bytes of a character that is not complete, once a chunk had bytes. */
  #decoder = null;

  constructor(options) {
    this.#raw = withModule((raw) => new raw.RawDeltas(optionsText(options)));
  }

  /** Reads a chunk, a string or a Uint8Array, and returns its deltas. */
  push(chunk) {
    let text;
    if (typeof chunk === "string") {
      text = (this.#decoder?.decode() ?? "") + this.#half + chunk;
      this.#half = "";
      if (endsInHalf(text)) {
        this.#half = text.slice(-1);
        text = text.slice(0, -1);
      }
    } else {
      const bytes = needBytes(chunk, "chunk");
      this.#decoder ??= new TextDecoder("utf-8", { ignoreBOM: true });
      text = this.#half + this.#decoder.decode(bytes, { stream: true });
      this.#half = "";
    }
    return this.#push(text);
  }

  #push(text) {
    const deltas = attempt(() => this.#raw.push(text));
    return deltas === undefined ? NOTHING : JSON.parse(deltas);
  }

  /** Ends the text and returns the last deltas, the finish reason and the faults. */
  finish(reason = "ended") {
    needString(reason, "reason");
    const rest = (this.#decoder?.decode() ?? "") + this.#half;
    this.#half = "";
    const before = rest ? this.#push(rest) : NOTHING;
    const end = JSON.parse(attempt(() => this.#raw.finish(reason)));
    return before === NOTHING ? end : { ...end, deltas: [...before, ...end.deltas] };
  }

  free() {
    this.#raw.free();
    this.#raw = FREED;
  }

  [DISPOSE]() {
    this.free();
  }
}

/** A message whose calls must not run. */
export class CallError extends SabirError {
  static [Symbol.hasInstance](value) {
    return isErrorOf(this, CallError, CALL_ERROR, value);
  }

  get [CALL_ERROR]() {
    return true;
  }

  constructor(report) {
    const errors = report.faults.filter((fault) => fault.severity === "error");
    const message = errors.map((fault) => fault.diagnostic).join("\n") || "the message is not understood";
    super({ code: "faulty_calls", message, span: errors[0]?.span ?? null });
    this.name = "CallError";
    this.faults = report.faults;
    this.feedback = report.feedback;
  }
}

export function parse(text, options) {
  const read = needText(text, "text");
  return JSON.parse(withModule((raw) => raw.parse(read, optionsText(options))));
}

export function check(text, options) {
  const read = needText(text, "text");
  const { strict = false, ...others } = needOptions(options);
  const report = JSON.parse(withModule((raw) => raw.check(read, optionsText(others))));
  if (strict && !report.ok) throw new CallError(report);
  return report;
}

export function explain(text, options) {
  const read = needText(text, "text");
  return JSON.parse(withModule((raw) => raw.explain(read, optionsText(options))));
}

export function detect(text, options) {
  const read = needText(text, "text");
  return JSON.parse(attempt(() => needFull().detect(read, optionsText(options))));
}

export function guessTools(text) {
  const read = needText(text, "text");
  return JSON.parse(attempt(() => modules.core.guess_tools(read)));
}

export function decode(body, options) {
  const bytes = typeof body === "string" ? new TextEncoder().encode(body) : needBytes(body, "body");
  const { wire = "auto", ...others } = needOptions(options);
  needString(wire, "options.wire");
  return JSON.parse(attempt(() => needFull().decode(bytes, wire, optionsText(others))));
}

export function render(calls, options) {
  const text = jsonText(calls, "calls", "an array of calls");
  return withModule((raw) => raw.render(text, optionsText(options)));
}

export function renderResult(name, content, isError = false) {
  return modules.core.render_result(needString(name, "name"), needString(content, "content"), Boolean(isError));
}

export function prompt(options) {
  return withModule((raw) => raw.prompt(optionsText(options)));
}

export function lint(tools, dialect = "auto") {
  const text = jsonText(tools, "tools", "an array or object of tools, or its JSON,");
  needString(dialect, "dialect");
  return JSON.parse(attempt(() => needFull().lint(text, dialect)));
}

export function edit(text, change, format = "auto") {
  for (const [value, name] of [[text, "text"], [change, "change"], [format, "format"]]) needString(value, name);
  return JSON.parse(attempt(() => needFull().edit(text, change, format)));
}

export function dialects() {
  return JSON.parse(modules.core.dialects());
}

export function version() {
  return modules.core.version();
}

/**
 * Yields the events of an iterable, or async iterable, of chunks. `reason` says why the text ended: a word, or a function that returns it
 * when the chunks have ended. If the source fails, an open call is cut and the error passes on.
 */
export async function* read(chunks, options) {
  const { reason, ...others } = needOptions(options);
  const source = needChunks(chunks);
  needReason(reason);
  const reader = await created(source, () => new Reader(others));
  try {
    try {
      for await (const chunk of source) yield* reader.push(chunk);
    } catch (error) {
      yield* reader.finish("broken");
      throw error;
    }
    yield* reader.finish(endReason(reason));
  } finally {
    reader.free();
  }
}

/** Yields choices of OpenAI's Chat Completions, the last with its finish reason. `reason` is as in `read`. */
export async function* toOpenAIDeltas(chunks, options) {
  const { reason, ...others } = needOptions(options);
  const source = needChunks(chunks);
  needReason(reason);
  const prefix = { id_prefix: `call_${crypto.randomUUID().slice(0, 13)}_` };
  const stream = await created(source, () => new OpenAIDeltas({ ...prefix, ...others }));
  const choice = (delta, finish_reason = null) => ({ index: 0, delta, finish_reason });
  try {
    for await (const chunk of source) for (const delta of stream.push(chunk)) yield choice(delta);
    const end = stream.finish(endReason(reason));
    for (const delta of end.deltas) yield choice(delta);
    yield choice({}, end.finish_reason);
  } finally {
    stream.free();
  }
}
