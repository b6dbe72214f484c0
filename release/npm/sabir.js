#!/usr/bin/env node
// Starts the program for this machine, which is in the folder `programs` of this package, and ends as it ends.
"use strict";

const { spawn } = require("node:child_process");
const { existsSync } = require("node:fs");
const { constants } = require("node:os");
const { join } = require("node:path");

const machine = `${process.platform}-${process.arch}`;
const program = join(__dirname, "..", "programs", machine, "sabir");
if (!existsSync(program)) {
  const advice =
    process.platform === "win32"
      ? "On Windows, install it in WSL."
      : "Build it from source: cargo install --path crates/sabir";
  console.error(`sabir: this package has no program for ${machine}. ${advice}`);
  process.exit(1);
}

const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
child.on("error", (error) => {
  console.error(`sabir: ${program} does not start: ${error.message}`);
  process.exit(1);
});
// A terminal sends these to the program as well, which decides what they mean.
for (const signal of ["SIGINT", "SIGQUIT", "SIGWINCH"]) {
  process.on(signal, () => {});
}
// These are sent to this process alone.
for (const signal of ["SIGTERM", "SIGHUP"]) {
  process.on(signal, () => child.kill(signal));
}
child.on("exit", (code, signal) => {
  process.exit(signal === null ? code : 128 + constants.signals[signal]);
});
