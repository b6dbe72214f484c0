// The entry for browsers and bundlers: fetches the small module from beside this file before anything else runs, and the full one when
// `load` is called. The glue of both is imported here, because engines remember an import that failed, and `load` may be tried again.
import { modules } from "./modules.js";
import * as full from "./sabir_full.js";

await modules.core.default({ module_or_path: new URL("./sabir_wasm_bg.wasm", import.meta.url) });
modules.loadLater = async () => {
  await full.default({ module_or_path: new URL("./sabir_full_bg.wasm", import.meta.url) });
  return full;
};

export * from "./api.js";
