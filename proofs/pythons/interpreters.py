"""Finds interpreters on this machine: one for each version."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from proofs.paths import TOOLS
from proofs.release.commands import CheckError, run

_CLASSIFIER: Final = re.compile(r"Programming Language :: Python :: (3\.\d+)")
_LOOK: Final = "import sys, ssl, sqlite3; print('%d.%d.%d' % sys.version_info[:3])"


def supported(project: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the versions that the classifiers of a pyproject.toml name, such as 3.14."""
    return tuple(match[1] for one in project["project"]["classifiers"] if (match := _CLASSIFIER.fullmatch(one)))


def find(versions: Iterable[str], more: Sequence[Path] = ()) -> dict[str, Path]:
    """Return an interpreter for each version that this machine has. `more`: these are looked at first."""
    return {version: path for version in versions if (path := _of_version(version, more)) is not None}


def full_version(python: Path) -> str | None:
    """Return the version of an interpreter, such as 3.14.1; None if it does not run, or lacks what efo needs."""
    try:
        return run([python, "-c", _LOOK], timeout=60.0).strip()
    except CheckError:
        return None


def _of_version(version: str, more: Sequence[Path]) -> Path | None:
    for path in _candidates(version, more):
        if path.is_file() and (full_version(path) or "").startswith(f"{version}."):
            return path
    return None


def _candidates(version: str, more: Sequence[Path]) -> Iterator[Path]:
    """Yield where an interpreter may be: named, by `.ci/pythons`, on PATH, of pyenv, of uv."""
    name = f"python{version}"
    yield from more
    yield TOOLS / "pythons" / "usr/bin" / name
    yield from (Path(folder) / name for folder in os.get_exec_path())
    for installed in ("~/.pyenv/versions", "~/.local/share/uv/python"):
        yield from sorted(Path(installed).expanduser().glob(f"*{version}*/bin/{name}"), reverse=True)
