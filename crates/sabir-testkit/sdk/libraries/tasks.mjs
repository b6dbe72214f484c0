// Gives a task to one of the JavaScript libraries. Usage: node tasks.mjs SETUP ADDRESS MODEL TOKEN TASK
// The tools read and write files of the working folder. Prints the library's last words.
import { readFileSync, writeFileSync } from "node:fs";
import { z } from "zod";

const [setup, address, model, token, task] = process.argv.slice(2);
const v1 = `${address}/v1`;
const path = z.string().describe("The path of the file.");
const TOOLS = {
  read_file: { description: "Reads a file.", schema: z.object({ path }), run: ({ path }) => readFileSync(path, "utf8") },
  write_file: {
    description: "Writes a file.",
    schema: z.object({ path, content: z.string() }),
    run: ({ path, content }) => {
      writeFileSync(path, content);
      return `wrote ${path}`;
    },
  },
};

async function aiSdk(languageModel) {
  const { stepCountIs, streamText, tool } = await import("ai");
  const tools = Object.fromEntries(Object.entries(TOOLS).map(([name, { description, schema, run }]) => [name, tool({ description, inputSchema: schema, execute: async (input) => run(input) })]));
  const errors = [];
  const result = streamText({ model: languageModel, tools, prompt: task, stopWhen: stepCountIs(6), maxRetries: 0, onError: ({ error }) => errors.push(error) });
  await result.consumeStream();
  if (errors.length) throw errors[0];
  return result.text;
}

async function langChain(chatModel) {
  const { createAgent, tool } = await import("langchain");
  const tools = Object.entries(TOOLS).map(([name, { description, schema, run }]) => tool(async (input) => run(input), { name, description, schema }));
  const agent = createAgent({ model: chatModel, tools });
  let last = [];
  for await (const state of await agent.stream({ messages: [{ role: "user", content: task }] }, { streamMode: "values" })) last = state.messages;
  return last.at(-1).text;
}

async function openaiAgents(api) {
  const { Agent, run, setDefaultOpenAIClient, setOpenAIAPI, setTracingDisabled, tool } = await import("@openai/agents");
  const { default: OpenAI } = await import("openai");
  setTracingDisabled(true);
  setOpenAIAPI(api);
  setDefaultOpenAIClient(new OpenAI({ baseURL: v1, apiKey: token, maxRetries: 0 }));
  const tools = Object.entries(TOOLS).map(([name, { description, schema, run }]) => tool({ name, description, parameters: schema, execute: async (input) => run(input) }));
  const result = await run(new Agent({ name: "Writer", model, tools }), task, { stream: true });
  await result.completed;
  return result.finalOutput;
}

// The same over a WebSocket, which the library opens by itself.
async function openaiAgentsWebSocket() {
  const { Agent, tool, setTracingDisabled, withResponsesWebSocketSession } = await import("@openai/agents");
  // Node has one with headers from version 22 on.
  globalThis.WebSocket ??= (await import("ws")).WebSocket;
  setTracingDisabled(true);
  const tools = Object.entries(TOOLS).map(([name, { description, schema, run }]) => tool({ name, description, parameters: schema, execute: async (input) => run(input) }));
  const providerOptions = { baseURL: v1, apiKey: token };
  return withResponsesWebSocketSession(
    async ({ run }) => {
      const result = await run(new Agent({ name: "Writer", model, tools }), task, { stream: true });
      await result.completed;
      return result.finalOutput;
    },
    { providerOptions },
  );
}

// Sends only what is new, and refers to an answer that is not stored for the rest.
async function openaiWebSocket() {
  const { default: OpenAI } = await import("openai");
  const { ResponsesWS } = await import("openai/resources/responses/ws");
  const socket = new ResponsesWS(new OpenAI({ baseURL: v1, apiKey: token }));
  const events = socket.stream();
  const tools = Object.entries(TOOLS).map(([name, { description, schema }]) => ({ type: "function", name, description, parameters: z.toJSONSchema(schema), strict: false }));
  const ask = async (members) => {
    socket.send({ type: "response.create", model, tools, store: false, ...members });
    for (;;) {
      const { value: event } = await events.next();
      if (event.type === "error") throw event.error;
      if (event.type === "close") throw new Error(`closed with ${event.code}`);
      const { type, response } = event.message ?? {};
      if (type === "response.completed") return response;
      if (type === "response.failed" || type === "response.incomplete") throw new Error(JSON.stringify(response));
    }
  };
  // Prepares the tools, without an answer.
  const { id } = await ask({ input: [], generate: false });
  let response = await ask({ input: task, previous_response_id: id });
  for (let turn = 0; turn < 6; turn += 1) {
    const calls = response.output.filter((item) => item.type === "function_call");
    if (!calls.length) {
      socket.close();
      return response.output.flatMap((item) => item.content ?? []).map((part) => part.text).join("");
    }
    const input = calls.map((call) => ({ type: "function_call_output", call_id: call.call_id, output: TOOLS[call.name].run(JSON.parse(call.arguments)) }));
    response = await ask({ input, previous_response_id: response.id });
  }
  throw new Error("no end after six turns");
}

const SETUPS = {
  "ai-sdk-responses": async () => aiSdk((await import("@ai-sdk/openai")).createOpenAI({ baseURL: v1, apiKey: token })(model)),
  "ai-sdk-chat": async () => aiSdk((await import("@ai-sdk/openai")).createOpenAI({ baseURL: v1, apiKey: token }).chat(model)),
  "ai-sdk-compatible": async () => aiSdk((await import("@ai-sdk/openai-compatible")).createOpenAICompatible({ name: "gateway", baseURL: v1, apiKey: token })(model)),
  "ai-sdk-anthropic": async () => aiSdk((await import("@ai-sdk/anthropic")).createAnthropic({ baseURL: v1, apiKey: token })(model)),
  "ai-sdk-google": async () => aiSdk((await import("@ai-sdk/google")).createGoogleGenerativeAI({ baseURL: `${address}/v1beta`, apiKey: token })(model)),
  "ai-sdk-ollama": async () => aiSdk((await import("ollama-ai-provider-v2")).createOllama({ baseURL: `${address}/api`, headers: { Authorization: `Bearer ${token}` } })(model)),
  // Streamed, it would count tokens with a table that it loads from the network.
  "langchain-js-chat": async () => langChain(new (await import("@langchain/openai")).ChatOpenAI({ model, apiKey: token, maxRetries: 0, configuration: { baseURL: v1 } })),
  "langchain-js-responses": async () =>
    langChain(new (await import("@langchain/openai")).ChatOpenAI({ model, apiKey: token, streaming: true, useResponsesApi: true, maxRetries: 0, configuration: { baseURL: v1 } })),
  "langchain-js-anthropic": async () => langChain(new (await import("@langchain/anthropic")).ChatAnthropic({ model, apiKey: token, streaming: true, maxRetries: 0, anthropicApiUrl: address })),
  "openai-agents-js-responses": () => openaiAgents("responses"),
  "openai-agents-js-websocket": openaiAgentsWebSocket,
  "openai-js-websocket": openaiWebSocket,
  "openai-agents-js-chat": () => openaiAgents("chat_completions"),
  "tanstack-ai": async () => {
    const { chat, maxIterations, toolDefinition } = await import("@tanstack/ai");
    const { createOpenaiChatCompletions } = await import("@tanstack/ai-openai");
    const tools = Object.entries(TOOLS).map(([name, { description, schema, run }]) => toolDefinition({ name, description, inputSchema: schema }).server(async (input) => run(input)));
    const adapter = createOpenaiChatCompletions(model, token, { baseURL: v1 });
    let text = "";
    for await (const chunk of chat({ adapter, tools, messages: [{ role: "user", content: task }], agentLoopStrategy: maxIterations(6) })) {
      if (chunk.type === "TEXT_MESSAGE_CONTENT") text += chunk.delta;
      if (chunk.type === "RUN_ERROR") throw new Error(JSON.stringify(chunk));
    }
    return text;
  },
  "google-genai-js": async () => {
    const { GoogleGenAI } = await import("@google/genai");
    const client = new GoogleGenAI({ apiKey: token, httpOptions: { baseUrl: address } });
    const functionDeclarations = Object.entries(TOOLS).map(([name, { description, schema }]) => ({ name, description, parametersJsonSchema: z.toJSONSchema(schema) }));
    const session = client.chats.create({ model, config: { tools: [{ functionDeclarations }] } });
    let message = task;
    for (let turn = 0; turn < 6; turn += 1) {
      let text = "";
      const calls = [];
      for await (const chunk of await session.sendMessageStream({ message })) {
        text += (chunk.candidates?.[0]?.content?.parts ?? []).map((part) => part.text ?? "").join("");
        calls.push(...(chunk.functionCalls ?? []));
      }
      if (!calls.length) return text;
      message = calls.map((call) => ({ functionResponse: { id: call.id, name: call.name, response: { output: TOOLS[call.name].run(call.args) } } }));
    }
    throw new Error("no end after six turns");
  },
};

console.log(await SETUPS[setup]());
process.exit(0);
