"""efo as another process: the command line that starts it again, with the same Python."""

from __future__ import annotations

import sys


def efo_command(*arguments: str) -> list[str]:
    """Return the command line of an efo command.

    `-P`, since `-m` would let whatever is called `service` in the current directory go before efo's own.
    """
    return [sys.executable, "-P", "-m", "efo_service.cli", *arguments]
