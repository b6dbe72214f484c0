// Compiled, not run: uses of the package that its types must accept, and one that they must refuse.
import { OpenAIDeltas, Reader, check, decode, detect, parse, read, render, toOpenAIDeltas, type Event } from "sabir";
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
// @ts-expect-error a dialect is needed to write
render([], {});
