"""`efo doctor`: checks everything that the service needs, before it runs or while it does."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from math import isfinite
from typing import Annotated, Final

import trio
from cyclopts import Parameter
from rich.console import Console

from efo_service.commands.options import ConfigFile, Json
from efo_service.commands.output import write_json
from efo_service.config.loading import load_all
from efo_service.config.settings import Settings
from efo_service.exit_codes import Exit, most_severe
from efo_service.factories.doctor import open_checks
from efo_service.operations.doctor.report import document, document_of_streams, exit_code, lines
from efo_service.operations.doctor.running import Finding, run_checks

TIMEOUT: Final = 5.0
"""Seconds for each check, unless --timeout says otherwise."""
_SHOWN: Final = 2
"""How many of the running checks are named while they run, on a line of 80 columns."""


def _check_timeout(_type: object, seconds: float) -> None:
    if not (isfinite(seconds) and seconds > 0):
        raise ValueError("Must be more than 0 seconds.")  # cyclopts reports it with the option


def doctor(
    *,
    config: ConfigFile = None,
    stream: Annotated[
        str | None, Parameter(name=["--stream"], help="One stream, by its name in [streams]. Default: all of the file.")
    ] = None,
    timeout: Annotated[
        float, Parameter(validator=_check_timeout, help="Time limit of each check, in seconds.")
    ] = TIMEOUT,
    as_json: Json = False,
) -> Exit:
    """Check everything that `efo run` needs, of each stream, and say what to do about each problem."""
    configuration = load_all(config)
    settings = configuration.streams if stream is None else {stream: configuration.one(stream)}
    has_names = configuration.has_tables and stream is None
    found = {}
    for name, of_stream in settings.items():
        findings = found[name] = trio.run(_find, of_stream, timeout)
        if not as_json:
            heading = [f"stream {name}", ""] if has_names else []
            sys.stdout.writelines(f"{line}\n" for line in [*heading, *lines(findings, sys.stdout.encoding)])
            sys.stdout.write("\n" if has_names else "")
            sys.stdout.flush()
    if as_json:
        write_json(document_of_streams(found) if has_names else document(*found.values()))
    return most_severe(exit_code(findings) for findings in found.values())


async def _find(settings: Settings, timeout: float) -> list[Finding]:  # noqa: ASYNC109 - of each check
    console = Console(stderr=True, highlight=False)
    with console.status("checking") if console.is_terminal else nullcontext() as status:

        def show(running: Sequence[str], ended: int, total: int) -> None:
            if status is not None:
                status.update(f"{ended} of {total} checks are done; running: {', '.join(running[:_SHOWN])}")

        async with open_checks(settings, timeout) as checks:
            return await run_checks(checks, timeout, show)
