import type { DeltaOptions } from "./index.js";

/**
 * A middleware for `wrapLanguageModel` of the AI SDK, which turns calls that a model wrote as text into tool calls. All other text stays
 * as it is. Where the tools cannot be used, or what they need cannot be loaded, answers stay as they are, and a warning on the console says so once.
 */
export function sabirMiddleware(options?: Omit<DeltaOptions, "tools" | "whole_calls">): {
  readonly specificationVersion: "v4";
  wrapGenerate: (options: any) => Promise<any>;
  wrapStream: (options: any) => Promise<any>;
};
