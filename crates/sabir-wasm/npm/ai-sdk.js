// A middleware for the Vercel AI SDK that turns calls which a model wrote as text into tool calls.
import { load } from "sabir";
import { LeakedCallReader } from "./leaked-calls.js";

/** Returns the tools of a request in Sabir's shape; null if it has none or wants no calls. */
function toolsOf(params) {
  if (params.toolChoice?.type === "none") return null;
  const tools = (params.tools ?? []).filter((tool) => tool.type === "function");
  if (tools.length === 0) return null;
  return tools.map(({ name, description, inputSchema }) => ({ name, description, parameters: inputSchema }));
}

/** Replaces the reason of a response that held leaked calls. The SDK's versions write it as a word or as an object. */
function callReason(reason) {
  if (typeof reason === "string") return reason === "stop" ? "tool-calls" : reason;
  return reason?.unified === "stop" ? { ...reason, unified: "tool-calls" } : reason;
}

/** Returns the reason why a text ended, in Sabir's words. A call that the output limit cut must not be closed. */
function endOf(finishReason) {
  const reason = typeof finishReason === "string" ? finishReason : finishReason?.unified;
  // Any other reason does not say that the text is complete.
  return { stop: "ended", "tool-calls": "ended", length: "limit", "content-filter": "cancelled" }[reason] ?? "broken";
}

function callPart(call) {
  return { type: "tool-call", toolCallId: call.id, toolName: call.function.name, input: call.function.arguments };
}

/**
 * Creates the middleware. The options are those of `OpenAIDeltas`; calls are sent when they are complete and were read without an error.
 * All other text stays as it is, thoughts with their tags and cut or unreadable calls too. Where the tools cannot be used, answers stay as they
 * are, and a warning says so once.
 */
export function sabirMiddleware(options = {}) {
  const openText = (tools) => new LeakedCallReader({ ...options, tools });
  // The kinds of errors that were reported. One warning is enough, since every request may have the same tools.
  const warned = new Set();
  // Returns the tools if answers can be read with them; null if there are none or they cannot be used, and then answers stay as they are.
  // It runs before the model is asked: a wrong option is an error that must not cost an answer, and a stream opens its texts at once.
  const makeReady = async (params) => {
    const tools = toolsOf(params);
    if (!tools) return null;
    try {
      try {
        openText(tools).free();
      } catch (error) {
        if (error?.code !== "not_loaded") throw error;
        await load();
        openText(tools).free();
      }
      return tools;
    } catch (error) {
      if (error?.code !== "not_loaded" && error?.code !== "invalid_tools") throw error;
      if (!warned.has(error.code)) console.warn(`sabir: answers stay as they are: ${error.message}`);
      warned.add(error.code);
      return null;
    }
  };
  return {
    specificationVersion: "v4",

    async wrapGenerate({ doGenerate, params }) {
      const tools = await makeReady(params);
      const result = await doGenerate();
      if (!tools) return result;
      let leaked = false;
      const content = result.content.flatMap((part, at) => {
        if (part.type !== "text") return [part];
        const reader = openText(tools);
        // Only what was written last can have been cut.
        const reason = at === result.content.length - 1 ? endOf(result.finishReason) : "ended";
        const pieces = [...reader.push(part.text), ...reader.finish(reason)];
        const calls = pieces.filter((piece) => piece.call).map((piece) => callPart(piece.call));
        if (calls.length === 0) return [part];
        leaked = true;
        const text = pieces.map((piece) => piece.text ?? "").join("");
        return [...(text ? [{ ...part, text }] : []), ...calls];
      });
      return leaked ? { ...result, content, finishReason: callReason(result.finishReason) } : result;
    },

    async wrapStream({ doStream, params }) {
      const tools = await makeReady(params);
      const result = await doStream();
      if (!tools) return result;
      // The open texts by their ids. A text is announced when it has content, because a text that is only a call has none.
      const texts = new Map();
      let leaked = false;
      const send = (controller, id, text, pieces) => {
        for (const { text: said, call } of pieces) {
          if (call) {
            leaked = true;
            text.hasCalls = true;
            const part = callPart(call);
            controller.enqueue({ type: "tool-input-start", id: call.id, toolName: part.toolName });
            controller.enqueue({ type: "tool-input-delta", id: call.id, delta: part.input });
            controller.enqueue({ type: "tool-input-end", id: call.id });
            controller.enqueue(part);
          } else {
            begin(controller, text);
            controller.enqueue({ type: "text-delta", id, delta: said });
          }
        }
      };
      const begin = (controller, text) => {
        if (!text.begun) controller.enqueue(text.start);
        text.begun = true;
      };
      const end = (controller, id, reason) => {
        const text = texts.get(id);
        texts.delete(id);
        send(controller, id, text, text.reader.finish(reason));
        // An empty text stays one.
        if (!text.hasCalls) begin(controller, text);
        if (text.begun) controller.enqueue(text.end ?? { type: "text-end", id });
      };
      // The reason arrives behind the end of the last text, which waits for it. A text that others follow was not cut.
      const endWaiting = (controller) => {
        for (const [id, text] of [...texts]) if (text.end) end(controller, id, "ended");
      };
      const endAll = (controller, reason) => {
        for (const id of [...texts.keys()]) end(controller, id, reason);
      };
      const repair = new TransformStream({
        transform(part, controller) {
          if (part.type === "finish") {
            endAll(controller, endOf(part.finishReason));
            controller.enqueue(leaked ? { ...part, finishReason: callReason(part.finishReason) } : part);
          } else if (part.type === "text-end" && texts.has(part.id)) {
            texts.get(part.id).end = part;
          } else if (part.type === "text-delta" && texts.has(part.id)) {
            const text = texts.get(part.id);
            send(controller, part.id, text, text.reader.push(part.delta));
          } else if (part.type === "raw" || part.type === "response-metadata") {
            controller.enqueue(part);
          } else {
            if (part.type === "error") endAll(controller, "broken");
            else endWaiting(controller);
            if (part.type === "text-start") texts.set(part.id, { start: part, reader: openText(tools), begun: false, hasCalls: false });
            else controller.enqueue(part);
          }
        },
        flush(controller) {
          endAll(controller, "broken");
        },
      });
      return { ...result, stream: result.stream.pipeThrough(repair) };
    },
  };
}
