"""The Pythons of the proof: the packed environment with efo, and those that lack efo or have another version of it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from efo.errors import EfoError
from efo_service.version import VERSION
from proofs.local_servers.running import NotInstalledError
from proofs.paths import ROOT, TOOLS

INSTALLED: Final = TOOLS / "cluster"
"""`environment` has what efo needs, but not efo; `client` is for Spark Connect; `bare` is empty."""
BARE: Final = INSTALLED / "bare" / "bin" / "python"
CLIENT: Final = INSTALLED / "client" / "bin" / "python"
WITHOUT_EFO: Final = INSTALLED / "environment" / "bin" / "python"
OTHER_VERSION: Final = "0.0.1"
NAME: Final = "environment"
"""Of the directory into which the archive is unpacked: beside the driver, and by Spark in each executor's."""


@dataclass(frozen=True, slots=True)
class Environments:
    """What was made.

    `driver`: a directory with the unpacked environment. `archive`: the environment, packed.
    `packages`: the directory of its packages. `wheel`: a directory with efo alone. `other`: a Python with another
    version of efo.
    """

    driver: Path
    archive: Path
    packages: Path
    wheel: Path
    other: Path


def check_installed() -> None:
    """Raise NotInstalledError if a Python is missing."""
    for path in (BARE, CLIENT, WITHOUT_EFO):
        if not path.exists():
            raise NotInstalledError(f"{path} is missing: run `make cluster-install`")


def lacks_efo(python: Path) -> bool:
    """Return whether `import efo_service` fails in a Python because efo is not there."""
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('efo_service') is not None)"
    return subprocess.run([str(python), "-I", "-c", code], check=False).returncode == 0  # noqa: S603 - a Python of ours


def make(directory: Path) -> Environments:
    """Build the wheel of this checkout, install it, and pack the environment. Raises EfoError."""
    dist, wheel, driver = directory / "dist", directory / "wheel", directory / "driver"
    _run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(dist)])
    file = next(dist.glob("*.whl"))
    environment = driver / NAME
    shutil.copytree(INSTALLED / "environment", environment, symlinks=True)
    _install(file, environment)
    archive = directory / "environment.tar.gz"
    _run(["tar", "-I", "gzip -1", "-cf", str(archive), "-C", str(environment), "."])
    shutil.unpack_archive(file, wheel, "zip")
    other = directory / "other"
    shutil.copytree(environment, other, symlinks=True)
    _change_version(_packages(other))
    return Environments(driver, archive, _packages(environment), wheel, other / "bin" / "python")


def pack_link(directory: Path, python: Path) -> Path:
    """Pack an archive like that of `make`, whose Python is another one; return it."""
    program = directory / "links" / python.parts[-3] / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec {python} "$@"\n')
    program.chmod(0o755)
    archive = directory / f"{python.parts[-3]}-link.tar.gz"
    _run(["tar", "-czf", str(archive), "-C", str(program.parents[1]), "."])
    return archive


def _install(wheel: Path, environment: Path) -> None:
    uv = TOOLS / "uv" / "bin" / "uv"
    python = str(environment / "bin" / "python")
    _run([str(uv), "pip", "install", "--quiet", "--offline", "--no-deps", "--python", python, str(wheel)])


def _packages(environment: Path) -> Path:
    return next(environment.glob("lib/python*/site-packages"))


def _change_version(packages: Path) -> None:
    metadata = next(packages.glob("efo-*.dist-info")) / "METADATA"
    metadata.write_text(metadata.read_text().replace(f"\nVersion: {VERSION}\n", f"\nVersion: {OTHER_VERSION}\n", 1))


def _run(command: list[str]) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603 - known commands
    if done.returncode != 0:
        raise EfoError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
