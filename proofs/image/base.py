"""A stand-in for the base of the images, where no registry can be reached: Debian by debootstrap, and a CPython.

It has what `python:*-slim-bookworm` has: the packages below, and a CPython with pip in /usr/local. The CPython is
one of this machine, copied. Its Debian is therefore as old as that machine's at least.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

SUITE: Final = "bookworm"
MIRROR: Final = "http://deb.debian.org/debian"
PACKAGES: Final = (
    *("ca-certificates", "netbase", "tzdata"),
    # Of the modules of CPython.
    *("libbz2-1.0", "libdb5.3", "libexpat1", "libffi8", "libgdbm6", "libgdbm-compat4", "liblzma5", "libncursesw6"),
    *("libnsl2", "libreadline8", "libsqlite3-0", "libssl3", "libtirpc3", "libuuid1", "zlib1g"),
)
WANTED: Final = "python3.13"
"""The CPython of the Dockerfile's base."""
_PATH: Final = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
_IMPORTS: Final = "import bz2, ctypes, curses, hashlib, lzma, readline, sqlite3, ssl, uuid, venv, zlib; import pip"
_LEFT_OUT: Final = shutil.ignore_patterns("__pycache__", "test", "tests", "tkinter", "_tkinter*", "idlelib", "*.a")
_PREFIX: Final = "import sys; print(sys.base_prefix, '%d.%d' % sys.version_info[:2])"


class BaseError(Exception):
    """The stand-in cannot be made."""


def install_debian(root: Path, log: Path) -> None:
    """Fetch and install Debian's packages in an empty directory. Raises BaseError."""
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, str(root), MIRROR]
    with log.open("wb") as out:
        ended = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, check=False)
    if ended.returncode:
        raise BaseError(f"debootstrap ended with {ended.returncode}: {log.read_text()[-2000:]}")
    for archive in (root / "var/cache/apt/archives").glob("*.deb"):
        archive.unlink()


def install_python(root: Path, python: str | None) -> str:
    """Copy a CPython of this machine into the file system of a Debian, and return its version. Raises BaseError.

    `python`: the interpreter; by default the Dockerfile's version if this machine has it, else the one that runs.
    """
    prefix, version = _interpreter(python)
    local = root / "usr/local"
    for name in ("bin", "lib", "include"):
        shutil.copytree(prefix / name, local / name, symlinks=True, ignore=_without_packages, dirs_exist_ok=True)
    for name in ("python", "python3"):
        (local / "bin" / name).unlink(missing_ok=True)
        (local / "bin" / name).symlink_to(f"python{version}")
    # No loader's cache names /usr/local/lib before this: CPython may be a shared library.
    for step in (["ldconfig"], ["python", "-m", "ensurepip"], ["python", "-c", _IMPORTS]):
        tried = subprocess.run(
            ["chroot", str(root), *step],  # noqa: S607 - found on PATH
            env={"PATH": _PATH},
            capture_output=True,
            text=True,
            check=False,
        )
        if tried.returncode:
            raise BaseError(f"{prefix} does not run in Debian {SUITE}; choose by --python: {tried.stderr[-1000:]}")
    return version


def _without_packages(directory: str, names: list[str]) -> set[str]:
    left_out = set(_LEFT_OUT(directory, names))
    return left_out | (set(names) if Path(directory).name == "site-packages" else set())


def _interpreter(python: str | None) -> tuple[Path, str]:
    """Return the prefix and the version of the interpreter that is copied."""
    pyenv = sorted(Path.home().glob(f".pyenv/versions/{WANTED.removeprefix('python')}.*/bin/{WANTED}"))
    for candidate in [python] if python else [WANTED, *map(str, pyenv), sys.executable]:
        try:
            ended = subprocess.run([str(candidate), "-c", _PREFIX], capture_output=True, text=True, check=False)
        except OSError:
            continue
        if ended.returncode == 0:
            prefix, version = ended.stdout.split()
            return Path(prefix), version
    raise BaseError(f"no interpreter runs: {python}")
