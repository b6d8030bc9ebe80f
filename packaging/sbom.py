#!/usr/bin/env python3
"""Prints the bill of materials of the program for a target, such as x86_64-unknown-linux-gnu: SPDX 2.3, as JSON.

    packaging/sbom.py TARGET

It has every crate that is linked, with its licence and its checksum from Cargo.lock, and llama.cpp, which a crate
carries. The same sources give the same bytes: the time is SOURCE_DATE_EPOCH, and the namespace a hash of the contents.
"""

import datetime
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).parents[1]
LLAMA = "llama-cpp-sys-2"  # the crate that carries llama.cpp


def main() -> None:
    command = ["cargo", "metadata", "--locked", "--format-version=1", f"--filter-platform={sys.argv[1]}"]
    metadata = json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)
    crates = {crate["id"]: crate for crate in metadata["packages"]}
    links = {node["id"]: linked(node) for node in metadata["resolve"]["nodes"]}
    [root] = [crate["id"] for crate in crates.values() if crate["name"] == "corelane"]
    programs = [crate["id"] for crate in crates.values() if crate["name"] in ("corelane", "corelane-bench")]
    reached, left = set(programs), list(programs)
    while left:
        for crate in links[left.pop()]:
            if crate not in reached:
                reached.add(crate)
                left.append(crate)
    used = sorted((crates[crate] for crate in reached), key=lambda crate: (crate["name"], crate["version"]))
    packages = [package(crate, checksums()) for crate in used]
    relations = [
        relation(reference(crates[crate]), "DEPENDS_ON", reference(crates[other]))
        for crate in sorted(reached)
        for other in sorted(links[crate])
    ]
    [carrier] = [crate for crate in used if crate["name"] == LLAMA]
    packages.append(llama(carrier))
    relations.append(relation(reference(carrier), "CONTAINS", "SPDXRef-llama.cpp"))
    relations += [relation("SPDXRef-DOCUMENT", "DESCRIBES", reference(crates[program])) for program in programs]
    contents = {"packages": packages, "relationships": relations}
    digest = hashlib.sha256(json.dumps(contents).encode()).hexdigest()
    created = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.UTC)
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"corelane-{crates[root]['version']}",
        "documentNamespace": f"https://spdx.org/spdxdocs/corelane-{digest}",
        "creationInfo": {"created": f"{created:%Y-%m-%dT%H:%M:%SZ}", "creators": ["Tool: corelane-sbom"]},
    }
    print(json.dumps(document | contents, indent=1))


def linked(node: dict) -> list[str]:
    """The crates that a crate is linked with: not those that only its tests or its build need."""
    normal = [dependency for dependency in node["deps"] if any(kind["kind"] is None for kind in dependency["dep_kinds"])]
    return [dependency["pkg"] for dependency in normal]


def checksums() -> dict[tuple[str, str], str]:
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    return {(crate["name"], crate["version"]): crate.get("checksum") for crate in lock["package"]}


def reference(crate: dict) -> str:
    return f"SPDXRef-{crate['name']}-{crate['version']}".replace("_", "-").replace("+", "-")


def package(crate: dict, known: dict) -> dict:
    name, version = crate["name"], crate["version"]
    # Some crates write "/" for OR, and one MPL-2.0+, which SPDX has no longer.
    licence = (crate["license"] or "NOASSERTION").replace("/", " OR ").replace("MPL-2.0+", "MPL-2.0")
    found = {
        "SPDXID": reference(crate),
        "name": name,
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseDeclared": licence,
        "licenseConcluded": licence,
        "copyrightText": "NOASSERTION",
        "externalRefs": [
            {
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": f"pkg:cargo/{name}@{version}",
            }
        ],
    }
    if checksum := known.get((name, version)):
        found["checksums"] = [{"algorithm": "SHA256", "checksumValue": checksum}]
    return found


def llama(carrier: dict) -> dict:
    return {
        "SPDXID": "SPDXRef-llama.cpp",
        "name": "llama.cpp",
        "versionInfo": f"as in {carrier['name']} {carrier['version']}",
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseDeclared": "MIT",
        "licenseConcluded": "MIT",
        "copyrightText": "NOASSERTION",
    }


def relation(one: str, kind: str, other: str) -> dict:
    return {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}


if __name__ == "__main__":
    main()
