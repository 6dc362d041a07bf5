"""The program `efo`: the command line, and a short way for `efo healthcheck`, which containers call all the time."""

from __future__ import annotations

import sys
from typing import NoReturn

from efo_service import quick_healthcheck


def main() -> NoReturn:
    """Run the program, and exit."""
    if sys.argv[1:2] == ["healthcheck"] and (answer := quick_healthcheck.ask(sys.argv[2:])) is not None:
        sys.stdout.write(answer + "\n")
        sys.exit(0)
    from efo_service.cli import main as run_command  # noqa: PLC0415 - it takes ten times the CPU time of the health check

    run_command()


if __name__ == "__main__":
    main()
