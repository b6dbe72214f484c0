// The WebAssembly modules of the package: a small one, which the entry loads, and a full one, which is loaded when it is needed.
import * as core from "./sabir_wasm.js";

/**
 * `full` is null until it is loaded. An entry sets one of the others: `loadNow` returns the full module at once, `loadLater` a promise of it.
 */
export const modules = { core, full: null, loadNow: null, loadLater: null };
