// Separates calls from the text around them, and keeps that text as it was. The middleware uses it; the Python package has the same.
import { OpenAIDeltas, Reader } from "sabir";

/** The number of UTF-16 units that are read at once: in short pieces a text that the reader reports is near the end of what was read. */
const MAX_PIECE = 16;

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { ignoreBOM: true });

/** The bytes of a text so far, in a buffer that grows. */
class Source {
  length = 0;
  #bytes = new Uint8Array(1024);

  append(bytes) {
    const needed = this.length + bytes.length;
    if (needed > this.#bytes.length) {
      const grown = new Uint8Array(needed * 2);
      grown.set(this.#bytes.subarray(0, this.length));
      this.#bytes = grown;
    }
    this.#bytes.set(bytes, this.length);
    this.length = needed;
  }

  text(start, end) {
    return decoder.decode(this.#bytes.subarray(start, Math.max(start, end)));
  }

  /** Reports whether a piece begins at an offset and ends before another. */
  holds(piece, start, end) {
    return start + piece.length <= end && piece.every((byte, at) => this.#bytes[start + at] === byte);
  }

  /** Returns the first or last offset of a piece between two offsets; -1 if there is none. */
  find(piece, start, end, isFromEnd) {
    const last = end - piece.length;
    for (let at = start; at <= last; at++) {
      const offset = isFromEnd ? last - (at - start) : at;
      if (this.holds(piece, offset, end)) return offset;
    }
    return -1;
  }
}

/**
 * Reads one text that arrives in chunks, and returns its pieces: `{ text }`, and `{ call }` in the shape of OpenAI.
 *
 * Everything stays text, thoughts with their tags too, but for the markup of calls that are sent. A call that is cut, unreadable or only
 * mentioned stays text. All that is behind the beginning of the first call waits for the end of the text. Text without a visible character is left out if the message has a call and no other text.
 */
export class LeakedCallReader {
  // Two readers of the same text: the events tell the position of each call, and the deltas are the calls that passed the checks.
  #reader;
  #deltas;
  #source = new Source();
  /** The events from the first call on, with the length of the source when they came. */
  #waiting = [];
  #sourceEnd = 0;
  /** The offset up to which the source is in pieces or held. */
  #position = 0;
  /** Markup, and blanks behind it, whose meaning the next call or text decides. */
  #held = [];
  #half = "";
  #callStart = 0;
  #isBehindCall = false;
  #hasCalls = false;
  #blank = "";
  #hasSaid = false;
  #pieces = [];

  constructor(options) {
    const { id_prefix, whole_calls, ...others } = options;
    const prefix = id_prefix ?? `call_${crypto.randomUUID().slice(0, 13)}_`;
    this.#deltas = new OpenAIDeltas({ ...others, id_prefix: prefix, whole_calls: true });
    this.#reader = new Reader({ ...others, marks: true });
  }

  push(text) {
    let rest = this.#half + text;
    this.#half = "";
    while (rest) {
      let size = Math.min(MAX_PIECE, rest.length);
      if (isHighSurrogate(rest.charCodeAt(size - 1))) size++;
      if (size > rest.length) {
        this.#half = rest.slice(-1);
        rest = rest.slice(0, -1);
        size--;
      }
      if (size > 0) this.#pushPiece(rest.slice(0, size));
      rest = rest.slice(size);
    }
    return this.#takePieces();
  }

  /** Ends the text. `reason` is as in `Reader.finish`. */
  finish(reason = "ended") {
    // A half without its other half is no character; in UTF-8 it becomes U+FFFD.
    if (this.#half) this.#pushPiece("\ufffd");
    this.#read(this.#reader.finish(reason));
    const { deltas, call_indexes: indexes } = this.#deltas.finish(reason);
    const sent = deltas.flatMap((delta) => delta.tool_calls ?? []);
    const calls = new Map(indexes.map((index, at) => [index, sent[at]]));
    for (const { length, events } of this.#waiting) {
      this.#sourceEnd = length;
      for (const event of events) this.#readEvent(event, calls);
    }
    this.#holdUpTo(this.#source.length);
    this.#releaseHeld();
    if (this.#blank && !this.#hasCalls) this.#pieces.push({ text: this.#blank });
    this.free();
    return this.#takePieces();
  }

  free() {
    this.#reader.free();
    this.#deltas.free();
  }

  #pushPiece(text) {
    this.#source.append(encoder.encode(text));
    this.#deltas.push(text);
    this.#read(this.#reader.push(text));
  }

  #takePieces() {
    const pieces = this.#pieces;
    this.#pieces = [];
    return pieces;
  }

  #read(events) {
    this.#sourceEnd = this.#source.length;
    // Only the end of the text tells whether a call is sent, so what is behind its beginning waits.
    const first = this.#waiting.length > 0 ? 0 : events.findIndex((event) => event.event === "call_start");
    const now = first < 0 ? events : events.slice(0, first);
    for (const event of now) this.#readEvent(event, new Map());
    if (first >= 0) this.#waiting.push({ length: this.#sourceEnd, events: events.slice(first) });
  }

  #readEvent(event, calls) {
    if (event.event === "text" || event.event === "thought") this.#readText(event.text);
    else if (event.event === "mark") this.#readMark(event.role, event.span);
    else if (event.event === "call_start") this.#startCall(event.at);
    else if (event.event === "call_end") this.#endCall(event.at, calls.get(event.index));
    else if (event.event === "call_cut") this.#endCall(event.at, undefined);
  }

  #readText(text) {
    // A text has no offset: it follows what was read before, or a gap, markup or layout that has no event of its own.
    const bytes = encoder.encode(text);
    let start = this.#position;
    // A marker behind a call may hold the same bytes, so words are looked for from the end there.
    if (!this.#source.holds(bytes, start, this.#sourceEnd)) {
      start = this.#source.find(bytes, start, this.#sourceEnd, this.#isBehindCall && text.trim() !== "");
    }
    if (start >= 0) {
      this.#holdUpTo(start);
      this.#position = start + bytes.length;
    } else if (!text.trim()) {
      return; // a blank before a thought, which the reader reports behind it, is known as a gap already
    }
    this.#addText(text, this.#position - bytes.length);
  }

  #readMark(role, [start, end]) {
    const isThought = role === "thought" || role === "prompted_thought";
    if (!isThought && role !== "wrapper" && role !== "call") return; // a remark about text that follows as text
    this.#holdUpTo(start);
    if (isThought) {
      const from = Math.max(start, this.#position);
      this.#position = Math.max(from, end);
      this.#addText(this.#source.text(from, end), from);
    } else {
      this.#holdUpTo(end);
    }
  }

  #startCall(start) {
    this.#holdUpTo(start);
    this.#callStart = start;
    this.#held = this.#held.filter((held) => held.start < start);
  }

  #endCall(end, call) {
    this.#position = Math.max(this.#position, end);
    if (!call) {
      this.#addText(this.#source.text(this.#callStart, end), this.#callStart);
      return;
    }
    for (const { text, isMarkup } of this.#held) if (!isMarkup) this.#say(text);
    this.#held = [];
    this.#pieces.push({ call });
    this.#hasCalls = true;
    this.#isBehindCall = true;
  }

  /** Holds a piece of markup. It may have no event of its own, such as the bracket behind a list of calls. */
  #holdUpTo(end) {
    if (end <= this.#position) return;
    this.#held.push({ start: this.#position, text: this.#source.text(this.#position, end), isMarkup: true });
    this.#position = end;
  }

  #addText(text, start) {
    if (!text.trim()) {
      if (this.#held.length > 0) this.#held.push({ start, text, isMarkup: false });
      else this.#say(text);
      return;
    }
    this.#releaseHeld();
    this.#isBehindCall = false;
    this.#say(text);
  }

  /** Decides about what is held: behind a call markup belongs to that call, elsewhere it is text. */
  #releaseHeld() {
    for (const { text, isMarkup } of this.#held) if (!(isMarkup && this.#isBehindCall)) this.#say(text);
    this.#held = [];
  }

  #say(text) {
    if (!this.#hasSaid && !text.trim()) {
      this.#blank += text;
      return;
    }
    this.#hasSaid = true;
    const last = this.#pieces.at(-1);
    if (last?.text) last.text += text;
    else this.#pieces.push({ text: this.#blank + text });
    this.#blank = "";
  }
}

function isHighSurrogate(unit) {
  return unit >= 0xd800 && unit <= 0xdbff;
}
