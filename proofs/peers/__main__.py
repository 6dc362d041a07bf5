"""`python -m proofs.peers [PEER ...]`: measure efo beside its peers; print tables and, as the last line, JSON.

Exit status: 0 if nothing failed, 1 if a figure of a peer failed, 2 for a wrong command line, 130 if interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio

from efo.exception_groups import collapse_groups
from efo.protocol.native import DECODER
from proofs.benchmarks.machine import commit, interpreter
from proofs.local_servers.dynamodb import serve_dynamodb_local
from proofs.local_servers.running import NotInstalledError
from proofs.paths import ROOT
from proofs.peers.chart import draw
from proofs.peers.figures import Timing
from proofs.peers.peers import BASE, PEERS, Peer
from proofs.peers.results import Results
from proofs.peers.runner import FIGURES, PARTS, Run
from proofs.peers.servers import Site
from proofs.peers.table import lines_of

_INTERRUPTED: Final = 130
_EPILOG: Final = """\
example: python -m proofs.peers kcl boto3 --figures throughput,latency --seconds 5 --rounds 3

Without PEER, all are measured; efo always is. A peer whose toolchain is missing is left out by name. docs/peers.md says
how each figure is made."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Return the exit status."""
    options = parse(arguments)
    peers = [peer for peer in PEERS if not options.peers or peer.name in {BASE, *options.peers}]
    results = _earlier(options.output) if options.add else Results()
    began = time.monotonic()
    machine = _machine(options)
    save = partial(_save, results, machine, options.output)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="efo-peers-")))
        try:
            dynamodb = stack.enter_context(serve_dynamodb_local())
        except NotInstalledError as error:
            _progress(began, str(error))
            dynamodb = ""
        run = Run(
            figures=options.figures,
            rounds=options.rounds,
            timing=Timing(options.seconds, options.warm),
            site=Site(directory, dynamodb),
            results=results,
            progress=partial(_progress, began),
            save=save,
        )
        if not trio.run(_completed, run, peers):
            return _INTERRUPTED
    save()
    _print(results, as_json=options.json)
    return 1 if results.failed else 0


async def _completed(run: Run, peers: Sequence[Peer]) -> bool:
    """Run; return whether it was completed. Ctrl-C and SIGTERM end it, with its programs and servers."""
    completed = False

    async def until_signal(signals: AsyncIterator[int]) -> None:
        await anext(signals)
        nursery.cancel_scope.cancel()

    with collapse_groups(), trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(until_signal, signals)
            await run.all(peers)
            completed = True
            nursery.cancel_scope.cancel()
    return completed


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m proofs.peers",
        description="Measure efo beside other consumers of Kinesis, on the same servers.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    names = [peer.name for peer in PEERS]
    add("peers", nargs="*", metavar="PEER", type=partial(_one_of, names), help=f"one or more of {', '.join(names)}")
    add(
        "--figures",
        type=_figures,
        default=FIGURES,
        help=f"comma-separated, of {', '.join(FIGURES)} (default: all of these), {', '.join(PARTS)}",
    )
    add("--seconds", type=_positive, default=5.0, help="length of each measurement (default: 5)")
    add("--rounds", type=int, default=3, help="rounds; each has every peer once (default: 3)")
    add("--warm", type=_positive, help="seconds before a measurement (default: 3, and 30 for peers on a JVM)")
    add("--output", type=Path, default=ROOT / "docs", help="where to write peers.json and peers.svg (default: docs)")
    add("--add", action="store_true", help="keep what peers.json has: for more figures of the same peers and machine")
    add("--json", action="store_true", help="print the JSON alone, without tables")
    return parser.parse_args(arguments)


def _figures(text: str) -> tuple[str, ...]:
    return tuple(_one_of((*FIGURES, *PARTS), name) for name in text.split(","))


def _one_of(names: Sequence[str], name: str) -> str:
    if name not in names:
        raise argparse.ArgumentTypeError(f"unknown name {name!r}: choose from {', '.join(names)}")
    return name


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a positive number of seconds")
    return value


def _machine(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        **interpreter(),
        "step": DECODER.name,
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "seconds": options.seconds,
        "rounds": options.rounds,
    }


def _earlier(directory: Path) -> Results:
    try:
        return Results.of(json.loads((directory / "peers.json").read_text()))
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.exit(f"--add: cannot use {directory / 'peers.json'} ({error!r}): measure without --add first")


def _save(results: Results, machine: dict[str, Any], directory: Path) -> None:
    """Write what is there, so that a long run that is interrupted loses little."""
    found = results.as_json(BASE, machine | {"load_average": round(os.getloadavg()[0], 1)})
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "peers.json").write_text(json.dumps(found, indent=1) + "\n")
    (directory / "peers.svg").write_text(draw(found["peers"], BASE))


def _progress(began: float, message: str) -> None:
    print(f"[{time.monotonic() - began:6.0f} s] {message}", file=sys.stderr, flush=True)


def _print(results: Results, *, as_json: bool) -> None:
    if not as_json:
        print("\n".join([*lines_of(results.rounds, BASE), *results.remarks()]))
    missing = {"skipped": results.skipped, "failed": results.failed, "cannot": results.cannot}
    print(json.dumps({f"{BASE}_ratio": results.ratios(BASE), **missing}))


if __name__ == "__main__":
    sys.exit(main())
