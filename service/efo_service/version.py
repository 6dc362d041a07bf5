"""The version of efo, and the commit that it was built from."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from typing import Final

import efo

VERSION: Final = efo.__version__
UNKNOWN: Final = "unknown"
_SECONDS: Final = 5.0


@cache
def commit() -> str:
    """Return the commit: that of the build, or of the checkout whose files these are, with -dirty if they differ."""
    here = Path(__file__).parent
    try:
        return (here / "commit.txt").read_text().strip()
    except OSError:
        pass
    root = here.parents[1]
    if not (root / ".git").exists():
        return UNKNOWN
    command = ["git", "-C", str(root), "describe", "--always", "--abbrev=40", "--dirty", "--exclude", "*"]
    try:
        found = subprocess.run(command, check=True, capture_output=True, text=True, timeout=_SECONDS)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return UNKNOWN
    return found.stdout.strip()


def version_text() -> str:
    """Return what `efo --version` prints: with efo-native, if that is used."""
    from efo.protocol.native import DECODER  # noqa: PLC0415 - this is imported by commands that read no records

    return f"{VERSION} ({commit()})" + (f", {DECODER.detail}" if DECODER.step else "")
