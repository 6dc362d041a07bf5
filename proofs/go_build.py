"""Builds a program of Go from a directory with its modules' versions and checksums."""

from __future__ import annotations

import subprocess
from pathlib import Path

from proofs.paths import ROOT


class GoBuildError(Exception):
    """A program could not be built. The message has the end of Go's output."""


def build(source: Path, program: Path) -> None:
    """Build a program, unless it is newer than its source. Go checks its modules by go.sum. Raises GoBuildError."""
    newest = max(path.stat().st_mtime for path in source.iterdir())
    if program.exists() and program.stat().st_mtime > newest:
        return
    program.parent.mkdir(parents=True, exist_ok=True)
    command = ["go", "build", "-mod=readonly", "-buildvcs=false", "-trimpath", "-o", str(program), "."]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != 0:
        raise GoBuildError(f"go build in {source.relative_to(ROOT)}: {done.stderr.strip()[-2000:]}")
