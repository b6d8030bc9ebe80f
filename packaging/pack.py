#!/usr/bin/env python3
"""Packs the programs of a folder that dist.sh has filled: a tar file, a wheel for pip and uv, a package for npm, and
install.sh with the checksums of all.

    packaging/pack.py target/dist

The wheel's tag names the oldest glibc with which the programs run (PEP 600); the versions of their symbols say it. The same
programs give the same bytes: the time of all files is SOURCE_DATE_EPOCH, or else that of the last commit.
"""

import base64
import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import time
import tomllib
import zipfile

ROOT = pathlib.Path(__file__).parents[1]
PROGRAMS = ["corelane", "corelane-bench"]
# An ELF file's machine, and its names for wheels and for npm.
MACHINES = {62: ("x86_64", "x64"), 183: ("aarch64", "arm64")}


def main() -> None:
    dist = pathlib.Path(sys.argv[1])
    package = tomllib.loads((ROOT / "Cargo.toml").read_text())["package"]
    name, version = package["name"], package["version"]
    when = commit_time()
    machine, npm_cpu = MACHINES[int.from_bytes((dist / "corelane").read_bytes()[18:20], "little")]
    glibc = max(oldest_glibc(dist / program) for program in PROGRAMS)
    files = {"bin/" + program: (dist / program).read_bytes() for program in PROGRAMS}

    stem = f"{name}-{version}-linux-{machine}"
    shared = files | {f"share/doc/{name}/{document}": (ROOT / document).read_bytes() for document in ("LICENSE", "README.md")}
    shared[f"share/doc/{name}/corelane.spdx.json"] = (dist / "corelane.spdx.json").read_bytes()
    for page in sorted((dist / "man").iterdir()):
        shared[f"share/man/man1/{page.name}"] = page.read_bytes()
    for program in PROGRAMS:
        completions = dist / "completions"
        shared[f"share/bash-completion/completions/{program}"] = (completions / f"{program}.bash").read_bytes()
        shared[f"share/zsh/site-functions/_{program}"] = (completions / f"_{program}").read_bytes()
        shared[f"share/fish/vendor_completions.d/{program}.fish"] = (completions / f"{program}.fish").read_bytes()
    made = [write_tar(dist / f"{stem}.tar.gz", stem, shared, when)]
    tag = f"py3-none-manylinux_2_{glibc}_{machine}"
    made.append(write_wheel(dist / f"{name}-{version}-{tag}.whl", package, tag, when))
    about = {
        "name": name,
        "version": version,
        "description": package["description"],
        "license": package["license"],
        "os": ["linux"],
        "cpu": [npm_cpu],
        "libc": ["glibc"],
        "bin": {program: f"bin/{program}" for program in PROGRAMS},
    }
    packed = files | {
        "package.json": (json.dumps(about, indent=2) + "\n").encode(),
        "README.md": (ROOT / "README.md").read_bytes(),
        "LICENSE": (ROOT / "LICENSE").read_bytes(),
    }
    made.append(write_tar(dist / f"{name}-{version}-npm-{machine}.tgz", "package", packed, when))
    made.append(pathlib.Path(shutil.copy(ROOT / "packaging" / "install.sh", dist)))
    sums = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in made)
    (dist / "PACKAGES.sha256").write_text(sums)
    for path in made:
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


def commit_time() -> int:
    git = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    return int(os.environ.get("SOURCE_DATE_EPOCH") or subprocess.run(git, check=True, capture_output=True).stdout)


def oldest_glibc(program: pathlib.Path) -> int:
    """The minor version of the oldest glibc 2 that has all symbols of a program."""
    symbols = subprocess.run(["readelf", "--version-info", "--wide", program], check=True, capture_output=True, text=True).stdout
    return max(int(minor) for minor in re.findall(r"GLIBC_2\.(\d+)", symbols))


def mode_of(path: str) -> int:
    return 0o755 if "/scripts/" in path or path.startswith("bin/") else 0o644


def write_tar(path: pathlib.Path, folder: str, files: dict[str, bytes], when: int) -> pathlib.Path:
    with gzip.GzipFile(path, "wb", mtime=when) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size, entry.mtime, entry.mode = len(data), when, mode_of(name)
            tar.addfile(entry, io.BytesIO(data))
    return path


def write_wheel(path: pathlib.Path, package: dict, tag: str, when: int) -> pathlib.Path:
    """A wheel whose scripts are the programs. (Binary distribution format of the Python Packaging User Guide.)"""
    name, version = package["name"], package["version"]
    info = f"{name}-{version}.dist-info"
    files = {f"{name}-{version}.data/scripts/{program}": (path.parent / program).read_bytes() for program in PROGRAMS}
    about = [
        "Metadata-Version: 2.1",
        f"Name: {name}",
        f"Version: {version}",
        f"Summary: {package['description']}",
        f"License: {package['license']}",
        "Requires-Python: >=3.7",
        "Description-Content-Type: text/markdown",
        "",
        (ROOT / "README.md").read_text(),
    ]
    files[f"{info}/METADATA"] = "\n".join(about).encode()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: corelane\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    files[f"{info}/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    record = [
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
        for name, data in files.items()
    ]
    files[f"{info}/RECORD"] = "".join([*record, f"{info}/RECORD,,\n"]).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, time.gmtime(when)[:6])
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100000 | mode_of(name)) << 16
            wheel.writestr(entry, data)
    return path


if __name__ == "__main__":
    main()
