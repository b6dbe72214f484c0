// Writes the CommonJS entry of the npm package, for `require("sabir")` where Node cannot require ES modules (before 22.12).
//
//     node commonjs.mjs PACKAGE_FOLDER
//
// It holds the glue of wasm-bindgen and the interface, which are ES modules, as functions of one file.
import { copyFileSync, readFileSync, writeFileSync } from "node:fs";

const [folder] = process.argv.slice(2);
if (!folder) throw new Error("usage: node commonjs.mjs PACKAGE_FOLDER");

/** Returns a module as an expression whose value has what the module exports. */
function asExpression(source) {
  const declared = [...source.matchAll(/^export (?:async )?(?:class|function\*?|const) (\w+)/gm)].map((match) => match[1]);
  const listed = [...source.matchAll(/^export \{([^}]*)\}/gm)]
    .flatMap((match) => match[1].split(","))
    .map((item) => item.trim().split(" as "))
    .filter(([name]) => name)
    .map(([name, as]) => `${JSON.stringify(as ?? name)}: ${name}`);
  const body = source
    .replace(/^import .*$/gm, "")
    .replace(/^export \{[^}]*\};?$/gm, "")
    .replace(/^export (default )?/gm, "");
  return `(() => {\n${body}\nreturn { ${[...declared, ...listed].join(", ")} };\n})()`;
}

// The same types, for programs that TypeScript takes for CommonJS.
copyFileSync(`${folder}/index.d.ts`, `${folder}/index.d.cts`);
const glueOf = (name) => asExpression(readFileSync(`${folder}/${name}`, "utf8").replaceAll("import.meta.url", '"about:blank"'));
const api = readFileSync(`${folder}/api.js`, "utf8");
writeFileSync(
  `${folder}/node.cjs`,
  `// Written by crates/sabir-wasm/commonjs.mjs.
"use strict";
const { readFileSync } = require("node:fs");
const { join } = require("node:path");
const core = ${glueOf("sabir_wasm.js")};
core.initSync({ module: readFileSync(join(__dirname, "sabir_wasm_bg.wasm")) });
const modules = {
  core,
  full: null,
  loadNow() {
    const full = ${glueOf("sabir_full.js")};
    full.initSync({ module: readFileSync(join(__dirname, "sabir_full_bg.wasm")) });
    return full;
  },
};
module.exports = ${asExpression(api)};
`,
);
