// Builds the playground: one HTML page that holds the package, and so works offline and from a file.
//
//     node build.mjs PACKAGE_FOLDER PAGE [PRESET.json]
//
// A preset, {"text", "dialect", "tools"}, is shown when the page is opened without a permalink.
import { readFileSync, writeFileSync } from "node:fs";

const [folder, target, preset] = process.argv.slice(2);
if (!target) throw new Error("usage: node build.mjs PACKAGE_FOLDER PAGE [PRESET.json]");
const here = new URL("./", import.meta.url);
// The page needs everything, so it has the full module alone.
const wasm = readFileSync(`${folder}/sabir_full_bg.wasm`).toString("base64");
// Both files become modules with addresses of their own inside the page's module: their names must not meet.
const glue = readFileSync(`${folder}/sabir_full.js`, "utf8").replaceAll("import.meta.url", '"about:blank"');
const api = readFileSync(`${folder}/api.js`, "utf8");
const names = [...glue.matchAll(/^export (?:class|function) (\w+)/gm)].map((match) => match[1]);
const exported = [...glue.matchAll(/^export \{([^}]*)\}/gm)].flatMap((match) => match[1].split(","));
const renamed = exported.map((item) => item.trim().split(" as ")).filter(([name]) => name);
const members = [...names, ...renamed.map(([name, as]) => `${JSON.stringify(as ?? name)}: ${name}`)];
const withoutExports = (text) => text.replace(/^export \{[^}]*\};?$/gm, "").replace(/^export (default )?/gm, "");
const module = `
const raw = (() => {
${withoutExports(glue)}
return { ${members.join(", ")} };
})();
const bytes = Uint8Array.from(atob("${wasm}"), (character) => character.charCodeAt(0));
raw.initSync({ module: await WebAssembly.compile(bytes) });
const modules = { core: raw, full: raw };
${withoutExports(api.replace(/^import .*$/m, ""))}
`;
const escape = (text) => text.replaceAll("</script", "<\\/script").replaceAll("<!--", "<\\!--");
const state = preset ? JSON.stringify(JSON.parse(readFileSync(preset, "utf8"))).replaceAll("<", "\\u003c") : "{}";
const page = readFileSync(new URL("page.html", here), "utf8")
  .replace("/*MODULE*/", () => escape(module))
  .replace("/*PRESET*/{}", () => `/*PRESET*/${state}`);
writeFileSync(target, page);
