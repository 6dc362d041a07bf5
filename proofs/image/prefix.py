"""Runs the steps of an image below a directory, and leaves there what the image would have."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from proofs.image.dockerfile import Stage
from proofs.image.steps import Copy, Run, Skipped, kept, steps
from proofs.paths import ROOT

_PASSED_ON: Final = ("UV_", "PIP_", "SSL_", "HTTP", "http", "NO_PROXY", "no_proxy", "MAVEN_", "JAVA_HOME")
"""The variables of this machine that reach the steps: where packages come from."""
_SYSTEM_PYTHON: Final = "/usr/bin/python3"


class StepError(Exception):
    """A step failed."""


def interpreter() -> str:
    """Return a Python that other users can run too: this one, or the system's if this one is in a private directory."""
    own = Path(sys.executable).resolve()
    if all(parent.stat().st_mode & 0o001 for parent in own.parents):
        return str(own)
    found = (
        subprocess.run(
            [_SYSTEM_PYTHON, "-c", "import sys; print(sys.version_info >= (3, 11))"],
            capture_output=True,
            text=True,
            check=False,
        )
        if Path(_SYSTEM_PYTHON).exists()
        else None
    )
    return _SYSTEM_PYTHON if found and found.stdout.strip() == "True" else str(own)


def make(stages: dict[str, Stage], target: str, root: Path) -> list[Skipped]:
    """Run the steps of a target below an empty directory. Return those that were not run. Raises StepError."""
    # The base's Python: an environment of its own, since a step installs into it.
    venv.create(root / "usr/local", with_pip=True)
    (root / "etc").mkdir()
    for name in ("passwd", "group"):
        shutil.copy(f"/etc/{name}", root / "etc")  # a step adds to them
    environment = {
        **{name: value for name, value in os.environ.items() if name.startswith(_PASSED_ON)},
        "PATH": f"{root}/usr/local/bin:{os.environ['PATH']}",
        "HOME": str(root / "root"),
        "UV_PYTHON": interpreter(),
    }
    skipped = []
    for step in steps(stages, target, root):
        match step:
            case Copy():
                _copy(step)
            case Run():
                _run(step, environment)
            case Skipped():
                skipped.append(step)
    _remove_all_but(root, [root / path.lstrip("/") for path in [*kept(stages, target), "/var", "/etc"]])
    return skipped


def _copy(step: Copy) -> None:
    for source in (ROOT / name for name in step.sources):
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, step.target, ignore=ignored, dirs_exist_ok=True)
        else:
            step.target.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, step.target)


def _run(step: Run, environment: Mapping[str, str]) -> None:
    step.directory.mkdir(parents=True, exist_ok=True)
    command = step.command if os.geteuid() == 0 else step.command.replace("-o 10001 -g 10001 ", "")  # root's right
    ended = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=step.directory,
        env={**step.environment, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        raise StepError(f"exit status {ended.returncode}: {command}\n{ended.stdout[-2000:]}{ended.stderr[-4000:]}")


def _remove_all_but(root: Path, paths: list[Path]) -> None:
    for child in root.iterdir():
        if child in paths:
            continue
        if not any(path.is_relative_to(child) for path in paths):
            shutil.rmtree(child)
        elif child.is_dir():
            _remove_all_but(child, paths)


def mebibytes(root: Path) -> float:
    """Return the size of the files below a directory, in MiB. A file with several names counts once."""
    files = [path.lstat() for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
    return round(sum({(at.st_dev, at.st_ino): at.st_size for at in files}.values()) / 2**20, 1)
