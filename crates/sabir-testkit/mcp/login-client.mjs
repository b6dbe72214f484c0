// Is the client of the conformance suite's scenarios of logins: calls a tool of the server with `sabir mcp call`, and does what `sabir`
// says that the user should do, as a user with a browser would.
//
//   SABIR=path/to/sabir node login-client.mjs URL
import { spawn } from "node:child_process";
import { appendFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const url = process.argv.at(-1);
const context = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? "{}");
const scenario = process.env.MCP_CONFORMANCE_SCENARIO ?? "";
const home = mkdtempSync(join(tmpdir(), "sabir-login-"));
process.on("exit", () => rmSync(home, { recursive: true, force: true }));

const oauth = { client_id: context.client_id, client_secret: context.client_secret };
if (scenario.startsWith("auth/client-credentials")) oauth.grant = "client_credentials";
else if (!context.client_id) oauth.client_metadata_url = "https://conformance-test.local/client-metadata.json";
const lines = Object.entries(oauth).filter(([, value]) => value !== undefined);
const table = lines.map(([key, value]) => `oauth.${key} = ${JSON.stringify(value)}\n`).join("");
mkdirSync(join(home, ".config/sabir"), { recursive: true });
writeFileSync(
  join(home, ".config/sabir/config.toml"),
  `[mcp.servers.tested]\nurl = ${JSON.stringify(url)}\n${table}`,
  { mode: 0o600 },
);

// Runs `sabir` and gives each line of its standard output to `onLine`.
function run(words, onLine) {
  const env = { ...process.env, HOME: home, XDG_CONFIG_HOME: join(home, ".config"), XDG_DATA_HOME: join(home, ".local") };
  const child = spawn(process.env.SABIR, words, { env, stdio: ["ignore", "pipe", "pipe"] });
  let errors = "";
  let partial = "";
  child.stderr.on("data", (data) => (errors += data));
  child.stdout.on("data", (data) => {
    const all = (partial + data).split("\n");
    partial = all.pop();
    all.forEach((line) => onLine?.(line));
  });
  return new Promise((resolve) => child.on("close", (code) => resolve({ code, errors })));
}

// Adds the line that an error names, as the user who has registered the client.
function addIssuer(errors) {
  const line = /add `issuer = ("[^"]*")`/.exec(errors);
  if (line) appendFileSync(join(home, ".config/sabir/config.toml"), `oauth.issuer = ${line[1]}\n`);
  return line !== null;
}

// The browser: follows the redirect of the login page to this machine.
async function browse(page) {
  const answer = await fetch(page, { redirect: "manual" });
  const target = answer.headers.get("location");
  if (target) await fetch(target);
}

for (let round = 0; round < 4; round += 1) {
  const call = await run(["mcp", "call", "tested", "test-tool"]);
  process.stderr.write(call.errors);
  if (call.code === 0) process.exit(0);
  if (addIssuer(call.errors)) continue;
  if (!call.errors.includes("sabir mcp login")) process.exit(1);
  const login = await run(["mcp", "login", "tested", "--no-browser", "--timeout", "20"], (line) => {
    if (line.startsWith("http")) browse(line).catch((error) => process.stderr.write(`${error}\n`));
  });
  process.stderr.write(login.errors);
  if (login.code !== 0 && !addIssuer(login.errors)) process.exit(1);
}
process.exit(1);
