// A scripted model of the Responses API: it calls one tool of one MCP server, and then repeats the result that it got.
//
//   node scripted-model.mjs PORT SERVER TOOL ARGUMENTS

import { createServer } from "node:http";

const [port, server, name, args] = process.argv.slice(2);

function nextItem(input) {
  const result = input.find((item) => item.type === "function_call_output");
  if (!result) {
    const namespace = `mcp__${server}`;
    return { type: "function_call", id: "fc_1", call_id: "call_1", namespace, name, arguments: args };
  }
  const text = `RESULT ${JSON.stringify(result.output)}`;
  return { type: "message", id: "msg_1", role: "assistant", content: [{ type: "output_text", text }] };
}

createServer((request, response) => {
  let body = "";
  request.on("data", (chunk) => (body += chunk));
  request.on("end", () => {
    // The list of models, which clients can do without.
    if (request.method !== "POST") return response.writeHead(404).end();
    const item = nextItem(JSON.parse(body).input ?? []);
    const usage = { input_tokens: 1, output_tokens: 1, total_tokens: 2 };
    const events = [
      { type: "response.created", response: { id: "resp_1" } },
      { type: "response.output_item.done", output_index: 0, item },
      { type: "response.completed", response: { id: "resp_1", usage } },
    ];
    response.writeHead(200, { "content-type": "text/event-stream" });
    for (const event of events) {
      response.write(`event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`);
    }
    response.end();
  });
}).listen(Number(port), "127.0.0.1");
