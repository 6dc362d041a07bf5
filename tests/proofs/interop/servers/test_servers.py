"""The downloads of `make third-party-servers` are pinned and hashed, and name no registry."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from proofs.interop.servers.servers import HERE, SERVERS
from proofs.paths import ROOT
from tests import makefile

LOCKS = [HERE / "kinesis-mock", HERE / "localstack-kinesis"]


def test_every_server_has_a_unique_name():
    assert [server.name for server in SERVERS] == ["kinesis-mock", "ministack", "localstack"]


def test_versions_match_the_lock_files():
    versions = {server.name: server.version for server in SERVERS}
    package = json.loads((HERE / "kinesis-mock" / "package.json").read_text())
    assert package["dependencies"] == {"kinesis-local": versions["kinesis-mock"]}
    for name, lock in (("ministack", "ministack"), ("localstack-core", "foreign-localstack")):
        pinned = re.search(rf"^{name}==(\S+)", (ROOT / "requirements" / f"{lock}.txt").read_text(), re.MULTILINE)
        assert pinned[1] == versions[name.removesuffix("-core")]


@pytest.mark.parametrize("directory", LOCKS, ids=lambda directory: directory.name)
def test_node_packages_are_locked_with_hashes_and_without_addresses(directory):
    text = (directory / "package-lock.json").read_text()
    lock = json.loads(text)
    assert lock["packages"][""]["dependencies"] == json.loads((directory / "package.json").read_text())["dependencies"]
    packages = [package for name, package in lock["packages"].items() if name]
    assert packages
    assert all(package["integrity"].startswith("sha512-") for package in packages)
    assert "://" not in text
    assert '"resolved"' not in text


def test_every_ready_file_is_a_target_of_the_makefile():
    rules = makefile.TEXT.replace("$(FOREIGN)", ".tools/foreign").replace("$(MINISTACK)", ".tools/ministack")
    for server in SERVERS:
        for path in server.ready_files:
            assert re.search(rf"^(\S+ )*{re.escape(str(path.relative_to(ROOT)))}[ :]", rules, re.MULTILINE), path


def test_a_missing_program_is_named():
    server = replace(SERVERS[0], needs=("sh", "no-such-program"), ready_files=(Path("/nowhere"),))
    assert server.missing() == "not found: no-such-program"
    assert not server.is_installed
    assert replace(server, needs=("sh",), ready_files=()).missing() is None
