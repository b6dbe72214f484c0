import type { DeltaOptions } from "./index.js";

/** A middleware for `wrapLanguageModel` of the AI SDK, which turns calls that a model wrote as text into tool calls. */
export function sabirMiddleware(options?: Omit<DeltaOptions, "tools" | "whole_calls">): {
  readonly specificationVersion: "v4";
  wrapGenerate: (options: any) => Promise<any>;
  wrapStream: (options: any) => Promise<any>;
};
