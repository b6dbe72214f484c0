#!/usr/bin/env python3
"""Puts built programs into packages: archives, .deb, npm, wheels, the files of a container, SBOMs and checksums.

    release/package.py --out FOLDER [--extras FOLDER] TRIPLE=PROGRAM...

`release/build` calls it. Uses nothing but Python and `cargo metadata`, so that every byte is decided here: the same programs and the
same SOURCE_DATE_EPOCH give the same packages.
"""

import argparse
import base64
import gzip
import hashlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tomllib
import uuid
import zipfile
from datetime import datetime, timezone

ROOT = pathlib.Path(__file__).resolve().parent.parent
DESCRIPTION = "A terminal coding agent that understands every way a language model asks for a tool."
# The names of a target in the packages of others.
TARGETS = {
    "x86_64-unknown-linux-musl": {
        "deb": "amd64",
        "node": "linux-x64",
        # Static: it needs no C library, so both kinds of systems can install it.
        "wheel": "manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64",
    },
    "aarch64-unknown-linux-musl": {
        "deb": "arm64",
        "node": "linux-arm64",
        "wheel": "manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64",
    },
    "aarch64-apple-darwin": {"node": "darwin-arm64", "wheel": "macosx_11_0_arm64"},
}


class Release:
    """What all packages share."""

    def __init__(self, out: pathlib.Path, extras: pathlib.Path | None, programs: dict[str, pathlib.Path]):
        manifest = tomllib.loads((ROOT / "Cargo.toml").read_text())
        self.version: str = manifest["workspace"]["package"]["version"]
        self.license: str = manifest["workspace"]["package"]["license"]
        self.epoch = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
        self.out = out
        self.extras = extras
        self.programs = {triple: path.read_bytes() for triple, path in programs.items()}

    def documents(self) -> dict[str, bytes]:
        names = ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"]
        return {name: (ROOT / name).read_bytes() for name in names}

    def extra_files(self, kind: str) -> dict[str, bytes]:
        """Returns the completions or the manual pages, by name; empty where the program writes none."""
        folder = self.extras / kind if self.extras else None
        if folder is None or not folder.is_dir():
            return {}
        return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def tar_bytes(files: dict[str, tuple[bytes, int]], epoch: int, prefix: str = "") -> bytes:
    """Writes an archive of files, each with its mode, and of the folders above them; everything belongs to root."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        folders = {str(parent) for name in files for parent in pathlib.PurePosixPath(name).parents if str(parent) != "."}
        for name in sorted(folders | files.keys()):
            entry = tarfile.TarInfo(prefix + name)
            entry.mtime = epoch
            entry.uname = entry.gname = "root"
            if name in files:
                content, entry.mode = files[name]
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
            else:
                entry.type = tarfile.DIRTYPE
                entry.mode = 0o755
                archive.addfile(entry)
    return buffer.getvalue()


def compress(data: bytes, epoch: int) -> bytes:
    buffer = io.BytesIO()
    # No name of a file in the header, and the time of the commit.
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=buffer, mtime=epoch) as stream:
        stream.write(data)
    return buffer.getvalue()


def write_archive(release: Release, triple: str) -> None:
    files = {name: (content, 0o644) for name, content in release.documents().items()}
    files["sabir"] = (release.programs[triple], 0o755)
    for kind in ("completions", "man"):
        files |= {f"{kind}/{name}": (content, 0o644) for name, content in release.extra_files(kind).items()}
    name = f"sabir-{release.version}-{triple}"
    data = compress(tar_bytes(files, release.epoch, f"{name}/"), release.epoch)
    (release.out / f"{name}.tar.gz").write_bytes(data)


def maintainer() -> str:
    """Returns the maintainer of the Debian package, from the variables that Debian's own tools read."""
    name = os.environ.get("DEBFULLNAME", "The authors of Sabir")
    return f"{name} <{os.environ.get('DEBEMAIL', 'root@localhost')}>"


def write_deb(release: Release, triple: str) -> None:
    """Writes a Debian package: an `ar` archive of the format's version, the control files and the data."""
    architecture = TARGETS[triple].get("deb")
    if architecture is None:
        return
    epoch = release.epoch
    copyright_text = (
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: sabir\n\n"
        "Files: *\nCopyright: the authors of Sabir\nLicense: MIT or Apache-2.0\n\n"
        "License: MIT\n"
        + "".join(f" {line}\n" if line.strip() else " .\n" for line in (ROOT / "LICENSE-MIT").read_text().splitlines())
        + "\nLicense: Apache-2.0\n On Debian systems, the text is in /usr/share/common-licenses/Apache-2.0.\n"
    )
    files = {
        "usr/bin/sabir": (release.programs[triple], 0o755),
        "usr/share/doc/sabir/copyright": (copyright_text.encode(), 0o644),
        "usr/share/doc/sabir/changelog.gz": (compress((ROOT / "CHANGELOG.md").read_bytes(), epoch), 0o644),
        "usr/share/doc/sabir/README.md": ((ROOT / "README.md").read_bytes(), 0o644),
    }
    places = {
        "sabir.bash": "usr/share/bash-completion/completions/sabir",
        "_sabir": "usr/share/zsh/vendor-completions/_sabir",
        "sabir.fish": "usr/share/fish/vendor_completions.d/sabir.fish",
    }
    for name, content in release.extra_files("completions").items():
        if name in places:
            files[places[name]] = (content, 0o644)
    for name, content in release.extra_files("man").items():
        files[f"usr/share/man/man1/{name}.gz"] = (compress(content, epoch), 0o644)
    size = sum(len(content) for content, _ in files.values()) // 1024 + 1
    control = (
        f"Package: sabir\nVersion: {release.version}\nArchitecture: {architecture}\n"
        f"Maintainer: {maintainer()}\n"
        f"Installed-Size: {size}\nSection: devel\nPriority: optional\n"
        # The program is static. Providers are reached with the certificates of the system.
        "Recommends: ca-certificates, git\n"
        f"Description: {DESCRIPTION.rstrip('.')}\n"
        " Sabir reads the tool calls of language models in some thirty formats while they\n"
        " stream, refuses to run broken ones, and carries a task to an honest end. It is a\n"
        " coding agent, a gateway between clients and models, and a toolbox.\n"
    )
    sums = "".join(f"{hashlib.md5(content).hexdigest()}  {name}\n" for name, (content, _) in sorted(files.items()))
    members = [
        ("debian-binary", b"2.0\n"),
        ("control.tar.gz", compress(tar_bytes({"control": (control.encode(), 0o644), "md5sums": (sums.encode(), 0o644)}, epoch, "./"), epoch)),
        ("data.tar.gz", compress(tar_bytes(files, epoch, "./"), epoch)),
    ]
    data = b"!<arch>\n"
    for name, content in members:
        data += f"{name:<16}{epoch:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode()
        data += content + b"\n" * (len(content) % 2)
    (release.out / f"sabir_{release.version}_{architecture}.deb").write_bytes(data)


def write_npm(release: Release) -> None:
    """Writes one npm package with the programs of all targets and a script that starts the right one."""
    machines = [TARGETS[triple]["node"] for triple in release.programs]
    manifest = {
        "name": "sabir",
        "version": release.version,
        "description": DESCRIPTION,
        "license": f"({release.license})",
        "bin": {"sabir": "bin/sabir.js"},
        "os": sorted({machine.split("-")[0] for machine in machines}),
        "cpu": sorted({machine.split("-")[1] for machine in machines}),
        "engines": {"node": ">=18"},
    }
    files = {name: (content, 0o644) for name, content in release.documents().items()}
    files["package.json"] = (json.dumps(manifest, indent=2).encode() + b"\n", 0o644)
    files["bin/sabir.js"] = ((ROOT / "release/npm/sabir.js").read_bytes(), 0o755)
    for triple, program in release.programs.items():
        files[f"programs/{TARGETS[triple]['node']}/sabir"] = (program, 0o755)
    # npm takes the files from a folder of this name.
    data = compress(tar_bytes(files, release.epoch, "package/"), release.epoch)
    (release.out / f"sabir-{release.version}-npm.tgz").write_bytes(data)


def write_wheel(release: Release, triple: str) -> None:
    """Writes a wheel whose only script is the program, as pip puts it into `bin`."""
    tags = TARGETS[triple]["wheel"]
    version = release.version
    information = f"sabir-{version}.dist-info"
    every_tag = "".join(f"Tag: py3-none-{tag}\n" for tag in tags.split("."))
    metadata = (
        f"Metadata-Version: 2.4\nName: sabir\nVersion: {version}\nSummary: {DESCRIPTION}\n"
        f"License-Expression: {release.license}\nLicense-File: LICENSE-APACHE\nLicense-File: LICENSE-MIT\n"
        "Requires-Python: >=3.8\nDescription-Content-Type: text/markdown\n\n"
    ).encode() + (ROOT / "README.md").read_bytes()
    files = {
        "sabir/__init__.py": ((ROOT / "release/python/__init__.py").read_bytes(), 0o644),
        "sabir/__main__.py": ((ROOT / "release/python/__main__.py").read_bytes(), 0o644),
        f"sabir-{version}.data/scripts/sabir": (release.programs[triple], 0o755),
        f"{information}/METADATA": (metadata, 0o644),
        f"{information}/WHEEL": (
            f"Wheel-Version: 1.0\nGenerator: sabir-release\nRoot-Is-Purelib: false\n{every_tag}".encode(),
            0o644,
        ),
    }
    for name in ("LICENSE-APACHE", "LICENSE-MIT"):
        files[f"{information}/licenses/{name}"] = ((ROOT / name).read_bytes(), 0o644)
    record = ""
    for name, (content, _) in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(content)}\n"
    record += f"{information}/RECORD,,\n"
    files[f"{information}/RECORD"] = (record.encode(), 0o644)
    # A zip file knows no time before 1980.
    moment = datetime.fromtimestamp(max(release.epoch, 315_532_800), timezone.utc)
    with zipfile.ZipFile(release.out / f"sabir-{version}-py3-none-{tags}.whl", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, (content, mode) in files.items():
            entry = zipfile.ZipInfo(name, moment.timetuple()[:6])
            entry.external_attr = (0o100000 | mode) << 16
            entry.create_system = 3
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)


def write_container(release: Release) -> None:
    """Writes the folder that a container is built from."""
    folder = release.out / "container"
    folder.mkdir()
    (folder / "Containerfile").write_bytes((ROOT / "release/container/Containerfile").read_bytes())
    for name in ("LICENSE-APACHE", "LICENSE-MIT"):
        (folder / name).write_bytes((ROOT / name).read_bytes())
    for triple, program in release.programs.items():
        if architecture := TARGETS[triple].get("deb"):
            (folder / architecture).mkdir()
            path = folder / architecture / "sabir"
            path.write_bytes(program)
            path.chmod(0o755)


def write_sbom(release: Release, triple: str) -> None:
    """Writes the list of packages that the program consists of, as CycloneDX 1.6: those that its build for this target uses."""
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", triple]
    environment = {name: value for name, value in os.environ.items() if name != "CARGO_ENCODED_RUSTFLAGS"}
    metadata = json.loads(subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE).stdout)
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    checksums = {(package["name"], package["version"]): package.get("checksum") for package in lock["package"]}

    def used_by(identity: str) -> list[str]:
        """Returns what a package is built from and with, without what only its tests use."""
        return [
            dependency["pkg"]
            for dependency in nodes[identity]["deps"]
            if any(kind["kind"] != "dev" for kind in dependency["dep_kinds"])
        ]

    def reference(identity: str) -> str:
        package = packages[identity]
        return f"pkg:cargo/{package['name']}@{package['version']}"

    def component(identity: str) -> dict:
        package = packages[identity]
        entry = {
            "type": "library",
            "bom-ref": reference(identity),
            "name": package["name"],
            "version": package["version"],
            "scope": "required",
        }
        if package["license"]:
            # Older packages write the choice with a slash.
            entry["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
        if checksum := checksums.get((package["name"], package["version"])):
            entry["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        entry["purl"] = reference(identity)
        return entry

    root = next(identity for identity, package in packages.items() if package["name"] == "sabir" and package["source"] is None)
    reached = [root]
    for identity in reached:
        reached.extend(used for used in used_by(identity) if used not in reached)
    reached[1:] = sorted(reached[1:], key=reference)
    program = component(root) | {
        "type": "application",
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(release.programs[triple]).hexdigest()}],
    }
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(release.epoch, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": program,
            "properties": [{"name": "target", "value": triple}],
        },
        "components": [component(identity) for identity in reached[1:]],
        "dependencies": [
            {"ref": reference(identity), "dependsOn": sorted({reference(used) for used in used_by(identity)})} for identity in reached
        ],
    }
    # Made from the content, so that the same program has the same number.
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(bom, sort_keys=True))
    bom = {"$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json", "serialNumber": f"urn:uuid:{number}"} | bom
    path = release.out / f"sabir-{release.version}-{triple}.cdx.json"
    path.write_text(json.dumps(bom, indent=2) + "\n")


def write_checksums(release: Release) -> None:
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(release.out.iterdir()) if path.is_file()
    ]
    (release.out / "SHA256SUMS").write_text("".join(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--extras", type=pathlib.Path, help="a folder with `completions` and `man`")
    parser.add_argument("programs", nargs="+", metavar="TRIPLE=PROGRAM")
    arguments = parser.parse_args()
    programs = {}
    for pair in arguments.programs:
        triple, _, path = pair.partition("=")
        if triple not in TARGETS:
            sys.exit(f"release/package.py: no packages are known for `{triple}`; known are {', '.join(TARGETS)}")
        programs[triple] = pathlib.Path(path)
    arguments.out.mkdir(parents=True, exist_ok=True)
    if any(arguments.out.iterdir()):
        sys.exit(f"release/package.py: `{arguments.out}` is not empty")
    release = Release(arguments.out, arguments.extras, programs)
    for triple in programs:
        write_archive(release, triple)
        write_deb(release, triple)
        write_wheel(release, triple)
        write_sbom(release, triple)
    write_npm(release)
    write_container(release)
    write_checksums(release)
    for path in sorted(release.out.iterdir()):
        print(f"{path.stat().st_size // 1024:>8} KiB  {path.name}" if path.is_file() else f"    folder    {path.name}")


main()
