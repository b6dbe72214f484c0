// A scripted model of the Responses API and of Anthropic's Messages API: it calls one tool of one MCP server, and then repeats the
// result that it got.
//
//   node scripted-model.mjs PORT SERVER TOOL ARGUMENTS

import { createServer } from "node:http";

const [port, server, name, args] = process.argv.slice(2);

const responseEvents = (request) => {
  const result = (request.input ?? []).find((item) => item.type === "function_call_output");
  const text = `RESULT ${JSON.stringify(result?.output)}`;
  const item = result
    ? { type: "message", id: "msg_1", role: "assistant", content: [{ type: "output_text", text }] }
    : { type: "function_call", id: "fc_1", call_id: "call_1", namespace: `mcp__${server}`, name, arguments: args };
  const usage = { input_tokens: 1, output_tokens: 1, total_tokens: 2 };
  return [
    { type: "response.created", response: { id: "resp_1" } },
    { type: "response.output_item.done", output_index: 0, item },
    { type: "response.completed", response: { id: "resp_1", usage } },
  ];
};

const messageEvents = (request) => {
  const tool = `mcp__${server}__${name}`;
  const isOffered = (request.tools ?? []).some((offered) => offered.name === tool);
  const parts = request.messages.flatMap((message) => (Array.isArray(message.content) ? message.content : []));
  const result = parts.find((part) => part.type === "tool_result");
  // Requests for titles and the like offer no tools.
  const isCall = isOffered && !result;
  const text = result ? `RESULT ${JSON.stringify(result.content)}` : "nothing to do";
  const block = isCall ? { type: "tool_use", id: "toolu_1", name: tool, input: {} } : { type: "text", text: "" };
  const delta = isCall ? { type: "input_json_delta", partial_json: args } : { type: "text_delta", text };
  const usage = { input_tokens: 1, output_tokens: 1 };
  const message = { id: "msg_1", type: "message", role: "assistant", model: request.model, content: [], usage };
  return [
    { type: "message_start", message },
    { type: "content_block_start", index: 0, content_block: block },
    { type: "content_block_delta", index: 0, delta },
    { type: "content_block_stop", index: 0 },
    { type: "message_delta", delta: { stop_reason: isCall ? "tool_use" : "end_turn" }, usage },
    { type: "message_stop" },
  ];
};

createServer((request, response) => {
  let body = "";
  request.on("data", (chunk) => (body += chunk));
  request.on("end", () => {
    const path = new URL(request.url, "http://localhost").pathname;
    const events = { "/v1/responses": responseEvents, "/v1/messages": messageEvents }[path];
    // The list of models and the like, which clients can do without.
    if (request.method !== "POST" || !events) return response.writeHead(404).end();
    response.writeHead(200, { "content-type": "text/event-stream" });
    for (const event of events(JSON.parse(body))) {
      response.write(`event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`);
    }
    response.end();
  });
}).listen(Number(port), "127.0.0.1");
