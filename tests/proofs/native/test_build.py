"""The lock of the crates has every checksum and no address: it is that of the registry which cargo uses."""

from __future__ import annotations

import tomllib

from proofs.native.build import CRATES, with_source

SOURCE = "registry+sparse"


def test_each_crate_of_a_registry_gets_its_source():
    text = CRATES.read_text()
    packages = tomllib.loads(with_source(text, f'source = "{SOURCE}"'))["package"]
    assert "://" not in text
    assert len(packages) > 5
    assert all(("checksum" in one) == (one.get("source") == SOURCE) for one in packages)
    assert sum("checksum" not in one for one in packages) == 2  # the two of efo
