"""`make lint` of efo-native: its format, clippy, and cargo-deny, as far as they are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import Final

from proofs.native.build import MANIFEST, ensure_lock, environment
from proofs.paths import ROOT

# Vulnerabilities (`check advisories`) need a database from the network, which continuous integration has.
TOOLS: Final = {
    "cargo-fmt": ["fmt", "--all", "--check"],
    "cargo-clippy": ["clippy", "--quiet", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"],
    "cargo-deny": ["deny", "--locked", "check", "licenses", "bans", "sources"],
}
"""The arguments of cargo, by the program that it needs for them."""


def plan(which: Callable[[str], str | None]) -> tuple[list[list[str]], list[str]]:
    """Return the commands to run, and the programs that are missing. `which`: where a program is."""
    cargo = which("cargo")
    if cargo is None:
        return [], ["cargo"]
    found = [name for name in TOOLS if which(name) is not None]
    commands = [[cargo, *_with_manifest(TOOLS[name])] for name in found]
    return commands, [name for name in TOOLS if name not in found]


def main() -> int:
    """Run them. Return the exit status: that of the first that fails; 0 also if nothing is installed."""
    commands, missing = plan(shutil.which)
    if missing:
        print(f"native/ is not checked by {', '.join(missing)}: not installed")
    if commands:
        ensure_lock(commands[0][0])
    for command in commands:
        if status := subprocess.run(command, check=False, cwd=ROOT, env=environment()).returncode:
            return status
    return os.EX_OK


def _with_manifest(arguments: list[str]) -> list[str]:
    """cargo-deny takes the manifest before its command only, clippy after the name as well."""
    name, *others = arguments
    return [name, "--manifest-path", str(MANIFEST), *others]


if __name__ == "__main__":
    sys.exit(main())
