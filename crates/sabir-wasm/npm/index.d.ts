/// <reference lib="esnext.disposable" />
/** A JSON object. */
export type Json = Record<string, unknown>;

/** Options of all functions; every member may be left out. */
export interface Options {
  /** The name or alias of the dialect; `auto`, the default, reads all. */
  dialect?: string;
  /** The tools, in the shape of OpenAI, Anthropic, Gemini, Bedrock or MCP. */
  tools?: unknown;
  /** The end of the prompt that the text continues, such as `<think>`. */
  prefill?: string;
  /** Accepts a last call that lacks only its closing markup. */
  closes_last_call?: boolean;
  /** Rejects all calls of a message but the first. */
  single_call?: boolean;
  /** Reports markup and its role as events. */
  marks?: boolean;
  /** Tables of more dialects. */
  dialects?: Json[];
  /** Repair rules that are not to have their default. */
  repairs?: [string, boolean][];
}

export interface DeltaOptions extends Options {
  /** Holds each call back until the gates have judged it. */
  whole_calls?: boolean;
  /** The beginning of the ids of calls. */
  id_prefix?: string;
}

/** Text as a string, or as bytes in UTF-8. */
export type TextInput = string | ArrayBufferView | ArrayBuffer;

/** What can be looped over, or a stream such as the body of a response. */
export type Chunks = Iterable<TextInput> | AsyncIterable<TextInput> | ReadableStreamLike | string;

/** The part of a `ReadableStream` that is used, so that these types need no library. */
export interface ReadableStreamLike {
  getReader(): { read(): Promise<{ done: boolean; value?: any }>; cancel(): Promise<void>; releaseLock(): void };
}

/** Why a text ended: a word, or a function that returns it when the chunks have ended. `limit` is the provider's `length`. */
export interface EndOptions {
  reason?: EndReason | (() => EndReason | undefined);
}

export type Span = [start: number, end: number];
export type Form = "raw" | "string" | "json";
export type EndReason = "ended" | "limit" | "broken" | "cancelled";

export interface FaultEvent {
  event: "fault";
  kind: string;
  severity: "error" | "warning";
  call: number | null;
  argument: string | null;
  span: Span;
  origin: "text" | "arguments";
  message: string;
  hint: string | null;
}

/** An event of a stream. Ignore events of an unknown type: they come from a later version. */
export type Event =
  | { event: "text"; text: string }
  | { event: "thought"; text: string }
  | { event: "mark"; role: string; dialect: string | null; span: Span; sure: string; rule: string }
  | { event: "call_start"; index: number; id: string | null; name: string; dialect: string | null; at: number; name_at: number }
  | { event: "arg_start"; index: number; name: string; form: Form; at: number }
  | { event: "arg_delta"; index: number; text: string }
  | { event: "arg_end"; index: number; lead: string; at: number }
  | { event: "call_end"; index: number; at: number }
  | { event: "call_cut"; index: number; why: EndReason; at: number }
  | FaultEvent;

export interface Fault {
  kind: string;
  severity: "error" | "warning";
  call: number | null;
  argument: string | null;
  line: number;
  column: number;
  span: Span;
  message: string;
  hint: string | null;
}

export interface Repair {
  rule: string;
  before: string;
  after: string;
  [member: string]: unknown;
}

export type CallState = "complete" | "rejected" | "cut";

export type Part =
  | { type: "text"; text: string }
  | { type: "thought"; text: string }
  | {
      type: "call";
      name: string;
      id: string | null;
      dialect: string | null;
      state: CallState;
      arguments: Json;
      span: Span | null;
      repairs: Repair[];
      how: { sure: string; rule: string } | null;
    };

export interface ParseReport {
  dialect: string;
  parts: Part[];
  faults: Fault[];
  feedback: string | null;
  [member: string]: unknown;
}

export interface CheckReport {
  ok: boolean;
  calls: { index: number; name: string; arguments: Json; state: CallState; faults: Json[]; repairs: Repair[] }[];
  faults: (Fault & { diagnostic: string })[];
  feedback: string | null;
}

export interface Delta {
  content?: string;
  reasoning_content?: string;
  tool_calls?: { index: number; id?: string; type?: "function"; function: { name?: string; arguments: string } }[];
}

export type FinishReason = "stop" | "tool_calls" | "length";

export interface DeltaEnd {
  deltas: Delta[];
  finish_reason: FinishReason;
  /** For each call of the deltas, its `index` in the events of a `Reader`, which also numbers calls that are left out. */
  call_indexes: number[];
  faults: Json[];
}

export interface Choice {
  index: 0;
  delta: Delta;
  finish_reason: FinishReason | null;
}

/** Input that cannot be used. */
export class SabirError extends Error {
  code: string;
  span: Span | null;
  problems: Json[];
}

/** A message whose calls must not run. */
export class CallError extends SabirError {
  code: "faulty_calls";
  faults: (Fault & { diagnostic: string })[];
  feedback: string | null;
}

export class Reader {
  constructor(options?: Options);
  push(chunk: TextInput): readonly Event[];
  finish(reason?: EndReason): Event[];
  nextReader(): Reader;
  free(): void;
  [Symbol.dispose](): void;
}

export class OpenAIDeltas {
  constructor(options?: DeltaOptions);
  push(chunk: TextInput): readonly Delta[];
  finish(reason?: EndReason): DeltaEnd;
  free(): void;
  [Symbol.dispose](): void;
}

export function parse(text: TextInput, options?: Options): ParseReport;
export function check(text: TextInput, options?: Options & { strict?: boolean }): CheckReport;
export function explain(text: TextInput, options?: Options): Json;
export function detect(
  text: TextInput,
  options?: Options,
): { dialects: { dialect: string; calls: number; sure: string | null }[]; wire: string | null };
export function guessTools(text: TextInput): { name: string; description: string; parameters: Json }[];
export function decode(body: TextInput, options?: Options & { wire?: string }): ParseReport & { failed: boolean };
export function render(calls: { name: string; arguments?: Json }[], options: Options & { dialect: string }): string;
export function renderResult(name: string, content: string, isError?: boolean): string;
export function prompt(options: Options & { dialect: string }): string;
export function lint(tools: unknown, dialect?: string): Json;
export function edit(
  text: string,
  change: string,
  format?: "auto" | "search-replace" | "patch" | "string-replace" | "whole",
): { status: string; content: string; hunks: Json[]; [member: string]: unknown };
/**
 * Loads the full module. Only browsers need it, and once: before calls are checked by schemas with rare keywords (an error of code
 * `not_loaded` says so), and before `decode`, `detect`, `edit` and `lint`. The async functions and the middleware load it themselves. If it
 * fails, the error has that code and its `cause`, and it may be tried again.
 */
export function load(): Promise<void>;
export function dialects(): { name: string; aliases: string[]; summary: string; [member: string]: unknown }[];
export function version(): string;
export function read(
  chunks: Chunks,
  options?: Options & EndOptions,
): AsyncGenerator<Event, void, void>;
export function toOpenAIDeltas(
  chunks: Chunks,
  options?: DeltaOptions & EndOptions,
): AsyncGenerator<Choice, void, void>;
