// The entry for Node, Bun and Deno: loads the module from the file beside this one.
import { readFileSync } from "node:fs";
import { initSync } from "./sabir_wasm.js";

initSync({ module: readFileSync(new URL("./sabir_wasm_bg.wasm", import.meta.url)) });

export * from "./api.js";
