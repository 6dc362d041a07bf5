"""Writes the bill of materials of an image, from its files: CycloneDX 1.6, on stdout. The Dockerfile runs it.

It lists CPython, the packages of Python and Debian, and jars. What a package carries inside, such as librdkafka in
confluent-kafka, has no entry of its own. It needs the standard library alone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import re
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path
from typing import Any
from urllib.parse import quote

Component = dict[str, Any]


def component(kind: str, group: str, name: str, version: str, qualifiers: str = "") -> Component:
    """Return a component with its package URL (purl). `kind`: the type of the purl. `group`: its namespace, or ""."""
    path = "/".join(quote(part, safe="") for part in (kind, *group.split("/"), name) if part)
    purl = f"pkg:{path}@{quote(version, safe='')}{qualifiers}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def packages_of_python(prefix: Path) -> Iterator[Component]:
    """Yield the distributions that are installed in an environment."""
    for one in distributions(path=[str(path) for path in prefix.glob("lib/python3*/site-packages")]):
        yield component("pypi", "", re.sub(r"[-_.]+", "-", one.metadata["Name"]).lower(), one.version)


def packages_of_debian(status: str) -> Iterator[Component]:
    """Yield the packages that are installed. `status`: the text of dpkg's status file."""
    for paragraph in status.split("\n\n"):
        fields = dict(re.findall(r"^([A-Z][\w-]*): (.*)$", paragraph, re.MULTILINE))
        if fields.get("Status", "").endswith(" installed"):
            architecture = f"?arch={fields['Architecture']}"
            yield component("deb", "debian", fields["Package"], fields["Version"], architecture)


def jars(directory: Path) -> Iterator[Component]:
    """Yield the jars below a directory, with their checksums. A jar that does not name itself has its file's name."""
    for path in sorted(directory.rglob("*.jar")):
        with zipfile.ZipFile(path) as jar:
            names = [name for name in jar.namelist() if re.fullmatch(r"META-INF/maven/.+/pom\.properties", name)]
            text = jar.read(names[0]).decode() if len(names) == 1 else ""
        own = dict(re.findall(r"^(\w+)=(.*?)\s*$", text, re.MULTILINE))
        if {"groupId", "artifactId", "version"} <= own.keys():
            found = component("maven", own["groupId"], own["artifactId"], own["version"])
        else:
            name, _, version = path.stem.rpartition("-")
            found = component("generic", "", name or path.stem, version)
        yield found | {"hashes": [{"alg": "SHA-256", "content": hashlib.sha256(path.read_bytes()).hexdigest()}]}


def bill(components: list[Component]) -> dict[str, Any]:
    """Return the document: each component once, in order. The image has the version of efo in it."""
    unique = {one["bom-ref"]: one for one in components}
    version = next((one["version"] for one in components if one["name"] == "efo"), "unknown")
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "container", "bom-ref": "efo", "name": "efo", "version": version}},
        "components": [unique[name] for name in sorted(unique)],
    }


def main() -> None:
    """Write the bill of this file system."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("prefix", type=Path, help="the environment, such as /opt/efo")
    parser.add_argument("--jars", type=Path, help="a further directory with jars")
    options = parser.parse_args()
    status = Path("/var/lib/dpkg/status")
    found = [
        component("generic", "", "python", platform.python_version()),
        *packages_of_python(options.prefix),
        *packages_of_debian(status.read_text() if status.exists() else ""),
        *jars(options.prefix),
        *(jars(options.jars) if options.jars else ()),
    ]
    json.dump(bill(found), sys.stdout, indent=1)


if __name__ == "__main__":
    main()
