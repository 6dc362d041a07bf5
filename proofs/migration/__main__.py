"""`python -m proofs.migration [CASE ...]`: move applications of other libraries to efo and back.

Prints a table, then one JSON object.

Exit status: 0 if nothing was lost or repeated, 1 if something was, or a case failed, 69 if a case was left out because
a server or a toolchain is missing. docs/migrate.md says what is done.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import trio
from rich.console import Console
from rich.table import Table

from proofs.local_servers.dynamodb import credentials, serve_dynamodb_local
from proofs.local_servers.running import NotInstalledError, Serve
from proofs.migration.cases import CASES, Case
from proofs.migration.scenario import MigrationError, run_case
from proofs.peers.program import PeerError, build
from proofs.peers.servers import Site, fake_kinesis


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m proofs.migration",
        description=__doc__,
        epilog="example: python -m proofs.migration harlow-redis kcl-3",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"one of {', '.join(case.name for case in CASES)}")
    names = parser.parse_args(arguments).cases
    if unknown := set(names) - {case.name for case in CASES}:
        parser.error(f"unknown case {', '.join(sorted(unknown))}")
    results: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="efo-migration-") as directory, credentials():
        for case in CASES:
            if not names or case.name in names:
                results[case.name] = result = _run(case, Path(directory))
                _progress(f"{case.name}: {json.dumps(result)}")
    _show(results)
    return _status(results)


def _run(case: Case, directory: Path) -> dict[str, Any]:
    """Run a case; return its result."""
    result: dict[str, Any] = {"made": case.made}
    if case.peer is not None and (missing := case.peer.missing()):
        return result | {"skipped": missing}
    with ExitStack() as servers:

        def url(serve: Serve | None) -> str:
            return "" if serve is None else servers.enter_context(serve())

        try:
            site = Site(directory, url(serve_dynamodb_local))
            place = url(case.serve)
        except NotInstalledError as error:
            return result | {"skipped": str(error)}
        try:
            parts = trio.run(_work, case, site, place)
        except (MigrationError, PeerError, KeyError) as error:
            _progress(f"{case.name}: {error}")
            return result | {"failed": str(error).partition("\n")[0]}
    return (
        result
        | {side: {"missing": part.missing, "repeated": part.repeated} for side, part in parts.items()}
        | ({"repeats_because": case.repeats} if case.repeats else {})
    )


async def _work(case: Case, site: Site, place: str) -> Any:
    if case.peer is not None:
        _progress(f"{case.name}: building the program")
        await build(case.peer)
    async with fake_kinesis() as fake:
        return await run_case(case, fake, site, place, _progress)


def _status(results: dict[str, dict[str, Any]]) -> int:
    if any("failed" in result for result in results.values()):
        return 1
    for result in results.values():
        for side in ("efo", "back"):
            part = result.get(side, {})
            if part.get("missing") or (part.get("repeated") and "repeats_because" not in result):
                return 1
    return os.EX_UNAVAILABLE if any("skipped" in result for result in results.values()) else 0


def _show(results: dict[str, dict[str, Any]]) -> None:
    table = Table("format", "its rows were", "efo: missing, repeated", "back: missing, repeated")
    for name, result in results.items():
        sides = [result.get(side) for side in ("efo", "back")]
        texts = [f"{part['missing']}, {part['repeated']}" if part else "" for part in sides]
        if problem := result.get("failed") or result.get("skipped"):
            texts[0] = problem
        table.add_row(name, result["made"], *texts)
    Console(width=None if sys.stdout.isatty() else 160, highlight=False).print(table)
    print(json.dumps(results))


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
