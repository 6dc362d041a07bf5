"""The command line that starts efo as another process, with the same Python."""

from __future__ import annotations

import sys


def efo_command(*arguments: str) -> list[str]:
    """Return the command line of an efo command.

    It has `-P`, because `-m` alone would prefer a module of the current directory to efo's own.
    """
    return [sys.executable, "-P", "-m", "efo_service.cli", *arguments]
