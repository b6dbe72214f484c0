// Compiled, not run: uses of the package that its types must accept, and one that they must refuse.
import { OpenAIDeltas, Reader, check, decode, detect, parse, read, render, toOpenAIDeltas, type CallError, type Event, type SabirError } from "sabir";
import { sabirMiddleware } from "sabir/ai-sdk";
import type { LanguageModelV4Middleware } from "@ai-sdk/provider";

const reader = new Reader({ dialect: "auto", tools: [], marks: true });
const events: readonly Event[] = reader.push(new Uint8Array());
for (const event of events) if (event.event === "arg_delta") console.log(event.index, event.text);
const reason: "stop" | "tool_calls" | "length" = new OpenAIDeltas({ whole_calls: true }).finish("limit").finish_reason;
for (const part of parse("").parts) if (part.type === "call") console.log(part.arguments, part.state);
console.log(check("", { strict: true }).ok, detect("").wire, decode("", { wire: "auto" }).failed, reason);
console.log(render([{ name: "look" }], { dialect: "cline" }));
async function all() {
  for await (const event of read(["a"])) console.log(event.event);
  for await (const choice of toOpenAIDeltas(["a"])) console.log(choice.delta.tool_calls?.[0]?.function.name);
}
const middleware: LanguageModelV4Middleware = sabirMiddleware({ dialect: "hermes" });
console.log(all, middleware);
async function ends(response: { body: ReadableStream<Uint8Array> | null }) {
  let reason: "limit" | undefined;
  for await (const choice of toOpenAIDeltas(response.body!, { reason: () => reason })) console.log(choice);
  for await (const event of read([new Uint8Array()], { reason: "limit" })) console.log(event);
  // @ts-expect-error not a reason
  read([], { reason: "length" });
}
declare const failure: CallError;
const failed: SabirError = failure;
using reused = new OpenAIDeltas();
console.log(ends, failed, reused.push(new Uint8Array()), parse(new Uint8Array()));
// @ts-expect-error neither text nor bytes
parse(5);
// @ts-expect-error a dialect is needed to write
render([], {});
