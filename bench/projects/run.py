#!/usr/bin/env python3
"""Runs the usual commands of popular projects outside of the sandbox and at level 2, and prints a table in Markdown.

    bench/projects/run.py --sabir target/release/sabir --work FOLDER [NAME ...]

What a project needs is fetched first, outside, with the ordinary clients: sources from crates.io, PyPI and npm, Go modules and
Maven's plugins from Debian packages. A project whose sources cannot be had is left out, and named.

Each command is judged in a trusted repository (`sabir policy explain`: unasked or asks), run in a copy outside, and run in
another copy by `sabir sandbox --level 2`. It *works* if both end with the same exit code, and *breaks* if only the sandbox fails.
One that fails outside, too, says nothing and is shown as such.
"""

import argparse
import glob
import os
import pathlib
import shutil
import subprocess
import sys

CARGO = ["cargo fetch --offline", "cargo build --offline", "cargo test --offline", "cargo clippy --offline", "cargo fmt --check", "cargo tree --offline"]
PYTEST = ["pip install --no-index --find-links ../wheels -e .", "python -m pytest -q -x -p no:cacheprovider", "python -m ruff check .", "python -m compileall -q src", "pip list"]
GO = ["go build ./...", "go vet ./...", "go test ./...", "gofmt -l .", "go list ./..."]
GO_SOURCES = "/usr/share/gocode/src"
CRATES = ["cfg-if", "scopeguard", "fnv", "percent-encoding"]
SDISTS = ["click", "flask", "attrs", "itsdangerous", "packaging"]
# What their builds need, and their tests.
WHEELS = ["setuptools", "wheel", "flit_core<4", "hatchling", "hatch-vcs", "hatch-fancy-pypi-readme", "editables", "pytest", "ruff", "freezegun", "hypothesis", "cloudpickle", "flask[async]", "pretend", "tomli_w"]
MODULES = ["github.com/pkg/errors", "github.com/spf13/pflag", "github.com/google/uuid", "github.com/davecgh/go-spew"]

EXPRESS = {
    "package.json": '{"name":"x","version":"1.0.0","type":"commonjs","scripts":{"test":"mocha","start":"node server.js"},'
    '"dependencies":{"express":"^5"},"devDependencies":{"mocha":"^11","supertest":"^7"}}',
    "server.js": "const app = require('express')(); app.get('/', (_, r) => r.send('ok')); module.exports = app;",
    "test/a.js": "const r = require('supertest'); it('answers', () => r(require('../server')).get('/').expect(200, 'ok'));",
}
TYPESCRIPT = {
    "package.json": '{"name":"x","version":"1.0.0","scripts":{"build":"tsc","test":"node --test out"},"devDependencies":{"typescript":"^5","@types/node":"^22"}}',
    "tsconfig.json": '{"compilerOptions":{"outDir":"out","module":"commonjs","strict":true,"esModuleInterop":true,"skipLibCheck":true,"types":["node"]},"include":["src"]}',
    "src/a.test.ts": "import test from 'node:test'; import assert from 'node:assert'; test('adds', () => assert.equal(1 + 1, 2));",
}
VITE = {
    "package.json": '{"name":"x","version":"1.0.0","scripts":{"build":"vite build"},"devDependencies":{"vite":"^6"}}',
    "index.html": "<script type=module src=/main.js></script>",
    "main.js": "document.body.textContent = 'hello';",
}
ESLINT = {
    "package.json": '{"name":"x","version":"1.0.0","scripts":{"lint":"eslint .","test":"jest","format":"prettier --check ."},'
    '"devDependencies":{"eslint":"^9","prettier":"^3","jest":"^29"}}',
    "eslint.config.js": "module.exports = [{rules: {eqeqeq: 'error'}}];\n",
    "a.test.js": 'test("adds", () => expect(1 + 1).toBe(2));\n',
}
JARS = "/usr/share/java/junit4.jar:/usr/share/java/hamcrest-core.jar"
NPM = ["npm ci --offline --no-audit --no-fund", "npm ls"]
MAVEN_POM = """<project><modelVersion>4.0.0</modelVersion><groupId>x</groupId><artifactId>x</artifactId><version>1</version>
<properties><maven.compiler.source>11</maven.compiler.source><maven.compiler.target>11</maven.compiler.target>
<project.build.sourceEncoding>UTF-8</project.build.sourceEncoding></properties>%s</project>"""
JUNIT = "<dependencies><dependency><groupId>junit</groupId><artifactId>junit</artifactId><version>4.x</version><scope>test</scope></dependency></dependencies>"


class Project:
    def __init__(self, ecosystem, name, commands, make):
        self.ecosystem, self.name, self.commands, self.make = ecosystem, name, commands, make


def run(command, folder, env, seconds=600):
    """Runs a command, and returns its exit code and output."""
    try:
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired:
        return "timeout", ""


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def make_crate(name):
    def make(folder, _):
        found = sorted(glob.glob(os.path.expanduser(f"~/.cargo/registry/src/*/{name}-[0-9]*")))
        if not found:
            return f"{name} is not in Cargo's cache"
        shutil.copytree(found[-1], folder, dirs_exist_ok=True)
        (folder / "Cargo.lock").unlink(missing_ok=True)
        code, output = run(["cargo", "fetch"], folder, os.environ)
        return None if code == 0 else f"cargo cannot fetch: {output[-200:]}"

    return make


def make_sdist(name):
    def make(folder, work):
        store = work / "sdists"
        store.mkdir(exist_ok=True)
        if not list(store.glob(f"{name}-*.tar.gz")):
            run(["pip", "download", "-q", "--no-binary", ":all:", "--no-deps", name], store, os.environ)
        found = list(store.glob(f"{name}-*.tar.gz"))
        if not found:
            return f"{name} cannot be downloaded"
        run(["tar", "xzf", str(found[0]), "--no-same-owner", "--strip-components=1", "-C", str(folder)], folder, os.environ)
        wheels = folder.parent / "wheels"
        if not wheels.exists():
            run(["pip", "download", "-q", "-d", str(wheels), *WHEELS], folder, os.environ)
        # An environment of the project, as most have one; made where the project lies, since it holds its own path.
        return None

    return make


def make_npm(files):
    def make(folder, _):
        write(folder, files)
        run(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"], folder, os.environ)
        # Fills npm's cache with all that the lock file names.
        code, output = run(["npm", "ci", "--no-audit", "--no-fund", "--prefer-online"], folder, os.environ)
        shutil.rmtree(folder / "node_modules", ignore_errors=True)
        (folder / ".gitignore").write_text("node_modules\nout\ndist\n")
        return None if code == 0 else "npm cannot install: " + " ".join(output.split())[:200]

    return make


def make_module(path):
    def make(folder, _):
        source = pathlib.Path(GO_SOURCES) / path
        if not source.is_dir():
            return f"{path} is not installed (Debian has it as a package)"
        shutil.copytree(source, folder, dirs_exist_ok=True)
        if not (folder / "go.mod").exists():
            (folder / "go.mod").write_text(f"module {path}\n\ngo 1.18\n")
        return None

    return make


def make_maven(with_tests):
    def make(folder, work):
        if not os.path.isdir("/usr/share/maven-repo/org/apache/maven/plugins/maven-compiler-plugin"):
            return "Maven's plugins are not installed (Debian has them as packages)"
        # A home of its own, whose repository is filled, and in which Maven notes when it has looked for something.
        repository = work / "home/.m2/repository"
        if not repository.exists():
            repository.parent.mkdir(parents=True)
            # `shutil.copytree` takes relative links for dangling ones, and leaves the plugins out.
            run(["cp", "-rL", "/usr/share/maven-repo", str(repository)], folder, os.environ)
        files = {
            "pom.xml": MAVEN_POM % (JUNIT if with_tests else ""),
            "src/main/java/A.java": "public class A { public static int add(int a, int b) { return a + b; } }\n",
        }
        if with_tests:
            files["src/test/java/ATest.java"] = (
                "import org.junit.Test; public class ATest { @Test public void adds() { org.junit.Assert.assertEquals(2, A.add(1, 1)); } }\n"
            )
        write(folder, files)
        return None

    return make


def projects():
    found = [Project("Rust", name, CARGO, make_crate(name)) for name in CRATES]
    found += [
        Project("Node", "express, mocha", NPM + ["npm test"], make_npm(EXPRESS)),
        Project("Node", "TypeScript", NPM + ["npm run build", "npm test", "npx tsc --noEmit"], make_npm(TYPESCRIPT)),
        Project("Node", "vite", NPM + ["npm run build"], make_npm(VITE)),
        Project("Node", "jest, eslint, prettier", NPM + ["npm test", "npm run lint", "npm run format"], make_npm(ESLINT)),
    ]
    found += [Project("Python", name, PYTEST, make_sdist(name)) for name in SDISTS]
    found += [Project("Go", path, GO, make_module(path)) for path in MODULES]
    found += [
        Project("Java", "maven", ["mvn -q -o validate", "mvn -q -o package", "mvn -q -o install"], make_maven(False)),
        Project("Java", "maven, JUnit", ["mvn -q -o test", "mvn -q -o package"], make_maven(True)),
        Project("Java", "javac, jar", ["javac -d out src/main/java/A.java", "jar cf a.jar -C out ."], make_maven(False)),
        Project("Java", "JUnit", [f"javac -cp {JARS} -d out src/main/java/A.java src/test/java/ATest.java", f"java -cp {JARS}:out org.junit.runner.JUnitCore ATest"], make_maven(True)),
    ]
    return found


def prepare(project, folder, work):
    """Lays out a project in a folder. Returns a reason if that cannot be done."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return project.make(folder, work)


def finish(project, folder, env):
    if project.ecosystem == "Python":
        run([sys.executable, "-m", "venv", ".venv"], folder, os.environ)
        run([".venv/bin/pip", "install", "-q", "--no-index", "--find-links", "../wheels", *WHEELS], folder, os.environ)
    for command in (["git", "init", "-q"], ["git", "add", "-A"], ["git", "-c", "user.name=x", "-c", "user.email=x", "commit", "-qm", "x"]):
        run(command, folder, env)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sabir", required=True)
    parser.add_argument("--work", required=True, type=pathlib.Path)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    sabir = os.path.abspath(options.sabir)
    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    counts = {}
    print("| | project | command | judged | at level 2 |\n| --- | --- | --- | --- | --- |")
    for project in projects():
        if options.names and not any(name in project.name or name == project.ecosystem for name in options.names):
            continue
        slug = "".join(c if c.isalnum() else "-" for c in project.name)
        # The same path in both runs: environments of Python and Maven's settings hold it.
        folder = work / "projects" / slug
        results = []
        reason = None
        for place in ["outside", "inside"]:
            reason = prepare(project, folder, work)
            if reason:
                break
            env = dict(os.environ)
            if project.ecosystem == "Python":
                env["PATH"] = f"{folder}/.venv/bin:{env['PATH']}"
                env.pop("PYTHONPATH", None)
            if project.ecosystem == "Java":
                # Outside, Java takes the home from the list of users.
                env["HOME"] = str(work / "home")
                env["MAVEN_OPTS"] = f"-Dmaven.repo.local={work}/home/.m2/repository"
            finish(project, folder, env)
            run([sabir, "trust", "--yes"], folder, env)
            for at, line in enumerate(project.commands):
                if place == "outside":
                    judged = run([sabir, "policy", "explain", "--output", "json", "--", line], folder, env)[1]
                    unasked = '"verdict": "allow"' in judged.split('"segments"')[0] or '"verdict":"allow"' in judged.split('"segments"')[0]
                    results.append([line, "unasked" if unasked else "asks", run(["bash", "-c", line], folder, env), None])
                else:
                    results[at][3] = run([sabir, "sandbox", "--level", "2", "--", line], folder, env)
                    # What follows should not suffer from a command that broke before it.
                    if results[at][3][0] != 0 and results[at][2][0] == 0:
                        run(["bash", "-c", line], folder, env)
        if reason:
            print(f"| {project.ecosystem} | {project.name} | | left out | {reason} |", flush=True)
            continue
        for line, judged, outside, inside in results:
            if outside[0] != 0:
                state = f"fails outside, too ({outside[0]})" if inside[0] != 0 else "works, and fails outside"
            else:
                state = "works" if inside[0] == 0 else f"**breaks** ({inside[0]})"
            counts[(judged, state.split(" (")[0])] = counts.get((judged, state.split(" (")[0]), 0) + 1
            print(f"| {project.ecosystem} | {project.name} | `{line}` | {judged} | {state} |", flush=True)
            if options.verbose and "breaks" in state or options.verbose and "outside" in state:
                print("outside:", outside[1][-600:], "\ninside:", inside[1][-600:], file=sys.stderr, flush=True)
    print()
    for (judged, state), count in sorted(counts.items()):
        print(f"{count} {judged}, {state}")


if __name__ == "__main__":
    main()
