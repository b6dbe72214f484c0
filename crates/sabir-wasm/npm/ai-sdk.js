// A middleware for the Vercel AI SDK that turns calls which a model wrote as text into tool calls.
import { OpenAIDeltas, load } from "sabir";

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

/** Merges the deltas of a text into what they say, in order: pieces of text, and calls. */
function* piecesOf(deltas) {
  for (const delta of deltas) {
    if (delta.content) yield { text: delta.content };
    if (delta.reasoning_content) yield { thought: delta.reasoning_content };
    for (const call of delta.tool_calls ?? []) yield { call };
  }
}

function callPart(call) {
  return { type: "tool-call", toolCallId: call.id, toolName: call.function.name, input: call.function.arguments };
}

/**
 * Creates the middleware. The options are those of `OpenAIDeltas`; calls are sent when they are complete and were read without an error.
 * A cut or unreadable call is left out. Where the tools cannot be used, answers stay as they are, and a warning says so once.
 */
export function sabirMiddleware(options = {}) {
  const openText = (tools) =>
    new OpenAIDeltas({ id_prefix: `call_${crypto.randomUUID().slice(0, 13)}_`, ...options, tools, whole_calls: true });
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
      const content = result.content.flatMap((part) => {
        if (part.type !== "text") return [part];
        const stream = openText(tools);
        const deltas = [...stream.push(part.text), ...stream.finish().deltas];
        stream.free();
        const pieces = [...piecesOf(deltas)];
        if (!pieces.some((piece) => piece.call)) return [part];
        leaked = true;
        const text = pieces.map((piece) => piece.text ?? "").join("").trim();
        const calls = pieces.filter((piece) => piece.call).map((piece) => callPart(piece.call));
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
      const send = (controller, id, text, deltas) => {
        for (const { text: said, call } of piecesOf(deltas)) {
          if (call) {
            leaked = true;
            const part = callPart(call);
            controller.enqueue({ type: "tool-input-start", id: call.id, toolName: part.toolName });
            controller.enqueue({ type: "tool-input-delta", id: call.id, delta: part.input });
            controller.enqueue({ type: "tool-input-end", id: call.id });
            controller.enqueue(part);
          } else if (said && (text.begun || said.trim())) {
            if (!text.begun) controller.enqueue(text.start);
            text.begun = true;
            controller.enqueue({ type: "text-delta", id, delta: said });
          }
        }
      };
      const end = (controller, id, part) => {
        const text = texts.get(id);
        if (!text) return;
        texts.delete(id);
        send(controller, id, text, text.stream.finish().deltas);
        text.stream.free();
        if (text.begun) controller.enqueue(part ?? { type: "text-end", id });
      };
      const repair = new TransformStream({
        transform(part, controller) {
          if (part.type === "text-start") {
            texts.set(part.id, { start: part, stream: openText(tools), begun: false });
          } else if (part.type === "text-delta" && texts.has(part.id)) {
            const text = texts.get(part.id);
            send(controller, part.id, text, text.stream.push(part.delta));
          } else if (part.type === "text-end") {
            end(controller, part.id, part);
          } else if (part.type === "finish") {
            for (const id of [...texts.keys()]) end(controller, id);
            controller.enqueue(leaked ? { ...part, finishReason: callReason(part.finishReason) } : part);
          } else {
            controller.enqueue(part);
          }
        },
      });
      return { ...result, stream: result.stream.pipeThrough(repair) };
    },
  };
}
