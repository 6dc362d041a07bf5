"""What a build adds to the files: the commit that it is made of, and the links of the long description.

The commit is in `efo_service/commit.txt`, which `efo --version` and the metrics show. It is that of the checkout, with
-dirty if files differ from it; without a checkout, as in an image, EFO_COMMIT.

The long description is the README. Its relative links become those of this version in the repository, whose address is
Repository of [project.urls] in pyproject.toml: a package index has no docs/.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

_FILE = "efo_service/commit.txt"
_RELATIVE_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)[^)\s]+(?=\))")
_PICTURES = (".png", ".svg")


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


class DescriptionHook(MetadataHookInterface):  # type: ignore[misc,unused-ignore]
    """Makes the long description of the README."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the field `readme`, which pyproject.toml declares as dynamic."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        text = with_absolute_links(text, metadata["urls"]["Repository"], f"v{metadata['version']}")
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def with_absolute_links(text: str, repository: str, tag: str) -> str:
    """Return Markdown whose relative links lead to the files of a tag, and whose pictures are these files."""

    def absolute(link: re.Match[str]) -> str:
        return f"{repository.rstrip('/')}/{'raw' if link[0].endswith(_PICTURES) else 'blob'}/{tag}/{link[0]}"

    return _RELATIVE_LINK.sub(absolute, text)


def _commit(root: Path) -> str:
    if not (root / ".git").exists():
        return ""
    command = ["git", "describe", "--always", "--abbrev=40", "--dirty", "--exclude", "*"]
    try:
        return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout.strip()  # noqa: S603
    except (OSError, subprocess.CalledProcessError):
        return ""
