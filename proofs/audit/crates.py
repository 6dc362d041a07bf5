"""The crates that efo-native is built of: their licences, as Cargo's metadata states them."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Collection
from typing import Any, Final

from proofs.audit.licences import judge
from proofs.audit.locks import Pin
from proofs.native.build import MANIFEST, write_lock
from proofs.paths import ROOT

LOCK: Final = MANIFEST.with_name("Cargo.lock")


def judge_crates(allowed: Collection[str]) -> dict[str, Any]:
    """Return the verdict on the locked crates, those that only compile it too. Without cargo, none is looked at."""
    cargo = shutil.which("cargo")
    if cargo is None:
        return {"not_checked": "there is no cargo"}
    if not LOCK.exists():
        write_lock(cargo)
    command = [cargo, "metadata", "--format-version", "1", "--locked", "--manifest-path", "native/Cargo.toml"]
    reported = subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True)
    packages = json.loads(reported.stdout)["packages"]
    found = {(package["name"], package["version"]): package["license"] for package in packages}
    return judge((Pin(name, version) for name, version in found), found, allowed)
