// The entry for browsers and bundlers: fetches the module from beside this file before anything else runs.
import init from "./sabir_wasm.js";

await init({ module_or_path: new URL("./sabir_wasm_bg.wasm", import.meta.url) });

export * from "./api.js";
