"""The crates that efo-native is built of: their licences, as Cargo's metadata states them."""

from __future__ import annotations

import json
import shutil
import subprocess
import tomllib
from collections.abc import Collection
from typing import Any

from proofs.audit.licences import judge
from proofs.audit.locks import Pin
from proofs.native.build import CRATES, MANIFEST, ensure_lock
from proofs.paths import ROOT


def allowed_licences() -> list[str]:
    """Return the licences that a crate may have: the list of cargo-deny."""
    allowed: list[str] = tomllib.loads(MANIFEST.with_name("deny.toml").read_text())["licenses"]["allow"]
    return allowed


def judge_crates(allowed: Collection[str]) -> dict[str, Any]:
    """Return the verdict on the locked crates, those that only compile it too. Without cargo, none is looked at.

    `make lint` has the same from cargo-deny, where that is installed: this needs cargo alone.
    """
    cargo = shutil.which("cargo")
    if cargo is None:
        locked = tomllib.loads(CRATES.read_text())["package"]
        return judge((Pin(package["name"], package["version"]) for package in locked), {}, allowed)
    ensure_lock(cargo)
    command = [cargo, "metadata", "--format-version", "1", "--locked", "--manifest-path", "native/Cargo.toml"]
    reported = subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True)
    packages = json.loads(reported.stdout)["packages"]
    found = {(package["name"], package["version"]): package["license"] for package in packages}
    return judge((Pin(name, version) for name, version in found), found, allowed)
