"""Puts the commit into what is built: `efo_service/commit.txt`, which `efo --version` and the metrics show.

It is that of the checkout, with -dirty if files differ from it; without a checkout, as in an image, EFO_COMMIT.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_FILE = "efo_service/commit.txt"


class CommitHook(BuildHookInterface):  # type: ignore[type-arg,misc,unused-ignore]
    """Writes the commit beside the modules of a wheel, and into the same place of an sdist."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the file. An editable installation asks its checkout instead, which moves on."""
        commit = os.environ.get("EFO_COMMIT") or _commit(Path(self.root))
        if version == "editable" or not commit:
            return
        directory = Path(tempfile.mkdtemp())
        (directory / "commit.txt").write_text(f"{commit}\n")
        place = f"service/{_FILE}" if self.target_name == "sdist" else _FILE
        build_data["force_include"][str(directory / "commit.txt")] = place


def _commit(root: Path) -> str:
    if not (root / ".git").exists():
        return ""
    command = ["git", "describe", "--always", "--abbrev=40", "--dirty", "--exclude", "*"]
    try:
        return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout.strip()  # noqa: S603
    except (OSError, subprocess.CalledProcessError):
        return ""
