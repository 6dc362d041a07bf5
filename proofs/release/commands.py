"""Runs the commands of a proof, each within a time. What one prints is kept for the message of its failure."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from proofs.paths import ROOT, TOOLS

UV: Final = TOOLS / "uv/bin/uv"
_SHOWN: Final = 1_500


class CheckError(Exception):
    """A check of the release failed. The message says what, and how the command ended."""


def run(
    command: Sequence[str | Path],
    cwd: Path = ROOT,
    environment: Mapping[str, str] | None = None,
    timeout: float = 1_800.0,
) -> str:
    """Run a command, and return what it prints. `environment`: in addition. Raises CheckError."""
    words = [str(word) for word in command]
    try:
        with subprocess.Popen(  # noqa: S603 - commands of this proof
            words,
            cwd=cwd,
            env={**os.environ, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                stdout, stderr = process.communicate(timeout=timeout)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)  # with the processes that it started
                raise
    except OSError as error:
        raise CheckError(f"{words[0]} does not start: {os.strerror(error.errno or 0)}") from error
    except subprocess.TimeoutExpired as error:
        raise CheckError(f"{' '.join(words[:4])} did not end in {timeout:.0f} s") from error
    if process.returncode != 0:
        output = f"{stdout}{stderr}".strip()[-_SHOWN:]
        raise CheckError(f"{' '.join(words[:6])} ended with {process.returncode}:\n{output}")
    return stdout


def empty_environment(directory: Path, python: Path) -> Path:
    """Make a virtual environment with nothing in it, and return its interpreter. Raises CheckError."""
    run([UV, "venv", "--quiet", "--clear", "--python", python, directory])
    return directory / "bin/python"


def install(python: Path, *arguments: str | Path) -> None:
    """Install into an environment. Raises CheckError."""
    run([UV, "pip", "install", "--quiet", "--python", python, *arguments])
