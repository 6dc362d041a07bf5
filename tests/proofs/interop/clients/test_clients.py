from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from proofs.interop.clients.clients import CLIENTS, HERE, Client

PROJECT = "{http://maven.apache.org/POM/4.0.0}"


def test_every_client_has_a_source_directory_and_a_unique_name():
    assert len({client.name for client in CLIENTS}) == len(CLIENTS)
    for client in CLIENTS:
        assert (HERE / client.source).is_dir()


def test_a_missing_program_is_named():
    client = Client("x", "go", ("sh", "no-such-compiler"), (), ())
    assert client.missing() == "not found: no-such-compiler"
    assert Client("x", "go", ("sh",), (), ()).missing() is None


def test_every_version_is_pinned():
    pom = ET.parse(HERE / "java" / "pom.xml").getroot()  # noqa: S314 - a file of this repository
    versions = [pom.findtext(f"{PROJECT}version") for pom in pom.iter() if pom.tag.endswith(("dependency", "plugin"))]
    assert versions
    assert all(re.fullmatch(r"\d+(\.\d+)+", version or "") for version in versions), versions
    package = json.loads((HERE / "javascript" / "package.json").read_text())
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in package["dependencies"].values())
    assert (HERE / "go" / "go.sum").stat().st_size


@pytest.mark.parametrize("lock", ["javascript/package-lock.json", "go/go.sum", "java/pom.xml", "go/go.mod"])
def test_lock_files_name_no_registry(lock):
    text = Path(HERE, lock).read_text()
    assert '"resolved"' not in text
    assert set(re.findall(r"https?://([^/\s\"]+)", text)) <= {"maven.apache.org", "www.w3.org", "opencollective.com"}
