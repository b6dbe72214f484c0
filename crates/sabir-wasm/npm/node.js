// The entry for Node, Bun and Deno: loads the small module from the file beside this one, and the full one when it is needed.
import { readFileSync } from "node:fs";
import { modules } from "./modules.js";
import * as full from "./sabir_full.js";

const read = (name) => readFileSync(new URL(name, import.meta.url));
modules.core.initSync({ module: read("./sabir_wasm_bg.wasm") });
modules.loadNow = () => {
  full.initSync({ module: read("./sabir_full_bg.wasm") });
  return full;
};

export * from "./api.js";
